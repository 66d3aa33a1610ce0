"""Rewards of 0 and 1: logistic regression of each arm, with Gaussian beliefs by ADF, EP, Laplace or FAB-COST."""

import dataclasses
import functools
from typing import ClassVar, TypeAlias

import torch
from torch import nn

from tsforecast.decisions.linear import with_one
from tsforecast.decisions.rewards import AbstractIndependentRewards, ArmRewards, Context, Reward
from tsforecast.learners.batch.batch_posterior import AbstractBatchPosterior
from tsforecast.learners.batch.expectation_propagation import EP
from tsforecast.learners.batch.refitted import Refitted, RefittedLearner
from tsforecast.learners.drift import AbstractDrift, NoDrift
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain

Beliefs: TypeAlias = tuple[Refitted, ...]  # one for each arm


@dataclasses.dataclass(frozen=True)
class LogisticRewards(AbstractIndependentRewards[Beliefs]):
    """P(y = 1) = sigmoid(w_a' (x, 1)) with a belief N(w_a; m_a, S_a) for each arm: a logistic bandit.

    Every reward is filtered in O(D^2). After some rewards of an arm all of them are fitted again, by `batch`: FAB-COST
    where these are few (McKenzie et al. 2020), a Laplace bandit with `Laplace` (Chapelle and Li 2011).

    Attributes:
        variance: Of each weight in the prior.
        batch: How all rewards of an arm are fitted.
        at: Numbers of rewards of an arm after which they are.
        every: Further, all so many; 0 for never.
        memory: Rewards of an arm that a fit revises at least; those before keep their influence. 0 for all.
        weight_drift: Of the weights of all arms in each round; Bayesian forgetting where rewards are fitted again.
    """

    binary: ClassVar[bool] = True

    variance: float = 1.0
    batch: AbstractBatchPosterior = dataclasses.field(default_factory=lambda: EP(schedule="parallel", tolerance=1e-4))
    at: tuple[int, ...] = ()
    every: int = 0
    memory: int = 10_000
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)

    def __post_init__(self) -> None:
        if not self.variance > 0:
            raise ValueError(f"expected variance to be positive, got {self.variance}")
        _ = self._learner  # raises now what is wrong with the steps

    @functools.cached_property
    def _learner(self) -> RefittedLearner:
        """Learner of the rewards of an arm."""
        mean = torch.zeros(self.features + 1, dtype=torch.float64)
        return RefittedLearner(
            # The bias is the weight of the last feature, a one.
            LayerChain((self.features + 1, 1), (nn.Identity,), (False,)),
            BernoulliLikelihood(prediction="moderated"),
            mean,
            torch.full_like(mean, self.variance),
            self.batch,
            self.at,
            self.every,
            self.memory,
            self.weight_drift,
        )

    def init(self, generator: torch.Generator) -> Beliefs:
        """Return the prior of each arm."""
        return (self._learner.init(),) * self.arms

    def learn(self, state: Beliefs, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> Beliefs:
        """Move all arms by the drift, and update the one that was pulled."""
        beliefs = [self._learner.drift(belief, 1.0) for belief in state]  # of all arms: time passes for each
        beliefs[arm] = self._learner.update(beliefs[arm], with_one(context)[None], reward.double().view(1, 1))
        return tuple(beliefs)

    def rescale(self, state: Beliefs, shift: float, scale: float) -> Beliefs:
        """Refuse: rewards are 0 or 1.

        Raises:
            ValueError: Always.
        """
        raise ValueError("expected rewards of 0 and 1, which have no other units")

    def expect(self, state: Beliefs, context: Context, spread: bool = True) -> ArmRewards:
        """Return mean and standard deviation of the logits x' w; their order is that of the probabilities."""
        x = with_one(context)
        mean = torch.stack([x @ one.belief.mean for one in state])
        if not spread:
            return ArmRewards.certain(mean)
        variance = torch.stack([x @ one.belief.cov @ x for one in state])
        return ArmRewards(mean, variance.clamp_min(0).sqrt())
