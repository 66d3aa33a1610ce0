"""Factorisations of covariances: the one place where a matrix that is not positive definite is met."""

import functools
import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.torch_internals import is_branchless, is_transformed

LOG_2PI = math.log(2 * math.pi)
ADVICE = (
    "Try float64; scale the data so that the prior variance is at most 1e4 times the observation variance; "
    "raise the smallest noise variance; lower the learning rate; and look for NaN or inf in the parameters."
)


class NotPositiveDefiniteError(ArithmeticError):
    """A covariance could not be factorised: it has a non-positive pivot, NaN or inf."""


@functools.lru_cache(maxsize=1024)
def broadcast_shapes(*shapes: tuple[int, ...]) -> torch.Size:
    """Return the broadcast shape from a cache, since torch takes longer for it than for a product of small matrices.

    `torch.broadcast_shapes` would import SymPy, in a second.
    """
    scalar = torch.empty((), device="cpu")  # under any default device: only shapes are wanted
    # Expanded views hold no numbers.
    return torch.broadcast_tensors(scalar, *(scalar.expand(shape) for shape in shapes))[0].shape


def check_factor(info: Int[Tensor, "*index"] | None, names: tuple[str, ...], what: str) -> None:
    """Raise an error if any factorisation failed.

    Args:
        info: Zero where the factorisation went well (as `torch.linalg.cholesky_ex` returns it); None if it did
            everywhere.
        names: What the last dimensions of `info` count, for example `("step", "series")`.
        what: Which covariance was factorised, for the message.

    Raises:
        NotPositiveDefiniteError: Naming the first index at which the factorisation failed.
    """
    if info is None or is_transformed(info):
        return
    if not bool(info.any() if info.ndim else info):  # of one matrix, `any` would take as long as to factorise it
        return
    first = info.nonzero()[0].tolist()
    names = ("batch",) * (len(first) - len(names)) + names  # dimensions without a name of their own stand in front
    where = ", ".join(f"{name} {position}" for name, position in zip(names, first, strict=True))
    count = int((info != 0).sum())
    raise NotPositiveDefiniteError(
        f"{what} is not positive definite{f' at {where}' if where else ''} ({count} of {info.numel()} failed). {ADVICE}"
    )


class _SolveLower(torch.autograd.Function):
    """Z = L^{-1} R, with the cotangents R_bar = L^{-T} Z_bar and L_bar = -lower triangle of R_bar Z'."""

    generate_vmap_rule = True

    @staticmethod
    def forward(factor: Tensor, rhs: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor.mT, rhs.mT, upper=True, left=False).mT  # without copies

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        factor, white = ctx.saved_tensors
        # L^{-T} Z_bar, from the right: nothing is copied.
        rhs_bar = torch.linalg.solve_triangular(factor, bar.mT, upper=False, left=False).mT
        return -(rhs_bar @ white.mT).tril(), rhs_bar


def cholesky(
    matrix: Float[Tensor, "*batch dim dim"], what: str = "a covariance", jitter: bool = False
) -> Float[Tensor, "*batch dim dim"]:
    """Return the lower Cholesky factor, after a check.

    Args:
        matrix: Symmetric; only the lower triangle is read.
        what: Named in the error.
        jitter: The one jitter rule, for sampling from covariances which may be singular: coordinates of zero variance
            are kept exactly; where the factorisation of the others fails, `10^k eps` of the mean variance is added to
            the diagonal, k = 1, 2, 3. Likelihoods never use it.

    Raises:
        NotPositiveDefiniteError: Where a factorisation fails; the message says for which batch index.
    """
    known = None
    if jitter:  # coordinates without variance are known exactly: they get a column of zeros
        known = matrix.diagonal(dim1=-2, dim2=-1) == 0
        matrix = matrix + torch.diag_embed(known.to(matrix.dtype))  # 1, so that the factorisation goes through
    factor, info = torch.linalg.cholesky_ex(matrix)
    if jitter and not is_transformed(info):
        # Relative, so that units do not matter.
        scale = torch.finfo(matrix.dtype).eps * matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
        added = torch.zeros_like(scale)
        # In float32, 1000 eps of a variance is a part in ten thousand: more would be another distribution.
        for power in (1, 2, 3):
            if not bool(info.any()):
                break
            added = torch.where(info != 0, 10**power * scale, added)
            # All anew: the derivative of a factorisation that failed is NaN, even where it is not used.
            jittered = matrix + torch.diag_embed(added.unsqueeze(-1).expand(matrix.shape[:-1]))
            factor, info = torch.linalg.cholesky_ex(jittered)
    if known is not None:
        factor = factor * (~known).unsqueeze(-2)
    # Backends differ in whether they report NaN and inf.
    if not is_transformed(info) and not bool(info.any()) and bool(factor.diagonal(dim1=-2, dim2=-1).sum().isfinite()):
        return factor
    failed = (info != 0) | ~factor.diagonal(dim1=-2, dim2=-1).sum(-1).isfinite()  # one sum tells of NaN and inf alike
    check_factor(failed.int(), ("series",) if info.ndim else (), what)
    return factor


def whiten(
    factor: Float[Tensor, "*#batch dim dim"], columns: Float[Tensor, "*#batch dim column"]
) -> Float[Tensor, "*batch dim column"]:
    """`factor^{-1} columns` for a lower triangular factor."""
    batch = broadcast_shapes(factor.shape[:-2], columns.shape[:-2])
    factor, columns = factor.expand(*batch, *factor.shape[-2:]), columns.expand(*batch, *columns.shape[-2:])
    if not (factor.requires_grad or columns.requires_grad or is_transformed(factor) or is_transformed(columns)):
        return _SolveLower.forward(factor, columns)  # an autograd function costs more than the solve of a small matrix
    return _SolveLower.apply(factor, columns)  # pyright: ignore[reportReturnType]


def solve_lower(
    factor: Float[Tensor, "*#batch dim dim"], vector: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch dim"]:
    """`factor^{-1} vector`; a factor shared by all vectors is not copied for each of them."""
    if factor.ndim == 2:
        columns = vector.reshape(-1, vector.shape[-1]).mT
        # All vectors are columns of one solve.
        return torch.linalg.solve_triangular(factor, columns, upper=False).mT.reshape(vector.shape)
    return whiten(factor, vector.unsqueeze(-1)).squeeze(-1)


def matvec(matrix: Float[Tensor, "*#batch out in"], vector: Float[Tensor, "*#batch in"]) -> Float[Tensor, "*batch out"]:
    """`matrix vector`; a matrix shared by all vectors is one product, one for each an elementwise sum."""
    if matrix.ndim == 2:
        return vector @ matrix.mT
    if matrix.shape[:-2].numel() >= vector.shape[:-1].numel():  # twice as fast as a batch of thin products
        return (matrix * vector.unsqueeze(-2)).sum(-1)
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def symmetrise(matrix: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim dim"]:
    """Return the symmetric part: rounding adds another part to a covariance, and this grows over many steps."""
    return 0.5 * (matrix + matrix.mT)


def add_diagonal(
    matrix: Float[Tensor, "*#batch dim dim"], diagonal: Float[Tensor, "*#batch dim"], in_place: bool = False
) -> Float[Tensor, "*batch dim dim"]:
    """Return the matrix plus a diagonal one.

    Args:
        matrix: To which it is added.
        diagonal: Of the other.
        in_place: Whether the matrix may be written into, because nobody else reads it.
    """
    batch = broadcast_shapes(matrix.shape[:-2], diagonal.shape[:-1])
    if is_transformed(matrix) or is_transformed(diagonal):  # `vmap` refuses to write into what it has not mapped
        return matrix + torch.diag_embed(diagonal)
    added = matrix
    if not in_place or matrix.shape[:-2] != batch:
        added = matrix.expand(*batch, *matrix.shape[-2:]).clone(memory_format=torch.contiguous_format)
    added.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    return added


def mask_cov(cov: Float[Tensor, "... dim dim"], observed: Bool[Tensor, "... dim"]) -> Float[Tensor, "... dim dim"]:
    """Return a covariance with independent missing components of unit variance."""
    mask = observed.to(cov.dtype)
    # The factor then has a 1 there, whose logarithm is 0.
    return cov * mask[..., :, None] * mask[..., None, :] + torch.diag_embed(1 - mask)


def mask_rows(
    matrix: Float[Tensor, "... dim in"], cov: Float[Tensor, "... dim dim"], observed: Bool[Tensor, "... dim"]
) -> tuple[Float[Tensor, "... dim in"], Float[Tensor, "... dim dim"]]:
    """Return a matrix with rows of zero for the missing components, and the covariance of `mask_cov`."""
    return matrix * observed.to(matrix.dtype)[..., :, None], mask_cov(cov, observed)


def log_det(factor: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch"]:
    """Return the log-determinant of a matrix, given its Cholesky factor."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def contracted(matrix: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim dim"]:
    """Matrices divided by their largest singular value where that exceeds 1."""
    norm = _largest_singular_value(matrix) if is_branchless() else torch.linalg.matrix_norm(matrix, ord=2, keepdim=True)
    return matrix / norm.clamp_min(1.0)  # what does not expand stays as it is


def _largest_singular_value(matrix: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch 1 1"]:
    """Return it by powers of A'A: unlike a decomposition, they do not make a GPU wait for whether they converged."""
    with torch.no_grad():  # with its vectors held fixed, the derivative of a singular value is right to first order
        power = matrix.mT @ matrix  # its leading eigenvector is the right singular vector
        for _ in range(_SQUARINGS):
            power = power @ power
            # Unscaled, the powers overflow; zeros stay zeros.
            power = power / power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(1e-30)
        vector = (power @ power.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)).mT  # not orthogonal to the leading one
        vector = vector / vector.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return (vector @ matrix.mT).norm(dim=-1, keepdim=True)


# Squarings, after which a singular value that is smaller by a part in 100 000 is gone.
_SQUARINGS = 20


def concatenate(parts: list[Tensor], dim: int, event_ndim: int) -> Tensor:
    """Return tensors side by side in a dimension, after all dimensions before the last `event_ndim` are broadcast."""
    batch = broadcast_shapes(*(p.shape[:-event_ndim] for p in parts))
    return torch.cat([p.expand(*batch, *p.shape[-event_ndim:]) for p in parts], dim)


def block_diagonal(*parts: Float[Tensor, "..."]) -> Float[Tensor, "*batch rows columns"]:
    """Return the matrix with these blocks on its diagonal; batch dimensions broadcast."""
    rows, first, size = [], 0, sum(part.shape[-1] for part in parts)
    for part in parts:
        rows.append(torch.nn.functional.pad(part, (first, size - first - part.shape[-1])))
        first += part.shape[-1]
    return concatenate(rows, -2, 2)


def with_lead(x: Tensor, event_ndim: int, ndim: int) -> Tensor:
    """Return a tensor with as many leading dimensions as `ndim`."""
    return x.reshape(*[1] * (ndim + event_ndim - x.ndim), *x.shape)


def beside(parts: list[Tensor], event_ndim: int, ndim: int) -> Tensor:
    """Concatenation in the last dimension, batch dimensions broadcast."""
    return concatenate([with_lead(p, event_ndim, ndim) for p in parts], -1, event_ndim)
