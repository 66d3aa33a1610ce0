"""Why the forecast of a mixture of linear models changed: a bank's or a pool's, exactly, in the units of the data.

The mean of a mixture is a sum over components, each the weight times f(m, s), where f is the mean of a Gaussian behind
a transformation, and m is affine in the observations. Things change one after the other: covariates and observations
move m under the weights and deviations before; then weights, then deviations, then scales change. An observation's
share of f(m') - f(m) is its share of m' - m, so that shares add up to the change of the mean without a rest. It is the
Aumann-Shapley value of the observations, since f depends on them through their sum alone. Effects of covariates that
were taken from targets are a part of f.
"""

import dataclasses
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.news import news as linear_news
from tsforecast.data.effects.taken import Taken
from tsforecast.forecasting.exact import widened
from tsforecast.models import Batch, Belief
from tsforecast.models.parts.inference import AbstractLinearMixture
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.transformations import transformation_of

_FLAT = 1e-7  # of a deviation: changes of the mean below are too small for a quotient


@dataclasses.dataclass(frozen=True)
class Cell:
    """An observation that differs, in the units of the data.

    Attributes:
        kind: "revised", "withdrawn" or "new".
        time: Its step.
        target: Its target.
        expected: The value before; for a new one the median given the revised data, averaged over the models.
        value: The value now; for a withdrawn one the median given the others, averaged likewise.
        impact: Its share of the change.
    """

    kind: str
    time: int
    target: int
    expected: float
    value: float
    impact: Float[Tensor, "horizon target"]


@dataclasses.dataclass(frozen=True)
class Shares:
    """The change of the mean forecast of a series by its causes.

    Attributes:
        before: The forecast from the data before.
        cells: Observations that differ.
        others: What "covariates", "weights", "variances" and "rescaled" did; `before`, these and all impacts of cells
            add up to `after`.
        after: The forecast from the data after.
    """

    before: Float[Tensor, "horizon target"]
    cells: list[Cell]
    others: dict[str, Float[Tensor, "horizon target"]]
    after: Float[Tensor, "horizon target"]


def shares(linear: AbstractLinearMixture[Any], pairs: tuple[Batch, Batch, Batch], first: Batch, alone: Batch) -> Shares:
    """Return why the forecast of one series differs between two sets of data.

    Args:
        linear: Of a model in float64.
        pairs: The series before, the same with covariates after, and the series after, on the steps of both data.
        first: The series before, as its forecast sees it, which may begin earlier.
        alone: The series after, as its forecast sees it, which ends with that before.
    """
    was, between, now = pairs
    shifted, then = (_marginals(linear, batch, linear.begin(batch, was)) for batch in (between, now))
    start = _last(_marginals(linear, first, None), shifted.mean.shape[2])
    end, means = _marginals(linear, alone, None), _Means.of(now)
    weight, later = (x.log_weight.softmax(1)[0, :, None, None] for x in (start, then))
    one, second, third = _Means.of(was)(start), means(start, shifted.mean), means(start, then.mean)
    last, final = means(then), (end.log_weight.softmax(1)[0, :, None, None] * _Means.of(alone)(end)).sum(0)
    others = {"covariates": (weight * (second - one)).sum(0)}
    if not torch.equal(weight, later):
        others["weights"] = ((later - weight) * third).sum(0)
    others["variances"] = (later * (last - third)).sum(0)
    others["rescaled"] = final - (later * last).sum(0)
    slope = weight * _slope(means, start, shifted.mean, then.mean, second, third)
    return Shares((weight * one).sum(0), _cells(linear, slope, weight, pairs), others, final)


def _marginals(linear: AbstractLinearMixture[Any], batch: Batch, begin: Belief | None) -> Marginals:
    marginals = linear.marginals(linear.filter(batch, begin)[0], batch)
    assert marginals is not None
    return widened(marginals, Taken.of_batch(batch, "future"), np.zeros((1, 1), np.int64))


def _last(marginals: Marginals, steps: int) -> Marginals:
    """Return the distributions of the last steps."""
    return dataclasses.replace(
        marginals, mean=marginals.mean[:, :, -steps:], deviation=marginals.deviation[:, :, -steps:]
    )


@dataclasses.dataclass(frozen=True)
class _Means:
    """Means of the components of one series in the units of the data, with effects of covariates.

    Attributes:
        taken: These effects; None where none was taken.
    """

    taken: Taken | None

    @classmethod
    def of(cls, batch: Batch) -> "_Means":
        """Return those of the future of a batch."""
        return cls(Taken.of_batch(batch, "future"))

    def __call__(self, like: Marginals, mean: Tensor | None = None) -> Float[Tensor, "component horizon target"]:
        """Return the means, for other means in transformed units where they are given."""
        moved, taken = like if mean is None else dataclasses.replace(like, mean=mean), self.taken
        if taken is None:
            return moved.component_means()[0]
        return moved.means_of(lambda x: torch.from_numpy(taken.restored(x.numpy())))[0]


def _slope(means: _Means, like: Marginals, before: Tensor, after: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return (f(m') - f(m)) / (m' - m) of each component; where m hardly moves the derivative."""
    moved, small = (after - before)[0], _FLAT * like.deviation[0]
    near_zero = (moved.abs() <= small) | (small == 0)
    step = 1e-4 * like.deviation.clamp_min(1e-12)
    derivative = (means(like, before + step) - means(like, before - step)) / (2 * step[0])
    return torch.where(near_zero, derivative, (high - low) / torch.where(near_zero, 1.0, moved))


def _cells(
    linear: AbstractLinearMixture[Any], slope: Tensor, weight: Tensor, pairs: tuple[Batch, Batch, Batch]
) -> list[Cell]:
    """Return the observations that differ: the shares of all models together.

    Args:
        linear: Of the model.
        slope: Weight times slope of each component.
        weight: Of each component.
        pairs: The data, see `shares`.
    """
    was, between, now = pairs
    cells: dict[tuple[str, int, int], list[Any]] = {}
    used, steps, horizon = 0, was["past_target"].shape[1], now["known_future"].shape[1]
    members = (linear.members_of(batch, "both", linear.begin(batch, was), apart=True) for batch in (between, now))
    taken = Taken.of_batch(now, "past")
    for old, new in zip(*members, strict=True):
        nodes, used = slice(used, used + new.components), used + new.components
        own, share = slope[nodes].sum(0), float(weight[nodes].sum())
        before, after = (one.seen[:steps, 0] for one in (old, new))
        news = linear_news(new.model.system, new.model.prior, before, after, horizon)
        location, scale, restore = new.location[0], new.scale[0], transformation_of(*new.transformations).restore
        for kind in ("revised", "withdrawn", "new"):
            changes = getattr(news, kind)
            impact = changes.impact * scale * own
            held = [
                restore(x * scale[changes.target] + location[changes.target]) * new.size[0]
                for x in (changes.expected, changes.value)
            ]
            held = held if taken is None else [_restored(taken, x, changes.time) for x in held]
            for place, key in enumerate(zip(changes.time.tolist(), changes.target.tolist(), strict=True)):
                one = cells.setdefault((kind, *key), [torch.zeros_like(own), 0.0, 0.0, 0.0])
                one[0] = one[0] + impact[place]
                for k, x in enumerate((share, *(share * float(x[place]) for x in held)), 1):
                    one[k] += x
    return [Cell(*key, low / total, high / total, impact) for key, (impact, total, low, high) in sorted(cells.items())]


def _restored(taken: Taken, values: Tensor, time: Tensor) -> Tensor:
    """Return values of some steps of one series with their effects of covariates."""
    own = dataclasses.replace(taken, effect=taken.effect[:, time.numpy()])
    return torch.from_numpy(own.restored(values.numpy()[None, :, None]))[0, :, 0]
