"""What `auto` compares: models, and their options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsforecast.data.calendar.frequency import calendar_unit
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.lengths import are_long, far_by_frequency
from tsforecast.models.parts.component_names import component_names, kinds_of

WINDOWS = 3  # cut points at the end of the data that candidates are compared on, at most
_YEAR = {"D": 366, "B": 262, "W": 53}  # steps of a year; two of them show a season
_MANY = 20  # series from which a network over them may pay
_FEW_WINDOWS = 20  # horizons at the end that may be enough to train on
_LINEAR_EPOCHS = 4  # of a model with particles, before these
_OF_WINDOWS = frozenset({"train_length", "train_horizon"})
_OF_DAYS = "damped_level+hour_of_day"  # fits the sun and the weather, which know no weekdays


@dataclass(frozen=True)
class Candidate:
    """A model with options.

    Attributes:
        model: A name in `tsforecast.models.MODELS`.
        options: Options that are not the defaults.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_of_model(self) -> bool:
        """Return whether all options are the model's own, and none says how its training windows are cut."""
        return not _OF_WINDOWS & set(self.options)

    def __str__(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.options.items())])


def candidates(task: ForecastTask, models: Sequence[str] | None = None) -> list[Candidate]:
    """Return what is compared for a task, the most likely first.

    Args:
        task: The data.
        models: Names of `FAMILIES`, all variants of which are compared; None for a short list.

    Raises:
        ValueError: If a name is not known.
    """
    if unknown := [name for name in models or () if name not in FAMILIES]:
        raise ValueError(f"expected models among {', '.join(FAMILIES)}, got {', '.join(unknown)}")
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        return [Candidate("gls")]
    if models:
        return [candidate for name in models for candidate in FAMILIES[name](task)]
    bank, *others = _banks(task)
    found = [bank, *others, Candidate("issm"), Candidate("issm", {"objective": "likelihood"})]
    found += _farther(task, "issm", components=_OF_DAYS) if _is_long(task) else []
    found += [Candidate("issm", {"transformation": "logit"})] if _are_shares(task) else []
    return [*found, Candidate("gls"), *_farther(task, "gls")] if _is_long(task) else found


def structures(task: ForecastTask) -> list[Candidate]:
    """Return the components, and training windows, that a switching model may have: those of the `issm` inside."""
    return [Candidate("issm"), *(_farther(task, "issm", components=_OF_DAYS) if _is_long(task) else [])]


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


def _unit(task: ForecastTask) -> str:
    return calendar_unit(task.freq)[1].partition("-")[0]


def _shows_years(task: ForecastTask) -> bool:
    """Return whether two years lie before the windows of the comparison."""
    return _length(task) >= 2 * _YEAR.get(_unit(task), np.inf) + WINDOWS * task.prediction_length


def _banks(task: ForecastTask) -> list[Candidate]:
    """Return banks: also with parameters of each series where it is long."""
    return [Candidate("bank"), *([Candidate("bank", {"scales": "free"})] if _is_long(task) else [])]


def _farther(task: ForecastTask, model: str, **options: Any) -> list[Candidate]:
    """Return a model whose training windows have several horizons; nothing where series are no longer."""
    horizon = far_by_frequency(task.freq, task.prediction_length)
    fits = task.prediction_length < horizon < _length(task)
    return [Candidate(model, {**options, "train_horizon": horizon})] if fits else []


def _issms(task: ForecastTask) -> list[Candidate]:
    """Return issms: objective, transformation, components, scales and training windows, one changed at a time."""
    lowest = min((np.nanmin(e["target"]) for e in task.entries if np.isfinite(e["target"]).any()), default=0.0)
    names = ["asinh"] if lowest < 0 else ["none", "log1p", "sqrt"]
    names += ["logit"] if _are_shares(task) else []
    varied: list[dict[str, Any]] = [{}, {"objective": "likelihood"}, *({"transformation": name} for name in names)]
    usual = "+".join(component_names("auto", task.freq))
    varied += [{"components": one} for one in kinds_of(task.freq) if one != usual and "+year" not in one]
    varied += [{"components": f"{usual}+year"}] if _shows_years(task) else []
    varied += [{"scales": "network"}] if len(task.entries) >= _MANY else []
    recent = _FEW_WINDOWS * task.prediction_length
    varied += [{"train_length": recent}] if _length(task) >= 2 * recent else []
    return [*(Candidate("issm", options) for options in varied), *_farther(task, "issm", components=_OF_DAYS)]


def _gls(task: ForecastTask) -> list[Candidate]:
    """Return gls by both objectives, and trained on several horizons."""
    return [Candidate("gls"), Candidate("gls", {"objective": "likelihood"}), *_farther(task, "gls")]


def _switching(task: ForecastTask) -> list[Candidate]:
    """Return rsgls-issm as its recipes have it, with few epochs of its linear model."""
    options = {
        "objective": "crps", "linear_epochs": _LINEAR_EPOCHS, "persistence": 0.95, "proposal": "bootstrap",
        "recurrence": "none", "resampling_gradient": "stop-gradient", "network_learning_rate": 1e-2,
    }  # fmt: skip
    return [Candidate("rsgls-issm", options)]


# Variants of each model that is asked for by name.
FAMILIES: dict[str, Callable[[ForecastTask], list[Candidate]]] = {
    "bank": _banks,
    "issm": _issms,
    "gls": _gls,
    "rsgls-issm": _switching,
}
