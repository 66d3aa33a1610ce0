"""A named agent of control problems and its settings as plain values."""

import dataclasses
import math
from typing import Any

import torch
from torch import nn

from experiments.policies.control import control_of, environment
from experiments.policies.policy_gradient import PolicyGradient
from tsforecast.learners.likelihoods.classes import CategoricalLikelihood
from tsforecast.learners.likelihoods.likelihood import GaussianLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain
from tsforecast.learners.particles.matrix_structure import Structure
from tsforecast.learners.particles.weight_posterior import WeightPosterior

# Whether there is a kernel, whether weights have a structure, whether there is one policy that has all episodes.
POLICIES: dict[str, tuple[bool, bool, bool]] = {
    "svgd": (True, False, False),
    "s2vgd": (True, True, False),
    "independent": (False, False, False),
    "joint": (False, False, True),
}
GRADIENTS = ("reinforce", "a2c")


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Plain values that say which policies learn, and in what.

    Attributes:
        agent: "svgd", "s2vgd", "independent" (no kernel) or "joint" (one policy with all episodes).
        env: Name of an environment of gymnasium.
        gradient: "reinforce" or "a2c".
        particles: M.
        episodes: Of each particle in an iteration; "joint" has `particles * episodes`.
        horizon: Steps of an episode at most; None for that of the environment.
        hidden: Widths of the policy's hidden layers, with tanh.
        temperature: alpha.
        variance: Of every variable in the prior.
        rate: Learning rate.
        discount: Of a reward one step later.
        trace: lambda of "a2c".
        reflections: K of "s2vgd".
        seed: Of initial weights, and of all that is drawn.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    agent: str = "svgd"
    env: str = "CartPole-v1"
    gradient: str = "reinforce"
    particles: int = 16
    episodes: int = 4
    horizon: int | None = None
    hidden: tuple[int, ...] = (25, 10)
    temperature: float = 1.0
    variance: float = 1.0
    rate: float = 0.01
    discount: float = 0.99
    trace: float = 0.97
    reflections: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, table in (("agent", POLICIES), ("gradient", GRADIENTS)):
            if getattr(self, name) not in table:
                raise ValueError(f"expected {name} to be one of {', '.join(table)}, got {getattr(self, name)!r}")
        for name, least in (("particles", 1), ("episodes", 1), ("seed", 0), ("reflections", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ValueError(f"expected {name} to be a whole number from {least} on, got {getattr(self, name)!r}")
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"expected horizon to be at least 1, got {self.horizon}")
        if not 0 < self.variance < math.inf:
            raise ValueError(f"expected variance to be positive and finite, got {self.variance}")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"expected hidden layers of at least one unit, got {self.hidden}")
        if self.gradient == "reinforce" and self.played[1] < 2:
            raise ValueError("expected 2 episodes or more for reinforce, which compares them; or gradient a2c")

    @property
    def played(self) -> tuple[int, int]:
        """Return how many policies there are, and episodes of each in an iteration."""
        joint = POLICIES[self.agent][2]
        return (1, self.particles * self.episodes) if joint else (self.particles, self.episodes)

    def seed_of(self, iteration: int) -> int:
        """Return the seed of the episodes of an iteration."""
        return self.seed * 1_000_003 + iteration * 4096

    def environments(self) -> list[list[Any]]:
        """Return an environment for each episode of each policy."""
        particles, episodes = self.played
        return [[environment(self.env, self.horizon) for _ in range(episodes)] for _ in range(particles)]

    def build(self) -> PolicyGradient:
        """Return the policies' learner.

        Raises:
            ValueError: If the environment is unknown, or no policy can act in it.
        """
        control = control_of(environment(self.env, self.horizon))
        repels, structured, _ = POLICIES[self.agent]
        widths = (control.features, *self.hidden, control.outputs)
        activations = (*(nn.Tanh for _ in self.hidden), nn.Identity)
        network = LayerChain(widths, activations, (True,) * len(activations))
        structure = Structure(network.shapes, self.reflections if structured else 0, structured)
        likelihood = CategoricalLikelihood() if control.choices else GaussianLikelihood(1.0)
        posterior = WeightPosterior(network, likelihood, structure, self.variance, learns_noise=not control.choices)
        drawn = structure.start(self.played[0], torch.Generator().manual_seed(self.seed))
        start = torch.cat([drawn, drawn.new_zeros(len(drawn), posterior.num_precisions)], -1)
        return PolicyGradient(
            control,
            posterior,
            start,
            repels,
            self.temperature,
            self.rate,
            self.discount,
            self.trace if self.gradient == "a2c" else None,
        )
