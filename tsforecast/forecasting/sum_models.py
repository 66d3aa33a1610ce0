"""Models of sums: a bank of their own, because sums have less noise and clearer seasons than their series."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gluonts.model.forecast import Forecast, SampleForecast

from tsforecast.data.hierarchy import Hierarchy
from tsforecast.data.periods import Periods
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.coherent import coherent_forecasts
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.effect_choice import chosen_effects
from tsforecast.forecasting.lengths import window_is_short
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.quick_bank import learnt_in_part
from tsforecast.forecasting.temporal import joint_forecasts, with_sums
from tsforecast.forecasting.totals import are_totals

log = logging.getLogger(__name__)


def fitted_sums(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts sums: a bank that learns from them, or does not, by windows before the end.

    Where training windows are long, as of hours, or sums are running totals, it is what forecasts series.

    Args:
        task: The sums.
        seed: Of what is random in training.

    Raises:
        ValueError: If the sums cannot be trained on.
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
    """Return what forecasts entries of a hierarchy, each alone: sums by `fitted_sums`, series by a predictor.

    Args:
        predictor: Of the series.
        nodes: The task of the nodes, as `find_hierarchy` gives it.
        tree: The hierarchy.
        seed: Of what is random in training.
    """
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
