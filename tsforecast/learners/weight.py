"""Weights of observations by their distance from the prediction."""

import abc
import dataclasses

from jaxtyping import Float
from torch import Tensor

NORMS = ("noise", "predictive")


class AbstractWeight(abc.ABC):
    """The likelihood of a point is raised to the power of its weight, between 0 (as if missing) and 1."""

    norm: str

    @abc.abstractmethod
    def __call__(self, distance: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
        """Return weights from squared Mahalanobis distances."""


@dataclasses.dataclass(frozen=True)
class Unweighted(AbstractWeight):
    """Every observation counts in full."""

    norm: str = "none"

    def __call__(self, distance: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
        """Return 1 for every point."""
        return distance.new_ones(distance.shape)


@dataclasses.dataclass(frozen=True)
class InverseMultiquadric(AbstractWeight):
    """WoLF: (1 + distance / threshold^2)^{-power / 2} (Duran-Martin et al. 2024).

    Attributes:
        threshold: Distance, in standard deviations, from which on observations count less.
        power: 2: the influence of an outlier vanishes as it grows; 1: it stays bounded.
        norm: In standard deviations of the observation noise ("noise"), or of the prediction ("predictive").
    """

    threshold: float = 3.0
    power: int = 2
    norm: str = "noise"

    def __post_init__(self) -> None:
        _check(self.threshold, self.norm)
        if self.power not in (1, 2):
            raise ValueError(f"expected power to be 1 or 2, got {self.power}")

    def __call__(self, distance: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
        """Return a weight that falls with the distance of the point."""
        # With a power of 2 the influence of an outlier falls back to 0.
        return (1 + distance / self.threshold**2) ** (-self.power / 2)


@dataclasses.dataclass(frozen=True)
class Gate(AbstractWeight):
    """Observations beyond a threshold do not count.

    Attributes:
        threshold: In standard deviations.
        norm: Of the observation noise ("noise"), or of the prediction ("predictive").
    """

    threshold: float = 4.0
    norm: str = "noise"

    def __post_init__(self) -> None:
        _check(self.threshold, self.norm)

    def __call__(self, distance: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
        """Return 1 for points within the threshold, 0 for the others."""
        return (distance < self.threshold**2).to(distance.dtype)


def _check(threshold: float, norm: str) -> None:
    if not threshold > 0:
        raise ValueError(f"expected threshold to be positive, got {threshold}")
    if norm not in NORMS:
        raise ValueError(f"expected norm to be one of {', '.join(NORMS)}, got {norm!r}")
