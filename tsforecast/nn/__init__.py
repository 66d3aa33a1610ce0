"""Networks that return parameters of core objects."""

from tsforecast.nn.decoders import DECODERS, AbstractDecoder, ScaledLikelihood
from tsforecast.nn.image import ImageDecoder, ImageEncoder, ImageSize
from tsforecast.nn.lstm import LSTM
from tsforecast.nn.mlp import BaseMixture, InputNetwork, ProposalNetwork, SwitchDynamics
from tsforecast.nn.multi_source import BOUNDS, MultiSourceVAE
from tsforecast.nn.parameters import ScaleNetwork, SeriesParameters

__all__ = [
    "BOUNDS",
    "DECODERS",
    "LSTM",
    "AbstractDecoder",
    "BaseMixture",
    "ImageDecoder",
    "ImageEncoder",
    "ImageSize",
    "InputNetwork",
    "MultiSourceVAE",
    "ProposalNetwork",
    "ScaleNetwork",
    "ScaledLikelihood",
    "SeriesParameters",
    "SwitchDynamics",
]
