"""Progress of long work: a bar on a terminal, else a line of the log now and then."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sized
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


def follow(items: Iterable[Item], name: str, total: int | None, unit: str) -> Iterator[Item]:
    """Yield the items, and show the number done, the total and the seconds left.

    Args:
        items: What is worked on one by one. Where it has a length, that may grow meanwhile, and counts for the total.
        name: Of the work.
        total: Number of items; None where it is not known.
        unit: What an item is.
    """
    if is_watched():
        bar = tqdm(items, desc=name, total=total, unit=unit, leave=False)
        for item in bar:
            yield item
            bar.total = len(items) if isinstance(items, Sized) else total
        return
    begin = said = time.monotonic()
    for done, item in enumerate(items):
        now, total = time.monotonic(), len(items) if isinstance(items, Sized) else total
        if done and now - said >= LINE_EVERY:
            said = now
            if total is None:
                log.info("%s: %d %s", name, done, unit)
            else:
                log.info("%s: %d of %d %s, %.0f s left", name, done, total, unit, (now - begin) / done * (total - done))
        yield item


@contextmanager
def silent_trainings() -> Iterator[None]:
    """Hide Lightning's messages about every training, in a comparison of many."""
    with warnings_only("lightning.pytorch", logging.ERROR):
        yield


@contextmanager
def warnings_only(name: str, least: int = logging.WARNING) -> Iterator[None]:
    """Hide messages of a logger about parts of long work, but for warnings.

    Args:
        name: Of the logger.
        least: Level from which on it is shown.
    """
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(least)
    try:
        yield
    finally:
        logger.setLevel(level)
