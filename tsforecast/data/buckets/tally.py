"""Counts of a walk through data entries: they can be kept, and those of parts of the data put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gluonts.dataset.field_names import FieldName
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.io.reading import has_fields

_BROKEN = 0.01  # share of values that are not whole, up to which the others count as counts
# Features that GluonTS has names for and no model here reads.
_UNREAD = (
    FieldName.PAST_FEAT_DYNAMIC_REAL,
    FieldName.PAST_FEAT_DYNAMIC_CAT,
    FieldName.PAST_FEAT_DYNAMIC,
    FieldName.FEAT_DYNAMIC_CAT,
    FieldName.FEAT_DYNAMIC,
    FieldName.FEAT_DYNAMIC_REAL_LEGACY,
)
_PLAIN: dict[str, Any] = {
    "count": int, "num_targets": int, "lowest": float | None, "highest": float | None, "values": int, "broken": int,
    "codes": list[int],
}  # fmt: skip
_MOMENTS: dict[str, Any] = {"count": int, "mean": list[float], "squares": list[float]}
_CONSTANT = 1e-12  # of its mean, up to which the deviation of a row is that of its rounding


@dataclass(eq=False)
class Moments:
    """Mean and standard deviation of each row of arrays that come one by one (Chan, Golub and LeVeque 1983)."""

    count: int = 0  # columns that have come
    mean: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # of each row
    # Sum of squared distances of each row from its mean.
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def add(self, rows: np.ndarray) -> None:
        """Adds an array (row, column)."""
        rows = rows.astype(np.float64)
        mean = rows.sum(1) / max(rows.shape[1], 1)
        self.merge(Moments(rows.shape[1], mean, np.square(rows - mean[:, None]).sum(1)))

    def merge(self, other: "Moments") -> None:
        """Adds the moments of others."""
        if self.count == 0:
            self.mean, self.squares = (other.mean, other.squares) if len(other.mean) else (self.mean, self.squares)
        elif other.count:
            share, apart = other.count / (self.count + other.count), other.mean - self.mean
            self.mean = self.mean + share * apart
            self.squares = self.squares + other.squares + self.count * share * np.square(apart)
        self.count += other.count

    def units(self) -> list[list[float]]:
        """Return (mean, standard deviation) of each row; 1 as the deviation of a constant."""
        deviation = np.sqrt(self.squares / max(self.count, 1))
        constant = deviation <= _CONSTANT * np.abs(self.mean)
        return np.stack([self.mean, np.where(constant, 1.0, deviation)], 1).tolist()


@dataclass(eq=False)
class Tally:
    """Counts of data entries that `check_entries` has found sound."""

    count: int = 0  # number of series
    num_targets: int = 1  # components of the target
    lowest: float = np.inf  # lowest value of all targets; infinite where there is none
    highest: float = -np.inf  # highest value; minus infinity where there is none
    values: int = 0  # number of target values
    broken: int = 0  # number of these that are not whole
    codes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # highest code of each static category
    static: Moments = field(default_factory=Moments)  # moments of static numbers
    dynamic: Moments = field(default_factory=Moments)  # moments of covariates known in advance
    unread: dict[str, None] = field(default_factory=dict)  # fields that no model reads

    def add(self, entry: Mapping[str, Any], use_categories: bool = True) -> None:
        """Adds an entry."""
        self.count += 1
        self.static.add(as_numbers(entry.get("feat_static_real", ())).reshape(-1, 1))
        self.dynamic.add(as_numbers(entry.get("feat_dynamic_real", np.zeros((0, 1)))))
        target = as_numbers(entry["target"])
        self.num_targets = len(np.atleast_2d(target))
        numbers = target[np.isfinite(target)]
        if numbers.size:
            self.lowest, self.highest = min(self.lowest, numbers.min()), max(self.highest, numbers.max())
        self.values += numbers.size
        self.broken += int(((numbers % 1 != 0) | (numbers >= 2.0**53)).sum())  # larger floats are all whole
        self.unread.update(dict.fromkeys(name for name in _UNREAD if name in entry))
        if use_categories and "feat_static_cat" in entry:
            self._merge_codes(as_numbers(entry["feat_static_cat"]).reshape(-1))

    def merge(self, other: "Tally") -> None:
        """Adds the counts of another walk, of other series with the same fields."""
        self.num_targets = other.num_targets if other.count else self.num_targets
        self.count += other.count
        self.lowest, self.highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        self.values += other.values
        self.broken += other.broken
        self.static.merge(other.static)
        self.dynamic.merge(other.dynamic)
        self.unread |= other.unread
        self._merge_codes(other.codes)

    def _merge_codes(self, codes: NDArray[Any]) -> None:
        if codes.size:
            self.codes = np.maximum(codes, self.codes if self.codes.size else 0)

    @property
    def auto(self) -> dict[str, str]:
        """Return the values of "auto", by hyperparameter."""
        counts = self.broken <= _BROKEN * self.values and self.lowest >= 0
        return {
            "clip": "nonnegative" if self.lowest >= 0 else "none",
            "transformation": "log1p" if counts else "none",
        }

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain values; `tally_of` reads them."""
        finite = lambda value: float(value) if np.isfinite(value) else None  # noqa: E731
        found: dict[str, Any] = {name: getattr(self, name) for name in ("count", "num_targets", "values", "broken")}
        found |= {"lowest": finite(self.lowest), "highest": finite(self.highest)}
        found["codes"] = [int(code) for code in self.codes]
        for name in ("static", "dynamic"):
            moments = getattr(self, name)
            found[name] = {
                "count": moments.count,
                "mean": moments.mean.tolist(),
                "squares": moments.squares.tolist(),
            }
        return found


def tally_of(found: Any) -> Tally:
    """The counts that `Tally.as_json` has written; a ValueError if they are not as expected."""
    parts: list[Any] = [found.get(name) for name in ("static", "dynamic")] if has_fields(found, _PLAIN) else []
    sound = bool(parts) and all(has_fields(part, _MOMENTS) for part in parts)
    if not sound or not all(len(part["mean"]) == len(part["squares"]) for part in parts):
        raise ValueError("expected the counts of a walk through the data, got something else")
    static, dynamic = (
        Moments(part["count"], *(np.asarray(part[name], np.float64) for name in ("mean", "squares"))) for part in parts
    )
    return Tally(
        found["count"],
        found["num_targets"],
        np.inf if found["lowest"] is None else found["lowest"],
        -np.inf if found["highest"] is None else found["highest"],
        found["values"],
        found["broken"],
        np.asarray(found["codes"], np.float64),
        static,
        dynamic,
    )
