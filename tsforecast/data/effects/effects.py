"""Effects of covariates on series: estimated in closed form, taken from the data, and given back to forecasts."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, steps_per_day
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.basis import DAYS_OF_YEAR, Basis, Signal, basis_of, calendar_groups
from tsforecast.data.effects.link import BENDS, linked, log_slope, moved
from tsforecast.data.effects.regression import Fit, fit
from tsforecast.wording import counted

COVARIATES, MEMORY = "feat_dynamic_real", "effect_memory"
log = logging.getLogger(__name__)

_ROWS = 40_000  # values that are fitted to: four and a half years of hours
_ROUNDS = 6  # of the regression, and half of them where a scale is chosen
_CHOOSING = 10_000  # values by which the scale is chosen
_MOST = 256  # series that are fitted to
_OWN, _OWN_LENGTH = 32, 20  # series, at most, with curves of their own; values a column wants for that
_RARE = 1e-9  # deviation of a column that does not count

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effects:
    """Curves of covariates that have been fitted.

    Attributes:
        basis: The columns that they are sums of.
        num_covariates: Number of covariates.
        bend: Of the scale on which they add up, see `tsforecast.data.effects.link`.
        centres: Mean of each column in training.
        coefficients: Of each column less its mean.
        own: What coefficients of a series differ by, by its name.
        sizes: Mean absolute value of each series in training, by its name.
        lowest: Below which nothing was seen and nothing is forecast, 0 or minus infinity.
    """

    basis: Basis
    num_covariates: int
    bend: float
    centres: Array
    coefficients: Array
    own: dict[str, Array]
    sizes: dict[str, float]
    lowest: float

    @classmethod
    def of_record(cls, record: Any) -> "Effects":
        """Return the effects of a `record`.

        Raises:
            ValueError: If it is damaged.
        """
        try:
            signals = tuple(
                Signal(
                    int(column), float(half), _pair(ends), float(centre), float(spread), _floats(knots), _floats(means)
                )
                for column, half, ends, centre, spread, knots, means in record["signals"]
            )
            pairs = tuple((int(a), int(b), _floats(one), _floats(two)) for a, b, one, two in record["pairs"])
            basis = Basis(str(record["freq"]), signals, str(record["by_hour"]), pairs)
            own = {str(name): np.asarray(_floats(values)) for name, values in record["own"].items()}
            sizes = {str(name): float(size) for name, size in record["sizes"].items()}
            found = cls(
                basis, int(record["num_covariates"]), float(record["bend"] or np.inf),
                np.asarray(_floats(record["centres"])), np.asarray(_floats(record["coefficients"])),
                own, sizes, 0.0 if record["nonnegative"] else -np.inf,
            )  # fmt: skip
            found._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"expected effects of covariates, got {record!r:.80} ({error})") from error
        return found

    def __str__(self) -> str:
        """Return a line about the fit."""
        scale = "added" if np.isinf(self.bend) else "multiplied for large values, added for small ones"
        count = counted(self.num_covariates, "covariate")
        return f"effects of {count} are curves of {self.basis.width} coefficients, fitted in closed form, and {scale}"

    def _check(self) -> None:
        width = len(self.centres)
        places = [one.column for one in self.basis.signals]
        fits = all(0 <= place < self.num_covariates for place in places)
        fits &= all(0 <= k < len(places) for pair in self.basis.pairs for k in pair[:2])
        fits &= all(len(x) == width and np.isfinite(x).all() for x in (self.coefficients, *self.own.values()))
        fits &= all(len(x.means) == (len(x.knots) + 2 if x.knots else 0) for x in self.basis.signals)
        fits &= self.basis.width == width and self.bend > 0 and all(size > 0 for size in self.sizes.values())
        if not fits:
            raise ValueError("its parts do not fit each other")

    @property
    def record(self) -> dict[str, Any]:
        """Return the effects as numbers and text for JSON."""
        signals = [
            [x.column, x.half_life, list(x.ends), x.centre, x.spread, list(x.knots), list(x.means)]
            for x in self.basis.signals
        ]
        return {
            "freq": self.basis.freq,
            "by_hour": self.basis.by_hour,
            "signals": signals,
            "pairs": [[a, b, list(one), list(two)] for a, b, one, two in self.basis.pairs],
            "num_covariates": self.num_covariates,
            "bend": 0.0 if np.isinf(self.bend) else self.bend,
            "centres": self.centres.tolist(),
            "coefficients": self.coefficients.tolist(),
            "own": {name: values.tolist() for name, values in self.own.items()},
            "sizes": self.sizes,
            "nonnegative": self.lowest == 0,
        }

    def adjusted(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with the target of covariates that are always at their means.

        It has `effect`, what was taken away at each step and will be at later ones, (time,), in sizes of the series;
        `link`, bend and size; and `effect_memory`, from which to go on behind the target. Its covariates are gone. An
        entry that is adjusted returns as it is.

        Raises:
            ValueError: If it has other covariates than those of the training, or too few.
        """
        if "effect" in entry:
            return entry
        target = as_numbers(entry["target"]).astype(np.float64)
        name, length = entry.get("item_id"), target.shape[-1]
        covariates = as_numbers(entry.get(COVARIATES, np.zeros((0, length)))).astype(np.float64)
        if len(covariates) != self.num_covariates:
            raise ValueError(
                f"series {name!r}: expected {COVARIATES} of {self.num_covariates} rows, as in the training data, "
                f"got {len(covariates)}"
            )
        if covariates.shape[1] < length:
            raise ValueError(f"series {name!r}: expected {COVARIATES} over {length} steps, got {covariates.shape[1]}")
        known = np.asarray(entry[MEMORY], np.float64) if MEMORY in entry else None
        size = self._size(name, target) if known is None else float(known[0])
        means = None if known is None else dict(zip(self.basis.smoothed, known[1:].tolist(), strict=True))
        before, after = self.basis.values(covariates.T[:length], means)
        ahead, _ = self.basis.values(covariates.T[length:], after if length else means)
        values = [np.concatenate(both) for both in zip(before, ahead, strict=True)]
        coefficients = self.coefficients + self.own.get(str(name), 0.0)
        effect = (self.basis.columns(entry["start"], values) - self.centres) @ coefficients
        less = {key: value for key, value in entry.items() if key != COVARIATES}
        less |= {"target": moved(target, -effect[:length], self.bend, size), "effect": effect}
        if entry.get("known_future") is not None:
            given = as_numbers(entry["known_future"]).astype(np.float64)
            covered = effect[length : length + given.shape[-1]]
            first = moved(given[..., : len(covered)], -covered, self.bend, size)
            less["known_future"] = np.concatenate([first, given[..., len(covered) :]], -1)
        kept = after if length else (means or {})
        memory = np.array([size, *(kept.get(k, 0.0) for k in self.basis.smoothed)])
        return less | {"link": np.array([self.bend, size, self.lowest]), MEMORY: memory}

    def _size(self, name: Any, target: Array) -> float:
        """Return the size of a series: that of its training, or that of its values."""
        return self.sizes.get(str(name)) or size_of(target)


def size_of(target: Array) -> float:
    """Return the mean absolute value of a series, 1 where it has none or only zeros."""
    seen = np.abs(target[np.isfinite(target)])
    return float(seen.mean()) if len(seen) and seen.any() else 1.0


def restored(values: NDArray[Any], effect: Array, link: Array) -> Array:
    """Return values that an effect was taken from with the effect; see `Effects.adjusted`; shapes broadcast."""
    bend, size, lowest = link
    return np.maximum(moved(values, effect, bend, size), lowest)


@dataclass(frozen=True)
class Taken:
    """Effects that were taken from the targets of a batch of series.

    Attributes:
        effect: At each step, (series, time).
        link: Bend, size and lowest value of each series, see `Effects.adjusted`.
    """

    effect: Array
    link: Array

    @classmethod
    def of_batch(cls, batch: dict[str, Any], part: str) -> "Taken | None":
        """Return those of the `past` or `future` of a batch; None where it has none."""
        name = f"{part}_effect"
        return cls(batch[name].cpu().numpy(), batch["link"].cpu().numpy()) if name in batch else None

    @property
    def bends(self) -> bool:
        """Return whether the scale of the effects is not that of the data."""
        return bool(np.isfinite(self.link[:, 0]).any())

    def of(self, rows: slice) -> "Taken":
        """Return those of some of the series."""
        return Taken(self.effect[rows], self.link[rows])

    def restored(self, values: Array) -> Array:
        """Return values (..., series, time, target) with the effects."""
        return restored(values, self.effect[..., None], self.link.T[..., None, None])


@dataclass(frozen=True)
class Adjusted:
    """Entries without their effects, at each walk through them."""

    entries: Iterable[dict[str, Any]]
    effects: Effects

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.effects.adjusted, self.entries)

    def __len__(self) -> int:
        return len(self.entries)  # pyright: ignore[reportArgumentType]


_KNOWN: dict[bytes, Effects | None] = {}  # the last ones: the candidates of a choice have the same data


def fit_effects(data: Iterable[dict[str, Any]], freq: str) -> Effects | None:
    """Return the effects of covariates; None if none of these varies, or targets are several.

    Of very many series some are fitted to, and the last steps of long ones.

    Args:
        data: GluonTS data entries with `feat_dynamic_real`.
        freq: Their frequency.
    """
    entries = [entry for entry in data if np.isfinite(as_numbers(entry["target"]).astype(np.float64)).any()]
    if not entries or any(np.ndim(entry["target"]) > 1 for entry in entries):
        return None
    digest = hashlib.blake2b(f"{freq} {len(entries)}".encode())
    for entry in entries:
        digest.update(f"{entry['start']} {entry.get('item_id')}".encode())
        digest.update(np.ascontiguousarray(as_numbers(entry["target"])).tobytes())
        digest.update(np.ascontiguousarray(as_numbers(entry[COVARIATES])).tobytes())
    key = digest.digest()
    if key not in _KNOWN:
        while len(_KNOWN) > 1:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[key] = _fitted(entries, freq)
    return _KNOWN[key]


@dataclass(frozen=True)
class _Sample:
    """The series that are fitted to: columns of deviation 1, of the covariates and behind them of the calendar.

    Attributes:
        columns: Of each series, (time, column).
        targets: Of each series, (time,).
        sizes: Of each series.
        groups: Number of the group of each column.
        lags: Of the errors.
    """

    columns: list[Array]
    targets: list[Array]
    sizes: list[float]
    groups: NDArray[np.int64]
    lags: tuple[int, ...]

    def fit(self, bend: float, last: int, rounds: int) -> Fit:
        """Return the fit to the last steps of each series, on a scale."""
        pairs = zip(self.targets, self.sizes, strict=True)
        values = [linked(target[-last:], bend, size) for target, size in pairs]
        return fit([own[-last:] for own in self.columns], values, self.groups, self.lags, rounds)

    def log_density(self, bend: float, last: int) -> float:
        """Return the mean log-density of these steps, in the units of the data."""
        pairs = [(target[-last:], size) for target, size in zip(self.targets, self.sizes, strict=True)]
        slopes = [log_slope(target[np.isfinite(target)], bend, size) for target, size in pairs]
        return self.fit(bend, last, _ROUNDS // 2).log_density + float(np.concatenate(slopes).mean())

    def deviations(self, number: int, bend: float, found: Fit) -> Array:
        """Return the coefficients of a series less those of all."""
        own = self.columns[number]
        rest = linked(self.targets[number], bend, self.sizes[number]) - own @ found.coefficients
        return fit([own], [rest], self.groups, self.lags, _ROUNDS).coefficients


def _fitted(entries: list[dict[str, Any]], freq: str) -> Effects | None:
    targets = [as_numbers(entry["target"]).astype(np.float64) for entry in entries]
    sizes = [size_of(target) for target in targets]
    some = np.random.default_rng(0).permutation(len(entries))[:_MOST]
    last = max(_ROWS // len(some), 1)
    if len(some) < len(entries) or max(map(len, targets)) > last:
        log.info("effects of covariates: %d of %d series, %d steps at most", len(some), len(entries), last)
    covariates = [as_numbers(entries[k][COVARIATES]).astype(np.float64).T[: len(targets[k])] for k in some]
    basis = basis_of(covariates, freq)
    if basis is None:
        return None
    yearly = max(map(len, targets)) > DAYS_OF_YEAR * steps_per_day(freq)
    parts: list[Array] = []
    widths: list[int] = []
    for k, given in zip(some, covariates, strict=True):
        start = entries[k]["start"]
        groups = [*basis.groups(start, basis.values(given)[0]), *calendar_groups(start, len(given), freq, yearly)]
        widths = [part.shape[1] for _, part in groups]
        parts.append(np.concatenate([part[-last:] for _, part in groups], 1))
    every = np.concatenate(parts)
    centres, spreads = every.mean(0), every.std(0)
    spreads = np.where(spreads > _RARE, spreads, np.inf)
    values = [targets[k][-last:] for k in some]
    sample = _Sample(
        [(part - centres) / spreads for part in parts],
        values,
        [sizes[k] for k in some],
        np.repeat(np.arange(len(widths)), widths),
        _lags(freq, max(map(len, values))),
    )
    recent = max(_CHOOSING // len(some), min(last, 4 * max(sample.lags)))
    bend = max(BENDS, key=lambda one: sample.log_density(one, recent))
    found, width = sample.fit(bend, last, _ROUNDS), basis.width
    own: dict[str, Array] = {}
    if 1 < len(entries) <= _OWN and min(map(len, values)) >= _OWN_LENGTH * width:
        for number, k in enumerate(some):
            own[str(entries[k].get("item_id"))] = (sample.deviations(number, bend, found) / spreads)[:width]
    names = {str(entry["item_id"]): size for entry, size in zip(entries, sizes, strict=True) if "item_id" in entry}
    lowest = 0.0 if min(np.nanmin(target) for target in targets) >= 0 else -np.inf
    coefficients = (found.coefficients / spreads)[:width]
    return Effects(basis, covariates[0].shape[1], bend, centres[:width], coefficients, own, names, lowest)


def _lags(freq: str, longest: int) -> tuple[int, ...]:
    """Return the lags of the errors: a step, a season, and a week of days."""
    season = default_season(freq)
    wanted = [1, *([season] if season > 1 else []), *([7 * season] if steps_per_day(freq) >= 4 < season else [])]
    return tuple(lag for lag in wanted if 3 * lag < longest) or (1,)


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
