"""Likelihoods of classes: two of them, or several."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from tsforecast.learners.likelihoods.likelihood import (
    AbstractModeratedLikelihood,
    check_that,
    check_whole,
    scaled,
    sum_observed,
)
from tsforecast.learners.likelihoods.predictions import Expectation
from tsforecast.learners.shapes import Jacobian, Observed, Outputs, Target, Whitened


class AbstractClassLikelihood(AbstractModeratedLikelihood):
    """A likelihood of classes, with logits as outputs."""

    def moderate(self, outputs: Tensor, cov: Tensor) -> Tensor:
        """Return logits, shrunk by their variances: the mean of a sigmoid, as MacKay (1992) approximates it."""
        return outputs / (1 + math.pi / 8 * cov.diagonal(dim1=-2, dim2=-1)).sqrt() if self.moderated else outputs


@dataclasses.dataclass(frozen=True)
class BernoulliLikelihood(AbstractClassLikelihood):
    """A target of 0 or 1, with outputs as logits; each output has a target of its own.

    Attributes:
        prediction: "plug-in" at the mean, or "moderated" by the uncertainty of the logit (MacKay 1992).
        floor: Smallest variance p (1 - p) by which a residual is divided.
    """

    prediction: str = "plug-in"
    floor: float = 1e-6

    def whiten(self, outputs: Outputs, jacobian: Jacobian, target: Target, observed: Observed | None) -> Whitened:
        """Return sqrt(p (1 - p)) J and (y - p) / sqrt(p (1 - p))."""
        p = outputs.sigmoid()
        root = (p * (1 - p)).clamp_min(self.floor).sqrt()  # a saturated sigmoid has no curvature left to divide by
        return scaled(jacobian, (target - p) / root, root, observed)

    def log_prob(self, outputs: Outputs, target: Target, observed: Observed | None) -> Float[Tensor, " point"]:
        """Return y f - log(1 + exp f), summed over the outputs."""
        return sum_observed(target * outputs - torch.nn.functional.softplus(outputs), observed)

    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution of the targets; outputs are independent."""
        return Independent(Bernoulli(logits=self.moderate(outputs, cov)), 1)

    def moments(self, outputs: Tensor) -> Expectation:
        """Return the probability of a 1, and its variance."""
        p = outputs.sigmoid()
        return Expectation(p, p * (1 - p))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Refuse targets other than 0 and 1."""
        check_that(((target == 0) | (target == 1)), target, observed, "to be 0 or 1")


@dataclasses.dataclass(frozen=True)
class CategoricalLikelihood(AbstractClassLikelihood):
    """One of C classes, with outputs as logits; the target is the number of the class.

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
        super().__post_init__()
        for name, value in (("smoothing", self.smoothing), ("jitter", self.jitter)):
            if not 0 <= value < 1:
                raise ValueError(f"expected {name} to be at least 0 and below 1, got {value}")

    def whiten(self, outputs: Outputs, jacobian: Jacobian, target: Target, observed: Observed | None) -> Whitened:
        """Return B' J and (y - p) / sqrt p, or the whitened form with jitter."""
        p = outputs.softmax(-1)
        residual = _came(target, p).to(p.dtype) - p
        if observed is not None:
            residual = torch.where(observed, residual, 0.0)
        if self.jitter:
            root, among, residual = self._jittered(p, residual)
        else:  # B' = diag(sqrt p) (I - 1 p')
            among = (1 - self.smoothing) * p + self.smoothing / p.shape[-1]
            # Without smoothing a probability may round to 0.
            among = among.clamp_min(1e-12 if p.dtype == torch.float64 else 1e-6)
            root = among.sqrt()
            residual = residual / root
        root = root if observed is None else root * observed
        # The small matrix first: of the size of the weights there is one product.
        eye = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)
        return torch.bmm(root.unsqueeze(-1) * (eye - among.unsqueeze(-2)), jacobian), residual

    def _jittered(self, p: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """R^{-1/2} (diag(p) - p p') = diag(u) (I - 1 a'), as u and a, and R^{-1/2} residual, without a factorisation.

        R = diag(d) - p p' with d = p + jitter. Let u = p / sqrt d, so that w = 1 - u' u is jitter sum(p / d). A root of
        R^{-1} is (I + c u u') diag(d)^{-1/2} with c = 1 / (w + sqrt w); so a = p (1 / sqrt w - c p / d).
        """
        d = p + self.jitter
        share, scale = p / d, d.rsqrt()
        left = self.jitter * share.sum(-1, keepdim=True)
        root = left.sqrt()
        c = (left + root).reciprocal()
        residual = scale * torch.addcmul(residual, p, c * (share * residual).sum(-1, keepdim=True))
        return p * scale, p * (root.reciprocal() - c * share), residual

    def log_prob(self, outputs: Outputs, target: Target, observed: Observed | None) -> Float[Tensor, " point"]:
        """Return the logarithm of the softmax at the class that came."""
        log_p = outputs.log_softmax(-1)
        chosen = torch.where(_came(target, outputs), log_p, 0.0).sum(-1, keepdim=observed is not None)
        return chosen if observed is None else sum_observed(chosen, observed)

    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution of the class."""
        return Categorical(logits=self.moderate(outputs, cov))

    def moments(self, outputs: Tensor) -> Expectation:
        """Return the probabilities of the classes."""
        p = outputs.softmax(-1)
        return Expectation(p, p * (1 - p))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Refuse targets that are no whole numbers from 0 on."""
        check_whole(target, observed, "class")


def _came(target: Tensor, p: Tensor) -> Tensor:
    """Return a mask of the class that came."""
    return target == torch.arange(p.shape[-1], dtype=target.dtype, device=target.device)
