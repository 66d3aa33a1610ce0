"""Components in continuous time: levels, trends and rotating harmonics, all in closed form."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.continuous.sde import AbstractSDE, block_diagonal
from tsforecast.core.linalg import broadcast_shapes
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.seasonal import DECAY

# Below this product of rate and gap a series takes over from differences that would lose digits.
_SMALL = 0.5
_TERMS = 20  # of that series: enough for float64 up to there


@dataclasses.dataclass(frozen=True)
class OrnsteinUhlenbeck(AbstractSDE):
    """A level that returns to zero: dx = -rate x dt + dw. At equal gaps g it is an AR(1) with phi = exp(-rate g).

    At a rate of zero the level wanders: a Wiener process, at equal gaps the random walk of `core.components.Level`.

    Attributes:
        rate: At which it returns, at least 0.
        variance: Of the change in a short unit of time; the stationary one is variance / (2 rate).
    """

    rate: Float[Tensor, "*#batch"]
    variance: Float[Tensor, "*#batch"]

    @property
    def size(self) -> int:
        """Return 1."""
        return 1

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return minus the rate."""
        return -self.rate[..., None, None]

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return the variance."""
        return self.variance[..., None, None]

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return one."""
        return self.variance.new_ones(1)

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Return a step by exp(-rate g), with the variance (1 - exp(-2 rate g)) / (2 rate)."""
        noise = (self.variance * decayed(2 * self.rate, gaps))[..., None, None]
        matrix = torch.exp(-self.rate * gaps)[..., None, None]
        return LinearGaussian(matrix, noise.new_zeros(1), noise)


@dataclasses.dataclass(frozen=True)
class DampedTrend(AbstractSDE):
    """Level and slope that returns to zero: dl = b dt + dw, db = -rate b dt + dw' (Harvey 1989, section 9.1).

    At a rate of zero the slope wanders: the trend of structural models.

    Attributes:
        rate: At which the slope returns, at least 0.
        level: Variance of the level's own change in a unit of time; zero for a smooth trend.
        slope: Variance of the slope's change in a short unit of time.
    """

    rate: Float[Tensor, "*#batch"]
    level: Float[Tensor, "*#batch"]
    slope: Float[Tensor, "*#batch"]

    @property
    def size(self) -> int:
        """Return 2."""
        return 2

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return the drift of a level and its slope: the slope moves the level."""
        zero, one = torch.zeros_like(self.rate), torch.ones_like(self.rate)
        return _square([zero, one, zero, -self.rate])

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return the two variances."""
        return torch.diag_embed(torch.stack(torch.broadcast_tensors(self.level, self.slope), -1))

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the level."""
        return self.slope.new_tensor([1.0, 0.0])

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """With a(g) = (1 - exp(-rate g)) / rate the level gains a(g) b, and noises int a^2, a^2 / 2 and int exp^2."""
        moved, kept = decayed(self.rate, gaps), torch.exp(-self.rate * gaps)
        one, zero = torch.ones_like(moved), torch.zeros_like(moved)
        across = self.slope * moved.square() / 2
        own = self.level * gaps + self.slope * _decayed_square(self.rate, gaps)
        noise = _square([own, across, across, self.slope * decayed(2 * self.rate, gaps)])
        return LinearGaussian(_square([one, moved, zero, kept]), noise.new_zeros(2), noise)


@dataclasses.dataclass(frozen=True)
class Rotations(AbstractSDE):
    """Harmonics that rotate, each a pair of states: a season, or with unknown frequencies oscillations.

    A pair turns by the angle frequency * g and shrinks by exp(-rate g); its noise is the same in both directions. An
    observation reads the first of each pair. At a rate of zero this is the season of `core.seasonal.Harmonics`, whose
    coefficients wander while the basis rotates: the weights are the same.

    Attributes:
        frequency: Angle in a unit of time.
        variance: Of the change of each state in a unit of time.
        rate: At which the pairs return to zero, at least 0; None for 0.
    """

    frequency: Float[Tensor, "*#batch harmonic"]
    variance: Float[Tensor, "*#batch"]
    rate: Float[Tensor, "*#batch"] | None = None

    @property
    def size(self) -> int:
        """Return two for each harmonic."""
        return 2 * self.frequency.shape[-1]

    @property
    def _rate(self) -> Tensor:
        return torch.zeros_like(self.variance) if self.rate is None else self.rate

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return the rates on the diagonal, beside the frequencies."""
        rate, frequency = torch.broadcast_tensors(self._rate.unsqueeze(-1), self.frequency)
        return block_diagonal(_square([-rate, frequency, -frequency, -rate]).unbind(-3))

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return the same variance for all states."""
        return torch.diag_embed(self.variance.unsqueeze(-1).expand(*self.variance.shape, self.size))

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the weight of each harmonic, for the first of its pair; their squares sum to one."""
        weight = harmonic_weights(self.frequency.shape[-1], self.variance)
        return torch.stack([weight, torch.zeros_like(weight)], -1).flatten()

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Return damped rotations; the noise is as that of an Ornstein-Uhlenbeck process, since it has no direction."""
        kept = torch.exp(-self._rate * gaps).unsqueeze(-1)
        angle = self.frequency * gaps.unsqueeze(-1)
        cos, sin = kept * angle.cos(), kept * angle.sin()
        noise = self.variance * decayed(2 * self._rate, gaps)
        matrix = block_diagonal(_square([cos, sin, -sin, cos]).unbind(-3))
        # A rotation leaves a round covariance as it is.
        noise = torch.diag_embed(noise.unsqueeze(-1).expand(*noise.shape, self.size))
        return LinearGaussian(matrix, noise.new_zeros(self.size), noise)


def harmonic_weights(count: int, like: Tensor) -> Float[Tensor, " harmonic"]:
    """Return the weights of harmonics: they fall with the order, and their squares sum to one."""
    weight = torch.arange(1, count + 1, dtype=like.dtype, device=like.device) ** -DECAY
    return weight / weight.norm()


def decayed(rate: Float[Tensor, "*#batch"], gaps: Float[Tensor, "*#batch"]) -> Float[Tensor, "*batch"]:
    """Return int_0^g exp(-rate s) ds = (1 - exp(-rate g)) / rate, to the last digits also for a rate of zero."""
    product = rate * gaps
    safe = torch.where(product > 1e-5, product, 1.0)  # twice: the unused branch would have a gradient of NaN
    # The next term, x^3 / 24, is below 1e-16.
    return gaps * torch.where(product > 1e-5, -torch.expm1(-safe) / safe, 1 - product / 2 + product.square() / 6)


def _decayed_square(rate: Tensor, gaps: Tensor) -> Tensor:
    """Return int_0^g a(s)^2 ds with a(s) = (1 - exp(-rate s)) / rate; for small rate g by its Taylor series.

    It is g^3 sum_m (-1)^m (2^m - 2) (rate g)^(m - 2) / ((m + 1) m!), m = 2, 3, ..., and otherwise
    (g - 2 a(g) + (1 - exp(-2 rate g)) / (2 rate)) / rate^2.
    """
    product = rate * gaps
    small = product < _SMALL
    low, high = torch.where(small, product, 0.0), torch.where(small, 1.0, product)
    series = torch.zeros_like(low)
    for m in range(_TERMS + 1, 1, -1):
        series = series * low + (-1) ** m * (2**m - 2) / ((m + 1) * math.factorial(m))
    closed = (high + 2 * torch.expm1(-high) - torch.expm1(-2 * high) / 2) / high**3
    return gaps**3 * torch.where(small, series, closed)


def _square(entries: list[Tensor]) -> Tensor:
    """Return 2 x 2 matrices of four entries, row by row."""
    batch = broadcast_shapes(*(entry.shape for entry in entries))
    return torch.stack([entry.expand(batch) for entry in entries], -1).unflatten(-1, (2, 2))
