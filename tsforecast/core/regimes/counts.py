"""Counts with means and dispersions by regime."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.torch_internals import standard_gamma


@register_record
@dataclasses.dataclass(frozen=True)
class SwitchingCounts:
    """y_t given its regime: negative binomial, with mean mu = exp(m_t(s_t)) and variance mu + d(s_t) mu^2.

    Attributes:
        location: m, which holds the effects of covariates and the level of a series; of each step, or of all.
        dispersion: d; None for Poisson counts.
    """

    location: Float[Tensor, "time_or_1 #series regime"]
    dispersion: Float[Tensor, "#series regime"] | None = None

    lags = 0  # values before a step that it depends on
    memory = 1  # newest regimes that it depends on

    def log_density(self, values: Float[Tensor, "time series"]) -> Float[Tensor, "time series history"]:
        """Return log p(y_t | s_t) of every pair of regimes, the newer first.

        Args:
            values: Counts; others are rounded, and negative ones are 0.
        """
        # Of large counts float32 loses everything: terms of a million times log a million cancel.
        count = values.round().clamp_min(0.0).double().unsqueeze(-1)
        log_mean = self.location.double()
        if self.dispersion is None:
            found = count * log_mean - log_mean.exp() - torch.lgamma(count + 1)
        else:
            size = 1 / self.dispersion.double()
            odds = torch.nn.functional.softplus(log_mean - size.log())  # log(1 + mu / size)
            binomial = torch.lgamma(count + size) - torch.lgamma(size) - torch.lgamma(count + 1)
            found = binomial - size * odds + count * (log_mean - size.log() - odds)
        return found.to(values.dtype).repeat_interleave(found.shape[-1], -1)

    def state(self, values: Float[Tensor, "time series"]) -> Gaussian:
        """Return a state without meaning: counts depend on regimes alone.

        Returns:
            A Gaussian of batch shape (regime, series).
        """
        mean = values.new_zeros(self.location.shape[-1], values.shape[-1], 1)
        return Gaussian(mean, mean.unsqueeze(-1))

    def sample(
        self, states: Int[Tensor, "time sample series"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "time sample series"]:
        """Return counts of paths of regimes.

        Args:
            states: Regimes of each path; where the location varies, of its steps.
            generator: Source of random numbers.
        """

        def of(x: Tensor) -> Tensor:  # (#time, #series, regime)
            wide = x.unsqueeze(1).expand(len(states), states.shape[1], states.shape[2], -1)
            return wide.gather(-1, states.unsqueeze(-1)).squeeze(-1)

        rate = of(self.location).exp()
        if self.dispersion is not None:
            dispersion = of(self.dispersion.unsqueeze(0))
            # A Poisson with a gamma rate is negative binomial.
            rate = rate * standard_gamma(1 / dispersion, generator) * dispersion
        return torch.poisson(rate.detach(), generator=generator)  # counts have no derivative
