"""What is logged while a run goes on, in a file."""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path


@contextmanager
def collected_notes() -> Iterator[list[logging.LogRecord]]:
    """What is logged before there is a run folder, for `log_file`."""
    handler = MemoryHandler(sys.maxsize, sys.maxsize)
    logger = logging.getLogger("tsforecast")
    logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)


@contextmanager
def log_file(path: Path, notes: Iterable[logging.LogRecord] = ()) -> Iterator[None]:
    """What anybody logs is written to a file, with its time; so are warnings, and what Lightning would print."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for note in notes:
        handler.handle(note)
    root, lightning = logging.getLogger(), logging.getLogger("lightning.pytorch")  # the second passes nothing on
    to_terminal = lightning.handlers
    root.addHandler(handler)
    lightning.handlers = [handler]
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        lightning.handlers = to_terminal
        root.removeHandler(handler)
        handler.close()
