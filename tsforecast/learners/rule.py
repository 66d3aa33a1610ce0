"""Rules of updates by evidence: the number of steps, their length, natural or plain."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any

from tsforecast.learners.beliefs.family import AbstractFactorFamily, AbstractFamily
from tsforecast.learners.evidence.pseudo_observation import AbstractEvidence

EvidenceAt = Callable[[Any], AbstractEvidence]


class AbstractRule(abc.ABC):
    """Maximises E_q[log p(y | theta)] - KL(q || q_0) over q, more or less, from the belief q_0 on."""

    @abc.abstractmethod
    def __call__(self, family: AbstractFamily, belief: Any, evidence: EvidenceAt) -> Any:
        """Return the belief after the evidence.

        Args:
            family: Of the belief.
            belief: q_0.
            evidence: Finds the evidence near a belief.
        """


@dataclasses.dataclass(frozen=True)
class BONG(AbstractRule):
    """One natural-gradient step of length one (Jones et al. 2024): a Kalman update where the evidence is linearised.

    Attributes:
        passes: Times that the evidence is found, anew near the result; q_0 is conditioned on the last. More than one is
            the iterated extended Kalman filter, whose fixed point is the posterior mode.
    """

    passes: int = 1

    def __post_init__(self) -> None:
        _check("passes", self.passes)

    def __call__(self, family: AbstractFamily, belief: Any, evidence: EvidenceAt) -> Any:
        """Condition q_0 on the last evidence."""
        result = evidence(belief).absorb(family, belief)  # always from q_0: evidence must not count twice
        for _ in range(self.passes - 1):
            change = family.mean(result) - family.mean(belief)
            result = evidence(result).seen_from(change).absorb(family, belief)
        return result


@dataclasses.dataclass(frozen=True)
class BLR(AbstractRule):
    """The Bayesian learning rule (Khan and Rue 2023): damped natural-gradient steps.

    Lambda_i = (1 - a) Lambda_{i-1} + a (Lambda_0 + Lambda_y), which is tempering towards q_0, then conditioning.

    Attributes:
        iterations: Number of steps.
        step: Their length a; one step of length one is `BONG`.
    """

    iterations: int = 10
    step: float = 0.3

    def __post_init__(self) -> None:
        _check("iterations", self.iterations)
        _check("step", self.step, 1.0)

    def __call__(self, family: AbstractFamily, belief: Any, evidence: EvidenceAt) -> Any:
        """Take the steps one after the other, each by the evidence at its place."""
        current = belief
        for _ in range(self.iterations):
            near = evidence(current)
            tempered = family.temper(current, 1 - self.step, belief)
            change = family.mean(current) - family.mean(tempered)  # evidence is about the mean it was taken at
            current = near.seen_from(change).scaled(self.step).absorb(family, tempered)
        return current


@dataclasses.dataclass(frozen=True)
class BOG(AbstractRule):
    """`BONG` with a plain gradient step on the mean and the square root of the covariance.

    Attributes:
        step: Its length.
    """

    step: float = 0.01

    def __post_init__(self) -> None:
        _check("step", self.step)

    def __call__(self, family: AbstractFamily, belief: Any, evidence: EvidenceAt) -> Any:
        """Take one plain step."""
        # One step, so the KL to q_0 has no slope yet.
        return evidence(belief).descend(_factored(family), belief, self.step, None)


@dataclasses.dataclass(frozen=True)
class BBB(AbstractRule):
    """Bayes by backprop, online: `BLR` with plain gradient steps, on the expectation minus KL(q || q_0).

    Attributes:
        iterations: Number of steps.
        step: Their length.
    """

    iterations: int = 10
    step: float = 0.01

    def __post_init__(self) -> None:
        _check("iterations", self.iterations)
        _check("step", self.step)

    def __call__(self, family: AbstractFamily, belief: Any, evidence: EvidenceAt) -> Any:
        """Take the steps one after the other, each by the evidence at its place."""
        current = belief
        for _ in range(self.iterations):
            current = evidence(current).descend(_factored(family), current, self.step, belief)
        return current


def _factored(family: AbstractFamily) -> AbstractFactorFamily:
    if not isinstance(family, AbstractFactorFamily):
        raise TypeError(f"expected a full or diagonal family for plain gradient steps, got {type(family).__name__}")
    return family


def _check(name: str, value: float | int, most: float = math.inf) -> None:
    if not 0 < value <= most:
        raise ValueError(f"expected {name} to be positive and at most {most}, got {value}")
