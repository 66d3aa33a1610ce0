"""Inputs of a costly function: numbers, whole numbers and choices, as points of a box and back."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_FINE = 1e-6  # part of the bounds' width to which values are rounded
# Corners of the coordinates of a choice, 1 for the one that is taken and 0 for others: wide enough that a region
# around one of them holds the others, until it has become half as large.
_CHOICE = (-0.5, 1.5)


@dataclasses.dataclass(frozen=True)
class Number:
    """A number that is looked for.

    Attributes:
        name: Of its column.
        low: Least value.
        high: Largest value.
        log: Whether factors count, instead of differences.
        whole: Whether it is a whole number.

    Raises:
        ValueError: If the bounds are none.
    """

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        found = f"got {self.low:.15g} and {self.high:.15g} of {self.name!r}"
        if not -math.inf < self.low < self.high < math.inf or (self.log and self.low <= 0):
            raise ValueError(f"expected {'LOW above 0 and ' if self.log else ''}LOW below HIGH, both finite, {found}")
        if self.whole and (self.low != int(self.low) or self.high != int(self.high)):
            raise ValueError(f"expected whole numbers as bounds, {found}")

    def place(self, value: float) -> float:
        """Return the coordinate of a value."""
        return math.log(value) if self.log else value

    @property
    def corners(self) -> list[tuple[float, float]]:
        """Return the range of its coordinate; a whole number has half a unit on both sides."""
        wide = 0.5 if self.whole and not self.log else 0.0  # the ends are rounded to as often as others
        return [(self.place(self.low) - wide, self.place(self.high) + wide)]

    def places(self, text: str) -> list[float]:
        """Return the coordinate of a value in a table.

        Raises:
            ValueError: If it is no number, is none of the bounds', or is not whole.
        """
        number = number_of(self.name, text)
        if not self.low <= number <= self.high:
            raise ValueError(f"expected {self.name} from {self.low:.15g} to {self.high:.15g}, got {text}")
        if self.whole and number != int(number):
            raise ValueError(f"expected a whole number in column {self.name}, got {text}")
        return [self.place(number)]

    def value(self, places: Sequence[float]) -> str:
        """Return the value of a coordinate for a table, within the bounds: to a millionth of their width, or finer."""
        number = math.exp(places[0]) if self.log else places[0]
        step = _FINE * (self.place(self.high) - self.place(self.low)) * (abs(number) if self.log else 1.0)
        digits = 0 if self.whole else -math.floor(math.log10(step))  # as many as the step has
        number = min(max(round(number, digits), self.low), self.high)
        return f"{int(number)}" if self.whole else repr(float(number))

    def snap(self, places: Float[Tensor, "*place 1"]) -> Float[Tensor, "*place 1"]:
        """Return the nearest coordinates that have values."""
        if not self.whole:
            return places
        whole = (places.exp() if self.log else places).round().clamp(self.low, self.high)
        return whole.log() if self.log else whole


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several words; each has a coordinate of its own, so that none is nearer to another.

    Attributes:
        name: Of its column.
        words: To choose from.

    Raises:
        ValueError: If there are fewer than two, one comes twice, or one is no text.
    """

    name: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if wrong := [word for word in self.words if not isinstance(word, str) or not word.strip()]:
            raise ValueError(f"expected texts as choices of {self.name!r}, got {wrong[0]!r}")
        if len({*self.words}) < max(len(self.words), 2):
            raise ValueError(f"expected at least two choices of {self.name!r}, each once, got {'|'.join(self.words)}")

    @property
    def corners(self) -> list[tuple[float, float]]:
        """Return the range of each coordinate."""
        return [_CHOICE] * len(self.words)

    def places(self, text: str) -> list[float]:
        """Return the coordinates of a word in a table.

        Raises:
            ValueError: If it is none of the words.
        """
        if text not in self.words:
            raise ValueError(f"expected {self.name} to be one of {', '.join(self.words)}, got {text!r}")
        return [float(word == text) for word in self.words]

    def value(self, places: Sequence[float]) -> str:
        """Return the word of the largest coordinate."""
        return self.words[max(range(len(places)), key=lambda k: places[k])]

    def snap(self, places: Float[Tensor, "*place word"]) -> Float[Tensor, "*place word"]:
        """Return 1 for the largest coordinate, and 0 for the others."""
        return torch.nn.functional.one_hot(places.argmax(-1), len(self.words)).to(places.dtype)


@dataclasses.dataclass(frozen=True)
class Space:
    """Several inputs as coordinates side by side: `Optimiser(space.low, space.high, snap=space.snap)`.

    Attributes:
        inputs: Numbers and choices.

    Raises:
        ValueError: If a name comes twice, or there is none.
    """

    inputs: tuple[Number | Choice, ...]

    def __post_init__(self) -> None:
        if not self.inputs or len({*self.names}) < len(self.inputs):
            raise ValueError(f"expected inputs, each name once, got {', '.join(self.names) or 'none'}")

    @property
    def names(self) -> list[str]:
        """Return the names of the inputs."""
        return [each.name for each in self.inputs]

    @property
    def low(self) -> tuple[float, ...]:
        """Return the lower corner of the box."""
        return tuple(low for each in self.inputs for low, _ in each.corners)

    @property
    def high(self) -> tuple[float, ...]:
        """Return the upper corner of the box."""
        return tuple(high for each in self.inputs for _, high in each.corners)

    def point(self, row: Mapping[str, object]) -> Float[Tensor, " dim"]:
        """Return the point of a row of values by name.

        Raises:
            ValueError: If a value is missing, or none of its input.
        """
        if missing := [name for name in self.names if name not in row]:
            raise ValueError(f"expected a value of {', '.join(missing)}")
        places = [x for each in self.inputs for x in each.places(str(row[each.name]).strip())]
        return torch.tensor(places, dtype=torch.float64)

    def row(self, point: Float[Tensor, " dim"]) -> dict[str, str]:
        """Return the values of a point by name, as texts for a table."""
        parts = point.split([len(each.corners) for each in self.inputs])
        return {each.name: each.value(part.tolist()) for each, part in zip(self.inputs, parts, strict=True)}

    def snap(self, points: Float[Tensor, "*place dim"]) -> Float[Tensor, "*place dim"]:
        """Return the nearest points that have values."""
        parts = points.split([len(each.corners) for each in self.inputs], -1)
        return torch.cat([each.snap(part) for each, part in zip(self.inputs, parts, strict=True)], -1)


def number_of(name: str, text: str) -> float:
    """Return the number in a cell.

    Raises:
        ValueError: If there is none.
    """
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"expected a number in column {name}, got {text!r}") from error
