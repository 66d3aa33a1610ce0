"""Forecasters by name."""

from tsforecast.models.base import DATA_DECIDED, INPUT_NAMES, AbstractForecaster, Belief
from tsforecast.models.gls import GLSForecaster
from tsforecast.models.issm import ISSMForecaster

MODELS: dict[str, type[AbstractForecaster]] = {"issm": ISSMForecaster, "gls": GLSForecaster}

__all__ = ["DATA_DECIDED", "INPUT_NAMES", "MODELS", "AbstractForecaster", "Belief", "GLSForecaster", "ISSMForecaster"]
