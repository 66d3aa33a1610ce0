"""Networks that return parameters of core objects."""

from tsforecast.nn.decoders import DECODERS, AbstractDecoder, ScaledLikelihood
from tsforecast.nn.image import ImageDecoder, ImageEncoder, ImageSize
from tsforecast.nn.lstm import LSTM
from tsforecast.nn.mlp import BaseMixture, InputNetwork, ProposalNetwork, SwitchDynamics
from tsforecast.nn.parameters import ScaleNetwork, SeriesParameters

__all__ = [
    "DECODERS",
    "LSTM",
    "AbstractDecoder",
    "BaseMixture",
    "ImageDecoder",
    "ImageEncoder",
    "ImageSize",
    "InputNetwork",
    "ProposalNetwork",
    "ScaleNetwork",
    "ScaledLikelihood",
    "SeriesParameters",
    "SwitchDynamics",
]
