"""Rao-Blackwellised particle filters and smoothers, and the switching systems that they filter."""

from tsforecast.core.particles.filtering import (
    GRADIENTS,
    AbstractSwitchingSystem,
    ParticleFiltered,
    ParticleState,
    Regime,
    filter,
    initial_particles,
    resample,
    systematic_ancestors,
    take,
)
from tsforecast.core.particles.prediction import draw, forecast, marginals, predict
from tsforecast.core.particles.proposals import DiagonalGaussian, Likelihood
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.core.particles.smoothing import ParticleSmoothed, linear_given_switches, sample_given, smooth
from tsforecast.core.particles.switching import CategoricalSwitching, GaussianSwitching

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
