"""Correlation of the errors of several targets at one step, learnt as a series goes on."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import cholesky, log_det, solve_lower

_MEMORY = 1000.0  # steps by which an error has lost two thirds of its weight
_FAR = 2.0  # root mean square of the errors of a step, beyond which they are divided by their size
_LEAST = 1e-3  # eigenvalue of a correlation matrix


@register_record
@dataclasses.dataclass(frozen=True)
class Correlation:
    """Sums over the errors of the past, with an exponential memory.

    Attributes:
        products: Of the errors of two targets; in `running` with a first dimension of time.
        weight: Number of steps at which both were known.
    """

    products: Float[Tensor, "*batch target target"]
    weight: Float[Tensor, "*batch target target"]

    @classmethod
    def none(cls, series: int, targets: int, like: Tensor) -> "Correlation":
        """Return the sums before the first step."""
        zeros = like.new_zeros(series, targets, targets)
        return cls(zeros, zeros)

    def running(
        self, errors: Float[Tensor, "time target series"], seen: Bool[Tensor, "time target series"]
    ) -> "Correlation":
        """Return the sums before each of some steps, and behind the last, with time first."""
        known = seen.to(errors.dtype)
        # Steps that move all targets far, such as the first of a series, say hardly more than others.
        size = (errors * known).square().sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp_min(1)
        errors = errors * (size / _FAR**2).clamp_min(1.0).rsqrt()
        steps = torch.arange(len(errors) + 1, device=errors.device, dtype=errors.dtype)
        age = steps.unsqueeze(1) - 1 - steps[:-1]  # [t, s]: of the error of step s before step t
        share = torch.where(age >= 0, (-age / _MEMORY).exp(), 0.0)  # a step does not know its own error
        kept = (-steps / _MEMORY).exp()[:, None, None, None]  # of the sums before these steps
        sums = [torch.einsum("tis,tjs->tsij", x, x) for x in (errors * known, known)]
        products, weight = ((share @ x.flatten(1)).unflatten(1, x.shape[1:]) for x in sums)  # all steps by one product
        return Correlation(kept * self.products + products, kept * self.weight + weight)

    def matrix(self) -> Float[Tensor, "*batch target target"]:
        """Return correlations, shrunk to 0 as if as many steps as targets, and one, had shown none."""
        count = self.products.shape[-1]
        mean = self.products / self.weight.clamp_min(1e-6)  # pairs never seen together have products of 0, too
        scale = mean.diagonal(dim1=-2, dim2=-1).clamp_min(1e-12).rsqrt()
        found = mean * scale.unsqueeze(-1) * scale.unsqueeze(-2) * self.weight / (self.weight + count + 1)
        eye = torch.eye(count, dtype=found.dtype, device=found.device)
        found = torch.where(eye > 0, eye, found.clamp(-1.0, 1.0))
        values, vectors = torch.linalg.eigh(found)  # negative, perhaps, as pairs come from different steps
        found = (vectors * values.clamp_min(_LEAST).unsqueeze(-2)) @ vectors.mT
        scale = found.diagonal(dim1=-2, dim2=-1).rsqrt()  # raised eigenvalues took the diagonal off 1
        return found * scale.unsqueeze(-1) * scale.unsqueeze(-2)

    def log_density(
        self, errors: Float[Tensor, "time target series"], seen: Bool[Tensor, "time target series"]
    ) -> Float[Tensor, "time series"]:
        """Return the log-density of errors with the correlation, less that of independent ones."""
        known = seen.movedim(1, 2)
        both = known.unsqueeze(-1) & known.unsqueeze(-2)
        eye = torch.eye(errors.shape[1], dtype=errors.dtype, device=errors.device)
        factor = cholesky(torch.where(both, self.matrix(), eye), "the correlation of errors")
        own = torch.where(known, errors.movedim(1, 2), 0.0)
        white = solve_lower(factor, own)
        return -0.5 * (white.square().sum(-1) - own.square().sum(-1) + log_det(factor))


def block_cov(
    root: Float[Tensor, "target sample horizon horizon"],
    matrix: Float[Tensor, "target target"],
    is_known: Bool[Tensor, "target horizon"],
    target: int | None = None,
) -> tuple[Float[Tensor, "sample value known"], Float[Tensor, "sample known known"]]:
    """Return the covariances of all values, or those of a target, with the known ones, and of these.

    Args:
        root: Roots of the covariances in time of each target.
        matrix: Correlation between targets of what the roots multiply.
        is_known: The known values.
        target: The only target whose values are asked for; None for all.
    """
    owner = is_known.nonzero()[:, 0]
    known = root.transpose(0, 1)[:, is_known]  # sample known horizon
    asked = root if target is None else root[target : target + 1]
    share = matrix[:, owner] if target is None else matrix[target : target + 1, owner]
    cross = torch.einsum("dshj,skj->sdhk", asked, known) * share[:, None, :]
    return cross.flatten(1, 2), (known @ known.mT) * matrix[owner][:, owner]
