"""Beliefs of several sources about one state: their product and their agreement (Kurle et al. 2018).

Each source m has seen x_m alone, and believes q_m(z) = p(z | x_m). All began with one prior p(z), and given z their
observations are independent. A source that is missing believes the prior: it then says nothing.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import LOG_2PI, NotPositiveDefiniteError, cholesky, log_det, matvec, solve_lower, symmetrise

# The most sources of which all subsets are compared.
MOST_SOURCES = 12


def product(beliefs: Sequence[Gaussian], prior: Gaussian) -> Gaussian:
    """Return p(z | x_1, .., x_M) up to a constant prod_m q_m(z) / p(z)^(M-1): the product of experts.

    Precisions and precisions times means add up, and the prior, which all have counted, is taken away M - 1 times.

    Args:
        beliefs: Of each source, for each index of the batch.
        prior: That all began with.

    Raises:
        ValueError: If there is no belief, or no Gaussian is the product: sources are less sure than their prior.
    """
    precision, linear = _combined(_sources(beliefs, prior), _Source.of(prior))
    factor = _factor_of_product(precision)
    cov = symmetrise(torch.cholesky_inverse(factor))
    return Gaussian(matvec(cov, linear), cov)


def pointwise_information(beliefs: Sequence[Gaussian], prior: Gaussian) -> Float[Tensor, "*batch"]:
    """Return log p(x_1, .., x_M) - sum_m log p(x_m), in nats: above 0 where sources confirm each other.

    That is (M-1) log Z_0 - sum_m log Z_m + log Z*, with the normalisers of prior, beliefs and product,
    log Z = D/2 log(2 pi) - log|Lambda| / 2 + eta' Lambda^-1 eta / 2. Sources that contradict each other have less.

    Args:
        beliefs: As for `product`.
        prior: As for `product`.

    Raises:
        ValueError: As for `product`.
    """
    return _information(_sources(beliefs, prior), _Source.of(prior))


def conflict(belief: Gaussian, other: Gaussian, prior: Gaussian) -> Float[Tensor, "*batch"]:
    """Return KL(other || belief) / KL(other || prior): high where `belief` is sure and `other` disagrees.

    Above 1 the prior describes the other source better than this belief does (Kurle et al. 2018, equation 2). A source
    that knows only the prior contradicts nobody: 0.

    Args:
        belief: q_m.
        other: q_m'.
        prior: That both began with.
    """
    against, known = other.kl(belief), other.kl(prior)
    knows = known > torch.finfo(known.dtype).eps * 100  # less is rounding
    # Twice: the unused branch would have a gradient of NaN.
    return torch.where(knows, against / torch.where(knows, known, 1.0), 0.0)


def reliabilities(
    beliefs: Sequence[Gaussian], prior: Gaussian, reliable: float = 0.9, sums: int = 1
) -> Float[Tensor, "*batch source"]:
    """Return the probability of each source that it speaks of the same state as the others.

    A source that is broken says something of its own. So a set S of sound sources has the probability

        P(S) ~ reliable^|S| (1 - reliable)^(M - |S|) exp(pointwise information of S)

    and all sets are compared.

    Args:
        beliefs: As for `product`.
        prior: As for `product`.
        reliable: Probability, before anything is seen, that a source is sound.
        sums: Number of last steps along the first dimension of the batch whose information is added up, where sources
            stay broken; 1 for each on its own.

    Raises:
        ValueError: If there are too many sources, or the probability is not between 0 and 1.
    """
    count = len(beliefs)
    if not 1 <= count <= MOST_SOURCES:  # subsets double with each source
        raise ValueError(f"expected 1 to {MOST_SOURCES} sources, got {count}")
    if not 0 < reliable < 1:
        raise ValueError(f"expected reliable to be between 0 and 1, got {reliable}")
    sources, shared = _sources(beliefs, prior), _Source.of(prior)  # once, and not for every set
    nothing = torch.zeros_like(_information(sources, shared))
    odds, members = [], []
    for sound in itertools.product((False, True), repeat=count):
        size = sum(sound)
        # One source alone shares nothing: exactly 0, without rounding.
        information = _information(list(itertools.compress(sources, sound)), shared) if size > 1 else nothing
        odds.append(size * math.log(reliable) + (count - size) * math.log1p(-reliable) + _last(information, sums))
        members.append(sound)
    sets = torch.tensor(members, dtype=nothing.dtype, device=nothing.device)
    return torch.stack(odds, -1).softmax(-1) @ sets


def _last(information: Tensor, sums: int) -> Tensor:
    """Sum over the last steps of the first dimension, as many as there are at the beginning."""
    if sums == 1:
        return information
    total = information.cumsum(0)
    return total - torch.cat([torch.zeros_like(total[:sums]), total[:-sums]])


@dataclasses.dataclass(frozen=True)
class _Source:
    """A belief in natural parameters.

    Attributes:
        precision: Lambda.
        linear: eta = Lambda mean.
        log_normaliser: log Z of exp(eta' z - z' Lambda z / 2).
    """

    precision: Float[Tensor, "*#batch state state"]
    linear: Float[Tensor, "*#batch state"]
    log_normaliser: Float[Tensor, "*#batch"]

    @staticmethod
    def of(belief: Gaussian) -> "_Source":
        """Return a belief so."""
        factor = cholesky(belief.cov, "the covariance of a source")
        precision, white = symmetrise(torch.cholesky_inverse(factor)), solve_lower(factor, belief.mean)
        normaliser = 0.5 * (white.square().sum(-1) + log_det(factor) + white.shape[-1] * LOG_2PI)
        return _Source(precision, matvec(precision, belief.mean), normaliser)


def _sources(beliefs: Sequence[Gaussian], prior: Gaussian) -> list[_Source]:
    if not beliefs:
        raise ValueError("expected the beliefs of one source or more, got none")
    sizes = {belief.mean.shape[-1] for belief in (prior, *beliefs)}
    if len(sizes) > 1:
        raise ValueError(f"expected beliefs of the size of the prior, {prior.mean.shape[-1]}, got {sorted(sizes)}")
    return [_Source.of(belief) for belief in beliefs]


def _combined(sources: Sequence[_Source], prior: _Source) -> tuple[Tensor, Tensor]:
    """Return precision and linear term of the product."""
    less = 1 - len(sources)
    precision, linear = less * prior.precision, less * prior.linear  # the prior is in each belief, and counts once
    for source in sources:
        precision, linear = precision + source.precision, linear + source.linear
    return precision, linear


def _information(sources: Sequence[_Source], prior: _Source) -> Tensor:
    """Return the information of `pointwise_information`."""
    precision, linear = _combined(sources, prior)
    factor = _factor_of_product(precision)
    white = solve_lower(factor, linear)  # eta' Lambda^-1 eta is its square
    own = 0.5 * (white.square().sum(-1) + white.shape[-1] * LOG_2PI) - 0.5 * log_det(factor)
    total = own + (len(sources) - 1) * prior.log_normaliser
    for source in sources:
        total = total - source.log_normaliser
    return total


def _factor_of_product(precision: Tensor) -> Tensor:
    try:
        return cholesky(precision, "the precision of a product")
    except NotPositiveDefiniteError as error:
        raise ValueError(
            "expected beliefs that are together surer than the prior that they share, got a product of experts that is "
            "no Gaussian: check that all began with the prior given"
        ) from error
