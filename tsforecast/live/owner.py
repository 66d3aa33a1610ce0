"""The one thread that owns the beliefs of a store: it drains a queue, and answers by futures."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from gluonts.model.forecast import Forecast
from numpy.typing import NDArray

from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.live.rules import Observations
from tsforecast.live.store import FullError, Store, StoreError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_TOGETHER = 256  # forecasts that are computed together


class BusyError(RuntimeError):
    """More observations wait than may."""


@dataclass(frozen=True)
class Wanted:
    """Forecasts that are wanted.

    Attributes:
        items: Names of the series.
        steps: Length of the forecasts.
        levels: Of quantiles.
        num_samples: Sample paths; 0 for none, where quantiles are exact.
        future: Targets (series, step, target) that are taken as given, NaN where free; None for none.
        covariates: Standardised (series, step, covariate); None in a model without.
    """

    items: Sequence[str]
    steps: int
    levels: tuple[float, ...]
    num_samples: int = 0
    future: NDArray[np.float64] | None = None
    covariates: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Found:
    """A forecast; arrays have no dimension of targets where there is one.

    Attributes:
        start: Ordinal of its first period.
        mean: (step[, target]).
        quantiles: (level, step[, target]).
        paths: (sample, step[, target]); None if none were drawn.
    """

    start: int
    mean: NDArray[np.floating[Any]]
    quantiles: NDArray[np.floating[Any]]
    paths: NDArray[np.floating[Any]] | None


@dataclass
class Tally:
    """What an owner has done since it began.

    Attributes:
        outcomes: Observations by outcome.
        batches: Micro-batches.
        forecasts: Series that were forecast.
        snapshots: Snapshots.
        busy_seconds: Time in which it worked.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    forecasts: int = 0
    snapshots: int = 0
    busy_seconds: float = 0.0


@dataclass(frozen=True)
class _Job:
    """A piece of work: observations, forecasts, or any function of the store."""

    what: Observations | Wanted | Callable[[Store], Any]
    answer: "Future[Any]"


class Owner:
    """Works for the store in a thread of its own. Observations that wait together are one micro-batch.

    Args:
        store: Open; nobody else uses it while the owner works.
        batch: Most observations of a micro-batch, unless one request has more.
        waiting: Most observations that wait.
        snapshot_every: Observations between two snapshots.
    """

    def __init__(
        self, store: Store, *, batch: int = 4096, waiting: int = 200_000, snapshot_every: int = 1_000_000
    ) -> None:
        self.store = store
        self.tally = Tally()
        self._batch, self._most_waiting, self._snapshot_every = batch, waiting, snapshot_every
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._after = 0  # observations before which no snapshot is tried, as the last one has failed
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="owner", daemon=True)
        self._thread.start()

    def observe(self, observations: Observations) -> "Future[list[str]]":
        """Return the outcomes of observations, once they are on the disk.

        Raises:
            BusyError: If too many wait.
        """
        with self._guard:
            if self._waiting + len(observations) > self._most_waiting:
                raise BusyError(f"{self._waiting} observations wait")
            self._waiting += len(observations)
        return self._ask(observations)

    def forecast(self, wanted: Wanted) -> "Future[list[Found]]":
        """Return forecasts; a `KeyError` names a series that is not known."""
        return self._ask(wanted)

    def ask(self, function: Callable[[Store], Result]) -> "Future[Result]":
        """Return what a function says of the store, between two micro-batches."""
        return self._ask(function)

    def close(self) -> None:
        """End when all that waits is done, with a snapshot."""
        self._jobs.put(None)
        self._thread.join()
        self._after = 0
        self._snapshot(1)

    @property
    def waiting(self) -> int:
        """Return the number of observations that wait."""
        return self._waiting

    @property
    def is_alive(self) -> bool:
        """Return whether the owner works, and its store takes observations."""
        return self._thread.is_alive() and not self.store.failed

    def _ask(self, what: Any) -> "Future[Any]":
        job = _Job(what, Future())
        self._jobs.put(job)
        return job.answer

    def _work(self) -> None:
        while True:
            jobs, ends = self._next()
            start = time.perf_counter()
            self._do(jobs)
            self._snapshot(self._snapshot_every)
            self.tally.busy_seconds += time.perf_counter() - start
            if ends:
                return

    def _next(self) -> tuple[list[_Job], bool]:
        """Waits for a job, and takes those behind it as far as they go together."""
        job = self._jobs.get()
        jobs, size = [], 0
        while job is not None:
            jobs.append(job)
            size += len(job.what) if isinstance(job.what, Observations) else 1
            if size >= self._batch or self._jobs.empty():
                return jobs, False
            job = self._jobs.get()
        return jobs, True

    def _do(self, jobs: list[_Job]) -> None:
        """Observations first, as one micro-batch; a forecast sees all that was acknowledged before it was asked for."""
        observed = [job for job in jobs if isinstance(job.what, Observations)]
        if observed:
            with self._guard:
                self._waiting -= sum(len(job.what) for job in observed)  # pyright: ignore
            self._answer(observed, self._observe)
        groups: dict[tuple[Any, ...], list[_Job]] = {}
        for job in jobs:
            if isinstance(job.what, Wanted):
                what = job.what
                groups.setdefault((what.steps, what.levels, what.num_samples), []).append(job)
            elif not isinstance(job.what, Observations):
                self._answer([job], lambda whats: [whats[0](self.store)])
        for group in groups.values():
            while group:
                some = [group.pop(0)]
                while group and sum(len(job.what.items) for job in some) < _TOGETHER:  # pyright: ignore
                    some.append(group.pop(0))
                self._answer(some, self._forecasts)

    def _answer(self, jobs: list[_Job], function: Callable[[list[Any]], list[Any]]) -> None:
        """Answers jobs together; if that fails, each forecast alone, so that its fault is its own."""
        jobs = [job for job in jobs if job.answer.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            answers = function([job.what for job in jobs])
        except Exception as error:
            if len(jobs) > 1 and isinstance(jobs[0].what, Wanted):
                for job in jobs:
                    self._alone(job, function)
                return
            if isinstance(error, FullError | StoreError):
                log.error("%s: %s", self.store.path, error)
            elif not isinstance(error, KeyError | ValueError):
                log.exception("a request has failed")
            for job in jobs:
                job.answer.set_exception(error)
            return
        for job, answer in zip(jobs, answers, strict=True):
            job.answer.set_result(answer)

    def _alone(self, job: _Job, function: Callable[[list[Any]], list[Any]]) -> None:
        try:
            job.answer.set_result(function([job.what])[0])
        except Exception as error:
            job.answer.set_exception(error)

    def _observe(self, requests: list[Observations]) -> list[list[str]]:
        outcomes = self.store.observe(requests)
        self.tally.batches += 1
        for found in outcomes:
            for outcome in found:
                self.tally.outcomes[outcome] = self.tally.outcomes.get(outcome, 0) + 1
        return outcomes

    def _forecasts(self, wanted: list[Wanted]) -> list[list[Found]]:
        index, first = self.store.rows.index, wanted[0]
        rows = np.array([index[item] for one in wanted for item in one.items], np.int64)
        future = None
        if any(one.future is not None for one in wanted):
            free = (first.steps, self.store.rows.exponents.shape[1])
            parts = [np.full((len(one.items), *free), np.nan) if one.future is None else one.future for one in wanted]
            future = np.concatenate(parts)
        covariates = None if first.covariates is None else np.concatenate([one.covariates for one in wanted])  # pyright: ignore
        found = self.store.engine.forecasts(self.store.rows, rows, first.steps, future, covariates, first.num_samples)
        self.tally.forecasts += len(found)
        answers = [_found(forecast, first) for forecast in found]
        ends = np.cumsum([len(one.items) for one in wanted]).tolist()
        return [answers[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]

    def _snapshot(self, least: int) -> None:
        if self.store.failed or self.store.since_snapshot < max(least, self._after):
            return
        try:
            self.store.snapshot()
            self.tally.snapshots += 1
            self._after = 0
        except (OSError, StoreError) as error:
            self._after = 2 * self.store.since_snapshot
            log.error("%s: a snapshot could not be written (%s); the log goes on", self.store.path, error)


def _found(forecast: Forecast, wanted: Wanted) -> Found:
    quantiles = forecast_quantiles(forecast, wanted.levels)
    paths = forecast.samples if wanted.num_samples else None  # pyright: ignore[reportAttributeAccessIssue]
    return Found(forecast.start_date.ordinal, np.asarray(forecast.mean), quantiles, paths)
