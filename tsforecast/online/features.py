"""Features of a stream: names to columns, values to numbers."""

import dataclasses
import functools
import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

_IS = "is"
_MOST = 100  # texts of a feature: of more, such as names of persons, columns would fill the memory


def _is_text(name: Hashable) -> bool:
    """Return whether a column is that of a text: (name of the feature, "is", text)."""
    return isinstance(name, tuple) and len(name) == 3 and name[1] == _IS


@dataclasses.dataclass(frozen=True)
class FeatureColumns:
    """Places of names in a row that has columns in reserve.

    Attributes:
        places: Column of each name that has one.
        capacity: Number of columns.
    """

    places: Mapping[Hashable, int]
    capacity: int

    def reserve(self, names: Iterable[Hashable]) -> "FeatureColumns":
        """Return columns for known and new names; those of one call are sorted, so that their order has no influence.

        Where columns are used up there are twice as many from then on, or more if that is not enough.

        Args:
            names: Names that are known or new.

        Raises:
            ValueError: If a feature was a number before and is a text now, or the reverse, or has too many texts.
        """
        new = [name for name in names if name not in self.places]
        if not new:
            return self
        for name in new:
            self._check(name)
        count = len(self.places) + len(new)
        # Doubled, so that a learner grows rarely.
        capacity = self.capacity if count <= self.capacity else max(2 * self.capacity, count)
        # Names of several types have no order of their own.
        new.sort(key=lambda name: (type(name).__name__, repr(name)))
        added = {name: place for place, name in enumerate(new, len(self.places))}
        return FeatureColumns({**self.places, **added}, capacity)

    def row(self, values: Mapping[Hashable, float]) -> Tensor:
        """Return the values in their columns, shape (1, capacity), and NaN elsewhere; other names are left out.

        Of a feature that is a text, columns of other texts are 0.
        """
        row = [math.nan] * self.capacity
        for name in values if self._texts else ():
            for place in self._texts.get(name[0], ()) if _is_text(name) else ():  # pyright: ignore[reportIndexIssue]
                row[place] = 0.0
        for name, value in values.items():
            place = self.places.get(name)
            if place is not None:
                row[place] = value
        return torch.tensor([row], dtype=torch.float64)

    @functools.cached_property
    def _texts(self) -> dict[Hashable, list[int]]:
        """Columns of the texts of each feature."""
        found: dict[Hashable, list[int]] = {}
        for name, place in self.places.items():
            if _is_text(name):
                found.setdefault(name[0], []).append(place)  # pyright: ignore[reportIndexIssue]
        return found

    def _check(self, name: Any) -> None:
        if not _is_text(name):
            if name in self._texts:
                raise ValueError(f"expected a text for feature {name!r}, as before, got a number")
            return
        feature, _, text = name
        if feature in self.places:
            raise ValueError(f"expected a number for feature {feature!r}, as before, got the text {text!r}")
        if len(self._texts.get(feature, ())) >= _MOST:
            raise ValueError(f"feature {feature!r} has more than {_MOST} different texts: leave it out, or group them")


def read_number(what: str, value: Any) -> float:
    """Return a finite number, or NaN.

    Args:
        what: What the value is of, for the message.
        value: A bool, int, float or number of another library.

    Raises:
        ValueError: If it is infinite, or not a number.
    """
    if isinstance(value, str | bytes):
        raise ValueError(f"expected a number for {what}, got the text {value!r}")
    # Numbers of numpy are registered; its booleans are not.
    if not isinstance(value, numbers.Real) and type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"expected a number for {what}, got {value!r} of type {type(value).__name__}")
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError(f"expected a finite number for {what}, got {value!r}")
    return number


def read_target(value: Any) -> float:
    """Return a target of regression.

    Raises:
        ValueError: If it is missing, infinite or not a number.
    """
    number = math.nan if value is None else read_number("the target", value)
    if number != number:
        raise ValueError(f"expected a number for the target, got {value!r}: leave observations without a target out")
    return number


def read_features(observation: Mapping[Any, Any]) -> dict[Hashable, float]:
    """Return the features that are there; None and NaN are missing.

    A text is a category, and has a column of its own, in which it is 1.

    Raises:
        ValueError: If a value is infinite, neither number nor text, or a number as text, naming the feature.
    """
    values: dict[Hashable, float] = {}
    for name, value in observation.items():
        # The common case comes first: this is done for every feature of every observation.
        if type(value) is not float or math.isinf(value):
            if value is None:
                continue
            if isinstance(value, str) and not is_number(value):
                name, value = (name, _IS, value), 1.0
            value = read_number(f"feature {name!r}", value)
        if value == value:
            values[name] = value
    return values


def is_number(text: str) -> bool:
    """Return whether a text is that of a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
