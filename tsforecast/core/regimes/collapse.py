"""Kim's filter: a switching linear-Gaussian system by one Gaussian for each memory of regimes."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors, register_record
from tsforecast.core.linalg import symmetrise
from tsforecast.core.loop.scan import scan
from tsforecast.core.particles.begun import choose
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.state import ParticleState

# Deviations of a Gaussian by which the centre of a mixture is away from it at most: the square of more has no digits
# left in float32 for its own variance.
_FURTHEST = 1e3


@register_record
@dataclasses.dataclass(frozen=True)
class Collapsed:
    """Results of the collapsed filter; see `core.regimes.chain` for memories and histories.

    Attributes:
        particles: After the last step, one for each memory in the order of their numbers.
        log_transition: log p(s_t = j | s_{t-1} = i) of every step, the earlier regime first.
        log_density: log p(y_t | s_t, ..., s_{t-n}, y_1, ..., y_{t-1}), as the collapse has it. With it `chain.filter`
            gives the probabilities of this filter again, and `chain.smooth` is Kim's smoother of regimes.
        log_likelihood: log p(y_t | y_1, ..., y_{t-1}), likewise.
    """

    particles: ParticleState
    log_transition: Float[Tensor, "time series regime regime"]
    log_density: Float[Tensor, "time series history"]
    log_likelihood: Float[Tensor, "time series"]


def begin(system: CategoricalSwitching, prior: Gaussian, length: int = 1) -> ParticleState:
    """Return the particles before the first step, one for each memory, all alike.

    Args:
        system: The system.
        prior: Over the state before the first step, of batch shape (series,).
        length: Number of regimes that a memory holds; with more, the collapse loses less.
    """
    regimes = system.initial.shape[-1]
    particles = system.begin(regimes**length, prior)
    eye = torch.eye(regimes, dtype=prior.mean.dtype, device=prior.mean.device)
    newest = eye.repeat_interleave(regimes ** (length - 1), 0).unsqueeze(1).expand(particles.switch.shape)
    return dataclasses.replace(particles, switch=newest)


def filter(
    system: CategoricalSwitching,
    particles: ParticleState,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None = None,
    first: int = 0,
) -> Collapsed:
    """Return the filter of Kim (1994), without random numbers and with gradients.

    Each step conditions the Gaussian of each memory under each new regime, by the steps of the Kalman filter. Then
    Gaussians that differ in the oldest regime alone become one with the moments of their mixture. That is exact where
    they agree, such as in autoregressions whose lags are all observed, and with a memory as long as the data. Elsewhere
    it is an approximation, whose error the particle filter of the same system does not have.

    Args:
        system: Its steps `first`, `first + 1`, ... are taken.
        particles: Before step `first`, from `begin` or where an earlier filter stopped.
        values: Finite everywhere; without influence where not observed.
        observed: False where a component is missing; None if nothing is.
        first: Index of the first step.

    Raises:
        ValueError: If the number of particles is no power of the number of regimes.
    """
    regimes, memories = system.initial.shape[-1], len(particles.log_weight)
    length = round(math.log(memories, regimes)) if regimes > 1 else 1  # checked below: logarithms round
    if regimes**length != memories or length < 1:
        raise ValueError(f"expected a power of {regimes} regimes as the number of particles, got {memories}")
    kind = {"dtype": particles.log_weight.dtype, "device": particles.log_weight.device}
    eye = torch.eye(regimes, **kind)
    newest = eye.repeat_interleave(memories // regimes, 0).unsqueeze(1).expand(particles.switch.shape)

    def step(particles: ParticleState, x: tuple) -> tuple[ParticleState, tuple]:
        time, value, mask = x
        log_prior = system.log_prior(particles, time)  # memory, series, regime
        state = map_tensors(lambda x: x.unsqueeze(0), particles.state)
        switches = eye[:, None, None].expand(-1, 1, log_prior.shape[1], -1)
        states, density = system.condition(state, switches, time, value, mask)
        density = density.expand(regimes, *particles.log_weight.shape)
        joint = log_prior.movedim(-1, 0) + particles.log_weight + density
        moved = _merged(joint.flatten(0, 1), states, regimes)
        gain = torch.logsumexp(moved.log_weight, 0)
        moved = dataclasses.replace(
            particles,
            switch=newest,
            state=moved.state,
            log_weight=moved.log_weight - gain,
            begun=torch.ones_like(particles.begun),
        )
        if system.active is not None:
            moved = choose(system.active[time], moved, particles)
            gain = torch.where(system.active[time], gain, 0.0)  # a series that has not begun has no density
        # By the newest regime alone, so one memory of each will do.
        transition = log_prior[:: memories // regimes].transpose(0, 1)
        return moved, (transition, density.flatten(0, 1).T, gain)

    times = range(first, first + len(values))
    after, (transition, density, gain) = scan(step, particles, (times, values, observed), first=first)
    return Collapsed(after, transition, density, gain)


@dataclasses.dataclass(frozen=True)
class _Merged:
    """Gaussians by memory, with weights that are not normalised."""

    log_weight: Tensor
    state: Gaussian


def _merged(log_weight: Float[Tensor, "history series"], states: Gaussian, regimes: int) -> _Merged:
    """Return one Gaussian for those histories that differ in the oldest regime alone."""
    apart = log_weight.unflatten(0, (-1, regimes))  # memory, oldest, series
    total = torch.logsumexp(apart, 1)
    share = torch.softmax(apart, 1).unsqueeze(-1)
    shape = (*log_weight.shape, states.mean.shape[-1])
    batch = (regimes, len(log_weight) // regimes, log_weight.shape[1])
    mean = states.mean.expand(*batch, -1).reshape(shape).unflatten(0, (-1, regimes))
    cov = states.cov.expand(*batch, -1, -1).reshape(*shape, shape[-1]).unflatten(0, (-1, regimes))
    centre = mean[:, 0] + (share * (mean - mean[:, :1])).sum(1)  # where all agree, they do so without rounding
    furthest = _FURTHEST * cov.detach().diagonal(dim1=-2, dim2=-1).amax(1, keepdim=True).sqrt()
    spread = (mean - centre.unsqueeze(1)).clamp(-furthest, furthest)
    cov = (share.unsqueeze(-1) * (cov + spread.unsqueeze(-1) * spread.unsqueeze(-2))).sum(1)
    return _Merged(total, Gaussian(centre, symmetrise(cov)))
