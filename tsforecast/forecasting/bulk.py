"""Forecasts, imputations and scores of folders of buckets: a file for each bucket, by processes that share nothing.

A file depends on the run, its bucket and the request alone: not on the number of workers, nor on their order.
A bucket is done when its note is there; a call that was killed goes on with the others, to the same bytes.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pyarrow import parquet

from tsforecast.data.buckets.rows import refuse_other_frequency
from tsforecast.data.buckets.survey import SURVEY, WORK, Bucket, read_survey
from tsforecast.forecasting.engines import ENGINES
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.forecasting.requests import Request
from tsforecast.io.files import checksum, folder_checksum, remove_leftovers, write_json
from tsforecast.io.locks import contents, lock_folder
from tsforecast.io.reading import read_json
from tsforecast.progress import follow, quiet
from tsforecast.wording import option

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 1  # of manifests
_PLAN = "plan.json"
# Options behind fields of a request that are called otherwise, by its kind.
_OPTIONS = {"forecasts": {"levels": "quantiles", "last": "start"}, "imputations": {"levels": "quantiles"}}
_TOLD = 10  # warnings that are shown
_loaded = lru_cache(maxsize=1)(load_predictor)  # a process keeps it from bucket to bucket
_TOLD_OF = ("file", "series", "rows", "size", "sha256")  # what the manifest says of a bucket


def process_bucket(run: Path, path_in: Path, path_out: Path, request: Request, bucket: Bucket) -> dict[str, Any]:
    """Writes what is wanted of all series of a bucket, by one thread.

    Args:
        run: Folder of the predictor.
        path_in: File of the bucket.
        path_out: Parquet file to write, whole or not at all. There is none if the bucket has no usable series.
        request: What is wanted.
        bucket: What the survey says of the bucket.

    Returns:
        The note of the bucket: `file`, `series`, `rows`, `size` and `sha256` of what was written, `warnings`, and
        `parts`, what `Request.write` returns.
    """
    note: dict[str, Any] = {"file": path_out.name, "series": 0, "rows": 0, "size": 0, "sha256": "", "parts": {}}
    with _one_thread(), _collected_warnings() as warnings:
        task = request.read(path_in.parent, bucket)
        if task.entries:
            torch.manual_seed(seed_of(request.seed, path_in.name))
            note["parts"] = request.write(_loaded(run, request.device), task, path_out)
            note |= {"series": len(task.entries), "rows": parquet.read_metadata(path_out).num_rows}
            note |= {"size": path_out.stat().st_size, "sha256": checksum(path_out)}
    return note | {"warnings": warnings}


def seed_of(seed: int, name: str) -> int:
    """The seed of a bucket: streams of different buckets, and of different seeds, are independent."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Computes by one thread: sums of several have another order, and so other last digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Keeps warnings, for whoever has sent the bucket, and shows no bars: buckets are what is counted."""
    found: list[str] = []
    token = quiet.set(True)
    logger, handler = logging.getLogger("tsforecast"), logging.Handler()
    handler.setLevel(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield found
    finally:
        logger.handlers, logger.propagate = before
        quiet.reset(token)


def process_buckets(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    request: Request,
    *,
    workers: int = 1,
    engine: str = "local",
    address: str | None = None,
) -> dict[str, Any]:
    """Writes a file for each bucket into a folder, or goes on where an earlier call has ended.

    Args:
        run: Folder of the predictor.
        data: Folder of buckets.
        out: Folder to write: a Parquet file for each bucket, and manifest.json with their checksums when all are done.
        request: What is wanted of each bucket.
        workers: Processes, of one thread each.
        engine: "local", or "ray"; see `tsforecast.forecasting.engines`.
        address: Of a Ray cluster, whose machines see the same folders; None for one on this machine.

    Returns:
        What manifest.json says.

    Raises:
        FileNotFoundError: If a bucket is missing.
        ValueError: If the folder holds forecasts of something else, or as `process_bucket` says.
        OSError: If a file can not be written, as when the disk is full; what is there is whole.
    """
    run, data, out = (Path(path).resolve() for path in (run, data, out))
    survey = read_survey(data)
    refuse_other_frequency(data, survey, request.freq)
    # All that results depend on; lists for tuples.
    wanted = {"kind": type(request).__name__.lower()} | json.loads(json.dumps(asdict(request)))
    plan = {"format": FORMAT, "predictor": folder_checksum(run), "survey": checksum(data / SURVEY), "request": wanted}
    if SURVEY in (names := contents(out)) or (names and not names & {MANIFEST, WORK}):
        raise ValueError(f"{out} is not empty and holds no results of buckets; give a new folder")
    with lock_folder(out):
        work = out / WORK
        for part in (out, work):
            remove_leftovers(part)
        _refuse_other_plans(out, (MANIFEST, f"{WORK}/{_PLAN}"), plan)
        if (out / MANIFEST).is_file():
            log.info("%s is finished already", out)
            shutil.rmtree(work, ignore_errors=True)
            return read_json(out / MANIFEST)
        work.mkdir(exist_ok=True)
        write_json(work / _PLAN, plan)
        left = [bucket for bucket in survey.buckets if not _is_done(out, bucket)]
        if len(left) < len(survey.buckets):
            log.info("%s: %d of %d buckets are done", out, len(survey.buckets) - len(left), len(survey.buckets))
        jobs = [(run, data / bucket.file, out / bucket.file, request, bucket) for bucket in left]
        done = ENGINES[engine](process_bucket, jobs, workers, address)
        for record in follow(done, out.name, len(left), "buckets"):
            write_json(_note(out, record["file"]), record)
        records = [read_json(_note(out, bucket.file)) for bucket in survey.buckets]
        _tell_warnings(records)
        request.finish(out, records)
        told = [{name: record[name] for name in _TOLD_OF if name in record} for record in records if record["series"]]
        manifest = plan | {"buckets": told}
        write_json(out / MANIFEST, manifest)
        shutil.rmtree(work)
    return manifest


def _refuse_other_plans(out: Path, files: Iterable[str], now: dict[str, Any]) -> None:
    """Raises a ValueError if a file that is in a folder is of another run, other data or another request."""
    names = {"predictor": "another model", "survey": "other data", "format": "another version"}
    for file in files:
        read = read_json(out / file) if (out / file).is_file() else now
        before = read if isinstance(read, dict) else {}
        for name, what in names.items():
            if before.get(name) != now[name]:
                raise ValueError(f"{out} has results of {what}; give a new folder")
        wanted = before.get("request")
        given = wanted if isinstance(wanted, dict) else {}
        if given.get("kind") != (kind := now["request"]["kind"]):
            raise ValueError(f"{out} has results of another command; give a new folder")
        if other := [name for name, value in now["request"].items() if given.get(name) != value]:
            called = _OPTIONS.get(kind, {})
            options = ", ".join(option(called.get(name) or name) for name in other)
            raise ValueError(f"{out} has results with other {options}; give a new folder")


def _note(out: Path, file: str) -> Path:
    """Where the note of a bucket is."""
    return (out / WORK / file).with_suffix(".json")


def _is_done(out: Path, bucket: Bucket) -> bool:
    """Whether the file of a bucket is there, as its note says."""
    note, path = _note(out, bucket.file), out / bucket.file
    if not note.is_file():
        return False
    record = read_json(note)
    return not record["series"] or (path.is_file() and path.stat().st_size == record["size"])


def _tell_warnings(records: list[dict[str, Any]]) -> None:
    """Shows the first warnings of all buckets."""
    found = [(record["file"], text) for record in records for text in record["warnings"]]
    for file, text in found[:_TOLD]:
        log.warning("%s: %s", file, text)
    if len(found) > _TOLD:
        log.warning("and %d more warnings of %d buckets", len(found) - _TOLD, len({file for file, _ in found[_TOLD:]}))
