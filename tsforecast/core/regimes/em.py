"""Expectation-maximisation for Markov-switching regressions, each step in closed form."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import LOG_2PI
from tsforecast.core.regimes.chain import smooth, stationary


@register_record
@dataclasses.dataclass(frozen=True)
class SwitchingRegression:
    """y_t ~ N(b(s_t)' z_t, v(s_t)) with regimes in a chain; lags of y may be among the regressors z.

    Attributes:
        coefficient: b.
        variance: v.
        log_transition: log p(s_t = j | s_{t-1} = i) in row i and column j.
        initial: log p(s_0) before the first step; None for the stationary distribution.
    """

    coefficient: Float[Tensor, "regime regressor"]
    variance: Float[Tensor, " regime"]
    log_transition: Float[Tensor, "regime regime"]
    initial: Float[Tensor, " regime"] | None = None

    def log_density(
        self, design: Float[Tensor, "time series regressor"], values: Float[Tensor, "time series"]
    ) -> Float[Tensor, "time series history"]:
        """Return log p(y_t | s_t) of every pair of regimes, the newer first."""
        residual = values.unsqueeze(-1) - design @ self.coefficient.mT
        log_density = -0.5 * (residual.square() / self.variance + self.variance.log() + LOG_2PI)
        return log_density.repeat_interleave(len(self.variance), -1)


def em_step(
    model: SwitchingRegression,
    design: Float[Tensor, "time series regressor"],
    values: Float[Tensor, "time series"],
    observed: Bool[Tensor, "time series"] | None = None,
    *,
    shared: tuple[int, ...] = (),
    shared_variance: bool = False,
    floor: float = 0.0,
) -> tuple[SwitchingRegression, Float[Tensor, " series"]]:
    """Return the parameters after one step of expectation-maximisation (Hamilton 1990), shared by all series.

    Given the smoothed regimes, transitions are shares of pairs, coefficients a weighted least squares, and variances
    weighted squares. With shared coefficients, the least squares is that of all regimes at once, for the variances as
    they were; then a step raises the likelihood as well (a generalised EM, Meng and Rubin 1993).

    Args:
        model: The present parameters.
        design: Regressors; finite everywhere.
        values: What is explained; finite everywhere.
        observed: False where a value or one of its regressors is missing; None if nothing is.
        shared: Numbers of the regressors whose coefficients all regimes share.
        shared_variance: Whether all regimes share the variance.
        floor: Least variance. A regime that has a single value to itself has a likelihood without bound.

    Returns:
        The new parameters, and the log-likelihood of every series under the *old* ones. Summed over series it never
        falls from one step to the next, unless the initial distribution is the stationary one, or the floor is met.

    Raises:
        ValueError: If there is no value.
    """
    if observed is not None and not bool(observed.any()):
        raise ValueError("expected at least one value, got none that is observed with all its regressors")
    seen = torch.ones_like(values) if observed is None else observed.to(values.dtype)
    density = torch.where(seen.unsqueeze(-1) > 0, model.log_density(design, values), 0.0)
    initial = stationary(model.log_transition) if model.initial is None else model.initial
    belief = initial.expand(values.shape[1], -1)
    smoothed = smooth(model.log_transition[None, None], density, belief)
    weight = (smoothed.probabilities * seen.unsqueeze(-1)).flatten(0, 1)
    pairs = smoothed.pairs.sum((0, 1))
    tiny = torch.finfo(values.dtype).tiny
    transition = (pairs.clamp_min(tiny) / pairs.sum(-1, keepdim=True).clamp_min(tiny)).log()
    coefficient = _least_squares(model, weight, design.flatten(0, 1), values.flatten(), shared)
    squares = (values.flatten().unsqueeze(-1) - design.flatten(0, 1) @ coefficient.mT).square()
    total, count = (weight * squares).sum(0), weight.sum(0)
    if shared_variance:
        total, count = total.sum().expand_as(total), count.sum().expand_as(count)
    variance = torch.where(count > tiny, total / count.clamp_min(tiny), model.variance).clamp_min(floor)
    before = None if model.initial is None else smoothed.pairs[0].sum(-1).mean(0).clamp_min(tiny).log()
    return SwitchingRegression(coefficient, variance, transition, before), smoothed.log_likelihood.sum(0)


def _least_squares(
    model: SwitchingRegression, weight: Tensor, design: Tensor, values: Tensor, shared: tuple[int, ...]
) -> Float[Tensor, "regime regressor"]:
    """Return the coefficients that minimise the squares weighted by the regimes' probabilities and precisions."""
    regimes, size = model.coefficient.shape
    own = [number for number in range(size) if number not in shared]
    kind: dict[str, Any] = {"dtype": values.dtype, "device": values.device}
    # Each coefficient of each regime is one of the free numbers: those of the regimes, then those that are shared.
    choose = torch.zeros(regimes, size, regimes * len(own) + len(shared), **kind)
    for k in range(regimes):
        choose[k, own, torch.arange(len(own)) + k * len(own)] = 1
        choose[k, list(shared), torch.arange(len(shared)) + regimes * len(own)] = 1
    precise = weight / model.variance if shared else weight
    moments = torch.einsum("nk,ni,nj->kij", precise, design, design)
    cross = torch.einsum("nk,ni,n->ki", precise, design, values)
    among = torch.einsum("kia,kij,kjb->ab", choose, moments, choose)
    towards = torch.einsum("kia,ki->a", choose, cross)
    # The smallest solution where regressors are collinear, or a regime is never visited.
    free = torch.linalg.pinv(among, hermitian=True) @ towards
    return choose @ free
