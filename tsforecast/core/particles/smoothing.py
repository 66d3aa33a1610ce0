"""Rao-Blackwellised particle smoothing: backward simulation of the switches, the state integrated out.

Sarkka, Bunch and Godsill (2012), Lindsten and Schon (2013); here also for switches that depend on the state before.
"""

import dataclasses
import math
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import kalman
from tsforecast.core.gaussian import Gaussian, map_tensors, register_record, unbind
from tsforecast.core.linalg import matvec, symmetrise
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.particles.backward import draw_paths
from tsforecast.core.particles.begun import stand_still
from tsforecast.core.particles.filtering import (
    AbstractSwitchingSystem,
    ParticleState,
    filter,
    systematic_ancestors,
    take,
)
from tsforecast.core.system import LinearSystem


@register_record
@dataclasses.dataclass(frozen=True)
class ParticleSmoothed:
    """Samples of the latent variables given all of the data; every sample is equally likely.

    Attributes:
        switches: s_1, ..., s_T.
        auxiliaries: z_1, ..., z_T, for systems that have them.
        states: Smoothed states of every path of switches, batch shape (sample, series).
    """

    switches: Float[Tensor, "time sample series switch"]
    auxiliaries: Float[Tensor, "time sample series auxiliary"] | None
    states: kalman.Smoothed

    @property
    def mean(self) -> Float[Tensor, "time series state"]:
        """Return the smoothed means of the states, averaged over the paths."""
        return self.states.states.mean.mean(1)

    @property
    def cov(self) -> Float[Tensor, "time series state state"]:
        """Return the covariances of the states: within the paths, and between their means."""
        spread = self.states.states.mean - self.mean.unsqueeze(1)
        between = spread.unsqueeze(-1) * spread.unsqueeze(-2)
        return symmetrise((self.states.states.cov + between).mean(1))


def smooth(
    system: AbstractSwitchingSystem,
    initial: ParticleState,
    history: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None = None,
    *,
    num_samples: int = 100,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> ParticleSmoothed:
    """Paths of switches given all of the data, and the states given the paths.

    Backwards from the last step, an ancestor is drawn among the filter's particles with weight w_i times

        integral of N(x; m_i, V_i) p(s_{t+1} | x, s_i) p(y_{t+1}, ..., y_T, s_{t+2}, ... | x, s_{t+1}) dx.

    Args:
        system: That was filtered with.
        initial: Particles before the first step.
        history: As the filter kept it, see `particles.filter`.
        values: That were filtered.
        observed: Likewise.
        num_samples: Paths.
        generator: Of random numbers.
        first: Index of the first step.

    Raises:
        NotPositiveDefiniteError: If a covariance cannot be factorised.
    """
    drawn = draw_paths(system, initial, history, values, observed, num_samples, generator, first)
    switches = torch.stack([p.switch for p in drawn[1:]])
    states = kalman.smooth(*_given_paths(system, drawn, values, observed, first))
    auxiliaries = []
    for step, path in enumerate(drawn[1:]):
        if path.auxiliary is None:
            continue
        if observed is None:
            auxiliaries.append(path.auxiliary)
            continue
        # Where nothing was observed the filter's does not know what came later.
        belief = map_tensors(lambda x, at=step: x[at], states.states)
        emitted = system.regime(path.switch, first + step).emission.marginal(belief).sample(generator=generator)
        auxiliaries.append(torch.where(observed[step].any(-1, keepdim=True), path.auxiliary, emitted))
    return ParticleSmoothed(switches, torch.stack(auxiliaries) if auxiliaries else None, states)


def sample_given(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"],
    num_samples: int,
    generator: torch.Generator | None = None,
    first: int = 0,
    num_particles: int = 64,
) -> Float[Tensor, "time sample series target"]:
    """Joint samples of observations known in part: exact as the number of particles grows.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        particles: Before step `first`.
        values: What is known; finite everywhere.
        observed: Where it is known.
        num_samples: Paths.
        generator: Of random numbers.
        first: Index of the first step.
        num_particles: Particles of the filter, if there are fewer.
    """
    drawn, given = _drawn_given(system, particles, values, observed, num_samples, generator, first, num_particles)
    states = kalman.sample_posterior(*given, num_samples=1, generator=generator).squeeze(1)
    paths = []
    for step, (path, state) in enumerate(zip(drawn[1:], states, strict=True)):
        emission = system.regime(path.switch, first + step).emission
        if path.auxiliary is None:  # what is missing may share noise with what is known
            dense = emission.dense()
            noise = Gaussian(matvec(dense.matrix, state) + dense.offset, dense.noise)
            emitted = noise.condition(values[step], observed[step]).sample(generator=generator)
        else:
            emitted = emission.sample(state, generator)
            emitted = torch.where(observed[step].any(-1, keepdim=True), path.auxiliary, emitted)
        value = system.simulate_value(emitted, first + step, generator)
        paths.append(torch.where(observed[step], values[step], value))
    return torch.stack(paths)


def given_marginals(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"],
    num_samples: int,
    generator: torch.Generator | None = None,
    first: int = 0,
    num_particles: int = 64,
) -> Gaussian:
    """Return the moments of the emission at every step under paths of switches, given partly known observations.

    As in `particles.marginals` the paths are sampled, and the states integrated out. Noises of several targets are
    taken to be independent. For arguments see `sample_given`.

    Returns:
        Moments, batch shape (time, sample, series). They are not replaced by known values.
    """
    drawn, given = _drawn_given(system, particles, values, observed, num_samples, generator, first, num_particles)
    return emitted_along(system, [path.switch for path in drawn[1:]], kalman.smooth(*given).states, first)


def emitted_along(
    system: AbstractSwitchingSystem,
    switches: Iterable[Float[Tensor, "*batch switch"]],
    states: Gaussian,
    first: int = 0,
) -> Gaussian:
    """Return the moments of the emission at every step, given switches and beliefs over the states.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        switches: Of each step.
        states: Of each step, batch shape (time, *batch).
        first: Index of the first step.

    Returns:
        Moments, batch shape (time, *batch).
    """
    emitted = []
    for step, switch in enumerate(switches):
        belief = map_tensors(lambda x, at=step: x[at], states)
        emitted.append(system.regime(switch, first + step).emission.marginal(belief))
    return Gaussian(torch.stack([one.mean for one in emitted]), torch.stack([one.cov for one in emitted]))


def _drawn_given(
    system: AbstractSwitchingSystem,
    particles: ParticleState,
    values: Tensor,
    observed: Tensor,
    num_samples: int,
    generator: torch.Generator | None,
    first: int,
    num_particles: int,
) -> tuple[list[ParticleState], tuple[LinearSystem, Gaussian, Tensor, Tensor]]:
    """Draw paths of switches given the known values, and return the linear system of each; see `sample_given`."""
    weights = particles.log_weight.detach()
    if len(weights) < num_particles:
        uniform = torch.rand(weights.shape[1], generator=generator, dtype=weights.dtype, device=weights.device)
        particles = take(particles, systematic_ancestors(weights, uniform, num_particles))
        weights = torch.full_like(particles.log_weight, -math.log(num_particles))
        particles = dataclasses.replace(particles, log_weight=weights)
    filtered = filter(system, particles, values, observed, keep_history=True, generator=generator, first=first)
    assert filtered.history is not None
    drawn = draw_paths(system, particles, filtered.history, values, observed, num_samples, generator, first)
    return drawn, _given_paths(system, drawn, values, observed, first)


def linear_given_switches(
    system: AbstractSwitchingSystem,
    initial: ParticleState,
    history: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None = None,
    first: int = 0,
) -> tuple[LinearSystem, Gaussian, Tensor, Tensor]:
    """The linear system of every particle's own path, for filters that never resampled; with its data.

    Args:
        system: That was filtered with.
        initial: Particles before the first step.
        history: As the filter kept it, see `particles.filter`.
        values: That were filtered.
        observed: Likewise.
        first: Index of the first step.

    Returns:
        System, prior, what its emission emitted (the auxiliaries, where there are some), and where that was observed;
        batch shape (particle, series).
    """
    path = [initial, *map(unbind(history), range(len(values)))]
    return _given_paths(system, path, values, observed, first)


def _given_paths(
    system: AbstractSwitchingSystem,
    drawn: list[ParticleState],
    values: Tensor,
    observed: Tensor | None,
    first: int,
) -> tuple[LinearSystem, Gaussian, Tensor, Tensor]:
    """The linear system of every drawn path, with its data; the next switch is one more observation of a state.

    Returns:
        System, prior, values, and which of them are observed.
    """
    transitions, emissions, targets, masks = [], [], [], []
    for step, path in enumerate(drawn[1:]):
        regime = system.regime(path.switch, first + step)
        shape = path.state.mean.shape[:-1]
        emission = regime.emission.dense()
        if path.auxiliary is None:
            target, mask = values[step], None if observed is None else observed[step]
        else:
            target = path.auxiliary
            mask = None if observed is None else observed[step].any(-1, keepdim=True).expand(target.shape)
        target = target.expand(*shape, -1)
        mask = torch.ones_like(target, dtype=torch.bool) if mask is None else mask.expand(target.shape)
        if path.recurrence is not None:
            emission, target, mask = _with_next_switch(
                system,
                path,
                drawn[step + 2] if step + 2 < len(drawn) else None,
                first + step + 1,
                emission,
                target,
                mask,
            )
        transition = stand_still(regime.transition.dense(), path.begun)
        transitions.append([_wide(x, shape, event) for x, event in _events(transition)])
        emissions.append([_wide(x, shape, event) for x, event in _events(emission)])
        targets.append(target)
        masks.append(mask)
    stack = lambda parts: LinearGaussian(*(torch.stack(x) for x in zip(*parts, strict=True)))  # noqa: E731
    path_system = LinearSystem(stack(transitions), stack(emissions))
    prior = drawn[0].state
    if drawn[0].recurrence is not None and bool(drawn[0].begun.any()):
        conditional = _next_switch(system, drawn[0], drawn[1], first)
        if conditional is not None:
            prior = conditional.posterior(prior, drawn[1].switch)[0]
    return path_system, prior, torch.stack(targets), torch.stack(masks)


def _events(conditional: LinearGaussian) -> list[tuple[Tensor, int]]:
    return [(conditional.matrix, 2), (conditional.offset, 1), (conditional.noise, 2)]


def _next_switch(
    system: AbstractSwitchingSystem, path: ParticleState, later: ParticleState, time: int
) -> LinearGaussian | None:
    return system.recall(path, later.switch, time)[0]


def _with_next_switch(
    system: AbstractSwitchingSystem,
    path: ParticleState,
    later: ParticleState | None,
    time: int,
    emission: LinearGaussian,
    target: Tensor,
    mask: Tensor,
) -> tuple[LinearGaussian, Tensor, Tensor]:
    """The emission with the next switch below the observation; after the last step there is none."""
    assert path.recurrence is not None
    shape, (switches, states) = path.state.mean.shape[:-1], path.recurrence.shape[-2:]
    conditional = None if later is None else _next_switch(system, path, later, time)
    if conditional is None or later is None:
        eye = torch.eye(switches, dtype=target.dtype, device=target.device)
        conditional = LinearGaussian(target.new_zeros(switches, states), target.new_zeros(switches), eye)
        value, seen = (
            target.new_zeros(*shape, switches),
            torch.zeros(*shape, switches, dtype=torch.bool, device=target.device),
        )
    else:
        value, seen = later.switch, torch.ones_like(later.switch, dtype=torch.bool)
    targets = target.shape[-1]
    noise = target.new_zeros(*shape, targets + switches, targets + switches)
    noise[..., :targets, :targets] = emission.noise
    noise[..., targets:, targets:] = conditional.noise
    joined = LinearGaussian(
        torch.cat([_wide(emission.matrix, shape, 2), _wide(conditional.matrix, shape, 2)], -2),
        torch.cat([_wide(emission.offset, shape, 1), _wide(conditional.offset, shape, 1)], -1),
        noise,
    )
    return joined, torch.cat([target, value], -1), torch.cat([mask, seen], -1)


def _wide(x: Tensor, batch: torch.Size, event_ndim: int) -> Tensor:
    return x.expand(*batch, *x.shape[x.ndim - event_ndim :])
