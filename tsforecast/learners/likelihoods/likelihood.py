"""Likelihoods of a target given a network's outputs, and their whitened observation of the weights.

A linearised likelihood is the pseudo-observation `e = H (theta - mean) + v`, v ~ N(0, I): `H' H` is its curvature and
`H' e` its gradient at the mean. Rows of zeros say nothing: so are missing components left out.
"""

import abc
import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from tsforecast.core.linalg import LOG_2PI, cholesky, mask_cov, solve_lower, whiten
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.shapes import Jacobian, Noise, Observed, OutputCov, Outputs, Target, Whitened

# What probabilities and rates are computed from: the mean of the belief, or its variance too.
PREDICTIONS = ("plug-in", "moderated")


class AbstractLikelihood(abc.ABC):
    """p(target | outputs of the network), point by point."""

    @abc.abstractmethod
    def whiten(self, outputs: Outputs, jacobian: Jacobian, target: Target, observed: Observed | None) -> Whitened:
        """Return matrix H and residual e of the pseudo-observation."""

    @abc.abstractmethod
    def log_prob(self, outputs: Outputs, target: Target, observed: Observed | None) -> Float[Tensor, " point"]:
        """Return the log-density of the observed components; it is differentiable."""

    @abc.abstractmethod
    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution of the target, given mean and covariance of the outputs."""

    @abc.abstractmethod
    def expect(self, outputs: Outputs, cov: OutputCov) -> Expectation:
        """Return mean and variance of `predictive`."""

    @abc.abstractmethod
    def predict(self, outputs: Outputs, cov: OutputCov, target: Target, observed: Observed | None) -> Prediction:
        """Return the moments of `predictive`, and its log-density of a target."""

    @abc.abstractmethod
    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Look at data that arrive.

        Raises:
            ValueError: If an observed target cannot come from this likelihood.
        """

    @property
    def needs_covariance(self) -> bool:
        """Say whether `predictive` reads the covariance of the outputs."""
        return True

    @property
    def moderated(self) -> bool:
        """Say whether the mean of `predictive` reads it, too."""
        return False


class AbstractModeratedLikelihood(AbstractLikelihood):
    """A likelihood with one parameter an output, which the variance of the output may moderate in predictions.

    Attributes:
        prediction: "plug-in" at the mean of the outputs, or "moderated" by their variances.
    """

    prediction: str

    def __post_init__(self) -> None:
        if self.prediction not in PREDICTIONS:
            raise ValueError(f"expected prediction to be one of {', '.join(PREDICTIONS)}, got {self.prediction!r}")

    @property
    def moderated(self) -> bool:
        """Say whether predictions are moderated."""
        return self.prediction == "moderated"

    @property
    def needs_covariance(self) -> bool:
        """Say whether predictions are moderated."""
        return self.moderated

    @abc.abstractmethod
    def moderate(self, outputs: Tensor, cov: Tensor) -> Tensor:
        """Return the outputs that predictions are made of."""

    @abc.abstractmethod
    def moments(self, outputs: Tensor) -> Expectation:
        """Return mean and variance of the target at some outputs."""

    def expect(self, outputs: Outputs, cov: OutputCov) -> Expectation:
        """Return the moments at the moderated outputs."""
        return self.moments(self.moderate(outputs, cov))

    def predict(self, outputs: Outputs, cov: OutputCov, target: Target, observed: Observed | None) -> Prediction:
        """Return the moments at the moderated outputs, and the score of the target there."""
        outputs = self.moderate(outputs, cov)
        found = self.moments(outputs)
        return Prediction(found.mean, found.variance, self.log_prob(outputs, target, observed))


@dataclasses.dataclass(frozen=True)
class GaussianLikelihood(AbstractLikelihood):
    """N(outputs, noise): the linearised posterior is exact where the network is linear in its weights.

    Attributes:
        noise: Variance: one number, one for each output, or a covariance matrix.
    """

    noise: Noise = 1.0

    def _covariance(self, outputs: Tensor) -> Tensor:
        noise = torch.as_tensor(self.noise, dtype=outputs.dtype, device=outputs.device)
        return noise if noise.ndim == 2 else torch.diag_embed(noise.expand(outputs.shape[-1]))

    def whiten(self, outputs: Outputs, jacobian: Jacobian, target: Target, observed: Observed | None) -> Whitened:
        """Return R^{-1/2} J and R^{-1/2} (y - f)."""
        residual = target - outputs
        if observed is not None:
            residual = torch.where(observed, residual, 0.0)
            jacobian = jacobian * observed.unsqueeze(-1)
        if isinstance(self.noise, Tensor) and self.noise.ndim == 2:
            cov = self._covariance(outputs)
            # Noise of missing components must not reach others.
            cov = cov if observed is None else mask_cov(cov, observed)
            factor = cholesky(cov, "the noise of an observation")
            factor = factor.expand(len(outputs), *factor.shape[-2:])
            return whiten(factor, jacobian), solve_lower(factor, residual)
        if isinstance(self.noise, Tensor):
            precision = self.noise.rsqrt()
            return jacobian * precision.unsqueeze(-1), residual * precision
        return jacobian * self.noise**-0.5, residual * self.noise**-0.5

    def log_prob(self, outputs: Outputs, target: Target, observed: Observed | None) -> Float[Tensor, " point"]:
        """Return the log-density of the observed components."""
        if isinstance(self.noise, Tensor) and self.noise.ndim == 2:
            return _log_normal(target - outputs, self._covariance(outputs), observed)
        noise = torch.as_tensor(self.noise, dtype=outputs.dtype, device=outputs.device)
        return sum_observed(-0.5 * ((target - outputs).square() / noise + noise.log() + LOG_2PI), observed)

    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution N(f, J S J' + R) of the targets."""
        return MultivariateNormal(outputs, cov + self._covariance(outputs))

    def expect(self, outputs: Outputs, cov: OutputCov) -> Expectation:
        """Return the outputs, and the diagonal of J S J' + R."""
        return Expectation(outputs, (cov + self._covariance(outputs)).diagonal(dim1=-2, dim2=-1))

    def predict(self, outputs: Outputs, cov: OutputCov, target: Target, observed: Observed | None) -> Prediction:
        """Return mean and variance of the Gaussian, and the score of the target."""
        if outputs.shape[-1] == 1 and observed is None:  # no factorisation
            variance = cov[..., 0] + self.noise
            log_prob = -0.5 * ((target - outputs).square() / variance + variance.log() + LOG_2PI)
            return Prediction(outputs, variance, log_prob[..., 0])
        total = cov + self._covariance(outputs)
        return Prediction(outputs, total.diagonal(dim1=-2, dim2=-1), _log_normal(target - outputs, total, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Refuse observed numbers that are not finite."""
        check_that(target.isfinite(), target, observed, "to be finite (mark what is missing as not observed)")


@dataclasses.dataclass(frozen=True)
class LogDensity(AbstractLikelihood):
    """The one output is the log-density of what was observed: so learns any model that has a likelihood of its own.

    Curvature is the empirical Fisher of single points, sum_i g_i g_i' (see `EmpiricalFisher`). Targets are not read.
    """

    def whiten(
        self,
        outputs: Float[Tensor, "point 1"],
        jacobian: Float[Tensor, "point 1 weight"],
        target: Target,
        observed: Observed | None,
    ) -> Whitened:
        """The gradient of each point, and a residual of one."""
        return jacobian, torch.ones_like(outputs)  # gradient g and curvature g g'

    def log_prob(
        self, outputs: Float[Tensor, "point 1"], target: Target, observed: Observed | None
    ) -> Float[Tensor, " point"]:
        """Return the output: the log-density itself."""
        return outputs.squeeze(-1)

    def predictive(self, outputs: Float[Tensor, "*point 1"], cov: Float[Tensor, "*point 1 1"]) -> Distribution:
        """Refuse: not the learner has it, but the model behind the log-density.

        Raises:
            TypeError: Always.
        """
        raise TypeError("expected a likelihood of targets: of a log-density alone there is no predictive distribution")

    def expect(self, outputs: Float[Tensor, "point 1"], cov: Float[Tensor, "point 1 1"]) -> Expectation:
        """Return the log-density at the mean of the belief."""
        return Expectation(outputs, torch.zeros_like(outputs))

    def predict(
        self,
        outputs: Float[Tensor, "point 1"],
        cov: Float[Tensor, "point 1 1"],
        target: Target,
        observed: Observed | None,
    ) -> Prediction:
        """Return the log-density at the mean of the belief."""
        return Prediction(outputs, torch.zeros_like(outputs), outputs.squeeze(-1))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Accept everything: targets are not read."""

    @property
    def needs_covariance(self) -> bool:
        """Say no: a log-density is taken at the mean."""
        return False


def _log_normal(residual: Tensor, cov: Tensor, observed: Tensor | None) -> Tensor:
    """Return log N(residual; 0, cov) of the observed components."""
    count: Tensor | int = residual.shape[-1]
    if observed is not None:
        residual, count = torch.where(observed, residual, 0.0), observed.to(residual.dtype).sum(-1)
        cov = mask_cov(cov, observed)
    factor = cholesky(cov, "the covariance of a prediction")
    factor = factor.expand(*residual.shape[:-1], *factor.shape[-2:])
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)  # differentiable twice
    return -0.5 * (white.square().sum((-2, -1)) + count * LOG_2PI) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def scaled(jacobian: Tensor, residual: Tensor, root: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return diag(root) J and the residual, both without missing components."""
    if observed is not None:
        residual, root = torch.where(observed, residual, 0.0), root * observed
    return jacobian * root.unsqueeze(-1), residual


def sum_observed(terms: Tensor, observed: Tensor | None) -> Tensor:
    """Sum the observed terms over the last dimension."""
    return (terms if observed is None else torch.where(observed, terms, 0.0)).sum(-1)


def check_whole(target: Tensor, observed: Tensor | None, what: str) -> None:
    """Raises a ValueError for an observed target that is no whole number from 0 on."""
    check_that((target >= 0) & (target == target.round()), target, observed, f"to be a {what} 0, 1, ...")


def check_that(fits: Tensor, target: Tensor, observed: Tensor | None, what: str) -> None:
    """Raises a ValueError that names the expectation of observed targets, and the first that breaks it."""
    wrong = ~fits if observed is None else observed & ~fits
    if bool(wrong.any()):
        where = wrong.nonzero()[0].tolist()
        raise ValueError(f"expected a target {what}, got {target[tuple(where)].item():g} at index {where}")
