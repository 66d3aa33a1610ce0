"""The linear system along paths of switches, with the switches as observations of the states."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, unbind
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.particles.begun import stand_still
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.system import LinearSystem


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
    return given_paths(system, path, values, observed, first)


def given_paths(
    system: AbstractSwitchingSystem, drawn: list[ParticleState], values: Tensor, observed: Tensor | None, first: int
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
            # An auxiliary stands for all targets.
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
            prior = conditional.posterior(prior, drawn[1].switch)[0]  # the first switch tells of the state before it
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
        # Never seen, but its covariance is factorised.
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
    noise[..., targets:, targets:] = conditional.noise  # noises of observation and next switch are independent
    joined = LinearGaussian(
        torch.cat([_wide(emission.matrix, shape, 2), _wide(conditional.matrix, shape, 2)], -2),
        torch.cat([_wide(emission.offset, shape, 1), _wide(conditional.offset, shape, 1)], -1),
        noise,
    )
    return joined, torch.cat([target, value], -1), torch.cat([mask, seen], -1)


def _wide(x: Tensor, batch: torch.Size, event_ndim: int) -> Tensor:
    return x.expand(*batch, *x.shape[x.ndim - event_ndim :])
