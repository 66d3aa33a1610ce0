"""Inference in several models of the same series; their forecasts are mixed with fixed weights."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.particles.resampling import systematic_ancestors
from tsforecast.core.torch_internals import constant
from tsforecast.models.parts.inference import AbstractDynamics, AbstractInference, AbstractLinearMixture, LinearMember
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.units import Units
from tsforecast.models.records import Batch, Belief, PoolState
from tsforecast.models.transformations import transformation_of

_SEASONS = ("past_season_index", "future_season_index")


class PoolDynamics(AbstractDynamics):
    """The dynamics of all members.

    Args:
        members: One of each member.
        weights: Weights of the members, which sum to 1.
        learning: Whether each learns: those that do decide what windows are like.

    Attributes:
        log_weight: Logarithms of the weights.
    """

    log_weight: Float[Tensor, " member"]

    def __init__(self, members: Sequence[AbstractDynamics], weights: list[float], learning: Sequence[bool]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)
        self.season_names = tuple(dict.fromkeys(name for member in members for name in member.season_names))
        self.is_pooled = all(member.is_pooled for member in members)
        # Batches are made for those that learn.
        trained = [member for member, learns in zip(members, learning, strict=True) if learns]
        self.is_growing = any(member.is_growing for member in trained)
        self.takes_all = all(member.takes_all for member in trained)
        # An option, not a parameter: no checkpoint holds it.
        self.register_buffer("log_weight", torch.tensor(weights).log(), persistent=False)


@dataclasses.dataclass(frozen=True, eq=False)
class PoolInference(AbstractLinearMixture[PoolDynamics]):
    """Inference in each member; forecasts are their mixture, a linear opinion pool (Stone 1961).

    Attributes:
        dynamics: Dynamics of the members.
        units: Units of one of the members, which a belief shows.
        members: Inference in each member.
        names: What each is called.
        learning: Whether each learns.
    """

    dynamics: PoolDynamics
    units: Units
    members: tuple[AbstractInference[Any], ...]
    names: tuple[str, ...]
    learning: tuple[bool, ...]

    def __post_init__(self) -> None:
        for member, learns in zip(self.members, self.learning, strict=True):
            member.dynamics.requires_grad_(learns)  # no gradient is computed for members that stay

    @property
    def has_marginals(self) -> bool:
        """Return whether all members have them."""
        return all(member.has_marginals for member in self.members)

    @property
    def linear(self) -> Optional["PoolInference"]:
        """Return this inference if all members are linear, or mixtures of linear models; else None."""
        return self if len(self._linear) == len(self.members) else None

    @property
    def _linear(self) -> list[AbstractLinearMixture[Any]]:
        return [one for member in self.members if (one := member.linear) is not None]

    @property
    def is_single(self) -> bool:
        """Return False."""
        return False

    def begin(self, batch: Batch, like: Batch) -> Belief:
        """Return the beliefs of all members before the first step, see `AbstractLinearMixture`."""
        pairs = zip(self.each(batch), self.each(like), strict=True)
        owns = ((own, same) for (_, own), (_, same) in pairs)
        return self._pooled([one.begin(*own) for one, own in zip(self._linear, owns, strict=True)])

    def members_of(self, batch: Batch, part: str, belief: Belief, apart: bool = False) -> Iterator[LinearMember]:
        """Yield the models of all members, see `AbstractLinearMixture`."""
        for one, (_, own), known in zip(self._linear, self.each(batch), belief.pool.members, strict=True):
            yield from one.members_of(own, part, known, apart)

    def weights(self, belief: Belief) -> list[Float[Tensor, "series transformation"]]:
        """Return the weights of the models of each member, times that of the member."""
        each = zip(self._linear, belief.pool.members, self.dynamics.log_weight.exp().tolist(), strict=True)
        return [share * weight for one, known, share in each for weight in one.weights(known)]

    def filter_weighted(
        self, batch: Batch, belief: Belief | None = None
    ) -> tuple[Belief, Float[Tensor, "time series"], list[Float[Tensor, "1 series transformation"]]]:
        """Return the result of `filter`, and the weights behind the last step."""
        after, terms = self.filter(batch, belief)
        return after, terms, [weight.unsqueeze(0) for weight in self.weights(after)]

    @property
    def lead(self) -> int:
        """Return the number of the member that these units belong to."""
        return next(k for k, member in enumerate(self.members) if member.units is self.units)

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the sum of the losses of the members that learn: each is trained as if it were alone."""
        each = zip(self.each(batch), self.learning, strict=True)
        losses = (member.loss(own, linear) for (member, own), learns in each if learns)
        return sum(losses, torch.zeros(()).to(self.dtype))

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self.filter(batch, belief)[0]

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the beliefs of all members, and the log-likelihood of each step of the mixture.

        The weights stay as they are. A likelihood is of the values in units of the scale of the belief.
        """
        before = [None] * len(self.members) if belief is None else belief.pool.members
        observed = batch["past_observed"].transpose(0, 1)
        beliefs, terms, seen = [], [], []
        for (member, own), known in zip(self.each(batch), before, strict=True):
            after, term = member.filter(own, known)
            # Members see other transformations and scales: densities become those of the data.
            near = observed & ~member.units.too_far(own, after).transpose(0, 1)
            values = torch.where(near, own["past_target"].transpose(0, 1), 0.0).double()
            slope = transformation_of(member.units.transformation).log_slope(values) - after.scale.log()
            slope = torch.where(near, slope, 0.0).to(term)
            beliefs.append(after)
            terms.append(term + slope.sum(-1))
            seen.append(near.any(-1))
        lead = beliefs[self.lead]
        # A value too far for a member is missing there, which says nothing against the others.
        weight = torch.where(torch.stack(seen), self.dynamics.log_weight[:, None, None].to(lead.scale), -torch.inf)
        density = torch.logsumexp(weight + torch.stack(terms), 0) - torch.logsumexp(weight, 0)
        # A likelihood is of values in units of the lead's scale.
        unit = torch.where(observed, lead.scale.log(), 0.0).sum(-1)
        return self._pooled(beliefs), torch.where(torch.stack(seen).any(0), density + unit, 0.0)

    def _pooled(self, beliefs: list[Belief]) -> Belief:
        """Return one belief of the members'."""
        lead = beliefs[self.lead]
        return Belief(PoolState(tuple(beliefs)), lead.location, lead.scale, lead.series)

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return sample paths of the members, as many of each as its weight says, in random order."""
        known = belief.pool.members

        def draw(k: int, count: int, own: Batch) -> Tensor:
            return self.members[k].forecast(known[k], own, count, generator)

        return self._drawn(draw, future, num_samples, generator)

    def marginals(self, belief: Belief, future: Batch) -> Marginals | None:
        """Return the mixture of the members' distributions; None if one of them has none."""
        of_members = [
            member.marginals(known, own)
            for (member, own), known in zip(self.each(future), belief.pool.members, strict=True)
        ]
        parts = [one for one in of_members if one is not None]
        if len(parts) < len(of_members):
            return None
        return Marginals.pooled(parts, self.dynamics.log_weight.double(), self.names)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples of missing values by the members, in numbers by their weights."""

        def draw(k: int, count: int, own: Batch) -> Tensor:
            return self.members[k].impute(own, count, generator)

        return self._drawn(draw, batch, num_samples, generator)

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Refuse: the members have different components.

        Raises:
            ValueError: Always.
        """
        raise ValueError("the members of a pool have different components: train an issm with those that are asked for")

    def each(self, batch: Batch) -> list[tuple[AbstractInference[Any], Batch]]:
        """Return every member with the batch as it expects it: with its own seasons."""
        return [(member, self._own(batch, member)) for member in self.members]

    def _own(self, batch: Batch, member: AbstractInference[Any]) -> Batch:
        columns = [self.dynamics.season_names.index(name) for name in member.dynamics.season_names]
        own = lambda x: x.index_select(-1, constant(columns, x))  # noqa: E731
        return {**batch, **{name: own(batch[name]) for name in _SEASONS if name in batch}}

    def _drawn(
        self,
        draw: Callable[[int, int, Batch], Tensor],
        batch: Batch,
        num_samples: int,
        generator: torch.Generator | None,
    ) -> Float[Tensor, "series sample step target"]:
        """Return draws of the members, in numbers by their weights (systematic sampling)."""
        weight = self.dynamics.log_weight
        options: dict[str, Any] = {"generator": generator, "device": weight.device}
        members = systematic_ancestors(weight.unsqueeze(-1), torch.rand(1, **options), num_samples).squeeze(-1)
        counts = torch.bincount(members, minlength=len(weight)).tolist()
        each = zip(self.each(batch), counts, strict=True)
        paths = torch.cat([draw(k, count, own) for k, ((_, own), count) in enumerate(each) if count], 1)
        return paths[:, torch.randperm(num_samples, **options)]  # else the first paths would all be of one member
