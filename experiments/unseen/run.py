"""Scores `forecast` on sets of many kinds that no table shows: a row each.

    python experiments/unseen/run.py --raw FOLDER
    python experiments/unseen/run.py --raw FOLDER --sets opsd_1H --models auto auto_theta

Rows of results/unseen.csv have the score of fev-bench, see `experiments/fev/tasks.py`, and `to_naive`, its ratio to
that of seasonal naive. They are for finding faults: what a change costs on data that it was not made for. Settings of
direct forecasts were chosen by the sets of hours and minutes. The shipped priors have seen `loop_5T`, `tweets_5T` and
`cloud_5T`; `--priors` takes others.
"""

import argparse
import io
import pathlib
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.fev.run import NAMES, predicted, trained
from experiments.fev.tasks import Task, path_of, score
from experiments.tables import ROOT, fill, has_row
from tsforecast.data import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.models.parts import bank_prior

TABLE = ROOT / "experiments" / "unseen" / "results" / "unseen.csv"
COLUMNS = ["set", "model", "sql", "to_naive", "mase", "coverage_80", "series", "windows", "cpu_s", "commit", "command"]
_SERIES = 120  # of a set, at most: every k-th


@dataclass(frozen=True)
class Source:
    """A set.

    Attributes:
        read: Returns its table (item_id, timestamp, target, covariates), given the folder of raw files.
        freq: Frequency.
        horizon: Steps of a window.
        windows: Number of windows at the end.
        season: Of the seasonal naive and of the errors' scale.
        covariates: Columns that are known ahead.
    """

    read: Callable[[pathlib.Path], pd.DataFrame]
    freq: str
    horizon: int
    windows: int
    season: int
    covariates: list[str] = field(default_factory=list)


def _long(values: np.ndarray, start: str, freq: str) -> pd.DataFrame:
    """Return the table of an array of series, every k-th of those that change."""
    rows = values[np.nanstd(values, axis=1) > 0]
    rows = rows[:: max(-(-len(rows) // _SERIES), 1)]
    stamps = pd.date_range(start, periods=rows.shape[1], freq=freq, name="timestamp")
    frame = pd.DataFrame(rows.T.astype(float), stamps, pd.Index([f"s{number}" for number in range(len(rows))]))
    return frame.melt(var_name="item_id", value_name="target", ignore_index=False).reset_index()


def _array(pattern: str, freq: str, start: str = "2015-01-01", name: str = "values") -> Callable[..., pd.DataFrame]:
    """Return a reader of an array of a file."""

    def read(raw: pathlib.Path) -> pd.DataFrame:
        with np.load(path_of(raw, pattern), allow_pickle=False) as file:
            values = file[name]
            began = str(file["start"]) if "start" in file else start
        return _long(values.reshape(-1, values.shape[-1]), began, freq)

    return read


def _means(read: Callable[..., pd.DataFrame], freq: str) -> Callable[..., pd.DataFrame]:
    """Return a reader of the means over days or weeks that are whole."""

    def aggregated(raw: pathlib.Path) -> pd.DataFrame:
        table = read(raw).pivot(index="timestamp", columns="item_id", values="target").resample(freq)
        sizes = table.size()
        found = table.mean()[sizes >= 0.9 * sizes.max()]  # a first day may lack an hour
        return found.melt(value_name="target", ignore_index=False).reset_index()

    return aggregated


def _nab(part: str) -> Callable[..., pd.DataFrame]:
    """Return a reader of a folder of the Numenta benchmark, as means of five minutes."""

    def read(raw: pathlib.Path) -> pd.DataFrame:
        frames = []
        with tarfile.open(path_of(raw, "nab_real.tar.gz")) as archive:
            for member in archive.getmembers():
                if (
                    f"/{part}/" in member.name
                    and member.name.endswith(".csv")
                    and (file := archive.extractfile(member))
                ):
                    table = pd.read_csv(io.BytesIO(file.read()), parse_dates=["timestamp"])
                    target = table.set_index("timestamp")["value"].resample("5min").mean()
                    frames.append(target.rename("target").reset_index().assign(item_id=pathlib.Path(member.name).stem))
        return pd.concat(frames, ignore_index=True)

    return read


def _elec2(target: str) -> Callable[..., pd.DataFrame]:
    """Return a reader of price or demand of New South Wales by half hours, beside those of Victoria."""

    def read(raw: pathlib.Path) -> pd.DataFrame:
        table = pd.read_csv(path_of(raw, "elec2.csv.gz"))
        stamps = pd.date_range("1996-05-07", periods=len(table), freq="30min")
        return table.rename(columns={target: "target"}).assign(item_id="nsw", timestamp=stamps)

    return read


def _sales(raw: pathlib.Path) -> pd.DataFrame:
    """Return weekly sales of stores with their covariates."""
    table = pd.read_csv(path_of(raw, "weekly_sales_45stores_143weeks.csv.gz"))
    stamps = pd.to_datetime(table["Date"], format="%d-%m-%Y")
    return table.rename(columns={"Store": "item_id", "Weekly_Sales": "target"}).assign(timestamp=stamps)


def _citylearn(raw: pathlib.Path) -> pd.DataFrame:
    """Return loads of homes beside the weather, which is known."""
    path = path_of(raw, "citylearn_california_solar_load_hourly_17homes.npz")
    with np.load(path, allow_pickle=False) as file:
        table, weather, start = _long(file["load"], str(file["start"]), "h"), file["weather"], str(file["start"])
    weather = weather if weather.shape[0] == len(table["timestamp"].unique()) else weather.T
    known = pd.DataFrame(weather, pd.date_range(start, periods=len(weather), freq="h", name="timestamp"))
    return table.merge(known.rename(columns=lambda number: f"w{number}"), on="timestamp")


def _noaa(raw: pathlib.Path) -> pd.DataFrame:
    """Return daily temperature beside the other seven measurements of a station."""
    table = pd.read_csv(path_of(raw, "noaa_weather_data.csv.gz"), header=None).iloc[-5000:].reset_index(drop=True)
    table.columns = ["target", *(f"x{number}" for number in range(1, table.shape[1]))]
    return table.assign(item_id="bellevue", timestamp=pd.date_range("1986-04-25", periods=len(table), freq="D"))


_ELEC14 = _array("electricity_uci_hourly_10x8760_2014.npz", "h")
_JONAS = _array("jonas_nyc_taxi_bike_30min_512x4800.npz", "30min")
_OD = _array("nyc_taxi_od_hourly_900x1464.npz", "h")
_NSRDB = _array("nsrdb_california_hourly_2018_9cities.npz", "h")
_OPSD = _array("opsd_germany_tso_load_solar_wind_hourly_2019.npz", "h")
SETS: dict[str, Source] = {
    "loop_5T": Source(_array("los_loop_speed_5min_207x2016.npz", "5min"), "5min", 288, 1, 288),
    "pems_5T": Source(_array("pemsd7_speed_5min_25x12672.npz", "5min", "2012-05-01"), "5min", 288, 3, 288),
    "cloud_5T": Source(_nab("realAWSCloudwatch"), "5min", 288, 2, 288),
    "tweets_5T": Source(_nab("realTweets"), "5min", 288, 3, 288),
    "jonas_30T": Source(_JONAS, "30min", 48, 3, 48),
    "demand_30T": Source(_elec2("nswdemand"), "30min", 48, 10, 48, ["vicdemand", "vicprice"]),
    "price_30T": Source(_elec2("nswprice"), "30min", 48, 10, 48, ["nswdemand", "vicdemand"]),
    "bus_1H": Source(_array("montevideo_bus_inflow_hourly_675x744.npz", "h"), "h", 24, 5, 24),
    "od_1H": Source(_OD, "h", 24, 5, 24),
    "opsd_1H": Source(_OPSD, "h", 168, 4, 24),
    "citylearn_1H": Source(_citylearn, "h", 24, 5, 24, ["w0", "w1", "w2", "w3"]),
    "gefsolar_1H": Source(_array("gefcom2014_solar_power_hourly_3zones.npz", "h"), "h", 24, 10, 24),
    "nsrdb_1H": Source(_NSRDB, "h", 24, 5, 24),
    "elec14_1H": Source(_ELEC14, "h", 168, 4, 24),
    "noaa_1D": Source(_noaa, "D", 28, 10, 7, ["x1", "x2", "x3", "x4"]),
    "elec14_1D": Source(_means(_ELEC14, "D"), "D", 28, 4, 7),
    "jonas_1D": Source(_means(_JONAS, "D"), "D", 14, 2, 7),
    "od_1D": Source(_means(_OD, "D"), "D", 7, 2, 7),
    "nsrdb_1D": Source(_means(_NSRDB, "D"), "D", 28, 4, 7),
    "opsd_1D": Source(_means(_OPSD, "D"), "D", 28, 4, 7),
    "elec14_1W": Source(_means(_ELEC14, "W"), "W", 8, 2, 1),
    "solar_1W": Source(_array("solar_alabama_weekly_137x52.npz", "W"), "W", 5, 2, 1),
    "sales_1W": Source(
        _sales, "W-FRI", 13, 2, 1, ["Holiday_Flag", "Temperature", "Fuel_Price", "CPI", "Unemployment"]
    ),
}  # fmt: skip


def main() -> None:
    """Scores what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=pathlib.Path, required=True, help="folder of raw files, searched with subfolders")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--models", nargs="+", default=["forecast"], choices=NAMES, metavar="MODEL")
    parser.add_argument("--priors", type=pathlib.Path, default=bank_prior.FOLDER)
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bank_prior.FOLDER = options.priors
    jobs = [(name, model) for name in options.sets for model in options.models]
    jobs = [job for job in jobs if not has_row(options.output, dict(zip(("set", "model"), job, strict=True)))]
    fill(options.output, COLUMNS, jobs, lambda job: run(*job, options.raw), lambda path: pd.read_csv(path).to_string())


def load(name: str, raw: pathlib.Path) -> Task:
    """Return a set as a task."""
    source = SETS[name]
    columns = Columns(item=["item_id"], target="target", covariates=source.covariates)
    frame = source.read(raw)[["item_id", "timestamp", "target", *source.covariates]]
    return Task(name, source.season, read_task(frame, source.freq, source.horizon, source.windows, columns=columns))


def run(name: str, model: str, raw: pathlib.Path) -> list[dict[str, Any]]:
    """Return the row of a model that is trained before the first window."""
    task = load(name, raw)
    naive = score(task, trained("seasonal_naive", task.data, task.season, 0).predict(task.data.test().input))
    torch.manual_seed(0)
    began = time.process_time()
    found = score(task, predicted(trained(model, task.data, task.season, 0), task.data))
    return [
        {
            "set": name,
            "model": model,
            **{key: round(found[key], 4) for key in ("sql", "mase", "coverage_80")},
            "to_naive": round(found["sql"] / naive["sql"], 4),
            "series": len(task.data.entries),
            "windows": task.data.windows,
            "cpu_s": round(time.process_time() - began, 1),
            "command": f"python experiments/unseen/run.py --raw FOLDER --sets {name} --models {model}",
        }
    ]


if __name__ == "__main__":
    main()
