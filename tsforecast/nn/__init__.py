"""Networks that return parameters of core objects."""

from tsforecast.nn.likelihood import DECODERS, AbstractDecoder, ScaledLikelihood
from tsforecast.nn.mlp import BaseMixture, GuessNetwork, InputNetwork, SwitchDynamics
from tsforecast.nn.parameters import ScaleNetwork, SeriesParameters

__all__ = [
    "DECODERS",
    "AbstractDecoder",
    "BaseMixture",
    "GuessNetwork",
    "InputNetwork",
    "ScaleNetwork",
    "ScaledLikelihood",
    "SeriesParameters",
    "SwitchDynamics",
]
