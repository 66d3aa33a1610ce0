"""The observations which the options of `stream` name, and what their targets are."""

import logging
import sys
from collections.abc import Iterator

import pandas as pd

from tsforecast.cli.learning_commands import Stream
from tsforecast.online.stream import STREAMS, Observation, delayed, read_lines, read_stream

log = logging.getLogger(__name__)


def observations(chosen: Stream) -> Iterator[Observation]:
    """The observations that the options name."""
    if chosen.id and chosen.delay:
        raise ValueError("expected --id, for targets that come later, or --delay, which makes them late, not both")
    if chosen.data == "-":
        items = read_lines(sys.stdin, chosen.target, chosen.time, chosen.id)
    elif chosen.data in STREAMS:
        items = STREAMS[chosen.data][2]()
    else:
        items = read_stream(chosen.data, chosen.target, chosen.time, chosen.id)
    if not (text := chosen.delay):
        return items
    expected = "--delay as a number of observations or a time"
    return delayed(items, int(text) if text.isdecimal() else duration(text, expected))


def duration(text: str, expected: str) -> pd.Timedelta:
    """Return the length of time that a text such as 7D names.

    Args:
        text: As it was given.
        expected: What the error says was expected.

    Raises:
        ValueError: If the text names none.
    """
    try:
        length = pd.to_timedelta([text])[0]  # pandas 2 reads a single text by units which NumPy 2.5 deprecates
    except ValueError as error:
        raise ValueError(f"expected {expected} such as 7D, got {text!r}") from error
    if not isinstance(length, pd.Timedelta):
        raise ValueError(f"expected {expected} such as 7D, got {text!r}")
    return length


def until_a_target(items: Iterator[Observation]) -> list[Observation]:
    """The first observations, up to one with a target."""
    ahead = []
    for item in items:
        ahead.append(item)
        if item.target is not None:
            break
    return ahead


def are_classes(chosen: Stream, ahead: list[Observation]) -> bool:
    """Whether targets are classes: as `--task` says, or as the first target looks.

    Raises:
        ValueError: If no observation has a target to go by.
    """
    if chosen.task in ("classes", "numbers"):
        return chosen.task == "classes"
    if chosen.data in STREAMS:
        return STREAMS[chosen.data][1]
    target = ahead[-1].target if ahead else None
    if target is None:
        raise ValueError(f"expected a target in {chosen.target!r} of some observation, got none; name it by --target")
    classes = isinstance(target, str | bool)
    if isinstance(target, int) and not classes:
        log.warning(
            "the target %d is taken as a number: if targets are labels, stop and begin again with --task classes; "
            "with --task numbers this note does not come",
            target,
        )
    else:
        log.info("the target is taken as %s: %r", "a class" if classes else "a number", target)
    return classes
