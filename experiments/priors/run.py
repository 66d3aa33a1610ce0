"""Trains the banks whose parameters come with the package, on public series of each frequency.

    python datasets/zeroshot.py --raw FOLDER
    python experiments/priors/run.py --raw FOLDER
    python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors

A file for each unit of time, `tsforecast/models/priors/Q.pt`; what is there is not trained again. With `--without`, the
sources that are named are left out: forecasts of a set are honest only by a prior that has not seen it. Sources are the
sets that come with the package, the prepared tasks of the Chronos benchmark, and these files below FOLDER: hourly
demand of US balancing authorities (eia_balancing_authorities_hourly_54x43848.npz, EIA, CC BY 4.0), of GEFCom2012
(gefcom2012_load_hourly_20zones.npz), hours of M4 (m4_hourly.jsonl.gz), traffic by weeks (traffic_weekly_862x104.npz),
traffic counts by quarters of an hour (scats_melbourne_volume_15min_140x2976.npz), speeds on a motorway
(los_loop_speed_5min_207x2016.npz), mentions of companies and loads of servers (nab_real.tar.gz, MIT), tourism in
Australia by quarters (australian_tourism.csv.gz, Apache-2.0).
"""

import argparse
import gzip
import json
import pathlib
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from tsforecast.data import load_task
from tsforecast.data.calendar.frequency import to_period
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.io.tensors import save_tensors
from tsforecast.models.parts.bank_dynamics import BankDynamics
from tsforecast.models.parts.bank_prior import FOLDER, prior_of

Entry = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Series of one origin.

    Attributes:
        name: Of the origin: series by days and their weeks have the same.
        read: Returns them, given the folder of raw files.
        steps: At the end of each, at most.
    """

    name: str
    read: Callable[[pathlib.Path], list[Entry]]
    steps: int = 3000


def of_set(name: str) -> Callable[[pathlib.Path], list[Entry]]:
    """Return the training part of a set in the catalog."""
    return lambda _: [dict(entry) for entry in load_task(name).train]


def of_file(pattern: str, freq: str) -> Callable[[pathlib.Path], list[Entry]]:
    """Return the series of a file of arrays (`values`, `start`), or of JSON lines (`target`)."""

    def read(raw: pathlib.Path) -> list[Entry]:
        path = next(raw.rglob(pattern))
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                values, start = file["values"], str(file["start"]) if "start" in file else "2000-01-01"
        else:
            with gzip.open(path, "rt") as lines:
                values, start = [json.loads(line)["target"] for line in lines], "2000-01-01"
        return [
            {"item_id": f"{path.stem}{number}", "start": to_period(start, freq), "target": np.asarray(one, np.float64)}
            for number, one in enumerate(values)
        ]

    return read


def of_table(pattern: str, freq: str) -> Callable[[pathlib.Path], list[Entry]]:
    """Return the series of a table with the columns item_id, timestamp and target."""

    def read(raw: pathlib.Path) -> list[Entry]:
        table = pd.read_csv(next(raw.rglob(pattern)))
        return [
            {"item_id": name, "start": to_period(rows["timestamp"].iloc[0], freq), "target": rows["target"].to_numpy()}
            for name, rows in table.groupby("item_id", sort=False)
        ]

    return read


def of_nab(part: str) -> Callable[[pathlib.Path], list[Entry]]:
    """Return the series of a folder of the Numenta benchmark, by five minutes."""

    def read(raw: pathlib.Path) -> list[Entry]:
        found = []
        with tarfile.open(next(raw.rglob("nab_real.tar.gz"))) as archive:
            for name in sorted(name for name in archive.getnames() if f"/{part}/" in name and name.endswith(".csv")):
                table = pd.read_csv(archive.extractfile(name), index_col="timestamp", parse_dates=True)  # pyright: ignore
                values = table["value"].resample("5min").mean()
                start = to_period(str(values.index[0]), "5min")
                found.append({"item_id": name, "start": start, "target": values.to_numpy(np.float64)})
        return found

    return read


def means(read: Callable[[pathlib.Path], list[Entry]], freq: str) -> Callable[[pathlib.Path], list[Entry]]:
    """Return the means over the days, weeks, .. of series, without parts of a period at the ends."""

    def aggregated(raw: pathlib.Path) -> list[Entry]:
        found = []
        for entry in read(raw):
            stamps = pd.period_range(
                entry["start"], periods=len(entry["target"]), freq=entry["start"].freq
            ).to_timestamp()
            floors = stamps.floor(freq) if freq.endswith("min") else stamps  # pyright: ignore[reportAttributeAccessIssue]
            periods: Any = floors.to_period(freq)
            table = pd.DataFrame({"period": periods, "value": entry["target"]}).groupby("period", sort=True)["value"]
            sizes = table.size().to_numpy()
            whole = sizes == sizes.max()
            target = table.mean().to_numpy()[whole]
            start = to_period(str(periods.unique()[int(whole.argmax())].start_time), freq)
            found.append({"item_id": entry["item_id"], "start": start, "target": target})
        return found

    return aggregated


_EIA = of_file("eia_balancing_authorities_hourly_54x43848.npz", "h")
_GEFCOM = of_file("gefcom2012_load_hourly_20zones.npz", "h")
_ETT = of_set("zeroshot-ETTh")
_M1, _M3 = (lambda unit, name=name: of_set(f"zeroshot-monash_{name}_{unit}") for name in ("m1", "m3"))

SOURCES: dict[str, list[Source]] = {
    "Y": [Source("m1", _M1("yearly")), Source("m3", _M3("yearly"))],
    "Q": [
        Source("m1", _M1("quarterly")),
        Source("m3", _M3("quarterly")),
        Source("australian_tourism", of_table("australian_tourism.csv.gz", "Q")),
    ],
    "M": [
        Source("m1", _M1("monthly")),
        Source("m3", _M3("monthly")),
        Source("hospital", of_set("zeroshot-monash_hospital")),
        Source("cif", of_set("zeroshot-monash_cif_2016")),
        Source("car_parts", of_set("zeroshot-monash_car_parts")),
    ],
    "W": [
        Source("wiki", means(of_set("wiki"), "W")),
        Source("eia", means(_EIA, "W")),
        Source("gefcom2012", means(_GEFCOM, "W")),
        Source("ett", means(_ETT, "W")),
        Source("traffic_weekly", of_file("traffic_weekly_862x104.npz", "W")),
    ],
    "D": [
        Source("wiki", of_set("wiki")),
        Source("eia", means(_EIA, "D"), 1100),
        Source("gefcom2012", means(_GEFCOM, "D"), 1100),
        Source("covid", of_set("zeroshot-monash_covid_deaths")),
    ],
    "B": [Source("exchange", of_set("exchange"), 2000)],
    # The test parts of `electricity-18dec` and `eia-2020` lie in what is read here: leave them out to score these.
    "h": [
        Source("electricity", of_set("electricity")),
        Source("taxi", of_set("traffic")),
        Source("solar", of_set("solar")),
        Source("eia", _EIA),
        Source("gefcom2012", _GEFCOM),
        Source("m4", of_file("m4_hourly.jsonl.gz", "h")),
        Source("ett", _ETT),
    ],
    "min": [
        Source("scats", of_file("scats_melbourne_volume_15min_140x2976.npz", "15min")),
        Source("loop", means(of_file("los_loop_speed_5min_207x2016.npz", "5min"), "15min")),
        Source("tweets", means(of_nab("realTweets"), "15min")),
        Source("cloud", means(of_nab("realAWSCloudwatch"), "15min")),
        Source("ett", of_set("zeroshot-ETTm")),
    ],
}
# Steps of a forecast, for which each is trained.
HORIZONS = {"Y": 6, "Q": 8, "M": 12, "W": 13, "D": 28, "B": 30, "h": 48, "min": 96}
SERIES = {"Y": 300, "Q": 300, "M": 200, "W": 60, "D": 60, "B": 8, "h": 40, "min": 32}  # of each source
EPOCHS = 40


def main() -> None:
    """Trains what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=pathlib.Path, required=True, help="folder of raw files, searched with subfolders")
    parser.add_argument("--units", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--without", nargs="+", default=[], metavar="SOURCE", help="sources that are left out")
    parser.add_argument("--output", type=pathlib.Path, default=FOLDER)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for unit in options.units:
        path = options.output / f"{unit}.pt"
        if path.exists():
            print(f"{path} is there")
            continue
        entries = balanced(unit, options.raw, options.without)
        print(f"{unit}: {len(entries)} series", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(trained(unit, entries), path)


def balanced(unit: str, raw: pathlib.Path, without: list[str]) -> list[Entry]:
    """Return as many series of each source, drawn again where there are fewer."""
    random, found = np.random.default_rng(0), []
    for source in SOURCES[unit]:
        if source.name in without:
            continue
        entries = [entry for entry in source.read(raw) if np.isfinite(entry["target"]).sum() > 2 * HORIZONS[unit]]
        order = np.concatenate([random.permutation(len(entries)) for _ in range(-(-SERIES[unit] // len(entries)))])
        for place in order[: SERIES[unit]]:
            target, start = entries[place]["target"], entries[place]["start"]
            skipped = max(len(target) - source.steps, 0)
            found.append({"item_id": str(len(found)), "start": start + skipped, "target": target[skipped:]})
    if not found:
        raise SystemExit(f"no source of {unit} is left without {', '.join(without)}")
    return found


def trained(unit: str, entries: list[Entry]) -> dict[str, Any]:
    """Return the parameters of a bank after a training on series; means of seasons stay zero."""
    trainer = {"max_epochs": EPOCHS, "enable_progress_bar": False, "logger": False}
    options = {"seed": 0, "prior": "none", "trainer_kwargs": trainer}
    estimator = _WithoutMeans("bank", entries[0]["start"].freqstr, HORIZONS[unit], **options)
    dynamics = estimator.train_model(entries).trained_net.dynamics
    assert isinstance(dynamics, BankDynamics)
    return prior_of(dynamics)


class _WithoutMeans(StateSpaceEstimator):
    def create_lightning_module(self) -> Any:
        module = super().create_lightning_module()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(not name.endswith("season_means"))
        return module


if __name__ == "__main__":
    main()
