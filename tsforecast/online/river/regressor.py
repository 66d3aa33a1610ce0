"""A Bayesian network that learns a number from one observation at a time."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
import torch
from river import base
from torch import Tensor

from tsforecast.learners.statistics import Statistics
from tsforecast.online.config import OnlineConfig, Stream
from tsforecast.online.features import read_target
from tsforecast.online.river.observations import AbstractOnline, observations_of


@dataclasses.dataclass(eq=False, repr=False)
class OnlineRegressor(AbstractOnline, base.MiniBatchRegressor):
    """A Bayesian network that learns a number from one observation at a time.

    Features are treated as `OnlineClassifier` does. The target is standardised by its statistics so far, too.

    Args:
        noise: Variance of the standardised target around the network's output; None to learn it, where there is no
            weight. All other arguments are those of `OnlineClassifier` without `prediction` and `expected_classes`. The
            learner is not "adf", and a detector sees each standardised absolute residual.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    _: dataclasses.KW_ONLY
    noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._targets = Statistics.empty(1)
        OnlineConfig.of(self).numeric(self.noise)

    def _begin(self, features: int) -> Stream:
        return OnlineConfig.of(self).begin_numbers(features, self.noise)

    def _learn(self, xs: Sequence[dict[Hashable, Any]], ys: Sequence[Any], counts: Tensor | None) -> None:
        numbers = [read_target(y) for y in ys]
        columns, rows = self._read(xs)
        targets, scaled = self._targets, []
        for number in numbers:
            targets, target = targets.standardise(rows.new_tensor([number]))
            scaled.append(target)
        target, stream = torch.stack(scaled), self._started(columns)
        if self._watching is not None:
            errors = (stream.predict(rows).mean - target).abs()
            for error in errors[target.isfinite()].tolist():
                stream = self._watch(stream, error)
        self._columns, self._targets, self._stream = columns, targets, stream.learn(rows, target, counts=counts)

    def predict_one(self, x: dict[Hashable, Any]) -> float:
        """Return the expected target; 0 before the first.

        Args:
            x: Numbers by name; features that no target has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        return float(self._expected([x])[0])

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Return the expected target of each row; 0 before the first.

        Args:
            X: Numbers, a column for each feature; those that no target has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        return pd.Series(self._expected(observations_of(X)).numpy(), X.index)

    def _expected(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor:
        """Return the expected target of each observation, in the units of the target."""
        rows = self._known(xs)
        if rows is None or self._stream is None:
            return torch.zeros(len(xs), dtype=torch.float64)
        return (self._targets.mean + self._targets.deviation * self._stream.predict(rows).mean)[:, 0]
