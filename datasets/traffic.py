"""Traffic: hourly occupancy of 963 car lanes, out of the UCI set PEMS-SF.

    python datasets/traffic.py FOLDER

FOLDER is the unpacked UCI archive: PEMS_train, PEMS_test, stations_list, randperm, and PEMS_trainlabels and
PEMS_testlabels, which serve as a check. Every line is a day, a matrix of lanes by 144 ten-minute readings (occupancy,
0 to 1); the days are shuffled, and `randperm` tells their places. An hour is the mean of six readings. The source left
out 13 holidays and two days with faults: these days are missing values here, so that days of the week stay right.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from preparation import preparation_parser, prepare
from tqdm import tqdm

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask

READINGS = 144  # in a day
FIRST, LAST = "2008-01-01", "2009-03-30"
LEFT_OUT = (
    *("2008-01-01", "2008-01-21", "2008-02-18", "2008-05-26", "2008-07-04", "2008-09-01", "2008-10-13", "2008-11-11"),
    *("2008-11-27", "2008-12-25", "2009-01-01", "2009-01-19", "2009-02-16"),  # holidays
    *("2008-03-09", "2009-03-08"),  # clocks put forward: no readings between 2 and 3
)


def calendar() -> pd.DatetimeIndex:
    """The 440 days of the raw files, in order."""
    return pd.DatetimeIndex(pd.date_range(FIRST, LAST, freq="D").difference(pd.DatetimeIndex(LEFT_OUT)))


def read_numbers(path: Path) -> list[int]:
    """Whole numbers of a file such as `[3 1 2]`."""
    text = path.read_text()
    try:
        return [int(word) for word in text.replace("[", " ").replace("]", " ").replace(",", " ").split()]
    except ValueError as error:
        raise ValueError(f"{path}: expected whole numbers between brackets") from error


def read_days(path: Path, lanes: int, bar: tqdm) -> list[NDArray[np.float64]]:
    """Hourly means of the days of a file, each of shape (lanes, 24)."""
    days = []
    with open(path) as stream:
        for line, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                rows = [np.array(row.split(), dtype=np.float64) for row in text.strip().strip("[]").split(";")]
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {line}: expected numbers in brackets, rows set off by semicolons"
                ) from error
            if len(rows) != lanes or any(len(row) != READINGS for row in rows):
                raise ValueError(
                    f"{path}, line {line}: expected {lanes} lanes of {READINGS} readings, got {len(rows)} of "
                    f"{', '.join(sorted({str(len(row)) for row in rows}))}"
                )
            days.append(np.stack(rows).reshape(lanes, 24, -1).mean(axis=2))
            bar.update(1)
    return days


def check_labels(folder: Path, order: NDArray[np.int64], dates: pd.DatetimeIndex) -> None:
    """Compares days of the week with the labels of the raw files, where these are there.

    Raises:
        ValueError: If the calendar does not fit them.
    """
    files = [folder / "PEMS_trainlabels", folder / "PEMS_testlabels"]
    if all(file.is_file() for file in files):
        labels = np.array([number for file in files for number in read_numbers(file)])
        if (
            len(labels) != len(order)
            or len(np.unique((labels - pd.Series(dates).dt.weekday.to_numpy()[order]) % 7)) != 1
        ):
            raise ValueError(f"{folder}: the labels (days of the week) do not fit the order of the days by randperm")


def read_traffic(folder: Path, name: str = "traffic-full") -> ForecastTask:
    """The task of the raw files: see the module.

    Args:
        folder: Folder of the raw files.
        name: Name of the task.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has not the form of the raw file.
    """
    stations = read_numbers(folder / "stations_list")
    dates = calendar()
    order = np.array(read_numbers(folder / "randperm")) - 1  # place in time of each line
    if not np.array_equal(np.sort(order), np.arange(len(dates))):
        raise ValueError(f"{folder / 'randperm'}: expected a permutation of 1 to {len(dates)}")
    check_labels(folder, order, dates)
    with tqdm(total=len(dates), unit="day", disable=None) as bar:
        days = [day for part in ("PEMS_train", "PEMS_test") for day in read_days(folder / part, len(stations), bar)]
    if len(days) != len(dates):
        raise ValueError(f"{folder}: expected {len(dates)} days in PEMS_train and PEMS_test together, got {len(days)}")
    whole = pd.date_range(FIRST, LAST, freq="D")
    values = np.full((len(stations), len(whole), 24), np.nan)
    values[:, whole.get_indexer(dates)[order]] = np.stack(days, axis=1)
    start = to_period(f"{FIRST} 00:00", "h") + 24  # the first day is a holiday
    entries = [
        {"item_id": str(station), "start": start, "target": lane[1:].reshape(-1)}
        for station, lane in zip(stations, values, strict=True)
    ]
    return ForecastTask(name, "h", 24, 7, entries)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, "traffic-full", "folder of the unpacked archive PEMS-SF")
    options = parser.parse_args(arguments)
    prepare(options, lambda: read_traffic(options.source, options.name))


if __name__ == "__main__":
    main()
