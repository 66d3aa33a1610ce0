"""Estimators of scikit-learn that learn from the rows of matrices in their order, once unless asked otherwise."""

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from torch import Tensor

from tsforecast.learners.statistics import Statistics
from tsforecast.online.config import OnlineConfig
from tsforecast.online.matrices import AbstractMatrixLearner


@dataclasses.dataclass(eq=False, repr=False)
class BayesianOnlineClassifier(ClassifierMixin, AbstractMatrixLearner):
    """A Bayesian network that learns classes from rows, one after the other.

    Features are standardised by robust statistics so far (see `tsforecast.learners.statistics.Statistics`) and cut at
    ten standard deviations; NaN counts as the mean.

    Args:
        prediction: Probabilities "plug-in" at the mean of the belief, or "moderated" by its variance.
        passes: Number of passes of `fit` over the rows; each counts as new evidence.
        block: Number of rows that are learnt from together; more are faster, and less exact. The rate of the drift is
            for each row. All other arguments are those of `tsforecast.settings.EstimatorSettings`.

    Attributes:
        classes_: Labels in the order of `predict_proba`.
    """

    _: dataclasses.KW_ONLY
    prediction: Any = "plug-in"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not OnlineConfig.of(self).named.binary
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianOnlineClassifier":
        """Learns from the rows, forgetting all from before.

        Args:
            X: Features of shape (row, feature); NaN is missing.
            y: Labels.
            sample_weight: How often each row counts: one number, or one for each. The log-likelihood of a row is
                multiplied by it. In the statistics rows count once; those that count 0 are left out.

        Raises:
            ValueError: If the data or a parameter are not as expected.
        """
        rows, labels, counts = self._data(X, y, sample_weight, reset=True)
        check_classification_targets(labels)
        self._begin(rows, unique_labels(labels))
        return self._learn(rows, labels, counts, self.passes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "BayesianOnlineClassifier":
        """Learns from more rows, once.

        Args:
            X: Features of shape (row, feature); NaN is missing.
            y: Labels.
            classes: All there will ever be; needed the first time.
            sample_weight: As for `fit`.

        Raises:
            ValueError: If the data or a parameter are not as expected, or a label is not among the classes.
        """
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("expected classes in the first call of partial_fit, got None")
        rows, labels, counts = self._data(X, y, sample_weight, reset=first, empty=True)
        check_classification_targets(labels)
        if first:
            self._begin(rows, unique_labels(classes))
        elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise ValueError(f"expected classes to be those of the first call, {self.classes_}, got {classes!r}")
        return self._learn(rows, labels, counts, 1)

    def _begin(self, rows: Tensor, classes: NDArray[Any]) -> None:
        config, count = OnlineConfig.of(self), len(classes)
        if config.named.binary and count != 2:  # in the words that the checks of scikit-learn look for
            kind = (
                "Only binary classification is supported. The type of the target is multiclass: " if count > 2 else ""
            )
            some = f"{count} class" if count == 1 else f"{count} classes"
            raise ValueError(f"{kind}expected 2 classes for learner {self.learner!r}, got {some}")
        self._stream = config.begin(rows.shape[1], count, config.likelihood(self.prediction))
        self.classes_ = classes

    def _learn(
        self, rows: Tensor, labels: NDArray[Any], counts: Tensor | None, passes: int
    ) -> "BayesianOnlineClassifier":
        unknown = np.setdiff1d(labels, self.classes_)  # `searchsorted` would give them a neighbour's number
        if len(unknown):
            raise ValueError(f"expected labels to be among {self.classes_}, got {unknown}")
        # Classes are sorted.
        target = torch.tensor(np.searchsorted(self.classes_, labels), dtype=rows.dtype).unsqueeze(-1)
        for part, its_target, its_counts in self._blocks(rows, target, counts, passes):
            self._stream = self._stream.learn(part, its_target, counts=its_counts)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes, shape (row, class)."""
        rows = self._rows(X)
        return self._stream.probabilities(rows).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        best = self.predict_proba(X).argmax(-1)
        return self.classes_[best]


@dataclasses.dataclass(eq=False, repr=False)
class BayesianOnlineRegressor(RegressorMixin, AbstractMatrixLearner):
    """A Bayesian network that learns a number from rows, one after the other.

    Features are treated as `BayesianOnlineClassifier` does. Targets are standardised by their statistics so far, too.

    Args:
        noise: Variance of the standardised target around the network's output; None to learn it, where there is no
            weight. All other arguments are those of `BayesianOnlineClassifier` without `prediction`; the learner is not
            "adf".
    """

    _: dataclasses.KW_ONLY
    noise: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianOnlineRegressor":
        """Learns from the rows, forgetting all from before.

        Args:
            X: Features of shape (row, feature); NaN is missing.
            y: Numbers.
            sample_weight: As for `BayesianOnlineClassifier.fit`.

        Raises:
            ValueError: If the data or a parameter are not as expected.
        """
        data = self._data(X, y, sample_weight, reset=True)
        return self._learn(*data, self.passes, reset=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianOnlineRegressor":
        """Learns from more rows, once.

        Args:
            X: Features of shape (row, feature); NaN is missing.
            y: Numbers.
            sample_weight: As for `fit`.

        Raises:
            ValueError: If the data or a parameter are not as expected.
        """
        first = not hasattr(self, "_stream")
        data = self._data(X, y, sample_weight, reset=first, empty=True)
        return self._learn(*data, 1, reset=first)

    def _learn(
        self, rows: Tensor, y: NDArray[Any], counts: Tensor | None, passes: int, reset: bool
    ) -> "BayesianOnlineRegressor":
        target = torch.tensor(np.ascontiguousarray(y, np.float64)).unsqueeze(-1)
        if reset:
            self._stream = OnlineConfig.of(self).begin_numbers(rows.shape[1], self.noise)
            self._targets = Statistics.empty(1)
        for part, its_target, its_counts in self._blocks(rows, target, counts, passes):
            standardised = []
            for row in its_target:
                self._targets, scaled = self._targets.standardise(row)
                standardised.append(scaled)
            self._stream = self._stream.learn(part, torch.stack(standardised), counts=its_counts)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the expected target of each row.

        Args:
            X: Features of shape (row, feature); NaN is missing.
            return_std: Whether standard deviations are wanted, too: of the weights and of the noise, together.

        Returns:
            Means, or means and standard deviations.
        """
        rows = self._rows(X)
        expected = self._stream.predict(rows, return_std)
        mean = (self._targets.mean + self._targets.deviation * expected.mean)[:, 0].numpy()
        if not return_std:
            return mean
        return mean, (self._targets.deviation * expected.variance.sqrt())[:, 0].numpy()
