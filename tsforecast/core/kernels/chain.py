"""The compiled filter through a chain of blocks and its adjoint; `core.series` has both in torch's operations."""

import torch
from torch import Tensor

from tsforecast.core.kernels.building import is_ready
from tsforecast.core.kernels.calls import FEWEST, call, fits, serves

# More columns are many series beside one covariance, for which torch's products are large.
_MOST_COLUMNS = 2
# States: with more, torch's products are as fast.
LARGEST = 64


def serves_chain(rows: Tensor, mask: Tensor | None, mean: Tensor, cov: Tensor, *parameters: Tensor | None) -> bool:
    """Whether the program filters through these blocks; the arguments are those of `filter_chain`."""
    (count, group, obs, columns), state = rows.shape, cov.shape[-1]
    if columns > _MOST_COLUMNS or not serves(
        group, (obs, state), rows, mean, cov, *parameters, masks=(mask,), largest=LARGEST
    ):
        return False
    transition, drift, noise = (1 if x is None else x.shape[-1] for x in parameters[3:])
    square = state, state
    events = (
        *((obs, state), (obs, obs), (obs, state), square if transition > 1 else (state, 1)),
        *((state, columns if drift > 1 else 1), square if noise > 1 else (state, 1)),
    )
    return (
        (mask is None or mask.shape == (count, group, obs, 1))
        and mean.shape == (group, state, columns)
        and cov.shape == (group, state, state)
        and all([fits(x, (count, group), *event) for x, event in zip(parameters, events, strict=True)])
    )


def suits(num_series: int, num_states: int, device: torch.device) -> bool:
    """Whether the program would filter so many series with covariances of their own."""
    return num_series >= FEWEST and num_states <= LARGEST and device.type == "cpu" and is_ready()


def filter_chain(
    keep: bool,
    keep_moments: bool,
    rows: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    cov: Tensor,
    *parameters: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the result of `core.series.chain_steps.filter_chain`; the tape is one tensor."""
    count, group, _obs, columns = rows.shape
    state = cov.shape[-1]
    inputs, numbers = _numbers(rows, keep, keep_moments, parameters)
    terms, info = (
        torch.empty_like(rows, memory_format=torch.contiguous_format),
        rows.new_empty(count, group, dtype=torch.int32),
    )
    last = rows.new_empty(group, state, columns), rows.new_empty(group, state, state)
    tape = _tape(rows, state, keep_moments) if keep else None
    data = [rows.contiguous(), mask if mask is None else mask.contiguous(), mean.contiguous(), cov.contiguous()]
    call("chain_forward", group, numbers, *data, *inputs, terms, *last, info, tape)
    return terms, *last, info, *(() if tape is None else (tape,))


def chain_cotangents(
    keep_moments: bool,
    needs: tuple[bool, ...],
    weights: Tensor,
    mean_bar: Tensor,
    cov_bar: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    cov: Tensor,
    *parameters_and_tape: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the result of `core.series.chain_adjoint.chain_cotangents`, from the tape of `filter_chain`."""
    *parameters, tape = parameters_and_tape
    group = len(cov)
    inputs, numbers = _numbers(weights, True, keep_moments, tuple(parameters))
    rows_bar = torch.empty_like(weights, memory_format=torch.contiguous_format) if needs[0] else None
    grads = [
        # One for each group, since threads add to their own; summed by the caller.
        x.new_zeros(x.shape[0], group, *x.shape[2:]) if need and x is not None else None
        for x, need in zip(parameters, needs[1:], strict=True)
    ]
    numbers += tuple(x is not None and x.shape[0] > 1 for x in grads)
    whole = torch.contiguous_format
    first = rows_bar, torch.empty_like(mean, memory_format=whole), torch.empty_like(cov, memory_format=whole)
    data = [None, mask if mask is None else mask.contiguous(), mean.contiguous(), cov.contiguous()]
    bars = [x.contiguous() for x in (weights, mean_bar, cov_bar)]
    call("chain_backward", group, numbers, *data, *inputs, tape, *bars, *first, *grads)
    return *first, *grads


def _numbers(
    rows: Tensor, keep: bool, keep_moments: bool, parameters: tuple[Tensor | None, ...]
) -> tuple[list[Tensor | None], tuple[int, ...]]:
    """Return the parameters in one piece; and sizes, forms and strides as the program wants them."""
    count, _, obs, columns = rows.shape
    matrix, _, _, transition, drift, state_noise = parameters
    assert matrix is not None
    assert state_noise is not None
    state = matrix.shape[-1]
    kind = 0 if transition is None else _form(transition)  # IDENTITY, DIAGONAL or DENSE of chain_moves.h
    whole = [None if x is None else x.contiguous() for x in parameters]
    strides: list[int] = []
    for x in whole:
        each = 0 if x is None else x.shape[-2] * x.shape[-1]
        strides += [
            # A stride of 0 reads the same block or group again.
            0 if x is None or x.shape[0] == 1 else x.shape[1] * each,
            0 if x is None or x.shape[1] == 1 else each,
        ]
    drift_columns = 1 if drift is None else drift.shape[-1]
    forms = kind, _form(state_noise), drift_columns
    return whole, (obs, state, count, columns, *forms, keep, keep_moments, *strides)


def _form(x: Tensor) -> int:
    """Return 1 for a diagonal, given as a column, and 2 for a matrix."""
    # A state of size 1 is called a matrix: both forms are the same then.
    return 1 if x.shape[-1] == 1 and x.shape[-2] > 1 else 2


def _tape(rows: Tensor, state: int, keep_moments: bool) -> Tensor:
    """Return memory for the factor, the gain and the errors of every block, and the moments where they are kept."""
    count, group, obs, columns = rows.shape
    size = obs * (obs + state + columns) + (state * (state + columns) if keep_moments else 0)
    return rows.new_empty(group, count * size)
