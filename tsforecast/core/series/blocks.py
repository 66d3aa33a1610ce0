"""Conditioning on many observations at once: the whole-series likelihood of every linear system.

Given the state x before a block of steps, the block's observations y and the state x' after it are jointly Gaussian,

    [y ]   [matrix    ]     [offset      ]                 [noise    cross      ]
    [x'] = [transition] x + [state_offset] + N(0, [cross'   state_noise]),

so a series is a short chain of such conditionals: one Cholesky factor and one rank-k update replace k steps. The rows
of the factor are the one-step predictions, so the likelihood of every step is at hand. A dense system makes its blocks
by recursion (one step a block where its parameters vary), the ISSM by structure. What depends on time or on parameters
alone is computed for many blocks at once; only beliefs are passed from block to block.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import ADVICE, NotPositiveDefiniteError, broadcast_shapes
from tsforecast.core.series.chain import Chain
from tsforecast.core.torch_internals import is_transformed


@register_record
@dataclasses.dataclass(frozen=True)
class Blocks:
    """A chain of conditionals p(observations, state after | state before).

    The leading dimension counts blocks (size 1: all alike); batch dimensions broadcast.

    Attributes:
        matrix: (block, *batch, obs, state).
        offset: (block, *batch, obs).
        noise: Covariance of the observations given the state before, (block, *batch, obs, obs).
        cross: Covariance of observations and state after, given the state before, (block, *batch, obs, state). None:
            the blocks are plain steps, and `matrix`, `offset` and `noise` those of their emissions, of y given x'.
        transition: (block, *batch, state, state), or its diagonal as a column (block, *batch, state, 1), or None for
            the identity.
        state_offset: (block, *batch, state), or None for zero.
        state_noise: (block, *batch, state, state), or its diagonal as a column.
    """

    matrix: Float[Tensor, "*#block obs state"]
    offset: Float[Tensor, "*#block obs"]
    noise: Float[Tensor, "*#block obs obs"]
    cross: Float[Tensor, "*#block obs state"] | None
    transition: Float[Tensor, "*#block state state_or_1"] | None
    state_offset: Float[Tensor, "*#block state"] | None
    state_noise: Float[Tensor, "*#block state state_or_1_"]


def condition_on_blocks(
    blocks: Blocks,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None,
    first_step: int = 0,
    in_parts: bool = False,
) -> tuple[Gaussian, tuple[Float[Tensor, "time *batch"], ...]]:
    """The belief after all blocks, and the log-likelihood of every step; if `in_parts`, also that of no error in it.

    Where neither parameters nor missing values differ between series, their covariance is one and is computed once.

    Args:
        blocks: As many as the values fill.
        prior: Over the state before the first block.
        values: Finite everywhere.
        observed: False where missing.
        first_step: For the error message.
        in_parts: Whether to return log N(0; 0, S), too, for the covariance S of every step's prediction.
    """
    parts = {field.name: getattr(blocks, field.name) for field in dataclasses.fields(blocks)}
    event = lambda name: 1 if name in ("offset", "state_offset") else 2  # noqa: E731
    batch = broadcast_shapes(
        prior.batch_shape,
        values.shape[1:-1],
        *(x.shape[1 : x.ndim - event(name)] for name, x in parts.items() if x is not None),
        *([] if observed is None else [observed.shape[1:-1]]),
    )
    offset = flatten_batch(parts.pop("offset"), batch, 1, 1)  # subtracted here, so that the chain knows rows alone
    flat = {name: None if x is None else flatten_batch(x, batch, event(name), 1) for name, x in parts.items()}
    size, num_targets = batch.numel(), values.shape[-1]
    length = blocks.matrix.shape[-2] // num_targets
    cov = flatten_batch(prior.cov, batch, 2, 0)
    mean = prior.mean.expand(*batch, prior.mean.shape[-1]).reshape(size, -1)
    rows = _in_blocks(values, batch, length) - offset
    mask = None if observed is None else _in_blocks(observed, batch, length).unsqueeze(-1)
    drift = flat.pop("state_offset")
    shared = mask is None and cov.shape[0] == 1 and all(x is None or x.shape[1] == 1 for x in flat.values())
    # Shared, the series are columns beside one covariance.
    mean, cov = (mean.mT.unsqueeze(0), cov) if shared else (mean.unsqueeze(-1), cov.expand(size, *cov.shape[1:]))
    apart = lambda x: x.mT.unsqueeze(1) if shared else x.unsqueeze(-1)  # noqa: E731
    rows, drift = apart(rows), None if drift is None else apart(drift)
    columns = rows.shape[-1]
    if in_parts:  # a series that is as predicted, beside the others
        drift = None if drift is None else drift.expand(*drift.shape[:-1], columns)
        mean, rows, drift = (None if x is None else torch.nn.functional.pad(x, (0, 1)) for x in (mean, rows, drift))
    keep = torch.is_grad_enabled()
    # Cotangents of noises do without the moments, which are most of the tape.
    moments = keep and _may_be_learnt(flat["matrix"], flat["transition"])
    parameters = *(flat[name] for name in ("matrix", "noise", "cross", "transition")), drift, flat["state_noise"]
    terms, mean, cov, info, *_ = Chain.apply(keep, moments, rows, mask, mean, cov, *parameters)  # pyright: ignore
    check_terms(info, terms, length, num_targets, first_step)
    mean = mean[..., :columns]  # without the series that is as predicted
    if shared:
        mean = mean.squeeze(0).mT
        # With as many dimensions as the prior's.
        cov = cov.reshape(*([1] * len(batch)), *cov.shape[1:]) if prior.cov.ndim > 2 else cov.squeeze(0)
    else:
        mean = mean.squeeze(-1)
        cov = cov.reshape(*batch, *cov.shape[1:])
    by_step = tuple(_by_step(part, batch, length, num_targets) for part in terms.split(columns, -1))
    return Gaussian(mean.reshape(*batch, -1), cov), by_step


def _by_step(
    terms: Float[Tensor, "block group obs column"], batch: torch.Size, length: int, num_targets: int
) -> Float[Tensor, "time *batch"]:
    """Return the terms of every step, summed over targets."""
    terms = terms.movedim(-1, 1).flatten(1, 2).expand(-1, batch.numel(), -1)
    terms = terms.reshape(len(terms), -1, length, num_targets).sum(-1)
    return terms.transpose(1, 2).reshape(-1, *batch)


def _may_be_learnt(*parameters: Tensor | None) -> bool:
    """Whether a gradient of a parameter may be wanted: under `vmap` the needs of an outer `grad` are hidden."""
    return any(x.requires_grad or is_transformed(x) for x in parameters if x is not None)


def _in_blocks(x: Tensor, batch: torch.Size, length: int) -> Tensor:
    """(time, *some of the batch, target) to (block, series, obs), for blocks of `length` steps."""
    num_steps, num_targets = x.shape[0], x.shape[-1]
    count, size = num_steps // length, batch.numel()
    x = x.reshape(num_steps, *[1] * (len(batch) + 2 - x.ndim), *x.shape[1:])
    x = x.expand(num_steps, *batch, num_targets).reshape(count, length, size, num_targets)
    return x.transpose(1, 2).reshape(count, size, length * num_targets)


def flatten_batch(x: Tensor, batch: torch.Size, event_ndim: int, lead: int) -> Tensor:
    """(lead..., *batch, event...) with its batch as one dimension: of size 1 where the parameter is shared."""
    given, event = x.shape[lead : x.ndim - event_ndim], x.shape[x.ndim - event_ndim :]
    if given.numel() == 1:  # kept at size 1: expanded, it would be read once a series
        return x.reshape(*x.shape[:lead], 1, *event)
    missing = [1] * (len(batch) - len(given))
    x = x.reshape(*x.shape[:lead], *missing, *given, *event)
    return x.expand(*x.shape[:lead], *batch, *event).reshape(*x.shape[:lead], batch.numel(), *event)


def check_terms(info: Tensor, terms: Tensor, length: int, num_targets: int, first_step: int) -> None:
    """Raises at the first failure, with step and series; `info` (block, group) is the row of a broken factorisation."""
    if is_transformed(info):
        return
    failed = (info != 0).unsqueeze(-1) | ~terms.isfinite().all(2)  # not every backend reports a NaN
    if not bool(failed.any()):
        return
    block, group, column = failed.nonzero()[0].tolist()
    row = int(info[block, group]) - 1
    if row < 0:  # no factorisation failed: the first number that is not finite
        row = int((~terms[block, group, :, column].isfinite()).nonzero()[0])
    step = first_step + block * length + row // num_targets
    taken = f"; {length} steps are taken at once, and NaN parameters of any spoil all" if length > 1 else ""
    raise NotPositiveDefiniteError(
        f"The predictive covariance of the observations is not positive definite at step {step}, "
        f"series {group + column} ({int(failed.any(0).sum())} series failed{taken}). {ADVICE}"
    )
