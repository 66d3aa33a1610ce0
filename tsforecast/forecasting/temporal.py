"""Forecasts of steps and of sums over periods, path by path: days that add up to months.

A model of its own forecasts the sums of each period. Sums of the sample paths of steps, and this forecast, are two
opinions of one number. Both are set against each other at equal ranks, and conditioning takes each path to one that
adds up, see `tsforecast.forecasting.reconciliation`. Every value weighs by its variance, as if errors were independent
(WLS with variances, Athanasopoulos et al. 2017, "Forecasting with temporal hierarchies"). The dependence of steps is
that of the paths.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from gluonts.model.forecast import SampleForecast
from numpy.typing import NDArray

from tsforecast.data.calendar.stamps import STAMP
from tsforecast.data.periods import Periods, step_name
from tsforecast.data.tables.naming import PERIOD
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.coherent import Marginals, even_scores, keep_positive, path_count
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.reconciliation import Correlation, SumConditioning

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Opinion = tuple[
    Array, Marginals
]  # weights of steps in sums (sum, step), and forecasts of the sums as nodes of one step


def temporal_forecasts(
    predictor: StateSpacePredictor,
    fit: Callable[[ForecastTask], StateSpacePredictor],
    task: ForecastTask,
    levels: Sequence[Periods],
    num_samples: int | None = None,
    seed: int = 0,
) -> list[SampleForecast]:
    """Return forecasts of series, and behind each those of its sums over periods; every path adds up.

    Args:
        predictor: Of the steps.
        fit: Makes what forecasts the sums.
        task: The series, which end together.
        levels: The sums, as `find_periods` gives them.
        num_samples: Number of paths; None for as many as there is room for, up to 1000.
        seed: Of the paths.
    """
    items = [str(entry["item_id"]) for entry in task.entries]
    opinions: dict[str, list[Opinion]] = {item: [] for item in items}
    for level in levels:
        if missing := len(items) - len(level.task.entries):
            log.info(
                "%d series have too few whole periods for a model of each %s: steps alone say it", missing, level.name
            )
        if level.task.entries:
            for item, opinion in _opinions(fit(level.task), level):
                opinions[item].append(opinion)
    count = path_count(len(items) * task.prediction_length) if num_samples is None else num_samples
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = predictor.predict(task.latest, count)
        # Exact quantiles where the model has them: paths have the noise of draws.
        forecasts = [*predictor.predict(task.latest, 0)] if predictor.has_marginals else (drawn := [*drawn])
        marginals = Marginals.of(forecasts)
        found, below, positive = [], 0, 0
        for row, (entry, one) in enumerate(zip(task.entries, drawn, strict=True)):
            is_positive = not (entry["target"] < 0).any()
            own = opinions[str(entry["item_id"])]
            assert isinstance(one, SampleForecast)
            paths, low = conditioned(_nodes(marginals, row), one.samples, own, is_positive)
            below, positive = below + low, positive + is_positive
            found.append(SampleForecast(paths, one.start_date, one.item_id, one.info))
    if below:
        share = 100 * below / (count * task.prediction_length * positive)
        log.info("%.2g %% of the values of paths of series that were never negative were below 0, and are 0", share)
    return [*with_sums(found, levels, task.freq)]


def with_sums(forecasts: Iterable[SampleForecast], levels: Sequence[Periods], freq: str) -> Iterator[SampleForecast]:
    """Yield forecasts by paths, and behind each those of its sums over periods; `info` has the name of the period.

    Args:
        forecasts: Of steps.
        levels: The sums.
        freq: Frequency of the steps.
    """
    for forecast in forecasts:
        info, item = dict(forecast.info or {}), forecast.item_id
        samples = np.asarray(forecast.samples, np.float64)
        yield SampleForecast(samples, forecast.start_date, item, info | {PERIOD: step_name(freq)})
        info.pop(STAMP, None)  # of a step: periods are dated by their beginnings
        for level in levels:
            yield SampleForecast(samples @ level.weights.T, level.start, item, info | {PERIOD: level.name})


def _opinions(predictor: StateSpacePredictor, level: Periods) -> Iterator[tuple[str, Opinion]]:
    """Yield the names of series and forecasts of their sums."""
    forecasts = [*predictor.predict(level.task.latest, 0 if predictor.has_marginals else None)]
    marginals, whole = Marginals.of(forecasts), len(level.weights)
    marginals = Marginals(marginals.mean[:, -whole:], marginals.quantiles[:, -whole:])
    for row, entry in enumerate(level.task.entries):
        yield str(entry["item_id"]), (level.weights, _nodes(marginals, row))


def _nodes(marginals: Marginals, row: int) -> Marginals:
    """Return the forecast of one series, its steps as nodes of one step."""
    return Marginals(marginals.mean[row][:, None], marginals.quantiles[row][:, None])


def conditioned(forecast: Marginals, drawn: Array, opinions: Sequence[Opinion], is_positive: bool) -> tuple[Array, int]:
    """Return paths (sample, step) of a series given forecasts of its sums, and the number of values brought up to 0.

    Args:
        forecast: Of the steps, as nodes of one step.
        drawn: Joint paths of the steps, (sample, step).
        opinions: Of the sums.
        is_positive: Whether values must not become negative.
    """
    values = forecast.values(0, even_scores(np.asarray(drawn, np.float64).T))
    series = values.copy()
    deviations = [*(own.deviations[:, 0] for _, own in opinions), forecast.deviations[:, 0]]
    if opinions and (np.concatenate(deviations) > 0).any():
        from scipy import sparse  # takes half a second to import, and few ask for sums

        weights = np.concatenate([sums for sums, _ in opinions])
        # At equal ranks the spread of a sum lies between those of both.
        sums = [own.values(0, even_scores(sums @ values)) for sums, own in opinions]
        nodes = len(weights) + len(values)
        independent = Correlation(np.ones(nodes), np.zeros((nodes, 1)))
        conditioning = SumConditioning(sparse.csr_array(weights), np.concatenate(deviations), independent)
        series = conditioning.series(np.concatenate([*sums, values]))
    positive = np.full(len(values), is_positive)
    below = keep_positive(series, values, positive, positive & (forecast.quantiles[:, 0, 0] <= 0))
    return series.T, below
