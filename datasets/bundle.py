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

from tsforecast.io.packed import pack, unpack

BUNDLED = Path(__file__).parents[1] / "tsforecast" / "data" / "bundled"
SOURCES = {
    "exchange": "exchange_rate_nips.tar.gz",
    "electricity": "electricity_uci_hourly_369x840.npz",
    "traffic": "nyc_taxi_od_hourly_900x1464.npz",
    "solar": "citylearn_california_solar_load_hourly_17homes.npz",
    "wiki": "wiki_daily_1000.npz",
    "taxi-blizzard": "jonas_nyc_taxi_bike_30min_512x4800.npz",
    "eia-2020": "eia_subregions_hourly_113x17544.npz",
    "electricity-2012-2014": "electricity_lstnet_hourly_203x1000.npz",
}
# The same customers years later, in weeks that are put after those of the source.
LATER = {"electricity-2012-2014": "electricity_lstnet_hourly_321x840.npz"}
COUNTRIES = ("australia", "britain", "canada", "switzerland", "china", "japan", "new_zealand", "singapore")
# As many as the sources print.
DECIMALS = {
    "exchange": 6, "traffic": 0, "solar": 8, "wiki": 0, "taxi-blizzard": 0, "eia-2020": 0, "electricity-2012-2014": 0,
}  # fmt: skip

_JOIN = slice(4 * 24, 4 * 24 + 5 * 168)  # from Thursday, 5 January 2012
_LATE = 4 * 168

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


def read_joined(path: Path, later: Path) -> tuple[NDArray[np.float64], str, list[str]]:
    """Five weeks of early 2012 with the four to Christmas Eve of 2014 after them, of the same customers.

    Both begin on a Thursday at 01:00, the end of the first hour. The labels of the early file are of another year: its
    first value is that of Sunday, 1 January 2012, 01:00, as is seen where the weeks of both are laid over one another.
    """
    early, _, names = read_arrays(path)
    late, _, columns = read_arrays(later)
    items = [f"col{int(name):03d}" if name.isdecimal() else columns[-1] for name in names]
    if absent := set(items) - set(columns):
        raise ValueError(f"{later}: expected the series {', '.join(sorted(absent))}, which are not in this file")
    if early.shape[1] < _JOIN.stop or late.shape[1] < _LATE:
        raise ValueError(f"expected {_JOIN.stop} hours in {path} and {_LATE} in {later}, got {early.shape[1]} and "
                         f"{late.shape[1]}")  # fmt: skip
    rows = [columns.index(item) for item in items]
    return np.concatenate([early[:, _JOIN], late[rows, :_LATE]], axis=1), "2012-01-05 01:00", items


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


def bundle(name: str, source: Path, target: Path, later: Path | None = None) -> str:
    """Packs one excerpt and reads it back.

    Args:
        name: Name of the set, a key of `SOURCES`.
        source: File to read.
        target: Folder to write to.
        later: A second file, for the sets of `LATER`.

    Returns:
        SHA-256 of the float64 array, in hexadecimal.
    """
    if later is not None:
        values, start, items = read_joined(source, later)
    elif name in PARTS:
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


def _find(folder: Path, file: str) -> Path:
    found = sorted(folder.rglob(file))
    if not found:
        sys.exit(f"{folder}: there is no {file} below this folder; see datasets/README.md")
    return found[0]


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the collected excerpts, searched with its subfolders")
    parser.add_argument("--out", type=Path, default=BUNDLED, help="folder to write to (default: %(default)s)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, file in SOURCES.items():
        sources = [_find(options.folder, part) for part in (file, LATER.get(name)) if part is not None]
        digest = bundle(name, sources[0], options.out, *sources[1:])
        log.info("%-21s %8d bytes  %s", name, (options.out / f"{name}.npz").stat().st_size, digest)


if __name__ == "__main__":
    main()
