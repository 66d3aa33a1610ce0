"""Policies as particles over the weights of a network, moved by Stein policy gradients (Liu et al. 2017)."""

import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from experiments.policies.control import Control, Episodes, roll_out
from tsforecast.core.gaussian import register_record
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.particles.stein import AbstractStep, Adam, Moments, direction
from tsforecast.learners.particles.weight_posterior import WeightPosterior

# Precision of the coefficients of a critic, which are of the size of returns.
_RIDGE = 1e-5


@register_record
@dataclasses.dataclass(frozen=True)
class Policies:
    """Policies that act in parallel.

    Attributes:
        values: Variables of each: weights, or what a structure makes weights of; behind them, where actions are
            numbers, the logarithm of their precision.
        moments: Of the steps so far.
        critic: Coefficients of the value of a state, of each policy.
    """

    values: Float[Tensor, "particle variable"]
    moments: Moments
    critic: Float[Tensor, "particle basis"]


def to_go(rewards: Float[Tensor, "*any time"], discount: float) -> Float[Tensor, "*any time"]:
    """Return R_t = sum_k discount^k r_{t+k}: what is still paid from each step on."""
    total, found = torch.zeros_like(rewards[..., 0]), []
    for reward in rewards.unbind(-1)[::-1]:
        total = reward + discount * total
        found.append(total)
    return torch.stack(found[::-1], -1)


def above_others(still: Float[Tensor, "particle episode time"]) -> Float[Tensor, "particle episode time"]:
    """Return by how much each episode pays more from a step on than the mean of the policy's other episodes.

    The mean depends on no action of the episode itself: it takes variance away, and adds no bias. One episode has no
    other: it is compared with zero.
    """
    count = still.shape[1]
    return still - (still.sum(1, keepdim=True) - still) / max(count - 1, 1)


@dataclasses.dataclass(frozen=True)
class PolicyGradient:
    """Particles that move towards exp(J(theta) / alpha) p(theta): high returns, and apart from each other.

        phi(theta_i) = 1/M sum_j [ k(theta_j, theta_i) s(theta_j) + grad k(theta_j, theta_i) ],
        s(theta) = grad (J(theta) / alpha + log p(theta))

    (Liu et al. 2017, equation 10; Zhang et al. 2018, equation 19, with a structure of the weights). The gradient of J,
    the expected return, is that of REINFORCE (Williams 1992), or of advantages under a critic (A2C). It is the gradient
    of a log-likelihood of actions, where each counts as often as its advantage: so the posterior of weights has all
    else.

    Attributes:
        control: What the policies act in.
        posterior: Of the weights of the policy network; its likelihood is that of an action given outputs.
        start: Variables of each particle to begin with.
        repels: Whether particles have a kernel between them; without it each moves alone.
        temperature: alpha: larger for policies that differ more.
        rate: Learning rate.
        discount: Of a reward one step later.
        trace: lambda of the critic's advantages (Schulman et al. 2016); None for REINFORCE, which has no critic.
        discounts_steps: Whether a step counts discount^t, as in the gradient of the discounted return. Otherwise later
            steps count as much as early ones, as is usual.
        adaptive: How long a step is.

    Raises:
        ValueError: If a number is outside of its range.
    """

    control: Control
    posterior: WeightPosterior
    start: Float[Tensor, "particle variable"]
    repels: bool = True
    temperature: float = 1.0
    rate: float = 0.01
    discount: float = 0.99
    trace: float | None = None
    discounts_steps: bool = False
    adaptive: AbstractStep = dataclasses.field(default_factory=Adam)

    def __post_init__(self) -> None:
        for name in ("temperature", "rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"expected {name} to be positive and finite, got {getattr(self, name)}")
        for name in ("discount", "trace"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"expected {name} to be at least 0 and at most 1, got {value}")

    def init(self) -> Policies:
        """Return the policies to begin with; their critics know nothing."""
        critic = self.start.new_zeros(len(self.start), 2 * self.control.features + 4)
        return Policies(self.start, Moments.none(self.start), critic)

    def act(
        self, policies: Policies, inputs: Float[Tensor, "particle episode feature"], generator: torch.Generator
    ) -> Float[Tensor, "particle episode target"]:
        """Return an action of each policy in each of its episodes, drawn from what it thinks of them."""
        outputs = torch.func.vmap(lambda v, x: self.posterior.network(self.posterior.weights(v), x))(
            policies.values, inputs
        )
        if self.control.choices:
            uniform = torch.rand(outputs.shape, generator=generator, dtype=outputs.dtype)
            tiny = torch.finfo(outputs.dtype).tiny
            drawn = (outputs - (-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()).argmax(-1, keepdim=True)
            return drawn.to(outputs.dtype)
        noise = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
        return outputs + (-0.5 * policies.values[:, -1]).exp()[:, None, None] * noise

    def explore(self, policies: Policies, environments: list[list[Any]], seed: int) -> Episodes:
        """Return an episode of each environment; the same for the same seed.

        Args:
            policies: That act.
            environments: One for each episode of each policy.
            seed: Of environments and actions.
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            return roll_out(
                self.control, environments, lambda x: self.act(policies, x, generator), seed, policies.values
            )

    def advantages(self, policies: Policies, episodes: Episodes) -> Float[Tensor, "particle episode time"]:
        """Return how much better each action was than what is expected, zero behind the end of an episode."""
        if self.trace is None:
            found = above_others(to_go(episodes.rewards, self.discount))
        else:
            value = torch.einsum("petb,pb->pet", self._basis(episodes), policies.critic) * episodes.lasts
            later = torch.cat([value[..., 1:], torch.zeros_like(value[..., :1])], -1)
            found = to_go(episodes.rewards + self.discount * later - value, self.discount * self.trace)
        if self.discounts_steps:
            found = found * self.discount ** torch.arange(found.shape[-1], dtype=found.dtype)
        return found * episodes.lasts

    def scores(self, policies: Policies, episodes: Episodes) -> Float[Tensor, "particle variable"]:
        """Return the gradient of J(theta) / alpha + log p(theta) at every particle, estimated by its episodes."""
        scale = 1 / (self.temperature * episodes.rewards.shape[1])

        def one(values: Tensor, inputs: Tensor, actions: Tensor, counts: Tensor) -> Tensor:
            return self.posterior.scores(values.unsqueeze(0), Points(inputs, actions, None, counts), scale)[0]

        steps = (x.flatten(1, 2) for x in (episodes.inputs, episodes.actions, self.advantages(policies, episodes)))
        return torch.func.vmap(one)(policies.values, *steps)

    def update(self, policies: Policies, episodes: Episodes) -> Policies:
        """Return the policies after one step, and critics that have seen the episodes."""
        score = self.scores(policies, episodes)
        uphill = direction(policies.values, score) if self.repels else score
        values, moments = self.adaptive(policies.values, uphill, policies.moments, self.rate)
        critic = policies.critic if self.trace is None else self._criticise(episodes)
        return Policies(values.detach(), Moments(*(x.detach() for x in dataclasses.astuple(moments))), critic)

    def _basis(self, episodes: Episodes) -> Float[Tensor, "particle episode time basis"]:
        """Return what values are linear in: observations, their squares, and powers of time (Duan et al. 2016)."""
        inputs = episodes.inputs
        time = torch.arange(inputs.shape[2], dtype=inputs.dtype) / self.control.horizon
        powers = (time.unsqueeze(-1) ** torch.arange(4, dtype=inputs.dtype)).expand(*inputs.shape[:3], 4)
        return torch.cat([inputs, inputs.square(), powers], -1)

    def _criticise(self, episodes: Episodes) -> Float[Tensor, "particle basis"]:
        """Return coefficients by which states tell what is still paid: a ridge regression for each policy."""
        basis = (self._basis(episodes) * episodes.lasts.unsqueeze(-1)).flatten(1, 2).double()
        still = to_go(episodes.rewards, self.discount).flatten(1, 2).double()
        gram = basis.mT @ basis + _RIDGE * torch.eye(basis.shape[-1], dtype=basis.dtype)
        return torch.linalg.solve(gram, torch.einsum("psb,ps->pb", basis, still)).to(episodes.rewards.dtype)
