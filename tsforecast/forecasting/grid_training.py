"""The training of models on a grid of time: their sizes, and the windows that they see."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from gluonts.itertools import Cached, Map

from tsforecast.core import kernels
from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.checks import check_entries, refuse_endless
from tsforecast.data.effects.effects import COVARIATES, Effects
from tsforecast.data.effects.fitting import fit_effects, no_effects
from tsforecast.data.past import PAST, count_past, with_past
from tsforecast.data.tables.roles import Columns
from tsforecast.data.transform import Prepare
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.data_summary import (
    DataSummary,
    adopt,
    check_order,
    common_units,
    largest_move,
    lengths_of,
    say_late,
    summarise,
    typical_change,
    typical_length,
    varies_only_before,
)
from tsforecast.forecasting.lengths import are_long, context_by_frequency, far_by_frequency, recent_by_frequency
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import MODELS, AbstractForecaster, make_model, options_of
from tsforecast.models.parts.component_names import longest_cycle, refuse_still
from tsforecast.models.parts.units import largest_value
from tsforecast.models.transformations import transformation_of
from tsforecast.nn.decoders import DECODERS

log = logging.getLogger(__name__)

BATCH = 64
_LONG_CONTEXT = 1000
CURVES, GIVEN, NO_EFFECTS = "curves", "given", "none"
# Models from whose targets effects are taken by default: not those whose networks read covariates, and bend themselves.
_CURVED = ("bank", "gls", "issm", "markov", "pool", "rsgls-issm")
# What the targets of a likelihood must be; that of a `markov` has no decoder.
_SUPPORTS = {name: decoder.support for name, decoder in DECODERS.items()} | {"poisson": "counts"}
_UNBOUNDED = ("auto", "none", "symlog", "symsqrt", "asinh")  # transformations of any number


@dataclass(frozen=True)
class GridTraining:
    """The training of a model on a grid of time, as `StateSpaceEstimator` says."""

    model: str
    freq: str
    prediction_length: int
    hyperparameters: Mapping[str, Any]
    batch_size: int
    num_batches_per_epoch: int | None
    seed: int | None
    context_length: int = 0
    train_length: int = 0
    train_horizon: int = 1
    recent: int = 0  # what `train_length` was by frequency; 0 where it was given
    far: int = 0  # what `train_horizon` may become where the data have room; 0 where it may not
    summary: DataSummary | None = None  # of the training data, once there are some
    change: float = 1.0  # of the training data, see `typical_change`
    horizons: float = 0.0  # in the median of their lengths
    move: float = 0.0  # of the training data, see `largest_move`
    # One centre and one unit of all training data, where the model is scaled by these.
    units: Mapping[str, float] = field(default_factory=dict)
    num_past: int = 0  # covariates whose past alone is known, which are further targets
    # Effects of covariates, which are taken from the targets; None where the model takes the covariates.
    effects: Effects | None = None

    def with_lengths(
        self, context_length: int | None, train_length: int | None, train_horizon: int | None, device: str = "meta"
    ) -> "GridTraining":
        """Return the training with lengths of windows, by frequency where they are None.

        Args:
            context_length: Steps of the past in a window.
            train_length: Steps at the end of each series that are trained on.
            train_horizon: Steps of the future in a window.
            device: Of the model that checks the options. On "meta" it allocates nothing, but torch imports what
                programs are compiled with, in seconds.
        """
        # Making a model refuses bad options before data are read.
        with torch.random.fork_rng(devices=[]), torch.device(device):
            options = {**self.hyperparameters, "freq": self.freq, "prediction_length": self.prediction_length}
            dynamics = make_model(MODELS[self.model], **options).dynamics
        seasons = dynamics.season_names
        cycle = longest_cycle(seasons, self.freq)
        # Errors a week ahead are seen once a week: eight weeks do not say how large they are.
        usual_length = 0 if dynamics.takes_all else recent_by_frequency(self.freq, cycle)
        recent = usual_length if train_length is None else train_length
        # Regimes last: windows of `markov` hold several of them.
        usual = _LONG_CONTEXT if self.model == "markov" else context_by_frequency(self.freq, cycle)
        # No calendar tells a `gls` which day it is, so it is trained farther ahead where the data have room.
        farther = self.model == "gls" and not seasons and train_horizon is None
        return replace(
            self,
            context_length=usual if context_length is None else context_length,
            train_length=recent,
            train_horizon=self.prediction_length if train_horizon is None else train_horizon,
            recent=recent if train_length is None else 0,  # which covariates may want more of
            far=far_by_frequency(self.freq, self.prediction_length) if farther else 0,
        )

    def check(self, data: Any, future: int, is_trained: bool = True) -> None:
        """Refuse data with which the model could not be trained, or validated, on so many steps of the future.

        One series that is longer is enough.
        """
        refuse_endless(data)
        for name in ("components", "structures"):
            refuse_still(str(self.hyperparameters.get(name, "")), self.freq)
        support = _SUPPORTS.get(self.hyperparameters.get("likelihood", ""), "real")
        largest = largest_value(self.hyperparameters.get("transformation", "none"), support)
        check_entries(data, self.freq, min_longest=future + 1, support=support, largest=largest)
        if is_trained:
            check_order(self.hyperparameters.get("order") or 0, data)

    def takes_effects(self, data: Any) -> bool:
        """Return whether effects of covariates are taken from the data by default: from one target."""
        first = next(iter(data), None) or {}
        usual = takes_curves(self.model, self.hyperparameters)
        return usual and len(first.get(COVARIATES, ())) > 0 and np.ndim(first["target"]) == 1

    def with_effects(
        self,
        data: Any,
        wanted: str | Effects,
        from_predictor: StateSpacePredictor | None,
        columns: Columns | None = None,
    ) -> "GridTraining":
        """Return the training with the effects of covariates that are taken from targets before the model sees them.

        Args:
            data: GluonTS data entries.
            wanted: Effects that have been fitted; or "curves", "given", "none" or "auto", see `StateSpaceEstimator`.
            from_predictor: A predictor to start from, whose effects stay.
            columns: By which the log names covariates.
        """
        if from_predictor is not None:
            known = from_predictor.input_transform
            return replace(self, effects=known.effects if isinstance(known, Prepare) else None)
        if isinstance(wanted, Effects):
            return replace(self, effects=wanted)
        first = next(iter(data), None) or {}
        if wanted == GIVEN or not len(first.get(COVARIATES, ())):
            return self
        if wanted == AUTO and not self.takes_effects(data):
            if np.ndim(first["target"]) > 1:
                log.info("covariates are given to %s as they are: there are several targets", self.model)
            return self
        self.check(data, self.prediction_length if self.far else self.train_horizon)
        found = no_effects(data, self.freq) if wanted == NO_EFFECTS else fit_effects(data, self.freq)
        if found is None:
            log.info("covariates are given to %s as they are: none varies", self.model)
        else:
            names = (columns or Columns()).names_ahead(found.num_covariates)
            log.info("%s", "covariates are left out" if wanted == NO_EFFECTS else found.told(names))
        return replace(self, effects=found)

    def with_past(self, data: Any) -> "GridTraining":
        """Return the training with the number of past-only covariates of the data."""
        return replace(self, num_past=count_past(data))

    def adjusted(self, data: Any) -> Any:
        """Return entries without the effects of covariates, and with past-only ones as targets."""
        if data is not None and self.effects is not None:
            data = Cached(Map(self.effects.adjusted, data))  # pyright: ignore[reportArgumentType]
        return data if data is None or not self.num_past else Map(with_past, data)

    def for_data(
        self, data: Any, use_feat_static_cat: bool, from_predictor: StateSpacePredictor | None
    ) -> "GridTraining":
        """Return the training with all that the data say, which are checked; it fits the predictor to start from."""
        self.check(data, self.prediction_length if self.far else self.train_horizon)
        found = summarise(data, use_feat_static_cat)
        change = typical_change(data, default_season(self.freq))
        say_late(data)
        horizon, length = self.train_horizon, self.train_length
        if self.far > self.prediction_length:
            fits = found.num_targets == 1 and are_long(lengths_of(data), self.freq)
            horizon = self.far if fits else self.prediction_length
        if self.recent:
            length = 0 if varies_only_before(data, self.recent) else self.recent
        transformation_of(self.hyperparameters.get("transformation", "none")).check(found.lowest, found.highest)
        units = {}
        if self.hyperparameters.get("scaling") == "training":
            given = self.hyperparameters.get("transformation", "auto")
            units = common_units(data, found.auto["transformation"] if given == "auto" else given)
            known = getattr(from_predictor, "network", None)
            units = {name: getattr(known, "hyperparameters", units)[name] for name in units}
        return replace(
            self,
            train_horizon=horizon,
            train_length=length,
            summary=found if from_predictor is None else adopt(found, from_predictor),
            change=change,
            horizons=typical_length(data) / self.prediction_length,
            move=largest_move(data, self.prediction_length, change),
            units=units,
        )

    @property
    def known(self) -> DataSummary:
        """Return the summary of the training data; a ValueError before a training."""
        if self.summary is None:
            raise ValueError(
                "expected training data first, which decide the sizes of the model: call train, or train_model, which "
                "also returns the module; or make one of given sizes by tsforecast.models.MODELS"
            )
        return self.summary

    @property
    def is_lengthened(self) -> bool:
        """Return whether all steps are trained on since a covariate varies in early ones alone."""
        return self.recent > 0 and self.train_length == 0

    def preparation(self, seasons: Iterable[str]) -> Prepare:
        """Return the transformation from entries to arrays, with these seasons."""
        found = self.known
        sizes = (found.items, found.cardinality, found.static_units, found.dynamic_units, found.num_targets)
        effects = None if self.effects is None else self.effects.record
        return Prepare(self.prediction_length, list(seasons), *sizes, effects, self.num_past)

    def module(self) -> AbstractForecaster:
        """Return the untrained model."""
        found = self.known
        options = {
            **found.sizes,
            "freq": self.freq,
            "prediction_length": self.prediction_length,
            "scaling_length": self.context_length,  # a long history is scaled like a training window
            "season": default_season(self.freq),
            "typical_change": self.change,
            "typical_horizons": self.horizons,
            "largest_move": self.move,
            **self.units,
            **{
                name: value
                for name, value in found.auto.items()
                if name in options_of(MODELS[self.model]) and self.hyperparameters.get(name, "auto") == "auto"
            },
        }
        try:
            return make_model(MODELS[self.model], **{**self.hyperparameters, **options, "seed": self.seed})
        except ValueError as error:
            if not self.num_past:
                raise
            raise ValueError(f"{error}; covariates whose past alone is known are further targets ({PAST})") from error

    def predictor(self, module: AbstractForecaster | None = None) -> StateSpacePredictor:
        """Return a predictor by a model of this training; None for the untrained one."""
        module = (self.module() if module is None else module).eval()
        sizes = self.prediction_length, self.freq, self.batch_size
        return StateSpacePredictor(module, self.preparation(module.dynamics.season_names), *sizes)


def takes_curves(model: str, options: Mapping[str, Any]) -> bool:
    """Return whether effects of covariates are taken from the targets of a model with these options by default.

    Regimes that differ in effects, or change by covariates, take these as they are.
    """
    numbers = options.get("transformation", "auto") in _UNBOUNDED
    numbers &= (options.get("likelihood") or "gaussian") == "gaussian"
    by_regime = "effects" in (options.get("switching") or AUTO).split("+") or options.get("transition_covariates")
    return model in _CURVED and numbers and not by_regime


def build_kernels() -> None:
    """Build what makes filters several times faster on a CPU, once on a machine."""
    if kernels.can_build():
        log.info("compiling the steps of filters for this processor, once: a quarter of a minute")
        kernels.build()
