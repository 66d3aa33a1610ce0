"""Thirteen tasks of the Chronos zero-shot benchmark, out of the raw files where you saved them.

    python datasets/zeroshot.py --raw FOLDER
    python datasets/zeroshot.py --raw FOLDER --tasks exchange_rate monash_m1_yearly

Each task becomes a set `zeroshot-TASK` with one test window: the last steps of every series, as the benchmark has it
(Ansari et al., "Chronos: Learning the Language of Time Series", 2024; autogluon/fev, `benchmarks/chronos_zeroshot`).
FOLDER is searched with its subfolders; files may be gzipped. Wanted for each task, one of the lines:

    exchange_rate    exchange_rate.txt: laiguokun/multivariate-time-series-data, commit 7f402f1; no licence stated;
                     SHA-256 of the unpacked text 0127465b51e3cd3c360f8eb2be30cfd294689a2a55903eb8245aafc396626c7f
    ETTh             ETTh1.csv, ETTh2.csv: zhouhaoyi/ETDataset, commit 1d16c8f, CC BY-ND 4.0 (pass on unchanged only);
                     f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066 and
                     a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b
    ETTm             ETTm1.csv, ETTm2.csv: the same repository, commit and licence;
                     6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e and
                     db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd
    monash_*         the .tsf file of forecastingdata.org (Zenodo; the archive lists CC BY 4.0): m1_yearly_dataset.tsf,
                     .., hospital_dataset.tsf, cif_2016_dataset.tsf, covid_deaths_dataset.tsf,
                     car_parts_dataset_with_missing_values.tsf
    monash_m1_*      m1_all.jsonl: robjhyndman/Mcomp, data/M1.rda, commit 34f3b41, GPL-3 (package)
    monash_m3_*      m3_all.jsonl: the same, data/M3.rda
    monash_hospital  hospital.jsonl or hospital_monthly_767x84.npz: rakshitha123/Localised_Ensembles, commit 2cf47e8,
                     datasets/Hospital; no licence stated
    monash_cif_2016  cif_2016.jsonl: the same, datasets/CIF 2016
    monash_car_parts     car_parts.jsonl: robjhyndman/expsmooth, data/carparts.rda, commit c19f978, GPL-3 (package)
    monash_covid_deaths  covid_deaths.jsonl: deaths by day and place to 2020-08-20, of the CSSE at Johns Hopkins
                         University, CC BY 4.0 as the centre states; time_series_covid19_deaths_global.csv

JSON lines (.jsonl) have an object for each series: `item_id`, `target` (the whole series, null where missing), and
where known `start`, or `start_year_decimal`; those of M1 and M3 also `period` (YEARLY, QUARTERLY, MONTHLY). An .npz has
`values`, `item_id` and `start`. Whichever file a task is from, the SHA-256 of its values in `TASKS` says whether they
are those of experiments/zeroshot/results/zeroshot.csv; a warning says so if not.
"""

import argparse
import gzip
import hashlib
import json
import logging
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.folder import data_home, write_folder
from tsforecast.data.task import ForecastTask

NOMINAL = "2000-01-01"  # start of series whose source tells none, or tells the year 1
COUNTRIES = ("australia", "britain", "canada", "switzerland", "china", "japan", "new_zealand", "singapore")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """A task of the benchmark.

    Attributes:
        freq: Frequency.
        horizon: Steps of the test window.
        files: What it may be made of: each a tuple of files that are needed together.
        series: Number of series.
        sha256: Of the values, see `digest`.
        period: Value of the field `period` of its series, where a file of JSON lines has others too.
        unused: Steps behind the test window.
    """

    freq: str
    horizon: int
    files: tuple[tuple[str, ...], ...]
    series: int
    sha256: str = ""
    period: str | None = None
    unused: int = 0


class Series(NamedTuple):
    """A series as its source has it."""

    item: str
    start: str
    values: NDArray[np.float64]


def _monash(freq: str, horizon: int, series: int, files: tuple[str, ...], sha256: str, period: str = "") -> Task:
    return Task(freq, horizon, tuple((name,) for name in files), series, sha256, period or None)


def _competition(name: str, period: str, freq: str, horizon: int, series: int, sha256: str) -> Task:
    files = (f"{name}_{period.lower()}_dataset.tsf", f"{name}_all.jsonl")
    return _monash(freq, horizon, series, files, sha256, period)


TASKS = {
    "exchange_rate": Task(
        "B", 30, (("exchange_rate.txt",),), 8, "615633ef45fda59322879d80c303db78cbdf7bfa1d3ef18985b3da68d11a70dd"
    ),
    "ETTh": Task(
        "h", 24, (("ETTh1.csv", "ETTh2.csv"),), 14, "353ef3ecdeff54f50fc1b7f600dacfde1cd760d3bc670e6501890d755427a9f6"
    ),
    "ETTm": Task(
        "15min",
        24,
        (("ETTm1.csv", "ETTm2.csv"),),
        14,
        "f9800f24ccf8e2aed29d95669c35a8f8ca1642c375a7d5c3882d2bb3a6a03f1a",
        unused=72,
    ),
    "monash_m1_yearly": _competition(
        "m1", "YEARLY", "Y", 6, 181, "d202c86465dc93c690f7b560133fa4ec13e11d2089cb392ad9a7c17445629e9f"
    ),
    "monash_m1_quarterly": _competition(
        "m1", "QUARTERLY", "Q", 8, 203, "06b682c21386d8a822b280ef95853529255828c7d047df2063d525c81d0557f6"
    ),
    "monash_m1_monthly": _competition(
        "m1", "MONTHLY", "M", 18, 617, "5c808f3dadd618521a3a007ebbb376e5e67a2fe9418c02749097cb122bed7fb5"
    ),
    "monash_m3_yearly": _competition(
        "m3", "YEARLY", "Y", 6, 645, "cfbc5ecb443637ab07fc39c11f763ec28c1a232606418e95620e472c74984795"
    ),
    "monash_m3_quarterly": _competition(
        "m3", "QUARTERLY", "Q", 8, 756, "9200dabc82451fa765146c547b7d7ade7c5c6f238ab873bd72c2cf6e11e3139a"
    ),
    "monash_m3_monthly": _competition(
        "m3", "MONTHLY", "M", 18, 1428, "9791b46d4d521776fa37fa6641876a9340dc79b87556820189e16e9ca3cb89ac"
    ),
    "monash_hospital": _monash(
        "M",
        12,
        767,
        ("hospital_dataset.tsf", "hospital.jsonl", "hospital_monthly_767x84.npz"),
        "7c57584cd9c53ad66252db0506e35b2a2228663d25ff702085c0150f187d5757",
    ),
    "monash_cif_2016": _monash(
        "M",
        12,
        72,
        ("cif_2016_dataset.tsf", "cif_2016.jsonl"),
        "8fb72b6e06260a6ab7bc65d75762484a82e55afb2f750b730fca2c9ef4cd2fe9",
    ),
    "monash_car_parts": _monash(
        "M",
        12,
        2674,
        ("car_parts_dataset_with_missing_values.tsf", "car_parts.jsonl"),
        "283d91938913b0c8ffc3e7cd2d8946e2ef8f6aa7abd802769a84a0766d9d9e2f",
    ),
    "monash_covid_deaths": _monash(
        "D",
        30,
        266,
        ("covid_deaths_dataset.tsf", "covid_deaths.jsonl"),
        "307012b9eecf960b004f992f9a1eefd07912c01073f0710272c807b0ccf559db",
    ),
}


def find(folder: Path, task: Task) -> list[Path]:
    """The raw files of a task, below a folder.

    Raises:
        FileNotFoundError: If they are not there.
    """
    for names in task.files:
        found = [next(iter(sorted([*folder.rglob(name), *folder.rglob(f"{name}.gz")])), None) for name in names]
        if None not in found:
            return [path for path in found if path is not None]
    wanted = ", or ".join(" and ".join(names) for names in task.files)
    raise FileNotFoundError(f"below {folder} there is no {wanted} (gzipped or not); see `--help` for where to get it")


def read_series(path: Path, period: str | None = None) -> list[Series]:
    """The series of a raw file, whose form its name tells.

    Args:
        path: The file.
        period: As in `Task`.

    Raises:
        ValueError: If it has not the form of the raw file.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(".npz"):
        return _read_arrays(path)
    if name.endswith(".tsf"):
        return list(_read_tsf(path))
    if name.endswith(".jsonl"):
        return list(_read_json(path, period))
    if name.endswith(".csv"):
        return _read_ett(path, name.removesuffix(".csv"))
    return _read_exchange(path)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text, gzipped or not, without empty ones."""
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a text, gzipped or not, got a damaged file ({error})") from error
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _numbers(path: Path, line: int, cells: Sequence[Any]) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if cell in (None, "?") else float(cell) for cell in cells])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}, line {line}: expected numbers ({error})") from error


def _read_tsf(path: Path) -> Iterator[Series]:
    """Series of a .tsf file: a line for each, with attributes and values between colons."""
    names: list[str] = []
    for number, line in _lines(path):
        if line.startswith("@attribute"):
            names.append(line.split()[1])
        elif not line.startswith(("#", "@")):
            *cells, values = line.strip().split(":")
            if not cells or len(cells) != len(names):
                raise ValueError(f"{path}, line {number}: expected {len(names)} attributes and then values")
            known = dict(zip(names, cells, strict=True))
            start = known.get("start_timestamp", NOMINAL).split(" ")[0]
            yield Series(known.get("series_name", cells[0]), start, _numbers(path, number, values.split(",")))


def _read_json(path: Path, period: str | None) -> Iterator[Series]:
    """Series of JSON lines."""
    for number, line in _lines(path):
        try:
            row = json.loads(line)
            item, target = str(row["item_id"]), list(row["target"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: expected an object with item_id and target") from error
        if period is None or row.get("period") == period:
            yield Series(item, _start(row), _numbers(path, number, target))


def _start(row: dict[str, Any]) -> str:
    year = float(row.get("start_year_decimal") or 0)
    if year >= 1700:
        return f"{int(year)}-{round(year % 1 * 12) + 1:02d}-01"
    return row.get("start") or NOMINAL


def _read_arrays(path: Path) -> list[Series]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            start = str(arrays["start"])
            return [
                Series(str(item), start, row.astype(np.float64))
                for item, row in zip(arrays["item_id"], arrays["values"], strict=True)
            ]
    except (ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path}: expected an .npz file with values, item_id and start ({error})") from error


def _read_table(path: Path, columns: Sequence[str], first: int) -> NDArray[np.float64]:
    """Numbers of a comma-separated table, (row, column), from a column on."""
    rows = []
    for number, line in _lines(path):
        cells = line.strip().split(",")
        if len(cells) != len(columns):
            raise ValueError(f"{path}, line {number}: expected {len(columns)} columns, got {len(cells)}")
        if number > 1 or first == 0:
            rows.append(_numbers(path, number, cells[first:]))
        elif cells != list(columns):
            raise ValueError(f"{path}: expected the header {','.join(columns)}")
    if not rows:
        raise ValueError(f"{path}: expected rows of numbers, got none")
    return np.stack(rows)


def _read_exchange(path: Path) -> list[Series]:
    values = _read_table(path, COUNTRIES, first=0)
    return [Series(item, "1990-01-01", column) for item, column in zip(COUNTRIES, values.T, strict=True)]


def _read_ett(path: Path, name: str) -> list[Series]:
    columns = ("date", "HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    values = _read_table(path, columns, first=1)
    return [
        Series(f"{name}-{column}", "2016-07-01 00:00", row) for column, row in zip(columns[1:], values.T, strict=True)
    ]


def as_in_benchmark(name: str, series: Series) -> Series:
    """A series with the values of the benchmark's copy, where that is not what the source has.

    The yearly M1 series are rounded to two decimals, half up. One value of M3 (N2786, step 84) has lost its sign: the
    benchmark has -1200 instead of 1200, and its published scores are of that.
    """
    if name == "monash_m1_yearly":
        return series._replace(values=np.floor(series.values * 100 + 0.5) / 100)
    if name == "monash_m3_monthly" and series.item == "N2786" and series.values[83] == 1200:
        values = series.values.copy()
        values[83] = -1200
        return series._replace(values=values)
    return series


def read_task(name: str, folder: Path) -> ForecastTask:
    """A task out of raw files.

    Args:
        name: A key of `TASKS`.
        folder: Where the raw files are, searched with its subfolders.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has not the form of the raw file.
    """
    task = TASKS[name]
    paths = find(folder, task)
    series = [as_in_benchmark(name, one) for path in paths for one in read_series(path, task.period)]
    where = " and ".join(map(str, paths))
    if len(series) != task.series:
        raise ValueError(f"{where}: expected {task.series} series for {name}, got {len(series)}")
    for one in series:
        if len(one.values) <= task.horizon + task.unused:
            raise ValueError(
                f"{where}: expected more than {task.horizon + task.unused} values for {name} in every series, "
                f"got {len(one.values)} in {one.item}"
            )
    if digest(series) != task.sha256:
        log.warning(
            "%s: the values of %s are not those of experiments/zeroshot/results/zeroshot.csv (SHA-256 differs)",
            where,
            name,
        )
    entries = []
    for item, start, values in series:
        try:
            period = to_period(start, task.freq)
        except ValueError as error:
            raise ValueError(f"{where}: the start {start!r} of {item} is not a time stamp") from error
        entries.append({"item_id": item, "start": period, "target": values[: len(values) - task.unused]})
    return ForecastTask(f"zeroshot-{name}", task.freq, task.horizon, 1, entries)


def digest(series: Sequence[Series]) -> str:
    """SHA-256 of values, whatever the file, the names and the order of the series.

    It is the hash of the sorted hashes of the series, each of its values as little-endian float64.
    """
    each = sorted(hashlib.sha256(one.values.astype("<f8").tobytes()).digest() for one in series)
    return hashlib.sha256(b"".join(each)).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw files")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS, metavar="TASK", help="default: all")
    parser.add_argument(
        "--out", type=Path, default=data_home(), help="folder of prepared sets (TSFORECAST_DATA; default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    missing = []
    for name in options.tasks:
        try:
            task = read_task(name, options.raw)
            write_folder(task, options.out / task.name)
        except FileNotFoundError as error:
            missing.append(f"{name}: {error}")
            continue
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")
        lengths = [len(entry["target"]) for entry in task.entries]
        log.info("%s: %d series of %d to %d steps", options.out / task.name, len(lengths), min(lengths), max(lengths))
    if missing:
        sys.exit("error: " + "\n".join(missing))


if __name__ == "__main__":
    main()
