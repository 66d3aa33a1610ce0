"""Why a forecast changed: the share of every new, revised or withdrawn observation, exact for linear models."""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.analysis.mixture_news import Cell, shares
from tsforecast.analysis.news_data import Entries, batch_alone, batch_of, by_item, on_common_steps, step_of
from tsforecast.core.news import Changes
from tsforecast.core.news import news as linear_news
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.predictor import StateSpacePredictor, with_prediction_length
from tsforecast.models.parts.inference import AbstractLinearMixture
from tsforecast.wording import listed

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most
_COLUMNS = (
    "item_id", "timestamp", "target", "kind", "source", "source_target", "expected", "value", "weight", "impact",
    "before", "after",
)  # fmt: skip


def news(
    predictor: StateSpacePredictor, before: Entries, after: Entries, columns: Columns | Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return why forecasts changed between two sets of data, with a row for each forecast step and each cause.

    The mean of a linear-Gaussian forecast is affine in the observations, so that its change is a sum over those that
    differ; see `tsforecast.core.news`. The steps compared are those that both forecasts cover. All is computed in
    float64 and in transformed units: under a transformation such as log1p, on the scale of the logarithm, and never
    clipped. The impacts of a step add up to `after` less `before`. Of a bank or a pool of such models they do so in the
    units of the data, clipped as forecasts are: see `tsforecast.analysis.mixture_news`. So do they behind curves of
    covariates, see `tsforecast.data.effects`: observations count without these effects, and what changed covariates
    do in the past and the future is one row.

    | kind | what it is | expected | value |
    | --- | --- | --- | --- |
    | revised | both data have a value, which differs | old value | new value |
    | withdrawn | the data after lack the value | old value | its mean given the others |
    | new | the data before lack the value | its mean given the revised data | value |
    | covariates | covariates known in advance were changed | | |
    | weights | the data after give the models of a bank other weights | | |
    | variances | they change deviations, on which the mean of a transformed forecast depends | | |
    | rescaled | location and scale of the series were found anew, or its first step | | |

    Args:
        predictor: Of an issm, gls or deepstate, or of a bank or pool of such models.
        before: Entries, or a DataFrame in long format, as `StateSpacePredictor.predict` takes them.
        after: Likewise, of the same series; they end at the same step or later.
        columns: What the columns of frames are; None for those of the training.

    Returns:
        `item_id` and `timestamp`, or the columns of a frame for them, and `target` (its number) of a forecast step;
        `kind`; `source` and `source_target` of the observation; `expected`, `value`, `weight`, and `impact`, the weight
        times value less expected; `before` and `after`, the means of both forecasts of the step. In a mixture no
        observation has one weight, which is NaN.

    Raises:
        ValueError: If the model is not linear, no series is in both data, one ends earlier than before, or the
            forecasts have no step in common; the message names the series.
    """
    linear = _linear(predictor)
    earlier, _ = by_item(predictor, before, "before", columns)
    later, read = by_item(predictor, after, "after", columns)
    common = [item for item in later if item in earlier]
    if not common:
        raise ValueError(
            f"expected series that are in the data before and after, got {listed(earlier, _NAMED)} before and "
            f"{listed(later, _NAMED)} after"
        )
    if alone := sorted({*earlier} ^ {*later}):
        log.warning("%d series are in one of both data alone, and left out: %s", len(alone), listed(alone, _NAMED))
    with torch.no_grad():
        table = pd.concat([_Pair.of(predictor, linear, earlier[item], later[item]).frame() for item in common])
    table = table.reindex(columns=[*_COLUMNS]).reset_index(drop=True)
    return table if read is None else as_read(table, read, cells_of(later.values()))


@dataclass(frozen=True)
class _Pair:
    """A series before and after.

    Attributes:
        predictor: Whose horizon is that of the steps compared.
        linear: Inference in float64.
        before: The series before, on the steps of both; missing steps at its end.
        between: The same with the covariates after.
        after: The series after, on the same steps, with covariates of its own.
        earlier: The series before, as its forecast sees it.
        alone: The series after, likewise.
        ahead: Steps by which the series after ends later.
    """

    predictor: StateSpacePredictor
    linear: AbstractLinearMixture[Any]
    before: dict[str, Any]
    between: dict[str, Any]
    after: dict[str, Any]
    earlier: dict[str, Any]
    alone: dict[str, Any]
    ahead: int

    @classmethod
    def of(
        cls,
        predictor: StateSpacePredictor,
        linear: AbstractLinearMixture[Any],
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> "_Pair":
        histories = predictor.histories()
        for entry in (before, after):
            histories.check(entry, predictor.prediction_length)
        one, two, three, ahead = on_common_steps(predictor, before, after)
        short = with_prediction_length(predictor, predictor.prediction_length - ahead)
        return cls(short, linear, one, two, three, before, after, ahead)

    @property
    def steps(self) -> int:
        """Return the number of steps up to the forecast."""
        return self.before["target"].shape[-1]

    def frame(self) -> pd.DataFrame:
        """Return all causes of all steps."""
        was, between, now = (batch_of(self.predictor, one) for one in (self.before, self.between, self.after))
        if not self.linear.is_single or "effect" in self.before:
            longer = with_prediction_length(self.predictor, self.predictor.prediction_length + self.ahead)
            alone = batch_alone(longer, self.earlier), batch_alone(self.predictor, self.alone)
            change = shares(self.linear, (was, between, now), *alone)
            parts = [self._row(cell) for cell in change.cells]
            parts += [self._rest(kind, impact) for kind, impact in change.others.items()]
            return self._framed(parts, change.before, change.after)
        # Data before under covariates before and after.
        (old,), (new,) = (self.linear.members_of(batch, "both", self.linear.begin(batch, was)) for batch in (was, now))
        values, location, scale = [one.seen[: self.steps, 0] for one in (old, new)], old.location[0], old.scale[0]
        start, change = (
            linear_news(one.model.system, one.model.prior, values[0], last, self.predictor.prediction_length)
            for one, last in ((old, values[0]), (new, values[1]))
        )
        # Data after in the units before, and in their own.
        start, moved, end = (x * scale + location for x in (start.before, change.before, change.after))
        final = self._own_forecast()
        parts = [self._rows(getattr(change, kind), kind, location, scale) for kind in ("revised", "withdrawn", "new")]
        parts += [self._rest("covariates", moved - start), self._rest("rescaled", final - end)]
        return self._framed(parts, start, final)

    def _framed(self, parts: list[pd.DataFrame], start: Tensor, final: Tensor) -> pd.DataFrame:
        """Return all rows, with their common columns."""
        frame = pd.concat([part for part in parts if len(part)] or parts[:1])
        stamps = self._stamps(self.steps, self.predictor.prediction_length)
        step, target = frame.pop("step").to_numpy(np.int64), frame["target"].to_numpy(np.int64)
        forecasts = {"before": start.numpy()[step, target], "after": final.numpy()[step, target]}
        frame = frame.assign(item_id=str(self.alone.get("item_id")), timestamp=stamps[step], **forecasts)
        return frame.sort_values(["timestamp", "target"], kind="stable")

    def _stamps(self, first: int, steps: int) -> NDArray[Any]:
        """Return the time stamps of steps from a step of the window on."""
        return stamps_of(step_of(self.before, first), steps, self.alone.get("info"))

    def _own_forecast(self) -> Tensor:
        """Return the forecast from the data after as `predict` makes it, (horizon, target)."""
        batch = batch_alone(self.predictor, self.alone)
        marginals = self.linear.marginals(self.linear.filter(batch)[0], batch)
        assert marginals is not None
        return marginals.mean[0, 0]

    def _row(self, cell: Cell) -> pd.DataFrame:
        """Return a row for each step of an observation, in the units of the data."""
        step, target = (x.ravel() for x in np.indices(cell.impact.shape))
        known = {"kind": cell.kind, "source_target": float(cell.target), "expected": cell.expected, "value": cell.value}
        rows = {"step": step, "target": target, **known, "source": self._stamps(cell.time, 1)[0]}
        return pd.DataFrame(rows | {"weight": np.nan, "impact": cell.impact.numpy().ravel()})

    def _rows(self, changes: Changes, kind: str, location: Tensor, scale: Tensor) -> pd.DataFrame:
        """Return a row for each cell and step, in transformed units."""
        count, horizon, targets = changes.weight.shape
        cell, step, target = (x.ravel() for x in np.indices((count, horizon, targets)))
        time, source = changes.time.numpy(), changes.target.numpy()
        expected, value = (
            (x * scale[changes.target] + location[changes.target]).numpy() for x in (changes.expected, changes.value)
        )
        # The weight is that of scaled units; targets have units of their own.
        weight = (changes.weight * scale / scale[changes.target][:, None, None]).numpy()
        stamps = self._stamps(0, self.steps)
        return pd.DataFrame(
            {
                "step": step,
                "target": target,
                "kind": kind,
                "source": stamps[time][cell],
                "source_target": source[cell].astype(float),
                "expected": expected[cell],
                "value": value[cell],
                "weight": weight.ravel(),
                "impact": (changes.impact * scale).numpy().ravel(),
            }
        )

    def _rest(self, kind: str, impact: Tensor) -> pd.DataFrame:
        """Return a row for each step of an impact without an observation; none where nothing changed."""
        names = [name for name in (COVARIATES, "effect") if name in self.after]
        if kind == "covariates" and all(np.array_equal(self.before[name], self.after[name]) for name in names):
            return pd.DataFrame()
        step, target = (x.ravel() for x in np.indices(impact.shape))
        nothing = {name: np.nan for name in ("source_target", "expected", "value", "weight")}
        rows = {"step": step, "target": target, "kind": kind, "source": pd.NaT, **nothing}
        return pd.DataFrame(rows | {"impact": impact.numpy().ravel()})


def _linear(predictor: StateSpacePredictor) -> AbstractLinearMixture[Any]:
    """Return the inference of the model in float64.

    Raises:
        ValueError: If it is neither linear in the observations nor a mixture of such models.
    """
    net = predictor.prediction_net
    if net.inference.linear is None:
        raise ValueError(
            f"expected a model whose forecast is linear in the observations (issm, gls, deepstate), or a bank or pool "
            f"of such models, got {type(net).__name__}, in which shares of observations do not add up"
        )
    linear = copy.deepcopy(net).cpu().double().eval().inference.linear
    assert linear is not None
    return linear
