"""The estimator of all models, on a grid of time and in continuous time."""

import inspect
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gluonts.torch.model.estimator import TrainOutput

from tsforecast.data.calendar.frequency import period_alias
from tsforecast.data.irregular import nanoseconds
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting import presets, regime_choice
from tsforecast.forecasting.arguments import AUTO, recorded
from tsforecast.forecasting.candidates import Candidate
from tsforecast.forecasting.clock_training import ClockTraining, default_epochs
from tsforecast.forecasting.direct import check_share
from tsforecast.forecasting.gluonts_estimator import AbstractEstimator
from tsforecast.forecasting.grid_training import BATCH, CURVES, GIVEN, NO_EFFECTS, GridTraining
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.resolution import choose, left, of_candidate, with_effects_chosen, with_preset, with_regimes
from tsforecast.forecasting.selection import Selection
from tsforecast.forecasting.totals import SUMMED, are_totals
from tsforecast.forecasting.trials import WEIGHTS
from tsforecast.models.bounds import at_least, one_of
from tsforecast.wording import listed

log = logging.getLogger(__name__)

_UNKNOWN = "D"  # the frequency by which options are checked while that of the data is not known
_ON_CLOCK = (100, 32)  # observations of the past of a window, and windows of a batch
# Arguments that mean the same for series with clocks of their own.
_OF_BOTH = (
    "model", "horizon", "context_length", "batch_size", "num_batches_per_epoch", "num_samples", "seed", "plateau",
    "time_budget", "trainer_kwargs",
)  # fmt: skip


class StateSpaceEstimator(AbstractEstimator):
    """Trains a model on a GluonTS data set.

    Examples:
        >>> estimator = StateSpaceEstimator(model="issm", freq="h", prediction_length=24)  # doctest: +SKIP
        >>> forecasts = estimator.train(dataset).predict(dataset)  # doctest: +SKIP
        >>> estimator = StateSpaceEstimator(model="issm", horizon="6h")  # doctest: +SKIP
        >>> frame = estimator.train(table).predict_frame(table, every="10min")  # doctest: +SKIP

    Args:
        model: A name in `tsforecast.models.MODELS`; or "auto", by which the data choose a model and its options on
            windows before their end, see `tsforecast.forecasting.selection`. It takes no hyperparameters. With a
            horizon, a name in `tsforecast.models.continuous.TIMED`.
        freq: Frequency of the data, in any of its names; None for what the training data show.
        prediction_length: Steps of a forecast.
        horizon: Time of a forecast, such as "6h" or in nanoseconds, of series with clocks of their own, whose
            observations need no grid; "auto" for a share of the time of the median series. Windows then have 100
            observations of the past, a batch has 32, and options of grids are refused. None for series on a grid.
        preset: Settings of a switching model by frequency and data: best, fast, paper or none, see
            `tsforecast.forecasting.presets`. Options that are given and are not None win. Other models have none.
        context_length: Steps of the past in a training window, at most; 0 for all of the training part. None chooses by
            frequency: four weeks of hours or minutes, 120 days, 250 business days, otherwise ten seasons or 100 steps;
            or the cycle of a smooth season such as a year, up to 2000 steps, if that is longer. `markov` has 1000.
        train_length: Steps at the end of each series that are trained on, at most, since noises of long ago may
            mislead; 0 for everything. None chooses by frequency: eight weeks of hours or minutes, otherwise everything;
            and everything for `issm`, if the cycle of a smooth season would not fit in twice, or if a covariate varies
            only before.
        train_horizon: Steps of the future that a training window scores. More of them help where seasons are all there
            is to learn, and cost windows where series are short. None for `prediction_length`; and for three times as
            many in a `gls` of one target without seasonal components, where steps are hours or minutes and series long.
        history_length: Steps of the history that a prediction filters, at most; None for all, or the last 20,000
            steps below a day.
        batch_size: Number of windows in a batch, at most; None for 64.
        num_batches_per_epoch: Batches in an epoch; None for one pass over the data, and at least four batches. At most
            25 where no parameter belongs to a series (`bank`).
        num_samples: Number of sample paths of a forecast. Quantiles of linear models are exact, and need none.
        seed: Seed of the initial weights, the order of the data and what is drawn in training; None for not
            reproducible.
        plateau: Relative fall of the loss, from an eighth of the training to the next, below which learning rates fall
            four times as fast; 0 or None for never. See `tsforecast.forecasting.pace`.
        time_budget: Seconds for the training: learning rates fall faster where it would take longer. "auto" begins no
            further comparison after half of them. None for no bound.
        models: Models that "auto" compares, joined by ",", with all their variants: bank, issm, gls, rsgls-issm,
            markov, sgls. None for a short list of likely ones.
        series_weights: Of series in the score by which "auto" chooses: "sum" for the sum of losses, in which large
            series count more, as in the weighted quantile loss; "equal" for losses in units of each series' seasonal
            error.
        use_feat_static_cat: Whether the model has parameters for the static categories of the training data. If so, a
            series without them is forecast as of an unknown category, with a warning; if not, the field is ignored.
        effects: Of covariates: "curves" are fitted in closed form and taken from the targets, see
            `tsforecast.data.effects`, and the model sees what is left; "given" leaves covariates to the model, which
            has a straight line for each, or a network; "none" leaves them out. "auto" takes curves of one target,
            or leaves covariates out where curves worsen forecasts of windows before the end. `deepstate`, `sgls`,
            `rsgls`, models with a decoder, and a `markov` whose regimes depend on covariates are given them.
        direct: Share, between 0 and 1, of direct forecasts in a mixture with those of the model: ridge regressions on
            the days before, of series of hours, minutes or seconds, see `tsforecast.forecasting.direct`; of others
            models of low counts, see `tsforecast.forecasting.counts`.
        totals: Whether series are running totals, whose increments are modelled, forecast and summed, see
            `tsforecast.forecasting.totals`. None for what "auto" finds in the data, and not for other models.
        trainer_kwargs: Options of Lightning's `Trainer` (default: 40 epochs, 8 of a bank, 4 of `markov`, 60 of models
            with a switch on a clock, gradient clipped at 10, no files written). With 0 epochs a bank learns nothing but
            the weights of its structures, by the past of each series.
        hyperparameters: Hyperparameters of the model.

    Raises:
        ValueError: If a model or hyperparameter is not known.
    """

    selection: Selection | None = None  # of a model, once "auto" has made it

    @recorded
    def __init__(
        self,
        model: str = "issm",
        freq: str | None = None,
        prediction_length: int = 24,
        *,
        horizon: str | int | None = None,
        preset: str = "best",
        context_length: int | None = None,
        train_length: int | None = None,
        train_horizon: int | None = None,
        history_length: int | None = None,
        batch_size: int | None = None,
        num_batches_per_epoch: int | None = None,
        num_samples: int = 100,
        seed: int | None = None,
        plateau: float | None = None,
        time_budget: float | None = None,
        models: str | None = None,
        series_weights: str = "sum",
        use_feat_static_cat: bool = True,
        effects: str = AUTO,
        direct: float = 0.0,
        totals: bool | None = None,
        trainer_kwargs: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(trainer_kwargs={} if trainer_kwargs is None else trainer_kwargs)
        at_least(1, train_horizon=train_horizon, history_length=history_length, batch_size=batch_size)
        at_least(1, num_batches_per_epoch=num_batches_per_epoch)
        at_least(0, context_length=context_length, train_length=train_length, plateau=plateau, time_budget=time_budget)
        one_of(WEIGHTS, series_weights=series_weights)
        one_of((AUTO, CURVES, GIVEN, NO_EFFECTS), effects=effects)
        check_share(direct)
        self.model, self.preset, self.models, self.seed, self.effects = model, preset, models, seed, effects
        self.direct, self.totals = direct, totals
        self.plateau, self.time_budget = plateau or 0.0, time_budget
        self.prediction_length, self.history_length = prediction_length, history_length
        self.use_feat_static_cat = use_feat_static_cat
        self.hyperparameters = {**hyperparameters, "num_samples": num_samples}
        self.on_clock: ClockTraining | None = None
        if horizon is not None:
            self._refuse_grid_options()
            at_least(1, context_length=context_length)
            self.max_epochs = self.trainer_kwargs.get("max_epochs", default_epochs(model))
            self.on_clock = ClockTraining(
                model,
                None if horizon == AUTO else nanoseconds(horizon, "horizon") if isinstance(horizon, str) else horizon,
                context_length or _ON_CLOCK[0],
                batch_size or _ON_CLOCK[1],
                num_batches_per_epoch,
                seed,
                self.max_epochs,
                self.hyperparameters,
            )
            return
        self.max_epochs = presets.EPOCHS.get(model, presets.DEFAULT_EPOCHS)
        presets.check(model, preset)
        self.freq = period_alias(_UNKNOWN if freq is None else freq)
        checked = "bank" if model == AUTO else model
        sizes = (batch_size or BATCH, num_batches_per_epoch, seed)
        made = GridTraining(checked, self.freq, prediction_length, self.hyperparameters, *sizes)
        self.on_grid = made.with_lengths(context_length, train_length, train_horizon)

    def _refuse_grid_options(self) -> None:
        usual = inspect.signature(StateSpaceEstimator).parameters
        given = (name for name in usual if name not in (*_OF_BOTH, "hyperparameters"))
        _refuse_on_clock(name for name in given if self.__init_args__[name] != usual[name].default)

    def _find_freq(self, data: Any, columns: Columns | Mapping[str, Any] | None = None) -> None:
        """Takes the frequency of the data where none was given, and what depends on it."""
        if self.__init_args__["freq"] is None:
            StateSpaceEstimator.__init__(self, **{**self.__init_args__, **self.derive_auto_fields(data, columns)})

    def _find_totals(self, data: Any) -> None:
        """Takes from the data whether they are running totals, for "auto"."""
        if self.model == AUTO and self.totals is None:
            self.on_grid.check(data, self.on_grid.train_horizon)
            self.totals = are_totals(data)
            if self.totals:
                log.info(SUMMED)

    def train_model(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        training_data: Any,
        validation_data: Any = None,
        from_predictor: StateSpacePredictor | None = None,
        shuffle_buffer_length: int | None = None,
        cache_data: bool = False,
        ckpt_path: str | Path | None = None,
        num_workers: int | None = None,
        num_prefetch: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> TrainOutput:
        """Trains and returns the last weights, or with validation data those of the lowest validation loss.

        Unlike in GluonTS' own, a failure raises, callbacks survive a second call, and nothing is written unless asked
        for. A run with a seed that was stopped can go on from `ckpt_path` to the result of the uninterrupted run. It
        has to checkpoint every epoch, with `ModelCheckpoint(save_last=True)` among the callbacks.

        Args:
            training_data: GluonTS data entries; or a DataFrame in long format, a row for each series and time stamp,
                see `tsforecast.data.read_task`. With a horizon, entries with `times`, see `tsforecast.data.irregular`;
                a DataFrame, a row for each observation; or a task, whose test windows are left out.
            validation_data: Likewise; the last `prediction_length` steps of each, and what comes before, are scored.
            from_predictor: Start from its weights.
            shuffle_buffer_length: Windows among which the order is shuffled.
            cache_data: Keep the prepared entries in memory.
            ckpt_path: Checkpoint of a run to go on with.
            num_workers: Passed on to `create_training_data_loader`, as is the next. Its own loader needs no workers:
                making windows is a small part of a training.
            num_prefetch: Likewise.
            columns: What the columns of a DataFrame are: `tsforecast.data.Columns`, or a mapping such as
                {"item": "shop", "timestamp": "day", "target": "sales", "covariates": ["price"]}. None for what is found
                by usual names (item_id, timestamp, target; unique_id, ds, y; ...).

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        if self.on_clock is not None:
            others = {"shuffle_buffer_length": shuffle_buffer_length, "num_workers": num_workers}
            given = {"validation_data": validation_data, "from_predictor": from_predictor, **others}
            _refuse_on_clock(name for name, value in given.items() if value is not None)
            module, loader, predictor = self.on_clock.begun(training_data, columns_of(columns))
            trainer = self._fitted(module, loader, None, ckpt_path)
            module.eval()
            return TrainOutput(predictor.input_transform, module, trainer, predictor)  # pyright: ignore[reportArgumentType]
        self._find_freq(training_data, columns)
        training_data, validation_data = self._entries(training_data, validation_data, columns, from_predictor)
        if self.model == AUTO and from_predictor is not None:
            raise ValueError("'auto' chooses a model anew: to start from weights, give the model of the predictor")
        if from_predictor is not None:
            if self.totals not in (None, from_predictor.totals):
                raise ValueError(f"expected totals={from_predictor.totals} as in the predictor, got {self.totals}")
            self.totals = from_predictor.totals
        settled = self.settled(training_data, from_predictor)
        workers = {"num_workers": num_workers, "num_prefetch": num_prefetch}
        settled._columns, settled._categories = self._columns, self._categories
        settled.columns_of_entries = self.columns_of_entries
        data = (training_data, validation_data, from_predictor)
        return settled._trained_on_grid(*data, shuffle_buffer_length, cache_data, ckpt_path, workers)

    def settled(
        self, data: Iterable[dict[str, Any]], from_predictor: StateSpacePredictor | None = None
    ) -> "StateSpaceEstimator":
        """Return the estimator with all that data decide: effects, a model for "auto", a preset, lags of a `markov`.

        It is the estimator itself where data decide nothing. `selection` has what was compared.

        Args:
            data: GluonTS data entries, all of whose values may be looked at.
            from_predictor: A predictor from whose weights the training starts, whose regimes a `markov` then keeps.

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        if self.on_clock is not None:
            return self
        self._find_freq(data)
        self._find_totals(data)
        if self.effects == AUTO and from_predictor is None and self.on_grid.takes_effects(data):
            decided = with_effects_chosen(self, data)
            found = decided.settled(data)
            self.selection = decided.selection
            return found
        if self.model == AUTO:
            began = time.monotonic()
            return of_candidate(self, self.choose(data).chosen, left(self, began)).settled(data)
        if self.model == regime_choice.MODEL and regime_choice.undecided(self.hyperparameters):
            return with_regimes(self, data, from_predictor)
        if self.model not in presets.SWITCHING or self.preset == presets.NONE:
            return self
        found, self.selection = with_preset(self, data, from_predictor)
        return found

    def choose(self, data: Iterable[dict[str, Any]], compared: Sequence[Candidate] | None = None) -> Selection:
        """Return the model and options that the data choose, see `tsforecast.forecasting.selection`.

        Args:
            data: GluonTS data entries, all of whose values may be looked at.
            compared: Candidates, the most likely first; None for those of `models`.

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        self._find_freq(data)
        self._find_totals(data)
        self.selection = choose(self, data, compared)
        return self.selection


def _refuse_on_clock(names: Iterable[str]) -> None:
    """Refuse arguments of series on a grid."""
    if found := listed(names):
        raise ValueError(f"with a horizon series have clocks of their own, and no grid: leave out {found}")
