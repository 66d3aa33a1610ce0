"""The reach of forecasts: bounds that no history of the training data has left."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.models.records import Batch, Belief, DataSpec


def widened(
    batch: Batch, observed: Bool[Tensor, "series time target"], before: Belief | None
) -> Float[Tensor, "series 2 target"]:
    """Return the lowest and highest value of a batch's past and of all values before it, in float64.

    Args:
        batch: Its past is read.
        observed: Which of its values count.
        before: The belief before.
    """
    past = batch["past_target"].double()
    low = torch.where(observed, past, torch.inf).amin(1)
    high = torch.where(observed, past, -torch.inf).amax(1)
    if before is not None and before.seen is not None:
        low, high = torch.minimum(low, before.seen[:, 0]), torch.maximum(high, before.seen[:, 1])
    return torch.stack([low, high], 1)


def bounds(belief: Belief, data: DataSpec, future: Batch) -> Float[Tensor, "series 2 target"] | None:
    """Return the lowest and highest values that forecasts may take, in float64; None where they are free.

    They lie outside of the range of all values seen, by `DataSpec.largest_move` widths of this range. The width is at
    least `DataSpec.typical_change` of the largest value. Series that have been zero throughout, or have no value, are
    not bounded. Values of the future that are known lie within the bounds.

    Args:
        belief: At the end of the past.
        data: What is known of the data.
        future: Its `known_future` is read.
    """
    if belief.seen is None:
        return None
    low, high = belief.seen.unbind(1)
    # A constant series has no range.
    width = torch.maximum(high - low, data.typical_change * torch.maximum(high.abs(), low.abs()))
    reach = data.largest_move * width
    is_free = ~torch.isfinite(reach) | (reach == 0)  # a series of zeros may wake up
    low, high = torch.where(is_free, -torch.inf, low - reach), torch.where(is_free, torch.inf, high + reach)
    if "known_future" in future:
        known = future["known_future"].double()
        low = torch.minimum(low, torch.where(known.isnan(), torch.inf, known).amin(1))
        high = torch.maximum(high, torch.where(known.isnan(), -torch.inf, known).amax(1))
    return torch.stack([low, high], 1)
