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
from tsforecast.core.gaussian import Gaussian, map_tensors, register_record
from tsforecast.core.linalg import matvec, symmetrise
from tsforecast.core.particles.backward import draw_paths
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, filter
from tsforecast.core.particles.given_switches import given_paths
from tsforecast.core.particles.prediction import draw
from tsforecast.core.particles.state import ParticleState
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
        between = spread.unsqueeze(-1) * spread.unsqueeze(-2)  # law of total covariance
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
    states = kalman.smooth(*given_paths(system, drawn, values, observed, first))
    auxiliaries = []
    for step, path in enumerate(drawn[1:]):
        if path.auxiliary is None:
            continue
        if observed is None:
            auxiliaries.append(path.auxiliary)
            continue
        # Where nothing was observed, the filter's auxiliary does not know what came later.
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
    # One state for each path: the paths are samples already.
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
        paths.append(torch.where(observed[step], values[step], value))  # drawn again, a known value would lose digits
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
    if len(particles.log_weight) < num_particles:  # paths are drawn among the particles: few would give few paths
        particles = draw(particles, num_particles, generator)
        weights = torch.full_like(particles.log_weight, -math.log(num_particles))
        particles = dataclasses.replace(particles, log_weight=weights)
    filtered = filter(system, particles, values, observed, keep_history=True, generator=generator, first=first)
    assert filtered.history is not None
    drawn = draw_paths(system, particles, filtered.history, values, observed, num_samples, generator, first)
    return drawn, given_paths(system, drawn, values, observed, first)
