"""Options that commands share: which data, what its columns are, and how a trained model forecasts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from tsforecast.cli import parsing, runs
from tsforecast.data import CATALOG, Columns, ForecastTask, load_task, read_task
from tsforecast.data.task import with_windows

# Options by the field of `Columns` that they give, with what `add_argument` needs.
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "item": (
        "name of the series, or several columns that name it together; default: item_id, unique_id, sku, store, ..; "
        "one series if there is none",
        {"nargs": "+"},
    ),
    "timestamp": ("time stamps; default: timestamp, date, ds, month, ..", {"type": str}),
    "target": (
        "what to forecast, one or several; default: target, value, y, sales, .., or the only one left",
        {"nargs": "+"},
    ),
    "covariates": ("numbers known ahead of time", {"nargs": "+"}),
    "static_categories": ("names constant within a series", {"nargs": "+"}),
    "static_reals": ("numbers constant within a series", {"nargs": "+"}),
    "timestamp_format": (
        "format of time stamps, such as %d/%m/%Y; default: ISO 8601 or what is unambiguous",
        {"type": str},
    ),
    "decimal": ("decimal sign; default: a point", {"type": str}),
    "wide": ("one column for each series, beside time stamps", {"action": "store_true"}),
}


def add_columns(parser: ArgumentParser) -> None:
    """Adds the options that say what the columns of a user's table are."""
    group = parser.add_argument_group("columns of --data (see docs/data.md)")
    for name, (text, keywords) in COLUMNS.items():
        # Several names have no type: jsonargparse would refuse a single one, without a list around it, in a YAML file.
        names = [f"--{name}", *([f"--{name}_column"] if name in ("item", "timestamp", "target") else [])]
        group.add_argument(*names, help=text, **keywords)


def add_data(parser: ArgumentParser) -> None:
    """Adds the options that choose a data set and its split."""
    group = parser.add_argument_group("data: a set by name, or a file")
    group.add_argument("--dataset", metavar="NAME", type=str, help=f"one of {', '.join(CATALOG)}")
    group.add_argument("--data", metavar="FILE", type=str, help="CSV, Parquet or a GluonTS folder, in long format")
    group.add_argument("--freq", type=str, help="frequency of --data, such as h, D, MS; default: inferred")
    group.add_argument("--prediction_length", type=int, help="steps of a forecast of --data; default: by frequency")
    group.add_argument("--windows", type=int, help="test windows, 0 for none; default: 5 or 7, or what fits")
    group.add_argument("--unit", type=str, help="in which the target of --data is measured, for pictures")
    group.add_argument("--drop_unusable", action="store_true", help="leave out series of --data that are too short")
    add_columns(parser)


def add_forecast(parser: ArgumentParser) -> None:
    """Adds the run folder of a trained model and the options of its forecasts."""
    parser.add_argument("run", metavar="RUN", type=str, help="run folder of `tsforecast train`")
    parser.add_argument("--num_samples", type=int, default=100, help="sample paths of a forecast")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, ..")
    parser.add_argument("--seed", type=int, default=0, help="of the sample paths")


def trained_run(options: Namespace) -> tuple[Path, dict[str, Any]]:
    """Folder and record of the run which the options of `add_forecast` choose.

    Raises:
        ValueError: If the folder is no run whose training is finished.
        FileNotFoundError: If there is no such folder.
    """
    folder = Path(options.run)
    record = runs.read_record(folder, "train")
    if not runs.finished(folder):
        raise ValueError(f"{folder} is not finished; `{parsing.typed('train')} --resume {folder}` goes on with it")
    return folder, record


def columns(options: Mapping[str, Any] | Namespace, fallback: Columns | None = None) -> Columns:
    """The columns that the options name; those of `fallback` for what they leave open."""
    given = {name: options[name] for name in COLUMNS if options[name]}
    for name in ("item", "target"):
        if isinstance(given.get(name), list) and len(given[name]) == 1:
            given[name] = given[name][0]
    for name in ("covariates", "static_categories", "static_reals"):
        if isinstance(given.get(name), str):
            given[name] = [given[name]]
    base = fallback or Columns()
    return Columns(**{name: given.get(name, getattr(base, name)) for name in COLUMNS})


def task_of(options: Namespace, split: Mapping[str, Any] | None = None) -> ForecastTask:
    """The task which the options of `add_data` choose.

    Args:
        options: Parsed options.
        split: `freq`, `prediction_length` and `windows` that a run has found before: its defaults may no longer be
            those of a file that has grown.

    Raises:
        ValueError: If both or none of a name and a file are given, or options of a file come with a name.
        FileNotFoundError: If there is no such file.
    """
    if (options.dataset is None) == (options.data is None):
        raise ValueError(f"expected either --dataset NAME ({', '.join(CATALOG)}) or --data FILE")
    if options.dataset is not None:
        for name in ("freq", "prediction_length", "unit", "drop_unusable", *COLUMNS):
            if not (options[name] is None or options[name] is False):  # 0 is neither
                raise ValueError(f"--{name} goes with --data FILE; the data set {options.dataset!r} has its own")
        task = load_task(options.dataset)
        return task if options.windows is None else with_windows(task, options.windows)
    split = split or {}
    task = read_task(
        Path(options.data),
        options.freq or split.get("freq"),
        split.get("prediction_length") if options.prediction_length is None else options.prediction_length,
        split.get("windows") if options.windows is None else options.windows,
        columns=columns(options),
        drop_unusable=options.drop_unusable,
    )
    return replace(task, unit=options.unit or "")
