"""The evidence of a series at one sample of its states, unbiased: an objective of variational auto-encoders."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.kalman import filter, sample_posterior
from tsforecast.core.linalg import LOG_2PI, cholesky, log_det, mask_cov, matvec, solve_lower
from tsforecast.core.system import AbstractLinearSystem
from tsforecast.core.torch_internals import is_transformed


def sampled_evidence(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None = None,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> Float[Tensor, "*batch"]:
    """Return log p(values, x) + H[p(x | values)] at a joint sample x of the states: unbiased for log p(values).

    The sample is drawn from the smoother. This is the objective of the Kalman variational auto-encoder (Fraccaro et al.
    2017), with the joint entropy in the place of that of the marginals; `log_likelihood` is its expectation in closed
    form, without the variance of the sample.

    Args:
        system: See `filter`. Noises without full rank have states of no variance that are independent of others. A
            transition without any noise must stand still (a series that has not begun).
        prior: Likewise.
        values: Likewise.
        observed: Likewise.
        generator: Of the random numbers.
        first: Likewise.

    Raises:
        NotPositiveDefiniteError: As `kalman.filter` does, and where a state's covariance is singular.
    """
    filtered = filter(system, prior, values, observed, first)
    # One sample is unbiased already.
    path = sample_posterior(system, prior, values, observed, 1, generator, first).squeeze(1)
    at, states = system.by_step(), path.unbind()
    steps = [at(first + time) for time in range(len(values))]
    emissions = [emission.dense() for _, emission in steps]
    transitions = [transition.dense() for transition, _ in steps]
    total = filtered.filtered.entropy()[-1]  # the chain rule of the joint entropy begins at the last state
    for time, (emission, value) in enumerate(zip(emissions, values.unbind(), strict=True)):  # p(y_t | x_t)
        residual = value - matvec(emission.matrix, states[time]) - emission.offset
        noise, seen = emission.noise, None if observed is None else observed[time]
        count = residual.shape[-1]
        if seen is not None:
            residual = torch.where(seen, residual, 0.0)
            noise = mask_cov(noise, seen)
            count = seen.sum(-1)
        factor = cholesky(noise, "the noise of an emission")
        total = total - 0.5 * (solve_lower(factor, residual).square().sum(-1) + log_det(factor) + count * LOG_2PI)
    predicted = filtered.predicted.log_prob(path)
    # H(x_t | x_{t+1}) is that of the filter and of the step, less that of the prediction.
    entropies = filtered.filtered.entropy()[:-1] - filtered.predicted.entropy()[1:]
    begun = torch.zeros_like(total, dtype=torch.bool)
    for time, transition in enumerate(transitions):
        known = transition.noise.diagonal(dim1=-2, dim2=-1) <= 0  # given the state before
        moving = (~known).any(-1).expand(total.shape)
        step = predicted[time]
        if time and (is_transformed(begun) or bool(begun.any())):
            # What is known adds -log sqrt(2 pi) to the density of a unit variance, and log sqrt(2 pi e) to its entropy.
            noise = Gaussian(transition.offset, transition.noise + torch.diag_embed(known.to(path.dtype)))
            residual = torch.where(known, transition.offset, states[time] - matvec(transition.matrix, states[time - 1]))
            density = noise.log_prob(residual) - 0.5 * known.sum(-1)
            step = torch.where(begun, density + noise.entropy() + entropies[time - 1], step)
        total = total + torch.where(moving, step, 0.0)
        begun = begun | moving
    return total
