"""Beliefs of learners that saw different data, as one: products of experts over weights, and mixtures of them."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import fusion
from tsforecast.core.gaussian import Gaussian
from tsforecast.learners.beliefs.diagonal import Blocked, Independent
from tsforecast.learners.beliefs.low_rank_precision import LOFI, LowRankPrecision, solve
from tsforecast.learners.likelihoods.predictions import Expectation
from tsforecast.learners.loop import AbstractLearner
from tsforecast.learners.shapes import Inputs


def fuse(beliefs: Sequence[Any], prior: Any, rank: int | None = None) -> Any:
    """Return the belief given the data of all: precisions add up, and the shared prior is taken away M - 1 times.

    Learners that were trained on disjoint data from one prior so become one. It is exact for models that are linear and
    Gaussian; for networks each belief is a Gaussian around weights of its own (Kurle et al. 2018, equation 3).

    Args:
        beliefs: Of the families `Full`, `Diagonal`, `BlockDiagonal`, or `LOFI`, all of one. Each must have begun with
            the prior, and none may have drifted.
        prior: `learner.init()`; that of LOFI has no columns but zeros.
        rank: Columns that are kept of LOFI; None for all of all beliefs, which is exact.

    Raises:
        ValueError: If there is no belief, the beliefs do not fit each other, or no Gaussian is their product.
    """
    if not beliefs:
        raise ValueError("expected the belief of one learner or more, got none")
    if rank is not None and not isinstance(prior, LowRankPrecision):
        raise ValueError(f"expected a rank for beliefs of LOFI alone, got {rank} for {type(prior).__name__}")
    for belief in beliefs:
        if type(belief) is not type(prior) or belief.mean.shape != prior.mean.shape:
            raise ValueError(
                f"expected beliefs like the prior, {type(prior).__name__} of shape {tuple(prior.mean.shape)}, got "
                f"{type(belief).__name__} of shape {tuple(belief.mean.shape)}"
            )
    if isinstance(prior, LowRankPrecision):
        return _fuse_low_rank(beliefs, prior, rank)
    return _fuse(prior, beliefs)


@functools.singledispatch
def _fuse(prior: Any, beliefs: Sequence[Any]) -> Any:
    raise ValueError(f"expected beliefs with a precision, of Full, Diagonal, BlockDiagonal or LOFI, got {type(prior)}")


@_fuse.register
def _(prior: Gaussian, beliefs: Sequence[Gaussian]) -> Gaussian:
    return fusion.product(beliefs, prior)


@_fuse.register
def _(prior: Independent, beliefs: Sequence[Independent]) -> Independent:
    less = len(beliefs) - 1
    # The prior is in each belief, and counts once.
    precision = sum((1 / belief.variance for belief in beliefs), -less / prior.variance)
    _check_positive(precision)
    linear = sum((belief.mean / belief.variance for belief in beliefs), -less * prior.mean / prior.variance)
    return Independent(linear / precision, 1 / precision)


@_fuse.register
def _(prior: Blocked, beliefs: Sequence[Blocked]) -> Blocked:
    sizes = [len(cov) for cov in prior.covs]
    split = [[Gaussian(*pair) for pair in zip(b.mean.split(sizes), b.covs, strict=True)] for b in (prior, *beliefs)]
    blocks = [fusion.product(own[1:], own[0]) for own in zip(*split, strict=True)]
    return Blocked(torch.cat([block.mean for block in blocks]), tuple(block.cov for block in blocks))


def _fuse_low_rank(beliefs: Sequence[LowRankPrecision], prior: LowRankPrecision, rank: int | None) -> LowRankPrecision:
    """Diagonals add up, columns stand beside each other; the mean is found by Woodbury's identity before any goes."""
    if bool(prior.factor.any()):
        raise ValueError("expected a prior without columns, as `init` returns it, got one with some")
    diagonal = sum((belief.diagonal for belief in beliefs), -(len(beliefs) - 1) * prior.diagonal)
    _check_positive(diagonal)
    columns = torch.cat([belief.factor.T for belief in beliefs])  # each lies in one piece of memory
    towards = torch.zeros_like(prior.mean)
    for belief in beliefs:
        way = belief.mean - prior.mean
        towards = towards + belief.diagonal * way + belief.factor @ (belief.factor.T @ way)
    wide = LowRankPrecision(prior.mean, diagonal, columns.T)
    fused = dataclasses.replace(wide, mean=prior.mean + solve(wide, towards))  # exact, as long as no column is dropped
    return fused if rank is None else LOFI(rank).truncate(fused)


def _check_positive(precision: Tensor) -> None:
    if not bool((precision > 0).all()):
        worst = int(precision.argmin())
        raise ValueError(
            "expected beliefs that are together surer than the prior that they share, got a product with precision "
            f"{precision[worst].item():g} in weight {worst}: check that all began with the prior given"
        )


def expect_of_experts(
    learner: AbstractLearner[Any],
    beliefs: Sequence[Any],
    inputs: Inputs,
    shares: Float[Tensor, " source"] | None = None,
) -> Expectation:
    """Return mean and variance of the targets if one of the beliefs is right: the mixture of experts.

    Unlike a product it stands sources that contradict each other, or whose weights have little to do with each other.

    Args:
        learner: Of the beliefs.
        beliefs: Of each source.
        inputs: As for `learner.expect`.
        shares: Probability of each belief; None for all the same.

    Raises:
        ValueError: If there is no belief, or the shares are no probabilities.
    """
    if not beliefs:
        raise ValueError("expected the belief of one learner or more, got none")
    each = [learner.expect(belief, inputs) for belief in beliefs]
    means, variances = torch.stack([x.mean for x in each]), torch.stack([x.variance for x in each])
    if shares is None:
        shares = means.new_full((len(beliefs),), 1 / len(beliefs))
    if len(shares) != len(beliefs) or bool((shares < 0).any()) or abs(float(shares.sum()) - 1) > 1e-6:
        raise ValueError(f"expected {len(beliefs)} probabilities that sum to 1, got {shares.tolist()}")
    share = shares.to(means)[:, None, None]
    mean = (share * means).sum(0)
    return Expectation(mean, (share * (variances + (means - mean).square())).sum(0))
