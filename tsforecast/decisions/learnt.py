"""Rewards by any online learner over the weights of a network."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.torch_internals import normal
from tsforecast.decisions.encoding import AbstractEncoding, rescale_outputs
from tsforecast.decisions.fitting import Descent, Fit
from tsforecast.decisions.rewards import AbstractRewards, ArmRewards, Context, Interactions, Reward, above_zero
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.memory.memory_learner import Remembered
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.over_network import AbstractNetworkLearner


@register_record
@dataclasses.dataclass(frozen=True)
class Centred:
    """A belief, and where the prior of its learner is.

    Attributes:
        origin: Mean of the prior: random weights until the warm-up is over, then weights that were fitted to it.
        belief: Of the learner.
    """

    origin: Float[Tensor, " weight"]
    belief: Any


@dataclasses.dataclass(frozen=True)
class LearntRewards(AbstractRewards[Centred]):
    """The output of a network for a context and an arm, with the belief of a learner over its weights.

    After the warm-up the prior is put around weights fitted to it, and its rewards are learnt from once more, as in
    algorithm 2 of "Efficient Online Bayesian Inference for Neural Bandits". Contexts and rewards go to the
    device of the weights.

    Attributes:
        learner: Over a network with one output; it has a field `mean`, and the drift is its own.
        encoding: From a context and an arm to inputs of the network.
        descent: By which weights are fitted to the warm-up.
        draws_outputs: Whether a draw is one of the rewards, in the linearised network, instead of one of the weights:
            for beliefs with all covariances, of which weights are costly to draw.
    """

    learner: AbstractNetworkLearner[Any]
    encoding: AbstractEncoding
    descent: Descent = Descent()
    draws_outputs: bool = False

    def init(self, generator: torch.Generator) -> Centred:
        """Return the prior of the learner."""
        belief = self.learner.init()
        return Centred(self.learner.weights(belief), belief)

    def warm_up(self, state: Centred, seen: Interactions, generator: torch.Generator) -> Centred:
        """Fit the network, put the prior around it, and learn from the rewards in turn."""
        inputs = self.encoding.pulled(seen.contexts, seen.arms).to(state.origin.device)
        fit = Fit(self.learner.network, inputs, seen.rewards.to(inputs.device))
        origin = self.descent.fit(fit, state.origin, generator)
        return super().warm_up(Centred(origin, around(self.learner, origin).init()), seen, generator)

    def learn(self, state: Centred, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> Centred:
        """Drift and update of the learner."""
        where = state.origin.device
        inputs = self.encoding.pulled(context.unsqueeze(0), torch.tensor([arm])).to(where)
        learner = around(self.learner, state.origin)
        belief = learner.drift(state.belief, 1.0)
        return Centred(state.origin, learner.update(belief, inputs, reward.view(1, 1).to(where), None, generator))

    def rescale(self, state: Centred, shift: float, scale: float) -> Centred:
        """Return prior and belief around weights that are in the new units; covariances stay."""

        def moved(weights: Tensor) -> Tensor:
            return rescale_outputs(self.learner.network, weights, shift, scale)

        belief = state.belief
        if isinstance(belief, Remembered):
            gaussian, fitted = (dataclasses.replace(x, mean=moved(x.mean)) for x in (belief.gaussian, belief.fitted))
            # Observations are kept as they came.
            memory = dataclasses.replace(belief.memory, target=(belief.memory.target - shift) / scale)
            return Centred(moved(state.origin), Remembered(gaussian, fitted, memory))
        return Centred(moved(state.origin), dataclasses.replace(belief, mean=moved(belief.mean)))

    def expect(self, state: Centred, context: Context, spread: bool = True) -> ArmRewards:
        """Return the outputs, and their standard deviations in the linearised network."""
        return expect_rewards(self.learner, state.belief, self.encoding.each(context).to(state.origin.device), spread)

    def sample(
        self, state: Centred, context: Context, number: int, generator: torch.Generator
    ) -> Float[Tensor, "draw arm"]:
        """Return the outputs of networks with drawn weights, or drawn outputs of the linearised one."""
        inputs = self.encoding.each(context).to(state.origin.device)
        return draw_rewards(self.learner, state.belief, inputs, generator, number, self.draws_outputs)

    def duel(self, state: Centred, context: Context, first: int, second: int) -> float | None:
        """Return the probability that follows from the joint law of both outputs, where it is the one of the draw."""
        if not (self.draws_outputs and isinstance(self.learner, GaussianLearner)):
            return None
        inputs = self.encoding.each(context).to(state.origin.device)[[first, second]]
        mean, cov = joint_outputs(self.learner, state.belief, inputs)
        # Arms share weights: their outputs are correlated.
        variance = (cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]).clamp_min(0)
        return above_zero((mean[0] - mean[1]).item(), variance.sqrt().item())


def around(learner: AbstractNetworkLearner[Any], origin: Float[Tensor, " weight"]) -> AbstractNetworkLearner[Any]:
    """Return the learner with the mean of its prior elsewhere."""
    settings: Any = learner  # a dataclass, which only its subclasses are
    return dataclasses.replace(settings, mean=origin)


def expect_rewards(
    learner: AbstractNetworkLearner[Any], belief: Any, inputs: Float[Tensor, "arm input"], spread: bool = True
) -> ArmRewards:
    """Return mean and standard deviation of the output for each row; of a belief in one point the latter is 0."""
    if not (spread and isinstance(learner, GaussianLearner)):
        mean = learner.network(learner.weights(belief), inputs)[:, 0]
        return ArmRewards.certain(mean)
    outputs, cov = learner.family.outputs(belief, learner.network, inputs)
    return ArmRewards(outputs[:, 0], cov[:, 0, 0].clamp_min(0).sqrt())


def joint_outputs(
    learner: GaussianLearner, belief: Any, inputs: Float[Tensor, "arm input"]
) -> tuple[Float[Tensor, " arm"], Float[Tensor, "arm arm"]]:
    """Return mean f and covariance J S J' of the outputs for all rows in the linearised network."""
    outputs, jacobian = learner.network.linearise(learner.weights(belief), inputs)
    return outputs[:, 0], learner.family.covariance(belief, jacobian[:, 0])


def draw_rewards(
    learner: AbstractNetworkLearner[Any],
    belief: Any,
    inputs: Float[Tensor, "arm input"],
    generator: torch.Generator,
    number: int = 1,
    draws_outputs: bool = False,
) -> Float[Tensor, "draw arm"]:
    """Return the output for each row, for some draws of the weights.

    Args:
        learner: Over a network with one output.
        belief: Of the learner.
        inputs: Of each arm.
        generator: Of the draws.
        number: How many.
        draws_outputs: Whether outputs are drawn from N(f, J S J') together, instead of weights.
    """
    if not (draws_outputs and isinstance(learner, GaussianLearner)):
        return outputs_of(learner.network, learner.sample(belief, number, generator), inputs)
    mean, cov = joint_outputs(learner, belief, inputs)
    values, vectors = torch.linalg.eigh(cov)  # arms may be equal, and the covariance singular
    noise = normal((number, *values.shape), values, generator)
    return mean + (values.clamp_min(0).sqrt() * noise) @ vectors.mT


def outputs_of(
    network: AbstractNetwork, weights: Float[Tensor, "draw weight"], inputs: Float[Tensor, "arm input"]
) -> Float[Tensor, "draw arm"]:
    """Return the one output for each row, by each of several vectors of weights."""
    if len(weights) == 1:
        return network(weights[0], inputs).mT
    return torch.func.vmap(network, (0, None))(weights, inputs)[..., 0]
