"""Rows of buckets: columns that are wanted, tables and series."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tsforecast.data.buckets.survey import ITEM, TIMESTAMP, Bucket, Survey, other_file, read_survey
from tsforecast.data.calendar.frequency import period_alias
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.series import TableSeries, series_of
from tsforecast.data.tables.table import Table
from tsforecast.io.binary import read_parquet
from tsforecast.io.files import checksum
from tsforecast.io.reading import expect_file
from tsforecast.progress import follow, warnings_only
from tsforecast.wording import listed, option

_ROLES = ("covariates", "static_categories", "static_reals")


def bucket_table(folder: Path, bucket: Bucket, columns: Columns) -> Table:
    """The rows of a bucket, once its checksum is right."""
    path = expect_file(folder / bucket.file)
    if (found := checksum(path)) != bucket.sha256:
        raise ValueError(other_file(path, f"the checksum {bucket.sha256[:12]}..", f"{found[:12]}.."))
    names = [ITEM, TIMESTAMP, *columns.static_categories, *columns.numbers]
    frame = read_parquet(path, names)
    if missing := [name for name in names if name not in frame]:
        raise ValueError(f"{path}: there is no column {missing[0]!r}; the columns are {listed(frame.columns)}")
    return Table(path, frame, columns, columns)


def selected(folder: Path, survey: Survey, given: Columns, only: bool) -> Columns:
    """The columns of buckets that are wanted: item and time stamps are known, and all others where none are given.

    Args:
        folder: Of the buckets, for messages.
        survey: Of the folder.
        given: By a user, or those of a run. Names of item and time stamps in other files do not matter.
        only: Whether covariates and static columns that are not given are left out.
    """
    if given.past_covariates:
        raise ValueError(
            f"{folder}: {option('past_covariates')} does not go with buckets, which do not keep such columns"
        )
    own = survey.columns
    target = own.target if given.wide or given.target is None else given.target
    found = replace(own, target=target, holidays=given.holidays)
    for role in _ROLES:
        if getattr(given, role) or only:
            found = replace(found, **{role: list(getattr(given, role))})
    for role, names in (("targets", found.targets), *((r, getattr(found, r)) for r in _ROLES)):
        has = own.targets if role == "targets" else list(getattr(own, role))
        for name in names:
            if name not in has:
                raise ValueError(
                    f"{folder}: there is no column {name!r} among its {role.replace('_', ' ')}, which are "
                    f"{listed(has) or 'none'}; name them to `tsforecast bucket`"
                )
    return found


def bucket_series(
    folder: Path,
    freq: str | None,
    given: Columns,
    categories: Mapping[str, Sequence[str]] | None,
    only: bool,
) -> TableSeries:
    """The series of all buckets, one bucket after the other.

    Args:
        folder: Of the buckets.
        freq: Frequency that they should have; None for whichever they have.
        given: See `selected`.
        categories: Values of static categories; None for those of the survey.
        only: See `selected`.
    """
    survey = read_survey(folder)
    columns = selected(folder, survey, given, only)
    refuse_other_frequency(folder, survey, freq)
    known = categories_of(survey, columns, categories)
    entries = []
    for bucket in follow(survey.buckets, f"reading {folder.name}", len(survey.buckets), "buckets"):
        with warnings_only("tsforecast.data"):
            entries += series_of(bucket_table(folder, bucket, columns), survey.freq, known).entries
    roles = replace(columns, item=None, timestamp=None)  # tables of this form have other names for these
    return TableSeries(folder, survey.freq, entries, {k: list(v) for k, v in known.items()}, columns, roles)


def categories_of(
    survey: Survey, columns: Columns, categories: Mapping[str, Sequence[str]] | None
) -> Mapping[str, Sequence[str]]:
    """Values of the static categories: those that are known, or those of the survey."""
    return {n: survey.categories[n] for n in columns.static_categories} if categories is None else categories


def refuse_other_frequency(folder: Path, survey: Survey, freq: str | None) -> None:
    """Raises a ValueError if buckets do not have a frequency."""
    if freq is not None and period_alias(freq) != survey.freq:
        raise ValueError(
            f"{folder}: the buckets have the frequency {survey.freq!r}, expected {period_alias(freq)!r}; make them "
            f"anew with {option('freq', period_alias(freq))}, or take the data that the model is for"
        )
