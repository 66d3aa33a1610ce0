"""Stein variational gradient descent: particles that move together towards a posterior (Liu and Wang 2016)."""

import abc
import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.learners.shapes import Scalar


def squared_distances(particles: Float[Tensor, "particle variable"]) -> Float[Tensor, "particle particle"]:
    """Return |theta_i - theta_j|^2 of all pairs, by differences: those of particles that are near stay exact."""
    return torch.cdist(particles, particles, compute_mode="donot_use_mm_for_euclid_dist").square()


def bandwidth(squared: Float[Tensor, "particle particle"]) -> Float[Tensor, ""]:
    """Return h = median |theta_i - theta_j|^2 / log(M + 1) over pairs of different particles.

    The published median / log M divides by zero for M = 1. One particle, or several in one place, have h = 1, which
    then has no influence.
    """
    count = len(squared)
    if count == 1:
        return squared.new_ones(())
    # The zeros of a particle with itself would pull the median down.
    rows, columns = torch.triu_indices(count, count, 1, device=squared.device)
    pairs = squared[rows, columns].sort().values  # `quantile` has no rule for `vmap`
    median = 0.5 * (pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2])  # the same for odd and even numbers of pairs
    return torch.where(median > 0, median / math.log(count + 1), 1.0)


def direction(
    particles: Float[Tensor, "particle variable"],
    scores: Float[Tensor, "particle variable"],
    width: float | None = None,
) -> Float[Tensor, "particle variable"]:
    """Return where each particle moves (Liu and Wang 2016, equation 8); one particle follows its gradient.

        phi(theta_i) = 1/M sum_j k(theta_j, theta_i) [ grad log p(theta_j) + 2/h (theta_i - theta_j) ]

    with k(theta, theta') = exp(-|theta - theta'|^2 / h).

    Args:
        particles: theta.
        scores: Gradients of the log-density at the particles; it need not be normalised.
        width: h; None for that of `bandwidth`.
    """
    squared = squared_distances(particles)
    h = bandwidth(squared) if width is None else width
    kernel = (-squared / h).exp()
    # The sum over pairs without a tensor of all their differences.
    push = kernel.sum(-1, keepdim=True) * particles - kernel @ particles
    return (kernel @ scores + 2 / h * push) / len(particles)


@register_record
@dataclasses.dataclass(frozen=True)
class Moments:
    """Memory of an adaptive step: moments of earlier directions.

    Attributes:
        first: Fading mean of the directions.
        second: Fading mean of their squares.
        count: Number of steps so far.
    """

    first: Float[Tensor, "*variable"]
    second: Float[Tensor, "*variable"]
    count: Float[Tensor, ""]

    @staticmethod
    def none(values: Float[Tensor, "*variable"]) -> "Moments":
        """Return those of no step."""
        return Moments(torch.zeros_like(values), torch.zeros_like(values), values.new_zeros(()))


class AbstractStep(abc.ABC):
    """A step uphill with a length for each variable: a pure function, for loops and `vmap`."""

    @abc.abstractmethod
    def __call__(
        self, values: Float[Tensor, "*variable"], uphill: Float[Tensor, "*variable"], moments: Moments, rate: Scalar
    ) -> tuple[Float[Tensor, "*variable"], Moments]:
        """Return the values after a step along a direction, and the moments with it."""


@dataclasses.dataclass(frozen=True)
class Adam(AbstractStep):
    """Adam (Kingma and Ba 2015), as `torch.optim.Adam` has it.

    Attributes:
        first: Part of the mean of directions that a step leaves.
        second: Part of the mean of squares that a step leaves.
        floor: Added to the root of the mean of squares.
    """

    first: float = 0.9
    second: float = 0.999
    floor: float = 1e-8

    def __call__(
        self, values: Float[Tensor, "*variable"], uphill: Float[Tensor, "*variable"], moments: Moments, rate: Scalar
    ) -> tuple[Float[Tensor, "*variable"], Moments]:
        """Divide the mean of directions by the root of the mean of squares, both freed of their start at zero."""
        count = moments.count + 1
        first = self.first * moments.first + (1 - self.first) * uphill
        second = self.second * moments.second + (1 - self.second) * uphill.square()
        root = (second / (1 - self.second**count)).sqrt() + self.floor
        return values + rate / (1 - self.first**count) * first / root, Moments(first, second, count)


@dataclasses.dataclass(frozen=True)
class RMSprop(AbstractStep):
    """RMSprop (Hinton et al. 2012), begun with the square of the first direction.

    Attributes:
        second: Part of the mean of squares that a step leaves.
        floor: Added to the root of the mean of squares.
    """

    second: float = 0.9
    floor: float = 1e-6

    def __call__(
        self, values: Float[Tensor, "*variable"], uphill: Float[Tensor, "*variable"], moments: Moments, rate: Scalar
    ) -> tuple[Float[Tensor, "*variable"], Moments]:
        """Divide the direction by the root of the mean of squares."""
        square = uphill.square()
        faded = torch.where(moments.count > 0, self.second * moments.second + (1 - self.second) * square, square)
        return values + rate * uphill / (faded.sqrt() + self.floor), Moments(moments.first, faded, moments.count + 1)


STEPS: dict[str, AbstractStep] = {"adam": Adam(), "rmsprop": RMSprop()}
