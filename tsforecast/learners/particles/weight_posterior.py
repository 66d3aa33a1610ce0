"""The posterior of a network's weights, with the precisions of prior and noise among the variables."""

import dataclasses
import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.linalg import LOG_2PI
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, GaussianLikelihood
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.particles.matrix_structure import Structure
from tsforecast.learners.shapes import Weights


@dataclasses.dataclass(frozen=True)
class WeightPosterior:
    """p(variables | data) up to a constant: likelihood, Gaussian priors, and Gamma priors of precisions.

    The variables of a particle are those of the structure, then the logarithms of the precisions that are learnt: of
    weights, of reflections and of scales (as far as there are some), and of the noise.

    Attributes:
        network: From inputs and weights to outputs.
        likelihood: Of a target given outputs.
        structure: From variables to weights.
        variance: Of the prior of all variables; None where its inverse is learnt.
        learns_noise: Whether the variance of a Gaussian likelihood is learnt, too.
        shape: a of the precisions' prior Gamma(a, b).
        rate: b.

    Raises:
        ValueError: If the noise of another likelihood shall be learnt, or a number is not positive.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood
    structure: Structure
    variance: float | None = None
    learns_noise: bool = False
    shape: float = 1.0
    rate: float = 0.1

    def __post_init__(self) -> None:
        if self.learns_noise and not isinstance(self.likelihood, GaussianLikelihood):
            name = type(self.likelihood).__name__
            raise ValueError(f"expected a Gaussian likelihood, to learn its noise, got {name}")
        for name in ("variance", "shape", "rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"expected {name} to be positive, got {value}")

    @functools.cached_property
    def _groups(self) -> list[int]:
        """Return the lengths of the groups of variables that share a precision."""
        return [length for length in self.structure.lengths if length]

    @property
    def num_precisions(self) -> int:
        """Return the number of logarithms of precisions among the variables."""
        return self.learns_noise + (len(self._groups) if self.variance is None else 0)

    @property
    def size(self) -> int:
        """Return the number of variables of a particle."""
        return sum(self._groups) + self.num_precisions

    def weights(self, variables: Float[Tensor, " variable"]) -> Weights:
        """Return the weights of the network."""
        return self.structure.weights(variables[: sum(self._groups)])

    def noise(self, variables: Float[Tensor, " variable"]) -> AbstractLikelihood:
        """Return the likelihood, with the noise that the variables say."""
        if not self.learns_noise:
            return self.likelihood
        settings: Any = self.likelihood
        return dataclasses.replace(settings, noise=(-variables[-1]).exp())

    def log_prior(self, variables: Float[Tensor, " variable"]) -> Float[Tensor, ""]:
        """Return the log-density of all variables before any data."""
        # Logarithms of precisions stand behind the weights.
        parts = variables.split([*self._groups, self.num_precisions])
        logs = parts[-1]
        if self.variance is None:
            own = logs.unbind()[: len(self._groups)]  # the last is that of the noise
        else:
            own = (-torch.as_tensor(self.variance, dtype=logs.dtype, device=logs.device).log(),) * len(self._groups)
        total = self.shape * logs.sum() - self.rate * logs.exp().sum()  # Gamma, in the logarithm of the precision
        for part, log in zip(parts[:-1], own, strict=True):
            total = total + 0.5 * (len(part) * (log - LOG_2PI) - log.exp() * part.square().sum())
        return total

    def log_likelihood(self, variables: Float[Tensor, " variable"], points: Points) -> Float[Tensor, " point"]:
        """Return the log-density of each target, as often as it counts."""
        outputs = self.network(self.weights(variables), points.inputs)
        log_prob = self.noise(variables).log_prob(outputs, points.target, points.observed)
        return log_prob if points.counts is None else log_prob * points.counts

    def scores(
        self, particles: Float[Tensor, "particle variable"], points: Points, scale: float = 1.0
    ) -> Float[Tensor, "particle variable"]:
        """Return the gradient of the log-posterior at every particle.

        Args:
            particles: Variables.
            points: Data, or some of them.
            scale: What the likelihood of these is multiplied by, so that they stand for all.
        """

        def log_posterior(variables: Tensor) -> Tensor:
            return self.log_prior(variables) + scale * self.log_likelihood(variables, points).sum()

        # No particle has to do with another: the gradient of the sum is that of each, and faster than one by one.
        return torch.func.grad(lambda values: torch.func.vmap(log_posterior)(values).sum())(particles)
