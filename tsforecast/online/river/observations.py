"""Observations of river, which are dictionaries or rows of a frame, and the columns that they fill."""

import abc
import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from river import base
from torch import Tensor

from tsforecast.online.config import Stream
from tsforecast.online.features import FeatureColumns, read_features
from tsforecast.settings import EstimatorSettings


@dataclasses.dataclass(eq=False, repr=False)
class AbstractOnline(EstimatorSettings, base.Estimator, abc.ABC):
    """The base of classifier and regressor, with columns of features and a detector of drift."""

    _: dataclasses.KW_ONLY
    expected_features: int | None = None
    detector: base.DriftDetector | base.BinaryDriftDetector | None = None
    burst: float = 0.5

    def __post_init__(self) -> None:
        self.hidden = tuple(self.hidden)
        self._columns: FeatureColumns | None = None  # river makes estimators before it knows features
        self._stream: Stream | None = None
        self._watching: Any = None

    @abc.abstractmethod
    def _begin(self, features: int) -> Stream:
        """Return the learner before any observation."""

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"hidden": (4,)}
        yield {"learner": "lofi", "hidden": (4,), "rank": 3}
        yield {"learner": "ekf", "hidden": ()}

    def _get_params(self) -> dict[str, Any]:
        # River takes a tuple for a class and its parameters, and fails for an empty one: so clones are given a list.
        params = super()._get_params()
        return {**params, "hidden": params["hidden"] or []}

    def _unit_test_skips(self) -> set[str]:
        return {"check_learn_many_matches_learn_one"}  # rows of a frame are learnt from together, in one step

    @abc.abstractmethod
    def _learn(self, xs: Sequence[dict[Hashable, Any]], ys: Sequence[Any], counts: Tensor | None) -> None:
        """Learns from some observations together."""

    def learn_one(self, x: dict[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learns from one observation.

        Args:
            x: Numbers by name.
            y: The label, or the number.
            w: How often it counts; nothing is learnt, and no time passes, if it is 0.

        Raises:
            ValueError: If the target is missing, the third label for "adf", or it or a feature is infinite or not a
                number.
        """
        count = float(_counts(w, 1)[0])
        if count:
            self._learn([x], [y], None if count == 1 else torch.tensor([count], dtype=torch.float64))

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float | pd.Series = 1.0) -> None:
        """Learns from the rows of a frame together, in one step: faster than one at a time, and less exact.

        The drift takes the time of all rows. A detector sees their errors, in order, before any is learnt from.

        Args:
            X: Numbers, a column for each feature; NaN and None are missing.
            y: Labels, or numbers.
            w: How often rows count, one number or one for each; those that count 0 are left out.

        Raises:
            ValueError: As for `learn_one`.
        """
        xs, ys, counts = observations_of(X), _values(pd.Series(y)), _counts(w, len(X))
        if len(ys) != len(xs):
            raise ValueError(f"expected a target for each of {len(xs)} rows, got {len(ys)}")
        kept = counts.nonzero()[0].tolist()  # what does not count is left out: no new feature, no time
        if kept:
            all_once = bool((counts[kept] == 1).all())
            given = None if all_once else torch.tensor(counts[kept])
            self._learn([xs[k] for k in kept], [ys[k] for k in kept], given)

    def _read(self, xs: Sequence[dict[Hashable, Any]]) -> tuple[FeatureColumns, Tensor]:
        """Return all columns, new ones too, and the values in them, with a row for each observation."""
        columns, found = self._columns, [read_features(x) for x in xs]
        for x, values in zip(xs, found, strict=True):
            if columns is None:
                expected = self.expected_features
                columns = FeatureColumns({}, max(8, 2 * len(x)) if expected is None else expected)
            columns = columns.reserve(values)
        assert columns is not None
        return columns, torch.cat([columns.row(values) for values in found])

    def _known(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor | None:
        """Return the values of known features, with a row for each observation; None before the first."""
        found, columns = [read_features(x) for x in xs], self._columns
        if columns is None:
            return None
        return torch.cat([torch.zeros(0, columns.capacity, dtype=torch.float64), *map(columns.row, found)])

    def _started(self, columns: FeatureColumns) -> Stream:
        """Return the learner, which begins at the first observation, with an input for each column."""
        if self._stream is not None:
            return self._stream.grow(columns.capacity, self._stream.sizes[-1][1])
        stream = self._begin(columns.capacity)
        if self.detector is not None:
            stream.forget(self.burst)  # raises now if it cannot forget, and not at the first drift
            self._watching = self.detector.clone()
        return stream

    def _watch(self, stream: Stream, error: float | bool) -> Stream:
        """Return the stream, which forgets if the error says that something has changed."""
        self._watching.update(error)
        return stream.forget(self.burst) if self._watching.drift_detected else stream


def observations_of(X: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Return the rows of a frame, as they would come one at a time."""
    if not isinstance(X, pd.DataFrame):
        raise ValueError(f"expected X to be a pandas DataFrame, got {type(X).__name__}")
    if not X.columns.is_unique:
        raise ValueError(
            f"expected each feature to have one column, got {X.columns[X.columns.duplicated()][0]!r} twice"
        )
    columns = [_values(column) for _, column in X.items()]
    return [dict(zip(X.columns, (column[k] for column in columns), strict=True)) for k in range(len(X))]


def _values(series: pd.Series) -> list[Any]:
    """Return plain values, with None for every kind of missing one."""
    return [None if missing else value for value, missing in zip(series.tolist(), series.isna(), strict=True)]


def _counts(w: float | pd.Series, size: int) -> NDArray[np.float64]:
    """Return how often each of some observations counts."""
    counts = np.asarray(w, np.float64)
    if counts.shape not in ((), (size,)):
        raise ValueError(f"expected w to be a number, or one for each of {size} rows, got shape {counts.shape}")
    wrong = ~(np.isfinite(counts) & (counts >= 0))
    if wrong.any():
        raise ValueError(f"expected w to be finite and not negative, got {counts[wrong][0]:g}")
    return np.broadcast_to(counts, size)
