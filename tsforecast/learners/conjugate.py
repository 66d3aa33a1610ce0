"""Linear regression with unknown noise: the normal-inverse-gamma learner."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, Independent, StudentT

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import cholesky, matvec, symmetrise
from tsforecast.core.torch_internals import normal, standard_gamma
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.loop import AbstractLearner
from tsforecast.learners.shapes import Samples, Scalar, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class NormalInverseGamma:
    """w, s2 ~ N(w; mean, s2 cov) IG(s2; shape, rate).

    Attributes:
        mean: Of the weights.
        cov: Of the weights, in units of the noise variance.
        shape: Of the inverse gamma; half of the degrees of freedom.
        rate: Of the inverse gamma.
    """

    mean: Weights
    cov: Float[Tensor, "weight weight"]
    shape: Float[Tensor, ""]
    rate: Float[Tensor, ""]


@dataclasses.dataclass(frozen=True)
class ConjugateRegression(AbstractLearner[NormalInverseGamma]):
    """y = x' w + N(0, s2) with both unknown; predictions are Student-t. Exact.

    Attributes:
        mean: Of the weights, before any data.
        variance: Of each weight, in units of the noise variance.
        shape: Of the prior over the noise variance.
        rate: Of the prior over the noise variance.
        forgetting: Part of the evidence that is forgotten in a unit of time, in natural parameters.

    Raises:
        ValueError: If a parameter is outside of its range.
    """

    mean: Weights
    variance: Weights
    shape: float = 6.0
    rate: float = 6.0
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if self.mean.shape != self.variance.shape or not bool((self.variance > 0).all()):
            raise ValueError("expected a positive variance for each weight")
        if not (self.shape > 0 and self.rate > 0):
            raise ValueError(f"expected shape and rate to be positive, got {self.shape} and {self.rate}")
        if not 0 <= self.forgetting < 1:
            raise ValueError(f"expected forgetting to be at least 0 and below 1, got {self.forgetting}")

    def init(self) -> NormalInverseGamma:
        """Return the prior."""
        number = self.mean.new_tensor
        return NormalInverseGamma(self.mean, torch.diag_embed(self.variance), number(self.shape), number(self.rate))

    def drift(self, belief: NormalInverseGamma, dt: Scalar) -> NormalInverseGamma:
        """Natural parameters (Lambda, Lambda m, b + m' Lambda m / 2, a) are mixed with those of the prior."""
        return self._keep(belief, (1 - self.forgetting) ** dt) if self.forgetting else belief

    def forget(self, belief: NormalInverseGamma, rate: float) -> NormalInverseGamma:
        """Mix the belief with the prior, as the drift does."""
        if not 0 <= rate <= 1:
            raise ValueError(f"expected rate to be at least 0 and at most 1, got {rate}")
        return self._keep(belief, 1 - rate)

    def _keep(self, belief: NormalInverseGamma, keep: Scalar) -> NormalInverseGamma:
        """Keep a part of the evidence, and mix the rest with the prior."""
        mine = torch.cholesky_inverse(cholesky(belief.cov, "the covariance of regression weights"))
        precision = keep * mine + (1 - keep) * torch.diag_embed(1 / self.variance)
        cov = symmetrise(torch.cholesky_inverse(cholesky(precision, "the precision of regression weights")))
        linear = matvec(mine, belief.mean), self.mean / self.variance
        mean = matvec(cov, keep * linear[0] + (1 - keep) * linear[1])
        energy = keep * (belief.rate + 0.5 * belief.mean @ linear[0])
        energy = energy + (1 - keep) * (self.rate + 0.5 * self.mean @ linear[1])
        shape = keep * belief.shape + (1 - keep) * self.shape
        # The rate is b, out of the natural parameter b + m' Lambda m / 2.
        return NormalInverseGamma(mean, cov, shape, energy - 0.5 * mean @ precision @ mean)

    def predict(self, belief: NormalInverseGamma, inputs: Float[Tensor, "point feature"]) -> Distribution:
        """Student-t with 2 a degrees of freedom, location x' m and squared scale b / a (1 + x' S x)."""
        location, scale = self._moments(belief, inputs)
        return Independent(StudentT(2 * belief.shape, location.unsqueeze(-1), scale.unsqueeze(-1)), 1)

    def expect(
        self, belief: NormalInverseGamma, inputs: Float[Tensor, "point feature"], spread: bool = True
    ) -> Expectation:
        """Variances are infinite up to 2 degrees of freedom."""
        location, scale = self._moments(belief, inputs)
        return Expectation(location.unsqueeze(-1), _variance(scale, 2 * belief.shape).unsqueeze(-1))

    def weights(self, belief: NormalInverseGamma) -> Weights:
        """Return the mean of the weights."""
        return belief.mean

    def variances(self, belief: NormalInverseGamma) -> Weights:
        """Return the variances of the Student-t that each weight has on its own."""
        scale = (belief.rate / belief.shape * belief.cov.diagonal()).sqrt()
        return _variance(scale, 2 * belief.shape)

    def _moments(self, belief: NormalInverseGamma, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return location and scale of each point."""
        extent = 1 + ((inputs @ belief.cov) * inputs).sum(-1)
        return inputs @ belief.mean, (belief.rate / belief.shape * extent).sqrt()

    def update(
        self,
        belief: NormalInverseGamma,
        inputs: Float[Tensor, "point feature"],
        target: Float[Tensor, "point 1"],
        observed: Bool[Tensor, "point 1"] | None = None,
        generator: torch.Generator | None = None,
        counts: Float[Tensor, " point"] | None = None,
    ) -> NormalInverseGamma:
        """Point by point, without an inverse; the rate cannot become negative."""
        for k in range(len(inputs)):  # the rate adds squares of one-step errors
            x = inputs[k]
            seen = target.new_ones(()) if counts is None else counts[k]
            if observed is not None:
                seen = seen * observed[k, 0]
            residual = torch.where(seen > 0, target[k, 0] - x @ belief.mean, 0.0)  # a missing target may be NaN
            cross = belief.cov @ x
            extent = 1 + seen * (x @ cross)
            gain = seen * cross / extent  # Sherman and Morrison, for a precision that grows by seen x x'
            belief = NormalInverseGamma(
                belief.mean + gain * residual,
                symmetrise(belief.cov - gain.unsqueeze(-1) * cross),
                belief.shape + 0.5 * seen,  # half a degree of freedom for each count
                belief.rate + 0.5 * seen * residual.square() / extent,
            )
        return belief

    def sample(self, belief: NormalInverseGamma, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw s2 from the inverse gamma, then the weights."""
        gammas = standard_gamma(belief.shape.expand(num_samples), generator)
        factor = cholesky(belief.cov, "the covariance of regression weights", jitter=True)
        noise = normal((num_samples, len(belief.mean)), factor, generator)
        return belief.mean + (belief.rate / gammas).sqrt().unsqueeze(-1) * (noise @ factor.mT)

    def step(
        self,
        belief: NormalInverseGamma,
        inputs: Float[Tensor, "point feature"],
        target: Float[Tensor, "point 1"],
        observed: Bool[Tensor, "point 1"] | None = None,
        dt: Scalar = 1.0,
        generator: torch.Generator | None = None,
    ) -> tuple[NormalInverseGamma, Prediction]:
        """The variance of a prediction is infinite up to 2 degrees of freedom."""
        belief = self.drift(belief, dt)
        location, scale = self._moments(belief, inputs)
        degrees = 2 * belief.shape
        z = (target[:, 0] - location) / scale
        # A normal of unknown variance is Student's t.
        log_prob = torch.lgamma((degrees + 1) / 2) - torch.lgamma(degrees / 2) - scale.log()
        log_prob = log_prob - 0.5 * (degrees * math.pi).log() - (degrees + 1) / 2 * torch.log1p(z.square() / degrees)
        if observed is not None:
            log_prob = torch.where(observed[:, 0], log_prob, 0.0)
        prediction = Prediction(location.unsqueeze(-1), _variance(scale, degrees).unsqueeze(-1), log_prob)
        return self.update(belief, inputs, target, observed), prediction


def _variance(scale: Tensor, degrees: Tensor) -> Tensor:
    """Return the variance of a Student-t distribution."""
    return torch.where(degrees > 2, scale.square() * degrees / (degrees - 2), math.inf)
