"""Why the forecast of a mixture of linear models changed: a bank's or a pool's, exactly, in the units of the data.

The mean of a mixture is a sum over components, each the weight times f(m, s), where f is the mean of a Gaussian behind
a transformation, and m is affine in the observations. Things change one after the other: covariates and observations
move m under the weights and deviations before; then weights, then deviations, then scales change. An observation's
share of f(m') - f(m) is its share of m' - m, so that shares add up to the change of the mean without a rest. It is the
Aumann-Shapley value of the observations, since f depends on them through their sum alone.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.news import News
from tsforecast.core.news import news as linear_news
from tsforecast.models import Batch, Belief, ExactInference, Series
from tsforecast.models.parts.bank_inference import BankInference
from tsforecast.models.parts.bank_members import stacked
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.pool_inference import PoolInference
from tsforecast.models.parts.units import near, scaled
from tsforecast.models.parts.volatility import NODES
from tsforecast.models.records import TimeSlice
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


def has_shares(inference: Any) -> bool:
    """Return whether a model is linear, or a mixture of such models."""
    if isinstance(inference, PoolInference):
        return all(has_shares(member) for member in inference.members)
    return isinstance(inference, ExactInference | BankInference)


def shares(inference: Any, was: Batch, now: Batch, first: Batch, alone: Batch) -> Shares:
    """Return why the forecast of one series differs between two sets of data.

    Args:
        inference: Of a model that `has_shares`, in float64.
        was: The series before, on the steps of both data.
        now: The series after, on the same steps, with covariates of its own.
        first: The series before, as its forecast sees it, which may begin earlier.
        alone: The series after, as its forecast sees it, which ends with that before.
    """
    if isinstance(inference, PoolInference):
        batches = (inference.each(batch) for batch in (was, now, first, alone))
        parts = [shares(own[0][0], *(batch for _, batch in own)) for own in zip(*batches, strict=True)]
        return _pooled(parts, inference.dynamics.log_weight.double().exp())
    moved = now | {name: was[name] for name in ("past_target", "past_observed", "past_is_pad")}
    units = inference.filter(was)[0]
    shifted, then = (_marginals(inference, batch, _begin(inference, batch, units)) for batch in (moved, now))
    start = _last(_marginals(inference, first, None), shifted.mean.shape[2])
    end = _marginals(inference, alone, None)
    weight, later = (x.log_weight.exp()[0, :, None, None] for x in (start, then))
    one, second, third = (_means(start, x.mean) for x in (start, shifted, then))
    last = _means(then, then.mean)
    others = {"covariates": (weight * (second - one)).sum(0)}
    if isinstance(inference, BankInference):
        others["weights"] = ((later - weight) * third).sum(0)
    others["variances"] = (later * (last - third)).sum(0)
    others["rescaled"] = end.expectation()[0] - (later * last).sum(0)
    slope = weight * _slope(start, shifted.mean, then.mean, second, third)
    cells = _cells(inference, slope, weight, was, now, units)
    return Shares((weight * one).sum(0), cells, others, end.expectation()[0])


def _begin(inference: ExactInference | BankInference, batch: Batch, units: Belief) -> Belief:
    """Return the belief before the first step, in given units."""
    if isinstance(inference, BankInference):
        past = near(inference.slice_of(batch, "past"), units.location, units.scale)
        begun = inference.members.beginning(past, Series.of(batch))
        bank = units.bank
        begun = dataclasses.replace(begun, location=bank.location, scale=bank.scale, size=bank.size)
        return dataclasses.replace(units, state=begun)
    model = inference.dynamics.linear(inference.slice_of(batch, "past"), Series.of(batch))
    return dataclasses.replace(units, state=model.prior, memory=None)


def _marginals(inference: ExactInference | BankInference, batch: Batch, begin: Belief | None) -> Marginals:
    return inference.marginals(inference.filter(batch, begin)[0], batch)


def _last(marginals: Marginals, steps: int) -> Marginals:
    """Return the distributions of the last steps."""
    return dataclasses.replace(
        marginals, mean=marginals.mean[:, :, -steps:], deviation=marginals.deviation[:, :, -steps:]
    )


def _means(like: Marginals, mean: Tensor) -> Float[Tensor, "component horizon target"]:
    """Return the means of all components in the units of the data, for other means in transformed units."""
    return dataclasses.replace(like, mean=mean).component_means()[0]


def _slope(like: Marginals, before: Tensor, after: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return (f(m') - f(m)) / (m' - m) of each component; where m hardly moves the derivative."""
    moved, small = (after - before)[0], _FLAT * like.deviation[0]
    near_zero = (moved.abs() <= small) | (small == 0)
    step = 1e-4 * like.deviation.clamp_min(1e-12)
    derivative = (_means(like, before + step) - _means(like, before - step)) / (2 * step[0])
    return torch.where(near_zero, derivative, (high - low) / torch.where(near_zero, 1.0, moved))


def _cells(
    inference: ExactInference | BankInference, slope: Tensor, weight: Tensor, was: Batch, now: Batch, units: Belief
) -> list[Cell]:
    """Return the observations that differ: the shares of all models together.

    Args:
        inference: Of the model.
        slope: Weight times slope of each component.
        weight: Of each component.
        was: The data before.
        now: The data after.
        units: In which models see the data.
    """
    cells: dict[tuple[str, int, int], list[Any]] = {}
    for number, (news, location, scale, name, size) in enumerate(_news(inference, was, now, units)):
        nodes = slice(number * NODES, (number + 1) * NODES) if isinstance(inference, BankInference) else slice(None)
        own, share = slope[nodes].sum(0), float(weight[nodes].sum())
        for kind in ("revised", "withdrawn", "new"):
            changes = getattr(news, kind)
            impact = changes.impact * scale * own
            held = [
                transformation_of(name).restore(x * scale[changes.target] + location[changes.target]) * size
                for x in (changes.expected, changes.value)
            ]
            for place, key in enumerate(zip(changes.time.tolist(), changes.target.tolist(), strict=True)):
                one = cells.setdefault((kind, *key), [torch.zeros_like(own), 0.0, 0.0, 0.0])
                one[0] = one[0] + impact[place]
                for k, x in enumerate((share, *(share * float(x[place]) for x in held)), 1):
                    one[k] += x
    return [Cell(*key, low / total, high / total, impact) for key, (impact, total, low, high) in sorted(cells.items())]


def _news(
    inference: ExactInference | BankInference, was: Batch, now: Batch, units: Belief
) -> Iterator[tuple[News, Tensor, Tensor, str, float]]:
    """Yield the news of each linear model, with its location and scale of each target, transformation and size."""
    horizon, series = now["known_future"].shape[1], Series.of(now)
    whole, pasts = inference.slice_of(now, "both"), [inference.slice_of(batch, "past") for batch in (was, now)]
    if isinstance(inference, ExactInference):
        location, scale = units.location, units.scale
        model = inference.dynamics.linear(whole, series)
        before, after = (_seen(past, location, scale) for past in pasts)
        news = linear_news(model.system, model.prior, before, after, horizon)
        yield news, location[0], scale[0], inference.units.transformation, 1.0
        return
    members, bank = inference.members, units.bank
    whole, *pasts = (members.wide(near(x, units.location, units.scale), bank.size) for x in (whole, *pasts))
    locations, scales = (stacked(x) for x in (bank.location, bank.scale))
    for member in inference.dynamics.structures:
        columns = [inference.dynamics.season_names.index(name) for name in member.season_names]
        for code, name in enumerate(inference.dynamics.transformations):
            location, scale = locations[code : code + 1], scales[code : code + 1]
            category = torch.cat([series.static_cat, series.static_cat.new_full((1, 1), code)], 1)
            own = _row(whole, code)
            own = dataclasses.replace(own, season_index=own.season_index[..., columns])
            model = member.linear(own, Series(series.index, category, series.static_real))
            before, after = (_seen(_row(past, code), location, scale) for past in pasts)
            news = linear_news(model.system, model.prior, before, after, horizon)
            yield news, location[0], scale[0], name, float(bank.size)


def _row(wide: TimeSlice, row: int) -> TimeSlice:
    """Return one series of a slice."""
    names = ("values", "observed", "time_feat", "dynamic_real")
    kept: dict[str, Any] = {name: getattr(wide, name)[:, row : row + 1] for name in names}
    kept["active"] = None if wide.active is None else wide.active[:, row : row + 1]
    index = wide.season_index
    return TimeSlice(**kept, season_index=index if index.shape[1] == 1 else index[:, row : row + 1])


def _seen(past: TimeSlice, location: Tensor, scale: Tensor) -> Float[Tensor, "time target"]:
    """Return the scaled values of one series, NaN where they are missing or too far."""
    values, observed = scaled(past, location, scale)
    return (values if observed is None else torch.where(observed, values, torch.nan))[:, 0]


def _pooled(parts: list[Shares], weights: Float[Tensor, " part"]) -> Shares:
    """Return the shares of a mixture with fixed weights."""
    cells: dict[tuple[str, int, int], list[tuple[float, Cell]]] = {}
    for part, weight in zip(parts, weights.tolist(), strict=True):
        for cell in part.cells:
            cells.setdefault((cell.kind, cell.time, cell.target), []).append((weight, cell))
    joined = []
    for key, terms in sorted(cells.items()):
        total = sum(weight for weight, _ in terms)
        held = [sum(w * getattr(cell, name) for w, cell in terms) / total for name in ("expected", "value")]
        impact = torch.stack([weight * cell.impact for weight, cell in terms]).sum(0)
        joined.append(Cell(*key, held[0], held[1], impact))
    names = dict.fromkeys(name for part in parts for name in part.others)
    total = lambda x: sum((w * one for w, one in zip(weights, x, strict=True)), torch.zeros_like(parts[0].before))  # noqa: E731
    others = {name: total([part.others.get(name, torch.zeros_like(part.before)) for part in parts]) for name in names}
    return Shares(total([p.before for p in parts]), joined, others, total([p.after for p in parts]))
