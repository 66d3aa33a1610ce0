"""Targets that end at different steps: values behind the end of others are a known part of the forecast."""

from typing import Any

import torch
from torch import Tensor

from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.joint_inference import JointInference

_MOST = 64  # steps


def without_ragged_end(net: AbstractForecaster, batch: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the batch with its last steps as a known part of the future, and their number.

    These are the steps from which on a target has no value while another has some. A model with a state for each
    target learns of one target from another in a forecast alone.
    """
    observed: Tensor = batch["past_observed"]
    if not isinstance(net.inference, JointInference) or bool(observed[:, -1].all()):
        return batch, 0
    missing = observed.flip(1).cumsum(1).eq(0).sum(1)  # steps behind the last value of each target
    missing = torch.where(observed.any(1), missing, 0)
    least = torch.where(observed.any(1), missing, observed.shape[1]).amin(1)
    gap = torch.where(missing.amax(1) > least, missing.amax(1), 0)
    steps = min(int(gap.amax()), _MOST, observed.shape[1] - 1)
    if not steps:
        return batch, 0
    known = torch.where(observed, batch["past_target"], torch.nan)
    moved = {**batch, "past_known": known}
    found = {name: x[:, :-steps] if name.startswith("past_") else x for name, x in batch.items()}
    pairs = {"time_feat": "future_time_feat", "season_index": "future_season_index"}
    pairs |= {"dynamic_real": "future_dynamic_real", "known": "known_future"}
    for past, future in pairs.items():
        found[future] = torch.cat([moved[f"past_{past}"][:, -steps:].to(batch[future]), batch[future]], 1)
    return found, steps
