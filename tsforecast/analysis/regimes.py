"""Regimes of series: the past ones, their changes, and the next ones."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.itertools import batcher
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from tsforecast.analysis.regime_tables import changes_table, joined, refuse_one_regime, regimes_table
from tsforecast.core.regimes.changes import check_level, find_changes
from tsforecast.data.buckets.survey import Bucket
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.checks import refuse_frame
from tsforecast.data.task import ForecastTask
from tsforecast.data.windows import collate, cut, since_first_value
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.requests import Request
from tsforecast.io.frame_files import write_frames
from tsforecast.models.parts.markov_dynamics import AbstractMarkovDynamics
from tsforecast.models.parts.regimes import AbstractRegimeInference, Regimes

log = logging.getLogger(__name__)

_VALUES = 2_000_000  # probabilities of all paths of a batch, where paths are drawn
BYTES = 512 * 2**20  # of the particles of a batch, unless a series by itself needs more
_COPIES, _AT_A_STEP = 2, 8  # of the particles of every step, and of those of a step for each path that is drawn


@dataclass(frozen=True)
class RegimeReport:
    """The regimes of some series according to a model.

    Attributes:
        regimes: `item_id`, `timestamp`, probabilities `p_1`, `p_2`, .. given the whole series, and `most_likely`, the
            regime of the most likely path, from 1 on.
        changes: A row for each change of that path: `item_id`, `timestamp` of the first step of the new regime,
            `before`, `after`, `lower` and `upper`, the posterior interval of the time, and `expected`, the posterior
            expectation of the number of such changes around it, near 1 where it is certain.
        ahead: As `regimes`, over the horizon, given the past; empty where covariates do not reach over it.
    """

    regimes: pd.DataFrame
    changes: pd.DataFrame
    ahead: pd.DataFrame


def regime_report(
    predictor: StateSpacePredictor,
    data: Iterable[dict[str, Any]],
    *,
    level: float = 0.9,
    last: int | None = None,
    num_samples: int = 100,
    seed: int = 0,
) -> RegimeReport:
    """Return regimes, their changes, and regimes ahead, of all series.

    Args:
        predictor: Of a model that has regimes: `markov`, `sgls`, `rsgls`, `rsgls-issm`, `arsgls`, `kvae-rb`, `kvae-mc`.
        data: GluonTS data entries.
        level: Probability of the intervals of changes.
        last: Number of steps at the end of each series that are read; None for all.
        num_samples: Number of paths of models whose regimes are sampled.
        seed: Of these paths.

    Raises:
        ValueError: If the model has no two regimes, the level is not between 0 and 1, or an entry is not as expected;
            the message names the series.
    """
    check_level(level)
    if last is not None and last < 1:
        raise ValueError(f"expected at least one step at the end of each series, got {last}")
    histories = _with_regimes(predictor)
    tables, changes, ahead = [], [], []
    for entries in _batches(histories, data, num_samples):
        past, lengths = _past(histories, entries, last, num_samples, _generator(predictor, seed))
        for number, (entry, length) in enumerate(zip(entries, lengths, strict=True)):
            probabilities, pairs, path = (
                getattr(past, name)[-length:, number].cpu() for name in ("probabilities", "pairs", "path")
            )
            table = _table(entry, probabilities.double().numpy(), path.numpy() + 1)
            tables.append(table)
            changes.append(changes_table(entry.get("item_id"), table["timestamp"], find_changes(path, pairs, level)))
        if _reaches(histories, entries):
            probable = _ahead(histories, entries, num_samples, _generator(predictor, seed))
            parts = zip(entries, probable, strict=True)
            ahead += [_table(entry, one, one.argmax(-1) + 1, len(one)) for entry, one in parts]
    empty = tables[0].iloc[:0] if tables else pd.DataFrame()
    return RegimeReport(joined(tables), joined(changes), joined(ahead) if ahead else empty)


@dataclass(frozen=True, kw_only=True)
class RegimeTables(Request):
    """Regimes at every step, their changes with intervals, and regimes ahead, in one table for each bucket.

    Rows have the columns of `RegimeReport.regimes`; `lower`, `upper` and `expected` of `RegimeReport.changes` at the
    first steps of new regimes; and `ahead`, true behind the end of the series.

    Attributes:
        level: Probability of the intervals of changes.
        last: Steps at the end of each series that are read; None for all.
    """

    level: float
    last: int | None

    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series as they are."""
        return self._read(folder, bucket, 0, 0, None)

    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes the regimes of all series."""
        seed = torch.initial_seed()  # that of the bucket
        options = {"level": self.level, "last": self.last, "num_samples": self.num_samples, "seed": seed}
        report = regime_report(predictor, task.entries, **options)
        keys = ["item_id", "timestamp"]
        changes = report.changes.reindex(columns=[*keys, "lower", "upper", "expected"])
        past = report.regimes.merge(changes, on=keys, how="left").assign(ahead=False)
        parts = [past, report.ahead.assign(ahead=True)] if len(report.ahead) else [past]
        write_frames(iter([pd.concat(parts, ignore_index=True)]), path)
        return {}


def _with_regimes(predictor: StateSpacePredictor) -> Histories:
    """Return the way to batches of a model with regimes."""
    histories = predictor.histories()
    if not isinstance(histories.net.inference, AbstractRegimeInference):
        raise ValueError(
            "expected a model that has regimes, such as markov, sgls or rsgls-issm; "
            f"{type(histories.net).__name__} has none"
        )
    if isinstance(histories.net.dynamics, AbstractMarkovDynamics):  # the others have two at least
        refuse_one_regime(histories.net.dynamics.regimes)
    return histories


def _batches(histories: Histories, data: Iterable[dict[str, Any]], num_samples: int) -> Iterator[list[dict[str, Any]]]:
    """Return checked entries, a batch of them at a time; the longer they are, the fewer."""
    refuse_frame(data)
    entries = list(data)
    if not entries:
        raise ValueError("the data set is empty: expected at least one series")
    for entry in entries:
        histories.check(entry, 0)
    longest = max(np.shape(entry["target"])[-1] for entry in entries)
    together = min(histories.batch_size, _VALUES // (num_samples * max(longest, 1)))
    needed = bytes_of_particles(histories, max(entries, key=lambda one: np.shape(one["target"])[-1]), num_samples)
    if needed > BYTES:
        log.info("the longest series takes about %.1f GiB: `--last` reads fewer of its steps", needed / 2**30)
    yield from batcher(entries, max(min(together, int(BYTES // max(needed, 1))), 1))


def bytes_of_particles(histories: Histories, entry: dict[str, Any], num_samples: int) -> int:
    """Return the approximate bytes for the regimes of a series.

    A filter keeps the particles of each step, and each path looks at all those of a step at once.

    Args:
        histories: Of the model.
        entry: The series.
        num_samples: Number of paths that are drawn.
    """
    (prepared,) = histories.transform(iter([entry]), is_train=True)
    steps = len(prepared["target"])
    batch = collate([cut(prepared, steps, 1, 0)], histories.device)
    with torch.no_grad():
        state = histories.net.inference.filter(batch)[0].state
    kept = sum(x.numel() * x.element_size() for x in pytree.tree_leaves(state) if isinstance(x, torch.Tensor))
    return kept * (_COPIES * steps + _AT_A_STEP * num_samples)


def _generator(predictor: StateSpacePredictor, seed: int) -> torch.Generator:
    return torch.Generator(torch.device(predictor.device)).manual_seed(seed)


def _past(
    histories: Histories, entries: list[dict[str, Any]], last: int | None, num_samples: int, generator: torch.Generator
) -> tuple[Regimes, list[int]]:
    """Return the regimes of a batch, and the number of steps of each series from its first value on."""
    prepared = list(histories.transform(iter(entries), is_train=True))
    windows = [since_first_value(cut(one, len(one["target"]), last, 0)) for one in prepared]
    exponents = histories.exponents(windows)
    past = lambda own: own.net.inference.regimes(own.collated(windows, exponents), num_samples, generator)  # noqa: E731
    with torch.no_grad():
        return histories.exactly(past, len(entries), "series"), [len(one["past_target"]) for one in windows]


def _ahead(
    histories: Histories, entries: list[dict[str, Any]], num_samples: int, generator: torch.Generator
) -> list[NDArray[np.float64]]:
    """Return the probabilities of each series over the horizon."""
    prepared = histories.transform(iter(entries), is_train=False)
    windows = [
        since_first_value(cut(one, len(one["target"]), histories.history_length, histories.horizon)) for one in prepared
    ]
    exponents = histories.exponents(windows)

    def ahead(own: Histories) -> torch.Tensor:
        batch, inference = own.collated(windows, exponents), own.net.inference
        assert isinstance(inference, AbstractRegimeInference)
        return inference.regimes_ahead(own.filtered(windows, batch), batch, num_samples, generator)

    with torch.no_grad():
        probabilities = histories.exactly(ahead, len(entries), "series")
    return list(probabilities.transpose(0, 1).cpu().double().numpy())


def _reaches(histories: Histories, entries: Sequence[dict[str, Any]]) -> bool:
    """Return whether the covariates of all entries reach over the horizon, where the model has some."""
    if not histories.net.data.num_dynamic_real and getattr(histories.transform, "effects", None) is None:
        return True
    return all(
        np.shape(entry["feat_dynamic_real"])[-1] >= np.shape(entry["target"])[-1] + histories.horizon
        for entry in entries
    )


def _table(
    entry: dict[str, Any], probabilities: NDArray[np.float64], likely: NDArray[np.int64], ahead: int = 0
) -> pd.DataFrame:
    """Return the rows of a series: of its last steps, or of so many steps behind them."""
    steps = len(probabilities)
    with expected_alias_warnings():
        first = entry["start"] + (np.shape(entry["target"])[-1] + ahead - steps)
    return regimes_table(entry.get("item_id"), stamps_of(first, steps, entry.get("info")), probabilities, likely)
