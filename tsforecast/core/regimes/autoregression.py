"""Autoregressions with intercepts, means, coefficients and noises that depend on the regime."""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.innovation import ISSMEmission
from tsforecast.core.linalg import LOG_2PI, matvec, symmetrise
from tsforecast.core.linear import (
    AbstractByMoments,
    AbstractLinearGaussian,
    LinearGaussian,
    condition_scalar,
    with_noise,
)
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.shapes import Drawn, Given, JointMoments, Observed, Posterior, Value


@register_record
@dataclasses.dataclass(frozen=True)
class SwitchingAutoregression:
    """y_t given the newest regimes and the values before it, in one of two forms (Krolzig 1997, chapter 1).

        intercept:  y_t ~ N(m_t(s_t) + sum_l a_l(s_t) y_{t-l}, v(s_t)),
        mean:       y_t ~ N(m_t(s_t) + sum_l a_l(s_t) (y_{t-l} - m_{t-l}(s_{t-l})), v(s_t)).

    In the first form a new regime moves y slowly to its new mean, and only the newest regime matters. In the second,
    that of Hamilton (1989), it moves y at once, and the regimes of all lags matter. Without lags both are a regression.

    Attributes:
        location: m, which holds the effects of covariates; of each step, or of all.
        coefficient: a, of the lags 1, 2, .., L; 0 for a lag that is left out.
        log_scale: log v / 2.
        of_mean: Whether it has the second form.
    """

    location: Float[Tensor, "time_or_1 #series regime"]
    coefficient: Float[Tensor, "#series regime lag"]
    log_scale: Float[Tensor, "#series regime"]
    of_mean: bool = False

    @property
    def lags(self) -> int:
        """Return L, the number of values before a step that it depends on."""
        return self.coefficient.shape[-1]

    @property
    def memory(self) -> int:
        """Return the number of newest regimes that a belief must hold, so that a step has all it depends on."""
        return max(self.lags, 1) if self.of_mean else 1

    def log_density(self, values: Float[Tensor, "steps series"]) -> Float[Tensor, "time series history"]:
        """Return log p(y_t | s_t, ..., s_{t-n}, y_{t-1}, ...) of every history, from step L on.

        Histories are those of `core.regimes.chain`. Where the location varies, it is that of all the given steps.

        Args:
            values: Those of the first L steps, and those whose densities are asked for; all of them observed.
        """
        lags, steps = self.lags, len(values) - self.lags
        own = values[lags:].unsqueeze(-1) - self._location(0, lags, steps)
        for lag in range(1, lags + 1):
            own = own - self.coefficient[..., lag - 1] * values[lags - lag : lags - lag + steps].unsqueeze(-1)
        memory, regimes = self.memory, own.shape[-1]
        shape = (*own.shape, *[regimes] * memory)
        residual = own.reshape(*own.shape, *[1] * memory)  # a dimension for each regime back
        if self.of_mean:
            for lag in range(1, lags + 1):
                moved = self.coefficient[..., lag - 1].unsqueeze(-1) * self._location(lag, lags, steps).unsqueeze(-2)
                ones = [1] * (memory - lag)
                residual = residual + moved.reshape(*moved.shape[:-1], *[1] * (lag - 1), regimes, *ones)
        log_scale = self.log_scale.reshape(*self.log_scale.shape, *[1] * memory)
        white = residual * (-log_scale).exp()
        return (-0.5 * (white.square() + LOG_2PI) - log_scale).expand(shape).flatten(2)

    def _location(self, lag: int, lags: int, steps: int) -> Tensor:
        """Return m of the steps that are so many before those from step L on."""
        return self.location if len(self.location) == 1 else self.location[lags - lag : lags - lag + steps]

    def state(self, values: Float[Tensor, "steps series"]) -> Gaussian:
        """Return the state behind values that are all known, see `regime`: it has no variance.

        Args:
            values: At least L of them; locations that vary are of these steps.

        Returns:
            A Gaussian of batch shape (memory, series).
        """
        lags, regimes = self.lags, self.location.shape[-1]
        size = max(lags, 1)
        newest = values[-size:].flip(0).T  # series, lag
        mean = newest.expand(regimes**self.memory, *newest.shape)  # one for each memory, all with the same known values
        if self.of_mean:
            digits = regimes_of(regimes, self.memory, values.device)  # memory, lag
            location = self.location.expand(max(len(self.location), size), newest.shape[0], regimes)[-size:].flip(0)
            mean = mean - location.permute(1, 0, 2)[:, torch.arange(size), digits].transpose(0, 1)
        return Gaussian(mean, torch.zeros((), dtype=mean.dtype, device=mean.device).expand(*mean.shape, size))

    def regime(self, switch: Float[Tensor, "*batch regime"], time: int, nugget: float = 0.0) -> Regime:
        """Return the linear-Gaussian step that regimes choose, with the last L values as its state.

        The state is (y_t, ..., y_{t-L+1}), or in the second form these values less their means.

        Args:
            switch: One-hot regimes; the batch ends with the series.
            time: Index of the step.
            nugget: Variance of a noise of the observation, as a share of v, for algorithms which need one.
        """
        location = (self.location[time if len(self.location) > 1 else 0] * switch).sum(-1)
        row = (switch.unsqueeze(-2) @ self.coefficient).squeeze(-2)
        variance = (2 * (self.log_scale * switch).sum(-1)).exp()
        if not self.lags:
            row = torch.zeros_like(switch[..., :1])  # a state must have an entry, from which the value is read
        none = torch.zeros_like(location)
        of_state, of_value = (none, location) if self.of_mean else (location, none)
        emission: AbstractLinearGaussian = FirstEntry(of_value, row.shape[-1])
        if nugget:
            index = torch.zeros(1, dtype=torch.long, device=switch.device)
            emission = ISSMEmission(index, of_value, nugget * variance, row.shape[-1])
        return Regime(CompanionTransition(row, of_state, variance), emission)


def regimes_of(regimes: int, length: int, device: torch.device | None = None) -> Int[Tensor, "memory place"]:
    """Return the regimes of each memory, the newest first: the digits of its number."""
    grid = torch.meshgrid(*[torch.arange(regimes, device=device)] * length, indexing="ij")
    return torch.stack([x.flatten() for x in grid], -1)


def known_lags(observed: Bool[Tensor, "time series"], lags: int) -> Bool[Tensor, "time series"]:
    """Return a mask of steps with all `lags` values before them observed; no value is before the first step."""
    before = torch.cat([torch.zeros_like(observed[:1]).expand(lags, -1), observed])
    return before[:-1].unfold(0, lags, 1).all(-1) if lags else torch.ones_like(observed)


@register_record
@dataclasses.dataclass(frozen=True)
class CompanionTransition(AbstractByMoments):
    """x_t given x_{t-1}: a new first entry, row' x_{t-1} + offset + noise; the others move on by one place.

    Attributes:
        row: Coefficients of the new entry.
        offset: What is added to it.
        variance: Variance of its noise.
    """

    row: Float[Tensor, "*#batch state"]
    offset: Float[Tensor, "*#batch"]
    variance: Float[Tensor, "*#batch"]

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predicted belief, in O(L^2)."""
        mean, _, cov = self.joint(prior)
        return Gaussian(mean, symmetrise(cov))

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of the later state, its covariance with the earlier one, and its own."""
        new = matvec(prior.cov, self.row)
        mean = (self.row * prior.mean).sum(-1) + self.offset
        own = (self.row * new).sum(-1) + self.variance
        batch = torch.broadcast_shapes(mean.shape, own.shape)
        size = self.row.shape[-1]
        shifted, wide = prior.mean[..., :-1].expand(*batch, -1), prior.cov.expand(*batch, -1, -1)
        among = torch.cat([own.expand(batch).unsqueeze(-1), new[..., :-1].expand(*batch, -1)], -1)
        below = torch.cat([new[..., :-1, None].expand(*batch, -1, -1), wide[..., :-1, :-1]], -1)
        cross = torch.cat([new.expand(*batch, -1).unsqueeze(-2), wide[..., : size - 1, :]], -2)
        cov = torch.cat([among.unsqueeze(-2), below], -2)
        return torch.cat([mean.expand(batch).unsqueeze(-1), shifted], -1), cross, cov

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the state moved on, with noise in its first entry."""
        mean = ((self.row * value).sum(-1) + self.offset).unsqueeze(-1)
        new = with_noise(mean, self.variance.unsqueeze(-1), generator)
        return torch.cat([new, value[..., :-1].expand(*new.shape[:-1], -1)], -1)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        size = self.row.shape[-1]
        batch = torch.broadcast_shapes(self.row.shape[:-1], self.offset.shape, self.variance.shape)
        eye = torch.eye(size, dtype=self.row.dtype, device=self.row.device)
        shift = eye[:-1].expand(*batch, -1, -1)
        matrix = torch.cat([self.row.expand(*batch, -1).unsqueeze(-2), shift], -2)
        # Older values move on without noise.
        offset, noise = (x.expand(batch).unsqueeze(-1) * eye[0] for x in (self.offset, self.variance))
        return LinearGaussian(matrix, offset, torch.diag_embed(noise))


@register_record
@dataclasses.dataclass(frozen=True)
class FirstEntry(AbstractLinearGaussian):
    """p(y_t | x_t): the first entry and an offset, without noise, so that observed values have no variance left.

    Attributes:
        offset: What is added.
        num_states: Size of the state.
    """

    offset: Float[Tensor, "*#batch"]
    num_states: int

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predictive density of the observation."""
        return Gaussian((prior.mean[..., 0] + self.offset).unsqueeze(-1), prior.cov[..., :1, :1])

    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """Return the belief after an observation, by a scalar division and an outer product."""
        seen = None if observed is None else observed[..., 0]
        first = value[..., 0] - self.offset
        cross, variance = prior.cov[..., 0, :], prior.cov[..., 0, 0]
        belief, log_prob = condition_scalar(prior, first - prior.mean[..., 0], cross, variance, seen)
        if seen is not None:
            first = torch.where(seen, first, prior.mean[..., 0])
        first = first.expand(log_prob.shape).unsqueeze(-1)
        free = torch.ones_like(belief.cov[..., 0])  # rounding must not leave a variance to what is known
        free[..., 0] = 0.0 if seen is None else (~seen).to(free.dtype)
        cov = belief.cov * free.unsqueeze(-1) * free.unsqueeze(-2)
        return Gaussian(torch.cat([first, belief.mean[..., 1:].expand(*log_prob.shape, -1)], -1), cov), log_prob

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of the observation, its covariance with the state, and its variance."""
        observation = self.marginal(prior)
        return observation.mean, prior.cov[..., :1, :], observation.cov

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the first entry and the offset."""
        return (value[..., 0] + self.offset).unsqueeze(-1)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        matrix = torch.eye(self.num_states, dtype=self.offset.dtype, device=self.offset.device)[:1]
        matrix = matrix.expand(*self.offset.shape, -1, -1)
        return LinearGaussian(matrix, self.offset.unsqueeze(-1), torch.zeros_like(matrix[..., :1]))
