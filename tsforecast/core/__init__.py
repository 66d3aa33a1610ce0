"""Gaussians pushed through, or conditioned on, linear-Gaussian conditionals. Knows torch alone."""

from tsforecast.core.gaussian import Gaussian, map_tensors
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.linear import AbstractLinearGaussian, AbstractLinearSystem, LinearGaussian, LinearSystem

__all__ = [
    "AbstractLinearGaussian",
    "AbstractLinearSystem",
    "Gaussian",
    "LinearGaussian",
    "LinearSystem",
    "NotPositiveDefiniteError",
    "map_tensors",
]
