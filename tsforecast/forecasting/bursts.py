"""Whether the errors of a bank come in bursts, as where regimes change: the sign that switching models may pay."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from tsforecast.data.calendar.frequency import default_season
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models.parts.bank_inference import BankInference

_TAIL = 6.0  # kurtosis of errors: twice that of a Gaussian
_CLUSTERED = 0.25  # rank correlation of squared errors with those a step before
_LEAST = 100  # errors of a series that can show it
_CYCLES = 8  # of a season, from which on errors are ranked within each of its steps
_SERIES = 32


def bursts(predictor: StateSpacePredictor, entries: Sequence[dict[str, Any]]) -> tuple[bool, str]:
    """Return whether the median series has errors of one step ahead in bursts, and this in words.

    Bursts are both rare and lasting: squared errors have heavy tails, and one follows another. Their ranks are those
    among errors of the same hour, month, .. of the season, since a night without sun is no regime.
    """
    season = default_season(predictor.freq)
    found = [_signs(errors, season) for errors in _squared_errors(predictor, entries[:_SERIES])]
    known = np.array([one for one in found if one is not None]).reshape(-1, 2)
    if len(known) < max(len(found) // 2, 1):
        return False, f"half of the series would need {_LEAST} errors to show bursts"
    tail, clustered = np.median(known, 0)
    said = f"the kurtosis of errors is {tail:.1f}, the correlation of each squared error with the next {clustered:.2f}"
    return bool(tail > _TAIL and clustered > _CLUSTERED), f"{said} (bursts: above {_TAIL:g} and {_CLUSTERED:g})"


def _squared_errors(predictor: StateSpacePredictor, entries: Sequence[dict[str, Any]]) -> list[NDArray[np.float64]]:
    """Return the squared standardised errors of each series, without its first quarter, in which the level is found."""
    histories = predictor.histories()
    inference = histories.net.inference
    assert isinstance(inference, BankInference)
    found = []
    for entry in entries:
        with torch.no_grad():
            squares = inference.squared_errors(histories.batch_of([entry])[0])[:, 0].double().cpu().numpy()
        found.append(squares[len(squares) // 4 :])
    return found


def _signs(squares: NDArray[np.float64], season: int) -> tuple[float, float] | None:
    """Return kurtosis and rank correlation of squared errors; None of too few."""
    seen = np.isfinite(squares)
    if seen.sum() < _LEAST or not squares[seen].any():
        return None
    phases = np.arange(len(squares)) % (season if len(squares) >= _CYCLES * season else 1)
    ranks = np.full(len(squares), np.nan)
    for phase in range(phases.max() + 1):
        own = (phases == phase) & seen
        ranks[own] = rankdata(squares[own]) / (own.sum() + 1) - 0.5
    spread = np.nanmean(ranks**2)
    together = ranks[:-1] * ranks[1:]
    if not spread or not np.isfinite(together).any():
        return None
    tail = np.nanmean(squares**2) / np.nanmean(squares) ** 2
    return float(tail), float(np.nanmean(together) / spread)
