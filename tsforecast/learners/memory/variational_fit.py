"""Fits of independent weights to several observations at once: argmin KL(q || prior times likelihoods)."""

import abc
import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import map_tensors
from tsforecast.core.torch_internals import is_transformed
from tsforecast.learners.beliefs.diagonal import Diagonal, Independent
from tsforecast.learners.evidence.estimators import whitened
from tsforecast.learners.evidence.gauss_newton import step_by_products, whitened_outputs
from tsforecast.learners.evidence.pseudo_observation import Model, Near, Points

# Parts of a Gauss-Newton step of which the best is taken; 0 stays where it is.
_STEPS = (1.0, 0.5, 0.2, 0.05, 0.0)
# Numbers that are drawn at a time.
_CHUNK = 1 << 20
# Numbers of a Jacobian that is held at once.
_LARGE = 1 << 24


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem of fitting independent weights q to a prior times the likelihoods of some points.

    Attributes:
        model: Network and likelihood.
        prior: Before the points.
        start: Where the search begins.
        points: All that are learnt from.
        is_first: Whether nothing was fitted before.
    """

    model: Model
    prior: Independent
    start: Independent
    points: Points
    is_first: Bool[Tensor, ""]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fit, and the part of each observation in it.

    Attributes:
        belief: The fit q.
        gradient: g_n of each point, as `factors_of` takes it.
        precision: Lambda_n.
    """

    belief: Independent
    gradient: Float[Tensor, "point weight"]
    precision: Float[Tensor, "point weight"]


class AbstractFit(abc.ABC):
    """A way to a fit, and to the part of each observation in it. Settings only."""

    @abc.abstractmethod
    def __call__(self, problem: Problem, generator: torch.Generator | None = None) -> Independent:
        """Return the fit; only some draw random numbers."""

    @abc.abstractmethod
    def with_terms(self, problem: Problem, generator: torch.Generator | None = None) -> Fitted:
        """Return the fit together with the part of each point in it."""


@dataclasses.dataclass(frozen=True)
class LinearisedFit(AbstractFit):
    """Gauss-Newton steps to the mode, and the precisions of the linearised network there: no random numbers.

    For a network that is linear in its weights and a Gaussian likelihood one pass is the exact variational optimum. The
    step goes as far as the posterior density says is best, of full to no length. The search ends where a step gains
    nothing; a compiled loop, or one of many learners, makes all steps. Where the Jacobian of all points would be large,
    steps come from products with it, and what points add from some of them at a time.

    Attributes:
        passes: Number of steps at most. The factors of a memory are those of an optimum: too few steps do harm.
        settled: Gain of a step, in nats, below which it is the last.
    """

    passes: int = 30
    settled: float = 1e-6

    def __post_init__(self) -> None:
        _check("passes", self.passes, 1)
        if not self.settled >= 0:
            raise ValueError(f"expected settled to be at least 0, got {self.settled}")

    def __call__(self, problem: Problem, generator: torch.Generator | None = None) -> Independent:
        """Return the mode, with the diagonal of the Gauss-Newton precision."""
        mean = self._mode(problem)
        curvature = torch.zeros_like(mean)
        for points in _parts(problem.model, mean, problem.points):
            rows, _ = _rows(problem.model, mean, points)
            curvature = curvature + problem.model.network.squares(mean, points.inputs, rows)
        return Independent(mean, 1 / (1 / problem.prior.variance + curvature))

    def with_terms(self, problem: Problem, generator: torch.Generator | None = None) -> Fitted:
        """Return the fit, and the gradient and Gauss-Newton precision of each point at its mean."""
        mean = self._mode(problem)
        gradients, precisions = [], []
        for points in _parts(problem.model, mean, problem.points):
            rows, residual = _rows(problem.model, mean, points)
            gradient, square = problem.model.network.terms(mean, points.inputs, rows, residual)
            gradients.append(gradient)
            precisions.append(square)
        gradient, precision = (x[0] if len(x) == 1 else torch.cat(x) for x in (gradients, precisions))
        belief = Independent(mean, 1 / (1 / problem.prior.variance + precision.sum(0)))
        return Fitted(belief, gradient, precision)

    def _mode(self, problem: Problem) -> Tensor:
        model, prior, points, mean = problem.model, problem.prior, problem.points, problem.start.mean
        family = Diagonal()
        steps = mean.new_tensor(_STEPS)

        def density(weights: Tensor) -> Tensor:
            return model.log_prob(weights, points) - 0.5 * ((weights - prior.mean).square() / prior.variance).sum()

        def newton(mean: Tensor) -> Tensor:
            if is_large:
                return step_by_products(model, prior, points, mean)
            around = Independent(mean, torch.ones_like(mean))  # whose variance is not read
            matrix, residual = whitened(Near(model, around, points))
            matrix = matrix.flatten(0, 1)
            # Evidence near the mean, as seen from the prior.
            return family.condition(prior, matrix, residual.flatten() + matrix @ (mean - prior.mean)).mean

        fixed = _is_fixed(mean)
        is_large = len(_parts(model, mean, points)) > 1
        for _ in range(self.passes):
            move = newton(mean) - mean
            places = mean + steps.unsqueeze(-1) * move  # all lengths at once: no branch on which is better
            # The same randomness, so that steps are comparable where a network draws.
            densities = torch.func.vmap(density, randomness="same")(places)
            densities = densities.nan_to_num(nan=-torch.inf)
            mean = places[densities.argmax()]
            if not fixed and bool(densities.max() - densities[-1] <= self.settled):
                break
        return mean


def _is_fixed(mean: Tensor) -> bool:
    """Return whether no decision may depend on numbers: in a compiled loop, or one of many learners."""
    return is_transformed(mean) or torch.compiler.is_compiling()


def _parts(model: Model, mean: Tensor, points: Points) -> list[Points]:
    """Return the points in parts with small Jacobians."""
    if _is_fixed(mean) or not len(points.inputs):
        return [points]
    outputs = model.network(mean, points.inputs[:1]).shape[-1]
    count = max(1, _LARGE // (outputs * len(mean)))  # points whose Jacobian fits
    return [points.part(slice(k, k + count)) for k in range(0, len(points.inputs), count)]


def _rows(model: Model, mean: Tensor, points: Points) -> tuple[Tensor, Tensor]:
    """Return the evidence of the points about the outputs at the mean, see `whitened_outputs`."""
    return whitened_outputs(model, model.network(mean, points.inputs), points)


@dataclasses.dataclass(frozen=True)
class AdamFit(AbstractFit):
    """Adam on the evidence lower bound, by outputs that are drawn layer by layer (Kurle et al. 2020, section 6).

    Local reparametrisation (Kingma, Salimans and Welling 2015) draws what enters each unit instead of the weights. The
    rate falls to 0 like a cosine. It runs in a plain loop: neither `vmap` nor a compiled loop takes it.

    Attributes:
        iterations: Steps for each block.
        first: Steps for the first one.
        draws: Of the outputs, in each step.
        term_draws: Of the outputs, for gradient and curvature of each point.
        rate: Of Adam, at the beginning.
    """

    iterations: int = 300
    first: int = 2000
    draws: int = 16
    term_draws: int = 2000
    rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("iterations", "first", "draws", "term_draws"):
            _check(name, getattr(self, name), 1)
        if not self.rate > 0:
            raise ValueError(f"expected rate to be positive, got {self.rate}")

    def __call__(self, problem: Problem, generator: torch.Generator | None = None) -> Independent:
        """Return means and variances after the last step."""
        model, start = problem.model, problem.start
        count = self.first if bool(problem.is_first) else self.iterations  # later fits begin near their end
        with torch.inference_mode(False), torch.enable_grad():
            points, prior = _ordinary(problem.points), map_tensors(torch.clone, problem.prior)
            mean = start.mean.clone().requires_grad_()
            log_sd = (0.5 * start.variance.clone().log()).requires_grad_()  # free, and positive behind the exponential
            adam = torch.optim.Adam([mean, log_sd], self.rate)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, count)
            # Each point under draws of its own (local reparametrisation).
            rows = points.inputs.repeat_interleave(self.draws, 0).unsqueeze(0)
            for _ in range(count):
                variance = (2 * log_sd).exp()
                outputs = model.network.draw(mean.unsqueeze(0), variance.unsqueeze(0), rows, generator)[0]
                expected = _log_prob(model, outputs, points, self.draws).mean(-1).sum()
                # KL between Gaussians, up to a constant.
                ratio = (variance + (mean - prior.mean).square()) / prior.variance
                divergence = 0.5 * (ratio - 2 * log_sd).sum()
                adam.zero_grad()
                (divergence - expected).backward()
                adam.step()
                schedule.step()
        return Independent(mean.detach().clone(), (2 * log_sd.detach()).exp())

    def with_terms(self, problem: Problem, generator: torch.Generator | None = None) -> Fitted:
        """Return the fit, and gradients by mean and variance at many draws."""
        belief = self(problem, generator)
        return Fitted(belief, *self.terms(problem.model, belief, problem.points, generator))

    def terms(
        self, model: Model, fitted: Independent, points: Points, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "point weight"], Float[Tensor, "point weight"]]:
        """Return gradients by the means and minus twice those by the variances, from the same draws."""
        count, size = points.inputs.shape[0], fitted.mean.shape[0]
        at_once = max(1, min(self.term_draws, _CHUNK // max(1, count)))
        parts = [at_once] * (self.term_draws // at_once)
        parts += [rest] if (rest := self.term_draws - sum(parts)) else []
        total = [fitted.mean.new_zeros(count, size) for _ in range(2)]
        with torch.inference_mode(False), torch.enable_grad():
            points = _ordinary(points)
            both = (fitted.mean, fitted.variance)
            mean, variance = (x.clone().expand(count, size).clone().requires_grad_() for x in both)
            for draws in parts:
                rows = points.inputs.unsqueeze(1).expand(count, draws, *points.inputs.shape[1:])
                outputs = model.network.draw(mean, variance, rows, generator).flatten(0, 1)
                log_prob = _log_prob(model, outputs, points, draws).sum() / self.term_draws
                gradients = torch.autograd.grad(log_prob, (mean, variance), allow_unused=True)
                total = [a if b is None else a + b for a, b in zip(total, gradients, strict=True)]
        return total[0], -2 * total[1]


def _ordinary(points: Points) -> Points:
    """Return tensors with gradients, also where those given are of inference mode."""
    parts: dict[str, Any] = {
        field.name: None if (x := getattr(points, field.name)) is None else x.clone()
        for field in dataclasses.fields(points)
    }
    return Points(**parts)


def _log_prob(model: Model, outputs: Tensor, points: Points, draws: int) -> Tensor:
    """Return the log-likelihood of each point, to its power, in each draw of its outputs."""
    target, observed, counts = (
        None if x is None else x.repeat_interleave(draws, 0) for x in (points.target, points.observed, points.counts)
    )
    assert target is not None
    log_prob = model.likelihood.log_prob(outputs, target, observed)
    return (log_prob if counts is None else log_prob * counts).unflatten(0, (-1, draws))


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"expected {name} to be at least {least}, got {value}")
