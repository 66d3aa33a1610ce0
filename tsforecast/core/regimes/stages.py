"""Durations of regimes that are not geometric, by chains of stages."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_NEVER = -80.0  # logarithm of a probability that stands for 0; an infinite one has no gradient


def staged(
    log_transition: Float[Tensor, "*batch regime regime"], stages: int
) -> Float[Tensor, "*batch state another_state"]:
    """Return log-probabilities between the stages of all regimes, regime by regime.

    A regime i begins with its first stage. It leaves each stage with probability 1 - P_ii, for the next one, and the
    last one for another regime. So its duration is the sum of R geometric ones: R steps at least, R / (1 - P_ii) on
    average, with a negative binomial distribution (an explicit-duration model, Yu 2010). The shares of regimes in the
    long run do not depend on R.

    Args:
        log_transition: log P, from row to column.
        stages: R, of each regime; 1 for P itself.
    """
    if stages == 1:
        return log_transition
    regimes = log_transition.shape[-1]
    device = log_transition.device
    regime, stage = (x.flatten() for x in torch.meshgrid(*map(torch.arange, (regimes, stages)), indexing="ij"))
    regime, stage = regime.to(device), stage.to(device)
    same = regime.unsqueeze(1) == regime
    moved = stage - stage.unsqueeze(1)
    # A regime is left from its last stage alone, for a first one.
    ends = (stage == stages - 1).unsqueeze(1) & (stage == 0)
    every = log_transition[..., regime, :][..., regime]
    # As a sum over the other regimes, log(1 - P_ii) keeps its digits.
    of_others = log_transition.masked_fill(torch.eye(regimes, dtype=torch.bool, device=device), _NEVER)
    leave = torch.logsumexp(of_others, -1)[..., regime, None]
    found = torch.where(same & (moved == 0), every, torch.where(same & (moved == 1), leave, _NEVER))
    return torch.where(~same & ends, every, found)


def spread(initial: Float[Tensor, "*batch regime"], stages: int) -> Float[Tensor, "*batch state"]:
    """Return log-probabilities of states: equal shares of each regime for its stages."""
    return initial.repeat_interleave(stages, -1) - math.log(stages)


def of_regimes(values: Float[Tensor, "*batch state"], stages: int) -> Float[Tensor, "*batch regime"]:
    """Return sums over the stages of each regime."""
    return values.unflatten(-1, (-1, stages)).sum(-1)


def pairs_of_regimes(
    pairs: Float[Tensor, "*batch state another_state"], stages: int
) -> Float[Tensor, "*batch regime another_regime"]:
    """Return sums over the stages of each pair of regimes."""
    return of_regimes(of_regimes(pairs, stages).mT, stages).mT


def moves(
    pairs: Float[Tensor, "*batch state another_state"], stages: int
) -> Float[Tensor, "*batch regime another_regime"]:
    """Return counts of steps for the most likely transitions of `staged`: their shares, row by row.

    On the diagonal are the steps that stay in a stage. Those that leave one are spread over the other regimes, in
    proportion to the steps that end there.

    Args:
        pairs: Expected number of steps from state to state.
        stages: Of each regime.
    """
    if stages == 1:
        return pairs
    stay = of_regimes(pairs.diagonal(dim1=-2, dim2=-1), stages)
    every = pairs_of_regimes(pairs, stages)
    total = every.sum(-1)
    eye = torch.eye(every.shape[-1], dtype=every.dtype, device=every.device)
    ending = every * (1 - eye)
    tiny = torch.finfo(every.dtype).tiny
    share = ending / ending.sum(-1, keepdim=True).clamp_min(tiny)
    return torch.diag_embed(stay) + share * (total - stay).unsqueeze(-1)
