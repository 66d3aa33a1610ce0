"""Matrices of scikit-learn, as rows that a learner takes."""

import abc
import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data
from torch import Tensor

from tsforecast.online.config import Stream
from tsforecast.settings import EstimatorSettings


@dataclasses.dataclass(eq=False, repr=False)
class AbstractMatrixLearner(EstimatorSettings, BaseEstimator, abc.ABC):
    """The base of classifier and regressor, which makes tensors of matrices, and blocks of these.

    Args:
        passes: Number of passes of `fit` over the rows; each counts as new evidence.
        block: Number of rows that are learnt from together; more are faster, and less exact.
    """

    _: dataclasses.KW_ONLY
    passes: Any = 1
    block: Any = 1
    _stream: Stream = dataclasses.field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value counts as the mean
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_stream")

    def _data(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, empty: bool = False
    ) -> tuple[Tensor, NDArray[Any], Tensor | None]:
        """Return the rows that count, with NaN where a value is missing, their targets, and how often each counts.

        Args:
            X: As for `fit`.
            y: As for `fit`.
            sample_weight: As for `fit`.
            reset: Whether the features are those of the estimator from now on.
            empty: Whether there may be nothing that counts.

        Raises:
            ValueError: If the data are not as expected, or nothing counts.
        """
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        rows = torch.tensor(np.ascontiguousarray(X))
        if sample_weight is None:
            return rows, y, None
        if isinstance(sample_weight, numbers.Real):
            sample_weight = np.full(len(rows), sample_weight)
        counts = check_array(sample_weight, ensure_2d=False, dtype="float64", input_name="sample_weight")
        check_non_negative(counts, "sample_weight")
        if counts.shape != (len(rows),):
            raise ValueError(f"expected a sample_weight for each of {len(rows)} rows, got shape {counts.shape}")
        kept = counts > 0  # a weight of 0 is as if the row were not there
        if not (empty or kept.any()):
            raise ValueError(
                "expected a sample_weight that is not zero, got zeros alone: there is nothing to learn from"
            )
        return rows[kept], y[kept], torch.tensor(counts[kept])

    def _rows(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return torch.tensor(np.ascontiguousarray(X))

    def _blocks(
        self, rows: Tensor, target: Tensor, counts: Tensor | None, passes: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Return blocks of points that are learnt from together."""
        for name, value in (("block", self.block), ("passes", passes)):
            if value < 1:
                raise ValueError(f"expected {name} to be at least 1, got {value}")
        for _ in range(passes):
            for start in range(0, len(rows), self.block):
                part = slice(start, start + self.block)
                yield rows[part], target[part], None if counts is None else counts[part]
