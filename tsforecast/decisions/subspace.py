"""Rewards by a network with weights in a subspace."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.encoding import AbstractEncoding, rescale_outputs
from tsforecast.decisions.fitting import Descent, Fit
from tsforecast.decisions.learnt import draw_rewards, expect_rewards
from tsforecast.decisions.rewards import AbstractRewards, ArmRewards, Context, Interactions, Reward
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.drift import AbstractDrift, NoDrift
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.likelihood import GaussianLikelihood
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.networks.subspace import Subspace, basis_of_iterates, random_basis


@register_record
@dataclasses.dataclass(frozen=True)
class InSubspace:
    """Where the subspace is, and the belief over coordinates in it.

    Attributes:
        origin: Weights at coordinates of zero.
        basis: Directions, as columns.
        belief: Over coordinates.
    """

    origin: Float[Tensor, " weight"]
    basis: Float[Tensor, "weight coordinate"]
    belief: Any


@dataclasses.dataclass(frozen=True)
class SubspaceRewards(AbstractRewards[InSubspace]):
    """The subspace EKF (Duran-Martin, Kara and Murphy 2022; "Efficient Online Bayesian Inference", section 3).

    The network is fitted to the warm-up, where the origin is put. Directions are random, or those in which the iterates
    of that descent differ most. Then the warm-up is learnt from in the subspace, too, as in algorithm 2.

    Attributes:
        network: With one output.
        mean: Weights that the descent begins with.
        encoding: From a context and an arm to inputs of the network.
        dim: Number of directions; fewer where there are fewer weights.
        iterated: Whether directions are those of the iterates; else they are random.
        variance: Of each coordinate in the prior.
        noise: Variance of a reward.
        family: Of the belief.
        weight_drift: Of the coordinates in each round.
        descent: By which weights are fitted to the warm-up; it has at least `dim` steps.
    """

    network: AbstractNetwork
    mean: Float[Tensor, " weight"]
    encoding: AbstractEncoding
    dim: int = 200
    iterated: bool = True
    variance: float = 0.01
    noise: float = 0.01
    family: AbstractFamily = dataclasses.field(default_factory=Full)
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)
    descent: Descent = Descent(steps=1000)

    def __post_init__(self) -> None:
        if not 0 < self.dim <= self.descent.steps:
            raise ValueError(f"expected a dimension from 1 to the {self.descent.steps} steps, got {self.dim}")

    @property
    def _dim(self) -> int:
        return min(self.dim, len(self.mean))  # a small network has no more directions

    def init(self, generator: torch.Generator) -> InSubspace:
        """Return the prior in random directions."""
        basis = random_basis(len(self.mean), self._dim, generator, self.mean.dtype)
        return InSubspace(self.mean, basis, self._learner(self.mean, basis).init())

    def _learner(self, origin: Tensor, basis: Tensor) -> GaussianLearner:
        zeros = origin.new_zeros(basis.shape[-1])
        return GaussianLearner(
            Subspace(self.network, origin, basis),
            GaussianLikelihood(self.noise),
            zeros,
            torch.full_like(zeros, self.variance),
            self.family,
            weight_drift=self.weight_drift,
        )

    def warm_up(self, state: InSubspace, seen: Interactions, generator: torch.Generator) -> InSubspace:
        """Fit the network, choose origin and directions, and learn from the rewards in turn."""
        inputs = self.encoding.pulled(seen.contexts, seen.arms)
        iterates = self.descent.iterates(Fit(self.network, inputs, seen.rewards), state.origin, generator, every=1)
        basis = basis_of_iterates(iterates, self._dim) if self.iterated else state.basis
        belief = self._learner(iterates[-1], basis).init()  # around the fitted weights, which are the origin
        return super().warm_up(InSubspace(iterates[-1], basis, belief), seen, generator)

    def learn(
        self, state: InSubspace, context: Context, arm: int, reward: Reward, generator: torch.Generator
    ) -> InSubspace:
        """Drift and update of the coordinates."""
        learner = self._learner(state.origin, state.basis)
        inputs = self.encoding.pulled(context.unsqueeze(0), torch.tensor([arm]))
        belief = learner.update(learner.drift(state.belief, 1.0), inputs, reward.view(1, 1), None, generator)
        return dataclasses.replace(state, belief=belief)

    def rescale(self, state: InSubspace, shift: float, scale: float) -> InSubspace:
        """Move the origin, such that the mean of the belief has weights in the new units."""
        move = state.basis @ state.belief.mean  # coordinates stay: their prior knows no units
        return dataclasses.replace(
            state, origin=rescale_outputs(self.network, state.origin + move, shift, scale) - move
        )

    def expect(self, state: InSubspace, context: Context, spread: bool = True) -> ArmRewards:
        """Return the outputs, and their standard deviations in the linearised network."""
        learner = self._learner(state.origin, state.basis)
        return expect_rewards(learner, state.belief, self.encoding.each(context), spread)

    def sample(
        self, state: InSubspace, context: Context, number: int, generator: torch.Generator
    ) -> Float[Tensor, "draw arm"]:
        """Return the outputs of networks with drawn coordinates."""
        learner = self._learner(state.origin, state.basis)
        return draw_rewards(learner, state.belief, self.encoding.each(context), generator, number)
