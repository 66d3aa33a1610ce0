"""Makes the excerpts that are bundled in tsforecast/data/bundled/ (development only; README.md gives the sources).

    python datasets/bundle.py FOLDER

FOLDER holds the excerpts as collected: exchange_rate_nips.tar.gz as published, and npz files with `values`
(series x time), `item_id` and `start`. Each is packed without loss, read back and compared, and the SHA-256 of its
float64 array is logged: the test of the catalog holds the same numbers.
"""

import argparse
import hashlib
import json
import logging
import sys
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.packed import pack, unpack

BUNDLED = Path(__file__).parents[1] / "tsforecast" / "data" / "bundled"
SOURCES = {
    "exchange": "exchange_rate_nips.tar.gz",
    "electricity": "electricity_uci_hourly_369x840.npz",
    "traffic": "nyc_taxi_od_hourly_900x1464.npz",
    "solar": "citylearn_california_solar_load_hourly_17homes.npz",
    "wiki": "wiki_daily_1000.npz",
}
COUNTRIES = ("australia", "britain", "canada", "switzerland", "china", "japan", "new_zealand", "singapore")
DECIMALS = {"exchange": 6, "traffic": 0, "solar": 8, "wiki": 0}  # as many as the sources print

log = logging.getLogger(__name__)


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
        log.info("%-12s %8d bytes  %s", name, (options.out / f"{name}.npz").stat().st_size, digest)


if __name__ == "__main__":
    main()
