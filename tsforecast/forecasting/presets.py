"""Presets of the switching models: all their settings under one name, by model and frequency."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tsforecast.data.calendar.frequency import calendar_unit, default_season
from tsforecast.forecasting.lengths import context_by_frequency
from tsforecast.models import MODELS, options_of

SWITCHING = ("sgls", "rsgls", "rsgls-issm", "arsgls", "kvae-rb", "kvae-mc")  # models that have presets
OF_CATEGORIES = ("sgls", "rsgls-issm", "arsgls")  # those whose switch may be categorical
BEST = "best"
NONE = "none"
PRESETS = (BEST, "fast", "paper", NONE)
# Length of a training: that of a bank begins with what other series have taught, that of a `markov` by EM.
DEFAULT_EPOCHS = 40
EPOCHS = {"bank": 8, "markov": 4}
EPOCHS_OF_CATEGORIES = 2
_OF_REGIMES = 400  # steps of windows that hold several regimes
_LINEAR = 0.85  # share of a training of a given length in which the linear model inside is trained alone

_DISCRETE = ("negative-binomial", "bernoulli")
_OF_LINEAR = (  # options that the linear model inside wants
    "skip", "linear_epochs", "linear_share", "particle_length", "learning_rate", "matrix_learning_rate",
)  # fmt: skip

Options = dict[str, Any]


def preset(
    model: str,
    freq: str,
    prediction_length: int,
    name: str = BEST,
    max_epochs: int | None = None,
    num_targets: int = 1,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Options:
    """Return the options of a preset: those of the model, of the estimator, and `max_epochs` and `gradient_clip_val`.

    - `best`: the linear model inside is trained first, alone and in closed form, on the CRPS of its forecasts. Then all
      learns on paths of switches, through the last two horizons of a window; regimes last, and the gradient counts that
      particles are drawn again. Below a day one target has components beside a small dense state. Where data show
      regimes, it is that of `of_categories`.
    - `fast`: the same with half of the epochs of the linear model, five of all, and five particles. Learning rates fall
      faster where the loss falls no longer.
    - `paper`: the objective, windows and batches of the switching-model papers, with the defaults of the model.
    - `none`: no option beside these defaults.

    Args:
        model: One of `SWITCHING`.
        freq: Frequency as `pandas.Period` names it.
        prediction_length: Steps of a forecast.
        name: One of `PRESETS`.
        max_epochs: Length of the training, where it is given: the linear model has most of it.
        num_targets: Number of targets of a series; components are a sum, of one.
        given: Options that the caller has chosen: the kind of switch and the likelihood decide how a model is trained.

    Raises:
        ValueError: If there is no such preset, or the model has none.
    """
    if model not in SWITCHING:
        raise ValueError(f"{model!r} has no presets, only {', '.join(SWITCHING)} have")
    check(model, name)
    below_a_day = calendar_unit(freq)[1] in ("h", "min") and default_season(freq) > 1
    if name == NONE:
        return {}
    if name == "paper":
        found = _paper(model, freq, below_a_day)
    else:
        found = _best(model, freq, prediction_length, below_a_day, num_targets)
    if name == "fast":
        linear = found["linear_epochs"] // 2
        found |= {"linear_epochs": linear, "max_epochs": linear + 5, "num_particles": 5, "forecast_particles": 10}
        found |= {"plateau": 0.005}
    found = _following(found, given)
    if max_epochs is not None and "linear_epochs" in found:
        found |= {"max_epochs": max_epochs, "linear_epochs": min(found["linear_epochs"], int(_LINEAR * max_epochs))}
    return _known(model, found)


def _known(model: str, found: Options) -> Options:
    """Return those options that a model, the estimator or the trainer has."""
    known = {*options_of(MODELS[model]), *_OF_RUN}
    return {option: value for option, value in found.items() if option in known}


def check(model: str, name: str) -> None:
    """Raise a ValueError for a name that is no preset, or one of a model that has none, unless it is `best`."""
    if name not in PRESETS:
        raise ValueError(f"expected a preset among {', '.join(PRESETS)}, got {name!r}")
    if model not in SWITCHING and name not in (BEST, NONE):
        raise ValueError(f"{model!r} has no presets, only {', '.join(SWITCHING)} have")


_OF_RUN = (
    "max_epochs", "gradient_clip_val", "context_length", "train_horizon", "history_length", "batch_size",
    "num_batches_per_epoch", "plateau",
)  # fmt: skip


def _best(model: str, freq: str, horizon: int, below_a_day: bool, num_targets: int) -> Options:
    """Return the options of `best`."""
    found: Options = {
        "objective": "crps",
        "network_learning_rate": 0.01,
        "persistence": 0.95,
        "resampling_gradient": "stop-gradient",
        "gradient_length": 2 * horizon,
    }
    if model == "rsgls-issm":
        found |= {"num_bases": 10, "switch_dim": 4, "proposal": "bootstrap", "recurrence": "none"}
        found |= {"gradient_clip_val": 1.0, "batch_size": 32, "num_batches_per_epoch": 10}
        found |= {"linear_epochs": 40, "max_epochs": 60}
        if below_a_day:
            found |= {"particle_length": 7 * default_season(freq), "num_particles": 5, "forecast_particles": 20}
        return found
    found |= {"skip": True, "stable": True, "matrix_learning_rate": 0.003}
    if below_a_day and num_targets == 1:
        found |= {"components": "auto", "state_dim": 4, "num_bases": 10, "switch_dim": 4, "series_scales": True}
        found |= {"learning_rate": 0.1, "gradient_clip_val": 1.0, "batch_size": 32, "num_batches_per_epoch": 10}
        found |= {"particle_length": min(7 * default_season(freq), 168), "num_particles": 5, "forecast_particles": 20}
        return found | {"linear_share": 0.0, "linear_epochs": 40, "max_epochs": 50}
    if below_a_day:
        context = min(28 * default_season(freq), 672)
        found |= {"context_length": context, "train_horizon": 3 * horizon, "history_length": 2 * context}
        found |= {"batch_size": 64, "num_batches_per_epoch": 4, "learning_rate": 0.1, "gradient_clip_val": 10.0}
        found |= {"series_scales": True, "linear_share": 0.0, "particle_length": min(7 * default_season(freq), 168)}
        return found | {"linear_epochs": 200, "max_epochs": 230}
    history = max(12 * horizon, context_by_frequency(freq, 0))  # as long as a window of training
    found |= {"history_length": history, "batch_size": 32, "num_batches_per_epoch": 16, "gradient_clip_val": 1.0}
    return found | {"learning_rate": 0.05, "linear_epochs": 30, "max_epochs": 42}


def of_categories(model: str, max_epochs: int | None = None) -> Options:
    """Return the options of `best` with a categorical switch, whose sizes and units the data say.

    Training begins at regimes that EM has found, so it is short.
    """
    found: Options = {"switch": "categorical", "objective": "likelihood", "persistence": 0.95}
    found |= {"learning_rate": 0.01, "network_learning_rate": 0.001, "matrix_learning_rate": 0.0005}
    found |= {"context_length": _OF_REGIMES, "history_length": _OF_REGIMES, "hidden": 8, "embedding_dim": 2}
    found |= {"num_particles": 50}
    found |= {"batch_size": 32, "num_batches_per_epoch": 8, "gradient_clip_val": 1.0}
    return _known(model, found | {"max_epochs": EPOCHS_OF_CATEGORIES if max_epochs is None else max_epochs})


def _following(found: Options, given: Mapping[str, Any]) -> Options:
    """Return the options as a kind of switch or a likelihood wants them.

    Paths of categories and of counts have no derivative: the likelihood teaches them. A likelihood that is not Gaussian
    has no linear model inside, whose epochs and rates are left out.
    """
    if given.get("switch") == "categorical" or given.get("likelihood") in _DISCRETE:
        found = found | {"objective": "likelihood"}
    if given.get("likelihood", "gaussian") == "gaussian":
        return found
    return {name: value for name, value in found.items() if name not in _OF_LINEAR} | {"transformation": "none"}


def _paper(model: str, freq: str, below_a_day: bool) -> Options:
    """Return the options of `paper`."""
    context = 7 * default_season(freq) if below_a_day else 120
    found: Options = {"context_length": context, "history_length": 2 * context, "batch_size": 50}
    found |= {"num_batches_per_epoch": 8, "max_epochs": 40}
    return found | ({"components": "paper", "learning_rate": 0.005} if model == "rsgls-issm" else {})
