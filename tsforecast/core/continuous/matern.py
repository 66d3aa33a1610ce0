"""Processes with the Matern kernel, in closed form."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.continuous.components import decayed
from tsforecast.core.continuous.sde import AbstractSDE
from tsforecast.core.linear import LinearGaussian


@dataclasses.dataclass(frozen=True)
class Matern(AbstractSDE):
    """A stationary process with the Matern kernel of smoothness p + 1/2 (Hartikainen and Särkkä 2010).

    Its states are the process and its first p derivatives: (d/dt + lambda)^(p + 1) x = white noise, where lambda is the
    root of 2 p + 1 over the length scale.

    Attributes:
        derivatives: p: 0, 1 or 2, for the smoothness 1/2, 3/2 or 5/2.
        length_scale: Of the kernel.
        variance: Stationary, of the process.
    """

    derivatives: int
    length_scale: Float[Tensor, "*#batch"]
    variance: Float[Tensor, "*#batch"]

    def __post_init__(self) -> None:
        if self.derivatives not in (0, 1, 2):
            raise ValueError(f"expected 0, 1 or 2 derivatives, got {self.derivatives}")

    @property
    def size(self) -> int:
        """Return one more than the number of derivatives."""
        return self.derivatives + 1

    @property
    def _rate(self) -> Tensor:
        return math.sqrt(2 * self.derivatives + 1) / self.length_scale

    @property
    def _density(self) -> Tensor:
        """Return the spectral density of the white noise."""
        p = self.derivatives
        factor = 2 * math.sqrt(math.pi) * math.gamma(p + 1) / math.gamma(p + 0.5)
        return factor * self.variance * self._rate ** (2 * p + 1)

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return the companion matrix of (s + lambda)^(p + 1)."""
        rate, size = self._rate, self.size
        whole = rate.new_zeros(*rate.shape, size, size)
        for k in range(size - 1):
            whole[..., k, k + 1] = 1.0
        for k in range(size):
            whole[..., -1, k] = -math.comb(size, k) * rate ** (size - k)
        return whole

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return white noise on the last derivative."""
        density = self._density
        whole = density.new_zeros(*density.shape, self.size, self.size)
        whole[..., -1, -1] = density
        return whole

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the process itself."""
        return self.variance.new_tensor([1.0] + [0.0] * self.derivatives)

    @property
    def stationary(self) -> Float[Tensor, "*batch state state"]:
        """Return the stationary covariance of the process and its derivatives."""
        variance, rate = torch.broadcast_tensors(self.variance, self._rate)
        zero = torch.zeros_like(variance)
        if self.derivatives == 0:
            return variance[..., None, None]
        if self.derivatives == 1:
            return torch.diag_embed(torch.stack([variance, variance * rate.square()], -1))
        slope = variance * rate.square() / 3
        entries = [variance, zero, -slope, zero, slope, zero, -slope, zero, variance * rate**4]
        return torch.stack(entries, -1).unflatten(-1, (3, 3))

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Since N = F + lambda is nilpotent, exp(F g) = exp(-lambda g) (I + N g + N^2 g^2 / 2).

        The noise is the sum of b_j b_k' int s^(j + k) exp(-2 lambda s) ds, with b_k = N^k / k! in the last column.
        """
        rate, size = self._rate, self.size
        eye = torch.eye(size, dtype=rate.dtype, device=rate.device)
        # A companion matrix of one root is a single Jordan block.
        nilpotent, power = self.drift + rate[..., None, None] * eye, eye
        matrix, columns = eye, []
        for k in range(size):
            power = power if k == 0 else power @ nilpotent / k
            columns.append(power[..., -1])
            matrix = matrix + power * gaps[..., None, None] ** k if k else matrix
        noise = torch.zeros_like(self.diffusion)
        for j, one in enumerate(columns):
            for k, other in enumerate(columns):
                moment = _moment(j + k, 2 * rate, gaps)
                noise = noise + moment[..., None, None] * one.unsqueeze(-1) * other.unsqueeze(-2)
        matrix = torch.exp(-rate * gaps)[..., None, None] * matrix
        return LinearGaussian(matrix, matrix.new_zeros(size), self._density[..., None, None] * noise)


def _moment(order: int, rate: Tensor, gaps: Tensor) -> Tensor:
    """Return int_0^g s^order exp(-rate s) ds by the incomplete gamma function, to the last digits for short gaps."""
    if order == 0:
        return decayed(rate, gaps)
    product = rate * gaps
    # The closed form cancels for short gaps.
    share = torch.special.gammainc(product.new_tensor(order + 1.0), product)
    return math.factorial(order) * share / rate ** (order + 1)
