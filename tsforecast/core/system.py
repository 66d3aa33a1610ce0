"""Systems of linear-Gaussian conditionals: a transition into, and an emission from, every step."""

import abc
import dataclasses
import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors, register_record, unbind
from tsforecast.core.kernels import chain as compiled
from tsforecast.core.linalg import broadcast_shapes, concatenate, matvec, symmetrise
from tsforecast.core.linear import AbstractLinearGaussian, LinearGaussian
from tsforecast.core.series import elementwise
from tsforecast.core.series.blocks import Blocks, condition_on_blocks


class AbstractLinearSystem(abc.ABC):
    """x_0 ~ prior; then for t = 1, 2, ...: x_t ~ transition_t(x_{t-1}), y_t ~ emission_t(x_t).

    There is no observation at time 0, so the belief after a time slice of data is the prior of the next time slice.
    Steps are counted from 0: `at(0)` leads from the prior's state to the first observation.
    """

    @abc.abstractmethod
    def at(self, time: int) -> tuple[AbstractLinearGaussian, AbstractLinearGaussian]:
        """Return the transition into and the emission from step `time`."""

    def by_step(self) -> Callable[[int], tuple[AbstractLinearGaussian, AbstractLinearGaussian]]:
        """Return a function like `at`, for loops over many steps."""
        return self.at

    @abc.abstractmethod
    def blocks(self, first: int, length: int, count: int) -> Blocks:
        """Steps `first` to `first + length * count`, as `count` conditionals of `length` observations each."""

    @abc.abstractmethod
    def block_shape(self, num_steps: int, num_series: int = 1) -> tuple[int, int]:
        """Return the fastest block shape for so many series with a covariance of their own.

        Returns:
            The number of steps in a block; and the number of blocks to make at once where no gradient needs them all.
        """

    @property
    @abc.abstractmethod
    def num_targets(self) -> int:
        """Return the dimension of one observation."""

    def posterior(
        self,
        prior: Gaussian,
        values: Float[Tensor, "time *#batch target"],
        observed: Bool[Tensor, "time *#batch target"] | None = None,
    ) -> tuple[Gaussian, Float[Tensor, "time *batch"]]:
        """The belief over the last state given a whole series, and the log-likelihood of each step.

        Many steps are taken at once: exact, and far faster than the loop over `at`, which has the moments of every
        step. The gradient is a closed-form adjoint; second derivatives are not available.

        Args:
            prior: Over the state before the first step.
            values: Finite everywhere.
            observed: False where a value is missing; None if there is none.

        Raises:
            NotPositiveDefiniteError: Naming step and series.
        """
        if len(values) == 1 and not torch.is_grad_enabled():  # a block has more to do than its only step
            transition, emission = self.at(0)
            seen = None if observed is None else observed[0]
            belief, term = emission.posterior(transition.marginal(prior), values[0], seen)
            return belief, term.unsqueeze(0)
        belief, (terms,) = self._through(prior, values, observed, False)
        return belief, terms

    def innovations(
        self,
        prior: Gaussian,
        values: Float[Tensor, "time *#batch target"],
        observed: Bool[Tensor, "time *#batch target"] | None = None,
    ) -> tuple[Gaussian, Float[Tensor, "time *batch"], Float[Tensor, "time *batch"]]:
        """Return the result of `posterior`, with each step's log-likelihood in two parts: log_scale - square / 2.

        With variances that are all v times as large the belief has the same mean and v times the covariance, and the
        log-likelihood of a step with one target is log_scale - log(v) / 2 - square / (2 v).

        Returns:
            The belief; log N(0; 0, S) for the covariance S of every step's prediction; and the squares of its
            standardised errors, summed over the targets.

        Raises:
            NotPositiveDefiniteError: Naming step and series.
        """
        belief, (terms, scales) = self._through(prior, values, observed, True)
        return belief, scales, (2 * (scales - terms)).clamp_min(0.0)  # rounding may take a square below 0

    def whole(self, prior: Gaussian, values: Tensor, observed: Tensor | None) -> tuple[Gaussian, Tensor, Tensor] | None:
        """Return the result of `innovations`, by one operation; None where blocks of steps are taken."""
        return None

    def errors(
        self, prior: Gaussian, values: Tensor, observed: Tensor | None
    ) -> tuple[Gaussian, Tensor, Tensor] | None:
        """Return moments of every step by one operation, see `ISSM.errors`; None where there is none."""
        return None

    def _through(
        self, prior: Gaussian, values: Tensor, observed: Tensor | None, in_parts: bool
    ) -> tuple[Gaussian, list[Tensor]]:
        """Return the belief after a series, and the terms of `condition_on_blocks` for every step."""
        num_steps = values.shape[0]
        by_whole = self.whole(prior, values, observed) if num_steps else None
        if by_whole is not None:  # one operation for the whole series beats blocks of it
            belief, scale, square = by_whole
            return belief, [scale - 0.5 * square, *([scale] if in_parts else [])]
        batch = broadcast_shapes(prior.batch_shape, values.shape[1:-1])
        apart = observed is not None or prior.cov.shape[:-2].numel() > 1  # gains differ between series
        length, at_once = self.block_shape(max(num_steps, 1), batch.numel() if apart else 1)
        length = max(min(length, num_steps), 1)
        count, rest = divmod(num_steps, length)
        at_once = max(count, 1) if torch.is_grad_enabled() else at_once  # autograd keeps all blocks anyway
        stretches = [(k * length, length, min(at_once, count - k)) for k in range(0, count, at_once)]
        if rest:
            stretches.append((count * length, rest, 1))  # steps that fill no block are a shorter one
        belief, pieces = prior, []
        for first, size, number in stretches:
            time_slice = slice(first, first + size * number)
            belief, here = condition_on_blocks(
                self.blocks(first, size, number),
                belief,
                values[time_slice],
                None if observed is None else observed[time_slice],
                first,
                in_parts,
            )
            pieces.append(here)
        if not pieces:
            return belief, [values.new_zeros(0, *batch)] * (1 + in_parts)  # of no step nothing is concatenated
        return belief, [torch.cat(parts) for parts in zip(*pieces, strict=True)]

    def log_likelihood(
        self,
        prior: Gaussian,
        values: Float[Tensor, "time *#batch target"],
        observed: Bool[Tensor, "time *#batch target"] | None = None,
    ) -> Float[Tensor, "time *batch"]:
        """Return log p(y_t | y_1, ..., y_{t-1}) for every step, the observed components only; see `posterior`."""
        return self.posterior(prior, values, observed)[1]

    def predictive(self, prior: Gaussian, num_steps: int) -> Gaussian:
        """The joint Gaussian of the observations of the next steps, in closed form.

        Returns:
            Dimension num_steps * target, time outermost.
        """
        if num_steps == 1:
            transition, emission = self.at(0)
            return emission.marginal(transition.marginal(prior))
        block = map_tensors(lambda x: x[0], self.blocks(0, num_steps, 1))
        mean = matvec(block.matrix, prior.mean) + block.offset
        cov = block.matrix @ prior.cov @ block.matrix.mT + block.noise
        return Gaussian(mean, symmetrise(cov))

    def marginals(self, prior: Gaussian, num_steps: int) -> Gaussian:
        """Return the moments of `predictive` for every step alone, (time, *batch, target), by the fastest route."""
        joint = self.predictive(prior, num_steps)
        rows = joint.mean.unflatten(-1, (num_steps, -1))
        pairs = joint.cov.unflatten(-2, (num_steps, -1)).unflatten(-1, (num_steps, -1))
        return Gaussian(rows.movedim(-2, 0), pairs.diagonal(dim1=-4, dim2=-2).movedim(-1, 0))


def marginals_by_step(system: AbstractLinearSystem, prior: Gaussian, num_steps: int) -> Gaussian:
    """Return the marginals of a system, see its method of this name, by a loop over the steps."""
    emitted: list[Gaussian] = []
    at = system.by_step()
    for time in range(num_steps):
        transition, emission = at(time)
        prior = transition.marginal(prior)
        emitted.append(emission.marginal(prior))
    return Gaussian(torch.stack([y.mean for y in emitted]), torch.stack([y.cov for y in emitted]))


@register_record
@dataclasses.dataclass(frozen=True)
class LinearSystem(AbstractLinearSystem):
    """A system given by its matrices, each constant or varying with time.

    Attributes:
        transition: Each tensor has a leading dimension of time, of size 1 where it is constant.
        emission: Likewise.
    """

    transition: LinearGaussian
    emission: LinearGaussian

    @property
    def num_targets(self) -> int:
        """Return the dimension of one observation."""
        return self.emission.offset.shape[-1]

    def at(self, time: int) -> tuple[LinearGaussian, LinearGaussian]:
        """Return the transition into and the emission from step `time`."""
        pick = lambda x: x[time if x.shape[0] > 1 else 0]  # noqa: E731
        return map_tensors(pick, self.transition), map_tensors(pick, self.emission)

    def by_step(self) -> Callable[[int], tuple[LinearGaussian, LinearGaussian]]:
        """Return a function like `at`, without an adjoint as large as the system for each step."""
        return unbind((self.transition, self.emission))

    def block_shape(self, num_steps: int, num_series: int = 1) -> tuple[int, int]:
        """Constant systems are fastest with some twelve numbers observed at once, compiled with four.

        Others gain nothing from blocks.

        All blocks are one, or views of the parameters.
        """
        parts = (self.transition.matrix, self.transition.noise, self.emission.matrix, self.emission.noise)
        num_series = max(num_series, *(x.shape[1:-2].numel() for x in parts))
        matrix = self.emission.matrix
        if any(x.shape[0] > 1 for x in parts) or elementwise.suits(
            num_series, matrix.shape[-1], matrix.shape[-2], matrix.device
        ):
            return 1, num_steps
        numbers = 4 if compiled.suits(num_series, matrix.shape[-1], matrix.device) else 12
        # Making a block takes `length` steps, the chain `num_steps / length`.
        return max(1, min(numbers // self.num_targets, math.isqrt(num_steps))), num_steps

    def marginals(self, prior: Gaussian, num_steps: int) -> Gaussian:
        """Step by step: the joint is multiplied out for every pair of steps."""
        return marginals_by_step(self, prior, num_steps)

    def blocks(self, first: int, length: int, count: int) -> Blocks:
        """Return all blocks at once, by recursion over the `length` steps.

        With Phi_s = A_s ... A_1: y_s = C_s Phi_s x + noise, and the noise of x_s is carried forward by A.
        """
        parts = (*_tensors(self.transition), *_tensors(self.emission))
        ndim = max(x.ndim - event for x, event in zip(parts, (2, 1, 2) * 2, strict=True))
        a, b, r, c, d, q = (
            _fold(x.reshape(len(x), *[1] * (ndim + event - x.ndim), *x.shape[1:]), first, length, count)
            for x, event in zip(parts, (2, 1, 2) * 2, strict=True)
        )
        step = lambda x, s: x[:, s if x.shape[1] > 1 else 0]  # noqa: E731
        if length == 1:
            # A block of one step is the step itself.
            return Blocks(step(c, 0), step(d, 0), step(q, 0), None, step(a, 0), step(b, 0), step(r, 0))
        phi, shift, cov = step(a, 0), step(b, 0), step(r, 0)
        crosses: list[Tensor] = []  # Cov(x_s, y_u) for u <= s
        rows: list[Tensor] = []
        offsets: list[Tensor] = []
        noises: list[list[Tensor]] = []
        for s in range(length):
            if s > 0:
                phi = step(a, s) @ phi
                shift = matvec(step(a, s), shift) + step(b, s)
                cov = symmetrise(step(a, s) @ cov @ step(a, s).mT + step(r, s))
                crosses = [step(a, s) @ x for x in crosses]
            emission = step(c, s)
            noises.append([emission @ x for x in crosses] + [symmetrise(emission @ cov @ emission.mT + step(q, s))])
            crosses.append(cov @ emission.mT)
            rows.append(emission @ phi)
            offsets.append(matvec(emission, shift) + step(d, s))
        # Symmetric: the other half is turned.
        full = [[noises[s][u] if u <= s else noises[u][s].mT for u in range(length)] for s in range(length)]
        return Blocks(
            matrix=concatenate(rows, -2, 2),
            offset=concatenate(offsets, -1, 1),
            noise=concatenate([concatenate(row, -1, 2) for row in full], -2, 2),
            cross=concatenate([x.mT for x in crosses], -2, 2),
            transition=phi,
            state_offset=shift,
            state_noise=cov,
        )


def _tensors(conditional: LinearGaussian) -> tuple[Tensor, Tensor, Tensor]:
    return conditional.matrix, conditional.offset, conditional.noise


def _fold(x: Tensor, first: int, length: int, count: int) -> Tensor:
    """(time, ...) to (block, step in block, ...); constants stay (1, 1, ...)."""
    if x.shape[0] == 1:
        return x.unsqueeze(0)
    return x[first : first + length * count].unflatten(0, (count, length))
