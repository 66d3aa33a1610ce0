"""Batches of a model from the arrays of a service: the past of series that go on, and the steps of forecasts."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.magnitude import in_range
from tsforecast.live.calendar import Calendar
from tsforecast.models import Batch, Belief
from tsforecast.models.records import DataSpec

_PADDED = 1 << 19  # steps of histories that are filtered together


def past_batch(
    data: DataSpec,
    calendar: Calendar,
    window: NDArray[np.float64],
    end: NDArray[np.int64],
    exponents: NDArray[np.int64],
    device: torch.device,
) -> Batch:
    """Return the past of a batch of windows (series, time, target + covariate) of equal length."""
    targets, length = data.num_targets, window.shape[1]
    features, seasons = calendar.at(end[:, None] - calendar.multiple * np.arange(length, 0, -1))
    observed = ~np.isnan(window[..., :targets])
    values = in_range(np.where(observed, window[..., :targets], 0.0), exponents)
    inputs = np.nan_to_num(window[..., targets:]).astype(np.float32)
    return {
        "past_target": torch.as_tensor(values, device=device),
        "past_observed": torch.as_tensor(observed, device=device),
        "past_is_pad": torch.zeros(window.shape[:2], dtype=torch.bool, device=device),
        "past_time_feat": torch.as_tensor(features, device=device),
        "past_season_index": torch.as_tensor(seasons, device=device),
        "past_dynamic_real": torch.as_tensor(inputs, device=device),
    }


def past_window(
    data: DataSpec, calendar: Calendar, history: NDArray[np.float64], observed: NDArray[np.bool_], end: int
) -> dict[str, NDArray[np.generic]]:
    """Return the past of a series, as `tsforecast.data.windows.cut` makes it."""
    features, seasons = calendar.at(end - calendar.multiple * np.arange(len(history), 0, -1))
    targets = data.num_targets
    return {
        "past_target": np.where(observed, history[:, :targets], 0.0),
        "past_observed": observed,
        "past_time_feat": features,
        "past_season_index": seasons,
        "past_dynamic_real": np.nan_to_num(history[:, targets:]).astype(np.float32),
    }


def future_batch(
    data: DataSpec,
    calendar: Calendar,
    end: NDArray[np.int64],
    exponents: NDArray[np.int64],
    steps: int,
    future: NDArray[np.float64] | None,
    covariates: NDArray[np.float64] | None,
    device: torch.device,
) -> Batch:
    """Return the steps of forecasts.

    Args:
        data: Of the model.
        calendar: Likewise.
        end: Ordinals of the first steps.
        exponents: Of the powers of two by which targets are divided.
        steps: Length of the forecasts.
        future: Targets (series, step, target) that are taken as given, NaN where free; None for none.
        covariates: Standardised (series, step, covariate); None in a model without.
        device: Of the model.
    """
    features, seasons = calendar.at(end[:, None] + calendar.multiple * np.arange(steps))
    given = np.full((len(end), steps, data.num_targets), np.nan) if future is None else future
    inputs = np.zeros((len(end), steps, data.num_dynamic_real)) if covariates is None else covariates
    return {
        "future_time_feat": torch.as_tensor(features, device=device),
        "future_season_index": torch.as_tensor(seasons, device=device),
        "future_dynamic_real": torch.as_tensor(inputs.astype(np.float32), device=device),
        "known_future": torch.as_tensor(in_range(given, exponents), device=device),
        "forecast_start": [calendar.period(stop) for stop in end.tolist()],
    }


def with_series(batch: Batch, belief: Belief) -> Batch:
    """Return a batch with who its series are, as a belief says."""
    known = belief.series
    return batch | {
        "series_index": known.index,
        "static_cat": known.static_cat,
        "static_real": known.static_real,
    }


def fresh_or_kept(fresh: Batch, kept: Batch, is_new: torch.Tensor, device: torch.device) -> Batch:
    """Return the fresh values of series that are new, and those that are kept of the others, if any are."""
    joined = {}
    for name, values in fresh.items():
        values = values.to(device)
        if name in kept:
            chosen = is_new if values.ndim == 1 else is_new[:, None]
            values = torch.where(chosen.to(device), values, kept[name])
        joined[name] = values
    return joined


def alike(lengths: list[int]) -> Iterator[NDArray[np.int64]]:
    """Return places of windows that are padded to a common length, shorter ones first, in groups of bounded size."""
    order = np.argsort(lengths, kind="stable")
    first = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - first) * lengths[order[stop]] > _PADDED:
            yield np.sort(order[first:stop])
            first = stop
