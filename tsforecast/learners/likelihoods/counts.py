"""The likelihood of counts, Poisson with a log-rate."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, Independent, Poisson

from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, check_prediction, check_that, sum_observed
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction


@dataclasses.dataclass(frozen=True)
class PoissonLikelihood(AbstractLikelihood):
    """A count, with the logarithm of the rate as output; each output has a target of its own.

    Attributes:
        prediction: "plug-in" at the mean, or "moderated": with the mean exp(f + s^2 / 2) of a log-normal rate.
        largest: Log-rates are cut here, so that they do not overflow.
    """

    prediction: str = "plug-in"
    largest: float = 20.0

    def __post_init__(self) -> None:
        check_prediction(self.prediction)

    @property
    def moderated(self) -> bool:
        """Say whether predictions are moderated."""
        return self.prediction == "moderated"

    @property
    def needs_covariance(self) -> bool:
        """Say whether predictions are moderated."""
        return self.moderated

    def whiten(
        self,
        outputs: Float[Tensor, "point output"],
        jacobian: Float[Tensor, "point output weight"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
        """Return sqrt(r) J and (y - r) / sqrt(r)."""
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
        """Return y f - exp f - log y!, summed over the outputs."""
        log_rate = outputs.clamp_max(self.largest)
        count = target if observed is None else torch.where(observed, target, 0.0)
        return sum_observed(count * log_rate - log_rate.exp() - torch.lgamma(count + 1), observed)

    def _log_rate(self, outputs: Tensor, cov: Tensor) -> Tensor:
        if self.prediction == "plug-in":
            return outputs.clamp_max(self.largest)
        return (outputs + 0.5 * cov.diagonal(dim1=-2, dim2=-1)).clamp_max(self.largest)

    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution of the targets; outputs are independent."""
        return Independent(Poisson(self._log_rate(outputs, cov).exp()), 1)

    def expect(self, outputs: Float[Tensor, "point output"], cov: Float[Tensor, "point output output"]) -> Expectation:
        """Return the rate; it is also the variance."""
        rate = self._log_rate(outputs, cov).exp()
        return Expectation(rate, rate)

    def predict(
        self,
        outputs: Float[Tensor, "point output"],
        cov: Float[Tensor, "point output output"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None,
    ) -> Prediction:
        """Return the rate, and the score of the target."""
        log_rate = self._log_rate(outputs, cov)
        return Prediction(log_rate.exp(), log_rate.exp(), self.log_prob(log_rate, target, observed))

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Refuse targets that are no whole numbers from 0 on."""
        check_that((target >= 0) & (target == target.round()), target, observed, "to be a count 0, 1, ...")
