"""A Bayesian network that learns a number from one observation at a time."""

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


class OnlineRegressor(AbstractOnline, base.MiniBatchRegressor):
    """A Bayesian network that learns a number from one observation at a time.

    Features are treated as `OnlineClassifier` does. The target is standardised by its statistics so far, too.

    Args:
        learner: A name in `tsforecast.learners.LEARNERS`; not "adf".
        hidden: Widths of the hidden layers; () is a linear model.
        activation: "tanh", "relu" or "sigmoid".
        variance: Variance of every weight in the prior.
        noise: Variance of the standardised target around the network's output.
        drift: "auto" (Wiener, for learners that take a drift), "none" (or the learner's own), "wiener", "ou",
            "forgetting", "exponential" or "shrink".
        rate: Rate of the drift, for each target.
        weight: "none" (or the learner's own), "imq" (outliers count less) or "gate" (outliers do not count).
        threshold: Distance from which on a target is an outlier, in standard deviations.
        rank: Rank of lofi and lrkf.
        expected_features: Inputs of the network to begin with; None for twice the features of the first observation, at
            least 8.
        detector: A drift detector of river, of which a copy sees each standardised absolute residual, before the target
            is learnt from.
        burst: Part of all evidence that is forgotten when the detector finds a drift.
        seed: Seed of initial weights, and of what the learner draws.
        settings: Further arguments of the learner's constructor, by name.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    def __init__(
        self,
        learner: str = "lofi",
        hidden: Sequence[int] = (20,),
        activation: str = "tanh",
        variance: float = 0.1,
        noise: float = 0.5,
        drift: str = "auto",
        rate: float = 1e-3,
        weight: str = "none",
        threshold: float = 3.0,
        rank: int = 10,
        expected_features: int | None = None,
        detector: base.DriftDetector | None = None,
        burst: float = 0.5,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.learner = learner
        self.hidden = tuple(hidden)
        self.activation = activation
        self.variance = variance
        self.noise = noise
        self.drift = drift
        self.rate = rate
        self.weight = weight
        self.threshold = threshold
        self.rank = rank
        self.expected_features = expected_features
        self.detector = detector
        self.burst = burst
        self.seed = seed
        self.settings = settings
        self._targets = Statistics.empty(1)
        OnlineConfig.of(self).numeric(noise)

    def _begin(self, features: int) -> Stream:
        config = OnlineConfig.of(self)
        return config.begin(features, 1, config.numeric(self.noise))

    def learn_one(self, x: dict[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learns from a target.

        Args:
            x: Numbers by name.
            y: The target.
            w: How often it counts; nothing is learnt, and no time passes, if it is 0.

        Raises:
            ValueError: If the target is missing, or it or a feature is infinite or not a number.
        """
        self._learn_one(x, y, w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float | pd.Series = 1.0) -> None:
        """Learns from the rows of a frame together, in one step: faster than one at a time, and less exact.

        The drift takes the time of all rows. A detector sees their errors, in order, before any is learnt from.

        Args:
            X: Numbers, a column for each feature; NaN and None are missing.
            y: Targets.
            w: How often rows count, one number or one for each; those that count 0 are left out.

        Raises:
            ValueError: As for `learn_one`.
        """
        self._learn_many(X, y, w)

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
