"""From tables of any size to a folder of buckets, in bounded memory; a call that was killed goes on.

Bucket k of B has the items whose CRC-32, of their names in UTF-8, is k modulo B. First each input file is read in
parts. Its rows go into runs: files with the rows of all buckets, one record batch a bucket. Then each bucket is
gathered from all runs, sorted, checked and written. Until the survey is there, what is finished lies in `.work`:

- plan.json: inputs, columns and the number of buckets
- input-00000.json: an input file that is in runs; run-00000-00000.arrow: its runs
- bucket-00000.json: what the survey says of a bucket that is written
"""

import logging
import shlex
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from glob import glob, has_magic
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tsforecast.data.buckets.gathering import LINE, gather
from tsforecast.data.buckets.survey import FORMAT, ITEM, SURVEY, TIMESTAMP, WORK, Survey, read_survey
from tsforecast.data.tables.cells import StampForm, numbers, read_stamps
from tsforecast.data.tables.dataframes import as_lists, columns_of
from tsforecast.data.tables.parts import Form, find_form, read_parts
from tsforecast.data.tables.roles import ACROSS_TARGET, Columns
from tsforecast.data.tables.table import Table
from tsforecast.io.files import remove_leftovers, replace_file, write_json
from tsforecast.io.locks import contents, lock_folder
from tsforecast.io.reading import read_json
from tsforecast.progress import follow, warnings_only
from tsforecast.wording import option

log = logging.getLogger(__name__)

FIRST = 200_000  # rows that decide what the columns are
PART = 200_000  # rows that are read at once
RUN = 1_000_000  # rows of a run, about
BYTES = 1 << 24  # of input for each bucket, unless their number is given
MOST = 10_000  # buckets
TARGET = "target"  # name of the target where the source has none for it
PLAN = "plan.json"


def make_buckets(
    inputs: Sequence[str],
    folder: str | Path,
    buckets: int | None = None,
    freq: str | None = None,
    columns: Columns | None = None,
) -> Survey:
    """Writes a folder of buckets, or goes on where an earlier call has ended.

    Args:
        inputs: CSV or Parquet files as `read_table` takes them, or patterns of such (`sales/*.csv`).
        folder: To write into; new, or of an earlier call with the same arguments.
        buckets: Number of buckets; None for one for each 16 MiB of input. Those without a series have no file.
        freq: Frequency of the series; None for that of most time stamps, in each bucket.
        columns: What the columns are; the first 200 000 rows decide what is left open.

    Returns:
        The survey of the folder.

    Raises:
        FileNotFoundError: If a file is missing, or no file is of a pattern.
        ValueError: If a row is not as expected, buckets differ in frequency, or the folder holds something else.
        OSError: If a file can not be written, as when the disk is full; what is there is whole.
    """
    folder, given = Path(folder), columns or Columns()
    if given.holidays:
        raise ValueError(f"{option('holidays')} goes with training and prediction; leave it out here")
    if buckets is not None and not 1 <= buckets <= MOST:
        raise ValueError(f"expected {option('buckets')} of 1 to {MOST}, got {buckets}")
    files = find_inputs(inputs)
    plan = {
        "inputs": [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "columns": as_lists(given),
        "buckets": buckets or min(MOST, max(1, -(-sum(file.stat().st_size for file in files) // BYTES))),
    }
    if (names := contents(folder)) and not names & {SURVEY, WORK}:
        raise ValueError(f"{folder} is not empty and holds no buckets; give a new folder")
    with lock_folder(folder):
        work = folder / WORK
        for part in (folder, work):
            remove_leftovers(part)
        if (folder / SURVEY).is_file():
            survey = read_survey(folder)
            _refuse_other_plan(folder, survey.source, {**plan, "freq": freq})
            log.info("%s is finished already", folder)
            shutil.rmtree(work, ignore_errors=True)
            return survey
        work.mkdir(exist_ok=True)
        form = _planned(folder, plan, files[0], given)
        columns = columns_of_buckets(files[0], form.columns)
        for number, file in follow(enumerate(files), "reading", len(files), "files"):
            if not (work / f"input-{number:05d}.json").is_file():
                _scatter(work, number, file, form, columns, plan["buckets"])
        survey = gather(folder, files, columns, plan["buckets"], freq, {**plan, "freq": freq})
        write_json(folder / SURVEY, {"format": FORMAT, **asdict(survey), "tally": survey.tally.as_json()})
        shutil.rmtree(work)
    return survey


def find_inputs(inputs: Sequence[str]) -> list[Path]:
    """The files of paths and patterns, in their order, each once; a FileNotFoundError for one without."""
    found: dict[Path, None] = {}
    for name in inputs:
        paths = [Path(name)]
        if not paths[0].exists() and has_magic(name):
            paths = [path for path in map(Path, sorted(glob(name, recursive=True))) if path.is_file()]
            if not paths:
                raise FileNotFoundError(f"there is no file {name}, with * and ? for any letters")
        if paths[0].is_dir():
            raise ValueError(f"{name} is a folder; name its files, as in {shlex.quote(f'{name}/*.csv')}")
        if not paths[0].is_file():
            raise FileNotFoundError(f"there is no file {name}")
        found |= dict.fromkeys(paths)
    return list(found)


def columns_of_buckets(path: Path, columns: Columns) -> Columns:
    """The columns of the buckets of a table; a ValueError if two roles have one name."""
    named = not columns.wide and columns.targets not in ([], [ACROSS_TARGET])
    found = Columns(
        item=ITEM,
        timestamp=TIMESTAMP,
        target=columns.target if named else TARGET,
        covariates=columns.covariates,
        static_categories=columns.static_categories,
        static_reals=columns.static_reals,
    )
    for name in (*found.numbers, *found.static_categories):
        if name in (ITEM, TIMESTAMP, LINE):
            raise ValueError(f"{path}: the column {name!r} has a name which means something else in buckets; rename it")
    return found


def bucket_of(item: str, buckets: int) -> int:
    """Number of the bucket of a series: the same on every machine, at any time."""
    return zlib.crc32(item.encode()) % buckets


def _refuse_other_plan(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises a ValueError if an earlier call had other arguments, or a file has changed since."""
    for name, value in now.items():
        if before.get(name) != value:
            what = "other files, or files that have changed since" if name == "inputs" else f"other {option(name)}"
            raise ValueError(f"{folder} was begun with {what}; delete it, or give a new folder")


def _planned(folder: Path, plan: dict[str, Any], first: Path, given: Columns) -> Form:
    """The form of the inputs: of an earlier call, or found from the first part of the first file."""
    path = folder / WORK / PLAN
    if path.is_file():
        before = read_json(path)
        _refuse_other_plan(folder, before, plan)
        return Form(columns_of(before["form"]), StampForm(*before["stamps"]))
    form = find_form(first, given, FIRST)
    write_json(path, plan | {"form": as_lists(form.columns), "stamps": form.stamps})
    return form


def _scatter(work: Path, number: int, path: Path, form: Form, columns: Columns, buckets: int) -> None:
    """Writes the rows of an input file into runs."""
    held, rows, runs = [], 0, 0
    with warnings_only("tsforecast.data"):
        for part in follow(read_parts(path, form.columns, PART), str(path), None, f"parts of {PART} rows"):
            held.append(_canonical(part, form.stamps, columns))
            rows += len(part.frame)
            if sum(map(len, held)) >= RUN:
                _write_run(work / f"run-{number:05d}-{runs:05d}.arrow", held, buckets)
                held, runs = [], runs + 1
    if held:
        _write_run(work / f"run-{number:05d}-{runs:05d}.arrow", held, buckets)
        runs += 1
    write_json(work / f"input-{number:05d}.json", {"runs": runs, "rows": rows})


def _canonical(table: Table, stamps: StampForm, columns: Columns) -> pa.Table:
    """Rows in the columns of buckets, with their lines in the file."""
    frame = table.frame
    if table.item is None:
        codes, names = np.zeros(len(frame), np.int64), pd.Index([table.path.stem])
    else:
        codes, names = pd.factorize(frame[table.item])
    items = pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(names.astype(str), pa.string()))
    cells: dict[str, Any] = {ITEM: items.dictionary_decode(), TIMESTAMP: read_stamps(table, stamps)[0]}
    for own, name in zip(table.columns.targets, columns.targets, strict=True):
        cells[name] = numbers(table, own)
    for name in (*columns.covariates, *columns.static_reals):
        cells[name] = numbers(table, name, gaps=False)
    for name in columns.static_categories:
        column: Any = frame[name]
        empty = (column.isna() | (column.astype(str) == "")).to_numpy()
        if empty.any():
            raise ValueError(
                f"{table.place(int(np.argmax(empty)), name)}: the category is empty; name it, such as none"
            )
        cells[name] = pa.array(column.astype(str), pa.string())
    cells[LINE] = frame.index.to_numpy().astype(np.int64) + table.first_line
    return pa.table(cells)


def _write_run(path: Path, held: Sequence[pa.Table], buckets: int) -> None:
    """Writes the rows of all buckets, a record batch for each bucket."""
    table = pa.concat_tables(held)
    items = table[ITEM].combine_chunks().dictionary_encode()
    numbers_ = np.array([bucket_of(name, buckets) for name in items.dictionary.to_pylist()], np.int64)
    places = numbers_[items.indices.to_numpy()]
    order = np.argsort(places, kind="stable")
    table = table.take(order).combine_chunks()
    bounds = np.searchsorted(places[order], np.arange(buckets + 1))
    with replace_file(path) as temporary:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(str(temporary), table.schema, options=options) as writer:
            for start, stop in pairwise(bounds.tolist()):
                rows = table.slice(start, stop - start).combine_chunks().to_batches()
                writer.write_batch(rows[0] if rows else pa.RecordBatch.from_pylist([], table.schema))
