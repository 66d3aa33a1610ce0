"""Estimators of river (https://riverml.xyz): dictionaries in, one at a time, features and classes as they come."""

import abc
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from river import base
from torch import Tensor

from tsforecast.adapters.features import Columns, Statistics, read_features, read_target
from tsforecast.adapters.recipe import Recipe, Stream


class _Online(base.Estimator, abc.ABC):
    """What classifier and regressor share: columns of features, and the detector of drift."""

    max_features: int | None
    detector: Any
    burst: float

    def __init__(self) -> None:
        self._columns: Columns | None = None
        self._stream: Stream | None = None
        self._watching: Any = None

    @abc.abstractmethod
    def _begin(self, features: int) -> Stream:
        """The learner before any observation."""

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"hidden": (4,)}
        yield {"learner": "lofi", "hidden": (4,), "rank": 3}
        yield {"learner": "ekf", "hidden": ()}

    def _get_params(self) -> dict[str, Any]:
        # River takes a tuple for a class and its parameters, and fails for an empty one: so clones are given a list.
        params = super()._get_params()
        return {**params, "hidden": params["hidden"] or []}

    def _read(self, x: dict[Hashable, Any]) -> tuple[Columns, Tensor]:
        """Columns, with those that are new, and the values in them."""
        values, columns = read_features(x), self._columns
        if columns is None:
            columns = Columns({}, max(8, 2 * len(x)) if self.max_features is None else self.max_features)
        columns = columns.reserve(values, "features", "max_features")
        return columns, columns.row(values)

    def _started(self, columns: Columns) -> Stream:
        """The learner, begun at the first observation."""
        if self._stream is not None:
            return self._stream
        stream = self._begin(columns.capacity)
        if self.detector is not None:
            stream.forget(self.burst)  # what cannot forget says so now, and not at the first drift
            self._watching = self.detector.clone()
        return stream

    def _watch(self, stream: Stream, error: float | bool) -> Stream:
        """Forgets if the error says that something has changed."""
        self._watching.update(error)
        return stream.forget(self.burst) if self._watching.drift_detected else stream


class OnlineClassifier(_Online, base.Classifier):
    """A Bayesian network that learns classes from one observation at a time.

    Features are standardised by robust statistics so far (see `Statistics`) and cut at ten standard deviations; missing
    ones (absent, None, NaN) count as their mean. Columns are reserved: a new feature has had an input of 0 before, and
    weights of a class that is new still have their prior. Labels may come at any time after predictions were made.

    Args:
        learner: A name in `tsforecast.core.learners.LEARNERS`; "adf" tells two classes apart.
        hidden: Widths of the hidden layers; () is a linear model.
        activation: "tanh", "relu" or "sigmoid".
        variance: Of every weight in the prior.
        prediction: Probabilities "plug-in" at the mean of the belief, or "moderated" by its variance.
        drift: "auto" (Wiener, for learners that take a drift), "none" (or the learner's own), "wiener", "ou",
            "forgetting", "exponential" or "shrink".
        rate: Of the drift, for each label.
        weight: "none" (or the learner's own), "imq" (outliers count less) or "gate" (outliers do not count).
        threshold: From which on a label is an outlier, in standard deviations.
        rank: Of lofi and lrkf.
        max_features: Columns; None for twice the features of the first observation, at least 8.
        max_classes: Outputs.
        detector: A drift detector of river, of which a copy sees each error, 0 or 1, before the label is learnt from.
        burst: Part of all evidence that is forgotten when the detector finds a drift.
        seed: Of initial weights, and of what the learner draws.
        settings: What else the learner's constructor takes, by name.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    def __init__(
        self,
        learner: str = "lofi",
        hidden: Sequence[int] = (20,),
        activation: str = "tanh",
        variance: float = 0.1,
        prediction: str = "plug-in",
        drift: str = "auto",
        rate: float = 1e-3,
        weight: str = "none",
        threshold: float = 3.0,
        rank: int = 10,
        max_features: int | None = None,
        max_classes: int = 10,
        detector: base.DriftDetector | base.BinaryDriftDetector | None = None,
        burst: float = 0.5,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.learner = learner
        self.hidden = tuple(hidden)
        self.activation = activation
        self.variance = variance
        self.prediction = prediction
        self.drift = drift
        self.rate = rate
        self.weight = weight
        self.threshold = threshold
        self.rank = rank
        self.max_features = max_features
        self.max_classes = max_classes
        self.detector = detector
        self.burst = burst
        self.seed = seed
        self.settings = settings
        self._labels = Columns({}, max_classes)
        Recipe.of(self).likelihood(max_classes, "max_classes", prediction)

    @property
    def _multiclass(self) -> bool:
        return self.max_classes > 2

    def _unit_test_skips(self) -> set[str]:
        return {"check_predict_proba_one_binary"}  # classes have the names that labels give them, and none before

    def _begin(self, features: int) -> Stream:
        recipe = Recipe.of(self)
        likelihood = recipe.likelihood(self.max_classes, "max_classes", self.prediction)
        return recipe.begin(features, self.max_classes, likelihood)

    def learn_one(self, x: dict[Hashable, Any], y: Any) -> None:
        """Learns from a label.

        Args:
            x: Numbers by name.
            y: The label.

        Raises:
            ValueError: If the label is missing, a feature is infinite or not a number, or no column is free.
        """
        if y is None or y != y:
            raise ValueError(f"expected a label, got {y!r}: leave observations without a label out")
        columns, row = self._read(x)
        labels = self._labels.reserve([y], "classes", "max_classes")
        stream = self._started(columns)
        if self._watching is not None and self._labels.places:
            guess = int(stream.probabilities(row)[0].argmax())
            stream = self._watch(stream, guess != labels.places[y])
        if labels is not self._labels:
            stream = stream.with_outputs(len(labels.places))
        target = row.new_tensor([[labels.places[y]]])
        self._columns, self._labels, self._stream = columns, labels, stream.learn(row, target)

    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """Probabilities of the classes seen so far; none before the first.

        Args:
            x: Numbers by name; features that no label has come with are not used.
            kwargs: Not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        values = read_features(x)
        if self._stream is None or self._columns is None:
            return {}
        mean = self._stream.probabilities(self._columns.row(values))[0, : len(self._labels.places)]
        return dict(zip(self._labels.places, (mean / mean.sum()).tolist(), strict=True))


class OnlineRegressor(_Online, base.Regressor):
    """A Bayesian network that learns a number from one observation at a time.

    Features are treated as `OnlineClassifier` does. The target is standardised by its statistics so far, too.

    Args:
        learner: A name in `tsforecast.core.learners.LEARNERS`; not "adf".
        hidden: Widths of the hidden layers; () is a linear model.
        activation: "tanh", "relu" or "sigmoid".
        variance: Of every weight in the prior.
        noise: Variance of the standardised target around the network's output.
        drift: "auto" (Wiener, for learners that take a drift), "none" (or the learner's own), "wiener", "ou",
            "forgetting", "exponential" or "shrink".
        rate: Of the drift, for each target.
        weight: "none" (or the learner's own), "imq" (outliers count less) or "gate" (outliers do not count).
        threshold: From which on a target is an outlier, in standard deviations.
        rank: Of lofi and lrkf.
        max_features: Columns; None for twice the features of the first observation, at least 8.
        detector: A drift detector of river, of which a copy sees each standardised absolute residual, before the target
            is learnt from.
        burst: Part of all evidence that is forgotten when the detector finds a drift.
        seed: Of initial weights, and of what the learner draws.
        settings: What else the learner's constructor takes, by name.

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
        max_features: int | None = None,
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
        self.max_features = max_features
        self.detector = detector
        self.burst = burst
        self.seed = seed
        self.settings = settings
        self._targets = Statistics.empty(1)
        Recipe.of(self).numeric(noise)

    def _begin(self, features: int) -> Stream:
        recipe = Recipe.of(self)
        return recipe.begin(features, 1, recipe.numeric(self.noise))

    def learn_one(self, x: dict[Hashable, Any], y: Any) -> None:
        """Learns from a target.

        Args:
            x: Numbers by name.
            y: The target.

        Raises:
            ValueError: If the target is missing, it or a feature is infinite or not a number, or no column is free.
        """
        number = read_target(y)
        columns, row = self._read(x)
        targets, target = self._targets.standardise(row.new_tensor([number]))
        target = target.unsqueeze(0)
        stream = self._started(columns)
        if self._watching is not None and bool(target.isfinite()):
            stream = self._watch(stream, abs(float(stream.predict(row).mean - target)))
        self._columns, self._targets, self._stream = columns, targets, stream.learn(row, target)

    def predict_one(self, x: dict[Hashable, Any]) -> float:
        """The expected target; 0 before the first.

        Args:
            x: Numbers by name; features that no target has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        values = read_features(x)
        if self._stream is None or self._columns is None:
            return 0.0
        mean = self._stream.predict(self._columns.row(values)).mean
        return float(self._targets.mean + self._targets.deviation * mean)
