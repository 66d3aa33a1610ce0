"""Forecasts of sums in a hierarchy and over periods: sums have less noise and clearer seasons, so a bank of their own.

Joint paths of steps say how errors of neighbours go together, and their sums are forecasts of periods. Conditioning
paths on a model of these sums gained little and lost more (`experiments/hierarchies/README.md`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gluonts.model.forecast import Forecast, SampleForecast

from tsforecast.data.calendar.stamps import STAMP
from tsforecast.data.hierarchy import Hierarchy
from tsforecast.data.periods import Periods, step_name
from tsforecast.data.tables.naming import PERIOD
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.coherent import Marginals, coherent_forecasts, even_scores, path_count
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.effect_choice import chosen_effects
from tsforecast.forecasting.lengths import window_is_short
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.quick_bank import learnt_in_part
from tsforecast.forecasting.totals import are_totals

log = logging.getLogger(__name__)


def fitted_sums(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts sums: a bank that learns from them, or does not, by windows before the end.

    Where training windows are long, as of hours, or sums are running totals, it is what forecasts series.
    """
    entries = list(task.train)
    if not window_is_short(task.freq, task.prediction_length, entries) or are_totals(entries):
        return fitted(task, seed)
    effects = chosen_effects(task, seed)
    log.info("sums have a bank of their own")
    return learnt_in_part(task, entries, seed, effects, "sum", (0.0, 1.0))


def forecasts_of_nodes(
    predictor: StateSpacePredictor, nodes: ForecastTask, tree: Hierarchy, seed: int = 0
) -> Callable[[list[dict[str, Any]]], Iterable[Forecast]]:
    """Return what forecasts entries of a hierarchy, each alone: sums by `fitted_sums`, series by a predictor."""
    sums = nodes.entries[: len(tree.places[0])]
    names, of_sums = {str(entry["item_id"]) for entry in sums}, fitted_sums(replace(nodes, entries=sums), seed)

    def predict(entries: list[dict[str, Any]]) -> list[Forecast]:
        is_sum = [str(entry["item_id"]) in names for entry in entries]
        parts = {}
        for kind, own in ((True, of_sums), (False, predictor)):
            chosen = [entry for entry, one in zip(entries, is_sum, strict=True) if one is kind]
            parts[kind] = iter(own.predict(chosen, 0 if own.has_marginals else None) if chosen else ())
        return [next(parts[kind]) for kind in is_sum]

    return predict


def with_all_sums(
    predictor: StateSpacePredictor,
    task: ForecastTask,
    tree: Hierarchy | None,
    periods: Sequence[Periods] = (),
    num_samples: int | None = None,
    seed: int = 0,
) -> list[SampleForecast]:
    """Return forecasts of series, and of their sums in a hierarchy and over periods, which add up.

    Args:
        predictor: Of the series.
        task: The series, or nodes of the hierarchy, which end together.
        tree: The hierarchy; None for none.
        periods: Whose sums are forecast, see `tsforecast.data.periods.find_periods`.
        num_samples: Number of sample paths; None for as many as there is room for.
        seed: Of the paths.
    """
    if tree is None:
        found: Iterable[SampleForecast] = joint_forecasts(predictor, task, num_samples, seed)
    else:
        found = coherent_forecasts(forecasts_of_nodes(predictor, task, tree, seed), task, tree, num_samples, seed)
    return [*(with_sums(found, periods, task.freq) if periods else found)]


def joint_forecasts(
    predictor: StateSpacePredictor, task: ForecastTask, num_samples: int | None = None, seed: int = 0
) -> Iterator[SampleForecast]:
    """Yield forecasts by joint paths of the steps, with exact quantiles of each step where the model has them.

    Args:
        predictor: Of the series.
        task: Series of one target that end together.
        num_samples: Number of paths; None for as many as there is room for, up to 1000.
        seed: Of the paths.
    """
    count = path_count(len(task.entries) * task.prediction_length) if num_samples is None else num_samples
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = [*predictor.predict(task.latest, count)]
    forecasts = predictor.predict(task.latest, 0) if predictor.has_marginals else drawn
    for one, exact in zip(drawn, forecasts, strict=True):
        assert isinstance(one, SampleForecast)
        own = Marginals.of([exact])
        steps = Marginals(own.mean.T, own.quantiles.swapaxes(0, 1))  # as nodes of one step
        values = steps.values(0, even_scores(np.asarray(one.samples, np.float64).T))
        yield SampleForecast(values.T, one.start_date, one.item_id, one.info)


def with_sums(forecasts: Iterable[SampleForecast], levels: Sequence[Periods], freq: str) -> Iterator[SampleForecast]:
    """Yield forecasts by paths, and behind each those of its sums over periods; `info` has the name of the period."""
    for forecast in forecasts:
        info, item = dict(forecast.info or {}), forecast.item_id
        samples = np.asarray(forecast.samples, np.float64)
        yield SampleForecast(samples, forecast.start_date, item, info | {PERIOD: step_name(freq)})
        info.pop(STAMP, None)  # of a step: periods are dated by their beginnings
        for level in levels:
            yield SampleForecast(samples @ level.weights.T, level.start, item, info | {PERIOD: level.name})
