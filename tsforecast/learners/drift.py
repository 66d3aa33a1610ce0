"""Drifts: changes of beliefs over weights between observations."""

import abc
import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.shapes import Decay, Noise, Scalar

# Largest logarithm of a growth: finite in float32, and bounded again afterwards.
_MOST = 60.0


class AbstractDrift(abc.ABC):
    """A change of a belief over a time dt; all but `Linear` compose: dt1, then dt2, is dt1 + dt2."""

    @abc.abstractmethod
    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Return the belief after a time.

        Args:
            family: Of the belief.
            belief: Before.
            prior: The belief at the very beginning.
            dt: Time that passed, at least 0.
        """

    def kept(self, dt: Scalar) -> Scalar:
        """Return the part of its weight that evidence keeps after the time dt: below 1 if the drift forgets."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class NoDrift(AbstractDrift):
    """No drift: the weights stay as they are."""

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Return the belief as it is."""
        return belief


@dataclasses.dataclass(frozen=True)
class Wiener(AbstractDrift):
    """A random walk: S + rate dt S0.

    Attributes:
        rate: Part of the prior's covariance that is added in a unit of time.
    """

    rate: float = 1e-3

    def __post_init__(self) -> None:
        _check("rate", self.rate, 0, math.inf)

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Add noise in proportion to the time that passed."""
        return family.push(belief, 1.0, 0.0, self.rate * dt * family.spread(prior))


@dataclasses.dataclass(frozen=True)
class OrnsteinUhlenbeck(AbstractDrift):
    """Back to the prior in moments: g m + (1 - g) m0 and g^2 S + (1 - g^2) S0, with g = exp(-rate dt / typical).

    Half of the mean is forgotten in a time of ln 2 typical / rate. With a small rate it is `Wiener(2 rate / typical)`.

    Attributes:
        rate: Of forgetting, in a typical time.
        typical: Typical time between observations.
    """

    rate: float = 1e-3
    typical: float = 1.0

    def __post_init__(self) -> None:
        _check("rate", self.rate, 0, math.inf)
        _check("typical", self.typical, 0, math.inf, positive=True)

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Return the belief after the time dt; the result is exact for every dt."""
        mean = family.mean(prior)
        log_decay = -self.rate / self.typical * torch.as_tensor(dt, dtype=mean.dtype, device=mean.device)
        noise = -torch.expm1(2 * log_decay) * family.spread(prior)  # 1 - exp(x) would lose the digits of small rates
        return family.push(belief, log_decay.exp(), -torch.expm1(log_decay) * mean, noise)


@dataclasses.dataclass(frozen=True)
class BayesianForgetting(AbstractDrift):
    """Back to the prior in natural parameters: old evidence counts (1 - rate)^{dt / typical} of what it did.

    The effective sample size is 1 / rate steps.

    Attributes:
        rate: Of forgetting, in a typical time.
        typical: Typical time between observations.
    """

    rate: float = 1e-3
    typical: float = 1.0

    def __post_init__(self) -> None:
        _check("rate", self.rate, 0, 1)
        _check("typical", self.typical, 0, math.inf, positive=True)

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Return the belief after the time dt; the result is exact for every dt."""
        return family.temper(belief, self.kept(dt), prior)

    def kept(self, dt: Scalar) -> Scalar:
        """Return what is left of a weight that falls with the time."""
        return (1 - self.rate) ** (dt / self.typical)


@dataclasses.dataclass(frozen=True)
class ExponentialForgetting(AbstractDrift):
    """The forgetting factor of recursive least squares: S / factor^dt.

    Directions that data do not excite would grow without bound ("covariance windup"), until nothing is finite: so the
    precision of each weight is kept from falling below a part of the prior's. `BayesianForgetting` has all of it.

    Attributes:
        factor: What the weight of old data is multiplied by in a unit of time.
        floor: Part of the prior's precision below which that of no weight falls; 0 for the textbook's form.
    """

    factor: float = 0.99
    floor: float = 0.01

    def __post_init__(self) -> None:
        _check("factor", self.factor, 0, 1, positive=True)
        _check("floor", self.floor, 0, 1)

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Divide the covariance, up to the floor."""
        if not self.floor:
            return family.inflate(belief, self.factor**-dt)
        growth = -math.log(self.factor) * dt
        growth = growth.clamp_max(_MOST).exp() if isinstance(growth, Tensor) else math.exp(min(growth, _MOST))
        return family.bound(family.inflate(belief, growth), family.variance(prior) / self.floor)

    def kept(self, dt: Scalar) -> Scalar:
        """Return a power of the factor."""
        return self.factor**dt


@dataclasses.dataclass(frozen=True)
class ShrinkAndPerturb(AbstractDrift):
    """decay m and decay^2 S + sd^2 I in a unit of time (Ash and Adams 2020).

    Attributes:
        decay: What the mean is multiplied by.
        sd: Standard deviation of the noise.
    """

    decay: float = 0.99
    sd: float = 0.01

    def __post_init__(self) -> None:
        _check("decay", self.decay, 0, 1, positive=True)
        _check("sd", self.sd, 0, math.inf)

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """The noise over a time dt is the sum of a geometric series."""
        decay = self.decay**dt
        # The limit of the geometric series.
        passed = dt if self.decay == 1 else (1 - decay * decay) / (1 - self.decay**2)
        return family.push(belief, decay, 0.0, self.sd**2 * passed)


@dataclasses.dataclass(frozen=True)
class Linear(AbstractDrift):
    """theta <- decay theta + offset + N(0, noise) at every step, however long it took.

    Attributes:
        decay: One number, one for each weight or, for the full family, a matrix.
        offset: One number, or one for each weight.
        noise: Variances likewise, or a matrix.
    """

    decay: Decay = 1.0
    offset: Float[Tensor, "*offset"] | float = 0.0
    noise: Noise = 0.0

    def __call__(self, family: AbstractFamily, belief: Any, prior: Any, dt: Scalar) -> Any:
        """Move the belief by one step, whatever the time that passed."""
        return family.push(belief, self.decay, self.offset, self.noise)


def _check(name: str, value: float | int, least: float | int, most: float | int, positive: bool = False) -> None:
    if not (least <= value <= most) or (positive and value <= 0):
        raise ValueError(
            f"expected {name} to be {'positive' if positive else f'at least {least}'} and at most {most}, got {value}"
        )
