"""A Bayesian network that learns classes from one observation at a time."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
from river import base
from torch import Tensor

from tsforecast.online.config import OnlineConfig, Stream
from tsforecast.online.features import FeatureColumns
from tsforecast.online.river.observations import AbstractOnline, observations_of


@dataclasses.dataclass(eq=False, repr=False)
class OnlineClassifier(AbstractOnline, base.MiniBatchClassifier):
    """A Bayesian network that learns classes from one observation at a time.

    Features are standardised by robust statistics so far (see `Statistics`) and cut at ten standard deviations. Missing
    ones (absent, None, NaN) count as their mean. A new feature has had an input of 0 before, and weights of a new class
    still have their prior. Where more of them come than were expected, the network grows, and keeps what it knows.
    Labels may come at any time after predictions were made.

    Args:
        prediction: Probabilities "plug-in" at the mean of the belief, or "moderated" by its variance.
        expected_features: Inputs of the network to begin with; None for twice the features of the first observation, at
            least 8.
        expected_classes: Outputs of the network to begin with.
        detector: A drift detector of river, of which a copy sees each error, 0 or 1, before the label is learnt from.
        burst: Part of all evidence that is forgotten when the detector finds a drift. The rate of the drift is for each
            label. All other arguments are those of `tsforecast.settings.EstimatorSettings`.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    _: dataclasses.KW_ONLY
    prediction: str = "plug-in"
    expected_classes: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expected_classes < 1:
            raise ValueError(f"expected expected_classes to be at least 1, got {self.expected_classes}")
        self._labels = FeatureColumns({}, self.expected_classes)
        OnlineConfig.of(self).likelihood(self.prediction)

    @property
    def _multiclass(self) -> bool:
        return not OnlineConfig.of(self).named.binary

    def _unit_test_skips(self) -> set[str]:
        # Classes have the names that labels give them, and none before.
        return super()._unit_test_skips() | {"check_predict_proba_one_binary"}

    def _begin(self, features: int) -> Stream:
        config = OnlineConfig.of(self)
        return config.begin(features, self.expected_classes, config.likelihood(self.prediction))

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
        """Return the probabilities of the classes seen so far; none before the first.

        Args:
            x: Numbers by name; features that no label has come with are not used.
            kwargs: Not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found = self._probabilities([x])
        return {} if found is None else dict(zip(self._labels.places, found[0].tolist(), strict=True))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the probabilities of the classes seen so far, a column each; no column before the first.

        Args:
            X: Numbers, a column for each feature; those that no label has come with are not used.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found = self._probabilities(observations_of(X))
        if found is None:
            return pd.DataFrame(index=X.index)
        names = pd.Index(list(self._labels.places), tupleize_cols=False)
        return pd.DataFrame(found.numpy(), index=X.index, columns=names)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Return the most probable class of each row; None before the first.

        Args:
            X: As for `predict_proba_many`.

        Raises:
            ValueError: If a feature is infinite or not a number.
        """
        found, names = self._probabilities(observations_of(X)), list(self._labels.places)
        best = [None] * len(X) if found is None else [names[k] for k in found.argmax(-1).tolist()]
        return pd.Series(best, X.index, object if found is None or X.empty else None)

    def _probabilities(self, xs: Sequence[dict[Hashable, Any]]) -> Tensor | None:
        """Return the probabilities of the classes seen so far; None before the first."""
        rows = self._known(xs)
        if rows is None or self._stream is None:
            return None
        mean = self._stream.probabilities(rows)[:, : len(self._labels.places)]
        return mean / mean.sum(-1, keepdim=True)
