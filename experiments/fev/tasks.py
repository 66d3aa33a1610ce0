"""Ten tasks of fev-bench, made of public copies of their data; and how the benchmark scores forecasts of them.

Files lie below one folder of raw files. Tables have the columns item_id, timestamp, target and the covariates; ETT and
hospital are as their sources have them. Nothing of it is shipped: licences are not stated, or do not allow it.
"""

import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from gluonts.model import Forecast

from tsforecast.data import ForecastTask, read_task
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.tables.roles import Columns

Read = Callable[[pathlib.Path], pd.DataFrame]
_LEVELS = np.array(TENTHS)[:, None]
_LOW, _MEDIAN, _HIGH = (TENTHS.index(level) for level in (0.1, 0.5, 0.9))


@dataclass(frozen=True)
class Source:
    """A task as the benchmark defines it.

    Attributes:
        read: Returns its table, given the folder of raw files.
        freq: Frequency.
        horizon: Steps of a window.
        windows: Number of windows at the end of each series, one behind the other.
        season: Of the seasonal errors, and of the seasonal naive.
        tolerance: Relative difference of our seasonal naive from the published one, at most.
        unlike: Published scores of the seasonal naive that ours does not have, for a reason that is not known.
        without: Source of series without which the prior of a bank must be learnt, as it has seen the windows.
        columns: Covariates and static columns; a second column of items names the target.
    """

    read: Read
    freq: str
    horizon: int
    windows: int
    season: int
    tolerance: float = 1e-4
    unlike: tuple[str, ...] = ()
    without: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A task with its data.

    Attributes:
        name: In the benchmark.
        season: Of the seasonal errors.
        data: Series and windows.
        variables: Names of the targets of an item, which are series of their own here; empty where it has one.
    """

    name: str
    season: int
    data: ForecastTask
    variables: tuple[str, ...] = ()

    def variable(self, item_id: str) -> str:
        """Return the target that a series is."""
        return item_id.rpartition("/")[2] if self.variables else ""


def load(name: str, raw: pathlib.Path) -> Task:
    """Return a task.

    Args:
        name: One of `SOURCES`.
        raw: Folder of raw files, searched with subfolders.

    Raises:
        RuntimeError: If a file is missing, or series were left out.
    """
    source = SOURCES[name]
    frame = source.read(raw)
    several = "variable" in frame
    roles = Columns(item=["item_id", "variable"] if several else "item_id", target="target", **source.columns)
    data = read_task(frame, source.freq, source.horizon, source.windows, columns=roles)
    series = len(frame.groupby(roles.items))
    if len(data.entries) != series:
        raise RuntimeError(f"{name}: expected {series} series, got {len(data.entries)}")
    return Task(name, source.season, data, tuple(frame["variable"].unique()) if several else ())


def score(task: Task, forecasts: Iterable[Forecast]) -> dict[str, float]:
    """Return the scores of the benchmark, and the coverage of the interval of 80 %.

    They are means over the steps of all series of a window and target, then over targets and windows. `sql` is twice
    the quantile loss over tenths, and `mase` the absolute error of the median, both in units of the seasonal error of
    the series before the window. `wape` is the sum of absolute errors divided by that of absolute labels. Missing
    labels count nowhere, nor do series without a seasonal error in `sql` and `mase`.

    Args:
        task: Of which they are.
        forecasts: Of its windows, in the order of `task.data.test()`: series by series.

    Raises:
        ValueError: If these are not as many as the windows, or one is of another series or date.
    """
    groups: dict[tuple[str, int], list[np.ndarray]] = {}
    for number, ((past, label), forecast) in enumerate(zip(task.data.test(), forecasts, strict=True)):
        expected, found = (label["item_id"], label["start"]), (forecast.item_id, forecast.start_date)
        if expected != found:
            raise ValueError(f"expected a forecast of series {expected[0]!r} from {expected[1]}, got {found}")
        before, after = (np.asarray(part["target"], np.float64) for part in (past, label))
        cells = _cells(before, after, forecast, task.season)
        groups.setdefault((task.variable(expected[0]), number % task.data.windows), []).append(cells)
    means = [_means(np.concatenate(group, axis=1)) for group in groups.values()]
    return {name: float(np.mean([one[name] for one in means])) for name in means[0]}


def _cells(past: np.ndarray, label: np.ndarray, forecast: Forecast, season: int) -> np.ndarray:
    """Scaled quantile loss, absolute error, the same scaled, absolute label and coverage of each step."""
    quantiles = forecast_quantiles(forecast, TENTHS)
    if np.isnan(quantiles).any():
        raise ValueError(f"the forecast of series {forecast.item_id!r} from {forecast.start_date} contains NaN")
    changes = np.abs(past[season:] - past[:-season])
    scale = np.nanmean(changes) if np.isfinite(changes).any() else np.nan
    error = label - quantiles
    loss = 2 * np.maximum(_LEVELS * error, (_LEVELS - 1) * error).mean(0)
    off = np.abs(error[_MEDIAN])
    inside = np.where(np.isnan(label), np.nan, (quantiles[_LOW] <= label) & (label <= quantiles[_HIGH]))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([loss / scale, off, off / scale, np.abs(label), inside])


def _means(cells: np.ndarray) -> dict[str, float]:
    """The scores of one window and target."""
    loss, off, scaled, size, inside = (row[np.isfinite(row)] for row in cells)
    return {
        "sql": float(loss.mean()),
        "mase": float(scaled.mean()),
        "wape": float(off.mean() / size.mean()),
        "coverage_80": float(inside.mean()),
    }


def path_of(raw: pathlib.Path, pattern: str) -> pathlib.Path:
    """Return the file of a name below the folder of raw files."""
    path = next(raw.rglob(pattern), None)
    if path is None:
        raise RuntimeError(f"expected a file {pattern} below the folder of raw files, got none")
    return path


def _table(pattern: str) -> Read:
    """Return a reader of a table in long format."""
    return lambda raw: pd.read_csv(path_of(raw, pattern), dtype={"item_id": str})


def _walmart(raw: pathlib.Path) -> pd.DataFrame:
    """Sales of departments; where no mark-down is given there was none."""
    frame = _table("walmart.csv.gz")(raw)
    marks = [f"MarkDown{number}" for number in range(1, 6)]
    return frame.assign(**{name: frame[name].fillna(0.0) for name in marks})


def _ett(minutes: bool, rule: str | None = None, skipped: int = 0) -> Read:
    """Return a reader of the transformers, a series for each of their seven columns.

    Args:
        minutes: Whether steps are a quarter of an hour, and not an hour.
        rule: Days or weeks whose means are taken; those that are not whole are left out.
        skipped: Number of means left out at the beginning.
    """

    def read(raw: pathlib.Path) -> pd.DataFrame:
        parts = []
        for number in (1, 2):
            table = pd.read_csv(path_of(raw, f"ETT{'m' if minutes else 'h'}{number}.csv.gz"), index_col=0)
            table.index = pd.DatetimeIndex(table.index, name="timestamp")
            if rule is not None:
                groups = table.resample(rule)
                sizes = groups.size()
                table = groups.mean()[sizes == sizes.max()].iloc[skipped:]
            columns = {"var_name": "variable", "value_name": "target", "ignore_index": False}
            parts.append(table.melt(**columns).reset_index().assign(item_id=f"ETT{number}"))
        return pd.concat(parts, ignore_index=True)

    return read


def _hospital(raw: pathlib.Path) -> pd.DataFrame:
    """Patient counts by products."""
    with np.load(path_of(raw, "hospital_monthly_767x84.npz"), allow_pickle=False) as file:
        values, items, start = file["values"].astype(np.float64), file["item_id"], str(file["start"])
    stamps = pd.date_range(start, periods=values.shape[1], freq="MS")
    frame = pd.DataFrame(values, pd.Index(items, name="item_id"), stamps)
    return frame.melt(var_name="timestamp", value_name="target", ignore_index=False).reset_index()


SOURCES = {
    "ETT_1W": Source(_ett(False, "W"), "W", 13, 5, 1, without="ett"),
    "australian_tourism": Source(_table("australian_tourism.csv.gz"), "Q", 8, 2, 4, without="australian_tourism"),
    # The MASE is the same to seven digits. The WAPE depends on which series of the two items share a target.
    "ETT_1D": Source(_ett(False, "D", skipped=1), "D", 28, 20, 7, unlike=("wape",), without="ett"),
    "hospital": Source(_hospital, "M", 12, 4, 12, without="hospital"),
    "proenfo_gfc14": Source(
        _table("proenfo_gfc14.csv.gz"), "h", 168, 20, 24, 2e-3, columns={"covariates": ["airtemperature"]}
    ),
    "epf_np": Source(
        _table("epf_np.csv.gz"), "h", 24, 20, 24, columns={"covariates": ["Grid load forecast", "Wind power forecast"]}
    ),
    "epf_de": Source(
        _table("epf_de.csv.gz"), "h", 24, 20, 24, columns={"covariates": ["PV+Wind Forecast", "Ampirion Load Forecast"]}
    ),
    "ETT_1H": Source(_ett(False), "h", 168, 20, 24, without="ett"),
    "walmart": Source(
        _walmart, "W-FRI", 39, 1, 1,
        columns={
            "covariates": [
                *(f"MarkDown{number}" for number in range(1, 6)), "Temperature", "Fuel_Price", "CPI", "Unemployment",
                "IsHoliday",
            ],
            "static_categories": ["Store", "Dept", "Type"],
            "static_reals": ["Size"],
        },
    ),
    "ETT_15T": Source(_ett(True), "15min", 96, 20, 96, without="ett"),
}  # fmt: skip
