"""The learner that every Gaussian algorithm is: network, likelihood, and five independent choices."""

import abc
import dataclasses
import functools
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.drift import AbstractDrift, BayesianForgetting, NoDrift
from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator, Linearised
from tsforecast.learners.evidence.pseudo_observation import Model, Near, Points
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.over_network import AbstractNetworkLearner, AbstractPointsLearner
from tsforecast.learners.rule import BONG, AbstractRule
from tsforecast.learners.shapes import Inputs, Samples, Scalar, Weights
from tsforecast.learners.weight import AbstractWeight, Unweighted

Belief = TypeVar("Belief")


@dataclasses.dataclass(frozen=True)
class GaussianLearner(AbstractPointsLearner[Any]):
    """A Gaussian belief over the weights of a network, conditioned on every observation.

    Attributes:
        mean: Weights to begin with.
        variance: Prior variance of each weight.
        family: Of the belief.
        evidence: How the evidence of an observation is found.
        weight_drift: Of the weights between observations.
        weight: How much an outlier counts.
        rule: How the evidence is taken in.

    Raises:
        ValueError: If mean or variance do not fit the network.
    """

    mean: Weights
    variance: Weights
    family: AbstractFamily = dataclasses.field(default_factory=Full)
    evidence: AbstractEvidenceEstimator = dataclasses.field(default_factory=Linearised)
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)
    weight: AbstractWeight = dataclasses.field(default_factory=Unweighted)
    rule: AbstractRule = dataclasses.field(default_factory=BONG)

    def __post_init__(self) -> None:
        for name, value in (("mean", self.mean), ("variance", self.variance)):
            if value.shape != (self.network.size,):
                raise ValueError(f"expected {name} for {self.network.size} weights, got shape {tuple(value.shape)}")
        if not bool((self.variance > 0).all()):
            raise ValueError("expected positive prior variances")

    def init(self) -> Any:
        """Return the prior."""
        return self.family.init(self.mean, self.variance)

    def drift(self, belief: Any, dt: Scalar) -> Any:
        """Move the belief by the drift of the weights."""
        if isinstance(self.weight_drift, NoDrift):
            return belief  # without the prior, which may be a matrix as large as the belief
        return self.weight_drift(self.family, belief, self.prior, dt)

    @functools.cached_property
    def prior(self) -> Any:
        """Prior that drifts return to; kept, so not a tensor of inference mode, since those have no gradients."""
        with torch.inference_mode(False):
            return self.family.prior(self.mean, self.variance)

    def predict(self, belief: Any, inputs: Inputs) -> Distribution:
        """Return the distribution of the target, by the linearised network."""
        return self.likelihood.predictive(*self.family.outputs(belief, self.network, inputs))

    def expect(self, belief: Any, inputs: Inputs, spread: bool = True) -> Expectation:
        """Linearise the network where the covariance of its outputs matters; else take the network alone."""
        if spread or self.likelihood.moderated:  # a moderated mean depends on the variance
            return self.likelihood.expect(*self.family.outputs(belief, self.network, inputs))
        outputs = self.network(self.family.mean(belief), inputs)
        return self.likelihood.expect(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[-1]))

    def learn(self, belief: Any, points: Points, generator: torch.Generator | None, done: Any = None) -> Any:
        """Take the evidence of the points in, by the rule; outputs and Jacobian may be known."""
        if self.evidence.pointwise and len(points.target) > 1:
            for k in range(len(points.target)):  # each at the belief that the one before left
                belief = self.learn(belief, points.only(k), generator)
            return belief
        model = Model(self.network, self.likelihood, self.family)

        # A lambda: what is defined at every step would be wrapped at every step where types are checked at run time.
        return self.rule(
            self.family,
            belief,
            lambda at: self.evidence(
                Near(model, at, points, self.weight, done if at is belief else None), generator
            ).as_taken_by(self.family),
        )

    def forget(self, belief: Any, rate: float) -> Any:
        """The belief is mixed with the prior, in natural parameters."""
        return BayesianForgetting(rate)(self.family, belief, self.prior, 1.0)

    def adopt(self, smaller: AbstractNetworkLearner[Any], belief: Any) -> tuple["GaussianLearner", Any]:
        """Ask the network for the places of the weights, and the family to embed the belief."""
        if not isinstance(smaller, GaussianLearner):
            raise ValueError(f"expected a GaussianLearner, got {type(smaller).__name__}")
        network, places = self.network.adopt(smaller.network)
        places = places.to(self.mean.device)
        mean = self.mean.index_copy(0, places, smaller.mean)
        # Old weights keep their prior, for drifts towards it.
        variance = self.variance.index_copy(0, places, smaller.variance)
        learner = dataclasses.replace(self, network=network, mean=mean, variance=variance)
        return learner, self.family.embed(belief, learner.init(), places)

    def weights(self, belief: Any) -> Weights:
        """Return the mean of the weights."""
        return self.family.mean(belief)

    def variances(self, belief: Any) -> Weights:
        """Return the marginal variances of the weights."""
        return self.family.variance(belief)

    def sample(self, belief: Any, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw weights from the belief."""
        return self.family.sample(belief, num_samples, generator)

    def scored(self, belief: Any, points: Points) -> tuple[Prediction, tuple[Tensor, Tensor]]:
        """Return the prediction, and the linearisation that it shares with the update."""
        outputs, jacobian = self.network.linearise(self.family.mean(belief), points.inputs)
        if self.likelihood.needs_covariance:
            cov = self.family.covariance(belief, jacobian)
        else:
            cov = outputs.new_zeros(*outputs.shape, outputs.shape[-1])
        prediction = self.likelihood.predict(outputs, cov, points.target, points.observed)
        return prediction, (outputs, jacobian)


class AbstractPartlyGaussian(AbstractPointsLearner[Belief]):
    """A learner that predicts by a Gaussian in its belief."""

    @functools.cached_property
    @abc.abstractmethod
    def plain(self) -> GaussianLearner:
        """Learner of the Gaussian alone."""

    @abc.abstractmethod
    def gaussian(self, belief: Belief) -> Any:
        """Return the Gaussian, as the family of `plain` has it."""

    def predict(self, belief: Belief, inputs: Inputs) -> Distribution:
        """Return the distribution of the target, by the Gaussian."""
        return self.plain.predict(self.gaussian(belief), inputs)

    def expect(self, belief: Belief, inputs: Inputs, spread: bool = True) -> Expectation:
        """Return mean and variance of the target, by the Gaussian."""
        return self.plain.expect(self.gaussian(belief), inputs, spread)

    def scored(self, belief: Belief, points: Points) -> tuple[Prediction, None]:
        """Return the prediction by the Gaussian, and its score."""
        moments = self.plain.family.outputs(self.gaussian(belief), self.network, points.inputs)
        return self.likelihood.predict(*moments, points.target, points.observed), None

    def weights(self, belief: Belief) -> Weights:
        """Return the mean of the Gaussian."""
        return self.plain.weights(self.gaussian(belief))

    def variances(self, belief: Belief) -> Weights:
        """Return the variances of the Gaussian."""
        return self.plain.variances(self.gaussian(belief))

    def sample(self, belief: Belief, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw weights from the Gaussian."""
        return self.plain.sample(self.gaussian(belief), num_samples, generator)
