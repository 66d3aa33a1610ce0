"""Forecasters by name."""

from tsforecast.models.base import DATA_DECIDED, INPUT_NAMES, AbstractForecaster, Belief
from tsforecast.models.gls import GLSForecaster
from tsforecast.models.issm import ISSMForecaster
from tsforecast.models.rsgls_issm import RSGLSISSMForecaster
from tsforecast.models.sgls import ARSGLSForecaster, RSGLSForecaster, SGLSForecaster
from tsforecast.models.switching import AbstractSwitchingForecaster

MODELS: dict[str, type[AbstractForecaster]] = {
    "issm": ISSMForecaster,
    "gls": GLSForecaster,
    "sgls": SGLSForecaster,
    "rsgls": RSGLSForecaster,
    "rsgls-issm": RSGLSISSMForecaster,
    "arsgls": ARSGLSForecaster,
}

__all__ = [
    "DATA_DECIDED",
    "INPUT_NAMES",
    "MODELS",
    "ARSGLSForecaster",
    "AbstractForecaster",
    "AbstractSwitchingForecaster",
    "Belief",
    "GLSForecaster",
    "ISSMForecaster",
    "RSGLSForecaster",
    "RSGLSISSMForecaster",
    "SGLSForecaster",
]
