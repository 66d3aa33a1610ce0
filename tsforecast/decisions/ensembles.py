"""Plain ways to be unsure of a network: bootstrapped copies, and dropout (Riquelme et al. 2018)."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.buffer import History
from tsforecast.decisions.encoding import rescale_outputs
from tsforecast.decisions.fitting import Descent
from tsforecast.decisions.retrained import AbstractRetrainedRewards, AbstractTrained, fit_to
from tsforecast.decisions.rewards import ArmRewards, Context
from tsforecast.learners.networks.layer_chain import LayerChain


@register_record
@dataclasses.dataclass(frozen=True)
class Ensemble(AbstractTrained):
    """Networks, and all rounds.

    Attributes:
        weights: Of each network.
        history: All rounds.
        counts: How often each round counts for each network.
    """

    weights: Float[Tensor, "member weight"]
    history: History
    counts: Float[Tensor, "step member"]


@dataclasses.dataclass(frozen=True)
class BootstrapRewards(AbstractRetrainedRewards[Ensemble]):
    """Networks from different weights, each of which counts every round as often as a Poisson number of mean 1 says.

    That is the online bootstrap (Oza and Russell 2001). A draw is one of the networks; the spread is that between them.
    Where a training step takes some of the rounds, these are the same ones for all networks.

    Attributes:
        network: With an output for each arm.
        mean: Weights of the first network; others begin with these and Gaussian noise of their size.
        members: Number of networks.
        every: Rounds between two trainings.
        descent: Of a training.
        forgetting: By which older rounds count for less.
    """

    network: LayerChain
    mean: Float[Tensor, " weight"]
    members: int = 10
    every: int = 100
    descent: Descent = Descent(steps=30)
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if self.members < 2 or self.every < 1:
            raise ValueError(
                f"expected members of 2 or more and every of 1 or more, got {self.members} and {self.every}"
            )

    def init(self, generator: torch.Generator) -> Ensemble:
        """Return networks of random weights."""
        noise = torch.randn(self.members, len(self.mean), generator=generator, dtype=self.mean.dtype)
        weights = self.mean + self.mean.abs().mean() * noise  # networks must differ where no data tell them apart
        return Ensemble(weights, History.empty(self.every, self.features), weights.new_zeros(0, self.members))

    def rescale(self, state: Ensemble, shift: float, scale: float) -> Ensemble:
        """Return networks and history in the new units."""
        weights = rescale_outputs(self.network, state.weights, shift, scale)
        return Ensemble(weights, state.history.rescale(shift, scale), state.counts)

    def train(self, state: Ensemble, generator: torch.Generator) -> Ensemble:
        """Draw how often new rounds count, and train all networks."""
        history = state.history.merged()
        seen = history.seen
        # Old rounds keep theirs, as if each network had its own data.
        new = torch.poisson(torch.ones(len(seen) - len(state.counts), self.members), generator)
        counts = torch.cat([state.counts, new])
        kept = history.fading(self.forgetting)
        fit = fit_to(self.network, seen, counts.T if kept is None else counts.T * kept)
        return Ensemble(self.descent.fit(fit, state.weights, generator), history, counts)

    def expect(self, state: Ensemble, context: Context, spread: bool = True) -> ArmRewards:
        """Return mean and standard deviation over the networks."""
        outputs = torch.func.vmap(self.network, (0, None))(state.weights, context.unsqueeze(0))[:, 0]
        return ArmRewards(outputs.mean(0), outputs.std(0))

    def draw(self, state: Ensemble, context: Context, generator: torch.Generator) -> Float[Tensor, " arm"]:
        """Return the outputs of one of the networks."""
        member = int(torch.randint(self.members, (), generator=generator))
        return self.network(state.weights[member], context.unsqueeze(0))[0]


@register_record
@dataclasses.dataclass(frozen=True)
class Dropped(AbstractTrained):
    """A network, and all rounds.

    Attributes:
        weights: Of the network.
        history: All rounds.
    """

    weights: Float[Tensor, " weight"]
    history: History


@dataclasses.dataclass(frozen=True)
class DropoutRewards(AbstractRetrainedRewards[Dropped]):
    """A network with hidden units dropped at random, in training and in draws.

    Gal and Ghahramani (2016). All rows of a training step share what is dropped.

    Attributes:
        network: With an output for each arm and at least one hidden layer.
        mean: Weights to begin with.
        probability: That a unit is dropped.
        draws: By which mean and spread are found.
        every: Rounds between two trainings.
        descent: Of a training.
        forgetting: By which older rounds count for less.
    """

    network: LayerChain
    mean: Float[Tensor, " weight"]
    probability: float = 0.2
    draws: int = 20
    every: int = 100
    descent: Descent = Descent(steps=30)
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 1 or self.draws < 2 or self.every < 1:
            raise ValueError(
                "expected a probability below 1, 2 draws and trainings every round or fewer, got "
                f"{self.probability}, {self.draws} and {self.every}"
            )

    def init(self, generator: torch.Generator) -> Dropped:
        """Return the initial network."""
        return Dropped(self.mean, History.empty(self.every, self.features))

    def rescale(self, state: Dropped, shift: float, scale: float) -> Dropped:
        """Return network and history in the new units."""
        weights = rescale_outputs(self.network, state.weights, shift, scale)
        return Dropped(weights, state.history.rescale(shift, scale))

    def train(self, state: Dropped, generator: torch.Generator) -> Dropped:
        """Train with units dropped, others in each step."""
        history = state.history.merged()
        importance = history.fading(self.forgetting)
        fit = fit_to(self.network, history.seen, importance, lambda theta: theta * self._mask(generator))
        return Dropped(self.descent.fit(fit, state.weights, generator), history)

    def _mask(self, generator: torch.Generator) -> Tensor:
        """Return what weights are multiplied by: those that leave a dropped unit by 0, others by 1 / (1 - p)."""
        parts = []
        widths = self.network.widths
        for layer, (fan_in, fan_out, bias) in enumerate(zip(widths, widths[1:], self.network.biases, strict=False)):
            kept = torch.ones(fan_in)
            if layer:  # inputs are no units
                kept = (torch.rand(fan_in, generator=generator) >= self.probability) / (1 - self.probability)
            parts += [kept.repeat(fan_out), torch.ones(fan_out if bias else 0)]
        return torch.cat(parts)

    def expect(self, state: Dropped, context: Context, spread: bool = True) -> ArmRewards:
        """Return the outputs of the whole network, and the standard deviation of draws, always the same ones."""
        mean = self.network(state.weights, context.unsqueeze(0))[0]
        if not spread:
            return ArmRewards.certain(mean)
        generator = torch.Generator().manual_seed(0)
        masks = torch.stack([self._mask(generator) for _ in range(self.draws)])
        outputs = torch.func.vmap(self.network, (0, None))(state.weights * masks, context.unsqueeze(0))[:, 0]
        return ArmRewards(mean, outputs.std(0))

    def draw(self, state: Dropped, context: Context, generator: torch.Generator) -> Float[Tensor, " arm"]:
        """Return the outputs of a network with units dropped."""
        return self.network(state.weights * self._mask(generator), context.unsqueeze(0))[0]
