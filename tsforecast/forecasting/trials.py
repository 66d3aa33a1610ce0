"""Windows before the end of the training part, and the scores of candidates on them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gluonts.model import Predictor
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings
from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.data.task import ForecastTask, ended, instances, last_steps
from tsforecast.forecasting.candidates import Candidate

SERIES = 512  # that candidates are compared on, at most
_STEPS = 3000  # at the end of each, likewise
_FILTERED = 250_000  # steps of the histories before all windows, likewise
_WINDOWS = 10
SHARE_OF_LONG = 0.1  # of long series, which can spare this share of them
_APART = 3  # horizons from one window to the next, at most: neighbours have the same weather
# Quantiles in the middle of equal shares: as a sample of equal weights they have the CRPS that is their quantile loss.
LEVELS = tuple(((np.arange(20) + 0.5) / 20).tolist())
WEIGHTS = ("sum", "equal")

Train = Callable[[Candidate, Sequence[dict[str, Any]]], Predictor]


@dataclass(frozen=True)
class Trial:
    """A candidate that was trained once, before the windows.

    Attributes:
        candidate: The candidate.
        losses: CRPS of every series and window, by twenty quantiles; infinite where the training failed.
        seconds: CPU seconds of training and forecasts.
        quantiles: Of every series, window, value and level; None of a pool, or where the training failed.
    """

    candidate: Candidate
    losses: NDArray[np.float64]
    seconds: float
    quantiles: NDArray[np.float64] | None = None

    def score(self, share: NDArray[np.float64]) -> float:
        """Return the score by the weights of series, see `shares_of`."""
        return float(share @ self.losses.sum(1))


def gain(before: Trial, after: Trial, share: NDArray[np.float64]) -> tuple[float, float]:
    """Return by how much one trial has a lower score than another, and the standard error of this difference.

    It is the larger of the errors over series and over windows, since neither are independent of each other. Of one
    series and one window it is infinite.
    """
    difference = share[:, None] * (before.losses - after.losses)
    each = (difference.sum(1), difference.sum(0))
    return float(difference.sum()), max((math.sqrt(len(x) * x.var(ddof=1)) for x in each if len(x) > 1), default=np.inf)


def shares_of(task: ForecastTask, values: NDArray[np.float64], weights: str) -> NDArray[np.float64]:
    """Return the weight of the loss of each series in a score.

    Args:
        task: The series and their windows.
        values: As `values_of` returns them.
        weights: "sum" for the weighted quantile loss, the sum of losses by that of absolute values. "equal" for the
            mean of losses in units of each series' seasonal error before the windows; a series without one counts 0.
    """
    if weights == "sum":
        size = np.abs(np.nan_to_num(values)).sum()
        return np.full(len(values), 1 / size if size else 0.0)
    season, own = default_season(task.freq), _units_of_targets(task)
    units = np.array([seasonal_error((entry["target"].T / own).T, season) for entry in task.train])
    count = np.isfinite(values).sum((1, 2))
    known = (units > 0) & (count > 0)
    return np.where(known, 1 / np.where(known, units * count * max(known.sum(), 1), 1.0), 0.0)


def _units_of_targets(task: ForecastTask) -> NDArray[np.float64]:
    """Return what each of several targets is divided by, lest one outweigh the others; 1 of a single one."""
    entries, season = list(task.train), default_season(task.freq)
    if all(np.ndim(entry["target"]) == 1 for entry in entries):
        return np.ones(1)
    found = np.array([[seasonal_error(row, season) for row in entry["target"]] for entry in entries]).mean(0)
    return np.where(found > 0, found, 1.0)


def seasonal_error(target: NDArray[Any], season: int) -> float:
    """Return the mean absolute difference to the season before, or to the step before in a series that is shorter."""
    lag = season if target.shape[-1] > season else 1
    differences = np.abs(target[..., lag:].astype(np.float64) - target[..., :-lag])
    return float(np.nanmean(differences)) if np.isfinite(differences).any() else 0.0


def comparison(task: ForecastTask, seed: int | None) -> ForecastTask | None:
    """Return a sample of the series whose last windows are for comparison; None where most series are too short.

    They have a value before these windows, which take at most half of the median series. The first has a season before
    it, or else a step more than it has itself, which training takes.
    """
    steps = task.prediction_length
    lengths = [entry["target"].shape[-1] for entry in task.entries]
    median = float(np.median(lengths))
    most = max(span(int(SHARE_OF_LONG * median / steps)), min(_WINDOWS, int(median / 2 / steps)), 1)
    past = max(steps + 1, default_season(task.freq))
    tried = [(windows, past) for windows in range(most, 0, -1)] + [(1, steps + 1)]
    for windows, least in tried:
        test = windows * steps
        long = [entry for entry in task.entries if entry["target"].shape[-1] >= test + least and _begins(entry, test)]
        if len(long) >= max(1, len(task.entries) // 2):
            filtered = min(windows, _WINDOWS) * min(median, _STEPS)
            count = min(SERIES, max(int(_FILTERED / filtered), 1))
            order = np.random.default_rng(seed).permutation(len(long))[:count]
            entries = [last_steps(long[number], _STEPS) for number in sorted(order)]
            return ForecastTask(task.name, task.freq, steps, windows, entries)
    return None


def before_windows(entries: Sequence[dict[str, Any]], held_out: ForecastTask) -> list[dict[str, Any]]:
    """Return all series, in whole length, without the steps of the windows of a `comparison`.

    Those that are then without a value are left out.
    """
    test = held_out.windows * held_out.prediction_length
    found = ended([entry for entry in entries if entry["target"].shape[-1] > test], test)
    return [entry for entry in found if np.isfinite(entry["target"]).any()]


def _begins(entry: dict[str, Any], test: int) -> bool:
    """Return whether a series has a value before its last steps."""
    return bool(np.isfinite(last_steps(entry, _STEPS)["target"][..., :-test]).any())


def span(spare: int) -> int:
    """Return the number of horizons that windows span, where a series can spare so many."""
    apart = min(_APART, (spare - 1) // (_WINDOWS - 1))
    return (_WINDOWS - 1) * apart + 1 if apart > 1 else min(_WINDOWS, spare)


def windows_of(task: ForecastTask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return pasts and labels of a task's windows, series by series; of more than ten, ten at equal distances."""
    apart = -(-task.windows // _WINDOWS)
    kept = [number for number in range(task.windows * len(task.entries)) if number % task.windows % apart == 0]
    pasts, labels = instances(task.test())
    return [pasts[number] for number in kept], [labels[number] for number in kept]


def count_windows(task: ForecastTask) -> int:
    """Return the number of windows of each series in `windows_of`."""
    return len(range(0, task.windows, -(-task.windows // _WINDOWS)))


def values_of(task: ForecastTask) -> NDArray[np.float64]:
    """Return the values of `windows_of` by series and window, NaN where one is missing.

    Several targets follow each other, each in units of its seasonal error.
    """
    (_, labels), own = windows_of(task), _units_of_targets(task)
    each = [(np.asarray(label["target"], np.float64).T / own).T.ravel() for label in labels]
    return np.stack(each).reshape(len(task.entries), -1, len(each[0]))


def quantiles_of(
    predictor: Predictor, task: ForecastTask, pasts: Sequence[dict[str, Any]] | None = None
) -> NDArray[np.float64]:
    """Return twenty quantiles of each of `values_of`, given the pasts of `windows_of`; None to make them."""
    own = _units_of_targets(task)
    pasts = windows_of(task)[0] if pasts is None else pasts
    # No paths are drawn where quantiles are exact.
    options = {"num_samples": 0} if getattr(predictor, "has_marginals", False) else {}
    found = []
    with expected_alias_warnings():
        for forecast in predictor.predict(pasts, **options):
            quantiles = forecast_quantiles(forecast, LEVELS) / own
            found.append(np.moveaxis(quantiles, 0, -1).swapaxes(0, -2).reshape(-1, len(LEVELS)))
    return np.stack(found).reshape(len(task.entries), -1, *found[0].shape)


def crps(quantiles: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return twice the mean quantile loss of each value, 0 where it is missing."""
    error = values[..., None] - quantiles
    levels = np.asarray(LEVELS)
    return np.nan_to_num(2 * np.maximum(levels * error, (levels - 1) * error).mean(-1))


def loss_of(
    predictor: Predictor, task: ForecastTask, weights: str, pasts: Sequence[dict[str, Any]] | None = None
) -> float:
    """Return the CRPS of forecasts of `windows_of`, by the weights of series, see `shares_of` and `quantiles_of`."""
    values = values_of(task)
    return float(shares_of(task, values, weights) @ crps(quantiles_of(predictor, task, pasts), values).sum((1, 2)))
