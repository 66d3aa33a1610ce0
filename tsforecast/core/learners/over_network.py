"""What a learner over the weights of a network shares with all others, so that anything may be built around it."""

import dataclasses
from typing import Any, Generic, TypeVar

from tsforecast.core.learner import AbstractLearner
from tsforecast.core.learners.likelihood import AbstractLikelihood
from tsforecast.core.learners.network import AbstractNetwork

Belief = TypeVar("Belief")


class AbstractNetworkLearner(AbstractLearner[Belief], Generic[Belief]):
    """A learner over the weights of a network: a frozen dataclass that has these two among its fields.

    Attributes:
        network: From inputs and weights to outputs.
        likelihood: Of a target given outputs.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood

    def with_network(self, network: AbstractNetwork) -> "AbstractNetworkLearner[Belief]":
        """The same learner over another network with the same weights."""
        settings: Any = self  # a dataclass, which only its subclasses are
        return dataclasses.replace(settings, network=network)
