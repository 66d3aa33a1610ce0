"""Proposals of switches and auxiliaries: samples of a prior times a stand-in for a likelihood."""

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record, unbind
from tsforecast.core.kernels import steps as kernels
from tsforecast.core.kernels.calls import serves
from tsforecast.core.linalg import LOG_2PI, add_diagonal, check_factor, cholesky, log_det, matvec, whiten
from tsforecast.core.linear import AbstractLinearGaussian
from tsforecast.core.torch_internals import normal

_PREDICTED = "the predictive covariance of a switch or auxiliary"
_PROPOSED = "the covariance of a proposal"


@register_record
@dataclasses.dataclass(frozen=True)
class DiagonalGaussian:
    """A Gaussian with independent components.

    Attributes:
        mean: Shape (*batch, dim).
        variance: Shape (*batch, dim).
    """

    mean: Float[Tensor, "*#batch dim"]
    variance: Float[Tensor, "*#batch dim"]

    def log_prob(self, value: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
        """Return the log-density, summed over the dimensions."""
        square = (value - self.mean).square() / self.variance
        return -0.5 * (square + self.variance.log() + LOG_2PI).sum(-1)


@runtime_checkable
class Likelihood(Protocol):
    """A decoder of an auxiliary has this density p(y_t | z_t)."""

    def log_prob(
        self, auxiliary: Tensor, value: Tensor, observed: Tensor | None, time: int
    ) -> Float[Tensor, "particle series"]:
        """Return the log-density of the observed components."""
        ...

    def sample(self, auxiliary: Tensor, time: int, generator: torch.Generator | None) -> Tensor:
        """Return observations given auxiliaries."""
        ...


def unbound(proposal: DiagonalGaussian) -> Callable[[int], DiagonalGaussian]:
    """Return a proposal step by step, see `gaussian.unbind`: with gradients also where the first steps have none."""
    with torch.enable_grad():
        return unbind(proposal)


def propose(
    conditional: AbstractLinearGaussian,
    prior: Gaussian,
    proposal: DiagonalGaussian | None = None,
    weight: Bool[Tensor, "*#batch"] | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "*batch out"], Float[Tensor, "*batch"], Gaussian]:
    """Samples b from p(b) q(b), renormalised, where p is a marginal and q stands for the likelihood; p(a | b) with it.

    With p(b) = N(mu, Sigma) and q = N(m, D), a sample is moved by Matheron's rule,

        b = b_0 + Sigma (Sigma + D)^{-1} (m + sqrt(D) e - b_0),    b_0 ~ p,
        log p(b) - log pi(b) = log N(m; mu, Sigma + D) - log q(b),

    so neither p nor the proposal pi is evaluated, and the factor of Sigma serves the conditioning too.

    Args:
        conditional: p(b | a).
        prior: Over `a`.
        proposal: q(b); None for p itself.
        weight: False where the proposal is ignored.
        generator: Of random numbers.

    Returns:
        The sample; log p - log pi at the sample; p(a | b).
    """
    mean, cross, cov = conditional.joint(prior)
    mean = mean.expand(cov.shape[:-1])
    noise = normal(mean.shape, mean, generator)
    guess = None, None, None, None
    if proposal is not None:
        guess = proposal.mean, proposal.variance, normal(mean.shape, mean, generator), weight
    tensors = prior.mean, prior.cov, mean, cross, cov, noise, *guess
    count = cov.shape[:-2].numel()
    if count == prior.cov.shape[:-2].numel() and serves(count, cross.shape[-2:], *tensors[:-1], masks=tensors[-1:]):
        sample, log_ratio, state, state_cov, failed = kernels.propose(_propose, *tensors)
        if failed is not None:
            check_factor((failed == 1).int(), ("series",), _PREDICTED)
            check_factor(failed, ("series",), _PROPOSED)
        return sample, log_ratio, Gaussian(state, state_cov)
    sample, log_ratio, state, state_cov = _propose(*tensors)
    return sample, log_ratio, Gaussian(state, state_cov)


def _propose(
    state: Tensor,
    state_cov: Tensor,
    mean: Tensor,
    cross: Tensor,
    cov: Tensor,
    noise: Tensor,
    guess: Tensor | None,
    variance: Tensor | None,
    guess_noise: Tensor | None,
    weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sample, log-ratio, mean and covariance of the state given the sample, by torch's operations."""
    factor = cholesky(cov, _PREDICTED)
    sample = mean + matvec(factor, noise)
    log_ratio = torch.zeros_like(mean[..., 0])
    if guess is not None:
        assert variance is not None
        assert guess_noise is not None
        total = cholesky(add_diagonal(cov, variance), _PROPOSED)
        noisy = guess + variance.sqrt() * guess_noise - sample  # Matheron's rule: a sample moved by its own noisy error
        # cov (Sigma + D)^{-1} noisy as a product of whitened ones
        columns = torch.stack([(guess - mean).expand(noisy.shape), noisy], -1)
        white = whiten(total, torch.cat([columns, cov], -1))  # one solve for both and the gain
        shift = matvec(white[..., 2:].mT, white[..., 1])
        log_total = -0.5 * (white[..., 0].square().sum(-1) + log_det(total) + mean.shape[-1] * LOG_2PI)
        if weight is not None:
            # Without an observation the prior itself is drawn from.
            shift = torch.where(weight.unsqueeze(-1), shift, 0.0)
        sample = sample + shift
        log_ratio = log_total - DiagonalGaussian(guess, variance).log_prob(sample)
        if weight is not None:
            log_ratio = torch.where(weight, log_ratio, 0.0)
    rhs = torch.cat([cross.expand(*factor.shape[:-1], -1), (sample - mean).unsqueeze(-1)], -1)
    white = whiten(factor, rhs)
    states = cross.shape[-1]
    update = white[..., :states].mT @ white  # one product for covariance and mean
    return sample, log_ratio, state + update[..., states], state_cov - update[..., :states]


def propose_diagonal(
    prior: DiagonalGaussian,
    proposal: DiagonalGaussian | None = None,
    weight: Bool[Tensor, "*#batch"] | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "*batch out"], Float[Tensor, "*batch"]]:
    """`propose` for a prior with independent components that tells nothing of `a`: sample, log p - log pi."""
    product = prior
    if proposal is not None:
        total = prior.variance + proposal.variance
        gain, rest = (prior.variance / total, proposal.variance / total)
        # As 1 - gain the rest would be 0 for a proposal that is very sure.
        if weight is not None:
            gain, rest = torch.where(weight.unsqueeze(-1), gain, 0.0), torch.where(weight.unsqueeze(-1), rest, 1.0)
        product = DiagonalGaussian(prior.mean + gain * (proposal.mean - prior.mean), prior.variance * rest)
    sample = product.mean + product.variance.sqrt() * normal(product.mean.shape, product.mean, generator)
    if proposal is None:
        return sample, torch.zeros_like(sample[..., 0])
    log_ratio = prior.log_prob(sample) - product.log_prob(sample)
    return sample, log_ratio if weight is None else torch.where(weight, log_ratio, 0.0)
