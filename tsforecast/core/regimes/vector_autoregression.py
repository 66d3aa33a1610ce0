"""Vector autoregressions with intercepts, coefficients and covariances that depend on the regime."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import LOG_2PI, matvec, solve_lower, symmetrise
from tsforecast.core.linear import AbstractByMoments, AbstractLinearGaussian, LinearGaussian, condition, with_noise
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.shapes import Drawn, Given, JointMoments, Observed, Posterior, Value
from tsforecast.core.torch_internals import normal


@register_record
@dataclasses.dataclass(frozen=True)
class SwitchingVectorAutoregression:
    """y_t ~ N(m_t(s_t) + sum_l A_l(s_t) y_{t-l}, F(s_t) F(s_t)') of several targets (Krolzig 1997, chapter 1).

    Attributes:
        location: m, which holds the effects of covariates; of each step, or of all.
        coefficient: (A_1, A_2, .., A_L), side by side; 0 for a lag that is left out.
        factor: F, lower triangular with a positive diagonal.
    """

    location: Float[Tensor, "time_or_1 #series regime target"]
    coefficient: Float[Tensor, "#series regime target lagged"]
    factor: Float[Tensor, "#series regime target target"]

    memory = 1  # newest regimes that a step depends on

    @property
    def lags(self) -> int:
        """Return L, the number of values before a step that it depends on."""
        return self.coefficient.shape[-1] // self.factor.shape[-1]

    def log_density(self, values: Float[Tensor, "steps series target"]) -> Float[Tensor, "time series history"]:
        """Return log p(y_t | s_t, y_{t-1}, ...) of every pair of regimes, the newer first, from step L on.

        Args:
            values: Those of the first L steps, and those whose densities are asked for; all of them observed. Where the
                location varies, it is that of all these steps.
        """
        lags = self.lags
        location = self.location if len(self.location) == 1 else self.location[lags:]
        residual = values[lags:].unsqueeze(-2) - location
        if lags:
            before = self._stacked(values)[:-1].unsqueeze(-2)
            residual = residual - matvec(self.coefficient, before)
        white = solve_lower(self.factor, residual)
        log_scale = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        found = -0.5 * (white.square().sum(-1) + white.shape[-1] * LOG_2PI) - log_scale
        return found.repeat_interleave(found.shape[-1], -1)

    def _stacked(self, values: Tensor) -> Float[Tensor, "time series state"]:
        """Return the states from the last of the first L values on, the newest value first."""
        windows = values.unfold(0, max(self.lags, 1), 1)  # time, series, target, lag
        return windows.flip(-1).transpose(-1, -2).flatten(-2)

    def state(self, values: Float[Tensor, "steps series target"]) -> Gaussian:
        """Return the state behind values that are all known: it has no variance.

        Args:
            values: At least L of them, and one.

        Returns:
            A Gaussian of batch shape (regime, series).
        """
        newest = self._stacked(values)[-1]
        mean = newest.expand(self.location.shape[-2], *newest.shape)
        return Gaussian(mean, torch.zeros((), dtype=mean.dtype, device=mean.device).expand(*mean.shape, mean.shape[-1]))

    def regime(self, switch: Float[Tensor, "*batch regime"], time: int, nugget: float = 0.0) -> Regime:
        """Return the linear-Gaussian step that regimes choose, with (y_t, ..., y_{t-L+1}) as its state.

        Args:
            switch: One-hot regimes; the batch ends with the series.
            time: Index of the step.
            nugget: Variance of a noise of the observation, as a share of that of the targets.
        """
        location = self.location[time if len(self.location) > 1 else 0]
        offset = (location * switch.unsqueeze(-1)).sum(-2)
        of_regime = switch[..., None, None]
        factor = (self.factor * of_regime).sum(-3)
        row = (self.coefficient * of_regime).sum(-3)
        if not self.lags:
            row = torch.zeros_like(factor)  # a state must have entries, from which the values are read
        noise = nugget * factor.square().sum(-1)
        return Regime(VectorCompanion(row, offset, factor), FirstEntries(noise, row.shape[-1]))


@register_record
@dataclasses.dataclass(frozen=True)
class VectorCompanion(AbstractByMoments):
    """x_t given x_{t-1}: new first entries, row x_{t-1} + offset + factor e; the others move on by as many places.

    Attributes:
        row: Coefficients of the new entries.
        offset: What is added to them.
        factor: Of their noise, lower triangular.
    """

    row: Float[Tensor, "*#batch target state"]
    offset: Float[Tensor, "*#batch target"]
    factor: Float[Tensor, "*#batch target target"]

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predicted belief."""
        return self.dense().marginal(prior)

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the state moved on, with noise in its first entries."""
        mean = matvec(self.row, value) + self.offset
        new = mean + matvec(self.factor, normal(mean.shape, mean, generator))
        return torch.cat([new, value[..., : -new.shape[-1]].expand(*new.shape[:-1], -1)], -1)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        targets, size = self.row.shape[-2:]
        eye = torch.eye(size, dtype=self.row.dtype, device=self.row.device)
        shift = eye[:-targets].expand(*self.row.shape[:-2], -1, -1)
        more = size - targets
        # Older values move on without noise.
        noise = torch.nn.functional.pad(self.factor @ self.factor.mT, (0, more, 0, more))
        offset = torch.nn.functional.pad(self.offset, (0, more))
        return LinearGaussian(torch.cat([self.row, shift], -2), offset, noise)


@register_record
@dataclasses.dataclass(frozen=True)
class FirstEntries(AbstractLinearGaussian):
    """p(y_t | x_t): the first entries with hardly any noise, or none, so that observed values have no variance left.

    Attributes:
        noise: Variances; all 0 for none.
        num_states: Size of the state.
    """

    noise: Float[Tensor, "*#batch target"]
    num_states: int

    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """Return the belief after an observation; rounding leaves no variance to known values."""
        mean, cross, among = self.joint(prior)
        belief, log_prob = condition(prior, value - mean, cross, among, observed)
        seen = torch.ones_like(value, dtype=torch.bool) if observed is None else observed
        targets = self.noise.shape[-1]
        known = (seen & (self.noise == 0)).expand(*log_prob.shape, -1)  # with a nugget, a value is not known exactly
        free = torch.nn.functional.pad((~known).to(belief.cov.dtype), (0, self.num_states - targets), value=1.0)
        first = torch.where(known, value, belief.mean[..., :targets])
        # Rounding must not leave a variance to what is known.
        cov = symmetrise(belief.cov) * free.unsqueeze(-1) * free.unsqueeze(-2)
        return Gaussian(torch.cat([first, belief.mean[..., targets:].expand(*first.shape[:-1], -1)], -1), cov), log_prob

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of the observation, its covariance with the state, and its own."""
        targets = self.noise.shape[-1]
        among = prior.cov[..., :targets, :targets] + torch.diag_embed(self.noise)
        return prior.mean[..., :targets], prior.cov[..., :targets, :], among

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the first entries, with their noise."""
        return with_noise(value[..., : self.noise.shape[-1]], self.noise, generator)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        matrix = torch.eye(self.num_states, dtype=self.noise.dtype, device=self.noise.device)[: self.noise.shape[-1]]
        matrix = matrix.expand(*self.noise.shape[:-1], -1, -1)
        return LinearGaussian(matrix, torch.zeros_like(self.noise), torch.diag_embed(self.noise))
