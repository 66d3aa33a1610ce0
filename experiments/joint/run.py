"""Scores models of several targets beside the same models of each alone: rows of results/joint.csv.

    python experiments/joint/run.py --raw FOLDER
    python experiments/joint/run.py --raw FOLDER --tasks ett_h1 exchange --models bank gls

`together` is a model of all targets; `apart` is the model of a series for each target, whose paths are independent
between targets. A model is trained once, before the first of ten windows. All scores are means in units of the
seasonal error of each target in the training part: `sql` is twice the loss of nine quantiles, `energy` the energy
score of a whole window of all targets (divided by the square root of its number of values), `crps_sum` the CRPS of the
sum over the targets at each step. A row is not made again while its command is in the table.
"""

import argparse
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.model import Forecast
from numpy.typing import NDArray

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, fill, has_row
from tsforecast import StateSpaceEstimator, load_task
from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.forecasting.default_model import fitted

TABLE = ROOT / "experiments" / "joint" / "results" / "joint.csv"
COLUMNS = ["task", "model", "targets", "seed", "sql", "energy", "crps_sum", "coverage_80", "cpu_s", "commit", "command"]
WINDOWS, PATHS = 10, 200
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """Series that move together.

    Attributes:
        read: Returns them as (target, time), and the first period, given the folder of raw files.
        horizon: Steps of a window.
        season: Of the seasonal error.
        stride: Steps from one window to the next.
    """

    read: Callable[[pathlib.Path], tuple[Values, pd.Period]]
    horizon: int
    season: int
    stride: int


def _ett(station: str, raw: pathlib.Path, every: str = "h") -> tuple[Values, pd.Period]:
    frame = pd.read_csv(next(raw.rglob(f"{station}.csv.gz")), parse_dates=["date"], index_col="date")
    frame = frame.resample(every).mean()
    return frame.to_numpy(np.float64).T[:, -8760:], frame.index[-min(len(frame), 8760)].to_period(every)


def _exchange(_: pathlib.Path) -> tuple[Values, pd.Period]:
    entries = load_task("exchange").entries
    return np.stack([entry["target"] for entry in entries]).astype(np.float64), entries[0]["start"]


def _prices(raw: pathlib.Path) -> tuple[Values, pd.Period]:
    each = [pd.read_csv(next(raw.rglob(f"epf_{name}.csv.gz")), parse_dates=["timestamp"]) for name in ("de", "np")]
    columns = {name: one.groupby("timestamp")["target"].mean() for name, one in zip(("de", "np"), each, strict=True)}
    frame = pd.DataFrame(columns).asfreq("h")
    frame = frame.loc[frame.dropna().index[0] : frame.dropna().index[-1]].iloc[-8760:]
    return frame.to_numpy(np.float64).T, frame.index[0].to_period("h")


def _operators(raw: pathlib.Path) -> tuple[Values, pd.Period]:
    with np.load(next(raw.rglob("opsd_germany_tso_load_solar_wind_hourly_2019.npz"))) as file:
        kept = [
            k for k, name in enumerate(file["item_id"]) if "_load_" in str(name) and not str(name).startswith("DE_load")
        ]
        return file["values"][kept].astype(np.float64), to_period("2018-12-31 23:00", "h")


SOURCES: dict[str, Source] = {
    "ett_h1": Source(partial(_ett, "ETTh1"), 24, 24, 72),
    "ett_h2": Source(partial(_ett, "ETTh2"), 24, 24, 72),
    "ett_d1": Source(partial(_ett, "ETTh1", every="D"), 14, 7, 14),
    "exchange": Source(_exchange, 30, 1, 30),
    "prices": Source(_prices, 24, 24, 72),
    "operators": Source(_operators, 24, 168, 72),
}
MODELS = ("forecast", "bank", "issm", "gls", "auto")


def together(name: str, raw: pathlib.Path) -> tuple[ForecastTask, list[dict[str, Any]], Values]:
    """Return the training part of a task, the histories before each window, and the labels (window, step, target)."""
    source = SOURCES[name]
    values, start = source.read(raw)
    ends = [values.shape[1] - source.horizon - source.stride * k for k in reversed(range(WINDOWS))]
    entry = {"item_id": name, "start": start}
    train = [{**entry, "target": values[:, : ends[0]]}]
    pasts = [{**entry, "target": values[:, :end]} for end in ends]
    labels = np.stack([values[:, end : end + source.horizon].T for end in ends])
    return ForecastTask(name, start.freqstr, source.horizon, 0, train), pasts, labels


def apart(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each target of the entries as a series of its own, the targets of an entry one after the other."""
    return [
        {**entry, "item_id": f"{entry['item_id']}/{k}", "target": row}
        for entry in entries
        for k, row in enumerate(entry["target"])
    ]


def predictor_of(model: str, data: ForecastTask, seed: int) -> Any:
    """Return the predictor that a model is on a training part."""
    if model == "forecast":
        return fitted(data, seed)
    options: dict[str, Any] = {"enable_progress_bar": False} | ({"max_epochs": 0} if model == "bank" else {})
    estimator = StateSpaceEstimator(model, data.freq, data.prediction_length, seed=seed, trainer_kwargs=options)
    return estimator.train(list(data.entries))


def run(job: tuple[str, str, str], raw: pathlib.Path, seed: int = 0) -> list[dict[str, Any]]:
    """Return the row of a task, a model and "together" or "apart".

    Raises:
        RuntimeError: If the model fails.
    """
    name, model, targets = job
    data, pasts, labels = together(name, raw)
    torch.manual_seed(seed)
    began = os.times()
    try:
        if targets == "together":
            made = list(predictor_of(model, data, seed).predict(pasts, num_samples=PATHS))
            quantiles, paths = _of(made)
        else:
            alone = ForecastTask(name, data.freq, data.prediction_length, 0, apart(data.entries))
            made = list(predictor_of(model, alone, seed).predict(apart(pasts), num_samples=PATHS))
            shape = (len(pasts), labels.shape[2])
            quantiles, paths = (x.reshape(*shape, *x.shape[1:]) for x in _of(made))
            quantiles, paths = (np.moveaxis(x, 1, -1) for x in (quantiles, paths))
            # The paths of a target may come in the order of its models.
            rng = np.random.default_rng(seed)
            paths = np.stack([rng.permutation(paths[..., k], axis=1) for k in range(shape[1])], -1)
    except Exception as error:
        raise RuntimeError(f"{job}: {type(error).__name__}: {error}") from error
    seconds = sum(os.times()[:4]) - sum(began[:4])
    found = scores(quantiles, paths, labels, _unit(data.entries[0]["target"], SOURCES[name].season))
    row = {"task": name, "model": model, "targets": targets, "seed": seed, **found, "cpu_s": round(seconds, 1)}
    print(row, flush=True)
    return [{**row, "command": _command(job)}]


def _of(forecasts: list[Forecast]) -> tuple[Values, Values]:
    """Return quantiles (forecast, level, step[, target]) and paths (forecast, path, step[, target])."""
    levels = np.stack([forecast_quantiles(one, TENTHS) for one in forecasts])
    return levels, np.stack([one.samples for one in forecasts]).astype(np.float64)  # pyright: ignore[reportAttributeAccessIssue]


def _unit(past: Values, season: int) -> Values:
    """Return the seasonal error of each target."""
    return np.nanmean(np.abs(past[:, season:] - past[:, :-season]), 1)


def scores(quantiles: Values, paths: Values, labels: Values, unit: Values) -> dict[str, float]:
    """Return the scores of forecasts of all windows, see above.

    Args:
        quantiles: Of window, level, step and target.
        paths: Of window, path, step and target.
        labels: Of window, step and target.
        unit: Of each target.
    """
    quantiles, paths, labels = quantiles / unit, paths / unit, labels / unit
    error, levels = labels[:, None] - quantiles, np.array(TENTHS)[:, None, None]
    loss = 2 * np.maximum(levels * error, (levels - 1) * error)
    covered = (labels >= quantiles[:, 0]) & (labels <= quantiles[:, -1])
    half = paths.shape[1] // 2
    distance = lambda x: np.sqrt(np.nansum(np.square(x), (-1, -2)))  # noqa: E731
    spread = distance(paths[:, :half] - paths[:, half : 2 * half]).mean(1)
    energy = (distance(paths - labels[:, None]).mean(1) - 0.5 * spread) / np.sqrt(labels[0].size)
    sums, truth = np.sort(paths.sum(-1), 1), labels.sum(-1)
    count = sums.shape[1]
    rank = (2 * np.arange(1, count + 1) - count - 1)[:, None]
    crps = np.abs(sums - truth[:, None]).mean(1) - (rank * sums).sum(1) / count**2
    means = {
        "sql": loss,
        "energy": energy,
        "crps_sum": crps,
        "coverage_80": np.where(np.isnan(labels), np.nan, covered),
    }
    return {metric: round(float(np.nanmean(value)), 4) for metric, value in means.items()}


def _command(job: tuple[str, str, str]) -> str:
    return "python experiments/joint/run.py --raw FOLDER --tasks {} --models {} --targets {}".format(*job)


def summary(table: pathlib.Path) -> str:
    """Return the scores, a line for each task and model."""
    rows = pd.read_csv(table).drop_duplicates(["task", "model", "targets"], keep="last")
    return rows.pivot(index=["task", "model"], columns="targets", values=["sql", "energy", "crps_sum"]).to_string()


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=pathlib.Path, required=True, help="folder of raw files, searched with subfolders")
    parser.add_argument("--tasks", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--models", nargs="+", default=["forecast", "bank", "gls"], choices=MODELS)
    parser.add_argument("--targets", nargs="+", default=["together", "apart"], choices=["together", "apart"])
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    jobs = [(task, model, how) for task in options.tasks for model in options.models for how in options.targets]
    jobs = [job for job in jobs if not has_row(options.output, {"command": _command(job)})]
    fill(options.output, COLUMNS, jobs, partial(run, raw=options.raw), summary)


if __name__ == "__main__":
    main()
