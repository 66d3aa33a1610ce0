"""Likelihoods of one number given a target, with slopes and tilted moments for a Gaussian posterior."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.torch_internals import is_transformed
from tsforecast.learners.evidence.moment_matching import logistic_moments, mackay_moments, probit_moments
from tsforecast.learners.likelihoods.likelihood import check_that, check_whole
from tsforecast.learners.shapes import Batch

LOGISTIC = ("exact", "mackay")

# Monahan and Stefanski (1992), Normal scale mixture approximations, eight components: sigmoid(f) is the sum of
# weights Phi(scales f) to 3e-9 everywhere.
_WEIGHTS = (
    0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
    0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354,
)  # fmt: skip
_SCALES = (
    1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
    0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306,
)  # fmt: skip
_LEAST = 5e-2  # probability from which on the mixture is exact enough; quadrature below

_NODES = 401
_CHUNK = 4096  # points whose grids are in memory together
_DROP = 40.0  # nats below the mode where the grid of a quadrature ends
_STEPS = 100  # to a mode, at most; a rate exp(f) may make its bounds very wide
_NEAR = 1e-3  # of the width of a density, within which its mode is found


class AbstractSite(abc.ABC):
    """p(target | f) of a number f, log-concave in f. Targets are those of the library: 0 or 1, or counts."""

    @abc.abstractmethod
    def check(self, target: Float[Tensor, " point"]) -> None:
        """Look at data that arrive.

        Raises:
            ValueError: If a target cannot come from this likelihood.
        """

    @abc.abstractmethod
    def log_prob(self, f: Batch, target: Batch) -> Batch:
        """Return log p(target | f)."""

    @abc.abstractmethod
    def derivatives(self, f: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return the first derivative of log p(target | f) by f, and the negative of the second."""

    @abc.abstractmethod
    def moments(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return mean and variance of the tilted density N(f; mean, variance) p(target | f)."""

    def powered_moments(
        self,
        mean: Float[Tensor, " point"],
        variance: Float[Tensor, " point"],
        target: Float[Tensor, " point"],
        counts: Float[Tensor, " point"],
    ) -> tuple[Float[Tensor, " point"], Float[Tensor, " point"]]:
        """Return those of N(f; mean, variance) p(target | f)^counts, by quadrature around the mode."""
        counts = counts.clamp_min(torch.finfo(counts.dtype).tiny)  # 0 times infinity is no number
        mode = _mode(self, mean, variance, target, counts)
        return _in_chunks(functools.partial(_quadrature, self), mode, mean, variance, target, counts)

    def log_mass(
        self,
        mean: Float[Tensor, " point"],
        variance: Float[Tensor, " point"],
        target: Float[Tensor, " point"],
        counts: Float[Tensor, " point"] | None = None,
    ) -> Float[Tensor, " point"]:
        """Return the logarithm of the integral of N(f; mean, variance) p(target | f)^counts, by quadrature."""
        counts = torch.ones_like(mean) if counts is None else counts
        mode = _mode(self, mean, variance, target, counts.clamp_min(torch.finfo(counts.dtype).tiny))
        parts = zip(*(x.split(_CHUNK) for x in (mode, mean, variance, target, counts)), strict=True)
        return torch.cat([_log_mass(self, *part) for part in parts])

    def bounds(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return bounds of the mode of N(f; mean, variance) p(target | f).

        As the slope of the logarithm falls, that is the mean and where the slope there would lead.
        """
        far = mean + variance * self.derivatives(mean, target)[0]
        return torch.minimum(mean, far), torch.maximum(mean, far)


@dataclasses.dataclass(frozen=True)
class LogisticSite(AbstractSite):
    """A label 1 with probability sigmoid(f), else 0.

    Attributes:
        rule: "exact" tilted moments, or "mackay" for his approximation, that of FAB-COST (McKenzie et al. 2020, eq. 16)
            with a variance that never grows.

    Raises:
        ValueError: If the rule is not known.
    """

    rule: str = "exact"

    def __post_init__(self) -> None:
        if self.rule not in LOGISTIC:
            raise ValueError(f"expected rule to be one of {', '.join(LOGISTIC)}, got {self.rule!r}")

    def check(self, target: Float[Tensor, " point"]) -> None:
        """Refuse targets other than 0 and 1."""
        _check_labels(target)

    def log_prob(self, f: Batch, target: Batch) -> Batch:
        """Return log sigmoid(f), or log sigmoid(-f) for 0."""
        return torch.nn.functional.logsigmoid((2 * target - 1) * f)

    def derivatives(self, f: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return y - p and p (1 - p)."""
        p = f.sigmoid()
        return target - p, p * (1 - p)

    def moments(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """By a mixture of probit functions in closed form; by quadrature where the label is a surprise."""
        label = 2 * target - 1
        if self.rule == "mackay":
            return mackay_moments(mean, variance, label)
        matched, left, mass = _mixture_moments(mean, variance, label)
        rare = mass < _LEAST
        if bool(rare.any()):
            again = _in_chunks(logistic_moments, mean[rare], variance[rare], label[rare])
            matched, left = (x.masked_scatter(rare, y) for x, y in zip((matched, left), again, strict=True))
        return matched, left

    def log_mass(
        self,
        mean: Float[Tensor, " point"],
        variance: Float[Tensor, " point"],
        target: Float[Tensor, " point"],
        counts: Float[Tensor, " point"] | None = None,
    ) -> Float[Tensor, " point"]:
        """By a mixture of probit functions; by quadrature where the label is a surprise, and of powers."""
        if counts is not None:
            return super().log_mass(mean, variance, target, counts)
        mass = _mixture_moments(mean, variance, 2 * target - 1)[2]
        rare, log_mass = mass < _LEAST, mass.log()
        if bool(rare.any()):
            log_mass = log_mass.masked_scatter(rare, super().log_mass(mean[rare], variance[rare], target[rare]))
        return log_mass


@dataclasses.dataclass(frozen=True)
class ProbitSite(AbstractSite):
    """A label 1 with probability Phi(f), else 0."""

    def check(self, target: Float[Tensor, " point"]) -> None:
        """Refuse targets other than 0 and 1."""
        _check_labels(target)

    def log_prob(self, f: Batch, target: Batch) -> Batch:
        """Return log Phi(f), or log Phi(-f) for 0."""
        return torch.special.log_ndtr((2 * target - 1) * f)

    def derivatives(self, f: Batch, target: Batch) -> tuple[Batch, Batch]:
        """With r = phi(z) / Phi(z) at z = y f: y r and r (r + z)."""
        label = 2 * target - 1
        z = label * f
        ratio = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
        return label * ratio, ratio * (ratio + z)

    def moments(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return them in closed form."""
        return probit_moments(mean, variance, 2 * target - 1)


@dataclasses.dataclass(frozen=True)
class PoissonSite(AbstractSite):
    """A count with rate exp(f)."""

    def check(self, target: Float[Tensor, " point"]) -> None:
        """Refuse targets that are no whole numbers from 0 on."""
        check_whole(target, None, "count")

    def log_prob(self, f: Batch, target: Batch) -> Batch:
        """Return y f - exp f - log y!."""
        return target * f - f.exp() - torch.lgamma(target + 1)  # the constant enters the evidence

    def derivatives(self, f: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return y - r and r."""
        rate = f.exp()
        return target - rate, rate

    def moments(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """By quadrature around the mode."""
        mode = _mode(self, mean, variance, target, torch.ones_like(mean))
        if mode.ndim != 1:
            return _quadrature(self, mode, mean, variance, target)
        return _in_chunks(functools.partial(_quadrature, self), mode, mean, variance, target)

    def bounds(self, mean: Batch, variance: Batch, target: Batch) -> tuple[Batch, Batch]:
        """Return bounds that are finite where the rate at the mean is not: f + variance exp f = mean + variance y."""
        centre = mean + variance * target
        tiny = torch.finfo(centre.dtype).tiny
        high = torch.minimum(centre, (centre.clamp_min(tiny) / variance).log().clamp_min(0))
        return centre.clamp_max(0) - torch.log1p(variance), high


def _mode(site: AbstractSite, mean: Tensor, variance: Tensor, target: Tensor, counts: Tensor) -> Tensor:
    """The mode of N(f; mean, variance) p(target | f)^counts, where f = mean + variance counts slope(f), for each point.

    Newton's steps, within bounds that every step narrows, and halves where a step leaves them or gains little. A
    thousandth of the width of the density is near enough for a grid around it.
    """
    share = variance * counts
    low, high = site.bounds(mean, share, target)
    mode, before = 0.5 * (low + high), torch.full_like(low, torch.inf)  # the first step counts as progress
    for _ in range(_STEPS):
        slope, bend = site.derivatives(mode, target)
        error, growth = mode - mean - share * slope, 1 + share * bend
        low, high = torch.where(error > 0, low, mode), torch.where(error > 0, mode, high)
        guess, size = mode - error / growth, error.abs()
        good = (guess >= low) & (guess <= high) & (size <= 0.5 * before)  # Newton may cycle where the slope bends much
        mode, before = torch.where(good, guess, 0.5 * (low + high)), size
        # The step, size / growth, against the width, sqrt(variance / growth).
        near = good & (size <= _NEAR * (variance * growth).sqrt())
        if not is_transformed(near) and bool(near.all()):
            break
    return mode


def _quadrature(
    site: AbstractSite, mode: Tensor, mean: Tensor, variance: Tensor, target: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Moments of a tilted density with a known mode."""
    counts = torch.ones_like(mean) if counts is None else counts
    offset, height, _ = _on_grid(site, mode, mean, variance, target, counts)
    mass = height.softmax(-1)
    shift = (mass * offset).sum(-1)  # moments around the mode: no difference of large numbers
    return mode + shift, (mass * (offset - shift.unsqueeze(-1)).square()).sum(-1)


def _log_mass(
    site: AbstractSite, mode: Tensor, mean: Tensor, variance: Tensor, target: Tensor, counts: Tensor
) -> Tensor:
    """The logarithm of the integral of a tilted density with a known mode."""
    _, height, cell = _on_grid(site, mode, mean, variance, target, counts)
    return height.logsumexp(-1) + cell.log() - 0.5 * (2 * math.pi * variance).log()


def _on_grid(
    site: AbstractSite, mode: Tensor, mean: Tensor, variance: Tensor, target: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return distances from the mode, the log-density there with that of the grid, and the cell of each point's grid.

    The grid is equidistant in asinh of the distance. A log-concave likelihood leaves the curvature at least
    1 / variance, so the grid's ends are below e^-40. The Gaussian lacks its constant.
    """
    width = (1 / variance + counts * site.derivatives(mode, target)[1]).rsqrt()
    reach = ((2 * _DROP * variance).sqrt() / width).asinh()
    share = torch.linspace(-1, 1, _NODES, dtype=mean.dtype, device=mean.device)
    place = share * reach.unsqueeze(-1)
    offset = width.unsqueeze(-1) * place.sinh()
    grid = mode.unsqueeze(-1) + offset
    log_density = counts.unsqueeze(-1) * site.log_prob(grid, target.unsqueeze(-1).expand_as(grid))
    log_density = log_density - 0.5 * (grid - mean.unsqueeze(-1)).square() / variance.unsqueeze(-1)
    # d grid / d place = width cosh place
    return offset, log_density + place.cosh().log(), width * reach * (2 / (_NODES - 1))


def _in_chunks(moments: Callable[..., tuple[Tensor, Tensor]], *parts: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of many points, a few thousand grids at a time."""
    moments_of_parts = [moments(*part) for part in zip(*(x.split(_CHUNK) for x in parts), strict=True)]
    first, second = zip(*moments_of_parts, strict=True)
    return torch.cat(first), torch.cat(second)


def _mixture_moments(mean: Tensor, variance: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Moments of N(f; mean, variance) sigmoid(label f), and its mass Z, from derivatives of log Z by the mean."""
    weights, scales = mean.new_tensor(_WEIGHTS), mean.new_tensor(_SCALES)
    slope = scales * (1 + scales.square() * variance.unsqueeze(-1)).rsqrt() * label.unsqueeze(-1)
    z = mean.unsqueeze(-1) * slope
    mass = (weights * torch.special.ndtr(z)).sum(-1)
    density = weights * (-0.5 * z.square()).exp() * slope / math.sqrt(2 * math.pi)
    first = density.sum(-1) / mass
    bend = first.square() + (density * z * slope).sum(-1) / mass  # minus the second derivative of log Z
    return mean + variance * first, variance - variance.square() * bend, mass


def _check_labels(target: Tensor) -> None:
    check_that((target == 0) | (target == 1), target, None, "to be a label 0 or 1")
