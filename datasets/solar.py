"""Solar: hourly output of 137 photovoltaic plants in Alabama in 2006, out of NREL's "Solar Power Data for Integration".

    python datasets/solar.py FOLDER

FOLDER is the unpacked archive of the state: files such as Actual_30.45_-88.25_2006_UPV_70MW_5_Min.csv with a row
every five minutes, columns LocalTime (month/day/year) and Power(MW). Forecast files beside them are left alone. An hour
is the mean of its twelve readings and bears the time of its beginning. NREL modelled these outputs from weather data.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from preparation import preparation_parser, prepare
from tqdm import tqdm

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask

PATTERN = "Actual_*_5_Min.csv"
READINGS = 12  # in an hour


def read_plant(path: Path) -> pd.Series:
    """Hourly means of one plant, NaN where a reading is missing.

    Raises:
        ValueError: If the file has not the form of the raw file.
    """
    frame = pd.read_csv(path)
    if list(frame.columns) != ["LocalTime", "Power(MW)"]:
        raise ValueError(f"{path}: expected the columns LocalTime and Power(MW), got {', '.join(frame.columns)}")
    times = np.asarray(pd.to_datetime(frame["LocalTime"], format="%m/%d/%y %H:%M", errors="coerce"))
    power = np.asarray(pd.to_numeric(frame["Power(MW)"], errors="coerce"), dtype=np.float64)
    bad = np.isnat(times) | (np.isnan(power) & frame["Power(MW)"].notna().to_numpy())
    if bad.any():
        line = int(np.argmax(bad)) + 2
        raise ValueError(f"{path}, line {line}: expected a time such as 01/31/06 23:55 and a number")
    groups = pd.Series(power, index=pd.DatetimeIndex(times)).resample("h")
    return groups.mean().where(groups.count() == READINGS)


def read_solar(folder: Path, name: str = "solar-full") -> ForecastTask:
    """The task of the raw files: see the module.

    Args:
        folder: Folder of the raw files.
        name: Name of the task.

    Raises:
        FileNotFoundError: If the folder has no such files.
        ValueError: If a file has not the form of the raw file.
    """
    files = sorted(folder.glob(PATTERN))
    if not files:
        raise FileNotFoundError(f"{folder}: there are no files {PATTERN} in this folder")
    entries = []
    for file in tqdm(files, unit="plant", disable=None):
        series = read_plant(file)
        item = file.name.removeprefix("Actual_").removesuffix("_5_Min.csv")
        entries.append({"item_id": item, "start": to_period(series.index[0], "h"), "target": series.to_numpy()})
    return ForecastTask(name, "h", 24, 7, entries)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, "solar-full", f"folder with the files {PATTERN}")
    options = parser.parse_args(arguments)
    prepare(options, lambda: read_solar(options.source, options.name))


if __name__ == "__main__":
    main()
