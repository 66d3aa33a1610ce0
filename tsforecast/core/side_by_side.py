"""Entries and matrices of several components, side by side in those of their sum."""

import torch
from torch import Tensor

from tsforecast.core.components import Component, Trend
from tsforecast.core.linalg import beside, block_diagonal, broadcast_shapes, with_lead
from tsforecast.core.torch_internals import is_transformed


def dense_rows(positions: list[Tensor], entries: list[Tensor], shape: tuple[int, int], ndim: int) -> Tensor:
    """Return a matrix (..., step, state) of a shape, given the entries of all components and their positions."""
    pairs = zip(positions, entries, strict=True)
    both = [tuple(with_lead(x, 2, ndim) for x in torch.broadcast_tensors(*pair)) for pair in pairs]
    batch = broadcast_shapes(*(x.shape[:-1] for x, _ in both), shape[:1])
    index, values = (torch.cat([x.expand(*batch, -1) for x in part], -1) for part in zip(*both, strict=True))
    rows = values.new_zeros(*batch, shape[1])
    if is_transformed(index) or is_transformed(values):  # `vmap` refuses to write into what it has not mapped
        return rows.scatter(-1, index, values)
    return rows.scatter_(-1, index, values)  # components have states of their own: no entry is written twice


def emitted_entries(parts: list[tuple[Tensor, Tensor | None]], like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return positions and coefficients of all components, side by side; None where all coefficients are one."""
    position = beside([position for position, _ in parts], 1, max(position.ndim for position, _ in parts) - 1)
    if all(coefficient is None for _, coefficient in parts):
        return position, None
    # Where some have coefficients, as harmonics do, those of the others are ones.
    given = [like.new_ones(where.shape[-1]) if coefficient is None else coefficient for where, coefficient in parts]
    return position, beside(given, 1, max(x.ndim for x in given) - 1)


def blocks_beside(parts: list[Tensor], components: tuple[Component, ...], ndim: int) -> Tensor:
    """Return the block-diagonal matrix of the parts: matrices for trends, diagonals for the others."""
    full = [
        with_lead(p, 2, ndim) if isinstance(c, Trend) else torch.diag_embed(with_lead(p, 1, ndim))
        for p, c in zip(parts, components, strict=True)
    ]
    return block_diagonal(*full)
