"""A memory of observations as they came, of fixed capacity, and its choices by chance or by distance."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.torch_internals import device_of, is_transformed
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.shapes import Scalar


@register_record
@dataclasses.dataclass(frozen=True)
class Memory:
    """Observations in a fixed number of places, so that a loop can carry them.

    Attributes:
        inputs: Of each place; zeros where it is free.
        target: Of each place.
        observed: False where a component of the target is missing.
        valid: False where a place is free.
        power: Of the likelihood of each: how often it counted, times what forgetting has left of it.
        age: Time since it came.
    """

    inputs: Float[Tensor, "place *feature"]
    target: Float[Tensor, "place target"]
    observed: Bool[Tensor, "place target"]
    valid: Bool[Tensor, " place"]
    power: Float[Tensor, " place"]
    age: Float[Tensor, " place"]

    @staticmethod
    def empty(size: int, features: tuple[int, ...], targets: int, like: Tensor) -> "Memory":
        """Return a memory without an observation.

        Args:
            size: Number of places.
            features: Shape of the inputs of an observation.
            targets: Number of components of a target.
            like: Tensor of the precision and device.
        """
        inputs, target = like.new_zeros(size, *features), like.new_zeros(size, targets)
        free = torch.zeros(size, dtype=torch.bool, device=like.device)
        return Memory(inputs, target, target > 0, free, like.new_zeros(size), like.new_zeros(size))

    @staticmethod
    def of(points: Points) -> "Memory":
        """Return new observations; those that do not count, or have no target, take no place."""
        observed = torch.ones_like(points.target, dtype=torch.bool) if points.observed is None else points.observed
        power = torch.ones_like(points.target[:, 0]) if points.counts is None else points.counts
        valid = observed.any(-1) & (power > 0)
        return Memory(points.inputs, points.target, observed, valid, power, torch.zeros_like(power))

    @property
    def points(self) -> Points:
        """Return all places as points; those that are free do not count."""
        power = torch.where(self.valid, self.power, 0.0)
        return Points(self.inputs, self.target, self.observed & self.valid.unsqueeze(-1), power)

    def __len__(self) -> int:
        return len(self.valid)

    def _parts(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def joined(self, others: "Memory") -> "Memory":
        """Return the places of both, these first."""
        return Memory(*(torch.cat(pair) for pair in zip(self._parts(), others._parts(), strict=True)))

    def only(self, kept: Bool[Tensor, " place"], size: int) -> "Memory":
        """Return a memory of so many places with those that are kept, in their order.

        Args:
            kept: At most `size` places.
            size: There are as many places as before, if those are less.
        """
        # Of a fixed size, whatever is kept: no `nonzero` in a compiled loop.
        order = torch.sort((~kept).to(torch.int64), stable=True).indices[:size]
        ordered = Memory(*(part[order] for part in self._parts()))
        return dataclasses.replace(ordered, valid=kept[order] & ordered.valid)

    def taken(self) -> "Memory":
        """Return the memory without its free places, where their number may depend on values."""
        if torch.compiler.is_compiling() or is_transformed(self.valid):
            return self
        return Memory(*(part[self.valid] for part in self._parts()))

    def padded(self, size: int) -> "Memory":
        """Return the memory with free places behind the others, so that there are so many."""
        if len(self) >= size:
            return self
        more = [part.new_zeros(size - len(self), *part.shape[1:]) for part in self._parts()]
        return self.joined(Memory(*more))

    def without(self, kept: Bool[Tensor, " place"]) -> "Memory":
        """Return the memory with places free that are kept elsewhere."""
        return dataclasses.replace(self, valid=self.valid & ~kept)

    def later(self, dt: Scalar, keep: Scalar) -> "Memory":
        """Return the memory after a time.

        Args:
            dt: Time that passed.
            keep: Power that it leaves of each likelihood, between 0 and 1; 0 empties the memory.
        """
        power = self.power * keep
        return dataclasses.replace(self, power=power, valid=self.valid & (power > 0), age=self.age + dt)

    def widened(self, features: tuple[int, ...], targets: int) -> "Memory":
        """Return the memory for more features or targets; they are 0 or missing in its observations."""
        empty = Memory.empty(len(self), features, targets, self.power)
        inputs, target, observed = empty.inputs.clone(), empty.target.clone(), empty.observed.clone()
        inputs[tuple(map(slice, self.inputs.shape))] = self.inputs
        target[:, : self.target.shape[1]] = self.target
        observed[:, : self.target.shape[1]] = self.observed
        return dataclasses.replace(self, inputs=inputs, target=target, observed=observed)


def best(scores: Float[Tensor, " place"], valid: Bool[Tensor, " place"], size: int) -> Bool[Tensor, " place"]:
    """Return a mask of the valid places with the highest scores; all of these, if they are few."""
    # A NaN is worse than any score, but better than a free place.
    scores = torch.where(valid, scores.nan_to_num(nan=-torch.finfo(scores.dtype).max), -math.inf)
    chosen = torch.topk(scores, min(size, len(scores))).indices
    return torch.zeros_like(valid).scatter(0, chosen, torch.ones_like(chosen, dtype=torch.bool)) & valid


def at_random(memory: Memory, size: int, generator: torch.Generator | None = None) -> Bool[Tensor, " place"]:
    """Return places that are drawn without replacement, all as likely."""
    like = memory.power
    scores = torch.rand(len(memory), generator=generator, dtype=like.dtype, device=device_of(generator, like))
    return best(scores.to(like.device), memory.valid, size)


def k_centre(memory: Memory, size: int) -> Bool[Tensor, " place"]:
    """Return places that cover the inputs: the first, then each time the furthest from all before (Gonzalez 1985).

    Variational continual learning (Nguyen et al. 2018) chooses its coresets so.
    """
    inputs = memory.inputs.flatten(1)
    # The first valid place is furthest from nothing.
    distance = torch.where(memory.valid, math.inf, -math.inf).to(inputs)
    kept = torch.zeros_like(memory.valid)
    places = torch.arange(len(memory), device=inputs.device)
    for _ in range(min(size, len(memory))):
        current = places == distance.argmax()
        kept = kept | (current & memory.valid)
        apart = (inputs - inputs[distance.argmax()]).square().sum(-1)
        distance = torch.where(current, -math.inf, torch.minimum(distance, apart))  # a place is taken once
    return kept
