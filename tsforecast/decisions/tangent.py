"""NeuralTS and NeuralUCB: a network fitted to all rewards, and the uncertainty of its tangent kernel."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.buffer import History
from tsforecast.decisions.encoding import AbstractEncoding, rescale_outputs
from tsforecast.decisions.fitting import Descent, Fit
from tsforecast.decisions.retrained import AbstractRetrainedRewards, AbstractTrained
from tsforecast.decisions.rewards import AbstractIndependentRewards, ArmRewards, Context, Interactions, Reward
from tsforecast.learners.networks.network import AbstractNetwork


@register_record
@dataclasses.dataclass(frozen=True)
class Tangent(AbstractTrained):
    """A network, the design of its gradients, and all rounds.

    Attributes:
        weights: Of the network.
        design: Z = lam I + sum g g' / m; of the diagonal form the diagonal, of the full form the inverse, or Z itself
            where it forgets.
        history: All rounds.
    """

    weights: Float[Tensor, " weight"]
    design: Float[Tensor, "*design"]
    history: History


@dataclasses.dataclass(frozen=True)
class TangentRewards(AbstractIndependentRewards[Tangent], AbstractRetrainedRewards[Tangent]):
    """mu_a = f(x_a; theta), sigma_a^2 = lam g_a' Z^-1 g_a / m, with Z = lam I + sum g g' / m over the arms pulled.

    With `Thompson` it is NeuralTS (Zhang et al. 2021), which draws N(mu_a, nu^2 sigma_a^2) for each arm. With `UCB` it
    is NeuralUCB (Zhou et al. 2020), and alpha times nu are the standard deviations. The network minimises
    sum (f - r)^2 / 2 + m lam |theta - theta_0|^2 / 2 over all rounds.

    Attributes:
        network: With one output.
        mean: Weights theta_0.
        encoding: From a context and an arm to inputs of the network.
        width: The number m, of hidden units.
        lam: Regulariser.
        nu: Scale of the exploration.
        full: Whether Z has all its entries; else its diagonal.
        every: Rounds between two trainings; 1 in the papers.
        descent: Of a training.
        forgetting: Part of the evidence that is forgotten in a round.
    """

    network: AbstractNetwork
    mean: Float[Tensor, " weight"]
    encoding: AbstractEncoding
    width: int
    lam: float = 1e-3
    nu: float = 1.0
    full: bool = False
    every: int = 20
    descent: Descent = Descent(steps=30)
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if not (self.lam > 0 and self.nu >= 0 and self.every >= 1 and self.width >= 1 and 0 <= self.forgetting < 1):
            raise ValueError(
                "expected lam to be positive, nu at least 0, every and width at least 1 and forgetting below 1, got "
                f"{self.lam}, {self.nu}, {self.every}, {self.width} and {self.forgetting}"
            )

    def init(self, generator: torch.Generator) -> Tangent:
        """Return the initial network, and Z = lam I."""
        design = torch.full_like(self.mean, self.lam)
        if self.full:
            # Without forgetting its inverse is kept: each gradient is a rank-one update.
            design = torch.diag_embed(design if self.forgetting else 1 / design)
        return Tangent(self.mean, design, History.empty(self.every, self.features, self.mean.dtype))

    def warm_up(self, state: Tangent, seen: Interactions, generator: torch.Generator) -> Tangent:
        """Train on the rewards of the arms that were pulled, and count their gradients."""
        state = super().warm_up(state, seen, generator)
        for context, arm, reward in zip(seen.contexts, seen.arms.tolist(), seen.rewards, strict=True):
            state = self.count(state, context, arm, reward)
        return state

    def rescale(self, state: Tangent, shift: float, scale: float) -> Tangent:
        """Return network and history in the new units; the design stays."""
        weights = rescale_outputs(self.network, state.weights, shift, scale)
        return Tangent(weights, state.design, state.history.rescale(shift, scale))

    def count(self, state: Tangent, context: Context, arm: int, reward: Reward) -> Tangent:
        """Count the gradient of the arm in the design."""
        inputs = self.encoding.pulled(context.unsqueeze(0), torch.tensor([arm]))
        # The tangent kernel is a mean over units.
        gradient = self.network.linearise(state.weights, inputs)[1][0, 0] / self.width**0.5
        design, keep = state.design, 1 - self.forgetting
        if not self.full:
            design = keep * design + (1 - keep) * self.lam + gradient.square()  # what fades goes back to lam, not to 0
        elif self.forgetting:
            design = keep * design + torch.outer(gradient, gradient)
            design.diagonal().add_((1 - keep) * self.lam)
        else:
            moved = design @ gradient
            design = design - torch.outer(moved, moved) / (1 + gradient @ moved)  # Sherman and Morrison
        return dataclasses.replace(state, design=design)

    def _divided(self, design: Tensor, gradients: Float[Tensor, "arm weight"]) -> Float[Tensor, "arm weight"]:
        """Return Z^-1 g of each arm."""
        if not self.full:
            return gradients / design
        return torch.linalg.solve(design, gradients.mT).mT if self.forgetting else gradients @ design

    def train(self, state: Tangent, generator: torch.Generator) -> Tangent:
        """Train on all rounds, from the weights as they are."""
        history = state.history.merged()
        seen = history.seen
        inputs = self.encoding.pulled(seen.contexts, seen.arms)
        # The loss is a mean over rounds.
        descent = dataclasses.replace(self.descent, decay=self.width * self.lam / len(seen))
        fit = Fit(self.network, inputs, seen.rewards, history.fading(self.forgetting), self.mean)
        return Tangent(descent.fit(fit, state.weights, generator), state.design, history)

    def expect(self, state: Tangent, context: Context, spread: bool = True) -> ArmRewards:
        """Return mu and nu sigma."""
        inputs = self.encoding.each(context)
        if not spread:
            mean = self.network(state.weights, inputs)[:, 0]
            return ArmRewards.certain(mean)
        outputs, jacobian = self.network.linearise(state.weights, inputs)
        gradients = jacobian[:, 0]
        variance = self.lam * (self._divided(state.design, gradients) * gradients).sum(-1) / self.width
        return ArmRewards(outputs[:, 0], self.nu * variance.clamp_min(0).sqrt())
