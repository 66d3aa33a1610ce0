"""A named learner and its settings as plain values: the configuration of streams, adaptation and estimators."""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tsforecast.learners import drift as drifts
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood, CategoricalLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.memory.continual import vb
from tsforecast.learners.named import (
    Parts,
    adf,
    bbb,
    blr,
    bog,
    bong,
    decoupled_ekf,
    ekf,
    iterated_ekf,
    lofi,
    lrkf,
    ogd,
    subspace_ekf,
    vd_ekf,
    wolf_ekf,
)
from tsforecast.learners.networks.layer_chain import as_network
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.shapes import Weights
from tsforecast.learners.weight import AbstractWeight, Gate, InverseMultiquadric
from tsforecast.settings import OutlierSettings

# Drifts that take a rate in a unit of time; "none" for the learner's own.
DRIFTS: dict[str, Callable[[float], drifts.AbstractDrift] | None] = {
    "none": None,
    "wiener": drifts.Wiener,
    "ou": drifts.OrnsteinUhlenbeck,
    "forgetting": drifts.BayesianForgetting,
    "exponential": lambda rate: drifts.ExponentialForgetting(1 - rate),
    "shrink": lambda rate: drifts.ShrinkAndPerturb(1 - rate),
}

# Weights of outliers that take a threshold; "none" for the learner's own.
WEIGHTS: dict[str, Callable[[float], AbstractWeight] | None] = {"none": None, "imq": InverseMultiquadric, "gate": Gate}


@dataclasses.dataclass(frozen=True)
class NamedLearner:
    """A constructor of learners.

    Attributes:
        make: From a module or network, a likelihood and a prior variance, with settings by keyword; a network comes
            with `mean`.
        classes: Its likelihood of classes.
        numbers: Whether it learns numbers, too.
    """

    make: Callable[..., AbstractNetworkLearner[Any]]
    classes: type[BernoulliLikelihood] | type[CategoricalLikelihood] = CategoricalLikelihood
    numbers: bool = True

    def __call__(self, *args: Any, **settings: Any) -> AbstractNetworkLearner[Any]:
        """Return the learner."""
        return self.make(*args, **settings)

    @property
    def takes(self) -> frozenset[str]:
        """Return the names of its settings."""
        parameters = inspect.signature(self.make).parameters
        return frozenset(parameters).union(Parts.__annotations__ if "parts" in parameters else ())

    @property
    def binary(self) -> bool:
        """Say whether it tells two classes apart, and no more."""
        return self.classes is BernoulliLikelihood


LEARNERS: dict[str, NamedLearner] = {
    "ekf": NamedLearner(ekf),
    "iterated-ekf": NamedLearner(iterated_ekf),
    "subspace-ekf": NamedLearner(subspace_ekf),
    "decoupled-ekf": NamedLearner(decoupled_ekf),
    "vd-ekf": NamedLearner(vd_ekf),
    "lofi": NamedLearner(lofi),
    "lrkf": NamedLearner(lrkf),
    "bong": NamedLearner(bong),
    "blr": NamedLearner(blr),
    "bog": NamedLearner(bog),
    "bbb": NamedLearner(bbb),
    "wolf-ekf": NamedLearner(wolf_ekf),
    "adf": NamedLearner(adf, classes=BernoulliLikelihood, numbers=False),
    "ogd": NamedLearner(ogd),
    "vb": NamedLearner(vb),
}


@dataclasses.dataclass(frozen=True)
class LearnerConfig(OutlierSettings):
    """Plain values of a named learner, with the settings of `OutlierSettings`.

    Attributes:
        learner: A name in `tsforecast.learners.LEARNERS`.
        seed: Of what the learner draws.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    learner: str = "lofi"
    seed: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        for name, table in (("learner", LEARNERS), ("drift", ("auto", *DRIFTS)), ("weight", WEIGHTS)):
            value = getattr(self, name)
            if value not in table:
                raise ValueError(f"expected {name} to be one of {', '.join(table)}, got {value!r}")
        if not 0 < self.variance < math.inf:
            raise ValueError(f"expected variance to be positive and finite, got {self.variance!r}")

    def build(
        self,
        model: nn.Module | AbstractNetwork,
        likelihood: AbstractLikelihood,
        mean: Weights | None = None,
        seed: int | None = None,
    ) -> AbstractNetworkLearner[Any]:
        """Return the learner.

        Args:
            model: A module, or a network as a function of its weights.
            likelihood: Of a target given outputs.
            mean: Weights to begin with; None for those of the module.
            seed: Of what the constructor draws; None for that of the configuration.

        Raises:
            ValueError: If the learner does not take these choices together.
        """
        named = LEARNERS[self.learner]
        size = (as_network(model) if isinstance(model, nn.Module) else model).size
        offered = {
            "rank": min(self.rank, size),  # a small network has no more directions
            "threshold": self.threshold,
            "generator": torch.Generator().manual_seed(self.seed if seed is None else seed),
        }
        # One setting serves many learners, not all take it.
        choices: dict[str, Any] = {name: value for name, value in offered.items() if name in named.takes}
        name = ("wiener" if "drift" in named.takes else "none") if self.drift == "auto" else self.drift
        drift, weight = DRIFTS[name], WEIGHTS[self.weight]
        if drift is not None:
            choices["drift"] = drift(self.rate)
        if weight is not None:
            choices["weight"] = weight(self.threshold)
        choices |= self.settings or {}  # what is given by name goes before the common settings
        given = {} if mean is None else {"mean": mean}
        try:
            return named(model, likelihood, self.variance, **given, **choices)
        except TypeError as error:
            raise ValueError(
                f"expected what learner {self.learner!r} takes, got {', '.join(sorted(choices))}: {error}"
            ) from error
