"""Estimators of river (https://riverml.xyz): dictionaries or frames in, features and classes as they come."""

import abc
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from river import base
from torch import Tensor

from tsforecast.online.config import OnlineConfig, Stream
from tsforecast.online.features import FeatureColumns, Statistics, read_features, read_target


class _Online(base.Estimator, abc.ABC):
    """What classifier and regressor share: columns of features, and the detector of drift."""

    expected_features: int | None
    detector: Any
    burst: float

    def __init__(self) -> None:
        self._columns: FeatureColumns | None = None
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

    def _unit_test_skips(self) -> set[str]:
        return {"check_learn_many_matches_learn_one"}  # rows of a frame are learnt from together, in one step

    @abc.abstractmethod
    def _learn(self, xs: Sequence[dict[Hashable, Any]], ys: Sequence[Any], counts: Tensor | None) -> None:
        """Learns from some observations together."""

    def _learn_one(self, x: dict[Hashable, Any], y: Any, w: float) -> None:
        count = float(_counts(w, 1)[0])
        if count:
            self._learn([x], [y], None if count == 1 else torch.tensor([count], dtype=torch.float64))

    def _learn_many(self, X: pd.DataFrame, y: pd.Series, w: float | pd.Series) -> None:
        xs, ys, counts = _observations(X), _values(pd.Series(y)), _counts(w, len(X))
        if len(ys) != len(xs):
            raise ValueError(f"expected a target for each of {len(xs)} rows, got {len(ys)}")
        kept = counts.nonzero()[0].tolist()  # what does not count is left out: no new feature, no time
        if kept:
            all_once = bool((counts[kept] == 1).all())
            given = None if all_once else torch.tensor(counts[kept])
            self._learn([xs[k] for k in kept], [ys[k] for k in kept], given)

    def _read(self, xs: Sequence[dict[Hashable, Any]]) -> tuple[FeatureColumns, Tensor]:
        """Columns, with those that are new, and the values in them: a row for each observation."""
        columns, found = self._columns, [read_features(x) for x in xs]
        for x, values in zip(xs, found, strict=True):
            if columns is None:
                expected = self.expected_features
                columns = FeatureColumns({}, max(8, 2 * len(x)) if expected is None else expected)
            columns = columns.reserve(values)
        assert columns is not None
        return columns, torch.cat([columns.row(values) for values in found])

    def _known(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor | None:
        """The values of known features, a row for each observation; None before the first."""
        found, columns = [read_features(x) for x in xs], self._columns
        if columns is None:
            return None
        return torch.cat([torch.zeros(0, columns.capacity, dtype=torch.float64), *map(columns.row, found)])

    def _started(self, columns: FeatureColumns) -> Stream:
        """The learner, begun at the first observation, with an input for each column."""
        if self._stream is not None:
            return self._stream.grow(columns.capacity, self._stream.sizes[-1][1])
        stream = self._begin(columns.capacity)
        if self.detector is not None:
            stream.forget(self.burst)  # what cannot forget says so now, and not at the first drift
            self._watching = self.detector.clone()
        return stream

    def _watch(self, stream: Stream, error: float | bool) -> Stream:
        """Forgets if the error says that something has changed."""
        self._watching.update(error)
        return stream.forget(self.burst) if self._watching.drift_detected else stream


def _observations(X: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """The rows of a frame, as they would come one at a time."""
    if not isinstance(X, pd.DataFrame):
        raise ValueError(f"expected X to be a pandas DataFrame, got {type(X).__name__}")
    if not X.columns.is_unique:
        raise ValueError(
            f"expected each feature to have one column, got {X.columns[X.columns.duplicated()][0]!r} twice"
        )
    columns = [_values(column) for _, column in X.items()]
    return [dict(zip(X.columns, (column[k] for column in columns), strict=True)) for k in range(len(X))]


def _values(series: pd.Series) -> list[Any]:
    """Plain values; None for every kind of missing one."""
    return [None if missing else value for value, missing in zip(series.tolist(), series.isna(), strict=True)]


def _counts(w: float | pd.Series, size: int) -> NDArray[np.float64]:
    """How often each of some observations counts."""
    counts = np.asarray(w, np.float64)
    if counts.shape not in ((), (size,)):
        raise ValueError(f"expected w to be a number, or one for each of {size} rows, got shape {counts.shape}")
    wrong = ~(np.isfinite(counts) & (counts >= 0))
    if wrong.any():
        raise ValueError(f"expected w to be finite and not negative, got {counts[wrong][0]:g}")
    return np.broadcast_to(counts, size)


class OnlineClassifier(_Online, base.MiniBatchClassifier):
    """A Bayesian network that learns classes from one observation at a time.

    Features are standardised by robust statistics so far (see `Statistics`) and cut at ten standard deviations; missing
    ones (absent, None, NaN) count as their mean. A new feature has had an input of 0 before, and weights of a new class
    still have their prior; where more of them come than were expected the network grows, and keeps what it knows.
    Labels may come at any time after predictions were made.

    Args:
        learner: A name in `tsforecast.learners.LEARNERS`; "adf" tells two classes apart.
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
        expected_features: Inputs of the network to begin with; None for twice the features of the first observation, at
            least 8.
        expected_classes: Outputs of the network to begin with.
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
        expected_features: int | None = None,
        expected_classes: int = 10,
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
        self.expected_features = expected_features
        self.expected_classes = expected_classes
        self.detector = detector
        self.burst = burst
        self.seed = seed
        self.settings = settings
        if expected_classes < 1:
            raise ValueError(f"expected expected_classes to be at least 1, got {expected_classes}")
        self._labels = FeatureColumns({}, expected_classes)
        OnlineConfig.of(self).likelihood(prediction)

    @property
    def _multiclass(self) -> bool:
        return not OnlineConfig.of(self).named.binary

    def _unit_test_skips(self) -> set[str]:
        # Classes have the names that labels give them, and none before.
        return super()._unit_test_skips() | {"check_predict_proba_one_binary"}

    def _begin(self, features: int) -> Stream:
        config = OnlineConfig.of(self)
        return config.begin(features, self.expected_classes, config.likelihood(self.prediction))

    def learn_one(self, x: dict[Hashable, Any], y: Any, w: float = 1.0) -> None:
        """Learns from a label.

        Args:
            x: Numbers by name.
            y: The label.
            w: How often it counts; nothing is learnt, and no time passes, if it is 0.

        Raises:
            ValueError: If the label is missing, the third for "adf", or a feature is infinite or not a number.
        """
        self._learn_one(x, y, w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float | pd.Series = 1.0) -> None:
        """Learns from the rows of a frame together, in one step: faster than one at a time, and less exact.

        The drift takes the time of all rows. A detector sees their errors, in order, before any is learnt from.

        Args:
            X: Numbers, a column for each feature; NaN and None are missing.
            y: Labels.
            w: How often rows count, one number or one for each; those that count 0 are left out.

        Raises:
            ValueError: As `learn_one`.
        """
        self._learn_many(X, y, w)

    def _learn(self, xs: Sequence[dict[Hashable, Any]], ys: Sequence[Any], counts: Tensor | None) -> None:
        labels = self._labels
        for y in ys:
            if y is None or y != y:
                raise ValueError(f"expected a label, got {y!r}: leave observations without a label out")
            labels = labels.reserve([y])
        columns, rows = self._read(xs)
        stream, places = self._started(columns), [labels.places[y] for y in ys]
        if self._watching is not None and self._labels.places:
            for guess, place in zip(stream.probabilities(rows).argmax(-1).tolist(), places, strict=True):
                stream = self._watch(stream, guess != place)
        if labels is not self._labels:
            stream = stream.grow(columns.capacity, labels.capacity).with_outputs(len(labels.places))
        target = rows.new_tensor(places).unsqueeze(-1)
        self._columns, self._labels, self._stream = columns, labels, stream.learn(rows, target, counts=counts)

    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """Probabilities of the classes seen so far; none before the first.

        Args:
            x: Numbers by name; features that no label has come with are not used.
            kwargs: Not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found = self._probabilities([x])
        return {} if found is None else dict(zip(self._labels.places, found[0].tolist(), strict=True))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probabilities of the classes seen so far, a column each; no column before the first.

        Args:
            X: Numbers, a column for each feature; those that no label has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found = self._probabilities(_observations(X))
        if found is None:
            return pd.DataFrame(index=X.index)
        names = pd.Index(list(self._labels.places), tupleize_cols=False)
        return pd.DataFrame(found.numpy(), index=X.index, columns=names)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The most probable class of each row; None before the first.

        Args:
            X: As for `predict_proba_many`.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found, names = self._probabilities(_observations(X)), list(self._labels.places)
        best = [None] * len(X) if found is None else [names[k] for k in found.argmax(-1).tolist()]
        return pd.Series(best, X.index, object if found is None or X.empty else None)

    def _probabilities(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor | None:
        """Of the classes seen so far; None before the first."""
        rows = self._known(xs)
        if rows is None or self._stream is None:
            return None
        mean = self._stream.probabilities(rows)[:, : len(self._labels.places)]
        return mean / mean.sum(-1, keepdim=True)


class OnlineRegressor(_Online, base.MiniBatchRegressor):
    """A Bayesian network that learns a number from one observation at a time.

    Features are treated as `OnlineClassifier` does. The target is standardised by its statistics so far, too.

    Args:
        learner: A name in `tsforecast.learners.LEARNERS`; not "adf".
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
        expected_features: Inputs of the network to begin with; None for twice the features of the first observation, at
            least 8.
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
            ValueError: As `learn_one`.
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
        """The expected target; 0 before the first.

        Args:
            x: Numbers by name; features that no target has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        return float(self._expected([x])[0])

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The expected target of each row; 0 before the first.

        Args:
            X: Numbers, a column for each feature; those that no target has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        return pd.Series(self._expected(_observations(X)).numpy(), X.index)

    def _expected(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor:
        """Of each observation, in the units of the target."""
        rows = self._known(xs)
        if rows is None or self._stream is None:
            return torch.zeros(len(xs), dtype=torch.float64)
        return (self._targets.mean + self._targets.deviation * self._stream.predict(rows).mean)[:, 0]
