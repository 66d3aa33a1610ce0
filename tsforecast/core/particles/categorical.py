"""Switching linear-Gaussian systems with switches in a finite set, as the particle filter wants them."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.particles.begun import choose
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.resampling import draw_index
from tsforecast.core.particles.state import ParticleState, initial_particles
from tsforecast.core.stepping import step
from tsforecast.core.torch_internals import is_transformed


@dataclasses.dataclass(frozen=True)
class CategoricalSwitching(AbstractSwitchingSystem):
    """Switches in a finite set, a Markov chain (Murphy 1998, switching Kalman filter); they are one-hot.

    Attributes:
        initial: log p(s_1), (time or 1, series, switch): that of the step at which a series begins is read.
        transition: (switch (*batch, switch), time) -> log p(s_t | s_{t-1}), (*batch, switch).
        parameters: (switch (*batch, switch), time) -> what it chooses; the batch ends with the series.
        optimal: Whether to propose from p(s_t | s_{t-1}, y_t), by trying all switches; else from the chain.
        active: See `GaussianSwitching`.
    """

    initial: Float[Tensor, "time_or_1 series switch"]
    transition: Callable[[Tensor, int], Tensor]
    parameters: Callable[[Tensor, int], Regime]
    optimal: bool = True
    active: Bool[Tensor, "time series"] | None = None

    likelihood = None

    def begin(self, num_particles: int, prior: Gaussian) -> ParticleState:
        """Return particles before the first step, all alike."""
        return initial_particles(num_particles, prior, self.initial.shape[-1])

    def extend(
        self,
        particles: ParticleState,
        time: int,
        value: Float[Tensor, "series target"] | None,
        observed: Bool[Tensor, "series target"] | None,
        generator: torch.Generator | None = None,
    ) -> ParticleState:
        """Draws the switch, given the observation if `optimal`; the proposal's probabilities are constants.

        A weight p(s_t | s_{t-1}) p(y_t | s_t, ...) / pi(s_t) with pi detached has an unbiased gradient.
        """
        log_prior = self.log_prior(particles, time)
        eye = torch.eye(log_prior.shape[-1], dtype=log_prior.dtype, device=log_prior.device)
        if self.optimal and value is not None:
            # The step under each category, to weigh it by the observation.
            every = eye.reshape(len(eye), *[1] * (log_prior.ndim - 1), len(eye)).expand(-1, *log_prior.shape)
            states, log_prob = self.condition(
                map_tensors(lambda x: x.unsqueeze(0), particles.state), every, time, value, observed
            )
            joint = log_prior.movedim(-1, 0) + log_prob
            log_proposal = torch.log_softmax(joint.detach(), 0)  # the optimal proposal: p(s_t | s_{t-1}, y_t)
            index = draw_index(log_proposal.exp(), 0, generator)
            state = Gaussian(
                _pick(states.mean.expand(*joint.shape, -1), index),
                _pick(states.cov.expand(*joint.shape, -1, -1), index),
            )
            # In value the same for all categories.
            gain = _pick(joint, index) - _pick(log_proposal, index)
        else:
            log_proposal = log_prior.detach().movedim(-1, 0)
            index = draw_index(log_proposal.exp(), 0, generator)
            state, log_prob = self.condition(particles.state, eye[index], time, value, observed)
            # 0 in value: the weight p / pi of the sampled switch has a gradient.
            gain = log_prob + (log_prior - log_prior.detach()).gather(-1, index.unsqueeze(-1)).squeeze(-1)
        moved = dataclasses.replace(
            particles,
            switch=eye[index],
            state=state,
            log_weight=particles.log_weight + gain,
            begun=torch.ones_like(particles.begun),
        )
        return moved if self.active is None or value is None else choose(self.active[time], moved, particles)

    def condition(
        self, belief: Gaussian, switch: Tensor, time: int, value: Tensor | None, observed: Tensor | None
    ) -> tuple[Gaussian, Tensor]:
        """Return the belief after a step under a switch, and the log-density of its observation.

        Args:
            belief: Over the state before the step.
            switch: One-hot; its batch and that of the belief broadcast.
            time: Index of the step.
            value: What is observed; None for nothing.
            observed: False where a component is missing.
        """
        regime = self.parameters(switch, time)
        if value is None:
            return regime.transition.marginal(belief), torch.zeros_like(switch[..., 0])
        return step(regime.transition, regime.emission, belief, value, observed)

    def log_prior(self, particles: ParticleState, time: int) -> Float[Tensor, "particle series switch"]:
        """Return log p(s_t | s_{t-1}) of every particle; of series that have not begun, log p(s_1)."""
        initial = self.initial[time if self.initial.shape[0] > 1 else 0].expand(particles.switch.shape)
        if not is_transformed(particles.begun) and not bool(particles.begun.any()):
            return initial
        moved = self.transition(particles.switch, time)
        return torch.where(particles.begun.unsqueeze(-1), moved, initial)  # series begin at different steps

    def recall(
        self, particles: ParticleState, switch: Float[Tensor, "sample series switch"], time: int
    ) -> tuple[LinearGaussian | None, Float[Tensor, "#sample particle series"]]:
        """Return the chain's log-probabilities."""
        log_prior = self.log_prior(particles, time)
        index = switch.argmax(-1)[:, None, :, None].expand(-1, log_prior.shape[0], -1, 1)
        return None, log_prior.expand(len(switch), *log_prior.shape).gather(-1, index).squeeze(-1)

    def simulate_switch(
        self,
        particles: ParticleState,
        state: Float[Tensor, "particle series state"],
        time: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "particle series switch"]:
        """Draw the next switch from the Markov chain."""
        log_prior = self.log_prior(particles, time)
        eye = torch.eye(log_prior.shape[-1], dtype=log_prior.dtype, device=log_prior.device)
        return eye[draw_index(log_prior.exp().movedim(-1, 0), 0, generator)]


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """One of the first dimension, at an index of each element of the following ones."""
    index = index.reshape(1, *index.shape, *[1] * (x.ndim - 1 - index.ndim))
    return x.gather(0, index.expand(1, *x.shape[1:])).squeeze(0)
