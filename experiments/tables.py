"""What the scripts that fill a table of results share: each runs what its table lacks, by commands of the project."""

import csv
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from tqdm import tqdm

from tsforecast.cli.provenance import check_rows, provenance
from tsforecast.io.files import append_file, replace_file

Job = TypeVar("Job")
ROOT = pathlib.Path(__file__).resolve().parent.parent


def has_row(table: pathlib.Path, key: Mapping[str, object]) -> bool:
    """Return whether a table has a row with these values.

    Args:
        table: CSV file; there may be none yet.
        key: Values by column.
    """
    if not table.exists():
        return False
    texts = {name: str(value) for name, value in key.items()}
    with table.open(newline="") as stream:
        return any(texts.items() <= row.items() for row in csv.DictReader(stream))


def append_rows(path: str | pathlib.Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds rows to a CSV file, all or none of them; a new file begins with the header, in a folder that is made.

    Args:
        path: File to add to.
        columns: Those of the file. Cells that a row lacks are empty.
        rows: Cells by column.

    Raises:
        OSError: If the rows can not be written, as when the disk is full.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with append_file(path) as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        if path.stat().st_size == 0:
            writer.writeheader()
        writer.writerows(rows)


def widen(table: pathlib.Path, columns: Sequence[str]) -> None:
    """Gives a table the columns that have come since it was begun; their cells are empty in the rows that are there.

    Args:
        table: CSV file; there may be none yet.
        columns: All that it shall have, in order.

    Raises:
        ValueError: If it has others.
    """
    if not table.exists():
        return
    with table.open(newline="") as stream:
        reader = csv.DictReader(stream)
        header, rows = list(reader.fieldnames or ()), list(reader)
    if others := set(header) - set(columns):
        raise ValueError(f"{table}: expected the columns {', '.join(columns)}, got also {', '.join(sorted(others))}")
    if header != list(columns):
        with replace_file(table) as temporary, temporary.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def call(arguments: Sequence[str]) -> None:
    """Runs a script of the project with one thread, by the package beside it, whatever else is installed.

    Raises:
        RuntimeError: If it fails; the message ends with what it printed last.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {(done.stdout + done.stderr)[-500:]}")


def fill(
    table: pathlib.Path,
    columns: Sequence[str],
    jobs: Sequence[Job],
    run: Callable[[Job], list[dict[str, Any]]],
    summary: Callable[[pathlib.Path], str],
    workers: int = 1,
) -> None:
    """Appends the rows of each job to a table as soon as it is done, and prints a summary of the table.

    A row that does not name its commit and command gets those of this script.

    Args:
        table: CSV file, made if there is none.
        columns: Of the table, in order.
        jobs: What to run.
        run: Returns the rows of a job; raises `RuntimeError` if it fails.
        summary: Returns the text to print in the end.
        workers: Jobs at a time.

    Raises:
        SystemExit: If jobs have failed; the others are done nevertheless. Or at once, where no commit has this tree.
    """
    facts, failures = provenance(table) if jobs else {}, 0
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(run, job) for job in jobs]
        for future in tqdm(as_completed(futures), total=len(jobs), unit="run", smoothing=0):
            try:
                rows = [facts | row for row in future.result()]
                check_rows(table, rows)
                widen(table, columns)
                append_rows(table, columns, rows)
            except RuntimeError as error:
                failures += 1
                tqdm.write(str(error), file=sys.stderr)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C no further job begins
    if table.exists():
        tqdm.write(summary(table))
    if failures:
        raise SystemExit(f"{failures} of {len(jobs)} runs failed")
