"""Structural components beside a dense linear system: independent states, observed through their sum.

The covariance is full, since observations correlate the two parts. Products go by blocks: with n structural and m dense
states a step costs O(n^2 + n m^2 + m^3), and there is no product over the structural states.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.innovation import ISSMEmission, ISSMTransition, Move, is_served
from tsforecast.core.linalg import block_diagonal, concatenate, matvec
from tsforecast.core.linear import (
    AbstractByMoments,
    AbstractLinearGaussian,
    DiagonalLinearGaussian,
    LinearGaussian,
    condition,
    condition_scalar,
    with_noise,
)
from tsforecast.core.series.blocks import Blocks
from tsforecast.core.shapes import Drawn, Given, JointMoments, Observed, Posterior, Value
from tsforecast.core.structural import ISSM
from tsforecast.core.system import AbstractLinearSystem, LinearSystem, marginals_by_step

DenseForm = LinearGaussian | DiagonalLinearGaussian


@register_record
@dataclasses.dataclass(frozen=True)
class ComposedTransition(AbstractByMoments):
    """Structural states and dense states behind them, moved on each by a transition of its own.

    Attributes:
        structure: Of the first states.
        rest: Of the other states.
    """

    structure: ISSMTransition
    rest: DenseForm

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predicted belief, block by block."""
        moved = self.moved(prior)
        if moved is not None and moved.is_served():
            return moved.belief()
        size = self.structure.noise.shape[-1]
        first, rest = (
            self.structure.marginal(prior.marginal(slice(size))),
            self.rest.marginal(prior.marginal(slice(size, None))),
        )
        # A P F' of the covariance between both parts.
        cross = self.structure.push(prior.cov[..., :size, size:]) @ self.rest.matrix.mT
        return Gaussian(concatenate([first.mean, rest.mean], -1, 1), _in_blocks(first.cov, cross, rest.cov))

    def moved(self, prior: Gaussian) -> Move | None:
        """Return the transition as the program takes it; None where it does not take it, or such a belief."""
        if not isinstance(self.rest, DiagonalLinearGaussian) or not is_served(prior):  # it takes diagonal noises only
            return None
        own, matrix, size = self.structure, self.rest.matrix, self.structure.noise.shape[-1]
        first = own.push(prior.mean[..., :size].unsqueeze(-1)).squeeze(-1)
        mean = concatenate([first, matvec(matrix, prior.mean[..., size:]) + self.rest.offset], -1, 1)
        noise = concatenate([own.noise, self.rest.variance], -1, 1)
        return Move(own.slopes, mean, prior.cov, own.diagonal, matrix, noise, own.slope)

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the state moved on, with noise."""
        size, rest = self.structure.noise.shape[-1], self.rest
        first, others = value[..., :size], value[..., size:]
        if isinstance(rest, LinearGaussian):
            return concatenate([self.structure.sample(first, generator), rest.sample(others, generator)], -1, 1)
        moved = [self.structure.push(first.unsqueeze(-1)).squeeze(-1), matvec(rest.matrix, others) + rest.offset]
        return with_noise(
            concatenate(moved, -1, 1), concatenate([self.structure.noise, rest.variance], -1, 1), generator
        )

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        first, rest = self.structure.dense(), self.rest.dense()
        return LinearGaussian(
            block_diagonal(first.matrix, rest.matrix),
            concatenate([first.offset, rest.offset], -1, 1),
            block_diagonal(first.noise, rest.noise),
        )


@register_record
@dataclasses.dataclass(frozen=True)
class ComposedEmission(AbstractLinearGaussian):
    """p(y_t | x_t): the emission of the dense states, plus the sum of the structural states in its first component.

    Attributes:
        structure: Emission of the first states into the first component of y_t. Its noise and offset are added to those
            of the dense states.
        rest: Of the other states.
    """

    structure: ISSMEmission
    rest: DenseForm

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of the observation, its covariance with the state, and its own."""
        size, first, rest = self.structure.num_states, self.structure, self.rest.dense()
        out = rest.offset.shape[-1]
        seen = first.read(prior.mean[..., :size].unsqueeze(-1)) + first.offset.unsqueeze(-1)
        mean = matvec(rest.matrix, prior.mean[..., size:]) + rest.offset + _padded(seen, out)
        rows = first.read(prior.cov[..., :size, :]).unsqueeze(-2)
        cross = rest.matrix @ prior.cov[..., size:, :] + _padded(rows, out, -2)
        column = first.read(cross[..., :size].mT) + _padded(first.noise.unsqueeze(-1), out)
        among = cross[..., size:] @ rest.matrix.mT + rest.noise + _padded(column.unsqueeze(-1), out)
        return mean, cross, among

    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """Return the belief after an update, for a single target by a scalar division and an outer product."""
        mean, cross, among = self.joint(prior)
        if mean.shape[-1] > 1:  # several targets need a factorisation
            return condition(prior, value - mean, cross, among, observed)
        seen = None if observed is None else observed[..., 0]
        return condition_scalar(prior, (value - mean)[..., 0], cross[..., 0, :], among[..., 0, 0], seen)

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the sum of both emissions, with noise."""
        size, rest, noise = self.structure.num_states, self.rest, self.structure.noise.unsqueeze(-1)
        out = rest.offset.shape[-1]
        if isinstance(rest, LinearGaussian):
            both = dataclasses.replace(rest, noise=rest.noise + torch.diag_embed(_padded(noise, out)))
        else:
            both = dataclasses.replace(rest, variance=rest.variance + _padded(noise, out))
        seen = self.structure.read(value[..., :size].unsqueeze(-1)) + self.structure.offset.unsqueeze(-1)
        return _padded(seen, out) + both.sample(value[..., size:], generator)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        first, rest = self.structure.dense(), self.rest.dense()
        out = rest.offset.shape[-1]
        return LinearGaussian(
            concatenate([_padded(first.matrix, out, -2), rest.matrix], -1, 2),
            _padded(first.offset, out) + rest.offset,
            _padded(_padded(first.noise, out), out, -2) + rest.noise,
        )


@register_record
@dataclasses.dataclass(frozen=True)
class ComposedSystem(AbstractLinearSystem):
    """Structural components beside a dense system; their emissions add up.

    Attributes:
        structure: Of the first states, emitted into the first target.
        rest: Of the other states.
    """

    structure: ISSM
    rest: LinearSystem

    @property
    def num_targets(self) -> int:
        """Return the dimension of one observation."""
        return self.rest.num_targets

    def at(self, time: int) -> tuple[ComposedTransition, ComposedEmission]:
        """Return the transition into and the emission from step `time`."""
        return _compose(self.structure.at(time), self.rest.at(time))

    def by_step(self) -> Callable[[int], tuple[ComposedTransition, ComposedEmission]]:
        """Return a function like `at`, without an adjoint as large as the system for each step."""
        rest = self.rest.by_step()
        return lambda time: _compose(self.structure.at(time), rest(time))

    def block_shape(self, num_steps: int, num_series: int = 1) -> tuple[int, int]:
        """Return the block shape of the structural part, for as many observed numbers at once."""
        length = max(1, min(num_steps, 12 // self.num_targets))  # twelve observed numbers, as for components alone
        states = self.structure.num_states + self.rest.transition.offset.shape[-1]
        return length, max(1, 2**21 // (num_series * length * self.num_targets * states))  # some megabytes at a time

    def marginals(self, prior: Gaussian, num_steps: int) -> Gaussian:
        """Step by step: the joint is multiplied out for every pair of steps."""
        return marginals_by_step(self, prior, num_steps)

    def blocks(self, first: int, length: int, count: int) -> Blocks:
        """Return all blocks at once: given the state before, the parts are independent."""
        size, rest_size = self.structure.num_states, self.rest.transition.offset.shape[-1]
        one = _spread(_in_full(self.structure.blocks(first, length, count), size), self.num_targets)
        two = _in_full(self.rest.blocks(first, length, count), rest_size)
        pairs = _aligned(one, two)
        return Blocks(
            matrix=concatenate(pairs["matrix"], -1, 2),
            offset=torch.add(*pairs["offset"]),
            noise=torch.add(*pairs["noise"]),
            cross=concatenate(pairs["cross"], -1, 2),
            transition=block_diagonal(*pairs["transition"]),
            state_offset=concatenate(pairs["state_offset"], -1, 1),
            state_noise=block_diagonal(*pairs["state_noise"]),
        )


def compose(structure: ISSM, rest: LinearSystem | None) -> ISSM | ComposedSystem:
    """Return both side by side; the structure alone where there are no other states."""
    return structure if rest is None else ComposedSystem(structure, rest)


def beside(first: Gaussian, rest: Gaussian | None) -> Gaussian:
    """Return the joint Gaussian of independent states; the first alone where there are no others."""
    if rest is None:
        return first
    return Gaussian(concatenate([first.mean, rest.mean], -1, 1), block_diagonal(first.cov, rest.cov))


def compose_steps(
    structure: tuple[ISSMTransition, ISSMEmission] | None, rest: tuple[DenseForm, DenseForm] | None
) -> tuple[AbstractLinearGaussian, AbstractLinearGaussian]:
    """Return transition and emission of both parts side by side; those of one where there is no other."""
    if structure is None or rest is None:
        only = rest if structure is None else structure
        assert only is not None, "there is neither part"
        return only
    return _compose(structure, rest)


def _compose(
    structure: tuple[ISSMTransition, ISSMEmission], rest: tuple[DenseForm, DenseForm]
) -> tuple[ComposedTransition, ComposedEmission]:
    return ComposedTransition(structure[0], rest[0]), ComposedEmission(structure[1], rest[1])


def _in_full(blocks: Blocks, size: int) -> Blocks:
    """Return blocks of observations given the state before, with every part that may be left out, and square matrices.

    Args:
        blocks: Some, perhaps plain steps.
        size: Number of states.
    """
    matrix, cross, state_noise = blocks.matrix, blocks.cross, _square(blocks.state_noise)
    eye = torch.eye(size, dtype=matrix.dtype, device=matrix.device).unsqueeze(0)
    transition = eye if blocks.transition is None else _square(blocks.transition)
    drift = matrix.new_zeros(1, size) if blocks.state_offset is None else blocks.state_offset
    offset, noise = blocks.offset, blocks.noise
    if cross is None:  # the rows read the state after the move; rewritten for the state before it
        cross = matrix @ state_noise
        offset, noise = offset + matvec(matrix, drift), noise + cross @ matrix.mT  # the noise of the state is seen, too
        matrix = matrix @ transition
    return Blocks(matrix, offset, noise, cross, transition, drift, state_noise)


def _square(x: Tensor) -> Tensor:
    """Return a matrix that may be given as the column of its diagonal."""
    return torch.diag_embed(x.squeeze(-1)) if x.shape[-1] == 1 else x


def _spread(blocks: Blocks, out: int) -> Blocks:
    """Return blocks with `out` targets; the targets of the given blocks come first."""
    assert blocks.cross is not None
    rows = lambda x: _padded(x.unsqueeze(-2), out, -2).flatten(-3, -2)  # noqa: E731
    return dataclasses.replace(
        blocks,
        matrix=rows(blocks.matrix),
        offset=rows(blocks.offset.unsqueeze(-1)).squeeze(-1),
        noise=rows(rows(blocks.noise).mT).mT,
        cross=rows(blocks.cross),
    )


def _aligned(*all_blocks: Blocks) -> dict[str, list[Tensor]]:
    """Return the tensors of some blocks by name, with as many batch dimensions."""
    # Offsets are vectors, all others matrices.
    event = {field.name: 1 if "offset" in field.name else 2 for field in dataclasses.fields(Blocks)}
    parts = {name: [getattr(blocks, name) for blocks in all_blocks] for name in event}
    lead = max(x.ndim - event[name] for name, part in parts.items() for x in part)
    return {
        name: [x.reshape(len(x), *[1] * (lead + event[name] - x.ndim), *x.shape[1:]) for x in part]
        for name, part in parts.items()
    }


def _padded(x: Tensor, size: int, dim: int = -1) -> Tensor:
    """Return a tensor with zeros behind it in a dimension, up to a size."""
    missing = size - x.shape[dim]
    return torch.nn.functional.pad(x, (*[0, 0] * (-1 - dim), 0, missing)) if missing else x


def _in_blocks(first: Tensor, cross: Tensor, rest: Tensor) -> Tensor:
    """Return the symmetric matrix with these blocks on and above its diagonal."""
    return concatenate([concatenate([first, cross], -1, 2), concatenate([cross.mT, rest], -1, 2)], -2, 2)
