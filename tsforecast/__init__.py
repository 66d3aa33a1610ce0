"""Probabilistic time-series forecasting centred on switching state-space models."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsforecast.data import load_task, read_task
    from tsforecast.evaluation.cross_validation import cross_validate
    from tsforecast.forecaster import Forecaster
    from tsforecast.forecasting.at_once import forecast
    from tsforecast.forecasting.estimator import StateSpaceEstimator
    from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor
    from tsforecast.learners import LEARNERS

__version__ = version("tsforecast")
__all__ = [
    "LEARNERS",
    "Forecaster",
    "StateSpaceEstimator",
    "StateSpacePredictor",
    "cross_validate",
    "forecast",
    "load_predictor",
    "load_task",
    "read_task",
]

# Where each is from; imported when it is asked for: the core needs torch alone.
_HOMES = {
    "Forecaster": "tsforecast.forecaster",
    "LEARNERS": "tsforecast.learners",
    "StateSpaceEstimator": "tsforecast.forecasting.estimator",
    "StateSpacePredictor": "tsforecast.forecasting.predictor",
    "cross_validate": "tsforecast.evaluation.cross_validation",
    "forecast": "tsforecast.forecasting.at_once",
    "load_predictor": "tsforecast.forecasting.predictor",
    "load_task": "tsforecast.data",
    "read_task": "tsforecast.data",
}


def __getattr__(name: str) -> Any:
    """Return a public name, imported on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
