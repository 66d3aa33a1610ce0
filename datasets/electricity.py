"""Electricity: hourly consumption of 370 customers, out of the UCI file LD2011_2014.txt.

    python datasets/electricity.py LD2011_2014.txt

The raw file (UCI "ElectricityLoadDiagrams20112014", 711 MB unpacked) holds a reading in kW every 15 minutes, decimal
commas, semicolons between cells. An hour is the sum of its four readings and bears the time of its end, as in the
bundled excerpt; an hour that lacks a reading is missing. The default range has 6000 hours, of which the last 168 are
for testing: as long as the series that papers use, and without Christmas in its test part.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from preparation import preparation_parser, prepare
from tqdm import tqdm

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask

READINGS = 4  # in an hour
CHUNK = 96 * 28  # rows read at a time


def read_hours(path: Path, start: np.datetime64, end: np.datetime64) -> pd.DataFrame:
    """Hourly sums with start < time <= end.

    Args:
        path: The raw file.
        start: Beginning of the first hour.
        end: End of the last hour.

    Returns:
        One row per hour (index: its end), one column per customer, NaN where a reading is missing.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not the form of the raw file, or no hour in the range.
    """
    parts = []
    with open(path, "rb") as stream, tqdm(total=path.stat().st_size, unit="B", unit_scale=True, disable=None) as bar:
        for chunk in pd.read_csv(stream, sep=";", decimal=",", index_col=0, chunksize=CHUNK, low_memory=False):
            bar.update(stream.tell() - bar.n)
            times = pd.to_datetime(pd.Series(chunk.index), format="%Y-%m-%d %H:%M:%S", errors="coerce").to_numpy()
            text = [name for name, kind in chunk.dtypes.items() if kind.kind not in "fi"]
            if np.isnat(times).any() or text:
                fault = f"text in the columns {text[:3]}" if text else "rows that do not begin with a time"
                raise ValueError(
                    f"{path}: expected times and numbers with a decimal comma between semicolons, got {fault}"
                )
            chunk.index = pd.Series(times).dt.ceil("h")
            inside = chunk[(chunk.index > start) & (chunk.index <= end)]
            if len(inside) > 0:
                groups = inside.groupby(level=0)
                parts.append((groups.sum(min_count=1), groups.count()))
            if times[-1] > end:
                break
    if not parts:
        raise ValueError(f"{path}: no readings between {start} and {end}")
    sums, counts = (pd.concat(kind).groupby(level=0).sum() for kind in zip(*parts, strict=True))
    complete: pd.DataFrame = sums.where(counts == READINGS)  # pyright: ignore[reportAssignmentType]
    return complete.reindex(pd.date_range(complete.index.min(), complete.index.max(), freq="h"))


def read_electricity(path: Path, start: str, end: str, name: str = "electricity-full") -> ForecastTask:
    """The task of the raw file: see the module.

    Args:
        path: The raw file.
        start: Beginning of the first hour.
        end: End of the last hour.
        name: Name of the task.
    """
    hours = read_hours(path, np.datetime64(start, "s"), np.datetime64(end, "s"))
    first = to_period(hours.index[0], "h")
    entries = [{"item_id": str(item), "start": first, "target": column.to_numpy()} for item, column in hours.items()]
    return ForecastTask(name, "h", 24, 7, entries)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, "electricity-full", "the unpacked file LD2011_2014.txt")
    parser.add_argument("--start", default="2014-01-01", help="beginning of the first hour (default: %(default)s)")
    parser.add_argument("--end", default="2014-09-08", help="end of the last hour (default: %(default)s)")
    options = parser.parse_args(arguments)
    prepare(options, lambda: read_electricity(options.source, options.start, options.end, options.name))


if __name__ == "__main__":
    main()
