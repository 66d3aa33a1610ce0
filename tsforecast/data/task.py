"""The record of a forecasting task: series on a grid or with clocks of their own, horizon and test windows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.field_names import FieldName
from gluonts.dataset.split import TestData, split

from tsforecast.data.buckets.streamed import StreamedEntries, shortened
from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings
from tsforecast.data.tables.roles import Columns
from tsforecast.data.timed_entries import after, before
from tsforecast.wording import counted, listed, option

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most


@dataclass(frozen=True)
class ForecastTask:
    """Series with a fixed split: the last `test_length` steps of each are for testing.

    Series with clocks of their own have a `gap`. Their frequency is "ns": a step is a nanosecond. Their entries have
    `times`, see `tsforecast.data.timed_entries`.

    Attributes:
        name: Name of the data set.
        freq: Frequency as `pandas.Period` names it.
        prediction_length: Steps of one forecast window.
        windows: Number of test windows; 0 where everything is for training.
        entries: GluonTS data entries over training and test part: `item_id` (str), `start` (Period) and `target`
            (float32, or float64 where that can not hold it; NaN where missing; shape (time,) or (target, time)); where
            given `feat_static_cat`, `feat_static_real` and `feat_dynamic_real`, the last of shape (covariate, time)
            and, where the future of the covariates is known, longer than the target. A list, or `StreamedEntries`.
        categories: Names behind the codes of `feat_static_cat`, by column.
        targets: What is measured, a name for each target; empty where it is not known.
        unit: In which it is measured; empty where it is not known.
        reasons: Why frequency, horizon and windows (`freq`, `prediction_length`, `windows`) are what they are, where
            nobody has given them.
        columns: What the columns of the table were found to be, by which another table of its form can be read; None
            where the data are no table.
        gap: Median time between neighbouring observations of a series, in nanoseconds, the unit of time of models in
            continuous time; 0 of series on a grid.
        step: Steps from the beginning of a test window to that of the next; 0 for `prediction_length`, so that one is
            behind the other.
    """

    name: str
    freq: str
    prediction_length: int
    windows: int
    entries: Sequence[dict[str, Any]]
    categories: dict[str, list[str]] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    unit: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    columns: Columns | None = None
    gap: int = 0
    step: int = 0

    @property
    def test_length(self) -> int:
        """Return the number of steps from the first test window to the end of the last."""
        return steps_of(self.windows, self.prediction_length, self.step)

    @property
    def season(self) -> int:
        """Return the length of the main season, in steps."""
        return default_season(self.freq)

    @property
    def train(self) -> Sequence[dict[str, Any]]:
        """The entries without the test part; their covariates end where they end."""
        if self.gap:
            return [before(entry, self.origins(entry)[0]) for entry in self.entries] if self.windows else self.entries
        return ended(self.entries, self.test_length)

    def origins(self, entry: Mapping[str, Any]) -> list[int]:
        """Return the beginnings of the test windows of a series with a clock of its own, in nanoseconds."""
        last = int(entry["times"][-1])
        return [last - (self.windows - k) * self.prediction_length for k in range(self.windows)]

    def timed_test(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return pairs of a past and the observations within the horizon after it, of series with clocks of their own.

        Empty windows are left out.

        Raises:
            ValueError: If the task has no test windows.
        """
        self._check_windows()
        pairs = []
        for entry in self.entries:
            for origin in self.origins(entry):
                label = after(before(entry, origin + self.prediction_length), origin)
                if len(label["times"]):
                    pairs.append((before(entry, origin), label))
        return pairs

    def _check_windows(self) -> None:
        if self.windows == 0:
            raise ValueError(f"the task {self.name!r} has no test windows (windows=0)")

    def test(self, protocol: str = "rolling") -> TestData:
        """Pairs of a past and the label that follows it, series by series.

        Args:
            protocol: "rolling" for `windows` forecasts of `prediction_length` steps, each from all data before it;
                "long_term" for one forecast of all test steps from the end of the training part.

        Raises:
            ValueError: If the protocol is not known, or the task has no test windows.
        """
        if protocol not in ("rolling", "long_term"):
            raise ValueError(f"expected the protocol 'rolling' or 'long_term', got {protocol!r}")
        self._check_windows()
        template = split(self.entries, offset=-self.test_length)[1]
        if protocol == "rolling":
            distance = self.step or self.prediction_length
            return template.generate_instances(self.prediction_length, windows=self.windows, distance=distance)
        return template.generate_instances(self.test_length)

    @property
    def latest(self) -> list[dict[str, Any]]:
        """The entries for a forecast beyond their end: whole targets, covariates `prediction_length` steps longer."""
        name, found = FieldName.FEAT_DYNAMIC_REAL, []
        for entry in self.entries:
            length = entry[FieldName.TARGET].shape[-1] + self.prediction_length
            found.append({**entry, name: np.asarray(entry[name])[:, :length]} if name in entry else entry)
        return found

    @property
    def gaps_at_end(self) -> list[int]:
        """Steps from the end of each series to the last end of all."""
        return _behind(self.entries, [entry["target"].shape[-1] for entry in self.entries])

    @property
    def early(self) -> list[str]:
        """Names of the series with a last value before that of others: by their ends, or since it is missing."""
        gaps = _behind(self.entries, [_last_value(entry["target"]) for entry in self.entries])
        return [str(entry["item_id"]) for entry, gap in zip(self.entries, gaps, strict=True) if gap]

    def ending_together(self, end: pd.Period | None = None) -> "ForecastTask":
        """The task with missing values behind series that end early: forecasts of all then cover the same dates.

        A warning names the series whose last value comes before that of others.

        Args:
            end: The last step of all; None for that of the series that ends last.

        Raises:
            ValueError: If known covariates of such a series do not reach over the same forecast.
        """
        if early := self.early:
            log.warning(
                "%d series end before others (%s): what follows is taken as missing, and all forecasts cover the same "
                "dates; %s forecasts each series from its own end",
                len(early),
                listed(early, _NAMED),
                option("start", "each"),
            )
        entries = []
        lengths = [entry["target"].shape[-1] for entry in self.entries]
        for entry, gap in zip(self.entries, _behind(self.entries, lengths, end), strict=True):
            names = [name for name in (FieldName.TARGET, FieldName.PAST_FEAT_DYNAMIC_REAL) if name in entry]
            found = dict(entry)
            if gap:
                for name in names:
                    values = np.asarray(entry[name])
                    behind = np.full((*values.shape[:-1], gap), np.nan, values.dtype)
                    found[name] = np.concatenate([values, behind], axis=-1)
                _check_covariates(entry, found["target"].shape[-1] + self.prediction_length, gap)
            entries.append(found)
        return replace(self, entries=entries)


def steps_of(windows: int, horizon: int, step: int = 0) -> int:
    """Return the number of steps that test windows cover together, each `step` (0 for a horizon) behind the last."""
    return horizon + (windows - 1) * (step or horizon) if windows else 0


def ended(entries: Sequence[dict[str, Any]], steps: int) -> Sequence[dict[str, Any]]:
    """The entries without so many steps at their end; their covariates end where they end."""
    if isinstance(entries, StreamedEntries):
        return entries.until(steps)
    return [shortened(entry, steps) for entry in entries]


def _behind(entries: Sequence[dict[str, Any]], lengths: list[int], end: pd.Period | None = None) -> list[int]:
    """Steps from the ends of series of these lengths to a step, or to the last end of all."""
    ends = [e["start"].ordinal + length * e["start"].freq.n for e, length in zip(entries, lengths, strict=True)]
    # Once: for each series it would take the square of their number.
    last = max(ends, default=0) if end is None else end.ordinal + end.freq.n
    return [(last - end) // e["start"].freq.n for end, e in zip(ends, entries, strict=True)]


def empty_behind(entries: Sequence[dict[str, Any]]) -> int:
    """Return the steps without a target from the last value of all series to the end of all; 0 without a value."""
    some = [entry for entry in entries if np.isfinite(entry["target"]).any()]
    with expected_alias_warnings():
        end = max((e["start"] + e["target"].shape[-1] - 1 for e in entries), default=None)
    gaps = _behind(some, [_last_value(entry["target"]) for entry in some], end)
    return min(gaps, default=0)


def _last_value(target: np.ndarray) -> int:
    """Steps up to the last that has a value; all where there is none."""
    seen = np.flatnonzero(~np.isnan(target).reshape(-1, target.shape[-1]).all(axis=0))
    return int(seen[-1]) + 1 if len(seen) else target.shape[-1]


def _check_covariates(entry: dict[str, Any], needed: int, gap: int) -> None:
    """Refuses covariates that are too short for a series that goes on with missing values."""
    covariates = entry.get(FieldName.FEAT_DYNAMIC_REAL)
    if covariates is not None and np.shape(covariates)[1] < needed:
        raise ValueError(
            f"series {entry['item_id']!r} ends {counted(gap, 'step')} before others, and its covariates "
            f"{needed - np.shape(covariates)[1]} steps before the forecast which all have in common; add them, or "
            f"forecast each series from its own end ({option('start', 'each')})"
        )


def last_steps(entry: dict[str, Any], steps: int) -> dict[str, Any]:
    """The last steps of an entry, as an entry that begins later."""
    dropped = entry[FieldName.TARGET].shape[-1] - steps
    if dropped <= 0:
        return entry
    with expected_alias_warnings():
        found = {**entry, FieldName.START: entry[FieldName.START] + dropped}
    for name in (FieldName.TARGET, FieldName.FEAT_DYNAMIC_REAL, FieldName.PAST_FEAT_DYNAMIC_REAL):
        if name in found:
            found[name] = np.asarray(found[name])[..., dropped:]
    return found


def with_windows(task: ForecastTask, windows: int) -> ForecastTask:
    """The task with another number of test windows, and so another split; a ValueError without training steps."""
    length = min(entry["target"].shape[-1] for entry in task.entries)
    most = (length - 1 - task.prediction_length) // (task.step or task.prediction_length) + 1
    if not 0 <= windows <= most:
        raise ValueError(f"expected 0 to {most} windows for the data set {task.name!r}, got {windows}")
    return replace(task, windows=windows)


def instances(data: TestData) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pasts and labels of test data as lists, made in one walk without pandas' warning about business days."""
    with expected_alias_warnings():
        pairs = list(data)
    return [past for past, _ in pairs], [label for _, label in pairs]
