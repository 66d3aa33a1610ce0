"""Online variational Bayes, by name, with the priors and initial values of its paper."""

import dataclasses

import torch
from torch import nn

from tsforecast.core.torch_internals import normal
from tsforecast.learners.beliefs.diagonal import Independent
from tsforecast.learners.drift import AbstractDrift, NoDrift
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.memory.memory_learner import MemoryLearner
from tsforecast.learners.memory.memory_update import AbstractMemoryUpdate, Coreset, NoMemory, ResidualMemory, check_size
from tsforecast.learners.memory.variational_fit import AbstractFit, AdamFit, LinearisedFit
from tsforecast.learners.networks.layer_chain import LayerChain, network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork, uniform_prior
from tsforecast.learners.shapes import Weights

MEMORIES = ("none", "random", "k-center", "grs")
FITS: dict[str, AbstractFit] = {"linearised": LinearisedFit(), "adam": AdamFit()}
PRIORS = ("weights", "layers")

# Variance of what an activation makes of a standard Gaussian number.
_PASSED: dict[type[nn.Module], float] = {
    nn.Identity: 1.0,
    nn.Tanh: 0.39429449039784176,
    nn.ReLU: 0.34084505690810474,
    nn.Sigmoid: 0.043379035858092996,
}
# How widely initial log standard deviations scatter, and the part of the prior's variance that initial means have.
_ALPHA, _BETA = 0.001, 0.999


def layer_variances(network: AbstractNetwork) -> tuple[float, ...]:
    """Return a prior variance for each layer: 1 / (N c), with N inputs of variance c.

    What enters a unit then has variance one under the prior (Kurle et al. 2020, appendix H). c is that of the
    activation before, of a standard Gaussian number, and 1 for the first layer. Inputs should be standardised.

    Raises:
        ValueError: If the network is no chain of layers.
    """
    if not isinstance(network, LayerChain):
        raise ValueError(f"expected a chain of layers for prior 'layers', got {type(network).__name__}")
    before = (nn.Identity, *network.activations[:-1])
    pairs = zip(network.widths, before, strict=False)
    return tuple(1 / (fan_in * _PASSED[activation]) for fan_in, activation in pairs)


def random_start(variance: Weights, generator: torch.Generator | None = None) -> Independent:
    """Return initial means and variances of a fit: together as wide as the prior, and nearly all of that in the means.

    Means are N(0, beta v) and log standard deviations N(log((1 - beta) v exp(-2 alpha^2)) / 2, alpha^2), for a prior
    variance v (Kurle et al. 2020, appendix I).
    """
    noise = normal((2, *variance.shape), variance, generator)
    log_sd = 0.5 * (variance * (1 - _BETA)).log() - _ALPHA**2 + _ALPHA * noise[1]  # the variances' mean is (1 - beta) v
    return Independent((_BETA * variance).sqrt() * noise[0], (2 * log_sd).exp())


def vb(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    memory: str = "none",
    memory_size: int = 25,
    score: str = "residual_variance",
    fit: str | AbstractFit = "linearised",
    passes: int | None = None,
    prior: str = "weights",
    features: tuple[int, ...] | None = None,
    mean: Weights | None = None,
    drift: AbstractDrift | None = None,
    generator: torch.Generator | None = None,
) -> MemoryLearner:
    """Return online variational Bayes with independent weights, and a memory of observations (Kurle et al. 2020).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        memory: "none"; "random" or "k-center", which are coresets; or "grs", what a Gaussian describes worst.
        memory_size: Number of observations that are kept; not read without a memory.
        score: Of "grs": "residual_variance", "centred", or "grs" as published; see `residual_scoring.scores`.
        fit: "linearised" (fast, without random numbers), "adam" (as published), or settings of one of these.
        passes: Steps of the linearised fit at most; None for as many as are needed. One alone bounds how far a block
            moves the weights, as a filter does.
        prior: "weights" around those to begin with; or "layers" around 0, with variances in units of `layer_variances`
            and a random place to begin the first fit at.
        features: Shape of the inputs of an observation; None for the number of inputs of a chain of layers.
        mean: Weights to begin with; None for those of the module.
        drift: Of the weights between observations; None for none.
        generator: Of random initial values.

    Raises:
        ValueError: If a name is not known, or a memory has no place.
    """
    network, mean = network_and_weights(model, mean)
    if prior not in PRIORS:
        raise ValueError(f"expected prior to be one of {', '.join(PRIORS)}, got {prior!r}")
    spread = uniform_prior(network.sizes, variance).to(mean)
    if prior == "layers":
        spread = spread * uniform_prior(network.sizes, layer_variances(network)).to(mean)
        # The prior is around zero, not around the module's weights.
        mean, start = torch.zeros_like(mean), random_start(spread, generator)
    else:
        start = Independent(mean, (1 - _BETA) * spread)
    if features is None:
        features = (network.widths[0],) if isinstance(network, LayerChain) else ()
    learner = MemoryLearner(network, likelihood, mean, spread, start, features, _update_of(memory, memory_size, score))
    if learner.update_memory.size and not features:
        raise ValueError("expected features, the shape of an observation's inputs, for a memory of any other network")
    return dataclasses.replace(learner, fit=_fit_of(fit, passes), weight_drift=drift or NoDrift())


def _update_of(memory: str, size: int, score: str) -> AbstractMemoryUpdate:
    if memory not in MEMORIES:
        raise ValueError(f"expected memory to be one of {', '.join(MEMORIES)}, got {memory!r}")
    if not isinstance(size, int) or isinstance(size, bool):
        raise ValueError(f"expected memory_size to be a whole number, got {size!r}")
    if memory == "none":
        return NoMemory()
    check_size(size)
    return ResidualMemory(size, score) if memory == "grs" else Coreset(size, memory == "k-center")


def _fit_of(fit: str | AbstractFit, passes: int | None) -> AbstractFit:
    if not isinstance(fit, AbstractFit):
        if fit not in FITS:
            raise ValueError(f"expected fit to be one of {', '.join(FITS)}, got {fit!r}")
        fit = FITS[fit]
    if passes is None:
        return fit
    if not isinstance(fit, LinearisedFit):
        raise ValueError("expected passes beside the linearised fit")
    return dataclasses.replace(fit, passes=passes)
