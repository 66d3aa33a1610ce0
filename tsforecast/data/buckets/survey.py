"""Folders of buckets: Parquet files, each with all rows of its series, and `survey.json` beside them.

`tsforecast bucket` writes such a folder, see `tsforecast.data.buckets.bucketing`. A bucket has the columns `item_id`
and `timestamp`, and the targets, covariates and static columns under their names. Its rows are in the order of item
and time stamp. The survey says what all buckets have in common, and has the checksum of each.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data.buckets.tally import Tally, tally_of
from tsforecast.data.calendar.frequency import period_alias, to_period
from tsforecast.data.tables.columns import Table
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.series import TableSeries, series_of
from tsforecast.io.files import replace_file
from tsforecast.io.reading import MOST_RECORD, fits, has_fields, read_json, read_parquet
from tsforecast.progress import follow, warnings_only
from tsforecast.wording import listed, option

ITEM, TIMESTAMP = "item_id", "timestamp"  # columns of a bucket
SURVEY = "survey.json"
WORK = ".work"  # the folder of what is not finished
FORMAT = 2  # of surveys; raised when older ones can no longer be read
_ROLES = ("covariates", "static_categories", "static_reals")
_NAME = re.compile(r"bucket-\d{5,}\.parquet")


@dataclass(frozen=True)
class Bucket:
    """A file of a folder of buckets.

    Attributes:
        file: Its name.
        series: Number of series.
        rows: Number of rows.
        size: Bytes.
        sha256: Checksum.
    """

    file: str
    series: int
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Survey:
    """What all buckets of a folder have in common.

    Attributes:
        freq: Frequency of the series.
        targets: Columns of the target, of which there is one at least.
        covariates: Columns of numbers known ahead of time.
        static_reals: Columns of numbers constant within a series.
        categories: Values of each static category, by column.
        shortest: Steps of the shortest series.
        longest: Steps of the longest series.
        first: Where the series begin that begin first.
        last: The last step of the series that end last.
        tally: Counts over all series, by which a model is chosen.
        buckets: The files.
        source: The files that they were made from, and how; see `tsforecast.data.buckets.bucketing`.
    """

    freq: str
    targets: list[str]
    covariates: list[str]
    static_reals: list[str]
    categories: dict[str, list[str]]
    shortest: int
    longest: int
    first: str
    last: str
    tally: Tally
    buckets: list[Bucket]
    source: dict[str, Any]

    @property
    def columns(self) -> Columns:
        """What the columns of the buckets are."""
        several = len(self.targets) > 1
        return Columns(
            item=ITEM,
            timestamp=TIMESTAMP,
            target=self.targets if several else self.targets[0],
            covariates=self.covariates,
            static_categories=list(self.categories),
            static_reals=self.static_reals,
        )

    @property
    def series(self) -> int:
        """Number of series."""
        return sum(bucket.series for bucket in self.buckets)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(bucket.rows for bucket in self.buckets)

    @property
    def end(self) -> pd.Period:
        """The last step of the series that end last."""
        return to_period(self.last, self.freq)


# What survey.json says beside format, tally and buckets.
_PLAIN: dict[str, Any] = {
    "freq": str, "targets": list[str], "covariates": list[str], "static_reals": list[str],
    "categories": dict[str, list[str]], "shortest": int, "longest": int, "first": str, "last": str,
}  # fmt: skip
_BUCKET: dict[str, Any] = {"file": str, "series": int, "rows": int, "size": int, "sha256": str}


def is_buckets(path: Path) -> bool:
    """Whether a path is that of a folder of buckets, which may not be finished."""
    return path.is_dir() and any((path / name).exists() for name in (SURVEY, WORK, bucket_name(0)))


def bucket_name(number: int) -> str:
    """Name of the file of a bucket."""
    return f"bucket-{number:05d}.parquet"


def write_survey(folder: Path, survey: Survey) -> None:
    """Writes survey.json, whole or not at all."""
    contents = {"format": FORMAT, **asdict(survey), "tally": survey.tally.as_json()}
    with replace_file(folder / SURVEY) as temporary:
        temporary.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


def read_survey(folder: Path) -> Survey:
    """The survey of a folder, once all of its files are there; their contents are not looked at.

    Raises:
        FileNotFoundError: If a bucket is missing.
        ValueError: If the folder is not finished, the survey is damaged, or a file has another size or is of another
            folder.
    """
    path = folder / SURVEY
    if not path.is_file():
        raise ValueError(f"{folder} is not finished: there is no {SURVEY}; run `tsforecast bucket` once more")
    found = read_json(path, MOST_RECORD)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a survey of format {FORMAT}; make the buckets anew by `tsforecast bucket`")
    try:
        survey = _survey_of(found)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; make the buckets anew by `tsforecast bucket`") from error
    present = {file.name for file in folder.iterdir() if _NAME.fullmatch(file.name)}
    named = {bucket.file for bucket in survey.buckets}
    if missing := sorted(named - present):
        raise FileNotFoundError(f"{folder}: {len(missing)} buckets of {SURVEY} are missing ({listed(missing, 5)})")
    if strange := sorted(present - named):
        raise ValueError(
            f"{folder}: {len(strange)} buckets are not in {SURVEY} ({listed(strange, 5)}); expected the files of one "
            "call of `tsforecast bucket`, in a folder of their own"
        )
    for bucket in survey.buckets:
        if (size := (folder / bucket.file).stat().st_size) != bucket.size:
            raise ValueError(_other_file(folder / bucket.file, f"{bucket.size} bytes", f"{size}"))
    return survey


def _survey_of(found: dict[str, Any]) -> Survey:
    """The survey of its JSON form.

    Raises:
        ValueError: If something lacks, or is otherwise.
    """
    wrong = [name for name, kind in _PLAIN.items() if not fits(found.get(name), kind)]
    wrong += [] if isinstance(found.get("source"), dict) else ["source"]
    rows: Any = found.get("buckets")
    if not isinstance(rows, list) or not rows or not all(has_fields(row, _BUCKET) for row in rows):
        wrong.append("buckets")
    if wrong or not found["targets"]:
        raise ValueError(f"expected {', '.join(wrong or ['targets'])}, which it lacks or has otherwise")
    for row in rows:
        if not _NAME.fullmatch(row["file"]):  # no path that leads elsewhere
            raise ValueError(f"expected a file such as {bucket_name(0)}, got {row['file']!r:.80}")
    known: dict[str, Any] = {name: found[name] for name in (*_PLAIN, "source")} | {"freq": period_alias(found["freq"])}
    to_period(found["last"], known["freq"])
    return Survey(
        **known,
        tally=tally_of(found.get("tally")),
        buckets=[Bucket(**{name: row[name] for name in _BUCKET}) for row in rows],
    )


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_checksum(folder: Path) -> str:
    """SHA-256 of the names and contents of all files below a folder, in hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {checksum(path)}\n".encode())
    return digest.hexdigest()


def _other_file(path: Path, expected: str, got: str) -> str:
    return (
        f"{path}: expected {expected}, as {SURVEY} says, got {got}: the file is broken, or of another folder; copy it "
        "anew, or make the buckets anew by `tsforecast bucket`"
    )


def bucket_table(folder: Path, bucket: Bucket, columns: Columns) -> Table:
    """The rows of a bucket, once its checksum is right.

    Args:
        folder: Of the buckets.
        bucket: Of its survey.
        columns: Those to read, of the long form.

    Raises:
        ValueError: If the file is broken, or not the one of the survey.
        FileNotFoundError: If there is none.
    """
    path = folder / bucket.file
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if (found := checksum(path)) != bucket.sha256:
        raise ValueError(_other_file(path, f"the checksum {bucket.sha256[:12]}..", f"{found[:12]}.."))
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

    Raises:
        ValueError: If one is not there, or has another role.
    """
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

    Raises:
        FileNotFoundError: If a bucket is missing.
        ValueError: If the folder or a file is not as expected, or has another frequency.
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
