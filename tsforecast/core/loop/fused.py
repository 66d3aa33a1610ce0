"""Small linear algebra in elementwise operations, so that a compiler fuses them with their neighbours.

A call of a library costs a microsecond or more however small the matrix is, and nothing is fused across it. `FUSED`
says which operation of torch each function stands for; it returns NotImplemented where a call is the better choice.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Largest matrix that is factorised here. The code, and the time to compile it, grow with its square.
_LARGEST = 4

# Multiplications that take less time than a call.
_FEW = 1024

aten = torch.ops.aten


def product(a: Tensor, b: Tensor) -> Any:
    """A b, also of batches: of two vectors, of one, or of so few numbers that a call would take longer."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    if inner == 1:
        # The compiler stores what is strided: flattened before, every number would take two integer divisions.
        outer = (a * b).contiguous()
        return outer.as_strided(outer.shape, outer.stride())
    if min(rows, columns) > 1 and rows * inner * columns > _FEW:
        return NotImplemented
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def product_of_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the product A b of a matrix and a vector."""
    return (matrix * vector).sum(-1)


def added_product(total: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Any:
    """Return the total plus the product of two matrices."""
    term = product(a, b)
    return NotImplemented if term is NotImplemented else beta * total + alpha * term


def added_product_of_vector(total: Tensor, matrix: Tensor, vector: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the total plus the product of a matrix and a vector."""
    return beta * total + alpha * product_of_vector(matrix, vector)


def cholesky(matrix: Tensor, upper: bool = False, check_errors: bool = False) -> Any:
    """Lower factor, column by column; NaN where it does not exist, and no sign of that beside it."""
    size = matrix.shape[-1]
    if size > _LARGEST or upper:
        return NotImplemented
    columns = []
    for k in range(size):
        # A pivot below 0 gives NaN, which `compiled_scan` looks for.
        column = matrix[..., :, 0] * matrix[..., 0, 0, None].rsqrt()
        columns.append(torch.nn.functional.pad(column, (k, 0)))
        matrix = matrix[..., 1:, 1:] - column[..., 1:, None] * column[..., None, 1:]
    return torch.stack(columns, -1), matrix.new_zeros(matrix.shape[:-2], dtype=torch.int32)


def triangular(matrix: Tensor, rhs: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Return X with A X = B, or X A = B, by substitution."""
    size = matrix.shape[-1]
    if size > _LARGEST or unitriangular:
        return NotImplemented
    if not left:
        return triangular(matrix.transpose(-1, -2), rhs.transpose(-1, -2), upper=not upper).transpose(-1, -2)
    solution: list[Tensor] = []
    order = range(size)[::-1] if upper else range(size)
    for k in order:
        known = sum((matrix[..., k, j, None] * x for j, x in zip(order, solution, strict=False)), start=-rhs[..., k, :])
        solution.append(-known / matrix[..., k, k, None])
    return torch.stack(solution[::-1] if upper else solution, -2)


def cholesky_solve(rhs: Tensor, factor: Tensor, upper: bool = False) -> Any:
    """Return (L L')^{-1} B, given the Cholesky factor L."""
    if factor.shape[-1] > _LARGEST or upper:
        return NotImplemented
    return triangular(factor.transpose(-1, -2), triangular(factor, rhs, upper=False), upper=True)


def joined(parts: list[Tensor], dim: int = 0) -> Any:
    """Parts one after the other, as a sum: written into its place, each would need a view of that at every step."""
    first = parts[0]
    dim %= first.ndim
    total = sum(part.shape[dim] for part in parts)
    if len({part.ndim for part in parts}) > 1 or sum(part.numel() for part in parts) > _FEW:
        return NotImplemented
    placed: list[Tensor] = []
    start = 0
    for part in parts:
        end = start + part.shape[dim]
        placed.append(torch.nn.functional.pad(part, (0, 0) * (first.ndim - 1 - dim) + (start, total - end)))
        start = end
    return sum(placed[1:], start=placed[0])


def stacked(parts: list[Tensor], dim: int = 0) -> Any:
    """Return the parts along a dimension of their own."""
    return joined([part.unsqueeze(dim) for part in parts], dim)


FUSED: dict[Any, Callable[..., Any]] = {
    aten.cat.default: joined,
    aten.stack.default: stacked,
    aten.mm.default: product,
    aten.bmm.default: product,
    aten.mv.default: product_of_vector,
    aten.addmm.default: added_product,
    aten.addmv.default: added_product_of_vector,
    aten.linalg_cholesky_ex.default: cholesky,
    aten.linalg_solve_triangular.default: triangular,
    aten.cholesky_solve.default: cholesky_solve,
}
