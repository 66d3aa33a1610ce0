"""Progress of long work: a bar on a terminal, else a line of the log now and then."""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tqdm import tqdm

log = logging.getLogger(__name__)

# Whether the user wants warnings and results only.
quiet: ContextVar[bool] = ContextVar("quiet", default=False)

LINE_EVERY = 10.0  # seconds between two lines
Item = TypeVar("Item")


def is_watched() -> bool:
    """Whether somebody looks at a terminal, and wants to see bars."""
    return sys.stderr.isatty() and not quiet.get()


def follow(
    items: Iterable[Item], name: str, total: int | None, unit: str, state: Callable[[], str] | None = None
) -> Iterator[Item]:
    """Yield the items, and show the number done, the total and the seconds left.

    Args:
        items: What is worked on one by one. Where it has a length, that may grow meanwhile, and counts for the total.
        name: Of the work.
        total: Number of items; None where it is not known.
        unit: What an item is.
        state: Returns what is found so far, to be said beside it.
    """
    if is_watched():
        bar = tqdm(items, desc=name, total=total, unit=unit, leave=False)
        shown = -math.inf
        for item in bar:
            yield item
            bar.total = len(items) if isinstance(items, Sized) else total
            if state is not None and (now := time.monotonic()) - shown >= bar.mininterval:
                shown = now
                bar.set_postfix_str(state())
        return
    begin = said = time.monotonic()
    for done, item in enumerate(items):
        now, total = time.monotonic(), len(items) if isinstance(items, Sized) else total
        if done and now - said >= LINE_EVERY:
            said = now
            found = "" if state is None else f"; {state()}"
            if total is None:
                log.info("%s: %d %s%s", name, done, unit, found)
            else:
                left = (now - begin) / done * (total - done)
                log.info("%s: %d of %d %s, %.0f s left%s", name, done, total, unit, left, found)
        yield item


@contextmanager
def silent_trainings() -> Iterator[None]:
    """Hide Lightning's messages about every training, in a comparison of many."""
    with warnings_only("lightning.pytorch", logging.ERROR):
        yield


@contextmanager
def warnings_only(name: str, least: int = logging.WARNING) -> Iterator[None]:
    """Hide messages of a logger about parts of long work, but for those from a level on."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(least)
    try:
        yield
    finally:
        logger.setLevel(level)
