"""The second half of bucketing: each bucket is gathered from all runs, checked and written."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from tsforecast.data.buckets.survey import ITEM, TIMESTAMP, WORK, Bucket, Survey, bucket_name
from tsforecast.data.buckets.tally import Tally, tally_of
from tsforecast.data.calendar.frequency import expected_alias_warnings, period_alias, to_period
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.series import series_of
from tsforecast.data.tables.table import Table
from tsforecast.io.binary import is_parquet
from tsforecast.io.files import checksum, replace_file, write_json
from tsforecast.io.reading import read_json
from tsforecast.progress import follow, warnings_only
from tsforecast.wording import listed, option

log = logging.getLogger(__name__)

LINE = "(line)"  # column of runs: where a row stands in its file
_LEAST = 3  # time stamps of a series from which a frequency can be inferred
Record = dict[str, Any]


def gather(
    folder: Path, files: Sequence[Path], columns: Columns, buckets: int, freq: str | None, source: dict[str, Any]
) -> Survey:
    """Writes all buckets that are not there yet, and returns the survey, not yet written."""
    alias = None if freq is None else period_alias(freq)
    work = folder / WORK
    runs = [
        (number, work / f"run-{number:05d}-{run:05d}.arrow")
        for number in range(len(files))
        for run in range(read_json(work / f"input-{number:05d}.json")["runs"])
    ]
    if not runs:
        raise ValueError(f"{listed(map(str, files), 3)}: there are no rows; expected one for each series and step")
    records = [
        _gathered(folder, number, runs, files, columns, alias)
        for number in follow(range(buckets), "writing", buckets, "buckets")
    ]
    found = _common_frequency(folder, records)
    if found is None:
        sparse = next(number for number, record in enumerate(records) if record["rows"])
        table = _table_of(folder, sparse, runs, files, columns)[0]
        series_of(table)  # which says that the frequency can not be inferred
        raise AssertionError("a bucket without three time stamps in a series has no frequency")
    for number, record in enumerate(records):
        if record["rows"] and record["freq"] is None:
            records[number] = _gathered(folder, number, runs, files, columns, found, asked=alias)
    return _common_survey(found, columns, [record for record in records if record["rows"]], source)


def _gathered(
    folder: Path,
    number: int,
    runs: Sequence[tuple[int, Path]],
    files: Sequence[Path],
    columns: Columns,
    freq: str | None,
    asked: str | None = None,
) -> Record:
    """The record of a bucket for the survey; writes the bucket if it is not there."""
    path, note = folder / bucket_name(number), folder / WORK / f"bucket-{number:05d}.json"
    asked = freq if asked is None else asked
    if note.is_file():
        record = read_json(note)
        whole = not record["rows"] or (path.is_file() and path.stat().st_size == record["size"])
        if whole and record["asked"] == asked and (freq is None or record["freq"] == freq or not record["rows"]):
            return record
    record: Record = {"asked": asked, "file": path.name, "rows": 0}
    table, cells = _table_of(folder, number, runs, files, columns)
    if len(table.frame):
        record |= _checked(table, freq, columns)
        named = [ITEM, TIMESTAMP, *columns.static_categories]
        with replace_file(path) as temporary:
            parquet.write_table(cells, temporary, compression="zstd", use_dictionary=named)  # pyright: ignore[reportArgumentType]
        record |= {"size": path.stat().st_size, "sha256": checksum(path)}
    write_json(note, record)
    return record


def _table_of(
    folder: Path, number: int, runs: Sequence[tuple[int, Path]], files: Sequence[Path], columns: Columns
) -> tuple[Table, pa.Table]:
    """The rows of a bucket in their order: as a table with the place of each in its input, and as columns to write."""
    parts, sources = [], []
    for file, run in runs:
        with pa.memory_map(str(run)) as mapped:
            batch = pa.ipc.open_file(mapped).get_batch(number)
        parts.append(batch)
        sources.append(np.full(batch.num_rows, file))
    table = pa.Table.from_batches(parts).combine_chunks()
    items = table[ITEM].combine_chunks().dictionary_encode()
    if isinstance(items, pa.ChunkedArray):
        items = items.combine_chunks()
    names = np.asarray(items.dictionary.to_pylist(), dtype=object)
    sort = np.argsort(names, kind="stable")
    codes = np.argsort(sort)[items.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
    order = np.lexsort((table[TIMESTAMP].to_numpy(), codes))
    table = table.take(order)
    encoded = pa.DictionaryArray.from_arrays(pa.array(codes[order], pa.int32()), pa.array(names[sort], pa.string()))
    cells = table.drop_columns([LINE]).set_column(table.schema.get_field_index(ITEM), ITEM, encoded)
    lines, places = table[LINE].to_numpy(), np.concatenate(sources)[order]

    def origin(row: int) -> str:
        path = files[places[row]]
        return f"{path}, {'row' if is_parquet(path) else 'line'} {lines[row]}"

    frame = cells.to_pandas(use_threads=False)
    return Table(folder / bucket_name(number), frame, columns, columns, origin=origin), cells


def _checked(table: Table, freq: str | None, columns: Columns) -> Record:
    """The record of a bucket with sound rows; its frequency is None if no series tells it."""
    codes = table.frame[ITEM].cat.codes.to_numpy()
    rows = np.bincount(codes)
    record: Record = {"rows": len(codes), "series": len(rows), "freq": None, "categories": {}}
    if freq is None and rows.max() < _LEAST:
        return record
    with warnings_only("tsforecast.data"), expected_alias_warnings():
        found = series_of(table, freq)
        tally, lengths, ends = Tally(), [], []
        for _, entry in found.entries:
            tally.add(entry, use_categories=False)
            lengths.append(entry["target"].shape[-1])
            ends.append(entry["start"].ordinal + (lengths[-1] - 1) * entry["start"].freq.n)
        last = int(np.argmax(ends))
        end = found.entries[last][1]["start"] + (lengths[last] - 1)
    stamps = table.frame[TIMESTAMP].to_numpy()
    return record | {
        "freq": found.freq,
        "categories": found.categories,
        "shortest": min(lengths),
        "longest": max(lengths),
        "first": str(pd.Timestamp(stamps.min())),
        "last": str(end.start_time),
        "tally": tally.as_json(),
    }


def _common_frequency(folder: Path, records: Sequence[Record]) -> str | None:
    """The frequency of all buckets, which must not differ; None if none tells it."""
    found: dict[str, list[str]] = {}
    for record in records:
        if record["rows"] and record["freq"] is not None:
            found.setdefault(record["freq"], []).append(record["file"])
    if len(found) > 1:
        most = max(found, key=lambda freq: len(found[freq]))
        parts = "; ".join(f"{freq} in {len(names)} ({listed(names, 3)})" for freq, names in found.items())
        raise ValueError(
            f"{folder}: buckets differ in frequency: {parts}. If all series have the same, and some have gaps, give "
            f"it, e.g. {option('freq', most)}; else make a folder of buckets for each frequency"
        )
    return next(iter(found), None)


def _common_survey(freq: str, columns: Columns, records: Sequence[Record], source: dict[str, Any]) -> Survey:
    """The survey of all buckets that have rows."""
    tally = Tally()
    for record in records:
        tally.merge(tally_of(record["tally"]))
    names = list(columns.static_categories)
    categories = {name: sorted({v for record in records for v in record["categories"][name]}) for name in names}
    codes: NDArray[np.float64] = np.array([len(values) - 1 for values in categories.values()], np.float64)
    with expected_alias_warnings():
        last = max((record["last"] for record in records), key=lambda text: to_period(text, freq).ordinal)
    return Survey(
        freq=freq,
        targets=columns.targets,
        covariates=list(columns.covariates),
        static_reals=list(columns.static_reals),
        categories=categories,
        shortest=min(record["shortest"] for record in records),
        longest=max(record["longest"] for record in records),
        first=min(record["first"] for record in records),
        last=last,
        tally=replace(tally, codes=codes),
        buckets=[
            Bucket(record["file"], record["series"], record["rows"], record["size"], record["sha256"])
            for record in records
        ],
        source=source,
    )
