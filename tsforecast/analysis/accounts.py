"""Accounts of a trained model on every step of a series: before the step is seen, and with hindsight."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.analysis.residuals import ERROR, mean_squares, num_states, parts_of_state, shift_of
from tsforecast.core.disturbances import SEGMENT, disturbances
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.outliers import ErrorWatch, outliers
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.link import moved, restored
from tsforecast.data.windows import collate, cut, since_first_value
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import Belief
from tsforecast.models.parts.inference import AbstractLinearMixture
from tsforecast.models.parts.marginals import Marginals

_HELD = 30_000_000  # numbers of the covariances of a batch, which a smoother keeps
_PATHS = 200  # of the next step, where its distribution has no closed form


@dataclasses.dataclass(frozen=True, eq=False)
class Account:
    """The predictions and residuals of a model at every step of a series.

    Attributes:
        item_id: Name of the series; None where it has none.
        start: Its first period.
        values: Its values, NaN where missing.
        begin: First step with a prediction. It is the first with a value; in models that predict from belief to belief
            it is the middle of the first part.
        predicted: Distributions of the steps from `begin` on, each given those before; a row each.
        others: Likewise given all other steps; None of models without a smoother of this kind.
        exponents: Exponents of the powers of two that divide the values behind these distributions.
        info: Of its entry, see `tsforecast.data.calendar.stamps`.
        shocks: Auxiliary residuals of shocks to parts of the state, see `Disturbances`, from `begin` on; by part. Of
            mixtures roots of their mean squares, and under "error" those of observations.
        changed: Steps at which many outliers in a row show that the series has changed, see `tsforecast.core.outliers`.
        effect: Of covariates, which the model does not see, at every step; None where it has been given them.
        link: Of this effect, see `Effects.adjusted`.
    """

    item_id: str | None
    start: pd.Period
    values: Float[np.ndarray, "time target"]
    begin: int
    predicted: Marginals
    others: Marginals | None
    exponents: NDArray[np.int64]
    info: Mapping[str, Any] | None
    shocks: dict[str, Float[np.ndarray, " step"]]
    changed: Bool[np.ndarray, " time"]
    effect: Float[np.ndarray, " time"] | None = None
    link: Float[np.ndarray, "3"] | None = None

    def errors(self, given_all: bool = False, more: float = 0.0) -> Float[np.ndarray, "time target"]:
        """Return standardised errors: normal scores of the values, NaN where one is missing or not predicted.

        Args:
            given_all: Whether the distribution of a step is given all others.
            more: A number that is added to the values.
        """
        marginals = self.others if given_all else self.predicted
        assert marginals is not None
        scores = np.full(self.values.shape, np.nan)
        seen = self.values[self.begin :] + more
        if self.effect is not None and self.link is not None:
            seen = moved(seen, -self.effect[self.begin :, None], *self.link[:2])
        known = np.ldexp(seen, -self.exponents)
        filled = torch.from_numpy(np.nan_to_num(known)).unsqueeze(1)
        scores[self.begin :] = np.where(np.isnan(known), np.nan, marginals.normal_score(filled).squeeze(1).numpy())
        return scores

    def residuals(self, target: int) -> Float[np.ndarray, " time"] | None:
        """Return the errors of a target given all other steps, used to name kinds; None where a model has none."""
        if self.others is not None:
            return self.errors(given_all=True)[:, target]
        if ERROR not in self.shocks:
            return None
        return np.where(np.isnan(self.values[:, target]), np.nan, np.append(np.zeros(self.begin), self.shocks[ERROR]))

    def quantiles(self, scores: Sequence[float], given_all: bool = False) -> Float[np.ndarray, "score time target"]:
        """Return the values with the given standardised errors, NaN where nothing is predicted."""
        marginals = self.others if given_all else self.predicted
        assert marginals is not None
        levels = torch.special.ndtr(torch.tensor(scores, dtype=torch.float64)).clamp(1e-300, 1 - 1e-16)
        quantiles = np.full((len(scores), *self.values.shape), np.nan)
        quantiles[:, self.begin :] = np.ldexp(marginals.quantile(levels).squeeze(2).numpy(), self.exponents)
        if self.effect is not None and self.link is not None:
            return restored(quantiles, self.effect[:, None], self.link)
        return quantiles


def accounts(
    predictor: StateSpacePredictor, entries: Sequence[dict[str, Any]], learn: Sequence[int]
) -> Iterator[Account]:
    """Yield the account of a predictor's model on every step of some series, in order.

    Scales are those of the first part of each series, so that no step is judged by later ones. Outliers count as
    missing for the steps after them, see `tsforecast.core.outliers`: a spike moves no prediction.

    Args:
        predictor: Of any model. Predictions of linear systems are exact. Banks and pools give exact mixtures, and
            models with particles mixtures around sample paths of the next step.
        entries: GluonTS data entries, whose covariates reach over the target.
        learn: Steps of this first part of each.

    Raises:
        ValueError: If an entry is not as expected; the message names the series.
    """
    histories = predictor.histories()
    waiting: dict[tuple[int, int], list[int]] = {}
    windows: list[dict[str, Any]] = []
    effects: dict[int, dict[str, Any]] = {}
    for number, (entry, first) in enumerate(zip(entries, learn, strict=True)):
        histories.check(entry)
        (prepared,) = histories.transform(iter([entry]), is_train=True)
        effects[number] = {name: prepared[name] for name in ("effect", "link") if name in prepared}
        windows.append(since_first_value(cut(prepared, len(prepared["target"]), None, 0)))
        length = len(windows[-1]["past_target"])
        waiting.setdefault((length, first - len(prepared["target"]) + length), []).append(number)
    by_place: dict[int, Account] = {}
    for (length, first), places in waiting.items():
        size = _together(histories, windows[places[0]], length)
        for here in (places[k : k + size] for k in range(0, len(places), size)):
            batch = partial(_batch, windows=[windows[k] for k in here], learn=max(first, 1))
            group = histories.exactly(batch, len(here), "series")
            for k, one in zip(here, group, strict=True):
                by_place[k] = _account(entries[k], **one, **effects[k])
    yield from (by_place[k] for k in range(len(entries)))


def is_one_system(predictor: StateSpacePredictor) -> bool:
    """Return True for one linear system: its accounts have distributions given all other steps."""
    linear = predictor.prediction_net.inference.linear
    return linear is not None and linear.is_single


def _account(entry: dict[str, Any], *, predicted: Marginals, changed: NDArray[np.bool_], **found: Any) -> Account:
    """Return the account of an entry, given what the model says from the first prediction on."""
    values = np.atleast_2d(as_numbers(entry["target"]).astype(np.float64)).T
    begin = len(values) - len(predicted.mean)
    changed = np.append(np.zeros(begin, bool), changed)
    own = {"item_id": entry.get("item_id"), "start": entry["start"], "info": entry.get("info")}
    return Account(values=values, begin=begin, predicted=predicted, changed=changed, **own, **found)


def _together(histories: Histories, window: dict[str, Any], length: int) -> int:
    """Return the number of series to take at a time."""
    linear = histories.net.inference.linear
    with torch.no_grad():
        size = 1 if linear is None else num_states(linear, collate([window], histories.device))
    return max(1, min(histories.batch_size, _HELD // (3 * min(length, SEGMENT) * size**2)))


@torch.no_grad()
def _batch(histories: Histories, windows: list[dict[str, Any]], learn: int) -> list[dict[str, Any]]:
    """Return parts of the account of each of the series of a batch by name; all are of one length."""
    exponents = histories.exponents(windows)
    batch = histories.collated(windows, exponents)
    linear = histories.net.inference.linear
    if linear is not None and linear.is_single:
        return _exact(linear, batch, learn, exponents)
    begin = max(learn // 2, 1)  # the belief there has a scale
    rows, changed = _by_step(histories, batch, begin)
    one_target = histories.net.data.num_targets == 1
    squares = mean_squares(linear, batch, learn) if linear is not None and one_target else {}
    roots = {name: x[begin:].sqrt().double().cpu().numpy() for name, x in squares.items()}
    return [
        {"predicted": one, "others": None, "exponents": exponents[series], "changed": changed[series]}
        | {"shocks": {name: x[:, series] for name, x in roots.items()}}
        for series, one in enumerate(rows)
    ]


def _exact(
    linear: AbstractLinearMixture[Any], batch: dict[str, Any], learn: int, exponents: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Return parts of the account of a linear system, by its filter and its smoother."""
    begun = linear.begin(batch, _steps(batch, 0, learn))
    (member,) = linear.members_of(batch, "past", begun)
    model, (location, scale), (values, observed) = member.model, (member.location, member.scale), member.data
    structure, units = member.structure, linear.units
    parts, again = parts_of_state(structure, model.prior.mean.shape[-1]), shift_of(structure, model.prior.cov)
    outlier, changed = outliers(model.system, model.prior, values, observed, again)
    seen = ~outlier if observed is None else observed & ~outlier
    ours = disturbances(model.system, model.prior, values, None if bool(seen.all()) else seen, (changed, again))
    shocks = ours.shocks.abs().double().cpu().numpy()
    per_series = []
    for series, powers in enumerate(exponents):
        own: dict[str, Any] = {"exponents": powers, "changed": (changed[:, series] > 0).cpu().numpy()}
        own["shocks"] = {name: shocks[:, series, places].max(-1) for name, places in parts.items()}
        for name in ("predicted", "others"):
            mean, variance = getattr(ours, name)
            mean, deviation = mean[:, series].double(), variance[:, series].double().clamp_min(0).sqrt()
            mean = mean * scale[series].double() + location[series].double()
            deviation = deviation * scale[series].double()
            both = (mean.unsqueeze(1).cpu(), deviation.unsqueeze(1).cpu())
            own[name] = Marginals.single(*both, units.transformation, units.clip)
        per_series.append(own)
    return per_series


def _by_step(
    histories: Histories, batch: dict[str, Any], first: int
) -> tuple[list[Marginals], Bool[np.ndarray, "series step"]]:
    """Return distributions of the steps of each series from `first` on, and the steps where a series has changed.

    Beliefs move on step by step.
    """
    inference, length = histories.net.inference, batch["past_target"].shape[1]
    belief: Belief = inference.filter(_steps(batch, 0, first))[0]
    watch = ErrorWatch.begin(batch["past_target"][:, 0].double().cpu())
    steps: list[Marginals] = []
    changed: list[Tensor] = []
    for time in range(first, length):
        here = _steps(batch, time, time + 1)
        steps.append(_ahead(histories, belief, _as_future(here)))
        observed = here["past_observed"].bool()
        errors = steps[-1].normal_score(torch.where(observed, here["past_target"], 0.0).double().cpu())[:, 0]
        watch, outlier = watch.step(errors, observed[:, 0].cpu())
        changed.append(watch.has_changed)
        observed = observed & ~outlier.unsqueeze(1).to(observed.device)
        belief = inference.filter({**here, "past_observed": observed}, belief)[0]
    count = batch["past_target"].shape[0]
    rows = [_joined([one.of(slice(k, k + 1)) for one in steps]) for k in range(count)]
    return rows, torch.stack(changed, 1).numpy()


def _ahead(histories: Histories, belief: Belief, future: dict[str, Any]) -> Marginals:
    """Return the distribution of the next step: in closed form, or around sample paths."""
    mixture = histories.net.inference.marginals(belief, future)
    if mixture is not None:
        return map_tensors(lambda x: x.cpu(), mixture)
    paths = histories.net.forecast(belief, future, _PATHS).double().cpu()  # (series, path, 1, target)
    width = 1.06 * paths.std(1, keepdim=True) * _PATHS**-0.2  # a kernel of Silverman's width around each
    series, targets = len(paths), paths.shape[-1]
    weight = paths.new_full((series, _PATHS), -float(np.log(_PATHS)))
    ones = paths.new_ones(series, _PATHS, targets)
    deviation = width.clamp_min(1e-9).expand_as(paths)
    return Marginals(weight, paths, deviation, ones, ("none",) * _PATHS, histories.net.units.clip)


def _joined(steps: list[Marginals]) -> Marginals:
    """Return distributions of one series and step each as rows."""
    fields = ("log_weight", "mean", "deviation", "size")
    return dataclasses.replace(steps[0], **{name: torch.cat([getattr(one, name) for one in steps]) for name in fields})


def _steps(batch: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    """Return a batch with some of the steps of its past alone."""
    return {name: x[:, first:end] if name.startswith("past_") else x for name, x in batch.items()}


def _as_future(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch with its past as the future, and no known values."""
    names = ("time_feat", "season_index", "dynamic_real")
    free: Tensor = torch.full_like(batch["past_target"], torch.nan)
    return {**batch, **{f"future_{name}": batch[f"past_{name}"] for name in names}, "known_future": free}
