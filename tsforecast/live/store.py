"""A store: the folder of a service; every acknowledged observation in it outlives a kill.

- store.json: what the store is; it is written last, so that its presence says that the store is complete
- predictor/: the trained model
- snapshot-NUMBER/: all series, and what a learner knows, before the micro-batch of that number
- log-NUMBER.bin: the micro-batches from that number on
- acknowledged.bin: the current snapshot and log, and the acknowledged length of the log

A micro-batch changes the beliefs once its record, and then its count, are on the disk. A large one is computed
meanwhile. Opening a store reads its snapshot and applies the log to it: the same micro-batches by the same program. So
the beliefs are those of a service that was never stopped, to the bit, on the same machine and number of threads. Bytes
of the log behind the count were not acknowledged, and are cut.
"""

import logging
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tsforecast.io.files import is_full
from tsforecast.live import log as logs
from tsforecast.live.count import Count
from tsforecast.live.description import Description
from tsforecast.live.engine import Engine
from tsforecast.live.learning import Learning, Learnt
from tsforecast.live.rules import APPLIED, Observations, Pending, Rules
from tsforecast.live.snapshot import read_learnt, read_rows, write_rows
from tsforecast.live.steps import Moved, Steps

log = logging.getLogger(__name__)

PREDICTOR = "predictor"
_NAMED = re.compile(r"(snapshot-|log-)(\d{16})(\.bin)?")
_SMALL = 64  # observations: to hand a record to another thread and back takes as long as to compute with them
_RECORDS_A_LINE = 1000  # records of a log between two lines about them


class StoreError(RuntimeError):
    """The disk has failed a store: its contents are not known until the store is opened again."""


class FullError(RuntimeError):
    """The disk of a store is full: nothing has changed, and the store goes on when there is room."""


class Store:
    """An open store; made by `open_store`."""

    def __init__(
        self, path: Path, about: Description, engine: Engine, rules: Rules, learning: Learning | None = None
    ) -> None:
        self.path, self.about, self.engine, self.rules, self.learning = path, about, engine, rules, learning
        self.failed = False
        self.far = 0  # values that counted as missing, since the store was opened
        self.since_snapshot = 0  # observations
        self._disk = ThreadPoolExecutor(1, "disk")
        self.number = 0  # of the next micro-batch
        self._log, self._count = self._read()

    def observe(self, requests: Sequence[Observations]) -> list[list[str]]:
        """Apply observations as one micro-batch, and return the outcome of each.

        See `advance`.
        """
        pending = [Pending(request) for request in requests]
        self.advance(pending)
        return [request.outcomes for request in pending]

    def advance(self, requests: Sequence[Pending], room: int | None = None) -> None:
        """Apply observations of requests as far as there is room, and note their outcomes once they are on the disk.

        They are one micro-batch, or several where a learner's period ends between them.

        Args:
            requests: Those that came first first.
            room: Observations and missing steps between them after which it ends; None for all observations.

        Raises:
            FullError: If the disk is full.
            StoreError: If the disk has failed.
        """
        self._check()
        latest = None if self.learning is None else self.learning.latest(self.rules.max_gap)
        tried = [replace(one, outcomes=[*one.outcomes], left_out={**one.left_out}) for one in requests]
        steps = self.rules.sift(self.rows, tried, self.number, room, latest)
        if len(steps.rows):
            pieces = iter([steps]) if self.learning is None else self.learning.pieces(steps, len(self.rows))
            for piece in pieces:
                self._apply(replace(piece, number=self.number))
        for request, after in zip(requests, tried, strict=True):
            request.outcomes, request.left_out = after.outcomes, after.left_out

    def snapshot(self) -> None:
        """Write all series, and begin a new log; older ones go. After an OSError (disk full) the store goes on."""
        self._check()
        if not self.since_snapshot:
            return
        learnt = None if self.learning is None else self.learning.state()
        write_rows(snapshot_of(self.path, self.number), self.rows, self.number, learnt)
        path = log_of(self.path, self.number)
        fresh = logs.Log(path, logs.create(path, self.about.key, self.number))
        self._log.close()
        self._log = fresh
        self._acknowledge(self.number)
        self._acknowledge(self.number)  # in both places: what the other says of is removed
        self.since_snapshot = 0
        remove_others(self.path, self.number)

    def close(self) -> None:
        """Close the files."""
        self._disk.shutdown()
        self._log.close()

    @property
    def log_bytes(self) -> int:
        """Return the size of the log."""
        return self._log.end.size

    def _check(self) -> None:
        if self.failed:
            raise StoreError(f"the disk has failed {self.path}; see the log of the service, and start it again")

    def _apply(self, steps: Steps) -> None:
        """Applies a micro-batch: its record goes to the disk while the beliefs are computed, or after that if small."""
        before = self._log.end
        try:
            self._log.append(steps.to_bytes())
        except OSError as error:
            raise self._unwritten(error, before) from error
        written = self._disk.submit(self._log.flush) if len(steps.rows) > _SMALL else None
        try:
            moved = self._moved(steps)
        except BaseException:
            if written is not None:
                written.exception()  # wait
            self.failed = True  # unless the record can be removed
            self._log.cut_to(before)
            self.failed = False
            raise
        try:
            self._log.flush() if written is None else written.result()
        except OSError as error:
            raise self._unwritten(error, before) from error
        self._acknowledge(self._count.first)
        self._commit(steps, moved)

    def _acknowledge(self, first: int) -> None:
        """Brings the acknowledged end of the log onto the disk."""
        try:
            self._count.write(first, self._log.end)
        except OSError as error:
            self.failed = True
            raise StoreError(f"{self.path}: the count of the log could not be written ({error})") from error

    def _unwritten(self, error: OSError, before: logs.End) -> FullError | StoreError:
        """Return the error to raise for a record that is not on the disk; a full disk keeps earlier records."""
        try:
            self._log.cut_to(before)
            if is_full(error):
                self._log.flush()
                return FullError("the disk is full; make room, and send again: what was applied before counts once")
        except OSError as other:
            error = other
        self.failed = True
        return StoreError(f"{self.path}: the log could not be written ({error})")

    def _moved(self, steps: Steps) -> Moved | Learnt:
        if len(steps.rows):
            return self.engine.moved(self.rows, steps)
        assert self.learning is not None
        return self.learning.learnt(self.rows, steps.number)

    def _commit(self, steps: Steps, moved: Moved | Learnt) -> None:
        if isinstance(moved, Moved):
            self.engine.commit(self.rows, moved)
            self.far += moved.far
        else:
            assert self.learning is not None
            self.learning.commit(moved)
        self.number += 1
        self.since_snapshot += len(steps.rows)

    def _read(self) -> tuple[logs.Log, Count]:
        """Reads the current snapshot, and applies the acknowledged part of the log to it."""
        count = Count(count_of(self.path), self.about.key)
        first, end = count.first, count.end
        self._restore(first)
        path = log_of(self.path, first)
        for contents, behind in logs.read(path, self.about.key, first, count.end, beyond=not count.is_whole):
            self._replay(contents, path, first)
            end = behind
        if (size := path.stat().st_size - end.size) > 0:
            log.warning("%s: the last %d bytes were not acknowledged, and are cut", path, size)
        opened = logs.Log(path, end)
        if not count.is_whole:
            opened.flush()
            count.write(first, end)
        remove_others(self.path, first)
        return opened, count

    def _restore(self, first: int) -> None:
        """Takes the contents of a snapshot."""
        folder = snapshot_of(self.path, first)
        if not folder.is_dir():
            raise ValueError(f"{self.path} has no snapshot {folder.name}; restore the folder")
        self.rows, self.number = read_rows(folder, self.engine.empty())
        self.since_snapshot = 0
        if self.number != first:
            raise ValueError(f"{folder} is of micro-batch {self.number}; restore the folder")
        if self.learning is not None:
            self.learning.restore(read_learnt(folder, self.learning.state()))

    def _replay(self, contents: bytes, path: Path, first: int) -> None:
        """Applies a record."""
        steps = Steps.from_bytes(contents)
        is_known = len(steps.rows) or self.learning is not None
        if steps.number != self.number or not is_known or not steps.fits(self.rows):
            raise ValueError(f"{path}: expected micro-batch {self.number} of this model; restore the file")
        self._commit(steps, self._moved(steps))
        if (self.number - first) % _RECORDS_A_LINE == 0:
            log.info("%s: %d micro-batches of the log are applied", self.path, self.number - first)


def counts(outcomes: Sequence[str]) -> dict[str, int]:
    """Return the number of observations of each outcome, the applied ones first."""
    return {APPLIED: 0} | Counter(outcomes)


def snapshot_of(path: Path, number: int) -> Path:
    """Return the folder of the snapshot before a micro-batch."""
    return path / f"snapshot-{number:016d}"


def log_of(path: Path, number: int) -> Path:
    """Return the file of the log from a micro-batch on."""
    return path / f"log-{number:016d}.bin"


def count_of(path: Path) -> Path:
    """Return the file that counts the acknowledged records."""
    return path / "acknowledged.bin"


def remove_others(path: Path, number: int) -> None:
    """Remove snapshots and logs that are not current: older ones, and one that was not finished."""
    for other in list(path.iterdir()):
        match = _NAMED.fullmatch(other.name)
        if match is not None and int(match[2]) != number:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
