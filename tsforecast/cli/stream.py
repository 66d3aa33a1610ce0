"""`tsforecast stream LEARNER`: predict, score and learn from one observation after the other."""

import csv
import itertools
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.cli import run_records, runs
from tsforecast.cli.learning_commands import Stream
from tsforecast.cli.memory import check_learner_memory, refused_memory
from tsforecast.io.files import append_file, replace_file, write_json
from tsforecast.online.config import OnlineConfig
from tsforecast.online.prequential import advance, movement, scores
from tsforecast.online.progress import Progress, Setup, begin
from tsforecast.online.saved_progress import load, save
from tsforecast.online.stream import STREAMS, Observation, delayed, read_lines, read_stream
from tsforecast.plots import plot_stream, save_figure
from tsforecast.progress import follow
from tsforecast.wording import counted

log = logging.getLogger(__name__)

STATE = "state.pt"
ITEMS = "items.csv"
_COLUMNS: tuple[str, ...] = (
    "item", "time", "id", "target", "prediction", "probability", "sd", "log_loss", "error", "milliseconds",
    "weights_moved", "weights_sd",
)  # fmt: skip


def run(chosen: Stream) -> int:
    """Stream, or go on."""
    if chosen.resume:
        folder = Path(chosen.resume)
        chosen, stream = runs.recorded(folder, "stream", Stream)
        if stream["classes"] not in (0, chosen.expected_classes):
            raise ValueError(
                f"{folder / run_records.RECORD} is damaged: expected classes to be 0 or {chosen.expected_classes}, got "
                f"{stream['classes']}; begin anew"
            )
        with runs.hold(folder):
            return _resume(folder, chosen, stream["classes"])
    items = iter(observations(chosen))
    ahead: list[Observation] = []
    if chosen.task == "auto":
        ahead = until_a_target(items)
    classes = are_classes(chosen, ahead)
    setup = _setup(chosen, chosen.expected_classes if classes else 0)
    begun = _begun(chosen, setup)
    if ahead:
        advance(setup, begun, ahead[0])  # what is wrong with it is said before there is a folder
    name = "stdin" if chosen.data == "-" else Path(chosen.data).stem
    folder = Path(chosen.output) if chosen.output else runs.default_folder(chosen.learner, name)
    with runs.begun(folder, "stream", chosen, {"options": chosen.kept, "classes": setup.classes}):
        _begin(folder, begun)
        return _stream(folder, chosen, setup, begun, itertools.chain(ahead, items))


def _begun(chosen: Stream, setup: Setup) -> Progress:
    """Progress before the first observation, if the memory is enough for the learner."""
    rank = chosen.rank if "rank" in setup.config.named.takes else 0
    check_learner_memory([setup.features or 1, *chosen.hidden, setup.classes or 1], rank)
    try:
        return begin(setup)
    except RuntimeError as error:  # torch's, of an allocation or of a setting that it does not take
        fault = str(error).split("\n")[0]
        raise ValueError(f"the learner {chosen.learner!r} can not be made of these options: {fault}") from error


def _begin(folder: Path, begun: Progress) -> None:
    """Writes the table without a row, and the state before the first observation."""
    with replace_file(folder / ITEMS) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(_COLUMNS)
    save(folder / STATE, begun, {"bytes": (folder / ITEMS).stat().st_size})


def _resume(folder: Path, chosen: Stream, classes: int) -> int:
    """Goes on from the last saved state; from the beginning if the stream was killed before it saved one."""
    setup = _setup(chosen, classes)
    begun = _begun(chosen, setup)
    if not (folder / STATE).is_file():
        if (folder / ITEMS).is_file() and (folder / ITEMS).read_bytes().count(b"\n") > 1:
            raise ValueError(f"{folder} has rows in {ITEMS}, but no {STATE} to go on from; start the stream anew")
        _begin(folder, begun)
    progress, extra = load(folder / STATE, setup)
    _cut(folder / ITEMS, extra["bytes"])
    if chosen.data == "-":
        log.info("going on with observation %d: give it and those after it on standard input", progress.items)
    items = itertools.islice(observations(chosen), 0 if chosen.data == "-" else progress.items, None)
    return _stream(folder, chosen, setup, progress, items)


def _setup(chosen: Stream, classes: int) -> Setup:
    unit = 0.0 if chosen.unit is None else duration(chosen.unit, "--unit as a time").total_seconds()
    if unit < 0 or (chosen.unit is not None and unit == 0):
        raise ValueError(f"expected --unit to be longer than no time, got {chosen.unit!r}")
    config = OnlineConfig.of(chosen)
    if chosen.memory is not None:
        settings = {"memory": chosen.memory, "memory_size": chosen.memory_size, **(chosen.settings or {})}
        config = replace(config, learner=replace(config.learner, settings=settings))
    return Setup(config, classes, chosen.expected_features, chosen.noise, unit, chosen.block)


def _cut(path: Path, size: int) -> None:
    """Takes rows away that were written after the last saved state."""
    if not path.is_file() or path.stat().st_size < size:
        raise ValueError(f"{path} is shorter than the run's state says; start the stream anew")
    with path.open("r+b") as file:
        file.truncate(size)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits until the block has ended."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _stream(folder: Path, chosen: Stream, setup: Setup, progress: Progress, items: Iterator[Observation]) -> int:
    """The loop, with a state and rows that always fit each other."""
    rest = None if chosen.limit is None else chosen.limit - progress.items
    waiting: list[dict[str, Any]] = []

    def keep() -> None:
        """Rows first: what the state does not know of is cut off by the next attempt."""
        try:
            with _no_interrupt():
                if waiting:
                    waiting[-1] |= movement(progress)
                with append_file(folder / ITEMS) as file:
                    csv.DictWriter(file, _COLUMNS, restval="", lineterminator="\n").writerows(waiting)
                save(folder / STATE, progress, {"bytes": (folder / ITEMS).stat().st_size})
                waiting.clear()
        except OSError as error:  # what was saved before is whole
            raise OSError(f"{error}: mend this, then `tsforecast stream --resume {folder}` goes on") from error

    def state() -> str:
        return _summary(scores(setup, progress))

    try:
        for item in follow(itertools.islice(items, rest), "stream", rest, "items", state):
            progress, row = advance(setup, progress, item)
            waiting.append(row)
            if len(waiting) >= chosen.save_every:
                keep()
        keep()
    except KeyboardInterrupt:
        if waiting and waiting[-1]["item"] == progress.items - 1:
            keep()
        log.info(
            "stopped after %s; `tsforecast stream --resume %s` goes on", counted(progress.items, "observation"), folder
        )
        return 130
    except (RuntimeError, MemoryError) as error:
        if (asked := refused_memory(error)) is None:
            raise
        keep()
        raise ValueError(
            f"there is not enough memory for observation {progress.items} ({asked}), while networks grow with their "
            f"features and classes; begin again with fewer columns, a learner such as 'vd-ekf' or smaller --hidden or "
            f"--rank; where there is more memory, `tsforecast stream --resume {folder}` goes on"
        ) from error
    found = scores(setup, progress)
    write_json(folder / "scores.json", found)
    pictured = found["log_loss"] is not None  # not of a number that never varied
    if pictured:
        table = pd.read_csv(folder / ITEMS)
        save_figure(plot_stream(table, found, title=f"{chosen.learner}, {chosen.data}"), folder / "stream.png")
    sys.stdout.write(f"{counted(progress.items, 'observation')}, {_summary(found)}\n")
    log.info("%s: %s", folder, ", ".join([ITEMS, STATE, "scores.json", *(["stream.png"] if pictured else [])]))
    return 0


def _summary(found: dict[str, Any]) -> str:
    if not found["scored"]:
        return "nothing scored yet"
    names = {"log_loss": "log-loss", "accuracy": "accuracy", "rmse": "RMSE", "calibration_error": "calibration error"}
    parts = [f"{text} {found[name]:.4g}" for name, text in names.items() if found.get(name) is not None]
    return ", ".join([*parts, f"{found['milliseconds_per_item']:.2f} ms an item"])


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
    """Return the length of time that a text such as 7D names."""
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
