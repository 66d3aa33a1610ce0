"""Why a forecast changed: the weight and the share of every observation that is new, revised or withdrawn.

The mean of a linear-Gaussian forecast is affine in the observations. So its change between two sets of data is a sum
over the cells in which they differ, without a rest: the weight of the cell times its unexpected part (Banbura and
Modugno 2014, "Maximum likelihood estimation of factor models on datasets with arbitrary pattern of missing data",
section 2.3). Weights are the smoother's answers to unit impulses.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core import kalman
from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import matvec
from tsforecast.core.system import AbstractLinearSystem

# Smoothed at a time: memory grows with it.
_TOGETHER = 128  # impulses


@dataclasses.dataclass(frozen=True)
class Changes:
    """The cells with different values in two sets of data, and the effect of each on the forecast.

    Attributes:
        time: Step of each cell.
        target: Target of each cell.
        expected: The value before: the one that is revised or withdrawn, or the mean of a new one given the earlier
            data.
        value: The value now, or the mean of a withdrawn one given the others.
        weight: Derivative of the forecast by the value of the cell.
    """

    time: Int[Tensor, " cell"]
    target: Int[Tensor, " cell"]
    expected: Float[Tensor, " cell"]
    value: Float[Tensor, " cell"]
    weight: Float[Tensor, "cell horizon target"]

    @property
    def impact(self) -> Float[Tensor, "cell horizon target"]:
        """Return the change of the forecast by each cell: its weight times its unexpected part."""
        return self.weight * (self.value - self.expected)[:, None, None]


@dataclasses.dataclass(frozen=True)
class News:
    """The change of a forecast, in the order of the changes of the data.

    Attributes:
        before: The forecast from the data before, (horizon, target).
        revised: Cells that both data have, with other values.
        withdrawn: Cells that only the data before have.
        new: Cells that only the data after have. They are seen last: their expected value is the mean given the revised
            data.
        after: The forecast from the data after; `before` and all impacts add up to it.
    """

    before: Float[Tensor, "horizon target"]
    revised: Changes
    withdrawn: Changes
    new: Changes
    after: Float[Tensor, "horizon target"]


def news(
    system: AbstractLinearSystem,
    prior: Gaussian,
    before: Float[Tensor, "time target"],
    after: Float[Tensor, "time target"],
    horizon: int,
) -> News:
    """Return why the forecast of one series differs between two sets of data.

    Args:
        system: Of `time` steps and of the `horizon` behind them. A batch dimension of series has size 1.
        prior: Over the state before the first step, of as many batch dimensions.
        before: Observations, NaN where missing.
        after: Likewise, of the same steps.
        horizon: Steps that are forecast.

    Raises:
        NotPositiveDefiniteError: As the Kalman filter does.
    """
    earlier, later = ~torch.isnan(before), ~torch.isnan(after)
    common = earlier & later
    changed = (earlier != later) | (common & (before != after))
    at = torch.nonzero(changed.any(-1))
    first = int(at[0, 0]) if len(at) else len(before)  # without a change all steps are the same
    tail = _Tail.of(system, prior, before, horizon, first)
    # Old data, then without what was withdrawn, then with what is new.
    start, whole, end = tail.means(before), tail.means(torch.where(common, after, torch.nan)), tail.means(after)
    cells = {"revised": common & (before != after), "withdrawn": earlier & ~later, "new": later & ~earlier}
    held = {
        "revised": (before, after, earlier),
        "withdrawn": (before, whole[: len(before)], earlier),
        "new": (whole[: len(before)], after, later),
    }
    changes = {name: tail.changes(cells[name], *held[name]) for name in cells}
    return News(start[len(before) :], changes["revised"], changes["withdrawn"], changes["new"], end[len(before) :])


@dataclasses.dataclass(frozen=True)
class _Tail:
    """The steps from the first change on: before it both data are the same, and are filtered once.

    Attributes:
        system: Of all steps.
        belief: Over the state before the step `first`.
        first: First step of the tail.
        num_steps: Number of all steps before the horizon.
        horizon: Steps that are forecast.
    """

    system: AbstractLinearSystem
    belief: Gaussian
    first: int
    num_steps: int
    horizon: int

    @classmethod
    def of(cls, system: AbstractLinearSystem, prior: Gaussian, data: Tensor, horizon: int, first: int) -> "_Tail":
        belief = prior
        if first:
            lead = [1] * (prior.mean.ndim - 1)
            values = data[:first].reshape(first, *lead, -1)
            observed = ~torch.isnan(values)
            belief, _ = system.posterior(prior, torch.where(observed, values, 0.0), observed)
        return cls(system, belief, first, len(data), horizon)

    def means(self, data: Float[Tensor, "time target"]) -> Float[Tensor, "all target"]:
        """Return the mean of every step given the data; zeros before the tail."""
        smoothed = self._smoothed(torch.nan_to_num(data)[None], ~torch.isnan(data))[0]
        return torch.cat([smoothed.new_zeros(self.first, smoothed.shape[-1]), smoothed])

    def changes(self, cells: Bool[Tensor, "time target"], expected: Tensor, value: Tensor, observed: Tensor) -> Changes:
        """Return the effects of cells on the forecast.

        Args:
            cells: Some.
            expected: Values of all cells before.
            value: Values of all cells now.
            observed: The cells that are seen beside each of them.
        """
        time, target = torch.nonzero(cells, as_tuple=True)
        silent = torch.zeros_like(expected)
        weights = [expected.new_zeros(0, self.horizon, cells.shape[-1])]  # there may be no change
        for part in range(0, len(time), _TOGETHER):
            where = slice(part, part + _TOGETHER)
            impulses = silent.repeat(1 + len(time[where]), 1, 1)
            # The first data are all 0: the answer to them is the constant part.
            impulses[torch.arange(1, len(impulses)), time[where], target[where]] = 1.0
            answers = self._smoothed(impulses, observed)[:, -self.horizon :]
            weights.append(answers[1:] - answers[:1])
        return Changes(time, target, expected[time, target], value[time, target], torch.cat(weights))

    def _smoothed(
        self, values: Float[Tensor, "data time target"], observed: Bool[Tensor, "time target"]
    ) -> Float[Tensor, "data tail target"]:
        """Return the mean of every step of the tail given data that have values in the same cells."""
        lead = [1] * (self.belief.mean.ndim - 1)
        pad = (0, 0, 0, self.horizon)
        seen = torch.nn.functional.pad(observed[self.first :], pad)
        padded = torch.nn.functional.pad(values[:, self.first :], pad).transpose(0, 1)
        rows = padded.reshape(*padded.shape[:2], *lead, padded.shape[-1])
        mask = seen.reshape(len(seen), 1, *lead, seen.shape[-1])
        # The mask is shared, so gains are computed once for all impulses.
        states = kalman.smooth(self.system, self.belief, rows, mask, self.first).states.mean
        at = self.system.by_step()
        steps = [at(self.first + time)[1].dense() for time in range(len(rows))]
        means = [matvec(step.matrix, state) + step.offset for step, state in zip(steps, states, strict=True)]
        return torch.stack(means).reshape(len(rows), values.shape[0], -1).transpose(0, 1)
