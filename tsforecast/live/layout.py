"""Beliefs of a model as stacked tensors, a row for each series, and back."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core import Gaussian
from tsforecast.forecasting.beliefs import any_belief
from tsforecast.forecasting.live_beliefs import map_series, own_covariances
from tsforecast.models import AbstractForecaster, Belief


class Layout:
    """The layout of the stacked tensors of a model's beliefs.

    The series come first in every part. Of a covariance only the lower triangle is kept, row by row: it is symmetric.
    """

    def __init__(self, net: AbstractForecaster) -> None:
        like = own_covariances(any_belief(net))
        covariances = {id(g.cov) for g in pytree.tree_leaves(like, is_leaf=_is_gaussian) if _is_gaussian(g)}
        dims = _dims(like)
        leaves, self._spec = pytree.tree_flatten(like)
        self._is_part = [isinstance(leaf, Tensor) for leaf in leaves]
        parts = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._dims = [dims[id(part)] for part in parts]  # of the series
        self._sizes = [part.shape[-1] if id(part) in covariances else None for part in parts]
        self._places = {size: _places(size, net.device) for size in self._sizes if size is not None}
        self.empty = [part[:0] for part in self._packed(parts)]

    def stack(self, belief: Belief) -> list[Tensor]:
        """Return the parts of a belief about many series, each with a row for every series."""
        return self._packed(x for x in pytree.tree_leaves(own_covariances(belief)) if isinstance(x, Tensor))

    def belief(self, parts: list[Tensor]) -> Belief:
        """Return the belief of parts, as `stack` gives them."""
        tensors = iter(
            (part if size is None else self._unpacked(part, size)).movedim(0, dim)
            for part, size, dim in zip(parts, self._sizes, self._dims, strict=True)
        )
        return pytree.tree_unflatten([next(tensors) if is_part else None for is_part in self._is_part], self._spec)

    def _packed(self, parts: Iterable[Tensor]) -> list[Tensor]:
        ordered = (part.movedim(dim, 0) for part, dim in zip(parts, self._dims, strict=True))
        return [
            part.contiguous() if size is None else part.flatten(-2).index_select(-1, self._places[size][0])
            for part, size in zip(ordered, self._sizes, strict=True)
        ]

    def _unpacked(self, part: Tensor, size: int) -> Tensor:
        return part.index_select(-1, self._places[size][1]).unflatten(-1, (size, size))


def _dims(belief: Belief) -> dict[int, int]:
    """Return the dimension of the series of each tensor, by its identity."""
    dims = {}

    def note(one: Any, dim: int) -> Tensor:
        dims[id(one[0])] = dim
        return one[0]

    map_series(note, [belief])
    return dims


def _is_gaussian(record: Any) -> bool:
    return isinstance(record, Gaussian)


def _places(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where entries of the lower triangle stand in a whole matrix, and where those of the matrix in the triangle."""
    row, column = torch.tril_indices(size, size, device=device)
    whole = torch.zeros(size, size, dtype=torch.long, device=device)
    whole[row, column] = whole[column, row] = torch.arange(len(row), device=device)
    return row * size + column, whole.flatten()
