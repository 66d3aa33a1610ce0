"""A learner by assumed density filtering, fitted anew to all data at chosen steps: FAB-COST."""

import dataclasses
import functools
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.learners.batch.batch_posterior import AbstractBatchPosterior, Natural, Sites, check
from tsforecast.learners.batch.expectation_propagation import EP, visit_once
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.drift import AbstractDrift, BayesianForgetting, NoDrift
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.gaussian_learner import AbstractPartlyGaussian, GaussianLearner
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain, network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork, uniform_prior
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.shapes import Scalar, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class Refitted:
    """A belief, and the data that it will be fitted to again: the prior times the sites of these data.

    Attributes:
        belief: Over the weights.
        prior: Of the next fit: that of the learner, times the sites of points that are no longer kept.
        count: Points that were learnt from.
        rows: Of points that are kept, as long as a fit lies ahead: what their numbers are linear in.
        target: Theirs.
        precision: Of their sites.
        linear: Of their sites.
        counts: What they count for still: once, less what was forgotten.
    """

    belief: Gaussian
    prior: Gaussian
    count: Int[Tensor, ""]
    rows: Float[Tensor, "point weight"]
    target: Float[Tensor, "point 1"]
    precision: Float[Tensor, " point"]
    linear: Float[Tensor, " point"]
    counts: Float[Tensor, " point"]


@dataclasses.dataclass(frozen=True)
class RefittedLearner(AbstractPartlyGaussian[Refitted]):
    """Points are taken in one by one, in O(D^2), and at chosen steps all of them are fitted together.

    FAB-COST of McKenzie et al. (2020, algorithm 5) is this with EP at a few steps. With a memory, a point that leaves
    it stays in the belief by the site that it had, as every point does in assumed density filtering. It runs in a plain
    loop: what is kept grows, so that neither `vmap` nor a compiled loop takes it. The network has one output, linear in
    the weights. The likelihood is of predictions; updates take that of the site of `batch`.

    Attributes:
        mean: Weights to begin with.
        variance: Prior variance of each weight.
        batch: How all data are fitted.
        at: Numbers of points after which they are.
        every: Further, all so many points; 0 for never.
        memory: Points that a fit revises at least, and twice as many at most; 0 for all.
        weight_drift: Of the weights between points. Where they are fitted again it is Bayesian forgetting or none: fits
            take points for less the older they are, and know of no movement between them.

    Raises:
        ValueError: If the network is not linear, a number is outside of its range, or weights drift otherwise.
    """

    mean: Weights
    variance: Weights
    batch: AbstractBatchPosterior = dataclasses.field(default_factory=EP)
    at: tuple[int, ...] = (100, 10_000)
    every: int = 0
    memory: int = 0
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)

    def __post_init__(self) -> None:
        if not isinstance(self.network, LayerChain) or len(self.network.widths) != 2 or self.network.widths[1] != 1:
            raise ValueError(f"expected a linear network with one output, got {self.network}")
        if min(self.at, default=1) < 1 or self.every < 0 or self.memory < 0:
            raise ValueError(f"expected positive steps, got at={self.at}, every={self.every} and memory={self.memory}")
        if (self.at or self.every) and not isinstance(self.weight_drift, (NoDrift, BayesianForgetting)):
            raise ValueError(
                "expected Bayesian forgetting or no drift, as points of a fit count for less at most, got "
                f"{type(self.weight_drift).__name__}"
            )

    @functools.cached_property
    def plain(self) -> GaussianLearner:
        """Learner that predicts from the belief."""
        return GaussianLearner(self.network, self.likelihood, self.mean, self.variance, Full())

    def _is_due(self, before: int, after: int) -> bool:
        """Say whether a fit lies between two counts."""
        # Several points of one update may pass a due step.
        regular = bool(self.every) and before // self.every < after // self.every
        return regular or any(before < step <= after for step in self.at)

    def init(self) -> Refitted:
        """Return the prior, and no data."""
        none = self.mean.new_zeros(0)
        count = torch.zeros((), dtype=torch.int64, device=self.mean.device)
        rows = self.mean.new_zeros(0, len(self.mean))
        prior = self.plain.init()
        return Refitted(prior, prior, count, rows, self.mean.new_zeros(0, 1), none, none, none)

    def drift(self, belief: Refitted, dt: Scalar) -> Refitted:
        """Return the belief after the drift; as it is where there is none."""
        drift = self.weight_drift
        if isinstance(drift, NoDrift):
            return belief
        if isinstance(drift, BayesianForgetting):
            return self._forgotten(belief, drift, dt)
        return dataclasses.replace(belief, belief=drift(Full(), belief.belief, self.plain.init(), dt))

    def _forgotten(self, belief: Refitted, forgetting: BayesianForgetting, dt: Scalar) -> Refitted:
        """Return what is left of the belief, of the sites in its prior, and of what points count for."""
        prior = self.plain.init()
        left = 0 < len(belief.rows) < int(belief.count)  # a fit lies ahead, and sites of points are in its prior
        kept = forgetting.kept(dt)
        sites = Sites(belief.precision, belief.linear).times(kept)
        return dataclasses.replace(
            belief,
            belief=forgetting(Full(), belief.belief, prior, dt),
            prior=forgetting(Full(), belief.prior, prior, dt) if left else belief.prior,
            precision=sites.precision,
            linear=sites.linear,
            counts=belief.counts * kept,
        )

    def gaussian(self, belief: Refitted) -> Gaussian:
        """Return the belief over the weights."""
        return belief.belief

    def learn(self, belief: Refitted, points: Points, generator: torch.Generator | None, done: Any = None) -> Refitted:
        """Take in the points that are observed; a point counts once.

        Raises:
            ValueError: If a point is not finite or cannot come from the likelihood, or shall count other than once.
        """
        if points.counts is not None:
            raise ValueError("expected points that count once, got counts")
        inputs, target = points.inputs, points.target
        if points.observed is not None:
            inputs, target = inputs[points.observed[:, 0]], target[points.observed[:, 0]]
        # Of a linear network the Jacobian is the inputs, with a one.
        rows = self.network.linearise(torch.zeros_like(self.mean), inputs)[1][:, 0]
        check(self.batch.site, belief.belief, rows, target)
        before = int(belief.count)
        # Assumed density filtering: each site is set once.
        kept, new, _ = visit_once(self.batch.site, belief.belief, rows, target[:, 0])
        after = Refitted(
            kept,
            belief.prior,
            belief.count + len(rows),
            torch.cat([belief.rows, rows]),
            torch.cat([belief.target, target]),
            torch.cat([belief.precision, new.precision]),
            torch.cat([belief.linear, new.linear]),
            torch.cat([belief.counts, torch.ones_like(new.linear)]),
        )
        if self._is_due(before, before + len(rows)):
            sites, counts = Sites(after.precision, after.linear), after.counts
            less = bool((counts != 1).any())  # powers of likelihoods take a quadrature
            fitted = self.batch.fit(after.prior, after.rows, after.target, sites, counts if less else None)
            sites = fitted.sites
            after = dataclasses.replace(after, belief=fitted.belief, precision=sites.precision, linear=sites.linear)
        if not self.every and before + len(rows) >= max(self.at, default=0):  # no fit lies ahead
            return _without(after, len(after.rows))
        # Once in `memory` points, since the prior is inverted each time.
        if self.memory and len(after.rows) >= 2 * self.memory:
            return _absorbed(after, len(after.rows) - self.memory)
        return after

    def forget(self, belief: Refitted, rate: float) -> Refitted:
        """Let points count for less, in the belief and in the next fit."""
        return self._forgotten(belief, BayesianForgetting(rate), 1.0)

    def adopt(self, smaller: AbstractNetworkLearner[Any], belief: Any) -> tuple["RefittedLearner", Refitted]:
        """Refuse: the data that are kept have the old size."""
        raise ValueError("expected a learner that can grow, got one that is fitted to all data again")


def _without(belief: Refitted, points: int) -> Refitted:
    """Return the belief without the oldest points."""
    names = ("rows", "target", "precision", "linear", "counts")
    return dataclasses.replace(belief, **{name: getattr(belief, name)[points:] for name in names})


def _absorbed(belief: Refitted, points: int) -> Refitted:
    """Return the belief without the oldest points; their sites enter the prior."""
    sites = Sites(belief.precision[:points], belief.linear[:points])
    prior = Natural.of(belief.prior).times(belief.rows[:points], sites)
    return dataclasses.replace(_without(belief, points), prior=prior)


def fab_cost(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood | None = None,
    variance: float = 1.0,
    *,
    at: tuple[int, ...] = (100, 10_000),
    every: int = 0,
    memory: int = 0,
    batch: AbstractBatchPosterior | None = None,
    mean: Weights | None = None,
) -> RefittedLearner:
    """Return FAB-COST: assumed density filtering, with expectation propagation at a few steps (McKenzie et al. 2020).

    Args:
        model: A linear module or network with one output.
        likelihood: Of predictions; None for a label's, moderated.
        variance: Of every weight in the prior.
        at: Numbers of points after which all data are fitted.
        every: Further, all so many points; 0 for never.
        memory: Points that a fit revises at least, and twice as many at most; 0 for all.
        batch: How; None for EP with a logistic likelihood, all sites at a time.
        mean: Weights to begin with; None for those of the module.
    """
    network, mean = network_and_weights(model, mean)
    likelihood = BernoulliLikelihood(prediction="moderated") if likelihood is None else likelihood
    batch = EP(schedule="parallel", tolerance=1e-4) if batch is None else batch
    prior = uniform_prior(network.sizes, variance).to(mean)
    return RefittedLearner(network, likelihood, mean, prior, batch, at, every, memory)
