"""A user's own data as a forecasting task: CSV and Parquet in long format, GluonTS folders.

| in the file | what happens |
| --- | --- |
| rows in any order | sorted |
| no row for a step, or a target without a value (`MISSING`) | missing value (NaN); a covariate keeps its last value |
| rows behind the last target, target empty, covariates given | the known future of the covariates |
| the same without covariates | missing values at the end of the series; with `Columns.ahead` numbers in other columns
that go on there are covariates |
| time stamps with an offset or time zone | UTC; dates where all are midnight of their zone |
| time stamps without one | taken as they are; a skipped hour is a missing value, a repeated one an error |
| a constant series | fine, said in the log |
| an item of letters and digits, e.g. 007 | text, as written |
| duplicate or irregular time stamps, or beyond the years 1678 to 2261 | error |
| a frequency that does not fit, or is not known | error |
| a file that is missing, empty, or lacks a column | error |
| other text, infinity or more than 3.4e38 in a column of numbers; an empty covariate, item or time stamp | error |
| a static column that changes within a series, a category which `categories` lacks | error |
| a series without a value before its test windows, or not longer than these | left out with a warning; an error where
these are more than half |
| with `beyond`: single values a hundred times farther from all others than these from each other | missing values,
with a warning |
| with `beyond`: covariates that end before the forecast does | error |
| with `beyond`: a series without a value | kept; left out if it has covariates, since nothing tells where its forecast
begins |
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data.buckets.rows import bucket_series, bucket_table, categories_of, refuse_other_frequency, selected
from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.buckets.survey import Bucket, Survey, is_buckets, read_survey
from tsforecast.data.calendar.frequency import period_alias
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.data.folder import read_folder
from tsforecast.data.public_holidays import with_holidays
from tsforecast.data.table_tasks import split_lengths, task_of
from tsforecast.data.tables.dataframes import as_pandas
from tsforecast.data.tables.formats import read_table
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.series import TableSeries, series_of
from tsforecast.data.task import ForecastTask, empty_behind
from tsforecast.data.usable import tell, unusable, without_errors
from tsforecast.progress import follow, warnings_only
from tsforecast.wording import counted, option

log = logging.getLogger(__name__)

MOST_KEPT = 20_000_000  # rows of buckets that are kept in memory; of more, one bucket is
_FOLDER_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


def read_task(
    source: Any,
    freq: str | None = None,
    prediction_length: int | None = None,
    windows: int | None = None,
    *,
    columns: Columns | None = None,
    beyond: bool = False,
    categories: Mapping[str, Sequence[str]] | None = None,
    step: int | None = None,
) -> ForecastTask:
    """Reads a user's series: a table with one row for each item and time stamp, or a folder in GluonTS' layout.

    The table of this module says what happens to what is in the file. Errors name file, line and column, and a remedy.

    Args:
        source: .csv (or any text with a header; comma, semicolon, tab or bar between cells), .parquet, .xlsx, a GluonTS
            folder or .json(l) file; or a frame of pandas or polars, an Arrow table or the like.
        freq: Frequency in any of its names; inferred and logged where None.
        prediction_length: Steps of a forecast. None: what is customary (`default_horizon`), at most a fifth of the
            median series; without test windows half of the longest.
        windows: Number of test windows; 0 keeps everything for training. None: 7 below a day and 5 from there, as far
            as they take at most a fifth of nine in ten of the series that have room for one, but at least 1.
        columns: What the columns are; found by their names where left open. Of GluonTS folders only `holidays`.
        beyond: The task is a forecast beyond the end of the data: no test windows, and covariates must cover it.
        categories: Values of the static categories that a model was trained with (`ForecastTask.categories`), so that
            codes stay the same. None: those of the file.
        step: Steps from the beginning of a test window to that of the next, of tables; None for `prediction_length`.

    Returns:
        The task. Static categories are coded by their place in `ForecastTask.categories`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: For the errors of the table above.
    """
    check_count("prediction_length", prediction_length, 1)
    check_count("windows", windows, 0)
    check_count("step", step, 1)
    alias = None if freq is None else period_alias(freq)
    windows, source = 0 if beyond else windows, as_pandas(source)
    if not isinstance(source, pd.DataFrame):
        if not isinstance(source, str | Path):
            kind = type(source).__name__
            raise ValueError(f"expected a frame of pandas or polars, an Arrow table or the path of a file, got {kind}")
        source = Path(source)
        if not is_buckets(source) and (source.is_dir() or source.name.lower().endswith(_FOLDER_SUFFIXES)):
            _refuse_step(source, step)
            task = read_folder(source, alias, prediction_length, windows, all_missing=beyond)
            return task if columns is None or not columns.holidays else with_holidays(task, columns.holidays)
        if is_buckets(source) and (survey := read_survey(source)).rows > MOST_KEPT:
            if columns is None or not columns.holidays:
                _refuse_step(source, step)
                split = alias, prediction_length, windows
                return _streamed(source, survey, *split, columns or Columns(), categories, beyond)
            log.info("%s: holidays of all series are found together: %d rows are kept in memory", source, survey.rows)
    series = _series_in(source, alias, columns or Columns(), categories, beyond)
    if columns is not None and columns.ahead and series.columns.covariates:
        known = min(entry[COVARIATES].shape[-1] - entry["target"].shape[-1] for _, entry in series.entries)
        if not columns.covariates and known < (prediction_length or 1):
            log.info("%s: covariates are left out: they are known for %s", series.path, counted(known, "step"))
            series = _series_in(source, alias, replace(columns, ahead=False), categories, beyond)
        elif prediction_length is None and known > 0:
            log.info("%s: prediction length %d: as far as covariates are known", series.path, known)
            prediction_length = known
    if columns is not None and columns.ahead and (empty := empty_behind([entry for _, entry in series.entries])):
        log.warning(
            "%s: the last %s of all series have no target: forecasts begin behind them, not behind the last value; "
            "delete these rows to forecast them",
            *(series.path, counted(empty, "step")),
        )
    steps = [entry["target"].shape[-1] for _, entry in series.entries]
    lengths = split_lengths(series.path, series.freq, steps, prediction_length, windows)
    task = task_of(series, *lengths, beyond, step=step or 0)
    if beyond or (columns is not None and columns.ahead):
        task = replace(task, entries=without_errors(series.path, task.entries))
    if columns is not None and columns.holidays:
        task = with_holidays(task, columns.holidays)
    return task if freq is not None else replace(task, reasons=task.reasons | {"freq": "of most time stamps"})


def bucket_task(
    folder: Path,
    bucket: Bucket,
    freq: str,
    prediction_length: int,
    columns: Columns,
    *,
    windows: int = 0,
    categories: Mapping[str, Sequence[str]],
    end: pd.Period | None = None,
) -> ForecastTask:
    """Reads the series of one bucket: for forecasts beyond their end, or within them, or to fill in missing values.

    Args:
        folder: Of the buckets.
        bucket: Of the survey.
        freq: Frequency of the series.
        prediction_length: Steps of a forecast; 0 for none.
        columns: As `selected` gives them.
        windows: Number of test windows at the end of each series; with 0, a forecast is beyond the end.
        categories: Values of the static categories that a model was trained with.
        end: The last step of all series, which are prolonged up to there; None for as they are.

    Returns:
        The task of the series that can be used, of which there may be none.
    """
    series = series_of(bucket_table(folder, bucket, columns), freq, categories)
    beyond = windows == 0 and prediction_length > 0
    task = task_of(series, prediction_length, windows, {}, beyond, part=True)
    task = task if end is None else task.ending_together(end)
    return with_holidays(task, columns.holidays) if columns.holidays and task.entries else task


def _streamed(
    folder: Path,
    survey: Survey,
    freq: str | None,
    prediction_length: int | None,
    windows: int | None,
    given: Columns,
    categories: Mapping[str, Sequence[str]] | None,
    beyond: bool,
) -> ForecastTask:
    """The task of buckets that are read again in every walk through its entries."""
    columns = selected(folder, survey, given, only=beyond)
    refuse_other_frequency(folder, survey, freq)
    known = categories_of(survey, columns, categories)

    def series(number: int) -> TableSeries:
        return series_of(bucket_table(folder, survey.buckets[number], columns), survey.freq, known)

    def walk() -> Iterator[TableSeries]:
        numbers = range(len(survey.buckets))
        for number in follow(numbers, f"reading {folder.name}", len(numbers), "buckets"):
            with warnings_only("tsforecast.data"):
                yield series(number)

    lengths = [survey.shortest, survey.longest]
    if prediction_length is None or windows is None:
        lengths = [entry["target"].shape[-1] for part in walk() for _, entry in part.entries]
    horizon, windows, reasons = split_lengths(folder, survey.freq, lengths, prediction_length, windows)

    def read(number: int) -> list[dict[str, Any]]:
        said_before = warnings_only("tsforecast.data.usable", logging.ERROR)  # what is left out
        with warnings_only("tsforecast.data"), said_before:
            return list(task_of(series(number), horizon, windows, {}, beyond, part=True).entries)

    counts = [bucket.series for bucket in survey.buckets]
    if not beyond or columns.covariates:
        left_out = [unusable(part.entries, windows * horizon, beyond) for part in walk()]
        tell(folder, [one for part in left_out for one in part], sum(counts))
        counts = [count - len(part) for count, part in zip(counts, left_out, strict=True)]
    split = f"{survey.freq} {horizon} {windows} {columns.targets}"
    sums = "".join(bucket.sha256 for bucket in survey.buckets)
    identity = hashlib.sha256(f"{split} {sums}".encode()).hexdigest()
    log.info("%s: %d rows are read bucket by bucket, again in every pass", folder, survey.rows)
    return ForecastTask(
        folder.stem,
        survey.freq,
        horizon,
        windows,
        StreamedEntries(read, tuple(counts), identity),
        {name: list(values) for name, values in known.items()},
        tuple(columns.targets),
        reasons=reasons if freq is not None else reasons | {"freq": "of most time stamps"},
        columns=replace(columns, item=None, timestamp=None),
    )


def _series_in(
    source: Path | pd.DataFrame,
    freq: str | None,
    columns: Columns,
    categories: Mapping[str, Sequence[str]] | None,
    beyond: bool,
) -> TableSeries:
    """The series of a table, or of a folder of buckets: for a forecast, no more of its columns than the model has."""
    if isinstance(source, Path) and is_buckets(source):
        return bucket_series(source, freq, columns, categories, only=beyond)
    return series_of(read_table(source, columns), freq, categories)


def _refuse_step(source: Path, step: int | None) -> None:
    """Raises where test windows overlap, or stand apart, in data that are no table in memory."""
    if step is not None:
        raise ValueError(f"{source}: step goes with a table: folders have their windows one behind the other")


def check_count(name: str, number: Any, least: int) -> None:
    """Refuse an option that is neither None nor a whole number that is large enough."""
    if number is not None and not isinstance(number, Integral):
        raise ValueError(f"expected {option(name)} to be a whole number, got {number!r}")
    if number is not None and number < least:
        raise ValueError(f"expected {option(name)} of at least {least}, got {number}")
