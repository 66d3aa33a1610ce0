"""Linear rewards with unknown noise: Bayesian regression of each arm on its own."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import cholesky, symmetrise
from tsforecast.decisions.buffer import Buffer
from tsforecast.decisions.rewards import AbstractIndependentRewards, ArmRewards, Context, Interactions, Reward
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.conjugate import ConjugateRegression, NormalInverseGamma
from tsforecast.learners.drift import AbstractDrift, BayesianForgetting, NoDrift

Heads = tuple[NormalInverseGamma, ...]  # one for each arm


@dataclasses.dataclass(frozen=True)
class LinearRewards(AbstractIndependentRewards[Heads]):
    """y = w_a' (x, 1) + N(0, s2_a) with a normal-inverse-gamma prior for each arm; exact, O(D^2) a step.

    Riquelme et al. (2018); "Efficient Online Bayesian Inference for Neural Bandits", section 2.1.

    Attributes:
        variance: Of each weight in the prior, in units of the noise variance.
        shape: Of the prior over the noise variance.
        rate: Of the prior over the noise variance.
        weight_drift: Of the weights of all arms in each round, in units of the noise; Bayesian forgetting forgets
            evidence on the noise, too.
    """

    variance: float = 4.0
    shape: float = 6.0
    rate: float = 6.0
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)

    def init(self, generator: torch.Generator) -> Heads:
        """Return the prior of each arm."""
        return (self._regression().init(),) * self.arms

    def _regression(self) -> ConjugateRegression:
        return regression(self.features + 1, self.variance, self.shape, self.rate)

    def learn(self, state: Heads, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> Heads:
        """Move all arms by the drift, and condition the one that was pulled."""
        heads = [self._drifted(head) for head in state]
        heads[arm] = self._regression().update(heads[arm], with_one(context)[None], reward.double().view(1, 1))
        return tuple(heads)

    def rescale(self, state: Heads, shift: float, scale: float) -> Heads:
        """Return the heads that the rewards in their new units would have made of the prior."""
        return rescale_heads(state, self.variance, self.rate, shift, scale)

    def _drifted(self, head: NormalInverseGamma) -> NormalInverseGamma:
        if isinstance(self.weight_drift, NoDrift):
            return head
        if isinstance(self.weight_drift, BayesianForgetting):
            return self._regression().forget(head, float(1 - self.weight_drift.kept(1.0)))
        prior = self._regression().init()
        moved = self.weight_drift(Full(), Gaussian(head.mean, head.cov), Gaussian(prior.mean, prior.cov), 1.0)
        return dataclasses.replace(head, mean=moved.mean, cov=moved.cov)

    def expect(self, state: Heads, context: Context, spread: bool = True) -> ArmRewards:
        """Return x' m and sqrt(b / a x' S x)."""
        return expect_heads(state, with_one(context), spread)


@dataclasses.dataclass(frozen=True)
class WindowRewards(AbstractIndependentRewards[Buffer]):
    """`LinearRewards` given the last rounds alone: the plain way to follow a drift.

    Attributes:
        window: Rounds that count.
        variance: Of each weight in the prior, in units of the noise variance.
        shape: Of the prior over the noise variance.
        rate: Of the prior over the noise variance.
    """

    window: int = 500
    variance: float = 4.0
    shape: float = 6.0
    rate: float = 6.0

    def init(self, generator: torch.Generator) -> Buffer:
        """Return an empty window."""
        return Buffer.empty(self.window, self.features, torch.float64)

    def learn(self, state: Buffer, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> Buffer:
        """Add the round, and let the oldest go where the window is full."""
        return state.add(context, arm, reward)

    def rescale(self, state: Buffer, shift: float, scale: float) -> Buffer:
        """Return the window with its rewards in the new units."""
        return state.rescale(shift, scale)

    def expect(self, state: Buffer, context: Context, spread: bool = True) -> ArmRewards:
        """Return the moments given the window, fitted as a whole."""
        seen = state.interactions()
        prior = regression(self.features + 1, self.variance, self.shape, self.rate)
        heads = fit_heads((prior.init(),) * self.arms, with_one(seen.contexts), seen)
        return expect_heads(heads, with_one(context), spread)


def regression(size: int, variance: float, shape: float, rate: float) -> ConjugateRegression:
    """Return the regression of an arm, with weights around zero."""
    mean = torch.zeros(size, dtype=torch.float64)
    return ConjugateRegression(mean, torch.full_like(mean, variance), shape, rate)


def with_one(contexts: Float[Tensor, "*step feature"]) -> Float[Tensor, "*step feature_and_one"]:
    """Return contexts with a last feature of ones, in double precision."""
    contexts = contexts.double()  # sums over many rounds, and a difference of large numbers in the rate
    return torch.cat([contexts, contexts.new_ones(*contexts.shape[:-1], 1)], -1)


def fit_heads(
    prior: Heads,
    features: Float[Tensor, "step feature"],
    seen: Interactions,
    importance: Float[Tensor, " step"] | None = None,
) -> Heads:
    """Return the regression of each arm on all its rewards at once.

    S^-1 = S0^-1 + X'X, m = S (S0^-1 m0 + X'y), a = a0 + n/2, b = b0 + (y'y + m0' S0^-1 m0 - m' S^-1 m) / 2, of which
    the last bracket is computed as |y - X m|^2 + (m - m0)' S0^-1 (m - m0), which cannot become negative.

    Args:
        prior: Of each arm.
        features: That rewards are linear in; contexts are not read.
        seen: Arms and rewards.
        importance: How much each round counts; None for once.
    """
    found = []
    rewards = seen.rewards.to(features.dtype)
    weights = torch.ones_like(rewards) if importance is None else importance.to(features.dtype)
    for arm, head in enumerate(prior):
        own = seen.arms == arm
        root = weights[own].sqrt()  # a round that counts for less is a shorter row
        x, y = features[own] * root.unsqueeze(-1), rewards[own] * root
        precision = torch.cholesky_inverse(cholesky(head.cov, "the prior covariance of an arm"))
        cov = torch.cholesky_inverse(cholesky(symmetrise(precision + x.mT @ x), "the precision of an arm"))
        mean = cov @ (precision @ head.mean + x.mT @ y)
        change = mean - head.mean
        energy = (y - x @ mean).square().sum() + change @ precision @ change
        shape = head.shape + 0.5 * weights[own].sum()
        found.append(NormalInverseGamma(mean, symmetrise(cov), shape, head.rate + 0.5 * energy))
    return tuple(found)


def rescale_heads(heads: Heads, variance: float, rate: float, shift: float, scale: float) -> Heads:
    """Return the regressions on rewards y' = (y - c) / s, given those on y; priors have zero means and stay.

    With e the last weight, that of the ones, and v the prior variance: S and a stay, m' = (m - c d) / s with
    d = e - S e / v = S X'1, and b' = b0 + (b - b0 - c m_e / v + c^2 d_e / (2 v)) / s^2.

    Args:
        heads: On rewards y.
        variance: v.
        rate: b0.
        shift: c.
        scale: s.
    """
    found = []
    for head in heads:
        ones = -head.cov[:, -1] / variance
        ones[-1] += 1
        energy = head.rate - rate - shift * head.mean[-1] / variance + shift**2 * ones[-1] / (2 * variance)
        mean = (head.mean - shift * ones) / scale
        # Without data, or where a drift has added to the covariance, rounding or the drift may bring it below 0.
        found.append(dataclasses.replace(head, mean=mean, rate=rate + energy.clamp_min(0) / scale**2))
    return tuple(found)


def expect_heads(heads: Heads, x: Float[Tensor, " feature"], spread: bool = True) -> ArmRewards:
    """Return the law of x' w of each arm.

    It is Student's, with 2 a degrees of freedom around x' m and the scale sqrt(b / a x' S x).
    """
    mean = torch.stack([x @ head.mean for head in heads])
    if not spread:
        return ArmRewards.certain(mean)
    variance = torch.stack([head.rate / head.shape * (x @ head.cov @ x) for head in heads])
    # Rounding may leave a variance below 0.
    return ArmRewards(mean, variance.clamp_min(0).sqrt(), torch.stack([head.shape for head in heads]))
