"""Gaussians pushed through, or conditioned on, linear-Gaussian conditionals. Knows torch alone."""

from tsforecast.core import fusion, kalman
from tsforecast.core.components import Component, Level, Trend
from tsforecast.core.composed import ComposedSystem
from tsforecast.core.gaussian import Gaussian, map_tensors
from tsforecast.core.kalman import Filtered, Smoothed
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.linear import AbstractLinearGaussian, DiagonalLinearGaussian, LinearGaussian
from tsforecast.core.seasonal import Harmonics, Season
from tsforecast.core.structural import ISSM
from tsforecast.core.system import AbstractLinearSystem, LinearSystem

__all__ = [
    "ISSM",
    "AbstractLinearGaussian",
    "AbstractLinearSystem",
    "Component",
    "ComposedSystem",
    "DiagonalLinearGaussian",
    "Filtered",
    "Gaussian",
    "Harmonics",
    "Level",
    "LinearGaussian",
    "LinearSystem",
    "NotPositiveDefiniteError",
    "Season",
    "Smoothed",
    "Trend",
    "fusion",
    "kalman",
    "map_tensors",
]
