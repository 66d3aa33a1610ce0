"""A switching model of one series, learnt online: the level that a record follows, and the scale of its noise.

Local levels follow a series: one of all records, one for each time of the day, and one for each time of the week. Each
is a Kalman filter of a random walk in noise from a diffuse prior. The gain settles at a value that is chosen, K, where
the ratio of the variances of walk and noise is q = K^2 / (1 - K) (Harvey 1989, section 4.1.2).

A record follows one of the levels, with noise of one of several scales: that pair is its regime. Regimes are a Markov
chain. With the error e, the variance P of the level ahead and the scale c, the density of a record in a regime is a
Student t of e with nu = 1 + n degrees of freedom and the squared scale c^2 (1 + P) s / n: n counts the errors of that
level, s sums their squares, each divided by (1 + P) and by the scale that it probably had, and both forget. Levels do
not depend on regimes, so the filter over regimes (Hamilton 1989) is exact given these densities and the transition
probabilities. Those are learnt as well, from expected counts of the transitions so far and counts before.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import gammaln

_DAY = 86_400.0  # seconds
_SMALLEST = 1e-12  # variance of noise, in units of the square of the series' spread
Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Levels:
    """Beliefs over local levels, in units of the noise's variance.

    Attributes:
        mean: Of each level; NaN where it has seen nothing.
        variance: Of each.
    """

    mean: Float[np.ndarray, " time"]
    variance: Float[np.ndarray, " time"]


@dataclasses.dataclass(frozen=True, eq=False)
class FollowedState:
    """All that the model knows of a series.

    Attributes:
        seconds: Length of a time of the day.
        spread: Mean distance of a value from the median, in the first part.
        levels: Of all records, of the times of the day, and of the times of the week.
        errors: How many errors of each are remembered.
        squares: Sum of their squares.
        counts: Of transitions from a regime to another; regimes are levels times scales.
        regime: Probability of each.
    """

    seconds: float
    spread: float
    levels: tuple[Levels, Levels, Levels]
    errors: Float[np.ndarray, "3"]
    squares: Float[np.ndarray, "3"]
    counts: Float[np.ndarray, "regime regime"]
    regime: Float[np.ndarray, " regime"]


@dataclasses.dataclass(frozen=True)
class Followed:
    """The predictions of the model for records.

    Attributes:
        expected: Mean of a record given those before it; NaN where nothing is known.
        surprise: -log of its density given those before it; NaN where the value is missing, or nothing is known.
        regimes: Probability of each level and scale given the record and those before it.
    """

    expected: Float[np.ndarray, " record"]
    surprise: Float[np.ndarray, " record"]
    regimes: Float[np.ndarray, "record 3 scale"]


@dataclasses.dataclass(frozen=True)
class SwitchingLevels:
    """Settings of the model, the same for all series.

    Attributes:
        fast: Gain of the level of all records.
        seasonal: Gain of the levels of the times of the day and of the week.
        forgetting: Weight of an error in the variance of the noise, relative to the weight of the next error.
        scales: Of the noise, relative to each other. A series may keep to any of them: the others are then calmer or
            wilder.
        stay: Probability that a regime goes on, before anything is known.
        certainty: Number of transitions from each regime that this is worth.

    Raises:
        ValueError: If a setting is out of its range.
    """

    fast: float = 0.1
    seasonal: float = 0.2
    forgetting: float = 0.99
    scales: tuple[float, ...] = (1.0, 4.0, 16.0)
    stay: float = 0.9
    certainty: float = 20.0

    def __post_init__(self) -> None:
        for name in ("fast", "seasonal"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"expected a gain between 0 and 1 as {name}, got {getattr(self, name)}")
        if not 0 < self.forgetting <= 1:
            raise ValueError(f"expected forgetting above 0 and at most 1, got {self.forgetting}")
        if not 0 < self.stay < 1:
            raise ValueError(f"expected a probability between 0 and 1 as stay, got {self.stay}")
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"expected scales above 0, at least one, got {self.scales}")
        if self.certainty <= 0:
            raise ValueError(f"expected a certainty above 0, got {self.certainty}")

    def begin(self, timestamps: NDArray[Any], values: Numbers) -> FollowedState:
        """Return the state before a series, given a first part of it; the records of this are not seen yet.

        Args:
            timestamps: Of the first part; they give the length of a time of the day, a minute to a day.
            values: Of the first part, NaN where missing; they give the unit of the smallest variance.

        Raises:
            ValueError: If all values are missing.
        """
        if np.isnan(values).all():
            raise ValueError(f"expected at least one value in the first part, got {len(values)} records without any")
        steps = np.diff(timestamps).astype("timedelta64[us]").astype(np.float64) / 1e6
        seconds = float(np.clip(np.median(steps[steps > 0]), 60.0, _DAY)) if (steps > 0).any() else _DAY
        slots = int(np.ceil(_DAY / seconds))
        every, daily, weekly = (Levels(np.full(n, np.nan), np.full(n, np.inf)) for n in (1, slots, 7 * slots))
        spread = float(np.nanmean(np.abs(values - np.nanmedian(values)))) or 1.0
        regimes = 3 * len(self.scales)
        counts = self.certainty * (self.stay * np.eye(regimes) + (1 - self.stay) / regimes)
        regime = np.full(regimes, 1 / regimes)
        return FollowedState(seconds, spread, (every, daily, weekly), np.zeros(3), np.zeros(3), counts, regime)

    def step(self, state: FollowedState, timestamps: NDArray[Any], values: Numbers) -> tuple[FollowedState, Followed]:
        """Return the state after records, and the predictions for each; one or many at a time give the same.

        A missing value changes nothing, not even the regime.
        """
        means, variances = ([getattr(x, name).tolist() for x in state.levels] for name in ("mean", "variance"))
        walks = [gain**2 / (1 - gain) for gain in (self.fast, self.seasonal, self.seasonal)]
        noise = _Noise(self, state)
        predicted = Followed(*(np.full((len(values), *x), np.nan) for x in ((), (), (3, len(self.scales)))))
        for k, (value, *at) in enumerate(zip(values.tolist(), *_slots(timestamps, state.seconds), strict=True)):
            mean = [x[slot] for x, slot in zip(means, at, strict=True)]
            ahead = [x[slot] + walk for x, slot, walk in zip(variances, at, walks, strict=True)]
            predicted.expected[k] = noise.expected(mean)
            if value == value:
                predicted.surprise[k] = noise.met(value, mean, ahead)
                for level, slot in enumerate(at):
                    means[level][slot], variances[level][slot] = _moved(mean[level], ahead[level], value)
            predicted.regimes[k] = noise.regime.reshape(3, -1)
        levels: Any = tuple(Levels(np.array(m), np.array(v)) for m, v in zip(means, variances, strict=True))
        return dataclasses.replace(
            state, levels=levels, errors=noise.errors, squares=noise.squares, counts=noise.counts, regime=noise.regime
        ), predicted


class _Noise:
    """The filter over regimes within a block of records; it changes copies of its own."""

    def __init__(self, settings: SwitchingLevels, state: FollowedState) -> None:
        self.errors, self.squares, self.counts = state.errors.copy(), state.squares.copy(), state.counts.copy()
        self.regime = state.regime
        self.forgetting, self.least = settings.forgetting, _SMALLEST * state.spread**2
        self.scales = np.array(settings.scales) ** 2

    def expected(self, mean: list[float]) -> float:
        """Return the mean of a record, by the levels that are known."""
        ahead = self._ahead().reshape(3, -1).sum(1)
        known = [(p, m) for p, m in zip(ahead.tolist(), mean, strict=True) if m == m]
        total = sum(p for p, _ in known)
        return sum(p * m for p, m in known) / total if known else math.nan

    def met(self, value: float, mean: list[float], ahead: list[float]) -> float:
        """Return -log of the density of a value, and learn from it."""
        error = value - np.array(mean)
        seen = error == error
        squared = np.where(seen, error, 0.0) ** 2 / (1 + np.where(seen, ahead, 0.0))
        judged = seen & (self.errors > 0)
        share = np.zeros((3, len(self.scales)))
        share[:, 0] = 1.0  # of the scales that an error may have had; the first error has the ordinary one
        surprise = math.nan
        if judged.any():
            prior = self._ahead()
            log = self._log_density(squared, np.where(seen, ahead, 0.0), judged)
            top = log.max()
            likelihood = np.exp(log - top).ravel()
            joint = prior * likelihood
            total = joint.sum()
            surprise = -float(top + np.log(total / prior.reshape(3, -1)[judged].sum()))
            self.counts += (self.regime / self.counts.sum(1))[:, None] * self.counts * (likelihood / total)
            self.regime = joint / total
            own = prior.reshape(3, -1).sum(0) * np.exp(log[judged] - log[judged].max(1, keepdims=True))
            share[judged] = own / own.sum(1, keepdims=True)
        kept = np.where(seen, self.forgetting, 1.0)
        self.errors = kept * self.errors + seen
        self.squares = kept * self.squares + seen * squared * (share / self.scales).sum(1)
        return surprise

    def _ahead(self) -> Numbers:
        """Return the probability of each regime at the next record."""
        return (self.regime / self.counts.sum(1)) @ self.counts

    def _log_density(self, squared: Numbers, ahead: list[float] | Numbers, judged: NDArray[np.bool_]) -> Numbers:
        """Return the log-density of a record in each regime; -inf where its level is not judged."""
        freedom = 1 + self.errors
        noise = np.maximum(self.squares / np.maximum(self.errors, 1e-300), self.least)
        constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * math.pi)
        constant -= 0.5 * np.log(noise * (1 + np.asarray(ahead)))
        far = np.log1p((squared / (freedom * noise))[:, None] / self.scales)
        log = constant[:, None] - 0.5 * np.log(self.scales) - ((freedom + 1) / 2)[:, None] * far
        return np.where(judged[:, None], log, -np.inf)


def _slots(timestamps: NDArray[Any], seconds: float) -> tuple[list[int], list[int], list[int]]:
    """Return for some records 0, the number of the time of the day, and that of the time of the week."""
    days = timestamps.astype("datetime64[D]")
    slot = ((timestamps - days).astype("timedelta64[us]").astype(np.float64) / 1e6 // seconds).astype(int)
    weekday = (days.astype(int) + 3) % 7  # the first day is a Thursday
    return [0] * len(slot), slot.tolist(), (weekday * int(np.ceil(_DAY / seconds)) + slot).tolist()


def _moved(mean: float, ahead: float, value: float) -> tuple[float, float]:
    """Return mean and variance of a level after a value; the noise has the variance 1."""
    if mean != mean:
        return value, 1.0
    gain = ahead / (ahead + 1)
    return mean + gain * (value - mean), gain
