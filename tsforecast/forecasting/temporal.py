"""Forecasts of steps and of sums over periods, path by path: days that add up to months.

Joint paths of the steps say how errors of neighbours go together, and their sums are forecasts of the periods.
Paths conditioned on forecasts by a model of the sums gained little on some data and lost more on others
(`experiments/hierarchies/README.md`).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from gluonts.model.forecast import SampleForecast

from tsforecast.data.calendar.stamps import STAMP
from tsforecast.data.periods import Periods, step_name
from tsforecast.data.tables.naming import PERIOD
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.coherent import Marginals, even_scores, path_count
from tsforecast.forecasting.predictor import StateSpacePredictor


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
