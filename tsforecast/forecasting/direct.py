"""Direct forecasts: ridge regressions of all steps ahead on the days before them, mixed into those of a model.

What a state-space model has wrong of the day's shape it has wrong at every step ahead. A direct forecast has
coefficients of its own for each step. Of less than three weeks, and far less than a day ahead, it continues blocks.
Seconds have hours for days; low counts have models of their own, see `counts`.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import calendar_unit, default_season, has_clock
from tsforecast.data.effects.effects import SIGNALS
from tsforecast.forecasting import counts
from tsforecast.forecasting.ridge import as_recent, curved, ridge
from tsforecast.models.parts.marginals import Marginals

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

ALONE = "%s of the model alone: direct forecasts continue the past, and nothing else"

SHARE = 0.5  # of direct forecasts in a mixture, where nothing else is known
_DAYS = (1, 2, 3, 7)  # before a forecast, whose values explain it
_BLOCKS = 8  # of a day, at least, where blocks are continued
_SAME = (1, 2, 3)  # days before, whose same steps explain a block, where there are so many
_WEEK = 7
_ORIGINS = 14  # that a regression has at least
_LEAST_STEPS = 4  # of a day
_RECENT = 365  # errors that a forecast has, at most
_YEAR = 365.25
_MISSING = 0.1  # of the steps of a horizon, above which it teaches nothing
_FAR = 3.0  # distances between the outer hundredths, beyond which values are cut
_BEND = 2.0  # mean absolute deviations, from which on values count by their logarithm
_UNSEEN = 3.0  # times as far from its week as any before the last week, from which on a last day has no like
_NARROWED = 0.85  # errors: a mixture of forecasts that differ is wider than each (Gneiting and Ranjan 2013)
_CURVED = 1000  # origins that a curved function is fitted to, at most
_PARTS = 20  # of the distribution of errors, as components of a mixture
NAME = "regression on "  # days or blocks, as the name of a model


@dataclass(frozen=True)
class Direct:
    """The direct forecast of one target."""

    mean: Array  # of each step ahead
    errors: Array  # that such forecasts had from earlier origins, (origin, step), narrowed for a mixture
    # Between which forecasts lie: the lowest and the highest value of the past, a whole range farther out.
    range: tuple[float, float]
    kind: str = "days"  # what regressions continue, or counts

    def parts(self, most: int = _PARTS) -> tuple[Array, Array]:
        """Return means and deviations (part, step) of a mixture of equal weights: sorted errors in parts."""
        count = min(most, len(self.errors) // 4)
        ordered, places = np.sort(self.errors, axis=0), np.arange(len(self.errors)) * count // len(self.errors)
        starts, sizes = np.searchsorted(places, range(count)), np.bincount(places)[:, None]
        mean = np.add.reduceat(ordered, starts) / sizes
        deviation = np.sqrt(np.add.reduceat((ordered - mean[places]) ** 2, starts) / sizes)
        return np.clip(self.mean + mean, *self.range), np.maximum(deviation, 1e-3 * self.errors.std(0))

    def paths(self, chosen: NDArray[np.int64]) -> Array:
        """Return paths (path, step): the mean and the errors of one earlier origin each, counted from the last."""
        return np.clip(self.mean + self.errors[-1 - chosen], *self.range)


def check_share(share: float) -> None:
    """Raise a ValueError for a share of direct forecasts that is not from 0 to below 1."""
    if not 0 <= share < 1:
        raise ValueError(f"expected direct of at least 0 and below 1, got {share}")


def has_days(freq: str) -> bool:
    """Return whether a day, or of seconds an hour, has several steps at a frequency."""
    return has_clock(freq) and default_season(freq) >= _LEAST_STEPS


def is_long(steps: int, freq: str, horizon: int) -> bool:
    """Return whether a series of so many steps has origins enough for a direct forecast."""
    day = default_season(freq)
    if not has_days(freq):
        return False
    blocks = has_blocks(day, horizon) and steps >= (_WEEK + _ORIGINS + 1) * horizon
    return blocks or steps >= (_WEEK + _ORIGINS) * day + horizon


def has_blocks(day: int, horizon: int) -> bool:
    """Return whether a horizon is so short that blocks of it can be continued in the place of days."""
    return _BLOCKS * horizon <= day


def direct_forecast(
    values: Array, day: int, horizon: int, signals: Array | None = None, block: int | None = None
) -> Direct | None:
    """Return the forecast behind the end of a series by ridge regressions on the days before.

    Origins lie whole days before the end. Features of each are the values of four earlier days, the weekday, of long
    series the season of the year, and covariates on the day ahead and the day before. An inverse hyperbolic sine bends
    large values; all are differences to the mean of the week before the origin. The mean is that of a linear and a
    curved function. Both have a Gaussian prior; its precision has the least absolute error where each origin is left
    out (Allen 1974). Errors are in part as large as they were in the last days.

    Args:
        values: Of the past, (time,), NaN where missing.
        day: Steps of a day.
        horizon: Steps ahead.
        signals: Covariates of past and horizon, (time + horizon, covariate); None for none.
        block: Steps that take the place of days, beside the same steps of up to three days before; None for days.

    Returns:
        None where origins are too few, or the last day is like none before the last week.
    """
    block = block or day
    missing, room = np.isnan(values), len(values) - (_ORIGINS + 1) * block
    same = [number for number in _SAME if block < day and number * day <= room]  # as many as leave origins enough
    begin = max(_WEEK * block, max(same, default=0) * day)
    origins = np.arange(len(values) - -(-horizon // block) * block, begin - 1, -block)[::-1]
    origins = origins[[missing[origin : origin + horizon].mean() <= _MISSING for origin in origins]]
    if len(origins) < _ORIGINS or missing[-_WEEK * block :].mean() > _MISSING:
        return None
    whole, every = _complete(values, day), np.append(origins, len(values))
    middle = np.median(whole)
    size = _BEND * np.abs(whole - middle).mean() or 1.0
    filled = np.arcsinh((whole - middle) / size)
    level, latest = (np.array([filled[end - days * block : end].mean() for end in every]) for days in (_WEEK, 1))
    moved = np.abs(latest - level)
    if moved[-1] > _UNSEEN * moved[:-_WEEK].max():  # as after a jump: the past does not say what comes next
        return None
    past, steps = _features(filled, every, level, block, day, same), np.arange(horizon)
    signals = None if signals is None or not signals.size else signals[-len(values) - horizon :]
    goal, found = filled[origins[:, None] + steps] - level[:-1, None], []
    for ahead in [steps] if signals is None else np.split(steps, range(block, horizon, block)):
        features = past if signals is None else _beside(past, signals, every, ahead, block)
        found.append(ridge(features[:-1], goal[:, ahead], features[-1]))
    mean, errors = (np.concatenate(parts, -1) for parts in zip(*found, strict=True))
    if block == day:  # a curved function costs the cube of the number of origins: blocks are too many
        features = past if signals is None else _beside(past, signals, every, steps, day)
        curve, curve_errors = curved(features[-_CURVED - 1 :], goal[-_CURVED:])
        mean, errors = (mean + curve) / 2, (errors[-_CURVED:] + curve_errors) / 2
        errors = as_recent(errors, -(-horizon // day))
    mean, errors = level[-1] + mean, _NARROWED * errors[-_RECENT:]
    low, high, spread = whole.min(), whole.max(), np.ptp(whole)
    # Beyond these no number is too large for a hyperbolic sine.
    ends = np.arcsinh((np.array([low - spread, high + spread]) - middle) / size)
    center, around = (middle + size * np.sinh(np.clip(one, *ends)) for one in (mean, mean + errors))
    kind = "days" if block == day else "blocks"
    return Direct(center, around - center, (float(low - spread), float(high + spread)), kind)


def _complete(values: Array, day: int) -> Array:
    """Return values without outliers or gaps, which the day before fills, or else the day behind."""
    low, high = np.nanquantile(values, [0.01, 0.99])
    span = high - low if high > low else np.nanmax(values) - np.nanmin(values)
    filled = np.clip(values, low - _FAR * span, high + _FAR * span)
    if np.isnan(filled).any():
        short = -len(filled) % day
        rows = np.pad(filled, (short, 0), constant_values=np.nan).reshape(-1, day)
        for order in (rows, rows[::-1]):
            for before, after in itertools.pairwise(order):
                np.copyto(after, before, where=np.isnan(after))
        filled = rows.ravel()[short:]
        filled = np.where(np.isnan(filled), np.nanmean(values), filled)
    return filled


def _features(values: Array, origins: NDArray[np.int64], level: Array, block: int, day: int, same: list[int]) -> Array:
    """Return the features of origins (origin, feature), in units of their spread."""
    back = [block * number for number in _DAYS]
    back += [day * number for number in same]
    found = [_standardised(np.hstack([values[origins[:, None] - k + np.arange(block)] - level[:, None] for k in back]))]
    if block < day:
        return found[0]
    number = origins // day
    found.append(np.eye(_WEEK)[number % _WEEK])
    if np.ptp(number) > _YEAR:
        angle = 2 * np.pi * number[:, None] / _YEAR * np.array([1, 2])
        found += [np.sin(angle), np.cos(angle)]
    return np.concatenate(found, 1)


def _beside(past: Array, signals: Array, origins: NDArray[np.int64], ahead: NDArray[np.int64], day: int) -> Array:
    """Return features with covariates beside them: on the steps ahead, and on the day before the origins."""
    steps = np.concatenate([np.arange(-day, 0), ahead])
    rows = signals[origins[:, None] + steps].reshape(len(origins), -1)
    return np.concatenate([past, np.nan_to_num(_standardised(rows))], 1)


def _standardised(rows: Array) -> Array:
    spread = rows.std(0)
    return (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)


class Directs:
    """The direct forecasts of a batch of series.

    Args:
        windows: Of the series, whose pasts they continue; see `tsforecast.data.windows.cut`.
        freq: Frequency.
        horizon: Steps ahead.
        share: Of direct forecasts in a mixture, between 0 and 1.
        targets: Number of targets that are forecast; past-only covariates come behind them.
    """

    def __init__(self, windows: Sequence[dict[str, Any]], freq: str, horizon: int, share: float, targets: int) -> None:
        self.share = share
        if not np.isnan([window["known_future"] for window in windows]).all():
            log.info(ALONE, "forecasts with a known part of the future are")
        day = default_season(freq)
        self.turn = "hours" if calendar_unit(freq)[1] == "s" else "days"
        continued = partial(_regressions, day=day) if has_days(freq) else partial(_counts, season=day)
        self.found = [_of_window(window, continued, horizon, targets) for window in windows]

    def mixed(self, marginals: Marginals, exponents: NDArray[np.int64]) -> Marginals:
        """Return the mixtures of distributions of a model and direct ones.

        Series without a direct forecast keep those of the model.

        Args:
            marginals: Of the model, divided by powers of two.
            exponents: The exponents of these powers, (series, target).
        """
        if all(series is None for series in self.found):
            return marginals
        # Series without one have the model's mean in its place, of no weight.
        unit = marginals.size[:, :1].expand(-1, _PARTS, -1)
        mean = (marginals.expectation() / unit[:, 0, None]).unsqueeze(1).repeat(1, _PARTS, 1, 1)
        deviation, log_weight = torch.ones_like(mean), mean.new_full((len(mean), _PARTS), -torch.inf)
        shares = mean.new_zeros(2, len(mean))
        shares[1] = -torch.inf
        for row, series in enumerate(self.found):
            count = min([_PARTS, *(len(one.errors) // 4 for one in series or ())])  # targets share weights
            for target, one in enumerate(series or ()):
                size = np.ldexp(float(unit[row, 0, target]), int(exponents[row, target]))
                means, deviations = (torch.from_numpy(part / size).to(mean) for part in one.parts(count))
                mean[row, : len(means), :, target], deviation[row, : len(means), :, target] = means, deviations
                log_weight[row, : len(means)] = -np.log(len(means))
            if series is not None:
                shares[:, row] = torch.tensor([1 - self.share, self.share]).log()
        log_weight[shares[1].isinf(), 0] = 0.0
        kind = next(one.kind for series in self.found for one in series or ())
        name = kind if kind == counts.NAME else NAME + (self.turn if kind == "days" else kind)
        direct = Marginals(log_weight, mean, deviation, unit, ("none",) * _PARTS, marginals.clip)
        return replace(Marginals.pooled([marginals, direct], shares, ("", name)), bounds=marginals.bounds)

    def exchanged(self, every: Sequence[Any], is_clipped: bool) -> list[Any]:
        """Return paths (path, step[, target]) of each series, direct ones in the place of a share of them."""
        exchanged = []
        for paths, series in zip(every, self.found, strict=True):
            if series is not None:
                rows = torch.randperm(len(paths))[: round(self.share * len(paths))].numpy()
                least = min(len(one.errors) for one in series)
                chosen = torch.randint(least, rows.shape).numpy()  # the same of all targets
                drawn = np.stack([one.paths(chosen) for one in series], -1)
                paths = paths.astype(np.result_type(paths, np.float32))
                paths[rows] = (np.maximum(drawn, 0.0) if is_clipped else drawn).reshape(paths[rows].shape)
            exchanged.append(paths)
        return exchanged


def is_direct(name: str) -> bool:
    """Return whether a name in a mixture is that of direct forecasts."""
    return name == counts.NAME or name.startswith(NAME)


def _of_window(
    window: dict[str, Any], continued: Callable[..., list[Direct | None]], horizon: int, targets: int
) -> list[Direct] | None:
    """Return the direct forecast of each target; None without one of each, or with a future known in part."""
    if not np.isnan(window["known_future"]).all():
        return None
    values = np.where(window["past_observed"], window["past_target"], np.nan)[:, :targets].astype(np.float64)
    found = continued(values.T, window, horizon)
    every = [one for one in found if one is not None]
    return every if len(every) == len(found) else None


def _regressions(values: Array, window: dict[str, Any], horizon: int, day: int) -> list[Direct | None]:
    signals = window.get(SIGNALS)
    found = [direct_forecast(target, day, horizon, signals) for target in values]
    if any(one is None for one in found) and has_blocks(day, horizon):
        found = [direct_forecast(target, day, horizon, signals, horizon) for target in values]
    return found


def _counts(values: Array, window: dict[str, Any], horizon: int, season: int) -> list[Direct | None]:
    """Return paths of each target of low counts, as forecasts of nothing and their errors."""
    found = counts.of_window(values, window, horizon, season)
    return [None if x is None else Direct(np.zeros(horizon), x, (x.min(), x.max()), counts.NAME) for x in found]
