"""Folders of buckets: Parquet files, each with all rows of its series, and `survey.json` beside them.

`tsforecast bucket` writes such a folder, see `tsforecast.data.buckets.bucketing`. A bucket has the columns `item_id`
and `timestamp`, and the targets, covariates and static columns under their names. Its rows are in the order of item
and time stamp. The survey says what all buckets have in common, and has the checksum of each.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data.buckets.tally import Tally, tally_of
from tsforecast.data.calendar.frequency import period_alias, to_period
from tsforecast.data.tables.roles import Columns
from tsforecast.io.reading import MOST_RECORD, fits, has_fields, read_json
from tsforecast.wording import listed

ITEM, TIMESTAMP = "item_id", "timestamp"  # columns of a bucket
SURVEY = "survey.json"
WORK = ".work"  # the folder of what is not finished
FORMAT = 2  # of surveys; raised when older ones can no longer be read
_NAME = re.compile(r"bucket-\d{5,}\.parquet")


@dataclass(frozen=True)
class Bucket:
    """A file of a folder of buckets."""

    file: str
    series: int
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Survey:
    """The common facts of all buckets of a folder."""

    freq: str  # frequency of the series
    targets: list[str]  # columns of the target, of which there is one at least
    covariates: list[str]  # columns of numbers known ahead of time
    static_reals: list[str]  # columns of numbers constant within a series
    categories: dict[str, list[str]]  # values of each static category, by column
    shortest: int  # steps of the shortest series
    longest: int  # steps of the longest series
    first: str  # where the series begin that begin first
    last: str  # the last step of the series that end last
    tally: Tally  # counts over all series, by which a model is chosen
    buckets: list[Bucket]  # the files
    source: dict[str, Any]  # the files that they were made from, and how; see `tsforecast.data.buckets.bucketing`

    @property
    def columns(self) -> Columns:
        """The columns of the buckets, with their roles."""
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
    """Whether a path is that of a folder of buckets, finished or not."""
    return path.is_dir() and any((path / name).exists() for name in (SURVEY, WORK, bucket_name(0)))


def bucket_name(number: int) -> str:
    """Name of the file of a bucket."""
    return f"bucket-{number:05d}.parquet"


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
            raise ValueError(other_file(folder / bucket.file, f"{bucket.size} bytes", f"{size}"))
    return survey


def _survey_of(found: dict[str, Any]) -> Survey:
    """The survey of its JSON form."""
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


def other_file(path: Path, expected: str, got: str) -> str:
    """The message about a file that is not the one of the survey."""
    return (
        f"{path}: expected {expected}, as {SURVEY} says, got {got}: the file is broken, or of another folder; copy it "
        "anew, or make the buckets anew by `tsforecast bucket`"
    )
