"""The multivariate Gaussian, and maps over records of tensors."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core.linalg import (
    LOG_2PI,
    broadcast_shapes,
    cholesky,
    log_det,
    mask_rows,
    matvec,
    solve_lower,
    symmetrise,
)
from tsforecast.core.torch_internals import normal

Record = TypeVar("Record")


def register_record(cls: type[Record]) -> type[Record]:
    """Class decorator: makes a frozen dataclass of tensors a pytree, so that `torch.func` and `scan` take it.

    Unflattening goes past the constructor, since transformations put other things than tensors into the leaves.
    """
    names = [field.name for field in dataclasses.fields(cls)]  # pyright: ignore[reportArgumentType]

    def flatten(record: Record) -> tuple[list[Any], None]:
        return [getattr(record, name) for name in names], None

    def unflatten(leaves: Any, _: None) -> Record:
        record = object.__new__(cls)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(record, name, leaf)
        return record

    pytree.register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"tsforecast.{cls.__name__}")
    return cls


def map_tensors(function: Callable[[Tensor], Tensor], record: Record) -> Record:
    """The record with `function` applied to each of its tensors (indexing, moving to a device, detaching, ...)."""
    return pytree.tree_map_only(Tensor, function, record)


def unbind(record: Record) -> Callable[[int], Record]:
    """An index of the leading dimension to that entry of each tensor; where a tensor has but one, it is for all.

    Unbinding has one adjoint for all steps; indexing would fill a tensor of zeros for each of them.
    """
    leaves, spec = pytree.tree_flatten(record)
    columns = [leaf.unbind() if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def entry(index: int) -> Record:
        parts = [x[index if len(x) > 1 else 0] if isinstance(x, tuple) else x for x in columns]
        return pytree.tree_unflatten(parts, spec)

    return entry


@register_record
@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian N(mean, cov) for every index of the batch.

    Mean and covariance broadcast against each other: many series may share one covariance.

    Attributes:
        mean: Shape (*batch, dim).
        cov: Shape (*batch, dim, dim), symmetric positive (semi)definite.
    """

    mean: Float[Tensor, "*#batch dim"]
    cov: Float[Tensor, "*#batch dim dim"]

    @property
    def batch_shape(self) -> torch.Size:
        """Return the shape of the batch, after broadcasting."""
        return broadcast_shapes(self.mean.shape[:-1], self.cov.shape[:-2])

    @property
    def variance(self) -> Float[Tensor, "*batch dim"]:
        """Return the marginal variances, the diagonal of the covariance."""
        return self.cov.diagonal(dim1=-2, dim2=-1).expand(*self.batch_shape, -1)  # many means may share one covariance

    def log_prob(self, value: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
        """Return the log-density.

        Raises:
            NotPositiveDefiniteError: If the covariance is singular.
        """
        # Without jitter: it would give a singular covariance a finite density.
        factor = cholesky(self.cov, "the covariance of a Gaussian")
        white = solve_lower(factor, value - self.mean)
        return -0.5 * (white.square().sum(-1) + log_det(factor) + value.shape[-1] * LOG_2PI)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Return the differential entropy in nats."""
        factor = cholesky(self.cov, "the covariance of a Gaussian")
        return 0.5 * (log_det(factor) + self.cov.shape[-1] * (1 + LOG_2PI)).expand(self.batch_shape)

    def sample(
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape dim"]:
        """Reparametrised samples of shape (*sample_shape, *batch, dim); the covariance may be singular."""
        factor = cholesky(self.cov, "the covariance of a Gaussian to sample from", jitter=True)
        shape = (*sample_shape, *self.batch_shape, self.mean.shape[-1])
        noise = normal(shape, self.mean, generator)
        # Samples are columns beside one factor: it is not repeated for each of them.
        columns = noise.flatten(0, len(sample_shape) - 1).movedim(0, -1) if sample_shape else noise.unsqueeze(-1)
        moved = (factor @ columns).movedim(-1, 0).reshape(shape)
        return self.mean + moved

    def marginal(self, index: Tensor | slice | list[int]) -> "Gaussian":
        """Return the marginal of some of the dimensions."""
        return Gaussian(self.mean[..., index], self.cov[..., index, :][..., :, index])

    def condition(self, value: Float[Tensor, "*#batch dim"], observed: Bool[Tensor, "*#batch dim"]) -> "Gaussian":
        """The Gaussian given the exact value of some dimensions; these keep their place, with zero variance.

        Args:
            value: Read where `observed`; anything finite elsewhere.
            observed: Which dimensions are known, for each index of the batch.

        Raises:
            NotPositiveDefiniteError: If the known dimensions are linearly dependent.
        """
        # What is not known may be any number.
        residual = torch.where(observed, value - self.mean, torch.zeros_like(self.mean))
        # The others become independent with variance 1: one factorisation for any pattern.
        masked, among = mask_rows(self.cov, self.cov, observed)
        factor = cholesky(among, "the covariance of the known values")
        gain = torch.linalg.solve_triangular(factor, masked.expand_as(factor), upper=False)
        mean = self.mean + matvec(gain.mT, solve_lower(factor, residual))
        cov = symmetrise(self.cov - gain.mT @ gain)
        free = (~observed).to(mean.dtype)  # rounding must not move what is known
        return Gaussian(torch.where(observed, value, mean), cov * free[..., :, None] * free[..., None, :])

    def product(self, other: "Gaussian") -> tuple["Gaussian", Float[Tensor, "*batch"]]:
        """The normalised product of two densities, and the log of the integral of the product.

        N(x; a, A) N(x; b, B) = N(x; m, V) N(a; b, A + B), with V = A (A + B)^{-1} B and m = a + A (A + B)^{-1} (b - a).
        """
        total = Gaussian(other.mean, symmetrise(self.cov + other.cov))
        factor = cholesky(total.cov, "the sum of two covariances")
        shape = broadcast_shapes(self.cov.shape, factor.shape)
        gain = torch.linalg.solve_triangular(factor, self.cov.expand(shape), upper=False)
        white = solve_lower(factor, other.mean - self.mean)
        log_scale = -0.5 * (white.square().sum(-1) + log_det(factor) + white.shape[-1] * LOG_2PI)
        # A - A (A + B)^{-1} A is V, and symmetric; it needs no inverse of A or B, which may be singular.
        return Gaussian(self.mean + matvec(gain.mT, white), self.cov - gain.mT @ gain), log_scale

    def kl(self, other: "Gaussian") -> Float[Tensor, "*batch"]:
        """Kullback-Leibler divergence KL(self || other) in nats."""
        mine, theirs = cholesky(self.cov), cholesky(other.cov)
        shape = broadcast_shapes(mine.shape, theirs.shape)
        # Its squares sum to the trace of B^{-1} A.
        ratio = torch.linalg.solve_triangular(theirs.expand(shape), mine.expand(shape), upper=False)
        white = solve_lower(theirs, self.mean - other.mean)
        dim = self.mean.shape[-1]  # trace, square and dimension cancel where both are the same
        return 0.5 * (ratio.square().sum((-2, -1)) + white.square().sum(-1) - dim + log_det(theirs) - log_det(mine))
