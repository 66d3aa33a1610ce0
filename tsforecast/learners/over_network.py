"""The contract of learners over the weights of a network."""

import abc
import dataclasses
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.likelihoods.predictions import Prediction
from tsforecast.learners.loop import AbstractLearner
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.shapes import Inputs, Observed, Scalar, Target

Belief = TypeVar("Belief")


@dataclasses.dataclass(frozen=True)
class AbstractNetworkLearner(AbstractLearner[Belief], Generic[Belief]):
    """A learner over the weights of a network: a frozen dataclass that has these two as its first fields.

    Attributes:
        network: From inputs and weights to outputs.
        likelihood: Of a target given outputs.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood

    def with_network(self, network: AbstractNetwork) -> "AbstractNetworkLearner[Belief]":
        """The same learner over another network with the same weights."""
        return dataclasses.replace(self, network=network)

    @abc.abstractmethod
    def adopt(
        self, smaller: "AbstractNetworkLearner[Belief]", belief: Belief
    ) -> tuple["AbstractNetworkLearner[Belief]", Belief]:
        """Goes on for a learner over a network with fewer inputs or outputs.

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


class AbstractPointsLearner(AbstractNetworkLearner[Belief]):
    """A learner with updates and steps made of two parts: it predicts points, and it learns from them."""

    @abc.abstractmethod
    def scored(self, belief: Belief, points: Points) -> tuple[Prediction, Any]:
        """Return the prediction of some points, and the work that `learn` need not do again; None for none."""

    @abc.abstractmethod
    def learn(self, belief: Belief, points: Points, generator: torch.Generator | None, done: Any = None) -> Belief:
        """Return the belief given some points.

        Args:
            belief: Before.
            points: Inputs and targets.
            generator: Of random numbers, where the learner needs some.
            done: Work of `scored` for the same belief and points, if there was any.
        """

    def update(
        self,
        belief: Belief,
        inputs: Inputs,
        target: Target,
        observed: Observed | None = None,
        generator: torch.Generator | None = None,
        counts: Float[Tensor, " point"] | None = None,
    ) -> Belief:
        """Learn from the points."""
        return self.learn(belief, Points.of(inputs, target, observed, counts), generator)

    def step(
        self,
        belief: Belief,
        inputs: Inputs,
        target: Target,
        observed: Observed | None = None,
        dt: Scalar = 1.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Belief, Prediction]:
        """Drift, predict, score, learn."""
        belief, points = self.drift(belief, dt), Points.of(inputs, target, observed)
        prediction, done = self.scored(belief, points)
        return self.learn(belief, points, generator, done), prediction
