"""Posterior of the coefficients of controls, with a spike and a slab, over a grid of filters that have whitened them.

For a point of the grid and a subset of controls the model is y = X b + noise with b ~ N(0, s2 S) and s2 inverse-gamma,
all in closed form (George and McCulloch 1997, "Approaches for Bayesian variable selection", section 4.3). Points and
subsets are drawn by their exact probabilities while the subsets are few. Else a collapsed Gibbs sampler draws them,
with a chain for each draw.
"""

import dataclasses
import itertools
import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_ENUMERATED = 6  # controls whose subsets are enumerated
_SWEEPS = 30
_CELLS = 2_000_000  # numbers of a Gram matrix at a time


@dataclasses.dataclass(frozen=True)
class Whitened:
    """Series and controls that the filters of a grid have whitened: sums over the time before an intervention.

    Attributes:
        gram: Inner products of series and controls, the series first.
        log_det: Sum of the logarithms of the variances of prediction, in units of that of the noise.
        count: Observed steps of each series.
    """

    gram: Float[Tensor, "point series column column"]
    log_det: Float[Tensor, "point series"]
    count: Float[Tensor, " series"]


@dataclasses.dataclass(frozen=True)
class RegressionPrior:
    """The prior given a point of the grid.

    Attributes:
        shape: Of the inverse-gamma prior of the variance of the noise, for each point.
        scale: Likewise.
        log_weight: Logarithm of the weight of each point.
        precision: Of the coefficients, in units of the inverse variance of the noise.
        log_odds: Of a control to be in, in the prior; infinite for always.
        power: Of the likelihood of each series in the weights of points; None for 1.
    """

    shape: Float[Tensor, " point"]
    scale: Float[Tensor, " point"]
    log_weight: Float[Tensor, " point"]
    precision: Float[Tensor, "series control control"]
    log_odds: float
    power: Float[Tensor, " series"] | None = None


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws from the posterior.

    Attributes:
        point: Of the grid.
        coefficients: Of the controls, 0 of those that are out.
        variance: Of the noise.
    """

    point: Int[Tensor, "series sample"]
    coefficients: Float[Tensor, "series sample control"]
    variance: Float[Tensor, "series sample"]


def draw(
    whitened: Whitened, prior: RegressionPrior, num_samples: int, generator: torch.Generator | None = None
) -> Draws:
    """Return draws of the points of the grid, the coefficients and the variance of the noise.

    Args:
        whitened: What was observed.
        prior: The prior.
        num_samples: Draws of each series.
        generator: Source of random numbers.
    """
    controls = prior.precision.shape[-1]
    if controls <= _ENUMERATED or prior.log_odds == math.inf:
        subsets = _subsets(controls, prior.log_odds)
        evidence = torch.stack([_log_evidence(whitened, prior, subset) for subset in subsets])  # subset point series
        known = torch.logsumexp(evidence, 0)
        flat = (evidence - known + _weighted(prior, known)).flatten(0, 1).T
        chosen = torch.multinomial(torch.softmax(flat, -1), num_samples, replacement=True, generator=generator)
        point, member = chosen % len(prior.log_weight), subsets[chosen // len(prior.log_weight)]
    else:
        point, member = _gibbs(whitened, prior, num_samples, generator)
    return _coefficients(whitened, prior, point, member, generator)


def _subsets(controls: int, log_odds: float) -> Bool[Tensor, "subset control"]:
    if log_odds == math.inf:
        return torch.ones(1, controls, dtype=torch.bool)
    return torch.tensor([*itertools.product((False, True), repeat=controls)]).reshape(-1, controls)


def _log_evidence(
    whitened: Whitened, prior: RegressionPrior, subset: Bool[Tensor, "*#batch control"]
) -> Float[Tensor, "point series"]:
    """Return the logarithm of the marginal likelihood of each point under one subset, times the prior of the subset."""
    fit = _fit(whitened.gram, prior.precision, subset)
    return _total(fit, whitened.log_det, whitened.count, prior, subset)


@dataclasses.dataclass(frozen=True)
class _Fit:
    """A regression: mean of the coefficients, factor of their precision, what it leaves, and what it costs."""

    mean: Tensor
    factor: Tensor
    left: Tensor
    log_det: Tensor


def _fit(gram: Tensor, precision: Tensor, subset: Tensor) -> _Fit:
    """Return the regression on a subset; what is out has a unit precision, and nothing to do with the rest."""
    square = gram[..., 0, 0]
    if not precision.shape[-1]:
        empty = gram.new_zeros(*gram.shape[:-2], 0)
        return _Fit(empty, gram[..., 1:, 1:], square, torch.zeros_like(square))
    both = subset.unsqueeze(-1) & subset.unsqueeze(-2)
    eye = torch.eye(precision.shape[-1], dtype=gram.dtype)
    before = torch.where(both, precision, eye)
    after = torch.where(both, precision + gram[..., 1:, 1:], eye)
    factor = torch.linalg.cholesky(after)
    cross = torch.where(subset, gram[..., 1:, 0], 0.0)
    mean = torch.cholesky_solve(cross.unsqueeze(-1), factor).squeeze(-1)
    halves = [x.diagonal(dim1=-2, dim2=-1).log().sum(-1) for x in (torch.linalg.cholesky(before), factor)]
    left = (square - (cross * mean).sum(-1)).clamp_min(1e-12 * square)
    return _Fit(mean, factor, left, halves[1] - halves[0])


def _total(fit: _Fit, log_det: Tensor, count: Tensor, prior: RegressionPrior, subset: Tensor) -> Tensor:
    """Return the log evidence; its first dimension is that of points."""
    wide = [1] * (fit.left.ndim - 1)
    shape, scale = (x.reshape(-1, *wide) for x in (prior.shape, prior.scale))
    inside = 0.0 if math.isinf(prior.log_odds) else prior.log_odds * subset.sum(-1)
    power = shape + count / 2
    return inside - 0.5 * log_det - fit.log_det - power * (scale + fit.left / 2).log()


def _weighted(prior: RegressionPrior, evidence: Float[Tensor, "point series"]) -> Float[Tensor, "point series"]:
    """Return the log weights of the points: prior times evidence to its power."""
    return prior.log_weight.unsqueeze(-1) + (evidence if prior.power is None else prior.power * evidence)


def _coefficients(
    whitened: Whitened,
    prior: RegressionPrior,
    point: Int[Tensor, "series sample"],
    member: Bool[Tensor, "series sample control"],
    generator: torch.Generator | None,
) -> Draws:
    """Return draws of the variance and the coefficients of points and subsets that were drawn."""
    series = torch.arange(len(point)).unsqueeze(-1)
    samples, controls = point.shape[1], prior.precision.shape[-1]
    together = max(_CELLS // max(samples * (controls + 1) ** 2, 1), 1)
    found = []
    seed = torch.randint(2**62, (1,), generator=generator)
    rng = np.random.default_rng(int(seed))  # torch draws gamma variables from its global generator alone
    for part in torch.arange(len(point)).split(together):
        fit = _fit(whitened.gram[point[part], series[part]], prior.precision[part].unsqueeze(1), member[part])
        shape = prior.shape[point[part]] + whitened.count[part].unsqueeze(-1) / 2
        gamma = torch.from_numpy(rng.standard_gamma(shape.numpy()))
        variance = (prior.scale[point[part]] + fit.left / 2) / gamma
        noise = torch.randn(fit.mean.shape, generator=generator, dtype=fit.mean.dtype)
        if controls:
            spread = torch.linalg.solve_triangular(fit.factor.mT, noise.unsqueeze(-1), upper=True).squeeze(-1)
            noise = torch.where(member[part], spread, 0.0)
        found.append((fit.mean + variance.sqrt().unsqueeze(-1) * noise, variance))
    coefficients, variance = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Draws(point, coefficients, variance)


def _gibbs(
    whitened: Whitened, prior: RegressionPrior, num_samples: int, generator: torch.Generator | None
) -> tuple[Int[Tensor, "series sample"], Bool[Tensor, "series sample control"]]:
    """Return points and subsets after some sweeps of as many chains as draws, with coefficients and variance out."""
    points, members = [], []
    controls = prior.precision.shape[-1]
    for number in range(len(prior.precision)):
        gram, log_det = whitened.gram[:, number], whitened.log_det[:, number]
        count, precision = whitened.count[number], prior.precision[number]
        of = lambda value: torch.rand(value.shape, generator=generator, dtype=value.dtype)  # noqa: E731
        member = torch.rand(num_samples, controls, generator=generator) < 1 / (1 + math.exp(-prior.log_odds))
        point = torch.multinomial(torch.softmax(prior.log_weight, 0), num_samples, True, generator=generator)
        for _ in range(_SWEEPS):
            for control in torch.randperm(controls, generator=generator).tolist():
                pair = []
                for inside in (False, True):
                    tried = member.clone()
                    tried[:, control] = inside
                    fit = _fit(gram[point], precision, tried)
                    power = prior.shape[point] + count / 2
                    pair.append(-fit.log_det - power * (prior.scale[point] + fit.left / 2).log())
                odds = pair[1] - pair[0] + prior.log_odds
                member[:, control] = of(odds).log() < torch.nn.functional.logsigmoid(odds)
            kinds, which = torch.unique(member, dim=0, return_inverse=True)
            fit = _fit(gram.unsqueeze(1), precision, kinds)
            total = _total(fit, log_det.unsqueeze(-1), count, prior, kinds)
            power = None if prior.power is None else prior.power[number : number + 1]
            weighed = _weighted(dataclasses.replace(prior, power=power), total)
            probabilities = torch.softmax(weighed, 0).T[which]
            point = torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)
        points.append(point)
        members.append(member)
    return torch.stack(points), torch.stack(members)
