"""Innovation state-space models: sums of levels, trends and seasons, by their structure.

Every component has a known transition and emission, only noises (and dampings) are free; a step costs O(n^2) without a
matrix product, and a block of steps is written down instead of multiplied out.

Time convention: x_t = A x_{t-1} + w_t comes before y_t = C_t x_t + v_t, as in every system of the core. In the
textbooks' innovation form the trend is emitted as level + slope *before* the step; here it is the structural form
(Harvey 1989), emitted as the level *after* the step: the same forecasts, with independent noises of level and slope.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.components import Clock, Component, Level, Trend
from tsforecast.core.gaussian import Gaussian, register_record, unbind
from tsforecast.core.innovation import ISSMEmission, ISSMTransition
from tsforecast.core.kernels import innovation
from tsforecast.core.kernels.calls import fits, serves
from tsforecast.core.linalg import LOG_2PI, beside, broadcast_shapes, with_lead
from tsforecast.core.seasonal import Harmonics, Season, one_hot
from tsforecast.core.series.blocks import Blocks, check_terms, flatten_batch
from tsforecast.core.side_by_side import blocks_beside, dense_rows, emitted_entries
from tsforecast.core.system import AbstractLinearSystem
from tsforecast.core.torch_internals import constant, is_transformed

_KINDS = {Level: innovation.LEVEL, Trend: innovation.TREND, Season: innovation.SEASON, Harmonics: innovation.HARMONICS}


@register_record
@dataclasses.dataclass(frozen=True)
class ISSM(AbstractLinearSystem):
    """A sum of components, one target.

    Attributes:
        components: In the order of their states.
        index: Position in the cycle of every season, (time, *batch, season): it may differ between series.
        state_noise: Variances of all noise sources in the order of the components, (time or 1, *batch, source).
        emission_noise: Variance, (time or 1, *batch).
        damping: Of every damped component, in (0, 1], (*batch, damped).
        offset: Added to the observation, (time or 1, *batch): what covariates explain.
        active: False where a series has not begun: its state stands still, so that series of different length share a
            batch, (time, *batch); None if all have.
    """

    components: tuple[Component, ...]
    index: Int[Tensor, "time *#batch season"]
    state_noise: Float[Tensor, "time_or_1 *#batch source"]
    emission_noise: Float[Tensor, "time_or_1_ *#batch"]
    damping: Float[Tensor, "*#batch damped"]
    offset: Float[Tensor, "time_or_1__ *#batch"]
    active: Bool[Tensor, "time *#batch"] | None = None

    @property
    def num_targets(self) -> int:
        """Return 1: an innovation model has one target."""
        return 1

    @property
    def num_states(self) -> int:
        """Return the size of the state: the sum over the components."""
        return sum(c.size for c in self.components)

    def slices(self) -> list[slice]:
        """Return where the states of each component lie."""
        ends = itertools.accumulate((c.size for c in self.components), initial=0)
        return [slice(first, end) for first, end in itertools.pairwise(ends)]

    def at(self, time: int) -> tuple[ISSMTransition, ISSMEmission]:
        """Return the transition into and the emission from step `time`."""
        pick = lambda x: x[time if x.shape[0] > 1 else 0]  # noqa: E731
        begun = None if self.active is None else self.active[time]
        parameters = pick(self.offset), pick(self.emission_noise)
        return self._conditionals(pick(self.state_noise), pick(self.index), self.damping, begun, *parameters)

    def by_step(self) -> Callable[[int], tuple[ISSMTransition, ISSMEmission]]:
        """Return a function like `at`, whose steps are made all at once: they take less memory than their beliefs."""
        ndim = self._batch_ndim()
        lead = lambda x, event: x.reshape(len(x), *[1] * (ndim + 1 + event - x.ndim), *x.shape[1:])  # noqa: E731
        parts = lead(self.state_noise, 1), lead(self.index, 1), lead(self.damping.unsqueeze(0), 1)
        begun = None if self.active is None else lead(self.active, 0)
        transition, emission = self._conditionals(*parts, begun, lead(self.offset, 0), lead(self.emission_noise, 0))
        coefficient = None if emission.coefficient is None else with_lead(emission.coefficient, 1, ndim + 1)
        emission = dataclasses.replace(emission, index=with_lead(emission.index, 1, ndim + 1), coefficient=coefficient)
        return unbind((transition, emission))

    def sources(self) -> Float[Tensor, "source state"]:
        """Return ones where a noise source moves a state, and zeros elsewhere."""
        sources, used = [], 0
        for c in self.components:
            # States of a trend have a source each, those of others share one.
            sources += range(used, used + c.size) if len(c.noises) == c.size else [used] * c.size
            used += len(c.noises)
        index = constant(sources, self.state_noise)  # remembered in CUDA graphs, which cannot copy it to the device
        return one_hot(index, used, self.state_noise).mT

    def _batch_ndim(self) -> int:
        """Return the number of batch dimensions."""
        ndim = max(self.state_noise.ndim - 2, self.emission_noise.ndim - 1, self.index.ndim - 2, self.offset.ndim - 1)
        return max(ndim, self.damping.ndim - 1, 0 if self.active is None else self.active.ndim - 1)

    def _conditionals(
        self,
        source: Tensor,
        index: Tensor,
        damping: Tensor,
        begun: Tensor | None,
        offset: Tensor,
        emission_noise: Tensor,
    ) -> tuple[ISSMTransition, ISSMEmission]:
        """Return transition and emission, of a step or with a leading dimension of time."""
        noises, diagonal, emitted, slopes = [], [], [], []
        first = season = damped = used = 0
        for component in self.components:
            variance = source[..., used : used + len(component.noises)]
            here = index[..., season] if component.is_seasonal else None
            position, coefficient = component.emitted(here, variance)
            emitted.append((first + position, coefficient))
            variance = component.spread(variance, here)
            noises.append(variance)
            season += component.is_seasonal
            ones = variance.new_ones(*(damping.shape[:-1]), component.size)
            if component.is_damped:
                ones = torch.cat([ones[..., 1:], damping[..., damped : damped + 1]], -1)
                damped += 1
            if isinstance(component, Trend):
                slopes.append((first, first + 1))
            diagonal.append(ones)
            first += component.size
            used += len(component.noises)
        batch = broadcast_shapes(*(x.shape[:-1] for x in noises))
        noise = torch.cat([x.expand(*batch, -1) for x in noises], -1)
        slope = None
        # Where all have begun, a shared covariance stays shared.
        if begun is not None and (is_transformed(begun) or not bool(begun.all())):
            moving = begun.unsqueeze(-1)
            noise, slope = torch.where(moving, noise, 0.0), moving.to(noise.dtype)
            diagonal = [torch.where(moving, x, 1.0) for x in diagonal]
        transition = ISSMTransition(torch.cat(diagonal, -1) if damped else None, noise, tuple(slopes), slope)
        positions, coefficients = emitted_entries(emitted, source)
        return transition, ISSMEmission(positions, offset, emission_noise, first, coefficients)

    def whole(self, prior: Gaussian, values: Tensor, observed: Tensor | None) -> tuple[Gaussian, Tensor, Tensor] | None:
        """Return the result of `innovations`, step by step in the compiled program; None for series it does not serve.

        Series that share a covariance are left to blocks: it is computed once.
        """
        found = self.errors(prior, values, observed)
        if found is None:
            return None
        belief, variance, error = found
        scale, square = -0.5 * (variance.log() + LOG_2PI), error.square() / variance
        if observed is not None:
            seen = observed[..., 0]
            seen = seen.reshape(len(seen), *[1] * (scale.ndim - seen.ndim), *seen.shape[1:])
            scale, square = torch.where(seen, scale, 0.0), torch.where(seen, square, 0.0)
        return belief, scale, square

    def marginals(self, prior: Gaussian, num_steps: int) -> Gaussian:
        """Return the moments of `predictive` for every step alone, by the compiled program where it serves."""
        # Zeros that are missing, so that their errors are minus the forecasts.
        nothing = prior.mean.new_zeros(num_steps, *[1] * len(prior.batch_shape), 1)
        found = self.errors(prior, nothing, torch.zeros_like(nothing, dtype=torch.bool))
        if found is None:
            return super().marginals(prior, num_steps)
        _, variance, error = found
        return Gaussian(-error.unsqueeze(-1), variance[..., None, None])

    def errors(
        self, prior: Gaussian, values: Tensor, observed: Tensor | None
    ) -> tuple[Gaussian, Float[Tensor, "time *batch"], Float[Tensor, "time *batch"]] | None:
        """Return the belief after a series, the variance of each step's prediction, and the value less its mean.

        A missing value counts as it is given: where it is 0, the error is minus the mean of a forecast. None for series
        that the compiled program does not serve, see `whole`.
        """
        steps, active = len(values), self.active
        parameters = self.state_noise, self.emission_noise, self.damping, prior.mean, prior.cov
        batch = broadcast_shapes(
            *(prior.batch_shape, values.shape[1:-1], self.index.shape[1:-1], self.offset.shape[1:]),
            *(self.state_noise.shape[1:-1], self.emission_noise.shape[1:], self.damping.shape[:-1]),
            *(x.shape[1 : x.ndim - event] for x, event in ((observed, 1), (active, 0)) if x is not None),
        )
        count, states = batch.numel(), self.num_states
        numbers, masks = (values, self.offset, *parameters), (observed, active)
        # One call for all steps pays for a single series too.
        if not serves(count, (states,), *numbers, masks=masks, fewest=1):
            return None
        if self.index.is_floating_point() or is_transformed(self.index):  # the program reads whole numbers in memory
            return None
        flat = lambda x, event: flatten_batch(x[:steps], batch, event, 1)  # noqa: E731
        begun = None if active is None else flat(active, 0)
        seen = None if observed is None else flat(observed[..., 0], 0)
        noise, variance, index = flat(self.state_noise, 1), flat(self.emission_noise, 0), flat(self.index, 1)
        damping, mean, cov = (
            flat(x.unsqueeze(0), event) for x, event in ((self.damping, 1), (prior.mean, 1), (prior.cov, 2))
        )
        own = cov, noise, variance, damping, index, begun, seen  # all that a covariance depends on
        if count > 1 and all(x is None or x.shape[1] == 1 for x in own):
            return None
        table, (sources, seasons, damped) = _table(self.components)
        events = (states, states), (sources,), (), (damped,), (seasons,), (), (), (states,)
        if not all([fits(x, (steps, count), *event) for x, event in zip((*own, mean), events, strict=True)]):
            return None
        structure = innovation.Structure(table, seen, begun, index, self._basis(index, noise))
        residual = (flat(values[..., 0], 0) - flat(self.offset, 0)).expand(steps, count)
        own, error, mean, cov = innovation.filter_series(structure, residual, noise, variance, damping, mean, cov)
        failures = torch.zeros((), dtype=torch.int32, device=own.device).expand(steps, count)
        check_terms(failures, (own - error)[..., None, None], 1, 1, 0)  # a NaN in either marks the step
        belief = Gaussian(mean.reshape(*batch, -1), cov.reshape(*batch, *cov.shape[1:]))
        return belief, own.reshape(steps, *batch), error.reshape(steps, *batch)

    def _basis(self, index: Tensor, like: Tensor) -> Tensor:
        """Return the coefficients of all harmonics at every step, side by side."""
        seasons = [c for c in self.components if c.is_seasonal]
        waves = [c.basis(index[..., i], like) for i, c in enumerate(seasons) if isinstance(c, Harmonics)]
        return torch.cat(waves, -1) if waves else like.new_zeros(1, 1, 0)

    def block_shape(self, num_steps: int, num_series: int = 1) -> tuple[int, int]:
        """Twelve to twenty-four steps are about equally fast; blocks are made some megabytes at a time."""
        length = min(num_steps, 12)
        return length, max(1, 2**21 // (num_series * length * self.num_states))

    def blocks(self, first: int, length: int, count: int) -> Blocks:
        """Return all blocks at once, made by structure."""
        ndim = self._batch_ndim()

        def fold(x: Tensor, event_ndim: int) -> Tensor:
            """(time, *batch, event) to (block, *batch, step, event), constants broadcast over steps."""
            given = x.ndim - 1 - event_ndim
            x = x.reshape(x.shape[0], *[1] * (ndim - given), *x.shape[1:])
            if x.shape[0] == 1:
                x = x.unsqueeze(1).expand(1, length, *x.shape[1:])
            else:
                x = x[first : first + length * count].unflatten(0, (count, length))
            return x.movedim(1, 1 + ndim)

        noise, index = fold(self.state_noise, 1), fold(self.index, 1)
        moving = None
        if self.active is not None:
            here = self.active[first : first + length * count]
            if is_transformed(here) or not bool(here.all()):
                moving = fold(self.active, 0)
                noise = torch.where(moving.unsqueeze(-1), noise, 0.0)
        clock = Clock.of(length, moving, noise.device)
        damping = self.damping.reshape(*[1] * (ndim + 1 - self.damping.ndim), *self.damping.shape)
        parts, positions, used, season, damped = [], [], 0, 0, 0
        eye = torch.eye(length, dtype=noise.dtype, device=noise.device)
        earlier = eye * fold(self.emission_noise, 0).unsqueeze(-1)
        for component, where in zip(self.components, self.slices(), strict=True):
            phi = damping[..., damped] if component.is_damped else None
            here = index[..., season] if component.is_seasonal else None
            sources = len(component.noises)
            parts.append(component.block(noise[..., used : used + sources], phi, here, clock))
            positions.append(parts[-1].position + where.start)
            for factor, variance in parts[-1].noise:
                earlier = torch.addcmul(earlier, factor, variance.unsqueeze(-2))
            used, damped = used + sources, damped + component.is_damped
            season += component.is_seasonal
        diagonal = not any(isinstance(c, Trend) for c in self.components)
        return Blocks(
            matrix=dense_rows(positions, [p.matrix for p in parts], (length, self.num_states), ndim + 1),
            offset=fold(self.offset, 0),
            noise=torch.where(eye.cumsum(-2) > 0, earlier, earlier.mT).contiguous(),  # or bmm goes one by one
            cross=dense_rows(positions, [p.cross for p in parts], (length, self.num_states), ndim + 1),
            transition=(
                None
                if diagonal and not damped
                else beside([p.transition for p in parts], 1, ndim + 1).unsqueeze(-1)
                if diagonal
                else blocks_beside([p.transition for p in parts], self.components, ndim + 1)
            ),
            state_offset=None,
            state_noise=(
                beside([p.state_noise for p in parts], 1, ndim + 1).unsqueeze(-1)
                if diagonal
                else blocks_beside([p.state_noise for p in parts], self.components, ndim + 1)
            ),
        )


@functools.cache
def _table(components: tuple[Component, ...]) -> tuple[Tensor, tuple[int, int, int]]:
    """Return the `table` of `innovation.Structure`, and the numbers of sources, seasons and dampings."""
    rows, first, source, season, damped, column = [], 0, 0, 0, 0, 0
    for c in components:
        kind = next(kind for name, kind in _KINDS.items() if isinstance(c, name))
        rows.append([kind, first, c.size, source, season, damped if c.is_damped else -1, column])
        first, source, season = first + c.size, source + len(c.noises), season + c.is_seasonal
        damped, column = damped + c.is_damped, column + (c.size if isinstance(c, Harmonics) else 0)
    return torch.tensor(rows, device="cpu"), (source, season, damped)
