"""The moments of every step: filter, smooth, simulate and forecast with any linear system, by the loop over its steps.

All functions take any system through `at(time)`; any leading batch dimensions (particle, series) broadcast, and a
covariance that is the same for many series is computed once. Gradients are ordinary autograd, of any order; where only
the likelihood of a series and its last belief are asked for, `AbstractLinearSystem.posterior` is much faster. A part of
a system is named by `first`, the index of its first step: filtering on from a belief equals filtering at once.
"""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import broadcast_shapes, check_factor, cholesky, mask_rows, matvec, solve_lower, symmetrise
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.loop.scan import scan
from tsforecast.core.system import AbstractLinearSystem


@register_record
@dataclasses.dataclass(frozen=True)
class Filtered:
    """Beliefs over the state x_t of every step; dimensions (time, *batch, ...), of size 1 where all series share one.

    Attributes:
        predicted: Given y_1, ..., y_{t-1}.
        filtered: Given y_1, ..., y_t.
        log_likelihood: log p(y_t | y_1, ..., y_{t-1}) of the observed components, (time, *batch).
        belief: Over the last state: the prior of the next time slice of data.
    """

    predicted: Gaussian
    filtered: Gaussian
    log_likelihood: Float[Tensor, "time *batch"]
    belief: Gaussian


@register_record
@dataclasses.dataclass(frozen=True)
class Smoothed:
    """Beliefs over the states given all of the data; dimensions as in `Filtered`.

    Attributes:
        initial: Over x_0, the state before the first step.
        states: Over x_1, ..., x_T.
        cross: Cov(x_t, x_{t-1}) for t = 1, ..., T, (time, *batch, state, state).
        log_likelihood: As in `Filtered`, (time, *batch).
    """

    initial: Gaussian
    states: Gaussian
    cross: Float[Tensor, "time *#batch state state"]
    log_likelihood: Float[Tensor, "time *batch"]


def filter(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None = None,
    first: int = 0,
) -> Filtered:
    """Return the moments of every step given the observations until then: the Kalman filter.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        prior: Over the state before step `first`.
        values: Finite everywhere; without influence where not observed.
        observed: False where a component of an observation is missing; None if there is no such.
        first: Index of the step which leads to the first of the `values`.

    Raises:
        NotPositiveDefiniteError: Naming step and series, where a predictive covariance cannot be factorised or a
            likelihood is not finite. Steps are counted from the first of the `values`.
    """
    belief, (predicted, filtered, log_likelihood) = _filter(system, prior, values, observed, first)
    predicted, filtered = _aligned(log_likelihood.ndim - 1, predicted, filtered)
    return Filtered(predicted, filtered, log_likelihood, belief)


def _filter(
    system: AbstractLinearSystem, prior: Gaussian, values: Tensor, observed: Tensor | None, first: int
) -> tuple[Gaussian, tuple[Gaussian, Gaussian, Tensor]]:
    """The last belief; and predicted, filtered, log-likelihood as they come, a shared covariance as (time, n, n)."""
    at = system.by_step()

    def step(belief: Gaussian, x: tuple) -> tuple[Gaussian, tuple]:
        time, value, mask = x
        transition, emission = at(time)
        predicted = transition.marginal(belief)
        belief, log_likelihood = emission.posterior(predicted, value, mask)
        return belief, (predicted, belief, log_likelihood)

    times = range(first, first + values.shape[0])
    belief, stacks = scan(step, prior, (times, values, observed), first=first)
    log_likelihood = stacks[2]
    names = ("step", *["particle"] * (log_likelihood.ndim - 2), "series")  # the message names what its dimensions count
    check_factor((~log_likelihood.isfinite()).int(), names, "the predictive covariance of an observation")
    return belief, stacks


def _aligned(batch_ndim: int, *stacks: Any) -> tuple[Any, ...]:
    """Stacks over time, of Gaussians or tensors with two event dimensions, with as many batch dimensions."""

    def pad(x: Tensor, event_ndim: int) -> Tensor:
        return x.reshape(x.shape[0], *[1] * (batch_ndim + 1 + event_ndim - x.ndim), *x.shape[1:])

    return tuple(Gaussian(pad(x.mean, 1), pad(x.cov, 2)) if isinstance(x, Gaussian) else pad(x, 2) for x in stacks)


def smooth(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None = None,
    first: int = 0,
) -> Smoothed:
    """The smoother without an inverse of a state's covariance, since this may be singular.

    With predicted covariance V^-, gain K = V^- C' S^{-1} and residual v of the filter, backwards from r = 0 and N = 0:

        r_t = C' S^{-1} v_t + (I - K C)' A_{t+1}' r_{t+1}
        N_t = C' S^{-1} C + (I - K C)' A_{t+1}' N_{t+1} A_{t+1} (I - K C)
        E[x_t | Y] = m_t + V_t A_{t+1}' r_{t+1},    Cov[x_t | Y] = V_t - V_t A_{t+1}' N_{t+1} A_{t+1} V_t
        Cov[x_t, x_{t-1} | Y] = (I - V^-_t N_t) A_t V_{t-1}

    with m_t, V_t of the filter (de Jong 1989; Durbin and Koopman 2012, section 4.4). Where the smoother of Rauch,
    Tung and Striebel exists, it gives the same.

    Args:
        system: See `filter`.
        prior: See `filter`.
        values: See `filter`.
        observed: See `filter`.
        first: See `filter`.

    Raises:
        NotPositiveDefiniteError: As `filter` does.
    """
    _, (predicted, filtered, log_likelihood) = _filter(system, prior, values, observed, first)
    at, mean, cov = system.by_step(), filtered.mean, filtered.cov
    # The belief before each step, for the covariance across it.
    before = torch.cat([prior.cov.expand(cov.shape[1:]).unsqueeze(0), cov[:-1]])

    def step(later: Gaussian, x: tuple) -> tuple[Gaussian, tuple]:
        """`later` holds A' r and A' N A of the step after this one."""
        time, value, mask, predicted, filtered, before = x
        # A step back is made of products of matrices anyway.
        transition, emission = (conditional.dense() for conditional in at(time))
        smoothed = _correct(filtered, later)
        score, information = _observe(emission, predicted, value, mask)
        keep = -information @ predicted.cov  # (I - K C)' = I - C' S^{-1} C V^-
        keep.diagonal(dim1=-2, dim2=-1).add_(1)
        score = score + matvec(keep, later.mean)
        # As in Joseph's form, a sum of squares stays positive.
        information = symmetrise(information + keep @ later.cov @ keep.mT)
        moved = transition.matrix @ before
        cross = moved - predicted.cov @ (information @ moved)
        back = transition.matrix.mT
        later = Gaussian(matvec(back, score), symmetrise(back @ information @ transition.matrix))
        return later, (smoothed, cross)

    nothing = Gaussian(torch.zeros_like(mean[0]), torch.zeros_like(cov[0]))  # nothing comes after the last step
    times = range(first, first + values.shape[0])
    later, stacks = scan(step, nothing, (times, values, observed, predicted, filtered, before), reverse=True)
    states, cross = _aligned(log_likelihood.ndim - 1, *stacks)
    return Smoothed(_correct(prior, later), states, cross, log_likelihood)


def _correct(belief: Gaussian, later: Gaussian) -> Gaussian:
    """The belief given later observations, by their score and information."""
    mean = belief.mean + matvec(belief.cov, later.mean)
    return Gaussian(mean, symmetrise(belief.cov - belief.cov @ later.cov @ belief.cov))


def _observe(
    emission: LinearGaussian, predicted: Gaussian, value: Tensor, observed: Tensor | None
) -> tuple[Tensor, Tensor]:
    """C' S^{-1} v and C' S^{-1} C of the observed components."""
    residual = value - matvec(emission.matrix, predicted.mean) - emission.offset
    matrix, among = emission.matrix, emission.marginal(predicted).cov
    if observed is not None:
        residual = torch.where(observed, residual, 0.0)  # a missing value may be any number
        matrix, among = mask_rows(matrix, among, observed)
    # Factorised again, since the filter keeps moments, not factors.
    factor = cholesky(among, "the predictive covariance of an observation")
    white = torch.linalg.solve_triangular(factor, matrix, upper=False)
    return matvec(white.mT, solve_lower(factor, residual)), white.mT @ white


def forecast(
    system: AbstractLinearSystem, prior: Gaussian, num_steps: int, first: int = 0
) -> tuple[Gaussian, Gaussian]:
    """Predictive moments of states and observations of every step, (time, *batch, ...), given nothing more.

    Their joint distribution over the steps: `AbstractLinearSystem.predictive`.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        prior: Over the state before step `first`, for example the belief of a filter.
        num_steps: At least 1.
        first: Index of the first step.
    """
    at = system.by_step()

    def step(belief: Gaussian, time: int) -> tuple[Gaussian, tuple[Gaussian, Gaussian]]:
        transition, emission = at(time)
        belief = transition.marginal(belief)
        return belief, (belief, emission.marginal(belief))

    _, (states, observations) = scan(step, prior, range(first, first + num_steps), first=first)
    return _aligned(observations.mean.ndim - 2, states, observations)


def simulate(
    system: AbstractLinearSystem,
    prior: Gaussian,
    num_steps: int,
    num_samples: int,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> tuple[Float[Tensor, "time sample *batch state"], Float[Tensor, "time sample *batch target"]]:
    """Sample paths of states x_1, ..., x_T and observations, reparametrised.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        prior: Over the state before step `first`; the belief of a filter makes the paths forecasts.
        num_steps: At least 1.
        num_samples: Paths for each index of the batch.
        generator: Of the random numbers.
        first: Index of the first step.

    Returns:
        States, observations.
    """
    # Every index of the batch has a start of its own, also where the prior is the same for all.
    at = system.by_step()
    transition, emission = at(first)
    batch = emission.marginal(transition.marginal(prior)).batch_shape
    start = Gaussian(prior.mean.expand(*batch, prior.mean.shape[-1]), prior.cov).sample((num_samples,), generator)
    known = torch.zeros_like(prior.cov[(0,) * (prior.cov.ndim - 2)])  # a known state is a Gaussian without variance

    def step(state: Tensor, time: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        transition, emission = at(time)
        state = transition.marginal(Gaussian(state, known)).sample(generator=generator)
        return state, (state, emission.marginal(Gaussian(state, known)).sample(generator=generator))

    return scan(step, start, range(first, first + num_steps), first=first)[1]


def sample_posterior(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None,
    num_samples: int,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> Float[Tensor, "time sample *batch state"]:
    """Joint samples of the states x_1, ..., x_T given the data, reparametrised.

    A path x and its data are simulated from the prior. Then x + E[x | values] - E[x | simulated values] is a path of
    the posterior (Durbin and Koopman 2002). No covariance of a state is inverted.

    Args:
        system: See `filter`.
        prior: See `filter`.
        values: See `filter`.
        observed: See `filter`.
        num_samples: Paths for each index of the batch.
        generator: Of the random numbers.
        first: See `filter`.

    Raises:
        NotPositiveDefiniteError: As `filter` does.
    """
    # Conditioning on data of full batch shape draws independently also where only the data have that shape.
    batch = values.shape[1:-1] if observed is None else broadcast_shapes(values.shape, observed.shape)[1:-1]
    batch = broadcast_shapes(batch, prior.batch_shape)
    wide = Gaussian(prior.mean.expand(*batch, prior.mean.shape[-1]), prior.cov)
    states, simulated = simulate(system, wide, values.shape[0], num_samples, generator, first)
    values = values.reshape(values.shape[0], 1, *[1] * (simulated.ndim - values.ndim - 1), *values.shape[1:])
    # In one pass: the gains are the same for data and simulations.
    both = torch.cat([values.expand(-1, 1, *simulated.shape[2:]), simulated], 1)
    mask = observed
    if mask is not None:
        # Simulated data lack what the data lack.
        mask = mask.reshape(mask.shape[0], *[1] * (simulated.ndim - mask.ndim - 1), *mask.shape[1:])
    means = smooth(system, prior, both, mask, first).states.mean
    return states + means[:, :1] - means[:, 1:]
