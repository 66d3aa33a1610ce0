"""Rao-Blackwellised particle smoothing: backward simulation of the switches, the state integrated out.

Sarkka, Bunch and Godsill (2012), Lindsten and Schon (2013); here also for switches that depend on the state before.
"""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import kalman
from tsforecast.core.gaussian import Gaussian, map_tensors, register_record, unbind
from tsforecast.core.linalg import LOG_2PI, cholesky, log_det, mask_rows, matvec, symmetrise
from tsforecast.core.linear import LinearGaussian, LinearSystem
from tsforecast.core.particles.filtering import (
    AbstractSwitchingSystem,
    ParticleState,
    Regime,
    filter,
    systematic_ancestors,
    take,
)


@register_record
@dataclasses.dataclass(frozen=True)
class ParticleSmoothed:
    """Samples of what was never seen, given all of the data; every sample is equally likely.

    Attributes:
        switches: s_1, ..., s_T.
        auxiliaries: z_1, ..., z_T, for systems that have them.
        states: Of every path of switches the smoothed states, batch shape (sample, series).
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
        """Of the states: within the paths, and between their means."""
        spread = self.states.states.mean - self.mean.unsqueeze(1)
        between = spread.unsqueeze(-1) * spread.unsqueeze(-2)
        return symmetrise((self.states.states.cov + between).mean(1))


@dataclasses.dataclass(frozen=True)
class _Later:
    """log p(what comes later | x) = -x' information x / 2 + score' x + a constant."""

    information: Tensor  # (sample, series, state, state)
    score: Tensor  # (sample, series, state)


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
    drawn = _draw_paths(system, initial, history, values, observed, num_samples, generator, first)
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
    weights = particles.log_weight.detach()
    if len(weights) < num_particles:
        uniform = torch.rand(weights.shape[1], generator=generator, dtype=weights.dtype, device=weights.device)
        particles = take(particles, systematic_ancestors(weights, uniform, num_particles))
        weights = torch.full_like(particles.log_weight, -math.log(num_particles))
        particles = dataclasses.replace(particles, log_weight=weights)
    filtered = filter(system, particles, values, observed, keep_history=True, generator=generator, first=first)
    assert filtered.history is not None
    drawn = _draw_paths(system, particles, filtered.history, values, observed, num_samples, generator, first)
    given = _given_paths(system, drawn, values, observed, first)
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


def _draw_paths(
    system: AbstractSwitchingSystem,
    initial: ParticleState,
    history: ParticleState,
    values: Tensor,
    observed: Tensor | None,
    num_samples: int,
    generator: torch.Generator | None,
    first: int,
) -> list[ParticleState]:
    """The drawn particles of every path (sample, series) at every step, those before the first step in front."""
    last = map_tensors(lambda x: x[-1], history)
    path = _take(last, _draw(last.log_weight.unsqueeze(0).expand(num_samples, -1, -1), generator))
    later = _Later(torch.zeros_like(path.state.cov), torch.zeros_like(path.state.mean))
    drawn = [path]
    for step in range(len(values) - 1, -1, -1):
        time = first + step
        particles = initial if step == 0 else map_tensors(lambda x, at=step - 1: x[at], history)
        if system.has_one_past:
            path = _take(particles, system.recall(particles, path.switch, time)[1].argmax(1))
            drawn.append(path)
            continue
        mask = None if observed is None else observed[step]
        later = _pull_back(system.regime(path.switch, time), path, later, values[step], mask)
        conditional, log_prob = system.recall(particles, path.switch, time)
        log_weight = particles.log_weight + log_prob
        log_weight = log_weight + _integrate(particles.state, conditional, path.switch, later)
        index = _draw(log_weight, generator)
        path = _take(particles, index)
        if conditional is not None:  # the chosen particle's own recurrence now belongs to what comes later
            later = _observe(_take(conditional, index), drawn[-1].switch, None, later)
        drawn.append(path)
    return drawn[::-1]


def _draw(log_weight: Tensor, generator: torch.Generator | None) -> Tensor:
    """One of the particles (dimension 1) for every sample and series."""
    cumulative = torch.softmax(log_weight, 1).cumsum(1)
    shape = (log_weight.shape[0], 1, log_weight.shape[2])
    uniform = torch.rand(shape, generator=generator, dtype=log_weight.dtype, device=log_weight.device)
    return (uniform * cumulative[:, -1:] >= cumulative).sum(1).clamp_max(log_weight.shape[1] - 1)


def _take(record, index: Tensor):
    """The record's (particle, series, ...) tensors at an index (sample, series)."""
    series = torch.arange(index.shape[1], device=index.device)
    return map_tensors(lambda x: x if x.ndim == 1 else x[index, series], record)


def _observe(conditional: LinearGaussian, value: Tensor, observed: Tensor | None, later: _Later) -> _Later:
    """With what an observation of x says: C' Q^{-1} C and C' Q^{-1} (y - d)."""
    matrix, noise = conditional.matrix, conditional.noise
    residual = value - conditional.offset
    if observed is not None:
        residual = torch.where(observed, residual, 0.0)
        matrix, noise = mask_rows(matrix, noise, observed)
    factor = cholesky(noise, "the noise of an emission")
    rhs = torch.cat([matrix.expand(*residual.shape, -1), residual.unsqueeze(-1)], -1)
    white = torch.linalg.solve_triangular(factor.expand(*residual.shape, -1), rhs, upper=False)
    rows, white = white[..., :-1], white[..., -1]
    return _Later(later.information + rows.mT @ rows, later.score + matvec(rows.mT, white))


def _pull_back(regime: Regime, path: ParticleState, later: _Later, value: Tensor, observed: Tensor | None) -> _Later:
    """What step t and all after it say of x_{t-1}, given the switch of step t."""
    if path.auxiliary is not None:  # it was drawn, given an observation: that says no more
        seen = None if observed is None else observed.any(-1, keepdim=True).expand(path.auxiliary.shape)
        now = _observe(regime.emission.dense(), path.auxiliary, seen, later)
    else:
        now = _observe(regime.emission.dense(), value.expand(*later.score.shape[:-1], -1), observed, later)
    transition = regime.transition.dense()
    # With R = G G': (J^{-1} + R)^{-1} = J - J G (I + G' J G)^{-1} G' J, which needs no inverse of J or R.
    root = cholesky(transition.noise, "the noise of a transition", jitter=True)
    seen_root = now.information @ root
    inner = root.mT @ seen_root
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    factor = cholesky(inner, "the information of later steps")
    gain = torch.linalg.solve_triangular(factor, seen_root.mT, upper=False)
    information = now.information - gain.mT @ gain
    residual = now.score - matvec(now.information, transition.offset)
    white = torch.linalg.solve_triangular(factor, matvec(root.mT, residual).unsqueeze(-1), upper=False)
    residual = residual - (gain.mT @ white).squeeze(-1)
    back = transition.matrix.mT
    return _Later(symmetrise(back @ information @ transition.matrix), matvec(back, residual))


def _integrate(
    belief: Gaussian, conditional: LinearGaussian | None, switch: Tensor, later: _Later
) -> Float[Tensor, "sample particle series"]:
    """Log of the integral over x of every particle's N(x; m, V) N(switch; F x + f, S) and of what comes later."""
    information, score = later.information.unsqueeze(1), later.score.unsqueeze(1)
    constant = 0.0
    if conditional is not None:
        factor = cholesky(conditional.noise, "the noise of a switch")
        residual = switch.unsqueeze(1) - conditional.offset
        rows = torch.linalg.solve_triangular(factor, conditional.matrix, upper=False)
        white = torch.linalg.solve_triangular(
            factor.expand(*residual.shape, -1), residual.unsqueeze(-1), upper=False
        ).squeeze(-1)
        information = information + rows.mT @ rows
        score = score + matvec(rows.mT.expand(*white.shape[:-1], *rows.mT.shape[-2:]), white)
        constant = -0.5 * (white.square().sum(-1) + log_det(factor) + residual.shape[-1] * LOG_2PI)
    root = cholesky(belief.cov, "the belief of a particle", jitter=True)
    mean = belief.mean.expand(score.shape[0], *belief.mean.shape)
    information = information.expand(*mean.shape, -1)
    inner = root.mT @ information @ root
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    factor = cholesky(inner, "the information of later steps")
    pushed = matvec(information, mean)
    residual = matvec(root.mT.expand_as(inner), score - pushed)
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
    exponent = (mean * (score - 0.5 * pushed)).sum(-1) + 0.5 * (white.square().sum(-1) - log_det(factor))
    return constant + exponent


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
    """The linear system of every drawn path, in which the next switch is an observation of a state too; with its data.

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
        transition = _begun(regime.transition.dense(), path.begun)
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


def _begun(transition: LinearGaussian, begun: Bool[Tensor, " series"]) -> LinearGaussian:
    """The transition where a series has begun; before, its state stands still."""
    if bool(begun.all()):
        return transition
    matrix = torch.eye(transition.matrix.shape[-1], dtype=transition.matrix.dtype, device=begun.device)
    return LinearGaussian(
        torch.where(begun[:, None, None], transition.matrix, matrix),
        torch.where(begun[:, None], transition.offset, 0.0),
        torch.where(begun[:, None, None], transition.noise, 0.0),
    )


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
