"""The one thread that owns the beliefs of a store: it drains a queue, and answers by futures."""

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tsforecast.live.room import Room
from tsforecast.live.rules import Observations, Pending
from tsforecast.live.store import FullError, Store, StoreError
from tsforecast.live.wanted import TOGETHER, Found, Wanted, found_of, futures_of

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_SMALL = 64  # observations or forecasts of a request up to which it is not taken in parts
_MOST_NUMBERS = 20_000_000  # of forecasts that wait


class BusyError(RuntimeError):
    """More observations wait than may."""


@dataclass
class _Job:
    """A piece of work: observations, forecasts, or any function of the store."""

    work: Pending | Wanted | Callable[[Store], Any]  # observations to take, forecasts to make, or a function to call
    answer: "Future[Any]" = field(default_factory=Future)  # its result
    behind: "Future[Any] | None" = None  # observations that a forecast waits for
    made: list[Found] = field(default_factory=list)  # forecasts that are made already


class Owner:
    """Works for the store in a thread of its own. Observations that wait together are one micro-batch.

    Large requests are taken in parts, one after each round of small ones, so that these wait for a part alone.

    Args:
        store: Open; nobody else uses it while the owner works.
        batch: Most observations of a micro-batch, with missing steps before them.
        waiting: Most observations that wait.
        snapshot_every: Observations between two snapshots.
    """

    def __init__(
        self, store: Store, *, batch: int = 1024, waiting: int = 200_000, snapshot_every: int = 1_000_000
    ) -> None:
        self.store = store
        self.tally: Counter[str] = Counter()  # observations by outcome, and what was made of them
        self.busy_seconds = 0.0
        self._batch, self._most_waiting, self._snapshot_every = batch, waiting, snapshot_every
        self._room = Room(batch)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._large: list[_Job] = []  # observations
        self._long: deque[_Job] = deque()  # forecasts
        self._observed = False  # whether the last part of large requests was of observations
        self.waiting, self._numbers = 0, 0  # observations, and numbers of forecasts
        self._after = 0  # observations before which no snapshot is tried, as the last one has failed
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="owner", daemon=True)
        self._thread.start()

    def observe(self, observations: Observations) -> "Future[list[str]]":
        """Return the outcomes of observations, once they are on the disk; a BusyError if too many wait."""
        with self._guard:
            if self.waiting + len(observations) > self._most_waiting:
                raise BusyError(f"{self.waiting} observations wait")
            self.waiting += len(observations)
        job = _Job(Pending(observations))
        job.answer.add_done_callback(lambda _: self._less(len(observations), 0))
        return self._ask(job)

    def forecast(self, wanted: Wanted, behind: "Future[Any] | None" = None) -> "Future[list[Found]]":
        """Return forecasts; a KeyError names a series that is not known, a BusyError says that too many wait."""
        with self._guard:
            if self._numbers + wanted.numbers > _MOST_NUMBERS:
                raise BusyError(f"forecasts of {self._numbers} numbers wait")
            self._numbers += wanted.numbers
        job = _Job(wanted, behind=behind)
        job.answer.add_done_callback(lambda _: self._less(0, wanted.numbers))
        return self._ask(job)

    def ask(self, function: Callable[[Store], Result]) -> "Future[Result]":
        """Return the result of a function of the store, run between two micro-batches."""
        return self._ask(_Job(function))

    def close(self) -> None:
        """End when all that waits is done, with a snapshot."""
        self._jobs.put(None)
        self._thread.join()
        self._after = 0
        self._snapshot(1)

    @property
    def is_alive(self) -> bool:
        """Return whether the owner works, and its store takes observations."""
        return self._thread.is_alive() and not self.store.failed

    def _ask(self, job: _Job) -> "Future[Any]":
        self._jobs.put(job)
        return job.answer

    def _less(self, observations: int, numbers: int) -> None:
        with self._guard:
            self.waiting -= observations
            self._numbers -= numbers

    def _work(self) -> None:
        ends = False
        while not ends or self._large or self._long:
            jobs, last = self._next(wait=not (ends or self._large or self._long))
            ends = ends or last
            start = time.perf_counter()
            self._do(jobs)
            self._snapshot(self._snapshot_every)
            self.busy_seconds += time.perf_counter() - start

    def _next(self, *, wait: bool) -> tuple[list[_Job], bool]:
        """Takes the jobs that are there as far as they go together, and whether none comes any more."""
        jobs, size = [], 0
        while size < self._batch and (wait or not self._jobs.empty()):
            job = self._jobs.get()
            if job is None:
                return jobs, True
            jobs.append(job)
            size += job.work.size if isinstance(job.work, Pending | Wanted) else 1
            wait = False
        return jobs, False

    def _do(self, jobs: list[_Job]) -> None:
        """Small requests, then a part of large ones; a forecast sees what was acknowledged before it was asked for."""
        small = []
        for job in jobs:
            if isinstance(job.work, Pending):
                (small if job.work.size <= _SMALL else self._large).append(job)
        self._observe(small)
        groups: dict[Any, list[_Job]] = {}
        for job in jobs:
            if isinstance(job.work, Wanted):
                if job.work.size > _SMALL or (job.behind is not None and not job.behind.done()):
                    self._long.append(job)
                else:
                    groups.setdefault(job.work.kind or id(job), []).append(job)
            elif not isinstance(job.work, Pending):
                self._answer([job], lambda whats: [whats[0](self.store)])
        for group in groups.values():
            while group:
                some = [group.pop(0)]
                while group and sum(len(job.work.items) for job in some) < TOGETHER:  # pyright: ignore
                    some.append(group.pop(0))
                self._answer(some, self._forecasts)
        self._go_on()

    def _go_on(self) -> None:
        """Takes a part of large requests: of observations and of forecasts in turns."""
        self._observed = not self._observed if self._large and self._long else bool(self._large)
        if self._observed:
            large, self._large = self._large, []
            self._observe(large)
        elif self._long:
            self._forecast_on(self._long.popleft())

    def _answer(self, jobs: list[_Job], function: Callable[[list[Any]], list[Any]]) -> None:
        """Answers jobs together; if that fails, each alone, so that its fault is its own."""
        jobs = [job for job in jobs if job.answer.running() or job.answer.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            answers = function([job.work for job in jobs])
        except Exception as error:
            for job in jobs:
                if len(jobs) > 1:
                    self._answer([job], function)
                else:
                    self._fails(job, error)
            return
        for job, answer in zip(jobs, answers, strict=True):
            job.answer.set_result(answer)

    def _fails(self, job: _Job, error: Exception) -> None:
        if isinstance(error, FullError | StoreError):
            log.error("%s: %s", self.store.path, error)
        elif not isinstance(error, KeyError | ValueError):
            log.exception("a request has failed")
        job.answer.set_exception(error)

    def _observe(self, jobs: list[_Job]) -> None:
        """Applies a micro-batch of observations, and answers the requests that are done with it."""
        jobs = [job for job in jobs if job.answer.running() or job.answer.set_running_or_notify_cancel()]
        if not jobs:
            return
        start, before = time.thread_time(), self.store.number
        try:
            self.store.advance([job.work for job in jobs], self._room.now)  # pyright: ignore
        except Exception as error:
            is_shared = len(jobs) > 1 and not isinstance(error, FullError | StoreError)
            for job in jobs:
                if is_shared:
                    self._observe([job])
                else:
                    self._fails(job, error)
            return
        if self.store.number > before:  # else all of them had been seen before
            is_full = not all(job.work.is_done for job in jobs)  # pyright: ignore
            self._room.follow(time.thread_time() - start, is_full=is_full)
        self.tally["batches"] += 1
        for job in jobs:
            assert isinstance(job.work, Pending)
            if not job.work.is_done:
                self._large.append(job)
                continue
            self.tally.update(job.work.outcomes)
            job.answer.set_result(job.work.outcomes)

    def _forecast_on(self, job: _Job) -> None:
        """Makes some of many forecasts; the others wait until all others that wait had their turn."""
        wanted = job.work
        assert isinstance(wanted, Wanted)
        if job.behind is not None and not job.behind.done():
            self._long.append(job)
            return
        if not (job.answer.running() or job.answer.set_running_or_notify_cancel()):
            return
        try:
            job.made += self._forecasts([wanted.part(len(job.made))])[0]
        except Exception as error:
            self._fails(job, error)
            return
        if len(job.made) < len(wanted.items):
            self._long.append(job)
        else:
            job.answer.set_result(job.made)

    def _forecasts(self, wanted: list[Wanted]) -> list[list[Found]]:
        index, first = self.store.rows.index, wanted[0]
        rows = np.array([index[item] for one in wanted for item in one.items], np.int64)
        future, covariates = futures_of(wanted, self.store.engine.data.num_targets)
        forecasts = self.store.engine.forecasts(
            self.store.rows, rows, first.steps, future, covariates, first.num_samples
        )
        self.tally["forecasts"] += len(forecasts)
        answers = [found_of(forecast, first) for forecast in forecasts]
        ends = np.cumsum([len(one.items) for one in wanted]).tolist()
        return [answers[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]

    def _snapshot(self, least: int) -> None:
        if self.store.failed or self.store.since_snapshot < max(least, self._after):
            return
        try:
            self.store.snapshot()
            self.tally["snapshots"] += 1
            self._after = 0
        except (OSError, StoreError) as error:
            self._after = 2 * self.store.since_snapshot
            log.error("%s: a snapshot could not be written (%s); the log goes on", self.store.path, error)
