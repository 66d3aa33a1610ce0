"""Features of a stream: names to columns, values to numbers, running standardisation."""

import dataclasses
import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

# Numbers are cut here, so that sums of their squares are finite.
_LARGEST = 1e100


@dataclasses.dataclass(frozen=True)
class Columns:
    """Places of names in a row of fixed width.

    Attributes:
        places: Column of each name that has one.
        capacity: Number of columns.
    """

    places: Mapping[Hashable, int]
    capacity: int

    def reserve(self, names: Iterable[Hashable], what: str, parameter: str) -> "Columns":
        """With a free column for each new name; those of one call are sorted, so that their order has no influence.

        Args:
            names: Known or new.
            what: The plural of what is named, for the message.
            parameter: By which there are more columns, for the message.

        Raises:
            ValueError: If there are not enough free columns.
        """
        new = [name for name in names if name not in self.places]
        if not new:
            return self
        count = len(self.places) + len(new)
        if count > self.capacity:
            raise ValueError(
                f"expected at most {self.capacity} {what}, got {count}, of which {new[0]!r} is new: "
                f"raise {parameter} (there are {self.capacity} columns)"
            )
        new.sort(key=lambda name: (type(name).__name__, repr(name)))
        added = {name: place for place, name in enumerate(new, len(self.places))}
        return Columns({**self.places, **added}, self.capacity)

    def row(self, values: Mapping[Hashable, float]) -> Tensor:
        """Values in their columns, shape (1, capacity): NaN where there is none; other names are left out."""
        row = [math.nan] * self.capacity
        for name, value in values.items():
            place = self.places.get(name)
            if place is not None:
                row[place] = value
        return torch.tensor([row], dtype=torch.float64)


def read_number(what: str, value: Any) -> float:
    """A finite number, or NaN.

    Args:
        what: What the value is of, for the message.
        value: A bool, int, float or number of another library.

    Raises:
        ValueError: If it is infinite, or not a number.
    """
    if isinstance(value, str | bytes):
        raise ValueError(f"expected a number for {what}, got the text {value!r}: one-hot encode what is not a quantity")
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
    """A target of regression.

    Raises:
        ValueError: If it is missing, infinite or not a number.
    """
    number = math.nan if value is None else read_number("the target", value)
    if number != number:
        raise ValueError(f"expected a number for the target, got {value!r}: leave observations without a target out")
    return number


def read_features(observation: Mapping[Any, Any]) -> dict[Hashable, float]:
    """The features that are there: None and NaN are missing.

    Raises:
        ValueError: If a value is infinite or not a number, naming the feature.
    """
    values: dict[Hashable, float] = {}
    for name, value in observation.items():
        # The common case comes first: this is done for every feature of every observation.
        if type(value) is not float or math.isinf(value):
            if value is None:
                continue
            value = read_number(f"feature {name!r}", value)
        if value == value:
            values[name] = value
    return values


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Mean and variance of each column, of the values that it had so far (Welford 1962).

    Attributes:
        count: Number of values.
        mean: Of them; 0 before the first.
        squares: Sum of squared differences from the mean; exactly 0 while all are the same.
        inverse: One over the standard deviation; 0 while all are the same.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    inverse: Tensor

    @staticmethod
    def empty(columns: int) -> "Statistics":
        """Of no values."""
        return Statistics(*torch.zeros(4, columns, dtype=torch.float64).unbind(0))

    @property
    def deviation(self) -> Tensor:
        """Standard deviations; 0 before the second value."""
        return (self.squares / self.count.clamp_min(1)).sqrt()

    def observe(self, row: Tensor) -> "Statistics":
        """With one more row, for each of the rows given; NaN is missing."""
        row = row.clamp(-_LARGEST, _LARGEST)
        count = self.count + (row == row)
        change = (row - self.mean).nan_to_num()
        share = change / count.clamp_min(1)
        squares = self.squares + change * (change - share)
        deviation = (squares / count).sqrt()
        inverse = torch.where(deviation > 0, 1 / deviation, 0.0)
        return Statistics(count, self.mean + share, squares, inverse)

    def scale(self, rows: Tensor) -> Tensor:
        """Standardised: 0 where a value is missing, and in columns that have not varied yet."""
        return ((rows.clamp(-_LARGEST, _LARGEST) - self.mean) * self.inverse).nan_to_num()
