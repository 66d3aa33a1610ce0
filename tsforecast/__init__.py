"""Probabilistic time-series forecasting centred on switching state-space models."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsforecast.estimator import StateSpaceEstimator
    from tsforecast.predictor import StateSpacePredictor

__version__ = version("tsforecast")
__all__ = ["StateSpaceEstimator", "StateSpacePredictor"]


def __getattr__(name: str) -> Any:
    """GluonTS and Lightning are imported when the estimator is asked for: the core needs torch alone."""
    if name in __all__:
        return getattr(import_module("tsforecast.estimator"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
