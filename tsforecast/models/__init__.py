"""Forecasters by name."""

from tsforecast.models.base import DATA_DECIDED, INPUT_NAMES, AbstractForecaster, Belief
from tsforecast.models.deepstate import DeepStateForecaster
from tsforecast.models.gls import GLSForecaster
from tsforecast.models.issm import AbstractISSMForecaster, ISSMForecaster
from tsforecast.models.kvae import KVAEMCForecaster, KVAERBForecaster
from tsforecast.models.particle_based import AbstractSwitchingForecaster
from tsforecast.models.rsgls_issm import RSGLSISSMForecaster
from tsforecast.models.sgls import ARSGLSForecaster, RSGLSForecaster, SGLSForecaster

MODELS: dict[str, type[AbstractForecaster]] = {
    "issm": ISSMForecaster,
    "gls": GLSForecaster,
    "deepstate": DeepStateForecaster,
    "sgls": SGLSForecaster,
    "rsgls": RSGLSForecaster,
    "rsgls-issm": RSGLSISSMForecaster,
    "arsgls": ARSGLSForecaster,
    "kvae-rb": KVAERBForecaster,
    "kvae-mc": KVAEMCForecaster,
}

__all__ = [
    "DATA_DECIDED",
    "INPUT_NAMES",
    "MODELS",
    "ARSGLSForecaster",
    "AbstractForecaster",
    "AbstractISSMForecaster",
    "AbstractSwitchingForecaster",
    "Belief",
    "DeepStateForecaster",
    "GLSForecaster",
    "ISSMForecaster",
    "KVAEMCForecaster",
    "KVAERBForecaster",
    "RSGLSForecaster",
    "RSGLSISSMForecaster",
    "SGLSForecaster",
]
