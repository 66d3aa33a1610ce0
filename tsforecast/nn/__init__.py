"""Networks that return parameters of core objects."""

from tsforecast.nn.image import ImageDecoder, ImageEncoder, ImageSize
from tsforecast.nn.likelihood import DECODERS, AbstractDecoder, ScaledLikelihood
from tsforecast.nn.mlp import BaseMixture, GuessNetwork, InputNetwork, SwitchDynamics
from tsforecast.nn.parameters import ScaleNetwork, SeriesParameters
from tsforecast.nn.recurrent import LSTM

__all__ = [
    "DECODERS",
    "LSTM",
    "AbstractDecoder",
    "BaseMixture",
    "GuessNetwork",
    "ImageDecoder",
    "ImageEncoder",
    "ImageSize",
    "InputNetwork",
    "ScaleNetwork",
    "ScaledLikelihood",
    "SeriesParameters",
    "SwitchDynamics",
]
