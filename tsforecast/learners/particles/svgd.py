"""Named learners of particles: SVGD, and S2VGD with matrix-variate priors."""

import math
from typing import Any

import torch
from torch import nn

from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, GaussianLikelihood
from tsforecast.learners.networks.layer_chain import as_network
from tsforecast.learners.networks.network import AbstractNetwork, weights_of
from tsforecast.learners.particles.matrix_structure import Structure
from tsforecast.learners.particles.particle_learner import SteinLearner
from tsforecast.learners.particles.stein import STEPS
from tsforecast.learners.particles.weight_posterior import WeightPosterior
from tsforecast.learners.shapes import Weights


def svgd(
    model: nn.Module | AbstractNetwork, likelihood: AbstractLikelihood, variance: float | None = None, **settings: Any
) -> SteinLearner:
    """Return Stein variational gradient descent over the weights (Liu and Wang 2016): `s2vgd` of the weights as such.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of every weight in the prior; None to learn its inverse, with the prior Gamma(1, 0.1).
        settings: Of `s2vgd`, but for its structure.
    """
    return s2vgd(model, likelihood, variance, reflections=0, scales=False, **settings)


def s2vgd(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | None = None,
    *,
    mean: Weights | None = None,
    num_particles: int = 20,
    reflections: int = 1,
    scales: bool = True,
    learns_noise: bool = False,
    step: str = "adam",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> SteinLearner:
    """Return structural Stein variational gradient descent (Zhang et al. 2018): particles under matrix-variate priors.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of all variables in the prior; None to learn its inverse, with the prior Gamma(1, 0.1).
        mean: Weights near which the particles begin; None for random ones, which differ between particles. Reflections
            are drawn, so that weights are near it without any alone.
        num_particles: M; 1 finds the mode of the posterior.
        reflections: K of each side of a matrix; see `Structure`.
        scales: Whether rows and columns have scales.
        learns_noise: Whether the variance of a Gaussian likelihood is learnt, from that given, with the same prior of
            its inverse.
        step: "adam" or "rmsprop".
        generator: Of the particles to begin with.
        settings: Of `SteinLearner`: `rate`, `steps`, `batch`, `forgetting`.

    Raises:
        ValueError: If a number is outside of its range, or a name is unknown.
    """
    if num_particles < 1:
        raise ValueError(f"expected one particle or more, got {num_particles}")
    if step not in STEPS:
        raise ValueError(f"expected step to be one of {', '.join(STEPS)}, got {step!r}")
    network = as_network(model) if isinstance(model, nn.Module) else model
    structure = Structure(network.shapes, reflections, scales)
    posterior = WeightPosterior(network, likelihood, structure, variance, learns_noise)
    like = weights_of(model) if isinstance(model, nn.Module) else mean
    drawn = structure.start(num_particles, generator, mean, like)
    logs = drawn.new_zeros(num_particles, posterior.num_precisions)  # precisions of 1
    if learns_noise:
        noise = likelihood.noise if isinstance(likelihood, GaussianLikelihood) else 1.0
        if not isinstance(noise, int | float):
            raise ValueError("expected one number as the variance to begin with, where the noise is learnt")
        logs[:, -1] = -math.log(noise)
    return SteinLearner(network, likelihood, torch.cat([drawn, logs], -1), posterior, STEPS[step], **settings)
