"""The GluonTS predictor of all models: from a history to a forecast, to a file and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gluonts.core.component import validated
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast, SampleForecast
from gluonts.model.predictor import Predictor, RepresentablePredictor

from tsforecast.core.devices import find_device
from tsforecast.data.checks import refuse_frame
from tsforecast.data.effects.effects import Effects
from tsforecast.data.known import brings_covariates
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import alike, as_pandas, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.transform import Prepare
from tsforecast.forecasting.direct import check_share
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.imputation import imputed
from tsforecast.forecasting.live_beliefs import LiveBelief
from tsforecast.forecasting.scenarios import predicted
from tsforecast.forecasting.serialization import declared, read_parts, write_parts
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.forecasting.timed_histories import TimedHistories
from tsforecast.forecasting.totals import totals_of
from tsforecast.forecasting.updates import forecasts_from, updated
from tsforecast.io.files import replace_folder
from tsforecast.models import AbstractForecaster


class StateSpacePredictor(RepresentablePredictor):
    """A predictor that filters the history of each series, and forecasts from its end.

    It is of series on a grid; or, behind a `Clock`, of series with clocks of their own, of which `on_clock` tells more.

    Entries are checked as they pass, and a few batches of them are held at a time. So memory does not grow with the
    number of series. Histories of similar length share a batch, since the shorter ones are padded. A batch does not mix
    series of different fields.

    Args:
        prediction_net: A trained forecaster.
        input_transform: `Prepare`, with the horizon; or a `Clock`.
        prediction_length: Steps of a forecast.
        freq: Frequency that the data must have; "ns" on a clock, whose steps are nanoseconds.
        batch_size: Number of series at a time.
        history_length: Steps of the history used at most; None for all, or the last 20,000 below a day.
        device: "auto" for a GPU where there is one; on a clock the CPU.
        columns: Roles of the columns of the data frame that it was trained with, as `as_lists` makes them; None where
            it was not.
        categories: Names behind the codes of static categories in that frame, by column.
        direct: Share of direct forecasts in mixtures with those of the model, see `tsforecast.forecasting.direct`.
        totals: Whether series are running totals, and the model is one of their increments, see
            `tsforecast.forecasting.totals`.
    """

    @validated()
    def __init__(
        self,
        prediction_net: torch.nn.Module,
        input_transform: Any,
        prediction_length: int,
        freq: str,
        batch_size: int = 64,
        history_length: int | None = None,
        device: str | torch.device = "auto",
        columns: dict[str, list[str]] | None = None,
        categories: dict[str, list[str]] | None = None,
        direct: float = 0.0,
        totals: bool = False,
    ) -> None:
        is_on_clock = isinstance(input_transform, Clock)
        super().__init__(prediction_length)
        self.input_transform, self.freq = input_transform, freq
        self.batch_size, self.history_length = batch_size, history_length
        self.prediction_net: AbstractForecaster = prediction_net  # pyright: ignore[reportAttributeAccessIssue]
        self.to("cpu" if is_on_clock else device)
        self.columns = columns
        self.categories = categories
        check_share(direct)
        self.direct, self.totals = direct, totals

    def to(self, device: str | torch.device) -> "StateSpacePredictor":
        """Move the model to a device; return the predictor.

        Args:
            device: "auto" for a GPU where there is one.

        Raises:
            ValueError: If there is no such device.
        """
        self.device = find_device(device)
        self.prediction_net = self.prediction_net.to(self.device)
        return self

    @property
    def network(self) -> AbstractForecaster:
        """Return the model."""
        return self.prediction_net

    def serialize(self, path: Path) -> None:
        """Writes the predictor into a folder that is there; `load_predictor` and `deserialize` read it.

        Raises:
            ValueError: If its model is none of `MODELS`.
        """
        path = Path(path)
        Predictor.serialize(self, path)
        write_parts(path, self.prediction_net, self.input_transform, self)

    @classmethod
    def deserialize(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, path: Path, device: str | torch.device | None = None
    ) -> "StateSpacePredictor":
        """Reads what `serialize` wrote; no code of the files is run.

        Args:
            path: Path of the folder.
            device: Device of the network; None as "auto".

        Raises:
            FileNotFoundError: If there is no such folder or file.
            ValueError: If it is damaged, of another program or of another format, or if there is no such device.
        """
        net, preparation, arguments = read_parts(Path(path), cls, find_device("auto" if device is None else device))
        return cls(net, preparation, **arguments).to(net.device)

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        dataset: Iterable[dict[str, Any]] | pd.DataFrame,
        num_samples: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        start: str = "common",
    ) -> Iterator[Forecast]:
        """Return a forecast for every entry, in order.

        A series begins at its first value: missing values before it make no difference. A series without a value in the
        history that is filtered stops none of the others. Its forecast is the model's prior, with location 0 and scale
        1 in the units of the transformation. Scales come from the history; those of the training are not kept. A value
        too far from the others for float32 counts as missing, and stops none either. One warning each names such series
        when the data end.

        Args:
            dataset: GluonTS data entries. `feat_dynamic_real` must reach over the horizon; an entry may carry
                `known_future`, the known part of the horizon's targets with NaN where free, and `covariate_range`,
                between which covariates lie, see `tsforecast.forecasting.scenarios`. Or a DataFrame in long format,
                see `tsforecast.data.read_task`.
            num_samples: Number of sample paths; None for the model's own number. With 0 none are drawn, where quantiles
                are exact (`ExactForecast`). Running totals have 200 for None or 0.
            columns: What the columns of a frame are, see `StateSpaceEstimator.train`; None for those of the training.
            start: Of the forecasts of a frame: "common" for all behind the series that ends last, with a warning that
                names others; "each" for behind the series' own last target.

        Raises:
            ValueError: If an entry or a frame is not as expected; the message names the series or the row.
        """
        histories, entries = self._histories(), self.read(dataset, columns, start)[0]
        try:
            predict = partial(predicted, histories)
            yield from totals_of(predict, entries, num_samples) if self.totals else predict(entries, num_samples)
        finally:  # also if the caller stops early
            histories.warn()

    def predict_frame(
        self,
        dataset: Any,
        quantiles: Sequence[float] = TENTHS,
        num_samples: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        start: str = "common",
        at: Any = None,
        every: str | None = None,
    ) -> Any:
        """Return forecasts as a frame, with a row for each series and step.

        Args:
            dataset: As `predict` takes it; of a frame of polars, an Arrow table or the like the answer is one, too.
            quantiles: Levels between 0 and 1.
            num_samples: Number of sample paths that quantiles are taken from, where they are not exact; None for the
                model's own number.
            columns: As `predict` takes it.
            start: As `predict` takes it.
            at: On a clock, the times of the forecasts, see `TimedHistories.asked_of`.
            every: On a clock, the distance of the times, such as "10min".

        Returns:
            The columns of series and time stamps as the frame has them (`item_id` where it has none, `timestamp` where
            it has several; both of entries), `target` where there are several, `mean`, and a column for each quantile,
            called by its level: "0.1". Steps are dated as further rows of the frame would be.

        Raises:
            ValueError: As `predict` does, or if a level is not between 0 and 1.
        """
        levels, given, dataset = check_levels(quantiles), dataset, as_pandas(dataset)
        if self.is_on_clock and num_samples is None and start == "common":
            return alike(self.on_clock.frame(dataset, at, every, levels, columns), given)
        if self.is_on_clock or at is not None or every is not None:
            raise ValueError("start and num_samples go with series on a grid; at and every with clocks of their own")
        targets = columns_of(self.columns if columns is None else columns).targets
        entries, read = self.read(dataset, columns, start)
        forecasts = self.predict(entries, 0 if self.has_marginals else num_samples)
        frames = [forecast_frame(chunk, levels, targets, read) for chunk in batcher(forecasts, self.batch_size)]
        if not frames:
            raise ValueError("the data set is empty: expected at least one series")
        return alike(pd.concat(frames, ignore_index=True), given)

    def read(
        self,
        dataset: Any,
        columns: Columns | Mapping[str, Any] | None = None,
        start: str = "common",
    ) -> tuple[Iterable[dict[str, Any]], Columns | None]:
        """Return the entries of a data frame whose future is wanted, and what its columns are.

        Entries are returned as they are, and None.

        Args:
            dataset: As `predict` takes it.
            columns: As `predict` takes it.
            start: As `predict` takes it.

        Raises:
            ValueError: If a frame, its columns or `start` is not as expected.
        """
        if start not in ("common", "each"):
            raise ValueError(f"expected start to be 'common' or 'each', got {start!r}")
        dataset = as_pandas(dataset)
        if not isinstance(dataset, pd.DataFrame):
            if columns is not None:
                raise ValueError(f"columns are those of a DataFrame, but the data are a {type(dataset).__name__}")
            return dataset, None
        roles = columns_of(self.columns if columns is None else columns)
        if roles.static_categories and self.categories is None:
            raise ValueError(
                f"expected no static_categories, got {', '.join(roles.static_categories)}: the model was not trained "
                "with a DataFrame, and the codes of its categories are not known; train with one, or give entries"
            )
        roles = self.roles_in(dataset, roles)
        task = read_task(
            dataset, self.freq, self.prediction_length, columns=roles, beyond=True, categories=self.categories
        )
        return (task.ending_together() if start == "common" else task).latest, task.columns

    def roles_in(self, source: Path | pd.DataFrame, roles: Columns) -> Columns:
        """Return roles of columns without covariates, where a table has none of these and forecasts use none."""
        effects = getattr(self.input_transform, "effects", None)
        is_used = len(self.input_transform.dynamic_units) > 0 or (effects is not None and effects.basis.signals)
        if is_used or not roles.covariates or brings_covariates(source, roles):
            return roles
        return replace(roles, covariates=())

    def impute(self, dataset: Iterable[dict[str, Any]], num_samples: int | None = None) -> Iterator[SampleForecast]:
        """Return joint samples of the missing values of every entry, given all that it has, in order.

        Args:
            dataset: GluonTS data entries; observed values come back as they are.
            num_samples: Number of samples; None for the model's own number.

        Returns:
            Samples of shape (sample, time), or (sample, time, target) of several targets, from the entry's start on.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        refuse_frame(dataset)
        yield from imputed(self.histories(), dataset, num_samples)

    def filter(self, dataset: Iterable[dict[str, Any]]) -> dict[str, LiveBelief]:
        """Return the belief about every series at the end of its history, to be kept and moved on.

        Args:
            dataset: GluonTS data entries, each with an `item_id` of its own. Covariates need not reach beyond the
                target.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        return self.update({}, dataset)

    def update(self, beliefs: Mapping[str, LiveBelief], dataset: Iterable[dict[str, Any]]) -> dict[str, LiveBelief]:
        """Return the beliefs after new observations, in time proportional to these and not to the history.

        Scales stay those of the history with which the filtering of a series began, which is at its first value. The
        beliefs given are not changed.

        Args:
            beliefs: Beliefs from `filter` or from an earlier update.
            dataset: Entries with what came since: each begins where its series ended, or later, and steps between are
                missing values. Static features need not be repeated. A series that is not known yet begins.

        Raises:
            ValueError: If an entry is not as expected or repeats what has been seen; the message names the series.
        """
        if self.is_on_clock:
            return self.on_clock.updated(beliefs, dataset)
        return updated(self.histories(), beliefs, dataset)

    def forecast_from(
        self,
        beliefs: Mapping[str, LiveBelief],
        dataset: Iterable[dict[str, Any]] | None = None,
        num_samples: int | None = None,
    ) -> Iterator[Forecast]:
        """Return forecasts from where the beliefs end.

        Args:
            beliefs: Beliefs from `filter` or `update`.
            dataset: Entries with `item_id` and, over the horizon, `feat_dynamic_real` (where the model has covariates)
                or `known_future`; they name the series and their order. None for all beliefs.
            num_samples: Number of sample paths; None for the model's own number. With 0 none are drawn, where quantiles
                are exact (`ExactForecast`).

        Raises:
            ValueError: If a series is not known, or covariates do not fit; the message names the series.
        """
        return forecasts_from(self.histories(), beliefs, dataset, num_samples)

    @property
    def has_marginals(self) -> bool:
        """Return whether quantiles of forecasts are those of a mixture in closed form, and need no sample paths."""
        return not self.totals and self.prediction_net.inference.has_marginals

    @property
    def is_on_clock(self) -> bool:
        """Return whether it is of series with clocks of their own."""
        return isinstance(self.input_transform, Clock)

    @property
    def on_clock(self) -> TimedHistories:
        """Return the answers at any times that the model gives of series with clocks of their own.

        Raises:
            ValueError: If it is of series on a grid.
        """
        if not isinstance(self.input_transform, Clock):
            raise ValueError("expected a predictor of series with clocks of their own, got one of series on a grid")
        net, columns = self.prediction_net.eval(), columns_of(self.columns)
        sizes = (self.prediction_length, self.batch_size)
        return TimedHistories(net, self.input_transform, *sizes, columns, self.categories or {})  # pyright: ignore

    def histories(self) -> Histories:
        """Return the way from entries to batches, beliefs and forecasts, by this model.

        Raises:
            ValueError: If it is of series with clocks of their own, or of running totals.
        """
        if self.totals:
            raise ValueError(
                "the series are running totals, and the model is one of their increments: it forecasts totals, and "
                "nothing else; give their increments as data, or train a model of totals: `tsforecast train bank "
                "--data FILE`, in Python Forecaster(model='bank'), or totals=False of 'auto'"
            )
        return self._histories()

    def _histories(self) -> Histories:
        if self.is_on_clock:
            raise ValueError(
                "expected a predictor of series on a grid, got one of series with clocks of their own: its `on_clock` "
                "answers at any times"
            )
        return Histories(
            self.prediction_net.eval(),
            self.input_transform,
            self.prediction_length,
            self.freq,
            self.batch_size,
            self.history_length,
            self.device,
            self.direct,
        )


def with_module(predictor: StateSpacePredictor, module: AbstractForecaster) -> StateSpacePredictor:
    """Return a predictor of other weights for the same data."""
    return _changed(predictor, prediction_net=module)


def with_prediction_length(predictor: StateSpacePredictor, prediction_length: int) -> StateSpacePredictor:
    """Return a predictor of the same weights for another horizon."""
    transform = _prepared(predictor, prediction_length=prediction_length)
    return _changed(predictor, input_transform=transform, prediction_length=prediction_length)


def with_effects(predictor: StateSpacePredictor, effects: Effects | None) -> StateSpacePredictor:
    """Return a predictor of the same weights behind other effects of covariates; None for none."""
    record = None if effects is None else effects.record
    return _changed(predictor, input_transform=_prepared(predictor, effects=record))


def _prepared(predictor: StateSpacePredictor, **others: Any) -> Prepare:
    """Return the transformation of a predictor with other arguments."""
    old: Any = predictor._histories().transform
    return Prepare(**{**old.__init_args__, **others})


def _changed(predictor: StateSpacePredictor, **others: Any) -> StateSpacePredictor:
    """Return a predictor with other arguments."""
    return StateSpacePredictor(**{name: getattr(predictor, name) for name in declared(StateSpacePredictor)} | others)


def save_predictor(predictor: StateSpacePredictor, folder: str | Path) -> None:
    """Writes a predictor by its `serialize`; an existing folder is replaced whole."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(folder) as scratch:
        predictor.serialize(scratch)


def load_predictor(folder: str | Path, device: str = "auto") -> StateSpacePredictor:
    """Reads what `save_predictor` or `StateSpacePredictor.serialize` wrote, onto any device; no code of it is run.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it is damaged, of another program or of another format, or if there is no such device.
    """
    return StateSpacePredictor.deserialize(Path(folder), find_device(device))
