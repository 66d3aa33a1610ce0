"""A Gaussian process with a length scale for each coordinate, and expected improvement under it."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import optimize
from torch import Tensor

from tsforecast.core.linalg import cholesky

_NOISE = (1e-6, 1.0)  # variances of the noise, of standardised values
_LENGTH = (1e-2, 1e2)  # length scales, of inputs of the order of 1
_FAR = -1e3  # standard deviations below which the asymptote of the improvement is used


@dataclasses.dataclass(frozen=True)
class Process:
    """A Gaussian process given values.

    Attributes:
        inputs: Where it is known.
        root: Cholesky factor of the covariance of the values.
        weights: Inverse covariance times values.
        lengths: Length scale of each coordinate.
        noise: Variance of the values around the function, whose own is 1.
    """

    inputs: Float[Tensor, "point dim"]
    root: Float[Tensor, "point point"]
    weights: Float[Tensor, " point"]
    lengths: Float[Tensor, " dim"]
    noise: float

    def __call__(self, x: Float[Tensor, "place dim"]) -> tuple[Float[Tensor, " place"], Float[Tensor, " place"]]:
        """Return mean and standard deviation of the function at each place."""
        beside = matern(x, self.inputs, self.lengths)
        solved = torch.linalg.solve_triangular(self.root, beside.mT, upper=False)
        # Rounding may leave a variance below 0.
        return beside @ self.weights, (1 - solved.square().sum(0)).clamp_min(1e-12).sqrt()


def matern(
    x: Float[Tensor, "place dim"], y: Float[Tensor, "point dim"], lengths: Float[Tensor, " dim"]
) -> Float[Tensor, "place point"]:
    """Return the Matern kernel of smoothness 5/2: (1 + r + r^2 / 3) exp(-r), with r = sqrt(5) |(x - y) / l|."""
    squares = ((x / lengths).unsqueeze(-2) - (y / lengths).unsqueeze(-3)).square().sum(-1)
    r = (5 * squares + 1e-20).sqrt()  # the root has no derivative at 0
    return (1 + r + r.square() / 3) * (-r).exp()


def fit_process(inputs: Float[Tensor, "point dim"], values: Float[Tensor, " point"]) -> Process:
    """Return the Gaussian process with the most probable length scales and noise.

    The priors are log-normal: small noise, and length scales that grow with sqrt(dim), as in Hvarfner et al., *Vanilla
    Bayesian optimization performs great in high dimensions* (2024).

    Args:
        inputs: Of the order of 1.
        values: There, standardised.
    """
    dim = inputs.shape[-1]
    place = 0.5 * math.log(dim) + math.sqrt(2) - 1 + math.log(2)  # their box has width 1, and ours 2
    # Near the modes of the priors.
    start = torch.cat([torch.full((dim,), 0.5 * math.log(dim)), torch.tensor([math.log(1e-4)])]).double()
    low = np.log([*(_LENGTH[0],) * dim, _NOISE[0]])
    high = np.log([*(_LENGTH[1],) * dim, _NOISE[1]])

    def parts(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lengths, noise = logs[:-1].exp(), logs[-1].exp()
        cov = matern(inputs, inputs, lengths) + noise * torch.eye(len(inputs), dtype=inputs.dtype)
        root = cholesky(cov, "the covariance of evaluations")
        return lengths, root, torch.cholesky_solve(values[:, None], root)[:, 0]

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            logs = torch.tensor(numbers, requires_grad=True)
            _, root, weights = parts(logs)
            fit = 0.5 * values @ weights + root.diagonal().log().sum()
            # Deviations of sqrt(3) and of 3.
            prior = (logs[:-1] - place).square().sum() / 6 + (logs[-1] - math.log(1e-4)).square() / 18
            (gradient,) = torch.autograd.grad(fit + prior, logs)
        return (fit + prior).item(), gradient.numpy()

    bounds = list(zip(low, high, strict=True))
    found = optimize.minimize(loss, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    logs = torch.from_numpy(found.x)
    lengths, root, weights = parts(logs)
    return Process(inputs, root, weights, lengths, logs[-1].exp().item())


def fit_failures(
    inputs: Float[Tensor, "point dim"], failed: Bool[Tensor, " point"]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return mean and standard deviation of a function that is 1 where evaluations fail and -1 where they do not.

    It is a Gaussian process around the mean of these numbers. So failures by chance are its noise, and a place far from
    all evaluations fails as often as they did.

    Args:
        inputs: Of the order of 1.
        failed: Of which there is at least one, and one that is not.
    """
    signs = 2 * failed.to(inputs.dtype) - 1
    centre, spread = signs.mean(), signs.std()
    process = fit_process(inputs, (signs - centre) / spread)

    def value(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, sd = process(x)
        return mean * spread + centre, sd * spread

    return value


def avoiding(
    score: Callable[[Tensor], Tensor], failures: Callable[[Tensor], tuple[Tensor, Tensor]], cost: float | None
) -> Callable[[Tensor], Float[Tensor, " place"]]:
    """Return a score that also counts the chance of a failure.

    Args:
        score: Of evaluations that succeed.
        failures: What `fit_failures` returns.
        cost: Of a place where a failure is certain; places where a success is the likelier cost nothing. None for a
            score that is a logarithm, to which that of the probability of a success is added.
    """
    if cost is None:
        success = log_probability_below(failures, 0.0)
        return lambda x: score(x) + success(x)
    return lambda x: score(x) - cost * failures(x)[0].clamp_min(0)


def log_improvement(
    process: Callable[[Tensor], tuple[Tensor, Tensor]], least: float
) -> Callable[[Tensor], Float[Tensor, " place"]]:
    """Return the logarithm of the expected improvement on a least value, as a function of places.

    log sd + log(phi(z) + z Phi(z)) with z = (least - mean) / sd, without underflow (Ament et al., *Unexpected
    improvements to expected improvement*, 2023).

    Args:
        process: Mean and standard deviation at places.
        least: To be improved on.
    """

    def value(x: Tensor) -> Tensor:
        mean, sd = process(x)
        return sd.log() + _log_h((least - mean) / sd)

    return value


def log_probability_below(
    process: Callable[[Tensor], tuple[Tensor, Tensor]], limit: float
) -> Callable[[Tensor], Float[Tensor, " place"]]:
    """Return the logarithm of the probability that the function is at most a limit, as a function of places.

    Args:
        process: Mean and standard deviation at places.
        limit: The limit.
    """

    def value(x: Tensor) -> Tensor:
        mean, sd = process(x)
        return torch.special.log_ndtr((limit - mean) / sd)

    return value


def _log_h(z: Tensor) -> Tensor:
    """Return log(phi(z) + z Phi(z)); below -1 by the scaled complementary error function."""
    near = z.clamp_min(-1)  # twice: the unused branch would have a gradient of NaN
    density = (-0.5 * near.square()).exp() / math.sqrt(2 * math.pi)
    above = (density + near * torch.special.ndtr(near)).log()
    low = z.clamp(_FAR, -1)
    ratio = math.sqrt(math.pi / 2) * torch.special.erfcx(-low / math.sqrt(2))
    # Far below, h(z) is phi(z) / z^2.
    below = torch.where(z < _FAR, -2 * z.clamp_max(-1).abs().log(), torch.log1p((low * ratio).clamp_min(-1 + 1e-15)))
    return torch.where(z > -1, above, below - 0.5 * z.square() - 0.5 * math.log(2 * math.pi))
