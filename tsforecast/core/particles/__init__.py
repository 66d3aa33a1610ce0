"""Rao-Blackwellised particle filters and smoothers, and the switching systems that they filter."""

from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, ParticleFiltered, Regime, filter
from tsforecast.core.particles.given_switches import linear_given_switches
from tsforecast.core.particles.prediction import draw, forecast, marginals, predict
from tsforecast.core.particles.proposals import DiagonalGaussian, Likelihood
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.core.particles.resampling import GRADIENTS, resample, systematic_ancestors
from tsforecast.core.particles.smoothing import ParticleSmoothed, sample_given, smooth
from tsforecast.core.particles.state import ParticleState, initial_particles, take
from tsforecast.core.particles.switching import GaussianSwitching

__all__ = [
    "GRADIENTS",
    "AbstractSwitchingSystem",
    "CategoricalSwitching",
    "DiagonalGaussian",
    "GaussianSwitching",
    "Likelihood",
    "ParticleFiltered",
    "ParticleSmoothed",
    "ParticleState",
    "RecurrentSwitching",
    "Regime",
    "draw",
    "filter",
    "forecast",
    "initial_particles",
    "linear_given_switches",
    "marginals",
    "predict",
    "resample",
    "sample_given",
    "smooth",
    "systematic_ancestors",
    "take",
]
