"""LiM2: neural-linear with a limited memory, and priors from earlier rounds (Nabati et al. 2021)."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import symmetrise
from tsforecast.decisions.buffer import History
from tsforecast.decisions.encoding import rescale_outputs
from tsforecast.decisions.fitting import Descent, gradient_step
from tsforecast.decisions.linear import Heads, expect_heads, fit_heads, regression
from tsforecast.decisions.neural_linear import NeuralLinear, hidden
from tsforecast.decisions.retrained import fit_to
from tsforecast.decisions.rewards import AbstractIndependentRewards, ArmRewards, Context, Interactions, Reward
from tsforecast.learners.networks.layer_chain import LayerChain

# Added to the diagonal of a matched covariance, which clipping leaves singular.
_JITTER = 1e-5


@register_record
@dataclasses.dataclass(frozen=True)
class Matched:
    """A neural-linear model, and the priors of its heads.

    Attributes:
        model: Network, heads and memory.
        priors: Of each arm.
    """

    model: NeuralLinear
    priors: Heads


@dataclasses.dataclass(frozen=True)
class MatchedRewards(AbstractIndependentRewards[Matched]):
    """Likelihood matching: when features change, so does the prior, so that it says the same of the memory.

    In every round the network takes a plain gradient step on some rows of the memory, which holds the last rounds of
    each arm. Then the prior covariance of each arm takes a projected gradient step (see `match`), its mean is the
    network's own head, and the heads are fitted to the memory.

    Attributes:
        network: With an output for each arm and at least one hidden layer.
        mean: Weights to begin with.
        memory: Rounds that are remembered for each arm.
        every: Rounds between two steps.
        descent: Of the warm-up.
        step_rate: Of the steps.
        rows: Of a step, for each arm.
        matched: Rows of a projected gradient step.
        variance: Of each weight of a head in the first prior, in units of the noise variance.
        shape: Of the prior over the noise variance.
        rate: Of the prior over the noise variance.
        forgetting: By which older rounds count for less, the more rounds there were since, of whatever arm.
    """

    network: LayerChain
    mean: Float[Tensor, " weight"]
    memory: int = 100
    every: int = 1
    descent: Descent = Descent()
    step_rate: float = 0.1
    rows: int = 16
    matched: int = 20
    variance: float = 1.0
    shape: float = 6.0
    rate: float = 6.0
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        counts = (self.memory, self.every, self.rows, self.matched)
        if min(counts) < 1 or not self.step_rate > 0 or len(self.network.widths) < 3:
            raise ValueError(
                "expected a hidden layer, a positive step_rate, and memory, every, rows and matched of at least 1, got "
                f"{len(self.network.widths) - 2} layers, {self.step_rate} and {', '.join(map(str, counts))}"
            )

    def init(self, generator: torch.Generator) -> Matched:
        """Return the initial network, and priors around zero."""
        priors = (regression(self.network.widths[-2] + 1, self.variance, self.shape, self.rate).init(),) * self.arms
        return Matched(NeuralLinear(self.mean, priors, History.empty(self.every, self.features)), priors)

    def warm_up(self, state: Matched, seen: Interactions, generator: torch.Generator) -> Matched:
        """Train on the rewards of the arms that were pulled; there is nothing to match yet."""
        history = state.model.history.of(seen).merged(self.memory, each_arm=True)
        weights = self.descent.fit(fit_to(self.network, seen), state.model.weights, generator)
        features = hidden(self.network, weights, seen.contexts)
        return Matched(NeuralLinear(weights, fit_heads(state.priors, features, seen), history), state.priors)

    def learn(self, state: Matched, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> Matched:
        """Take a step, match the priors, and fit the heads."""
        model = dataclasses.replace(state.model, history=state.model.history.add(context, arm, reward))
        if not model.history.is_due:
            return dataclasses.replace(state, model=model)
        history = model.history.merged(self.memory, each_arm=True)
        seen = history.seen
        rows = torch.randint(len(seen), (self.rows * self.arms,), generator=generator)
        some = Interactions(seen.contexts[rows], seen.arms[rows], seen.rewards[rows])
        weights = gradient_step(fit_to(self.network, some), model.weights, self.step_rate)
        rows = torch.randint(len(seen), (self.matched,), generator=generator)
        old, new = (hidden(self.network, w, seen.contexts[rows]) for w in (model.weights, weights))
        priors = []
        for prior, head in zip(state.priors, self._network_heads(weights), strict=True):
            cov = match(prior.cov, old, new) + _JITTER * torch.eye(old.shape[-1], dtype=old.dtype)
            priors.append(dataclasses.replace(prior, mean=head, cov=cov))
        return self._fitted(weights, tuple(priors), history)

    def _fitted(self, weights: Tensor, priors: Heads, history: History) -> Matched:
        """Return the state with the heads that the memory makes of their priors."""
        features = hidden(self.network, weights, history.seen.contexts)
        heads = fit_heads(priors, features, history.seen, history.fading(self.forgetting))
        return Matched(NeuralLinear(weights, heads, history), priors)

    def rescale(self, state: Matched, shift: float, scale: float) -> Matched:
        """Return network, memory and the priors' means in the new units, and the heads that these give."""
        weights = rescale_outputs(self.network, state.model.weights, shift, scale)
        ones = torch.nn.functional.one_hot(torch.tensor(self.network.widths[-2]))  # the feature of ones is the last
        priors = tuple(dataclasses.replace(x, mean=(x.mean - shift * ones) / scale) for x in state.priors)
        return self._fitted(weights, priors, state.model.history.rescale(shift, scale))

    def _network_heads(self, weights: Tensor) -> Tensor:
        """Return the weights of the network's own outputs, and their biases, of each arm."""
        units = self.network.widths[-2]
        matrix, bias = weights[-(units + 1) * self.arms :].split([units * self.arms, self.arms])
        return torch.cat([matrix.view(self.arms, units), bias.unsqueeze(-1)], -1).double()

    def expect(self, state: Matched, context: Context, spread: bool = True) -> ArmRewards:
        """Return the moments of the heads."""
        features = hidden(self.network, state.model.weights, context.unsqueeze(0))[0]
        return expect_heads(state.model.heads, features, spread)


def match(
    cov: Float[Tensor, "feature feature"],
    old: Float[Tensor, "row feature"],
    new: Float[Tensor, "row feature"],
    steps: int = 1,
) -> Float[Tensor, "feature feature"]:
    """Return a covariance A that says of new features what S says of old ones: phi' A phi = phi_old' S phi_old = s^2.

    Projected gradient steps on sum_j (phi_j' A phi_j - s_j^2)^2 from A = S. With their length, 1 / (2 sum_j |phi_j|^4),
    none overshoots. Negative eigenvalues are clipped.

    Args:
        cov: The covariance S.
        old: Features of some rows.
        new: Features of the same rows.
        steps: Number of steps.
    """
    wanted = ((old @ cov) * old).sum(-1)
    curvature = 2 * new.square().sum(-1).square().sum()
    found = cov
    for _ in range(steps):
        excess = ((new @ found) * new).sum(-1) - wanted
        moved = found - 2 * (new * excess.unsqueeze(-1)).mT @ new / curvature
        values, vectors = torch.linalg.eigh(symmetrise(moved))
        found = symmetrise((vectors * values.clamp_min(0)) @ vectors.mT)
    return found
