"""Bundled data sets: arrays of float64 packed without loss into small files.

Measurements are integers in disguise: counts, decimal fractions, energy counted in steps of a meter. A packed file
holds these integers and the divisor of every series; where the source has rounded on its way, also the distance
between quotient and source in units of the last place. Nothing in a packed file can execute code.
"""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tsforecast.io.files import replace_file


def pack(path: Path, values: NDArray[np.float64], divisors: NDArray[np.float64], start: str, items: list[str]) -> None:
    """Writes series as integers over a divisor, byte plane by byte plane, compressed; a ValueError if that loses some.

    Args:
        path: File to write, ending in `.npz`.
        values: Shape (series, time), finite.
        divisors: Shape (series,); `values * divisors` are integers up to rounding.
        start: Time stamp of the first value of all series.
        items: Names of the series.
    """
    scaled = values * divisors[:, None]
    integers = np.rint(scaled).astype(np.int64)
    if integers.min() < 0 or not np.allclose(scaled, integers, rtol=0, atol=1e-3):
        raise ValueError("expected non-negative integers over the divisors, got other values")
    quotients = integers / divisors[:, None]
    ulps = values.view(np.int64) - quotients.view(np.int64)
    if np.abs(ulps).max() > 127:
        raise ValueError(f"the divisors leave up to {np.abs(ulps).max()} units in the last place; expected at most 127")
    octets = np.ascontiguousarray(integers.astype("<u8")).view(np.uint8).reshape(*values.shape, 8)
    arrays = {
        "planes": np.moveaxis(octets, -1, 0)[: max((int(integers.max()).bit_length() + 7) // 8, 1)],
        "divisors": divisors,
        "start": np.array(start),
        "item_id": np.array(items),
    }
    if ulps.any():
        arrays["ulps"] = ulps.astype(np.int8)
    with replace_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def unpack(file: Path | BinaryIO) -> tuple[NDArray[np.float64], str, list[str]]:
    """Reads a file of `pack`: values (series, time), time stamp of the first of them, and the names of the series."""
    with np.load(file, allow_pickle=False) as arrays:
        planes = arrays["planes"].astype(np.int64)
        integers = sum(plane << (8 * place) for place, plane in enumerate(planes))
        values = integers / arrays["divisors"][:, None]
        if "ulps" in arrays:
            values = (values.view(np.int64) + arrays["ulps"]).view(np.float64)
        return values, str(arrays["start"]), arrays["item_id"].tolist()
