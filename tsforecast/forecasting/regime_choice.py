"""Options of models with regimes by evidence: regimes, lags, differences between regimes, and units."""

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.buckets.tally import Tally
from tsforecast.data.checks import as_numbers
from tsforecast.data.windows import first_value
from tsforecast.forecasting.data_summary import common_units
from tsforecast.models.parts.markov_choice import ORDERS, Evidence, Shape, chosen_shape, fixed_shape
from tsforecast.models.parts.markov_fit import lags_of
from tsforecast.models.transformations import transformation_of

log = logging.getLogger(__name__)

MODEL = "markov"
_SERIES, _STEPS, _VALUES = 200, 2000, 16_000  # that the evidence is taken of, at most
_MANY, _KEPT = 1000, 0.8  # values with all lags that are compared, at least; or the share of those without any
_LARGEST = 1e30  # a common unit of all series lies between this and its inverse

_OF_COUNTS = {
    "regimes": 2, "order": 0, "seasonal": False, "stages": 1, "switching": "location+scale", "scaling": "none",
    "transformation": "none",
}  # fmt: skip

Options = dict[str, Any]


def undecided(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return the names of the options of `markov` that are left to the data."""
    free = [name for name in ("regimes", "order", "seasonal", "stages") if hyperparameters.get(name) is None]
    free += ["switching"] if hyperparameters.get("switching", "auto") == "auto" else []
    of_units = ["scaling", "transformation"] if _has_counts(hyperparameters) else ["scaling"]
    return free + [name for name in of_units if name not in hyperparameters]


def _has_counts(hyperparameters: Mapping[str, Any]) -> bool:
    """Return whether a model is of counts as they are, without lags."""
    return hyperparameters.get("likelihood", "gaussian") != "gaussian"


def categories(
    data: Iterable[dict[str, Any]], hyperparameters: Mapping[str, Any], seed: int | None, least: int
) -> Options | None:
    """Return the number of categories of a switch, the size of a state that holds the lags, and units, by evidence.

    Lags of a season are none of them, since the cost of a state grows with its square.

    Returns:
        The options; None where the data show one regime alone, and that is enough.
    """
    given: Options = {"stages": 1, "seasonal": False}
    given |= {name: hyperparameters[name] for name in ("scaling", "transformation") if name in hyperparameters}
    if "switch_dim" in hyperparameters:
        given["regimes"] = hyperparameters["switch_dim"]
    found = given | regime_options(data, given, 0, seed, "sgls")
    if found["regimes"] < least:
        given["regimes"] = least
        found = given | regime_options(data, given, 0, seed, "sgls")
    if found["regimes"] == 1:
        return None
    targets = np.atleast_2d(np.asarray(next(iter(data))["target"])).shape[0]
    sizes = {"switch_dim": found["regimes"], "state_dim": max(found["order"], 1) * targets}
    return sizes | {"scaling": found["scaling"]}


def regime_options(
    data: Iterable[dict[str, Any]],
    hyperparameters: Mapping[str, Any],
    season: int,
    seed: int | None,
    model: str = MODEL,
) -> Options:
    """Return the options of `markov` that are left to the data."""
    names, given = undecided(hyperparameters), dict(hyperparameters)
    if _has_counts(given):
        log.info("%s: of counts two regimes are taken unless others are asked for", MODEL)
        return {name: value for name, value in _OF_COUNTS.items() if name in names}
    entries, tally = _sampled(data), Tally()
    for entry in entries:
        tally.add(entry)
    fixed = {
        name: given[name]
        for name in ("regimes", "order", "seasonal", "stages", "switching")
        if name not in names and name in given
    }
    if given.get("form") == "mean":
        fixed |= {"seasonal": False, "stages": fixed.get("stages", 1)}  # each stage would be a regime of each lag
    transformation = given.get("transformation", "auto")
    transformation = tally.auto["transformation"] if transformation == "auto" else transformation
    values, inputs = _together(entries, transformation)
    units = common_units(entries, transformation)
    # Several targets have no unit in common.
    kinds = [given["scaling"]] if "scaling" in given else ["training", "history"][values.shape[-1] > 1 :]
    if not 1 / _LARGEST < units["common_scale"] < _LARGEST and len(kinds) > 1:
        kinds = ["history"]
    best, shape, chosen = math.inf, Shape(order=0).but(**fixed_shape(fixed)), kinds[-1]
    for kind in kinds:
        centre, unit = _units(kind, values, units)
        more = 0 if kind in ("training", "none") else 2 * centre.size
        evidence = _evidence((values - centre) / unit, inputs, season, np.log(unit), more, fixed, seed or 0)
        if evidence.count and (best == math.inf or evidence.of(shape) < best):
            shape, chosen = chosen_shape(evidence, fixed), kind
            best = evidence.of(shape)
    options = {name: value for name, value in {**shape.options, "scaling": chosen}.items() if name in names}
    told = {name: value for name, value in options.items() if shape.regimes > 1 or name not in ("switching", "stages")}
    one = "; the data show no second regime" if options.get("regimes") == 1 else ""
    log.info("%s: %s%s", model, ", ".join(f"{name} {value}" for name, value in told.items()), one)
    return options


def _sampled(data: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return some series, evenly from all."""
    if isinstance(data, StreamedEntries):
        return list(data.sample(_SERIES, 0))
    entries = list(data)
    places = np.unique(np.linspace(0, len(entries) - 1, min(len(entries), _SERIES)).astype(int))
    return [entries[place] for place in places]


def _together(entries: list[dict[str, Any]], transformation: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the last values of series side by side, (time, series, target), NaN where missing, and covariates."""
    steps = max(min(_STEPS, _VALUES // len(entries)), 1)
    apply, columns, covariates = transformation_of(transformation).apply, [], []
    for entry in entries:
        target = np.atleast_2d(as_numbers(entry["target"]).astype(np.float64)).T
        begin = first_value(target, np.isfinite(target))
        kept = slice(max(begin, len(target) - steps), len(target))
        columns.append(apply(torch.as_tensor(np.where(np.isfinite(target), target, np.nan)[kept])).numpy())
        rows = as_numbers(entry.get("feat_dynamic_real", np.zeros((0, len(target))))).astype(np.float64)
        covariates.append(rows[:, kept].T)
    longest = max(len(column) for column in columns)
    values = np.full((longest, len(columns), columns[0].shape[1]), np.nan)
    inputs = np.zeros((longest, len(columns), covariates[0].shape[1]))
    for k, (column, rows) in enumerate(zip(columns, covariates, strict=True)):
        values[longest - len(column) :, k], inputs[longest - len(column) :, k] = column, rows
    spread = inputs.std((0, 1))
    return values, (inputs - inputs.mean((0, 1))) / np.where(spread > 0, spread, 1.0)


def _units(
    kind: str, values: NDArray[np.float64], common: Mapping[str, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centre and the unit of each series and target."""
    ones = np.ones(values.shape[1:])
    if kind == "none":
        return 0 * ones, ones
    if kind == "training":
        return common["common_centre"] * ones, common["common_scale"] * ones
    seen = np.isfinite(values)
    centre = np.where(seen, values, 0.0).sum(0) / seen.sum(0).clip(1)
    change = np.abs(np.diff(values, axis=0))
    unit = np.nansum(change, 0) / np.isfinite(change).sum(0).clip(1)
    return centre, np.where(unit > 0, unit, 1.0)


def _evidence(
    values: NDArray[np.float64], inputs: NDArray[np.float64], season: int, log_unit: NDArray[np.float64], more: int,
    fixed: Mapping[str, Any], seed: int,
) -> Evidence:  # fmt: skip
    """Return the evidence; the longest lags are those for which enough values are left."""
    seen = np.isfinite(values)
    tensors = torch.as_tensor(np.where(seen, values, 0.0)), torch.as_tensor(seen), torch.as_tensor(inputs)
    period = 0 if fixed.get("seasonal") is False else season

    def up_to(order: int, lag: int) -> Evidence:
        longest = lags_of(max(order, fixed.get("order") or 0), lag)
        return Evidence(*tensors, lag, torch.as_tensor(log_unit), more, longest, order, seed)

    found = up_to(0, 0)
    least = min(_MANY, _KEPT * found.count)
    for order, lag in ((1, 0), (max(ORDERS), 0), (max(ORDERS), period)):
        more_lags = up_to(order, lag)
        if more_lags.count < least:
            break
        found = more_lags
    return found
