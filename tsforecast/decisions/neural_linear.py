"""Linear regression of each arm on the last hidden layer of a network that is retrained now and then."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.buffer import History
from tsforecast.decisions.encoding import rescale_outputs
from tsforecast.decisions.fitting import Descent
from tsforecast.decisions.linear import Heads, expect_heads, fit_heads, regression, rescale_heads
from tsforecast.decisions.retrained import AbstractRetrainedRewards, AbstractTrained, fit_to
from tsforecast.decisions.rewards import AbstractIndependentRewards, ArmRewards, Context, Reward
from tsforecast.learners.conjugate import ConjugateRegression
from tsforecast.learners.networks.layer_chain import LayerChain


@register_record
@dataclasses.dataclass(frozen=True)
class NeuralLinear(AbstractTrained):
    """A network, the regressions on its features, and the rounds that both were fitted to.

    Attributes:
        weights: Of the network.
        heads: Of each arm.
        history: Rounds that are remembered.
    """

    weights: Float[Tensor, " weight"]
    heads: Heads
    history: History


@dataclasses.dataclass(frozen=True)
class NeuralLinearRewards(AbstractIndependentRewards[NeuralLinear], AbstractRetrainedRewards[NeuralLinear]):
    """Features by a network, heads exact: neural-linear (Snoek et al. 2015; Riquelme et al. 2018).

    Every so many rounds the network, with an output for each arm, is trained on what is remembered. The regressions
    of the arms on its last hidden layer are then computed anew from that; between trainings they learn by the round.
    `Greedy` over `head="network"` is neural-greedy.

    Attributes:
        network: With an output for each arm and at least one hidden layer.
        mean: Weights to begin with.
        memory: Rounds that are remembered; 0 for all.
        every: Rounds between two trainings.
        descent: By which the network is trained.
        variance: Of each weight of a head in the prior, in units of the noise variance.
        shape: Of the prior over the noise variance.
        rate: Of the prior over the noise variance.
        forgetting: Part of the evidence that is forgotten in a round, by the heads and in the training.
        head: "exact" for the regressions, or "network" for the outputs of the network itself, without spread.
    """

    network: LayerChain
    mean: Float[Tensor, " weight"]
    memory: int = 0
    every: int = 100
    descent: Descent = Descent(steps=30)
    variance: float = 0.05
    shape: float = 6.0
    rate: float = 6.0
    forgetting: float = 0.0
    head: str = "exact"

    def __post_init__(self) -> None:
        if self.memory < 0 or self.every < 1 or not 0 <= self.forgetting < 1 or len(self.network.widths) < 3:
            raise ValueError(
                "expected a hidden layer, memory of at least 0, trainings every 1 or more rounds and forgetting below "
                f"1, got {len(self.network.widths) - 2}, {self.memory}, {self.every} and {self.forgetting}"
            )
        if self.head not in ("exact", "network"):
            raise ValueError(f"expected head to be exact or network, got {self.head!r}")

    def init(self, generator: torch.Generator) -> NeuralLinear:
        """Return the initial network, and priors around zero."""
        return NeuralLinear(self.mean, self._prior(), History.empty(self.every, self.features))

    def _regression(self) -> ConjugateRegression:
        return regression(self.network.widths[-2] + 1, self.variance, self.shape, self.rate)

    def _prior(self) -> Heads:
        return (self._regression().init(),) * self.arms

    def count(self, state: NeuralLinear, context: Context, arm: int, reward: Reward) -> NeuralLinear:
        """Update the head of the arm."""
        learner, heads = self._regression(), list(state.heads)
        if self.forgetting:
            heads = [learner.forget(head, self.forgetting) for head in heads]  # of all arms: time passes for each
        x = hidden(self.network, state.weights, context.unsqueeze(0))
        heads[arm] = learner.update(heads[arm], x, reward.double().view(1, 1))
        return dataclasses.replace(state, heads=tuple(heads))

    def rescale(self, state: NeuralLinear, shift: float, scale: float) -> NeuralLinear:
        """Return network, heads and history in the new units."""
        heads = rescale_heads(state.heads, self.variance, self.rate, shift, scale)
        weights = rescale_outputs(self.network, state.weights, shift, scale)
        return NeuralLinear(weights, heads, state.history.rescale(shift, scale))

    def train(self, state: NeuralLinear, generator: torch.Generator) -> NeuralLinear:
        """Return the state with a network and heads for all that is remembered."""
        history = state.history.merged(self.memory)
        seen = history.seen
        importance = history.fading(self.forgetting)
        weights = self.descent.fit(fit_to(self.network, seen, importance), state.weights, generator)
        features = hidden(self.network, weights, seen.contexts)
        return NeuralLinear(weights, fit_heads(self._prior(), features, seen, importance), history)

    def expect(self, state: NeuralLinear, context: Context, spread: bool = True) -> ArmRewards:
        """Return the moments of the heads, or the outputs of the network."""
        if self.head == "network":
            mean = self.network(state.weights, context.unsqueeze(0))[0]
            return ArmRewards.certain(mean)
        return expect_heads(state.heads, hidden(self.network, state.weights, context.unsqueeze(0))[0], spread)


def hidden(
    network: LayerChain, weights: Float[Tensor, " weight"], contexts: Float[Tensor, "step feature"]
) -> Float[Tensor, "step unit_and_one"]:
    """Return the last hidden layer with a feature of ones, in double precision."""
    body = LayerChain(network.widths[:-1], network.activations[:-1], network.biases[:-1])
    values = body(weights[: body.size], contexts).double()  # the regressions subtract large numbers
    return torch.cat([values, values.new_ones(len(values), 1)], -1)
