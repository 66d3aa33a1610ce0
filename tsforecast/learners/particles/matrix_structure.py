"""Weights as products of simpler variables: matrix-variate Gaussian priors by reflections and scales (S2VGD)."""

import dataclasses
import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.torch_internals import normal
from tsforecast.learners.shapes import Weights

# Added to the squared length of a reflection's vector, which is undefined for v = 0.
_TINY = 1e-12


def reflect(
    matrix: Float[Tensor, "row column"], vectors: Float[Tensor, "reflection row"]
) -> Float[Tensor, "row column"]:
    """Return H_K .. H_1 W with H_k = I - 2 v_k v_k' / |v_k|^2 (Householder): orthogonal, of determinant (-1)^K.

    No H is formed: each costs two products with a vector.

    Args:
        matrix: W.
        vectors: v_1, .., v_K; there may be none.
    """
    for v in vectors:
        matrix = matrix - (2 / (v @ v + _TINY)) * torch.outer(v, v @ matrix)
    return matrix


@dataclasses.dataclass(frozen=True)
class Structure:
    """Each weight matrix is W = P L1 C L2 Q', of independent variables (Zhang et al. 2018, proposition 3).

    P and Q are products of `reflections` Householder matrices, L1 and L2 are diagonal. With C ~ N(0, 1 / lambda) it is
    the matrix-variate Gaussian prior Cov vec(W) = Q L2^2 Q' (x) P L1^2 P' / lambda. Without reflections and scales the
    variables are the weights. A side of one unit is not reflected, since its reflection could but be -1; biases, and
    all other weights that are no matrix, are variables themselves.

    Attributes:
        shapes: Of the arrays of weights; the first dimension is the output.
        reflections: K of each side of a matrix.
        scales: Whether there are L1 and L2.

    Raises:
        ValueError: If the number of reflections is negative.
    """

    shapes: tuple[tuple[int, ...], ...]
    reflections: int = 0
    scales: bool = False

    def __post_init__(self) -> None:
        if self.reflections < 0:
            raise ValueError(f"expected reflections to be at least 0, got {self.reflections}")

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Return the numbers of weights C, of entries of reflections, and of scales."""
        sides = [side for rows, columns in self._matrices for side in (rows, columns)]
        entries = sum(side for side in sides if side > 1) * self.reflections
        return sum(self._sizes), entries, sum(sides) if self.scales else 0

    @functools.cached_property
    def _sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    @functools.cached_property
    def _matrices(self) -> list[tuple[int, int]]:
        """Return rows and columns of all matrices; kernels of convolutions are seen as such."""
        return [(shape[0], math.prod(shape[1:])) for shape in self.shapes if len(shape) > 1]

    def weights(self, variables: Float[Tensor, " variable"]) -> Weights:
        """Return the weights as a network takes them."""
        if not (self.reflections or self.scales):
            return variables
        free, entries, scales = variables.split(self.lengths)
        parts, used, scaled = [], 0, 0
        for part, shape in zip(free.split(self._sizes), self.shapes, strict=True):
            if len(shape) == 1:
                parts.append(part)
                continue
            matrix = part.view(shape[0], -1)
            rows, columns = matrix.shape
            if self.scales:
                left, right = scales[scaled : scaled + rows + columns].split([rows, columns])
                matrix, scaled = left.unsqueeze(-1) * matrix * right, scaled + rows + columns
            for side in (rows, columns):  # P from the left, then Q from the left of the transpose
                if side > 1:
                    vectors = entries[used : used + side * self.reflections].view(self.reflections, side)
                    matrix, used = reflect(matrix, vectors), used + side * self.reflections
                matrix = matrix.T  # twice: to the other side, and back
            parts.append(matrix.flatten())
        return torch.cat(parts)

    def start(
        self,
        num_particles: int,
        generator: torch.Generator | None = None,
        weights: Weights | None = None,
        like: Tensor | None = None,
    ) -> Float[Tensor, "particle variable"]:
        """Return random variables to begin with.

        C of a layer has the standard deviation (fan-in + 1)^-0.5, or a tenth of it around given weights. Scales begin
        at 1, and reflections are random.

        Args:
            num_particles: How many.
            generator: Of random numbers.
            weights: That C of all particles is drawn around; None for zeros.
            like: A tensor of the precision and device of the variables; None for the defaults.
        """
        like = torch.zeros(0) if like is None else like
        parts, deviation = [], 1.0
        for shape, size in zip(self.shapes, self._sizes, strict=True):
            if len(shape) > 1:  # a bias is that of the matrix before it
                deviation = (math.prod(shape[1:]) + 1) ** -0.5
            parts.append(like.new_full((size,), deviation))
        free, entries, scales = self.lengths
        noise = torch.cat(parts) * normal((num_particles, free), like, generator)
        drawn = noise if weights is None else weights + 0.1 * noise
        vectors = normal((num_particles, entries), like, generator)
        return torch.cat([drawn, vectors, like.new_ones(num_particles, scales)], -1)
