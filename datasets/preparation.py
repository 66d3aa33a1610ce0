"""Common options and the common end of the scripts in `datasets/`."""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from tsforecast.data.folder import data_home, write_folder
from tsforecast.data.task import ForecastTask
from tsforecast.wording import counted

log = logging.getLogger(__name__)


def preparation_parser(description: str | None, name: str | None, source: str) -> argparse.ArgumentParser:
    """A parser with the options of every script: source, folder and name of the data set.

    Args:
        description: Help text of the script.
        name: Name of the prepared set; None: that of the source.
        source: Help text of the raw data.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help=source)
    parser.add_argument(
        "--out", type=Path, default=data_home(), help="folder of prepared sets (TSFORECAST_DATA; default: %(default)s)"
    )
    parser.add_argument("--name", default=name, help="name of the prepared set (default: %(default)s)")
    return parser


def prepare(options: argparse.Namespace, read: Callable[[], ForecastTask]) -> None:
    """Reads the raw data and writes the prepared set; ends the script with a message where something is wrong.

    Args:
        options: Parsed options of `preparation_parser`.
        read: Makes the task out of the raw data.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        task = read()
        path = options.out / task.name
        write_folder(task, path)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    steps = [entry["target"].shape[-1] for entry in task.entries]
    log.info("%s: %d series of %d to %d steps, frequency %s", path, len(steps), min(steps), max(steps), task.freq)
    log.info("test part: %s of %s", counted(task.windows, "window"), counted(task.prediction_length, "step"))
