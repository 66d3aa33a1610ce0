"""Forecasters whose whole model is one linear-Gaussian system: exact likelihood, exact forecasts."""

import abc

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian
from tsforecast.models.base import AbstractForecaster, Batch, Belief, Stretch


class AbstractLinearForecaster(AbstractForecaster):
    """Filtering, likelihood and forecasts of a model which is a linear system given its parameters."""

    @abc.abstractmethod
    def system(self, stretch: Stretch, batch: Batch | Belief) -> tuple[AbstractLinearSystem, Gaussian]:
        """The system of a stretch of time in scaled units, and the prior over the state before it.

        Args:
            stretch: Time and covariates.
            batch: Which series they are.
        """

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Negative log-likelihood per observed value."""
        location, scale = self.begin(batch)
        stretch = self.stretch(batch, "both")
        system, prior = self.system(stretch, batch)
        terms = system.log_likelihood(prior, *scaled(stretch, location, scale))
        return -terms.sum(0) / stretch.observed.sum((0, 2)).clamp_min(1)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Exact filtering of the batch's past."""
        stretch = self.stretch(batch, "past")
        location, scale = self.begin(batch) if belief is None else (belief.location, belief.scale)
        system, prior = self.system(stretch, batch if belief is None else belief)
        state, terms = system.posterior(
            prior if belief is None else belief.state, *scaled(stretch, location, scale)
        )
        return self.belief_over(state, batch, location, scale), terms

    def predictive(self, belief: Belief, future: Batch) -> Gaussian:
        """Joint Gaussian of the horizon in closed form, given what is known of it.

        Returns:
            Dimension horizon * target, time outermost; in transformed units, not scaled.
        """
        stretch = self.stretch(future, "future")
        system, _ = self.system(stretch, belief)
        joint = system.predictive(belief.state, len(stretch.time_feat))
        location, scale = (x.repeat(1, len(stretch.time_feat)) for x in (belief.location, belief.scale))
        joint = Gaussian(joint.mean * scale + location, joint.cov * scale.unsqueeze(-1) * scale.unsqueeze(-2))
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not bool(observed.any()):
            return joint
        value = self.transform(torch.where(observed, known, 0.0).to(joint.mean.dtype))
        return joint.condition(value.flatten(1), observed.flatten(1))

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Exact joint samples of the horizon, given what is known of it."""
        samples = self.predictive(belief, future).sample((num_samples,), generator)
        samples = self.restore(samples.transpose(0, 1).unflatten(-1, (-1, self.num_targets)))
        known = future["known_future"].to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def marginals(self, belief: Belief, future: Batch) -> list[torch.distributions.Distribution]:
        """Exact marginal distributions of the horizon for every series, in the units of the data and not clipped.

        Univariate targets have shape (horizon,), others (horizon, target). Behind a transformation quantiles are exact, and
        moments are not available.
        """
        joint = self.predictive(belief, future)
        shape = (-1,) if self.num_targets == 1 else (-1, self.num_targets)
        mean, deviation = (x.unflatten(-1, shape).cpu() for x in (joint.mean, joint.variance.clamp_min(0).sqrt()))
        normals = [torch.distributions.Normal(m, d) for m, d in zip(mean, deviation, strict=True)]
        if self.transformation == "none":
            return list(normals)
        if self.transformation != "log1p":
            raise ValueError(f"marginal distributions are not available behind {self.transformation!r}: take samples")
        back = [torch.distributions.ExpTransform(), torch.distributions.AffineTransform(-1.0, 1.0)]
        return [torch.distributions.TransformedDistribution(normal, back) for normal in normals]


def scaled(
    stretch: Stretch, location: Tensor, scale: Tensor
) -> tuple[Float[Tensor, "time series target"], Bool[Tensor, "time series target"] | None]:
    """Values in scaled units and their mask, None if all are observed."""
    values = torch.where(stretch.observed, (stretch.values - location) / scale, 0.0)
    return values, None if bool(stretch.observed.all()) else stretch.observed
