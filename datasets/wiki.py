"""Wiki: daily views of Wikipedia pages, out of the file train_1.csv (or train_2.csv) of Kaggle's web-traffic contest.

    python datasets/wiki.py train_1.csv

A row is a page: its name in the column Page, then a column of views for each day. Which 2000 pages the papers took is
not published; here they are the first ones without a missing day.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from preparation import preparation_parser, prepare
from tqdm import tqdm

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask

CHUNK = 500  # rows read at a time


def read_wiki(path: Path, pages: int, name: str = "wiki-full") -> ForecastTask:
    """The task of the raw file: see the module.

    Args:
        path: The raw file, unpacked or in a .zip or .gz.
        pages: Number of pages.
        name: Name of the task.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not the form of the raw file, or too few pages.
    """
    entries = []
    with pd.read_csv(path, chunksize=CHUNK) as reader, tqdm(total=pages, unit="page", disable=None) as bar:
        for chunk in reader:
            if chunk.columns[0] != "Page":
                raise ValueError(f"{path}: expected the first column Page, got {chunk.columns[0]!r}")
            days = pd.to_datetime(pd.Series(chunk.columns[1:]), format="%Y-%m-%d", errors="coerce")
            if days.isna().any() or (np.diff(days.to_numpy()) != np.timedelta64(1, "D")).any():
                raise ValueError(
                    f"{path}: expected a column for each day, named such as 2015-07-01, behind the column Page"
                )
            text = [str(day) for day, kind in chunk.dtypes.iloc[1:].items() if kind.kind not in "fi"]
            if text:
                raise ValueError(
                    f"{path}: expected numbers, got text in the column {text[0]} near page {len(entries) + 1}"
                )
            views = chunk.iloc[:, 1:].to_numpy(dtype=np.float64)
            start = to_period(days.iloc[0], "D")
            for row in np.flatnonzero(~np.isnan(views).any(axis=1))[: pages - len(entries)]:
                entries.append({"item_id": str(chunk["Page"].iloc[row]), "start": start, "target": views[row]})
                bar.update(1)
            if len(entries) == pages:
                return ForecastTask(name, "D", 30, 5, entries)
    raise ValueError(f"{path}: only {len(entries)} pages have a value every day; give --pages {len(entries)} or fewer")


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, "wiki-full", "the file train_1.csv")
    parser.add_argument("--pages", type=int, default=2000, help="number of pages (default: %(default)s)")
    options = parser.parse_args(arguments)
    prepare(options, lambda: read_wiki(options.source, options.pages, options.name))


if __name__ == "__main__":
    main()
