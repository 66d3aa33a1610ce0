"""What the options that commands share stand for: the data, its columns, and the run of a trained model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli import parsing, run_records, runs
from tsforecast.cli.given_files import columns
from tsforecast.cli.option_groups import COLUMNS, LearningOptions
from tsforecast.cli.train_parser import options_of
from tsforecast.data import CATALOG, Columns, ForecastTask, load_task, read_task
from tsforecast.data.buckets.streamed import StreamedEntries, shortened
from tsforecast.data.irregular import read_irregular
from tsforecast.data.public_holidays import with_holidays
from tsforecast.data.task import ended, with_windows
from tsforecast.forecasting.adaptation import Adaptation
from tsforecast.models import MODELS
from tsforecast.settings import AdaptationSettings
from tsforecast.wording import counted


def trained_run(folder: Path, with_clocks: bool = False) -> dict[str, Any]:
    """Return the record of a run."""
    record = run_records.read_record(folder, "train")
    if not runs.finished(folder):
        raise ValueError(f"{folder} is not finished; `{parsing.typed('train')} --resume {folder}` goes on with it")
    if run_records.is_irregular(record) and not with_clocks:
        raise ValueError(
            f"{folder} is a run of `train --irregular`, which evaluate, predict, impute and regimes take; this command "
            "expects series on a grid"
        )
    return record


def settings(folder: Path, record: dict[str, Any]) -> Namespace:
    """The options that a run was started with, from its config.yaml."""
    path = folder / runs.CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: the run was stopped before it began; start it again")
    model = record["model"]
    if model not in MODELS:
        raise ValueError(f"{folder}: there is no model {model!r}; expected one of {', '.join(MODELS)}")
    return options_of(model, "--config", str(path))


def adaptation(options: LearningOptions) -> Adaptation | None:
    """Return how options let a model go on learning, None if they do not; refuse unknown names and odd numbers."""
    if options.adapt is None:
        return None
    return Adaptation(options.adapt, **AdaptationSettings.values_of(options))


def task_of(options: Namespace, record: Mapping[str, Any] | None = None, found: Columns | None = None) -> ForecastTask:
    """The task which the options of `DataOptions` choose.

    Args:
        options: Parsed options.
        record: Of a run, with the split that it has found before: its defaults may no longer be those of a file that
            has grown.
        found: Columns that a run has found before, with the effects of holidays that its model knows; None for those of
            the record.
    """
    record = record or {}
    found, split = found or run_records.columns_of_run(record), record.get("split", {})
    if options.get("irregular"):
        return read_irregular(
            Path(options.data),
            split.get("prediction_length", options.get("horizon")),
            split.get("windows", options.get("windows")),
            columns=columns(options, found),
            categories=record.get("categories") or None,
        )
    if options.get("horizon"):
        raise ValueError("--horizon goes with --irregular; regular series have --prediction_length")
    if (options.dataset is None) == (options.data is None):
        raise ValueError(f"expected either --dataset NAME ({', '.join(CATALOG)}) or --data FILE")
    roles = columns(options)
    if roles.holidays and found is not None:
        roles = replace(roles, holidays=found.holidays)
    if options.dataset is not None:
        for name in ("freq", "prediction_length", "unit", *COLUMNS):
            if name != "holidays" and not (options[name] is None or options[name] is False):  # 0 is neither
                raise ValueError(f"--{name} goes with --data FILE; the data set {options.dataset!r} has its own")
        task = load_task(options.dataset)
        task = task if options.windows is None else with_windows(task, options.windows)
        return with_holidays(task, roles.holidays) if roles.holidays else task
    task = read_task(
        Path(options.data),
        options.freq or split.get("freq"),
        split.get("prediction_length") if options.prediction_length is None else options.prediction_length,
        split.get("windows") if options.windows is None else options.windows,
        columns=roles,
    )
    return replace(task, unit=options.unit or "")


def training_parts(
    task: ForecastTask, validation: bool
) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]] | None]:
    """Series to train on (all, if too short to be divided), and those whose last window is to validate on, or None."""
    train, length = task.train, task.prediction_length
    if not validation:
        return train, None
    streamed = isinstance(train, StreamedEntries)
    steps = (min if streamed else max)(entry["target"].shape[-1] for entry in train)
    if steps <= length:
        raise ValueError(
            f"the {'shortest' if streamed else 'longest'} series has {counted(steps, 'step')} before the test "
            f"part, too few for a validation window of {length}; leave out --validation, or give a shorter "
            "--prediction_length"
        )
    if streamed:
        return ended(train, length), train
    return [shortened(entry, length) if entry["target"].shape[-1] > length else entry for entry in train], train
