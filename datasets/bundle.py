"""Makes the excerpts that are bundled in tsforecast/data/bundled/ (development only; README.md gives the sources).

    python datasets/bundle.py FOLDER

FOLDER holds the excerpts as collected: exchange_rate_nips.tar.gz as published, and npz files with `values`
(series x time), `item_id` and `start`; those of which only a part is bundled have `freq` besides, and may mark filled
hours in `imputed_packed`. Each is packed without loss, read back and compared, and the SHA-256 of its float64 array is
logged: the test of the catalog holds the same numbers.
"""

import argparse
import hashlib
import json
import logging
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.packed import pack, unpack

BUNDLED = Path(__file__).parents[1] / "tsforecast" / "data" / "bundled"
SOURCES = {
    "exchange": "exchange_rate_nips.tar.gz",
    "electricity": "electricity_uci_hourly_369x840.npz",
    "traffic": "nyc_taxi_od_hourly_900x1464.npz",
    "solar": "citylearn_california_solar_load_hourly_17homes.npz",
    "wiki": "wiki_daily_1000.npz",
    "taxi-blizzard": "jonas_nyc_taxi_bike_30min_512x4800.npz",
    "eia-2020": "eia_subregions_hourly_113x17544.npz",
}
COUNTRIES = ("australia", "britain", "canada", "switzerland", "china", "japan", "new_zealand", "singapore")
# As many as the sources print.
DECIMALS = {"exchange": 6, "traffic": 0, "solar": 8, "wiki": 0, "taxi-blizzard": 0, "eia-2020": 0}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """What is bundled of a source: some of its series, from one time stamp to before another."""

    start: str
    stop: str
    items: tuple[str, ...]


# Whole weeks from Monday to Sunday. The last week of taxi-blizzard follows the blizzard; eia-2020, in UTC, begins after
# the hours that the source has filled in the MISO series, and ends before a holiday.
PARTS = {
    "taxi-blizzard": Part(
        "2015-12-07 00:00",
        "2016-02-01 00:00",
        tuple(f"r{row:02}_c{column:02}_taxi{way}" for row in range(1, 5) for column in range(2, 6) for way in (0, 1)),
    ),
    "eia-2020": Part(
        "2019-12-16 00:00",
        "2020-05-25 00:00",
        (
            *("DUK", "ERCO", "ISNE-4007", "MISO-0001", "MISO-0004", "MISO-0006"),
            *("MISO-8910", "NYIS-ZONA", "NYIS-ZONJ", "NYIS-ZONK", "PSEI", "SOCO"),
        ),
    ),
}


def read_exchange(path: Path) -> tuple[NDArray[np.float64], str, list[str]]:
    """The eight rates at full length: the last rows of the test part, which go on from the training part."""
    rows = {}
    with tarfile.open(path) as archive:
        for part in ("train", "test"):
            member = archive.extractfile(f"exchange_rate_nips/{part}/{part}.json")
            assert member is not None
            rows[part] = [json.loads(line) for line in member]
    train, full = rows["train"], rows["test"][-len(rows["train"]) :]
    if any(long["target"][: len(short["target"])] != short["target"] for short, long in zip(train, full, strict=True)):
        raise ValueError(f"{path}: expected the last rows of the test part to start with the training part")
    values = np.array([row["target"] for row in full], dtype=np.float64)
    return values, full[0]["start"][:10], list(COUNTRIES)


def read_arrays(path: Path) -> tuple[NDArray[np.float64], str, list[str]]:
    """An excerpt kept as an npz file."""
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["values"].astype(np.float64), str(arrays["start"]), arrays["item_id"].tolist()


def read_part(path: Path, part: Part) -> tuple[NDArray[np.float64], str, list[str]]:
    """The part of an npz file that is bundled; hours which the source has filled must not be in it."""
    values, start, items = read_arrays(path)
    with np.load(path, allow_pickle=False) as arrays:
        stamps = pd.date_range(start, periods=values.shape[1], freq=str(arrays["freq"]))
        filled = np.zeros(values.shape, dtype=bool)
        if "imputed_packed" in arrays:
            filled = np.unpackbits(arrays["imputed_packed"], axis=1, count=values.shape[1]).astype(bool)
    if absent := set(part.items) - set(items):
        raise ValueError(f"{path}: expected the series {', '.join(sorted(absent))}, which are not in this file")
    end = stamps[-1] + (stamps[1] - stamps[0])
    if stamps[0] > pd.Timestamp(part.start) or end < pd.Timestamp(part.stop):
        raise ValueError(f"{path}: expected time stamps from {part.start} to {part.stop}, got {stamps[0]} to {end}")
    steps = (stamps >= part.start) & (stamps < part.stop)
    rows = [items.index(item) for item in part.items]
    if filled[rows][:, steps].any():
        raise ValueError(f"{path}: expected measured values, got {filled[rows][:, steps].sum()} filled by the source")
    return values[rows][:, steps], part.start, list(part.items)


def meter_divisors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divisors of meter readings, which are multiples of one step per customer: 1 / step.

    The smallest gap between two readings is taken for the step and refined by least squares; `pack` refuses it where
    it is wrong.
    """
    divisors = np.ones(len(values))
    for row, series in enumerate(values):
        readings = np.unique(np.append(series, 0.0))
        gaps = np.diff(readings)
        multiples = np.rint(readings / gaps[gaps > 1e-6 * readings[-1]].min())
        divisors[row] = (multiples @ multiples) / (multiples @ readings)
    return divisors


def bundle(name: str, source: Path, target: Path) -> str:
    """Packs one excerpt and reads it back.

    Args:
        name: Name of the set, a key of `SOURCES`.
        source: File to read.
        target: Folder to write to.

    Returns:
        SHA-256 of the float64 array, in hexadecimal.
    """
    if name in PARTS:
        values, start, items = read_part(source, PARTS[name])
    else:
        values, start, items = read_exchange(source) if source.name.endswith(".tar.gz") else read_arrays(source)
    divisors = np.full(len(values), 10.0 ** DECIMALS[name]) if name in DECIMALS else meter_divisors(values)
    path = target / f"{name}.npz"
    pack(path, values, divisors, start, items)
    again = unpack(path)
    if not (np.array_equal(again[0], values) and again[1:] == (start, items)):
        raise ValueError(f"{path}: what was written is not what was read from {source}")
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the collected excerpts, searched with its subfolders")
    parser.add_argument("--out", type=Path, default=BUNDLED, help="folder to write to (default: %(default)s)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, file in SOURCES.items():
        found = sorted(options.folder.rglob(file))
        if not found:
            sys.exit(f"{options.folder}: there is no {file} below this folder; see datasets/README.md")
        digest = bundle(name, found[0], options.out)
        log.info("%-14s %8d bytes  %s", name, (options.out / f"{name}.npz").stat().st_size, digest)


if __name__ == "__main__":
    main()
