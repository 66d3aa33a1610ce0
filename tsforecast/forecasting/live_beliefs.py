"""Beliefs that are kept: filtered once, moved on by what is new, forecast from at any time, saved and read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core import Gaussian
from tsforecast.core.particles.state import ParticleState
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.checks import as_numbers
from tsforecast.models import Belief
from tsforecast.models.records import PoolState
from tsforecast.wording import counted

_LARGEST_EXPONENT = 1075  # of float64
_STATIC = ("feat_static_cat", "feat_static_real")


End = TypeVar("End", bound=pd.Period | int)


@dataclass(frozen=True)
class LiveBelief(Generic[End]):
    """The belief of a model about one series, with what is needed to move it on.

    Attributes:
        item_id: Identifier of the series.
        end: First period that has not been seen. Of a series with a clock of its own, the time of its last observation,
            in nanoseconds since 1970.
        belief: One series wide; its scale is that of the history with which filtering began.
        static: Static features of the series, as they were given, and from which to go on with effects of covariates.
        begun: Whether a value has been seen. A series begins at its first value, and has its scale from there.
        exponents: Exponents of the powers of two by which its targets are divided, see `tsforecast.data.magnitude`.
        info: Of its entry, see `tsforecast.data.calendar.stamps`.
    """

    item_id: str
    end: End
    belief: Belief
    static: dict[str, np.ndarray] = field(default_factory=dict)
    begun: bool = True
    exponents: tuple[int, ...] = (0,)
    info: dict[str, Any] | None = None


def missing_steps(known: LiveBelief[pd.Period], start: pd.Period) -> int:
    """Return the number of steps between what is known and new observations; refuse those seen already."""
    with expected_alias_warnings():
        steps = (start.ordinal - known.end.ordinal) // known.end.freq.n
    if steps < 0:
        raise ValueError(
            f"series {known.item_id!r}: expected observations from {known.end} on, got some from {start} on; "
            "give each of them once, in the order of time"
        )
    return steps


def continued(known: LiveBelief[pd.Period], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return new observations with missing values from the end of what is known, and static features."""
    steps = missing_steps(known, entry["start"])
    target = as_numbers(entry["target"]).astype(np.float64)
    if steps and "feat_dynamic_real" in entry:
        raise ValueError(
            f"series {known.item_id!r}: {counted(steps, 'step')} from {known.end} on left out; give them with their "
            "covariates, and a target of NaN"
        )
    gap = np.full((*target.shape[:-1], steps), np.nan)
    return {**known.static, **entry, "start": known.end, "target": np.concatenate([gap, target], -1)}


def static_features(entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the static features that the entry has."""
    return {name: np.asarray(entry[name]) for name in _STATIC if name in entry}


def join(beliefs: list[Belief]) -> Belief:
    """Return many beliefs about one series as one belief about many."""
    return map_series(lambda parts, dim: torch.cat(list(parts), dim), beliefs)


def split(belief: Belief) -> list[Belief]:
    """Return a belief about many series as many beliefs about one."""
    whole, series = own_covariances(belief), len(belief.location)
    # Cloned, so that a series that is kept does not keep its whole batch.
    return [map_series(lambda parts, dim, k=k: parts[0].narrow(dim, k, 1).clone(), [whole]) for k in range(series)]


def own_covariances(belief: Belief) -> Belief:
    """Return the belief with a covariance for each series, also where it was shared."""
    state: Any = belief.state  # banks and joint models have such covariances already
    if isinstance(state, Gaussian):
        state = _expanded(state, (len(belief.location),))
    elif isinstance(state, PoolState):
        state = PoolState(tuple(own_covariances(member) for member in state.members))
    elif isinstance(state, ParticleState):
        state = replace(state, state=_expanded(state.state, tuple(state.log_weight.shape)))
    return replace(belief, state=state)


def _expanded(state: Gaussian, batch: tuple[int, ...]) -> Gaussian:
    """Return the Gaussian with a covariance for each index, where it was shared."""
    return Gaussian(state.mean.expand(*batch, -1), state.cov.expand(*batch, -1, -1))


def map_series(function: Callable[[Sequence[Tensor], int], Tensor], beliefs: list[Belief]) -> Belief:
    """Return a belief by a function of corresponding tensors and their dimension of series."""

    def of(*parts: Any, first: int = 0) -> Any:
        if isinstance(parts[0], ParticleState):
            return pytree.tree_map(lambda *each: of(*each, first=1), *parts)
        if parts[0] is None:
            return None
        return function(parts, min(first, parts[0].ndim - 1))  # a flag of particles has series alone

    return pytree.tree_map(of, *beliefs, is_leaf=lambda part: isinstance(part, ParticleState))
