"""Predictions from weighted particles: the density of one step, and sample paths of many."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import cholesky, matvec
from tsforecast.core.loop.scan import scan
from tsforecast.core.mixture import GaussianMixture
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.resampling import systematic_ancestors
from tsforecast.core.particles.state import ParticleState, take
from tsforecast.core.torch_internals import normal


def draw(particles: ParticleState, num_samples: int, generator: torch.Generator | None = None) -> ParticleState:
    """Draw particles systematically by their weights; the particles keep these. See `systematic_ancestors`."""
    weight = particles.log_weight.detach()  # an index has no gradient
    uniform = torch.rand(weight.shape[1], generator=generator, dtype=weight.dtype, device=weight.device)
    return take(particles, systematic_ancestors(weight, uniform, num_samples))


def predict(
    system: AbstractSwitchingSystem, particles: ParticleState, time: int, generator: torch.Generator | None = None
) -> GaussianMixture:
    """One-step-ahead predictive density of the emission: the state is integrated out, the switch sampled.

    Args:
        system: Its step `time` is taken.
        particles: Before that step.
        time: Index of the step.
        generator: Of random numbers.
    """
    moved, emitted = system.foresee(particles, time, generator)
    return GaussianMixture(moved.log_weight, emitted)  # no observation, so weights stay


def marginals(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    num_steps: int,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> Gaussian:
    """Return the moments of the emission at each of the next steps, for one sampled path of switches a particle.

    The states are integrated out. So a mean over particles has less variance than one over sample paths
    (Rao-Blackwell), and it has none where switches change nothing.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        particles: Before step `first`; their weights stay as they are.
        num_steps: At least 1.
        generator: Of random numbers.
        first: Index of the first step.

    Returns:
        Moments, batch shape (time, particle, series).
    """
    step = lambda particles, time: system.foresee(particles, time, generator)  # noqa: E731
    return scan(step, particles, range(first, first + num_steps), first=first)[1]


def forecast(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    num_steps: int,
    num_samples: int,
    generator: torch.Generator | None = None,
    first: int = 0,
    switches: Float[Tensor, "time #sample series switch"] | None = None,
    hold: bool = False,
) -> tuple[
    Float[Tensor, "time sample series target"],
    Float[Tensor, "time sample series switch"],
    Float[Tensor, "time sample series state"],
]:
    """Joint sample paths of the model from weighted particles: of observations, switches and states.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        particles: Before step `first`.
        num_steps: At least 1.
        num_samples: Paths.
        generator: Of random numbers.
        first: Index of the first step.
        switches: Held fixed, for what-if questions; None to sample them.
        hold: Whether every path keeps the switch of its particle.
    """
    particles, state = _draw_states(particles, num_samples, generator)

    def step(carry: tuple[ParticleState, Tensor], x: tuple) -> tuple[tuple[ParticleState, Tensor], tuple]:
        particles, state = carry
        time, held = x
        if hold:
            switch = particles.switch
        elif held is None:
            switch = system.simulate_switch(particles, state, time, generator)
        else:
            switch = held.expand(num_samples, -1, -1)
        regime = system.regime(switch, time)
        state = regime.transition.sample(state, generator)
        emitted = regime.emission.sample(state, generator)
        value = system.simulate_value(emitted, time, generator)
        particles = dataclasses.replace(
            particles,
            switch=switch,
            auxiliary=None if particles.auxiliary is None else emitted,
            recurrence=regime.recurrence,
            switch_noise=regime.switch_noise,
            begun=torch.ones_like(particles.begun),
        )
        return (particles, state), (value, switch, state)

    _, paths = scan(step, (particles, state), (range(first, first + num_steps), switches), first=first)
    return paths


def _draw_states(
    particles: ParticleState, num_samples: int, generator: torch.Generator | None
) -> tuple[ParticleState, Tensor]:
    """Draw particles by their weights and their states, known from now on; return both."""
    # Factorised once for each particle, not for each path: the factor takes the covariance's place in the drawing.
    # A state known from an observation without noise has no variance.
    factor = cholesky(particles.state.cov, "the covariance of a particle's state", jitter=True)
    particles = draw(
        dataclasses.replace(particles, state=Gaussian(particles.state.mean, factor)), num_samples, generator
    )
    mean, factor = particles.state.mean, particles.state.cov
    noise = normal(mean.shape, mean, generator)
    state = mean + matvec(factor, noise)
    known = Gaussian(state, state.new_zeros(()).expand(factor.shape))  # zeros of one number: no memory for covariances
    return dataclasses.replace(particles, state=known), state
