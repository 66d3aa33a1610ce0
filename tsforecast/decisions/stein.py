"""Rewards by particles over the weights of a network: Stein Thompson sampling (Zhang et al. 2018)."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.decisions.encoding import AbstractEncoding, rescale_outputs
from tsforecast.decisions.learnt import outputs_of
from tsforecast.decisions.rewards import AbstractRewards, ArmRewards, Context, Interactions, Reward
from tsforecast.learners.particles.particle_learner import Particles, SteinLearner


@dataclasses.dataclass(frozen=True)
class SteinRewards(AbstractRewards[Particles]):
    """The output of a network for a context and an arm, with particles over its weights that all rounds move.

    A draw is the output of one particle, picked at random; the spread is that between particles.

    Attributes:
        learner: Over a network with one output; its steps are those of a round, its data fade by its forgetting.
        encoding: From a context and an arm to inputs of the network.
        warm_up_steps: Steps on the rewards of the warm-up.

    Raises:
        ValueError: If the steps are negative.
    """

    learner: SteinLearner
    encoding: AbstractEncoding
    warm_up_steps: int = 500

    def __post_init__(self) -> None:
        if self.warm_up_steps < 0:
            raise ValueError(f"expected warm_up_steps of at least 0, got {self.warm_up_steps}")

    def init(self, generator: torch.Generator) -> Particles:
        """Return the particles to begin with, and no rounds."""
        none = Interactions(torch.zeros(0, self.features), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
        return self.learner.keep(self.learner.init(), *self._points(none))

    def warm_up(self, state: Particles, seen: Interactions, generator: torch.Generator) -> Particles:
        """Move the particles towards the posterior given the rewards of the pulled arms."""
        kept = self.learner.keep(state, *self._points(seen))
        return self.learner.fit(kept, self.warm_up_steps, generator)

    def learn(
        self, state: Particles, context: Context, arm: int, reward: Reward, generator: torch.Generator
    ) -> Particles:
        """Keep the round, and take a few steps on all so far."""
        points = self._points(Interactions(context.unsqueeze(0), torch.tensor([arm]), reward.unsqueeze(0)))
        return self.learner.update(self.learner.drift(state, 1.0), *points, None, generator)

    def rescale(self, state: Particles, shift: float, scale: float) -> Particles:
        """Return particles and their data in the new units.

        Weights are linear in those of the last layer's matrix, whatever reflections and scales it has.
        """
        posterior = self.learner.posterior
        free = posterior.structure.lengths[0]
        weights = rescale_outputs(self.learner.network, state.values[:, :free], shift, scale)
        values = torch.cat([weights, state.values[:, free:]], -1)
        if posterior.learns_noise:
            values[:, -1] += 2 * math.log(scale)  # the logarithm of a precision
        return dataclasses.replace(state, values=values, target=(state.target - shift) / scale)

    def expect(self, state: Particles, context: Context, spread: bool = True) -> ArmRewards:
        """Return mean and standard deviation of the outputs of all particles."""
        outputs = self.learner.outputs(state, self._each(context))[..., 0]
        return ArmRewards(outputs.mean(0), outputs.std(0, correction=0))  # one particle has no spread

    def sample(
        self, state: Particles, context: Context, number: int, generator: torch.Generator
    ) -> Float[Tensor, "draw arm"]:
        """Return the outputs of some particles."""
        weights = self.learner.sample(state, number, generator)
        return outputs_of(self.learner.network, weights, self._each(context))

    def _points(self, seen: Interactions) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of rounds, where the particles are."""
        where = self.learner.start.device
        inputs = self.encoding.pulled(seen.contexts, seen.arms)
        return inputs.to(where), seen.rewards.unsqueeze(-1).to(where)

    def _each(self, context: Tensor) -> Tensor:
        """Return the inputs of all arms, where the particles are."""
        return self.encoding.each(context).to(self.learner.start.device)
