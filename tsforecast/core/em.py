"""Learning by the smoothed states: the expected log joint, the entropy of the posterior, and EM in closed form."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.kalman import Smoothed, smooth
from tsforecast.core.linalg import LOG_2PI, cholesky, log_det, mask_rows, matvec, solve_lower, symmetrise
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.loop.scan import scan
from tsforecast.core.system import AbstractLinearSystem, LinearSystem


def expected_log_joint(
    system: AbstractLinearSystem,
    prior: Gaussian,
    smoothed: Smoothed,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None = None,
    first: int = 0,
) -> Float[Tensor, "*batch"]:
    """E_q[log p(x_0, ..., x_T, y_1, ..., y_T)], observed components only; q is given by its one- and two-slice moments.

    With the exact posterior, `expected_log_joint(...) + posterior_entropy(smoothed)` is the log-likelihood; with
    `smoothed` detached, the gradient of this term alone is the gradient of the log-likelihood (Fisher's identity).

    Args:
        system: The noises of its transitions must be of full rank: with others there is no density.
        prior: Over x_0; likewise.
        smoothed: The moments of q.
        values: See `filter`.
        observed: See `filter`.
        first: See `filter`.

    Raises:
        NotPositiveDefiniteError: Where a noise is singular.
    """
    initial = _expected_log_density(prior.cov, smoothed.initial.mean - prior.mean, smoothed.initial.cov)
    at = system.by_step()

    def step(total: Tensor, x: tuple) -> tuple[Tensor, None]:
        time, value, mask, state, before, cross = x
        transition, emission = (conditional.dense() for conditional in at(time))
        matrix = transition.matrix
        moved = cross @ matrix.mT
        change = state.mean - matvec(matrix, before.mean) - transition.offset
        spread = state.cov - moved - moved.mT + matrix @ before.cov @ matrix.mT
        total = total + _expected_log_density(transition.noise, change, spread)
        residual = value - matvec(emission.matrix, state.mean) - emission.offset
        matrix, noise, count = emission.matrix, emission.noise, None
        if mask is not None:
            residual = torch.where(mask, residual, 0.0)
            matrix, noise = mask_rows(matrix, noise, mask)
            count = mask.to(residual.dtype).sum(-1)
        spread = matrix @ state.cov @ matrix.mT
        return total + _expected_log_density(noise, residual, spread, count), None

    times = range(first, first + values.shape[0])
    return scan(step, initial, (times, values, observed, smoothed.states, smoothed.earlier, smoothed.cross))[0]


def _expected_log_density(noise: Tensor, mean: Tensor, cov: Tensor, count: Tensor | None = None) -> Tensor:
    """E[log N(e; 0, noise)] where e has the given moments, `count` of its components count."""
    factor = cholesky(noise, "a noise covariance")
    trace = torch.cholesky_solve(cov, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
    constant = LOG_2PI * (mean.shape[-1] if count is None else count)
    return -0.5 * (solve_lower(factor, mean).square().sum(-1) + trace + log_det(factor) + constant)


def posterior_entropy(smoothed: Smoothed) -> Float[Tensor, "*batch"]:
    """Entropy in nats of the Markov chain with these moments: H[x_0] + sum_t H[x_t | x_{t-1}].

    Raises:
        NotPositiveDefiniteError: Where x_t is certain given x_{t-1}.
    """
    factor = cholesky(smoothed.earlier.cov, "the covariance of a smoothed state")
    white = torch.linalg.solve_triangular(factor, smoothed.cross.mT, upper=False)
    given = Gaussian(smoothed.states.mean, symmetrise(smoothed.states.cov - white.mT @ white))
    return smoothed.initial.entropy() + given.entropy().sum(0)


def em_step(
    system: LinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None = None,
) -> tuple[LinearSystem, Gaussian, Float[Tensor, "time *batch"]]:
    """One step of expectation-maximisation for matrices and noises that are constant over time.

    The offsets are known and kept; they may vary with inputs. Parameters without batch dimensions are shared by all
    series: their statistics are summed; those with the batch dimensions of the data fit each series alone. A missing
    component is imputed from the state and from the observed components of its step; a step without any says nothing
    about the emission (Shumway and Stoffer 1982; Ghahramani and Hinton 1996).

    Args:
        system: The present parameters.
        prior: Over x_0.
        values: Finite everywhere.
        observed: False where missing. Every series needs a value if it has an emission of its own.

    Returns:
        The new system, the new prior, and the log-likelihood of every step under the *old* ones: its sum over time (and
        over the series that share parameters) never decreases from one call to the next.

    Raises:
        ValueError: If matrices or noises vary with time, or matrix and noise of a conditional differ in their batch
            dimensions.
        NotPositiveDefiniteError: As `kalman.filter` does; or if the states are collinear.
    """
    for name, conditional in (("transition", system.transition), ("emission", system.emission)):
        matrix, noise = conditional.matrix.shape[:-2], conditional.noise.shape[:-2]
        if matrix[0] != 1 or matrix != noise:
            raise ValueError(
                f"Expected matrix and noise of the {name} to be constant over time (leading dimension 1) and to have "
                f"the same batch dimensions; got {tuple(matrix)} and {tuple(noise)}."
            )
    smoothed = smooth(system, prior, values, observed)
    transition = _fit_transition(system.transition, smoothed)
    emission = _fit_emission(system.emission, smoothed, values, observed)
    prior = _fit_prior(prior, smoothed.initial, smoothed.log_likelihood.shape[1:])
    return LinearSystem(transition, emission), prior, smoothed.log_likelihood


def _fit_transition(old: LinearGaussian, smoothed: Smoothed) -> LinearGaussian:
    """Regression of the states on those before them."""
    shape = smoothed.log_likelihood.shape
    after, before = _align_moments(smoothed.states, shape), _align_moments(smoothed.earlier, shape)
    mean = after.mean - _align(old.offset, shape, 1)
    later = after.cov + _outer(mean, mean)
    cross = _align(smoothed.cross, shape, 2) + _outer(mean, before.mean)
    earlier = before.cov + _outer(before.mean, before.mean)
    return _regress(old, later, cross, earlier, mean.new_ones(shape))


def _fit_emission(old: LinearGaussian, smoothed: Smoothed, values: Tensor, observed: Tensor | None) -> LinearGaussian:
    """Regression of the observations, completed where components are missing, on the states.

    Let z = y - offset and M = diag(observed). Given x and the observed components, z has mean B z + (I - B) C x and
    covariance Q - B Q. B = Q M (M Q M + I - M)^{-1} regresses all components on the observed ones.
    """
    shape = smoothed.log_likelihood.shape
    states = _align_moments(smoothed.states, shape)
    residual = _align(values, shape, 1) - _align(old.offset, shape, 1)
    if observed is None:
        later, cross, weight = _outer(residual, residual), _outer(residual, states.mean), residual.new_ones(shape)
    else:
        observed = _align(observed, shape, 1)
        matrix, noise = _align(old.matrix, shape, 2), _align(old.noise, shape, 2)
        seen, among = mask_rows(noise, noise, observed)
        regression = torch.cholesky_solve(seen, cholesky(among, "a noise covariance")).mT
        fill = matrix - regression @ matrix
        mean = matvec(regression, torch.where(observed, residual, 0.0)) + matvec(fill, states.mean)
        later = _outer(mean, mean) + fill @ states.cov @ fill.mT + noise - regression @ noise
        cross = _outer(mean, states.mean) + fill @ states.cov
        weight = observed.any(-1).to(mean.dtype).expand(shape)
    return _regress(old, later, cross, states.cov + _outer(states.mean, states.mean), weight)


def _fit_prior(old: Gaussian, initial: Gaussian, batch: torch.Size) -> Gaussian:
    """Mean and covariance of the initial states over the series that share them."""
    size = batch.numel()
    mean = initial.mean.expand(*batch, -1).sum_to_size(old.mean.shape) * (old.mean.shape[:-1].numel() / size)
    spread = initial.cov + _outer(initial.mean - mean, initial.mean - mean)
    cov = spread.expand(*batch, -1, -1).sum_to_size(old.cov.shape) * (old.cov.shape[:-2].numel() / size)
    return Gaussian(mean, symmetrise(cov))


def _regress(old: LinearGaussian, later: Tensor, cross: Tensor, earlier: Tensor, weight: Tensor) -> LinearGaussian:
    """Matrix and noise of greatest expected log-density, by second moments E[b b'], E[b a'], E[a a'] of each step."""

    def total(x: Tensor) -> Tensor:
        x = (weight[..., None, None] * x).sum(0)
        return x.sum_to_size(*old.matrix.shape[1:-2], *x.shape[-2:])

    later, cross, earlier, count = total(later), total(cross), total(earlier), total(weight.new_ones(1, 1))
    matrix = torch.cholesky_solve(cross.mT, cholesky(earlier, "the second moment of the states")).mT
    explained = matrix @ cross.mT
    noise = symmetrise(later - explained - explained.mT + matrix @ earlier @ matrix.mT) / count
    return LinearGaussian(matrix.unsqueeze(0), old.offset, noise.unsqueeze(0))


def _align(x: Tensor, shape: torch.Size, event_ndim: int) -> Tensor:
    """(time, *batch, event...) with dimensions of size 1 behind time until its batch has the rank of (time, *batch)."""
    missing = len(shape) + event_ndim - x.ndim
    return x.reshape(x.shape[0], *[1] * missing, *x.shape[1:])


def _align_moments(belief: Gaussian, shape: torch.Size) -> Gaussian:
    return Gaussian(_align(belief.mean, shape, 1), _align(belief.cov, shape, 2))


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(-1) * b.unsqueeze(-2)
