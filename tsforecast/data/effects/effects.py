"""Effects of covariates on series: estimated in closed form, taken from the data, and given back to forecasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.basis import Basis, Signal
from tsforecast.data.effects.calendar import periods
from tsforecast.data.effects.link import moved
from tsforecast.wording import counted, listed

_MOST_FACTOR = 1000.0  # of large values: curves of covariates that were never together end in powers of it
COVARIATES, MEMORY, SIGNALS = "feat_dynamic_real", "effect_memory", "signals"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effects:
    """Curves of covariates that have been fitted."""

    basis: Basis  # the columns that they are sums of
    num_covariates: int  # number of covariates
    bend: float  # of the scale on which they add up, see `tsforecast.data.effects.link`
    centres: Array  # mean of each column in training
    coefficients: Array  # of each column less its mean
    doubt: Array  # their uncertainty, (column, direction): its product with itself is their covariance given the data
    own: dict[str, Array]  # what coefficients of a series differ by, by its name
    sizes: dict[str, float]  # mean absolute value of each series in training, by its name
    lowest: float  # below which nothing was seen and nothing is forecast, 0 or minus infinity

    @classmethod
    def of_record(cls, record: Any) -> "Effects":
        """Return the effects of a `record`; a ValueError if it is damaged."""
        try:
            signals = tuple(
                Signal(
                    int(column), float(half), _pair(ends), float(centre), float(spread), _floats(knots), _floats(means)
                )
                for column, half, ends, centre, spread, knots, means in record["signals"]
            )
            pairs = tuple((int(a), int(b), _floats(one), _floats(two)) for a, b, one, two in record["pairs"])
            relative = tuple(int(column) for column in record.get("relative", ()))
            basis = Basis(str(record["freq"]), signals, str(record["by_hour"]), pairs, relative)
            own = {str(name): np.asarray(_floats(values)) for name, values in record["own"].items()}
            sizes = {str(name): float(size) for name, size in record["sizes"].items()}
            found = cls(
                basis, int(record["num_covariates"]), float(record["bend"] or np.inf),
                np.asarray(_floats(record["centres"])), np.asarray(_floats(record["coefficients"])),
                np.array(record.get("doubt", [[] for _ in record["centres"]]) or np.zeros((0, 0)), np.float64),
                own, sizes, 0.0 if record["nonnegative"] else -np.inf,
            )  # fmt: skip
            found._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"expected effects of covariates, got {record!r:.80} ({error})") from error
        return found

    def told(self, names: Sequence[str]) -> str:
        """Return a line about the fit, with the names of dropped covariates."""
        scale = "added" if np.isinf(self.bend) else "multiplied for large values, added for small ones"
        used = {one.column for one in self.basis.signals}
        dropped = listed(name for k, name in enumerate(names) if k not in used)
        rest = f"; dropped, as they helped no forecast of later steps: {dropped}"
        if not used:
            return f"no covariate has an effect{rest if dropped else ''}"
        what = f"effects of {counted(len(used), 'covariate')} are curves of {counted(self.basis.width, 'coefficient')}"
        own = ", steeper or flatter in each series" if self.own else ""
        return f"{what}{own}, fitted in closed form, and {scale}{rest if dropped else ''}"

    def _check(self) -> None:
        width = len(self.centres)
        places = [one.column for one in self.basis.signals]
        fits = all(0 <= place < self.num_covariates for place in places)
        fits &= all(0 <= place < self.num_covariates for place in self.basis.relative)
        fits &= all(0 <= k < len(places) for pair in self.basis.pairs for k in pair[:2])
        arrays = (self.coefficients, self.doubt, *self.own.values())
        fits &= all(len(x) == width and np.isfinite(x).all() for x in arrays) and self.doubt.ndim == 2
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
            "relative": list(self.basis.relative),
            "num_covariates": self.num_covariates,
            "bend": 0.0 if np.isinf(self.bend) else self.bend,
            "centres": self.centres.tolist(),
            "coefficients": self.coefficients.tolist(),
            "doubt": [[float(f"{value:.5g}") for value in row] for row in self.doubt.tolist()],
            "own": {name: [float(f"{x:.6g}") for x in values.tolist()] for name, values in self.own.items()},
            "sizes": self.sizes,
            "nonnegative": self.lowest == 0,
        }

    def adjusted(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with the target of covariates that are always at their means.

        It has `effect`, what was taken away at each step and will be at later ones, (time,), in sizes of the series;
        `doubt`, what it may differ by at later steps, see `along`; `link`, bend, size and lowest value; and
        `effect_memory`, from which to go on behind the target: its size and means over the past, NaN before the first
        value and step. Of its covariates are left, as `signals` (time, covariate), those with effects. An entry that
        is adjusted returns as it is.
        """
        if "effect" in entry:
            return entry
        target = as_numbers(entry["target"]).astype(np.float64)
        name, length = name_of(entry), target.shape[-1]
        covariates = self._covariates(entry, length)[None]
        memory = np.asarray(entry.get(MEMORY, self.nothing), np.float64)
        if memory.shape != self.nothing.shape:
            raise ValueError(
                f"series {entry.get('item_id')!r}: expected {MEMORY} of {len(self.nothing)} numbers, as the curves of "
                f"this model have, got {memory.size}; filter the history again"
            )
        size = self.size(name, target) if np.isnan(memory[0]) else float(memory[0])
        times = periods(entry["start"], covariates.shape[1])
        before, _, after = self.along([name], times[:length], covariates[:, :length], memory[None, 1:])
        ahead, doubt, _ = self.along([name], times[length:], covariates[:, length:], after)
        effect = np.concatenate([before[0], ahead[0]])
        less = {key: value for key, value in entry.items() if key != COVARIATES}
        less |= {"target": moved(target, -effect[:length], self.bend, size), "effect": effect, "doubt": doubt[0]}
        if entry.get("known_future") is not None:
            given = as_numbers(entry["known_future"]).astype(np.float64)
            covered = effect[length : length + given.shape[-1]]
            first = moved(given[..., : len(covered)], -covered, self.bend, size)
            less["known_future"] = np.concatenate([first, given[..., len(covered) :]], -1)
        # Of a series without a value the size is found when it has some.
        kept = size if np.isfinite(target).any() or not np.isnan(memory[0]) else np.nan
        signals = covariates[0][:, sorted({one.column for one in self.basis.signals})]
        return less | {"link": self.link_of(size), MEMORY: np.append(kept, after[0]), SIGNALS: signals}

    def completed(self, entry: dict[str, Any], beyond: int) -> dict[str, Any]:
        """Return an entry with zeros for covariates where it has none and none has an effect, `beyond` steps longer."""
        if self.basis.signals or "effect" in entry or len(as_numbers(entry.get(COVARIATES, ()))) == self.num_covariates:
            return entry
        return {**entry, COVARIATES: np.zeros((self.num_covariates, np.shape(entry["target"])[-1] + beyond))}

    @property
    def nothing(self) -> Array:
        """Return the size and the means over the past of a series that has not begun: NaN."""
        return np.full(1 + self.basis.num_means, np.nan)

    def along(
        self, names: Sequence[str | None], times: Any, covariates: Array, before: Array
    ) -> tuple[Array, Array, Array]:
        """Return effects (series, time), in sizes of the series, their uncertainty, and the means behind them.

        Differences are (series, time, direction), times independent standard normal numbers, one for each direction.
        Means over the past are (series, mean).

        Args:
            names: Of the series.
            times: The periods of all series, one series behind the other.
            covariates: Of shape (series, time, covariate).
            before: Means to go on from, (series, mean); NaN where a series begins.
        """
        if not covariates.shape[1]:
            return np.zeros(covariates.shape[:2]), np.zeros((*covariates.shape[:2], self.doubt.shape[1])), before
        values, after = self.basis.values(covariates, before)
        shape, own = covariates.shape[:2], [k for k, name in enumerate(names) if name in self.own]
        weights, begin = np.column_stack([self.coefficients, self.doubt]), 0
        found = np.broadcast_to(-self.centres @ weights, (*shape, weights.shape[1])).copy()
        differences = np.array([self.own[names[k]] for k in own])  # pyright: ignore[reportArgumentType]
        for _, part in self.basis.groups(times, [one.reshape(-1) for one in values]):
            some = slice(begin, begin + part.shape[1])
            begin = some.stop
            found += (part @ weights[some]).reshape(found.shape)
            if own:
                columns = (part - self.centres[some]).reshape(*shape, -1)[own]
                found[own, :, 0] += (columns @ differences[:, some, None])[..., 0]
        most = self.bend * np.log(_MOST_FACTOR)
        return np.clip(found[..., 0], -most, most), found[..., 1:], after

    def link_of(self, size: Array | float) -> Array:
        """Return bend, size and lowest value of series of a size, (..., 3), see `restored`."""
        return np.stack(np.broadcast_arrays(self.bend, size, self.lowest), -1)

    def size(self, name: str | None, target: Array) -> float:
        """Return the size of a series: that of its training, or that of its values."""
        return self.sizes.get(name or "") or size_of(target)

    def _covariates(self, entry: dict[str, Any], length: int) -> Array:
        """Return the covariates (time, covariate) of an entry, over its target at least."""
        given = as_numbers(entry.get(COVARIATES, np.zeros((0, length)))).astype(np.float64)
        if len(given) != self.num_covariates:
            raise ValueError(
                f"series {entry.get('item_id')!r}: expected {COVARIATES} of {self.num_covariates} rows, as in the "
                f"training data, got {len(given)}"
            )
        if given.shape[1] < length:
            raise ValueError(
                f"series {entry.get('item_id')!r}: expected {COVARIATES} over {length} steps, got {given.shape[1]}"
            )
        return given.T


def name_of(entry: Mapping[str, Any]) -> str | None:
    """Return the name of a series; None where it has none."""
    return None if entry.get("item_id") is None else str(entry["item_id"])


def size_of(target: Array) -> float:
    """Return the mean absolute value of a series, 1 where it has none or only zeros."""
    seen = np.abs(target[np.isfinite(target)])
    return float(seen.mean()) if len(seen) and seen.any() else 1.0


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
