"""Cross-validation as a frame: forecasts of the last windows of all series, beside what came."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.dataset import Dataset
from gluonts.itertools import batcher
from gluonts.model import Forecast, Predictor, QuantileForecast

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame, forecast_mean, forecast_quantiles
from tsforecast.data.sources import check_count, read_task
from tsforecast.data.tables.dataframes import alike, columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import WIDE_TARGET, Columns
from tsforecast.data.task import ForecastTask, instances
from tsforecast.evaluation.baselines import BASELINES
from tsforecast.evaluation.report import fit_named
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.refit import Train, predicted, refitted
from tsforecast.wording import options_called

log = logging.getLogger(__name__)

_CHUNK = 500  # forecasts that become rows at once


@options_called(prediction_length="horizon")
def cross_validate(
    data: Any,
    horizon: int | None = None,
    *,
    windows: int | None = None,
    step: int | None = None,
    refit: bool = False,
    model: Any = None,
    freq: str | None = None,
    quantiles: Sequence[float] = TENTHS,
    columns: Columns | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Any:
    """Return forecasts of the last windows of all series, each from what came before it, beside the actual values.

    Examples:
        >>> tsforecast.cross_validate(frame, horizon=14, windows=5)  # doctest: +SKIP

    Args:
        data: A row for each series and time stamp, as `tsforecast.forecast` takes it; or a task with windows.
        horizon: Steps of a forecast; None for what is customary at the frequency.
        windows: Forecasts of each series, the last of which ends with the data; None as in `read_task`.
        step: Steps from one forecast to the next; None for `horizon`, so that windows do not overlap.
        refit: Whether the model is trained again before each window. Without it the model is trained once, before the
            first window, and filters what has come since.
        model: None for that of `tsforecast.forecast`; a name of `StateSpaceEstimator` or of
            `tsforecast.evaluation.BASELINES`; an estimator; or a predictor, which should not have seen the windows.
        freq: Frequency in any of its names; None for what the table shows.
        quantiles: Levels between 0 and 1.
        columns: What the columns are, see `StateSpaceEstimator.train`; None for what is found by usual names.
        seed: Of what is random.

    Returns:
        A row for each series, window and step, in a frame of the kind that `data` is. Columns: series and time stamp as
        the table has them; `target` where there are several; `cutoff`, the last time stamp that the forecast knows; the
        actual value, under the name of the target, or `actual` where that is taken or there are several; `mean`; and
        each quantile, called by its level. Series that are too short for the windows are left out, with a warning.

    Raises:
        ValueError: If the table or an option is not as expected.
    """
    levels = check_levels(quantiles)
    check_count("horizon", horizon, 1)
    if isinstance(model, StateSpacePredictor):
        if refit:
            raise ValueError("refit trains a model again: give a name or an estimator, not a predictor")
        horizon, freq = horizon or model.prediction_length, freq or model.freq
        columns = columns if columns is not None else model.columns
    if isinstance(data, ForecastTask):
        given = {"horizon": horizon, "windows": windows, "step": step, "freq": freq, "columns": columns}
        if not isinstance(model, StateSpacePredictor) and (named := [key for key in given if given[key] is not None]):
            raise ValueError(f"{', '.join(named)}: of a table; the data are a task, which has its own")
        task = data
    else:
        is_trained = isinstance(model, StateSpacePredictor)
        roles, categories = columns_of(columns), model.categories if is_trained else None
        roles = roles if is_trained else replace(roles, ahead=True)  # as forecasts find covariates
        task = read_task(data, freq, horizon, windows, columns=roles, step=step, categories=categories)
    train = trainer_of(model, task.prediction_length, seed)
    if refit:
        found = refitted(train, task, seed=seed)
    else:
        pasts, predictor = instances(task.test("rolling"))[0], train(task)
        torch.manual_seed(seed)
        found = predicted(predictor, pasts, None)
    return alike(validation_frame(found, task, levels), data)


def trainer_of(model: Any, horizon: int, seed: int) -> Train:
    """Return the training of a model, given as `cross_validate` takes it; refuse one of another horizon."""
    if model is None:
        return partial(fitted, seed=seed)
    if isinstance(model, str) and model.partition("-")[0] in BASELINES:
        return lambda task: fit_named(model, task, task.season, seed=seed).predictor(horizon)
    if isinstance(model, str):
        return lambda task: StateSpaceEstimator(model, task.freq, horizon, seed=seed).train(task.train)
    if not isinstance(model, StateSpaceEstimator | StateSpacePredictor):
        raise ValueError(
            f"expected a model by its name, an estimator, a predictor or None, got a {type(model).__name__}"
        )
    if model.prediction_length != horizon:
        raise ValueError(f"expected a model that forecasts {horizon} steps, got one of {model.prediction_length}")
    return (lambda task: model.train(task.train)) if isinstance(model, StateSpaceEstimator) else lambda _: model


def validation_frame(forecasts: Iterable[Forecast], task: ForecastTask, levels: tuple[float, ...]) -> pd.DataFrame:
    """Return forecasts of the test windows of a task beside the actual values, see `cross_validate`."""
    _, labels = instances(task.test("rolling"))
    name = _name_of_actual(task, levels)
    parts = []
    with expected_alias_warnings():
        for chunk in batcher(zip(forecasts, labels, strict=True), _CHUNK):
            frame = forecast_frame([forecast for forecast, _ in chunk], levels, task.targets)
            ends = [stamps_of(label["start"] - 1, 1, label.get("info"))[0] for _, label in chunk]
            place = [*frame.columns].index("mean")
            frame.insert(place, "cutoff", np.repeat(ends, [label["target"].size for _, label in chunk]))
            actual = np.concatenate([np.ravel(label["target"]) for _, label in chunk])
            frame.insert(place + 1, name, actual)
            parts.append(frame)
    return as_read(pd.concat(parts, ignore_index=True), task.columns, cells_of(task.entries))


def _name_of_actual(task: ForecastTask, levels: tuple[float, ...]) -> str:
    """Return the column of the actual values: that of the target, where it is one and its name is free."""
    if len(task.targets) > 1 or (len(task.entries) and np.ndim(task.entries[0]["target"]) > 1):
        return "actual"
    name = task.targets[0] if task.targets and task.targets[0] != WIDE_TARGET else "target"
    if name not in {"item_id", "timestamp", "cutoff", "mean", *map(str, levels)}:
        return name
    log.info("actual values are in the column 'actual': the result has another of the name %r", name)
    return "actual"


class Kept(Predictor):
    """A predictor whose forecasts are kept as the quantiles and means of a frame, in their order."""

    def __init__(self, predictor: Predictor, levels: tuple[float, ...]) -> None:
        super().__init__(prediction_length=predictor.prediction_length)
        self.predictor, self.levels = predictor, levels
        self.forecasts: list[Forecast] = []

    def predict(self, dataset: Dataset, **kwargs: Any) -> Iterator[Forecast]:
        """Return the forecasts as they come."""
        for forecast in self.predictor.predict(dataset, **kwargs):
            rows = np.stack([*forecast_quantiles(forecast, self.levels), forecast_mean(forecast)])
            keys = [*map(str, self.levels), "mean"]
            kept = QuantileForecast(rows, forecast.start_date, keys, item_id=forecast.item_id, info=forecast.info)
            self.forecasts.append(kept)
            yield forecast
