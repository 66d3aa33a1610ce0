"""Data sets by name: excerpts that come with the package, and full sets that the scripts in `datasets/` prepare."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.folder import data_home, read_folder
from tsforecast.data.task import ForecastTask
from tsforecast.io.packed import unpack
from tsforecast.wording import suggestion

__all__ = ["CATALOG", "SCRIPTS", "ForecastTask", "load_task"]

# The script that prepares each full set.
SCRIPTS = {f"{name}-full": f"{name}.py" for name in ("exchange", "electricity", "traffic", "solar", "wiki")}
# What is measured, and its unit where the source tells.
_READINGS = ("consumption", "sum of 4 readings in kW")
_MEASURED = {
    "exchange": ("exchange rate", "US dollars"), "electricity": _READINGS, "electricity-18dec": _READINGS,
    "traffic": ("taxi trips", "per hour"), "solar": ("photovoltaic output", "W per kW of panels"),
    "wiki": ("page views", "per day"), "taxi-blizzard": ("taxi trips", "per half hour"),
    "eia-2020": ("electricity demand", "MW"), "electricity-2012-2014": ("consumption", ""),
    "exchange-full": ("exchange rate", "US dollars"), "electricity-full": _READINGS,
    "traffic-full": ("occupied share of the lane", ""), "solar-full": ("photovoltaic output", "MW"),
    "wiki-full": ("page views", "per day"),
}  # fmt: skip


def _bundled(name: str, file: str, freq: str, prediction_length: int, windows: int, drop_last: int = 0) -> ForecastTask:
    """An excerpt out of the package, without its last `drop_last` steps."""
    with files("tsforecast.data").joinpath("bundled", f"{file}.npz").open("rb") as stream:
        values, start, items = unpack(stream)  # pyright: ignore[reportArgumentType]
    period = to_period(start, freq)
    entries = [
        {"item_id": item, "start": period, "target": series[: len(series) - drop_last].astype(np.float32)}
        for item, series in zip(items, values, strict=True)
    ]
    return ForecastTask(name, period.freqstr, prediction_length, windows, entries)


def _prepared(name: str) -> ForecastTask:
    """A set below the data folder, written by a script."""
    path = data_home() / name
    if not path.is_dir():
        script = f"datasets/{SCRIPTS[name]}" if name in SCRIPTS else "datasets/gluonts_folder.py"
        raise FileNotFoundError(
            f"the data set {name!r} has not been prepared: there is no {path}. Run `python {script} --help`, which "
            "says what to download and how to turn it into this set; TSFORECAST_DATA names another folder to look in"
        )
    return read_folder(path, name=name)


CATALOG: dict[str, Callable[[], ForecastTask]] = {
    "exchange": partial(_bundled, "exchange", "exchange", "B", 30, 5),
    "electricity": partial(_bundled, "electricity", "electricity", "h", 24, 7),
    "electricity-18dec": partial(_bundled, "electricity-18dec", "electricity", "h", 24, 7, drop_last=168),
    "traffic": partial(_bundled, "traffic", "traffic", "h", 24, 7),
    "solar": partial(_bundled, "solar", "solar", "h", 24, 7),
    "wiki": partial(_bundled, "wiki", "wiki", "D", 30, 5),
    "taxi-blizzard": partial(_bundled, "taxi-blizzard", "taxi-blizzard", "30min", 48, 7),
    "eia-2020": partial(_bundled, "eia-2020", "eia-2020", "h", 24, 7),
    "electricity-2012-2014": partial(_bundled, "electricity-2012-2014", "electricity-2012-2014", "h", 24, 28),
    **{name: partial(_prepared, name) for name in SCRIPTS},
}


def load_task(name: str) -> ForecastTask:
    """A data set of the catalog, or one that was prepared under a name of its own.

    Args:
        name: A key of `CATALOG`, or the name of a folder below `data_home()`.

    Returns:
        The task, with the split that the set is always used with.

    Raises:
        ValueError: If there is no such data set.
        FileNotFoundError: If a full set has not been prepared yet.
    """
    if name in CATALOG:
        target, unit = _MEASURED[name]
        return replace(CATALOG[name](), targets=(target,), unit=unit)
    # A name alone, never a path to a folder elsewhere.
    if name not in ("", "..") and Path(name).name == name and (data_home() / name).is_dir():
        return _prepared(name)
    near = suggestion(name, CATALOG)
    raise ValueError(
        f"there is no data set {name!r}{f'; {near} Expected' if near else '; expected'} {', '.join(CATALOG)}, or a "
        f"folder of {data_home()}"
    )
