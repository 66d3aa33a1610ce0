"""The contract of learners over the weights of a network."""

import abc
import dataclasses
from typing import Any, Generic, TypeVar

from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.loop import AbstractLearner
from tsforecast.learners.networks.network import AbstractNetwork

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

    @abc.abstractmethod
    def adopt(
        self, smaller: "AbstractNetworkLearner[Belief]", belief: Belief
    ) -> tuple["AbstractNetworkLearner[Belief]", Belief]:
        """Goes on for a learner whose network had fewer inputs or outputs.

        What the smaller one predicted stays as it was, where what is new has no influence: inputs of 0, and other
        outputs than those that there were.

        Args:
            smaller: With the same settings.
            belief: Of the smaller one.

        Returns:
            This learner with the prior of the smaller one in its weights, and the belief, which in weights that are new
            is this learner's prior.

        Raises:
            ValueError: If the smaller network has no place in this one.
        """
