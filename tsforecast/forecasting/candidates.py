"""What `auto` compares: models, and their options."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsforecast.data.calendar.frequency import calendar_unit, default_season
from tsforecast.data.low_counts import are_mostly_low
from tsforecast.data.past import PAST
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.direct import SHARE, has_days, is_long
from tsforecast.forecasting.lengths import (
    INDEPENDENT,
    are_long,
    bank_learns,
    effective_number,
    far_by_frequency,
    window_of_bank,
)
from tsforecast.models.parts.component_names import component_names, kinds_of

log = logging.getLogger(__name__)

_YEAR = {"D": 366, "B": 262, "W": 53}  # steps of a year; two of them show a season
_MANY = 20  # series from which a network over them may pay
_FEW_WINDOWS = 20  # horizons at the end that may be enough to train on
_LINEAR_EPOCHS = 4  # of a model with particles, before these
_STEPS, _LONG_WINDOW, _LEAST_BATCH = 6400, 200, 8  # of a batch of a bank, where its windows are long
_SPARED = 3  # horizons at the end that a comparison may take
_EPOCHS = 20  # of a candidate that begins without learnt parameters, also where it is trained in the end
_OF_ESTIMATOR = frozenset({"train_length", "train_horizon", "preset"})
CONDITIONED = {"max_epochs": 0}  # of a bank whose parameters stay those that other series have taught
_POOLED = ("issm", "gls", "rsgls-issm")  # members of a pool beside a bank
_OF_DAYS = "damped_level+hour_of_day"  # fits the sun and the weather, which know no weekdays


@dataclass(frozen=True)
class Candidate:
    """A model with options."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def member(self) -> str | None:
        """Return the candidate as a member of a pool; None where it can be none.

        A bank in a pool stays at the parameters that it begins with. How training windows are cut is the same for all
        members, and none has a preset. Direct forecasts belong to the whole pool.
        """
        own = {name: value for name, value in self.options.items() if name not in ("max_epochs", "direct")}
        if self.model == "bank":
            return str(Candidate("bank", {**own, "learning_rate": 0})) if "max_epochs" in self.options else None
        return str(Candidate(self.model, own)) if self.model in _POOLED and not _OF_ESTIMATOR & set(own) else None

    def __str__(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.options.items())])


def candidates(task: ForecastTask, models: Sequence[str] | None = None) -> list[Candidate]:
    """Return the candidates of a task: the model of `forecast` or one like it, then the cheapest first.

    Args:
        task: The data.
        models: Names of `FAMILIES`, all variants of which are compared; None for a short list.
    """
    if unknown := [name for name in models or () if name not in FAMILIES]:
        raise ValueError(f"expected models among {', '.join(FAMILIES)}, got {', '.join(unknown)}")
    if models:
        return [candidate for name in models for candidate in FAMILIES[name](task)]
    learns = bank_learns(task.freq, task.prediction_length, task.entries)
    # Series with shocks in common teach a bank to be too sure of itself, which windows before the end need not show.
    learns = learns and effective_number(task.entries, default_season(task.freq)) >= INDEPENDENT
    found = [Candidate("bank", CONDITIONED)]
    if has_days(task.freq):
        has_direct = is_long(int(_length(task)), task.freq, task.prediction_length)
    else:
        has_direct = are_mostly_low(task.entries)
    found += [_short("issm")]
    found += [_short("issm", transformation="logit")] if _are_shares(task) else []
    found += [_short("gls")] if _is_long(task) or has_several(task) else []
    found = [_trained_bank(task), *found] if learns else [*found, _trained_bank(task)]
    if not has_direct:
        return found
    return [
        _trained_bank(task, direct=SHARE) if learns else Candidate("bank", {**CONDITIONED, "direct": SHARE}),
        *found,
    ]


def has_several(task: ForecastTask) -> bool:
    """Return whether the series of a task have several targets, or past-only covariates."""
    return any(np.ndim(entry["target"]) > 1 or entry.get(PAST) is not None for entry in task.entries)


def bursting(task: ForecastTask) -> list[Candidate]:
    """Return what is tried where errors come in bursts; of long series of hours, models of the weather."""
    if has_several(task):
        return []
    days = _farther(task, "issm", components=_OF_DAYS) if _is_long(task) else []
    own = {name: value for one in days for name, value in one.options.items() if name != "max_epochs"}
    return [*days, Candidate("markov"), Candidate("sgls", {"preset": "fast", **own})]


def _short(model: str, **options: Any) -> Candidate:
    return Candidate(model, {**options, "max_epochs": _EPOCHS})


def _trained_bank(task: ForecastTask, **options: Any) -> Candidate:
    """Return a bank that learns from the series; of long windows a batch has few."""
    targets = np.atleast_2d(task.entries[0]["target"]).shape[0]
    window = targets * window_of_bank(task.freq, task.prediction_length, _lengths(task))
    few = {"batch_size": max(_STEPS // window, _LEAST_BATCH)} if window > _LONG_WINDOW else {}
    return Candidate("bank", {**options, **few})


def without_comparison(task: ForecastTask) -> Candidate:
    """Return the candidate that is taken where nothing is compared."""
    learns = bank_learns(task.freq, task.prediction_length, task.entries)
    return _trained_bank(task) if learns else Candidate("bank", CONDITIONED)


def structures(task: ForecastTask, has_components: bool) -> list[Candidate]:
    """Return models like those inside a switching model: linear, or of the components and windows that it may have."""
    if not has_components:
        return [_short("gls")]
    return [_short("issm"), *(_farther(task, "issm", components=_OF_DAYS) if _is_long(task) else [])]


def _lengths(task: ForecastTask) -> list[int]:
    return [entry["target"].shape[-1] for entry in task.entries]


def _length(task: ForecastTask) -> float:
    return float(np.median(_lengths(task)))


def _is_long(task: ForecastTask) -> bool:
    return are_long(_lengths(task), task.freq)


def _are_shares(task: ForecastTask) -> bool:
    """Return whether all values are from 0 to 1, and some between."""
    ends = [(np.nanmin(e["target"]), np.nanmax(e["target"])) for e in task.entries if np.isfinite(e["target"]).any()]
    within = all(low >= 0 and high <= 1 for low, high in ends)
    return within and any(np.nan_to_num(entry["target"] % 1).any() for entry in task.entries)


def _farther(task: ForecastTask, model: str, **options: Any) -> list[Candidate]:
    """Return a model whose training windows have several horizons; nothing where series are no longer."""
    horizon = far_by_frequency(task.freq, task.prediction_length)
    fits = task.prediction_length < horizon < _length(task)
    return [_short(model, **options, train_horizon=horizon)] if fits else []


def _issms(task: ForecastTask) -> list[Candidate]:
    """Return issms: objective, transformation, components, scales and training windows, one changed at a time."""
    lowest = min((np.nanmin(e["target"]) for e in task.entries if np.isfinite(e["target"]).any()), default=0.0)
    names = ["asinh"] if lowest < 0 else ["none", "log1p", "sqrt"]
    names += ["logit"] if _are_shares(task) else []
    varied: list[dict[str, Any]] = [{}, {"objective": "likelihood"}, *({"transformation": name} for name in names)]
    usual = "+".join(component_names("auto", task.freq))
    varied += [{"components": one} for one in kinds_of(task.freq) if one != usual and "+year" not in one]
    year = _YEAR.get(calendar_unit(task.freq)[1].partition("-")[0], np.inf)
    needed = 2 * year + _SPARED * task.prediction_length  # before the windows of the comparison
    varied += [{"components": f"{usual}+year"}] if _length(task) >= needed else []
    if _length(task) < needed < np.inf:
        said = "no issm with a year is compared: it takes %d steps, and the median series has %d"
        log.info(said, needed, _length(task))
    varied += [{"scales": "network"}] if len(task.entries) >= _MANY else []
    recent = _FEW_WINDOWS * task.prediction_length
    varied += [{"train_length": recent}] if _length(task) >= 2 * recent else []
    return [*(_short("issm", **options) for options in varied), *_farther(task, "issm", components=_OF_DAYS)]


# Options of rsgls-issm as its recipes have them, but with few epochs of its linear model.
_SWITCHING = {
    "objective": "crps", "linear_epochs": _LINEAR_EPOCHS, "persistence": 0.95, "proposal": "bootstrap",
    "recurrence": "none", "resampling_gradient": "stop-gradient", "network_learning_rate": 1e-2,
}  # fmt: skip
# Variants of each model that is asked for by name.
FAMILIES: dict[str, Callable[[ForecastTask], list[Candidate]]] = {
    "bank": lambda task: [
        *(Candidate("bank", CONDITIONED), _trained_bank(task)),
        *([_trained_bank(task, scales="free")] if _is_long(task) else []),  # parameters of each series
    ],
    "issm": _issms,
    "gls": lambda task: [_short("gls"), _short("gls", objective="likelihood"), *_farther(task, "gls")],
    "rsgls-issm": lambda task: [_short("rsgls-issm", **_SWITCHING)],
    "markov": lambda task: bursting(task)[-2:-1],
    "sgls": lambda task: bursting(task)[-1:],
}
