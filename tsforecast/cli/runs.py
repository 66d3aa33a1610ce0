"""Run folders: what a training leaves behind, enough to score it, to go on with it and to know where it came from.

- config.yaml: resolved options; `train MODEL --config` takes it
- run.json: format version, data, versions, commit, seed, command
- train.log: what was said
- metrics.csv: losses by epoch, while it is trained in epochs/; learning_curve.png shows them
- checkpoints/last.ckpt: the last finished epoch, with the optimiser's state
- predictor/: the trained predictor; its presence says that the training is finished
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tsforecast.cli.answers import write_table
from tsforecast.cli.records import Command
from tsforecast.cli.run_records import RECORD, new_record, read_record, versions, write_record
from tsforecast.data import ForecastTask
from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.io.files import TOGETHER, remove_leftovers, replace_file, settle_together
from tsforecast.io.locks import LOCK, lock_folder

CONFIG = "config.yaml"
PREDICTOR = "predictor"
ADAPTATION = "adaptation.csv"
REMEMBERED = "remembered.csv"
# What `evaluate` writes, all of it by one call; the first is there only while the others are complete.
REPORT = (
    "scores.json", "scores.csv", "per_series.csv", "per_horizon.csv", "per_forecast.csv", "calibration.csv", ADAPTATION,
    REMEMBERED, "plots", "page.html",
)  # fmt: skip
LAST = Path("checkpoints", "last.ckpt")
METRICS = "metrics.csv"
EPOCHS = "epochs"  # where Lightning's logger writes: it wants a folder of its own, whose files it may delete

_HELPED = "TSFORECAST_RUN"  # variable of the environment: the run that processes of other devices help with

_Options = TypeVar("_Options", bound=Command)

log = logging.getLogger(__name__)


@contextmanager
def with_help(folder: Path) -> Iterator[None]:
    """Tells processes that Lightning starts for other devices which run they help with."""
    os.environ[_HELPED] = str(folder.resolve())
    try:
        yield
    finally:
        del os.environ[_HELPED]


def helped() -> Path | None:
    """The run that this process helps to train; None if it is a command of its own."""
    folder = os.environ.get(_HELPED)
    return Path(folder) if folder and os.environ.get("LOCAL_RANK", "0") != "0" else None


def default_folder(model: str, dataset: str) -> Path:
    """A new folder below `outputs` for a run that starts now."""
    name = re.sub(r"[^\w.-]+", "_", dataset)
    base = Path("outputs", f"{model}-{name}-{datetime.now():%Y%m%d-%H%M%S}")
    folder, count = base, 2
    while folder.exists():
        folder, count = base.with_name(f"{base.name}-{count}"), count + 1
    return folder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keeps other processes from writing into a run folder, and removes what killed ones have left half written."""
    with lock_folder(folder):
        for part in (folder, folder / LAST.parent):
            remove_leftovers(part)
        settle_together(folder, REPORT)
        yield


def settle_report(folder: Path) -> None:
    """Puts the files of a report into their places, if a killed `evaluate` has not; refuses while another writes."""
    if (folder / TOGETHER).is_dir():
        with hold(folder):
            pass


def refuse_used(folder: Path) -> None:
    """Refuses a folder in which no run can begin: with anything in it but a beginning that was killed."""
    found = {path.name for path in folder.iterdir()} - {LOCK} if folder.exists() else set()
    if RECORD in found and found != {RECORD}:
        raise ValueError(f"{folder} is a run already; go on with it by --resume {folder}, or give another --output")
    if found - {RECORD}:
        raise ValueError(f"{folder} is not empty and no run; give a new folder as --output")


def create(folder: Path, config: str, record: dict[str, Any]) -> None:
    """Starts a run folder."""
    refuse_used(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder, record)  # before anything else: alone it says that nothing has begun
    with replace_file(folder / CONFIG) as temporary:
        temporary.write_text(config, encoding="utf-8")


@contextmanager
def begun(folder: Path, kind: str, chosen: Command, contents: dict[str, Any]) -> Iterator[None]:
    """Start a run folder of a command that has a record, and hold it."""
    with hold(folder):
        create(folder, json.dumps(chosen.kept, indent=2) + "\n", new_record(kind, contents, chosen.argv))
        yield


def recorded(folder: Path, kind: str, options: type[_Options]) -> tuple[_Options, dict[str, Any]]:
    """Return the options with which a run goes on, and all that its record has under the name of its command."""
    contents = read_record(folder, kind)[kind]
    return options.recorded(kind, folder / RECORD, contents.get("options", contents)), contents


def check_resumed(folder: Path, record: dict[str, Any], found: str) -> None:
    """Refuses to go on with a run whose data or place have changed; other versions of packages are a warning."""
    if found != record["fingerprint"]:
        raise ValueError(f"{folder}: the data have changed since this run began; start a new run")
    if record["versions"] != versions():
        log.warning("%s began with other versions of packages; its result may differ in the last digits", folder)
    if record["folder"] != str(folder.resolve()):
        raise ValueError(f"{folder} was moved, but its checkpoints name files in {record['folder']}; move it back")


def finished(folder: Path) -> bool:
    """Whether the training came to its end."""
    return (folder / PREDICTOR).is_dir()


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from; None where no epoch was finished."""
    path = folder / LAST
    return path if path.exists() else None


def fingerprint(task: ForecastTask, fields: Collection[str] | None = None) -> str:
    """A hash of everything a model sees of a task, or of some fields of its entries: equal for equal data."""
    digest = hashlib.sha256(f"{task.gap or task.freq} {task.prediction_length} {task.windows}".encode())
    if isinstance(task.entries, StreamedEntries):
        digest.update(task.entries.identity.encode())
        return digest.hexdigest()[:16]
    for entry in task.entries:
        for name in sorted(entry if fields is None else fields):
            value = entry[name]
            digest.update(name.encode())
            digest.update(value.tobytes() if isinstance(value, np.ndarray) else str(value).encode())
    return digest.hexdigest()[:16]


def read_metrics(folder: Path) -> pd.DataFrame:
    """Losses by epoch, one row an epoch, from all attempts; epochs that were done again count once."""
    paths = (folder / METRICS, folder / EPOCHS / METRICS)
    frames = [pd.read_csv(path) for path in paths if path.is_file() and path.stat().st_size]
    if not frames:
        return pd.DataFrame({"epoch": [], "train_loss": []})
    # The last that is not missing, column by column: losses of training and validation come in rows of their own.
    return pd.concat(frames, ignore_index=True).groupby("epoch", as_index=False).last()


def keep_metrics(folder: Path) -> pd.DataFrame:
    """Writes the losses of all attempts to metrics.csv, and gives them; Lightning's logger finds an empty folder."""
    metrics = read_metrics(folder)
    if not metrics.empty:
        write_table(metrics, folder / METRICS)
    shutil.rmtree(folder / EPOCHS, ignore_errors=True)
    return metrics
