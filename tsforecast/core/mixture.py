"""Mixtures of Gaussians: the marginals of Rao-Blackwellised particles."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import symmetrise


@register_record
@dataclasses.dataclass(frozen=True)
class GaussianMixture:
    """sum_i w_i N(mean_i, cov_i) for every index of the batch.

    Attributes:
        log_weight: Normalised over the components, (component, *batch).
        components: Batch shape (component, *batch).
    """

    log_weight: Float[Tensor, "component *batch"]
    components: Gaussian

    @property
    def mean(self) -> Float[Tensor, "*batch dim"]:
        """Return the weighted mean of the means."""
        return (self.log_weight.exp().unsqueeze(-1) * self.components.mean).sum(0)

    @property
    def cov(self) -> Float[Tensor, "*batch dim dim"]:
        """Covariance within the components plus that of their means."""
        weight = self.log_weight.exp()[..., None, None]
        spread = self.components.mean - self.mean  # law of total covariance
        return symmetrise((weight * (self.components.cov + spread.unsqueeze(-1) * spread.unsqueeze(-2))).sum(0))

    @property
    def variance(self) -> Float[Tensor, "*batch dim"]:
        """Return the marginal variances of the mixture."""
        weight = self.log_weight.exp().unsqueeze(-1)
        return (weight * (self.components.variance + (self.components.mean - self.mean).square())).sum(0)

    def log_prob(self, value: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
        """Return the log-density of the mixture at a value."""
        return torch.logsumexp(self.log_weight + self.components.log_prob(value), 0)

    def cdf(self, value: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Marginal distribution functions, sum_i w_i Phi((value - m_i) / sd_i)."""
        deviation = self.components.variance.sqrt()
        # A component without variance is a step.
        standard = (value - self.components.mean) / deviation.clamp_min(torch.finfo(deviation.dtype).tiny)
        return (self.log_weight.exp().unsqueeze(-1) * torch.special.ndtr(standard)).sum(0)

    def quantile(self, level: float | Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Marginal quantiles: the roots of the distribution function, by bisection to the last digits.

        Args:
            level: In (0, 1).

        Raises:
            ValueError: If a level is outside (0, 1).
        """
        mean, deviation = self.components.mean, self.components.variance.sqrt()
        level = torch.as_tensor(level, dtype=mean.dtype, device=mean.device)
        if not bool(((level > 0) & (level < 1)).all()):
            raise ValueError("expected quantile levels between 0 and 1, both excluded")
        # The root lies between the smallest and the largest quantile of the components.
        ends = mean + deviation * torch.special.ndtri(level)
        low, high = ends.amin(0), ends.amax(0)
        # Each round halves the interval: one for each binary digit, and some.
        for _ in range(math.ceil(-math.log2(torch.finfo(mean.dtype).eps)) + 4):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)

    def sample(
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape dim"]:
        """Samples (*sample_shape, *batch, dim); not reparametrised in the weights."""
        batch, count = self.log_weight.shape[1:], math.prod(sample_shape)
        weight = self.log_weight.detach().exp().reshape(len(self.log_weight), -1).mT  # `multinomial` takes rows
        index = torch.multinomial(weight, count, replacement=True, generator=generator).mT  # a choice has no derivative
        index = index.reshape(count, *batch, 1)
        mean = self.components.mean.expand(*self.log_weight.shape, -1)
        cov = self.components.cov.expand(*mean.shape, -1)
        picked = Gaussian(
            mean.gather(0, index.expand(count, *mean.shape[1:])),
            cov.gather(0, index.unsqueeze(-1).expand(count, *cov.shape[1:])),
        )
        return picked.sample(generator=generator).reshape(*sample_shape, *batch, -1)
