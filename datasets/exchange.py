"""Exchange: daily rates of eight currencies, out of the file exchange_rate.txt (LSTNet), at its full length.

    python datasets/exchange.py exchange_rate.txt.gz

The file has a row for each day and eight numbers between commas, without dates; by custom they are business days from
1990-01-01. The papers test on rows 6072 to 6221, which is the bundled set `exchange`; this one goes on to row 7588 and
tests on the last 150 days. A folder or archive in GluonTS' layout goes through gluonts_folder.py instead.
"""

from pathlib import Path

import numpy as np
from preparation import preparation_parser, prepare

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask

COUNTRIES = ("australia", "britain", "canada", "switzerland", "china", "japan", "new_zealand", "singapore")


def read_exchange(path: Path, name: str = "exchange-full") -> ForecastTask:
    """The task of the raw file: see the module.

    Args:
        path: The raw file, unpacked or in a .gz.
        name: Name of the task.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not the form of the raw file.
    """
    try:
        values = np.loadtxt(path, delimiter=",", ndmin=2)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path}") from error
    except ValueError as error:
        raise ValueError(f"{path}: expected eight numbers between commas in each row ({error})") from error
    if values.shape[1] != len(COUNTRIES):
        raise ValueError(f"{path}: expected {len(COUNTRIES)} columns, got {values.shape[1]}")
    start = to_period("1990-01-01", "B")
    entries = [
        {"item_id": country, "start": start, "target": column}
        for country, column in zip(COUNTRIES, values.T, strict=True)
    ]
    return ForecastTask(name, "B", 30, 5, entries)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, "exchange-full", "the file exchange_rate.txt or exchange_rate.txt.gz")
    options = parser.parse_args(arguments)
    prepare(options, lambda: read_exchange(options.source, options.name))


if __name__ == "__main__":
    main()
