"""What a network's outputs say about a target: likelihoods, and the whitened observation of the weights they amount to.

A linearised likelihood is the pseudo-observation `e = H (theta - mean) + v`, v ~ N(0, I): `H' H` is its curvature and
`H' e` its gradient at the mean. Rows of zeros say nothing: so are missing components left out.
"""

import abc
import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Bernoulli as BernoulliDistribution
from torch.distributions import Categorical as CategoricalDistribution
from torch.distributions import Distribution, Independent, MultivariateNormal
from torch.distributions import Poisson as PoissonDistribution

from tsforecast.core.learner import Prediction
from tsforecast.core.linalg import LOG_2PI, cholesky, solve_lower, whiten

PREDICTIONS = ("plug-in", "moderated")


class AbstractLikelihood(abc.ABC):
    """p(target | outputs of the network), point by point."""

    @abc.abstractmethod
    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """Matrix H and residual e of the pseudo-observation."""

    @abc.abstractmethod
    def log_prob(
        self,
        outputs: Float[Tensor, "point output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """Of the observed components; differentiable."""

    @abc.abstractmethod
    def predictive(
        self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]
    ) -> Distribution:
        """Of the target, given mean and covariance of the outputs."""

    @abc.abstractmethod
    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """What `predictive` says about a target."""

    @abc.abstractmethod
    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Looks at data that arrive.

        Raises:
            ValueError: If an observed target cannot come from this likelihood.
        """

    @property
    def needs_covariance(self) -> bool:
        """Whether `predictive` reads the covariance of the outputs."""
        return True


@dataclasses.dataclass(frozen=True)
class Gaussian(AbstractLikelihood):
    """N(outputs, noise): the linearised posterior is exact where the network is linear in its weights.

    Attributes:
        noise: Variance: one number, one for each output, or a covariance matrix.
    """

    noise: Float[Tensor, "*noise"] | float = 1.0

    def _covariance(self, outputs: Tensor) -> Tensor:
        noise = torch.as_tensor(self.noise, dtype=outputs.dtype, device=outputs.device)
        return noise if noise.ndim == 2 else torch.diag_embed(noise.expand(outputs.shape[-1]))

    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """R^{-1/2} J and R^{-1/2} (y - f)."""
        residual = target - outputs
        if observed is not None:
            residual = torch.where(observed, residual, 0.0)
            jacobian = jacobian * observed.unsqueeze(-1)
        if isinstance(self.noise, Tensor) and self.noise.ndim == 2:
            factor = cholesky(_masked(self._covariance(outputs), observed), "the noise of an observation")
            factor = factor.expand(len(outputs), *factor.shape[-2:])
            return whiten(factor, jacobian), solve_lower(factor, residual)
        if isinstance(self.noise, Tensor):
            precision = self.noise.rsqrt()
            return jacobian * precision.unsqueeze(-1), residual * precision
        return jacobian * self.noise**-0.5, residual * self.noise**-0.5

    def log_prob(
        self,
        outputs: Float[Tensor, "point output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """Log-density."""
        if isinstance(self.noise, Tensor) and self.noise.ndim == 2:
            return _log_normal(target - outputs, self._covariance(outputs), observed)
        noise = torch.as_tensor(self.noise, dtype=outputs.dtype, device=outputs.device)
        return _total(-0.5 * ((target - outputs).square() / noise + noise.log() + LOG_2PI), observed)

    def predictive(
        self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]
    ) -> Distribution:
        """N(f, J S J' + R)."""
        return MultivariateNormal(outputs, cov + self._covariance(outputs))

    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """Mean and variance of the Gaussian."""
        if outputs.shape[-1] == 1 and observed is None:  # no factorisation
            variance = cov[..., 0] + self.noise
            log_prob = -0.5 * ((target - outputs).square() / variance + variance.log() + LOG_2PI)
            return Prediction(outputs, variance, log_prob[..., 0])
        total = cov + self._covariance(outputs)
        return Prediction(outputs, total.diagonal(dim1=-2, dim2=-1), _log_normal(target - outputs, total, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Numbers must be finite where observed."""
        _check_finite(target, observed)


@dataclasses.dataclass(frozen=True)
class Bernoulli(AbstractLikelihood):
    """A target of 0 or 1, of which the outputs are logits; each output has a target of its own.

    Attributes:
        prediction: "plug-in" at the mean, or "moderated" by the uncertainty of the logit (MacKay 1992).
        floor: Smallest variance p (1 - p) by which a residual is divided.
    """

    prediction: str = "plug-in"
    floor: float = 1e-6

    def __post_init__(self) -> None:
        _check_prediction(self.prediction)

    @property
    def needs_covariance(self) -> bool:
        """Where predictions are moderated."""
        return self.prediction == "moderated"

    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """sqrt(p (1 - p)) J and (y - p) / sqrt(p (1 - p))."""
        p = outputs.sigmoid()
        root = (p * (1 - p)).clamp_min(self.floor).sqrt()
        residual = (target - p) / root
        if observed is not None:
            residual, root = torch.where(observed, residual, 0.0), root * observed
        return jacobian * root.unsqueeze(-1), residual

    def log_prob(
        self,
        outputs: Float[Tensor, "point output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """Y f - log(1 + exp f)."""
        return _total(target * outputs - torch.nn.functional.softplus(outputs), observed)

    def predictive(
        self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]
    ) -> Distribution:
        """Independent outputs."""
        return Independent(BernoulliDistribution(logits=_logits(self.prediction, outputs, cov)), 1)

    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """Probability of a 1."""
        logits = _logits(self.prediction, outputs, cov)
        p = logits.sigmoid()
        return Prediction(p, p * (1 - p), self.log_prob(logits, target, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Targets are 0 or 1."""
        _check_that(((target == 0) | (target == 1)), target, observed, "to be 0 or 1")


@dataclasses.dataclass(frozen=True)
class Categorical(AbstractLikelihood):
    """One of C classes, of which the outputs are logits; the target is the number of the class.

    With `p` the probabilities and `B = diag(sqrt p) - p sqrt(p)'`: `B B' = diag(p) - p p'` and, for
    `e = (y - p) / sqrt p`, `B e = y - p`. Where p is nearly 0 for the class that came the curvature vanishes and the
    step overshoots: so B is built of `(1 - smoothing) p + smoothing / C`, with the residual y - p unchanged.

    Attributes:
        smoothing: 0 is the exact generalised Gauss-Newton form.
        jitter: If positive, the form of other implementations instead: R = diag(p) - p p' + jitter I, residual y - p.
        prediction: "plug-in" at the mean, or "moderated" by the variance of each logit.
    """

    smoothing: float = 0.01
    jitter: float = 0.0
    prediction: str = "plug-in"

    def __post_init__(self) -> None:
        _check_prediction(self.prediction)
        for name, value in (("smoothing", self.smoothing), ("jitter", self.jitter)):
            if not 0 <= value < 1:
                raise ValueError(f"expected {name} to be at least 0 and below 1, got {value}")

    @property
    def needs_covariance(self) -> bool:
        """Where predictions are moderated."""
        return self.prediction == "moderated"

    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """B' J and (y - p) / sqrt p, or the whitened form with jitter."""
        p = outputs.softmax(-1)
        residual = _came(target, p) - p
        if observed is not None:
            residual = torch.where(observed, residual, 0.0)
        if self.jitter:
            root, among, residual = self._jittered(p, residual)
        else:  # B' = diag(sqrt p) (I - 1 p')
            among = (1 - self.smoothing) * p + self.smoothing / p.shape[-1]
            among = among.clamp_min(1e-12 if p.dtype == torch.float64 else 1e-6)
            root = among.sqrt()
            residual = residual / root
        root = root if observed is None else root * observed
        # The small matrix first: of the size of the weights there is one product.
        eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
        return torch.bmm(root.unsqueeze(-1) * (eye - among.unsqueeze(-2)), jacobian), residual

    def _jittered(self, p: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """R^{-1/2} (diag(p) - p p') = diag(u) (I - 1 a'), as u and a, and R^{-1/2} residual, without a factorisation.

        R = diag(d) - p p' with d = p + jitter. With u = p / sqrt d and w = 1 - u' u = jitter sum(p / d), a root of its
        inverse is (I + c u u') diag(d)^{-1/2}, c = 1 / (w + sqrt w); so a = p (1 / sqrt w - c p / d).
        """
        d = p + self.jitter
        share, scale = p / d, d.rsqrt()
        left = self.jitter * share.sum(-1, keepdim=True)
        root = left.sqrt()
        c = (left + root).reciprocal()
        residual = scale * torch.addcmul(residual, p, c * (share * residual).sum(-1, keepdim=True))
        return p * scale, p * (root.reciprocal() - c * share), residual

    def log_prob(
        self,
        outputs: Float[Tensor, "point output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """Logarithm of the softmax."""
        chosen = (outputs.log_softmax(-1) * _came(target, outputs)).sum(-1, keepdim=observed is not None)
        return chosen if observed is None else _total(chosen, observed)

    def predictive(
        self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]
    ) -> Distribution:
        """Of the class."""
        return CategoricalDistribution(logits=_logits(self.prediction, outputs, cov))

    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """Probabilities of the classes."""
        logits = _logits(self.prediction, outputs, cov)
        p = logits.softmax(-1)
        return Prediction(p, p * (1 - p), self.log_prob(logits, target, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Targets are whole numbers from 0 on."""
        _check_that((target >= 0) & (target == target.round()), target, observed, "to be a class 0, 1, ...")


@dataclasses.dataclass(frozen=True)
class Poisson(AbstractLikelihood):
    """A count, of which the output is the logarithm of the rate; each output has a target of its own.

    Attributes:
        prediction: "plug-in" at the mean, or "moderated": with the mean exp(f + s^2 / 2) of a log-normal rate.
        largest: Log-rates are cut here, so that they do not overflow.
    """

    prediction: str = "plug-in"
    largest: float = 20.0

    def __post_init__(self) -> None:
        _check_prediction(self.prediction)

    @property
    def needs_covariance(self) -> bool:
        """Where predictions are moderated."""
        return self.prediction == "moderated"

    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """sqrt(r) J and (y - r) / sqrt(r)."""
        rate = outputs.clamp(-self.largest, self.largest).exp()
        root = rate.sqrt()
        residual = (target - rate) / root
        if observed is not None:
            residual, root = torch.where(observed, residual, 0.0), root * observed
        return jacobian * root.unsqueeze(-1), residual

    def log_prob(
        self,
        outputs: Float[Tensor, "point output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """Y f - exp f - log y!."""
        log_rate = outputs.clamp_max(self.largest)
        count = target if observed is None else torch.where(observed, target, 0.0)
        return _total(count * log_rate - log_rate.exp() - torch.lgamma(count + 1), observed)

    def _log_rate(self, outputs: Tensor, cov: Tensor) -> Tensor:
        if self.prediction == "plug-in":
            return outputs.clamp_max(self.largest)
        return (outputs + 0.5 * cov.diagonal(dim1=-2, dim2=-1)).clamp_max(self.largest)

    def predictive(
        self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]
    ) -> Distribution:
        """Independent outputs."""
        return Independent(PoissonDistribution(self._log_rate(outputs, cov).exp()), 1)

    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """The rate."""
        log_rate = self._log_rate(outputs, cov)
        return Prediction(log_rate.exp(), log_rate.exp(), self.log_prob(log_rate, target, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Targets are whole numbers from 0 on."""
        _check_that((target >= 0) & (target == target.round()), target, observed, "to be a count 0, 1, ...")


def _came(target: Tensor, p: Tensor) -> Tensor:
    """1 for the class that came, 0 for all others."""
    return (target == torch.arange(p.shape[-1], dtype=target.dtype, device=target.device)).to(p.dtype)


def _logits(prediction: str, outputs: Tensor, cov: Tensor) -> Tensor:
    """Logits at the mean, or shrunk by their variances as MacKay (1992) approximates the mean of a sigmoid."""
    if prediction == "plug-in":
        return outputs
    return outputs / (1 + math.pi / 8 * cov.diagonal(dim1=-2, dim2=-1)).sqrt()


def _masked(cov: Tensor, observed: Tensor | None) -> Tensor:
    """With independent ones where nothing is observed."""
    if observed is None:
        return cov
    mask = observed.to(cov.dtype)
    return cov * mask.unsqueeze(-1) * mask.unsqueeze(-2) + torch.diag_embed(1 - mask)


def _log_normal(residual: Tensor, cov: Tensor, observed: Tensor | None) -> Tensor:
    """Log N(residual; 0, cov) of the observed components."""
    count: Tensor | int = residual.shape[-1]
    if observed is not None:
        residual, count = torch.where(observed, residual, 0.0), observed.to(residual.dtype).sum(-1)
    factor = cholesky(_masked(cov, observed), "the covariance of a prediction")
    factor = factor.expand(*residual.shape[:-1], *factor.shape[-2:])
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)  # differentiable twice
    return -0.5 * (white.square().sum((-2, -1)) + count * LOG_2PI) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _total(terms: Tensor, observed: Tensor | None) -> Tensor:
    return (terms if observed is None else torch.where(observed, terms, 0.0)).sum(-1)


def _check_prediction(prediction: str) -> None:
    if prediction not in PREDICTIONS:
        raise ValueError(f"expected prediction to be one of {', '.join(PREDICTIONS)}, got {prediction!r}")


def _check_finite(target: Tensor, observed: Tensor | None) -> None:
    _check_that(target.isfinite(), target, observed, "to be finite (mark what is missing as not observed)")


def _check_that(fits: Tensor, target: Tensor, observed: Tensor | None, what: str) -> None:
    wrong = ~fits if observed is None else observed & ~fits
    if bool(wrong.any()):
        where = wrong.nonzero()[0].tolist()
        raise ValueError(f"expected a target {what}, got {target[tuple(where)].item():g} at index {where}")


@dataclasses.dataclass(frozen=True)
class LogDensity(AbstractLikelihood):
    """The one output is the log-density of what was observed: so learns any model that has a likelihood of its own.

    Curvature is the empirical Fisher of single points, sum_i g_i g_i' (see `EmpiricalFisher`). Targets are not read.
    """

    def whiten(
        self,
        outputs: Float[Tensor, "point 1"],
        jacobian: Float[Tensor, "point 1 weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """The gradient of each point, and a residual of one."""
        return jacobian, torch.ones_like(outputs)

    def log_prob(
        self,
        outputs: Float[Tensor, "point 1"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Float[Tensor, " point"]:
        """The output."""
        return outputs.squeeze(-1)

    def predictive(self, outputs: Float[Tensor, "point 1"], cov: Float[Tensor, "point 1 1"]) -> Distribution:
        """Not of the learner, but of the model behind it.

        Raises:
            TypeError: Always.
        """
        raise TypeError("expected a likelihood of targets: of a log-density alone there is no predictive distribution")

    def predict(
        self,
        outputs: Float[Tensor, "point 1"],
        cov: Float[Tensor, "point 1 1"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """The log-density at the mean of the belief."""
        return Prediction(outputs, torch.zeros_like(outputs), outputs.squeeze(-1))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Everything is fine: targets are not read."""

    @property
    def needs_covariance(self) -> bool:
        """A log-density is taken at the mean."""
        return False
