"""The likelihood of counts, Poisson with a log-rate."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, Independent, Poisson

from tsforecast.learners.likelihoods.likelihood import AbstractModeratedLikelihood, check_whole, scaled, sum_observed
from tsforecast.learners.likelihoods.predictions import Expectation
from tsforecast.learners.shapes import Jacobian, Observed, Outputs, Target, Whitened


@dataclasses.dataclass(frozen=True)
class PoissonLikelihood(AbstractModeratedLikelihood):
    """A count, with the logarithm of the rate as output; each output has a target of its own.

    Attributes:
        prediction: "plug-in" at the mean, or "moderated": with the mean exp(f + s^2 / 2) of a log-normal rate.
        largest: Log-rates are cut here, so that they do not overflow.
    """

    prediction: str = "plug-in"
    largest: float = 20.0

    def whiten(self, outputs: Outputs, jacobian: Jacobian, target: Target, observed: Observed | None) -> Whitened:
        """Return sqrt(r) J and (y - r) / sqrt(r)."""
        # Neither infinite nor 0: the residual is divided by the root of the rate.
        rate = outputs.clamp(-self.largest, self.largest).exp()
        root = rate.sqrt()
        return scaled(jacobian, (target - rate) / root, root, observed)

    def log_prob(self, outputs: Outputs, target: Target, observed: Observed | None) -> Float[Tensor, " point"]:
        """Return y f - exp f - log y!, summed over the outputs."""
        log_rate = outputs.clamp_max(self.largest)
        # `lgamma` of a missing NaN has a gradient of NaN.
        count = target if observed is None else torch.where(observed, target, 0.0)
        return sum_observed(count * log_rate - log_rate.exp() - torch.lgamma(count + 1), observed)

    def moderate(self, outputs: Tensor, cov: Tensor) -> Tensor:
        """Return the logarithm of the mean of a log-normal rate."""
        raised = outputs + 0.5 * cov.diagonal(dim1=-2, dim2=-1) if self.moderated else outputs
        return raised.clamp_max(self.largest)

    def predictive(
        self, outputs: Float[Tensor, "*point output"], cov: Float[Tensor, "*point output output"]
    ) -> Distribution:
        """Return the distribution of the targets; outputs are independent."""
        return Independent(Poisson(self.moderate(outputs, cov).exp()), 1)

    def moments(self, outputs: Tensor) -> Expectation:
        """Return the rate; it is also the variance."""
        rate = outputs.exp()
        return Expectation(rate, rate)

    def check(self, target: Float[Tensor, "*any target"], observed: Bool[Tensor, "*any target"] | None) -> None:
        """Refuse targets that are no whole numbers from 0 on."""
        check_whole(target, observed, "count")
