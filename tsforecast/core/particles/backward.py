"""Backward simulation: paths of switches, drawn from the last step to the first among the particles of the filter.

What comes later is kept as a function of the state before it, so that the state is integrated out.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors
from tsforecast.core.linalg import LOG_2PI, cholesky, log_det, mask_rows, matvec, symmetrise
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.resampling import draw_index
from tsforecast.core.particles.state import ParticleState, take


@dataclasses.dataclass(frozen=True)
class _Later:
    """log p(later observations | x) = -x' information x / 2 + score' x + a constant."""

    information: Tensor  # (sample, series, state, state)
    score: Tensor  # (sample, series, state)


def draw_paths(
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
    return list(_backwards(system, initial, history, values, observed, num_samples, generator, first))[::-1]


def draw_switches(
    system: AbstractSwitchingSystem,
    initial: ParticleState,
    history: ParticleState,
    values: Tensor,
    observed: Tensor | None = None,
    *,
    num_samples: int = 100,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> Float[Tensor, "time sample series switch"]:
    """Paths of switches given all of the data, without the states: of these no more than a step is kept.

    For arguments see `smooth`.
    """
    drawn = _backwards(system, initial, history, values, observed, num_samples, generator, first)
    return torch.stack([path.switch for path in itertools.islice(drawn, len(values))][::-1])


def _backwards(
    system: AbstractSwitchingSystem,
    initial: ParticleState,
    history: ParticleState,
    values: Tensor,
    observed: Tensor | None,
    num_samples: int,
    generator: torch.Generator | None,
    first: int,
) -> Iterator[ParticleState]:
    """The drawn particles of every path from the last step to the first, and those before it."""
    last = map_tensors(lambda x: x[-1], history)
    # Given all data, the last step's weights are the filter's.
    path = take(last, draw_index(torch.softmax(last.log_weight, 0).expand(num_samples, -1, -1), 1, generator))
    # Nothing comes after the last step.
    later = _Later(torch.zeros_like(path.state.cov), torch.zeros_like(path.state.mean))
    yield path
    for step in range(len(values) - 1, -1, -1):
        time = first + step
        particles = initial if step == 0 else map_tensors(lambda x, at=step - 1: x[at], history)
        if system.has_one_past:  # a memory determines where it came from: nothing to draw
            path = take(particles, system.recall(particles, path.switch, time)[1].argmax(1))
            yield path
            continue
        mask = None if observed is None else observed[step]
        later = _pull_back(system.regime(path.switch, time), path, later, values[step], mask)
        conditional, log_prob = system.recall(particles, path.switch, time)
        log_weight = particles.log_weight + log_prob
        log_weight = log_weight + _integrate(particles.state, conditional, path.switch, later)
        index = draw_index(torch.softmax(log_weight, 1), 1, generator)
        if conditional is not None:  # the chosen particle's own recurrence now belongs to what comes later
            later = _observe(take(conditional, index), path.switch, None, later)
        path = take(particles, index)
        yield path


def _observe(conditional: LinearGaussian, value: Tensor, observed: Tensor | None, later: _Later) -> _Later:
    """Add the information of an observation of x: C' Q^{-1} C and C' Q^{-1} (y - d)."""
    matrix, noise = conditional.matrix, conditional.noise
    residual = value - conditional.offset
    if observed is not None:
        residual = torch.where(observed, residual, 0.0)
        matrix, noise = mask_rows(matrix, noise, observed)
    factor = cholesky(noise, "the noise of an emission")  # the information needs its inverse: no jitter
    rhs = torch.cat([matrix.expand(*residual.shape, -1), residual.unsqueeze(-1)], -1)
    white = torch.linalg.solve_triangular(factor.expand(*residual.shape, -1), rhs, upper=False)
    rows, white = white[..., :-1], white[..., -1]
    return _Later(later.information + rows.mT @ rows, later.score + matvec(rows.mT, white))


def _pull_back(regime: Regime, path: ParticleState, later: _Later, value: Tensor, observed: Tensor | None) -> _Later:
    """The information of step t and all later steps about x_{t-1}, given the switch of step t."""
    if path.auxiliary is not None:  # it was drawn, given an observation: that says no more
        seen = None if observed is None else observed.any(-1, keepdim=True).expand(path.auxiliary.shape)
        now = _observe(regime.emission.dense(), path.auxiliary, seen, later)
    else:
        now = _observe(regime.emission.dense(), value.expand(*later.score.shape[:-1], -1), observed, later)
    transition = regime.transition.dense()
    # With R = G G': (J^{-1} + R)^{-1} = J - J G (I + G' J G)^{-1} G' J, which needs no inverse of J or R.
    # States without noise of their own are usual.
    root = cholesky(transition.noise, "the noise of a transition", jitter=True)
    seen_root = now.information @ root
    inner = root.mT @ seen_root
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    factor = cholesky(inner, "the information of later steps")
    gain = torch.linalg.solve_triangular(factor, seen_root.mT, upper=False)
    information = now.information - gain.mT @ gain
    residual = now.score - matvec(now.information, transition.offset)  # of the state before its drift
    white = torch.linalg.solve_triangular(factor, matvec(root.mT, residual).unsqueeze(-1), upper=False)
    residual = residual - (gain.mT @ white).squeeze(-1)
    back = transition.matrix.mT
    return _Later(symmetrise(back @ information @ transition.matrix), matvec(back, residual))


def _integrate(
    belief: Gaussian, conditional: LinearGaussian | None, switch: Tensor, later: _Later
) -> Float[Tensor, "sample particle series"]:
    """The log of the integral over x of every particle's N(x; m, V) N(switch; F x + f, S) p(later observations | x)."""
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
    root = cholesky(belief.cov, "the belief of a particle", jitter=True)  # a known state has a covariance of zeros
    mean = belief.mean.expand(score.shape[0], *belief.mean.shape)
    information = information.expand(*mean.shape, -1)
    inner = root.mT @ information @ root  # with V = G G', |I + V J| = |I + G' J G|
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    factor = cholesky(inner, "the information of later steps")
    pushed = matvec(information, mean)
    residual = matvec(root.mT.expand_as(inner), score - pushed)
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
    exponent = (mean * (score - 0.5 * pushed)).sum(-1) + 0.5 * (white.square().sum(-1) - log_det(factor))
    return constant + exponent
