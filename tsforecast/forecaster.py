"""A forecaster for frames: fit, predict, and ask on, in the words of the field."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from matplotlib.figure import Figure

from tsforecast.analysis import anomalies
from tsforecast.analysis.explain import explain
from tsforecast.data.calendar.frequency import steps_in_words
from tsforecast.data.hierarchy import Given, find_hierarchy, with_levels
from tsforecast.data.known import attach_known, ends_of, with_room
from tsforecast.data.periods import find_periods
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame
from tsforecast.data.sources import check_count, read_task
from tsforecast.data.tables.columns import with_categories
from tsforecast.data.tables.dataframes import alike, as_lists, as_pandas, columns_of, with_rows
from tsforecast.data.tables.formats import frame_in, without_index
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation.cross_validation import trainer_of
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.sum_models import with_all_sums
from tsforecast.models.words import in_words
from tsforecast.plots import plot_forecasts
from tsforecast.plots.pages import Page, forecast_charts, forecasts_page
from tsforecast.plots.pages.answers import MOST_SERIES
from tsforecast.wording import listed, options_called

_DRAWN = 6  # series of a picture, at most


class Forecaster:
    """Forecasts of all series of a frame, and answers about them, in the caller's columns and kind of frame.

    Examples:
        >>> forecaster = Forecaster(horizon=14).fit(frame)  # doctest: +SKIP
        >>> table = forecaster.predict()  # doctest: +SKIP

    Args:
        horizon: Steps of a forecast; None for what is customary at the frequency.
        model: None for that of `tsforecast.forecast`, a name in `tsforecast.models.MODELS`, "auto", or an estimator.
        freq: Frequency in any of its names; None for what the frame shows.
        columns: What the columns are, see `StateSpaceEstimator.train`; None for what is found by usual names.
        seed: Of what is random.

    Attributes:
        predictor_: The predictor, once it is fitted.
    """

    predictor_: StateSpacePredictor

    def __init__(
        self,
        horizon: int | None = None,
        *,
        model: Any = None,
        freq: str | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.horizon, self.model, self.freq, self.columns, self.seed = horizon, model, freq, columns, seed

    def fit(self, frame: Any) -> Self:
        """Train on a frame with a row for each series and time stamp, or on its file, and return self.

        A path is read as `tsforecast.forecast` reads it: CSV, Parquet, Excel. Covariates may go on behind the last
        target: they are the known future. Where none is named, numbers that do so are covariates.

        Raises:
            ValueError: If the frame is not as expected; the message names the row.
        """
        check_count("horizon", self.horizon, 1)
        data, roles = _rows(frame), replace(columns_of(self.columns), ahead=True)
        source = frame if isinstance(frame, str | Path) else data  # so that messages name the lines of the file
        with options_called(prediction_length="horizon"):
            task = read_task(source, self.freq, self.horizon, 0, columns=roles)
            predictor = trainer_of(self.model, task.prediction_length, self.seed)(task)
        if not isinstance(predictor, StateSpacePredictor):
            raise ValueError(f"model={self.model!r} is a baseline, which `tsforecast.cross_validate` takes")
        assert task.columns is not None
        predictor.columns, predictor.categories = as_lists(task.columns), task.categories or None
        self.predictor_, self._data, self._given = predictor, data, frame
        return self

    def update(self, new: Any) -> Self:
        """Take new rows or their file, and return self: later answers know them; the model is not trained again.

        A row of a time stamp that is known already replaces what it has a value for.

        Raises:
            ValueError: If the rows do not go with those of the fit.
        """
        data, rows = self._fitted("update"), _rows(new)
        roles = columns_of(self.predictor_.columns)
        names = [*roles.targets, *roles.covariates]
        if not roles.wide and not {*names} & {*rows}:
            raise ValueError(f"expected new rows to have {listed(names)}, or some of these, got {listed(rows)}")
        joined = with_rows(data, rows, roles)
        self._task(joined, whole=True)  # which refuses what does not fit, and leaves all as it is
        self._data = joined
        return self

    def predict(
        self,
        quantiles: Sequence[float] = TENTHS,
        aggregate: str | Sequence[str] = (),
        hierarchy: Given | None = None,
    ) -> Any:
        """Return forecasts behind the end of the data, see `StateSpacePredictor.predict_frame`.

        Args:
            quantiles: Levels between 0 and 1.
            aggregate: Periods, such as "month", whose sums are forecast, too, see `tsforecast.forecast`.
            hierarchy: Columns that name a series together, such as "region/shop", or a summing matrix: all sums are
                forecast, too, see `tsforecast.forecast`.
        """
        task, tree = self._task(self._fitted("predict"), hierarchy=hierarchy), None
        if hierarchy is None and not aggregate:
            return self._forecasts(task.latest, quantiles)
        if hierarchy is not None:
            tree, task = find_hierarchy(hierarchy, task, columns_of(self.columns).items)
        levels, periods = check_levels(quantiles), find_periods(aggregate, task) if aggregate else []
        found = with_all_sums(self.predictor_, task, tree, periods, seed=self.seed)
        return alike(forecast_frame(found, levels, (), task.columns), self._given)

    def scenario(self, known: Any, quantiles: Sequence[float] = TENTHS) -> Any:
        """Return forecasts under assumptions about the future.

        Args:
            known: Rows within the forecasts, or their file. Targets are taken as given: forecasts are conditioned on
                them. Covariates take the place of those of the fit; NAME_low and NAME_high are a range of one. Cells
                and columns that are left out are as they were.
            quantiles: Levels between 0 and 1.

        Raises:
            ValueError: If a row is of an unknown series or outside the forecasts, or a covariate is not known.
        """
        data = self._fitted("scenario")
        task = self._task(data, whole=True)
        roles, horizon = columns_of(self.predictor_.columns), self.predictor_.prediction_length
        rows = with_categories(_rows(known), roles)
        names = [*roles.targets, *roles.covariates]
        ends = [one for name in roles.covariates for one in ends_of(name)]
        if not roles.wide and not {*names, *ends} & {*rows}:
            raise ValueError(f"expected known to have {listed(names)}, or some of these, got {listed(map(str, rows))}")
        asked = with_room(task).ending_together().latest
        return self._forecasts(attach_known(asked, rows, horizon, roles), quantiles)

    def explain(self) -> Any:
        """Return the parts of the forecasts, see `tsforecast.analysis.explain.explain`."""
        data = self._fitted("explain")
        return alike(explain(self.predictor_, data, seed=self.seed), self._given)

    def anomalies(self, rate: float = 0.001, since: Any = None) -> Any:
        """Return all steps with their tail probabilities, see `tsforecast.analysis.anomalies.anomalies`."""
        data = self._fitted("anomalies")
        return alike(anomalies(data, self.predictor_, rate=rate, since=since, seed=self.seed), self._given)

    def plot(self, items: Sequence[str] | None = None) -> Figure:
        """Return a figure of series and their forecasts.

        Args:
            items: Names of the series; None for the first six.
        """
        drawn, targets = self._drawn("plot", items, _DRAWN)
        steps = 4 * self.predictor_.prediction_length
        return plot_forecasts(drawn, self._predicted(drawn), targets=targets, history=steps)

    def page(self, items: Sequence[str] | None = None) -> Page:
        """Return a page of series and their forecasts, which a notebook shows and `save` writes.

        Args:
            items: Names of the series; None for the first 300.
        """
        drawn, targets = self._drawn("page", items, MOST_SERIES)
        horizon = steps_in_words(self.predictor_.prediction_length, self.predictor_.freq)
        model = in_words(self.predictor_.prediction_net)
        title = f"{', '.join(targets) or 'Series'}: forecasts of {horizon} by {model}"
        return forecasts_page(title, forecast_charts(drawn, self._predicted(drawn), targets=targets))

    def _repr_html_(self) -> str | None:
        """Return the page of the forecasts, as notebooks show it; None before the fit."""
        return self.page()._repr_html_() if hasattr(self, "_data") else None

    def _drawn(self, name: str, items: Sequence[str] | None, most: int) -> tuple[list[dict[str, Any]], Sequence[str]]:
        """Return the series of a picture, at most so many where they are not named, and the names of their targets."""
        entries = self._task(self._fitted(name)).latest
        names = [str(entry["item_id"]) for entry in entries]
        if unknown := [item for item in items or () if item not in names]:
            raise ValueError(f"there is no series {unknown[0]!r}, only {listed(names[:_DRAWN])}, ..")
        drawn = [entry for entry, name in zip(entries, names, strict=True) if items is None or name in items]
        roles = columns_of(self.predictor_.columns)
        return drawn[:most] if items is None else drawn, () if roles.wide else roles.targets

    def _fitted(self, name: str) -> pd.DataFrame:
        if not hasattr(self, "_data"):
            raise ValueError(f"{name} needs a forecaster that is fitted: call fit(frame) before {name}()")
        return self._data

    def _task(self, data: pd.DataFrame, whole: bool = False, hierarchy: Given | None = None) -> ForecastTask:
        """Return the series, at their common end for forecasts; or as they are, with covariates of any length."""
        net, roles = self.predictor_, with_levels(columns_of(self.predictor_.columns), hierarchy)
        beyond = not whole or not roles.covariates
        split = (net.freq, net.prediction_length, None if beyond else 0)
        task = read_task(data, *split, columns=roles, beyond=beyond, categories=net.categories)
        return task if whole else task.ending_together()

    def _predicted(self, entries: list[dict[str, Any]]) -> list[Any]:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return list(self.predictor_.predict(entries, 0 if self.predictor_.has_marginals else None))

    def _forecasts(self, entries: list[dict[str, Any]], quantiles: Sequence[float]) -> Any:
        levels, roles = check_levels(quantiles), columns_of(self.predictor_.columns)
        return alike(forecast_frame(self._predicted(entries), levels, roles.targets, roles), self._given)


def _rows(frame: Any) -> pd.DataFrame:
    """Return a frame of pandas with all in columns, also of the path of a file."""
    if isinstance(frame, str | Path) and (Path(frame).is_dir() or ".json" in Path(frame).suffixes[:1]):
        raise ValueError(f"expected a frame, or a CSV, Parquet or Excel file, got {frame}")
    data = frame_in(Path(frame)) if isinstance(frame, str | Path) else as_pandas(frame)
    if not isinstance(data, pd.DataFrame):
        kind = type(frame).__name__
        raise ValueError(f"expected a frame of pandas or polars, an Arrow table or the path of a file, got a {kind}")
    return without_index(data)
