"""Beliefs that are kept: filtered once, moved on by what is new, forecast from at any time, saved and read."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core import Gaussian
from tsforecast.core.particles.state import ParticleState
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import BEGINNING, place_of, placed, saved_place
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.effects import MEMORY
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.models import FORMAT, AbstractForecaster, Belief, Series
from tsforecast.models.continuous import TIMED
from tsforecast.models.parts.correlation import Correlation
from tsforecast.models.records import BankState, JointState, PoolState
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
    """Return the number of steps between the end of what is known and the start of new observations.

    Raises:
        ValueError: If some of them have been seen already.
    """
    with expected_alias_warnings():
        steps = (start.ordinal - known.end.ordinal) // known.end.freq.n
    if steps < 0:
        raise ValueError(
            f"series {known.item_id!r}: expected observations from {known.end} on, got some from {start} on; "
            "give each of them once, in the order of time"
        )
    return steps


def continued(known: LiveBelief[pd.Period], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return new observations with missing values from the end of what is known, and static features as they were.

    Raises:
        ValueError: If steps have been seen already, or if some were left out whose covariates a model would need.
    """
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
    state = belief.state
    wide: Gaussian | ParticleState | BankState | PoolState | JointState
    if isinstance(state, Gaussian):
        wide = _expanded(state, (len(belief.location),))
    elif isinstance(state, BankState):
        wide = state
    elif isinstance(state, PoolState):
        wide = PoolState(tuple(own_covariances(member) for member in state.members))
    elif isinstance(state, JointState):
        wide = state
    else:
        wide = replace(state, state=_expanded(state.state, tuple(state.log_weight.shape)))
    return replace(belief, state=wide)


def _expanded(state: Gaussian, batch: tuple[int, ...]) -> Gaussian:
    """Return the Gaussian with a covariance for each index, where it was shared."""
    return Gaussian(state.mean.expand(*batch, -1), state.cov.expand(*batch, -1, -1))


def map_series(function: Callable[[Sequence[Tensor], int], Tensor], beliefs: list[Belief]) -> Belief:
    """Return a belief by a function of corresponding tensors and their dimension of series."""

    def of(parts: Sequence[Any], dim: int) -> Any:
        return None if parts[0] is None else function(parts, dim)

    states: list[Any] = [belief.state for belief in beliefs]
    if isinstance(states[0], Gaussian):
        state: Any = Gaussian(of([s.mean for s in states], 0), of([s.cov for s in states], 0))
    elif isinstance(states[0], BankState | JointState):
        state = pytree.tree_map(lambda *parts: of(parts, 0), *states)
    elif isinstance(states[0], PoolState):
        members = zip(*(s.members for s in states), strict=True)
        state = PoolState(tuple(map_series(function, list(each)) for each in members))
    else:
        given = Gaussian(of([s.state.mean for s in states], 1), of([s.state.cov for s in states], 1))
        names = [field.name for field in fields(ParticleState) if field.name not in ("state", "begun")]
        parts = {name: of([getattr(s, name) for s in states], 1) for name in names}
        state = ParticleState(**parts, state=given, begun=of([s.begun for s in states], 0))
    kept = {field.name: of([getattr(b.series, field.name) for b in beliefs], 0) for field in fields(Series)}
    others = {name: of([getattr(b, name) for b in beliefs], 0) for name in ("location", "scale", "memory", "seen")}
    return Belief(state=state, series=Series(**kept), **others)


def signature(net: AbstractForecaster) -> str:
    """Return the signature of a trained model, since beliefs of one model are of no use to another."""
    digest = hashlib.sha256(f"{type(net).__name__} {sorted(net.hyperparameters.items())}".encode())
    for name, parameter in net.named_parameters():
        digest.update(name.encode() + parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def save_beliefs(path: str | Path, beliefs: Iterable[LiveBelief], net: AbstractForecaster) -> None:
    """Writes beliefs of a model into one file; an older one is replaced when all is written."""
    rows = [
        {
            "item_id": known.item_id,
            "end": known.end if isinstance(known.end, int) else known.end.ordinal,
            "freq": None if isinstance(known.end, int) else known.end.freqstr,
            "belief": plain_belief(known.belief),
            "static": {name: torch.as_tensor(values) for name, values in known.static.items()},
            "begun": known.begun,
            "exponents": list(known.exponents),
            "stamp": list(place_of(known.info)),
        }
        for known in beliefs
    ]
    kept = {"memory": len(rows[0]["static"].get(MEMORY, ()))} if rows else {}
    save_tensors({"tsforecast_format": FORMAT, "signature": signature(net), **kept, "beliefs": rows}, path)


def load_beliefs(path: str | Path, net: AbstractForecaster) -> dict[str, LiveBelief]:
    """Reads what `save_beliefs` wrote; no code of the file is run.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, of another program or format, or of another model.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        payload = load_tensors(path, net.device)
    except ValueError as error:
        raise ValueError(f"{path} holds no readable beliefs ({error}); filter the history again") from error
    version = payload.get("tsforecast_format")
    if version != FORMAT:
        raise ValueError(f"{path} has format {version!r}, this version of tsforecast reads format {FORMAT}")
    if payload.get("signature") != signature(net):
        raise ValueError(f"{path} holds beliefs of another model; filter the history again with this one")
    like = plain_belief(any_belief(net))
    try:
        known = [_read_row(row, like, net) for row in payload["beliefs"]]
        _check_memories(known, payload.get("memory"))
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"{path} holds no readable beliefs ({type(error).__name__}: {error}); filter the history again"
        ) from error
    return {belief.item_id: belief for belief in known}


def any_belief(net: AbstractForecaster) -> Belief:
    """Return the belief after one missing step: its tensors are as large as those of all beliefs."""
    data, is_timed = net.data, _is_timed(net)
    features = Clock.of(net, ()).num_features if is_timed else data.num_time_features
    zeros = partial(torch.zeros, device=net.device)
    batch = {
        "past_target": zeros(1, 1, data.num_targets),
        "past_observed": zeros(1, 1, data.num_targets, dtype=torch.bool),
        "past_is_pad": zeros(1, 1, dtype=torch.bool),
        "past_time_feat": zeros(1, 1, features),
        "past_season_index": zeros(1, 1, len(net.dynamics.season_names), dtype=torch.long),
        "past_dynamic_real": zeros(1, 1, data.num_dynamic_real),
        "series_index": zeros(1, dtype=torch.long),
        "static_cat": zeros(1, len(data.cardinality), dtype=torch.long),
        "static_real": zeros(1, data.num_static_real),
    }
    devices = [net.device] if net.device.type == "cuda" else []
    if is_timed:  # whose batches are in double precision
        batch = {name: values.double() if values.is_floating_point() else values for name, values in batch.items()}
    with torch.no_grad(), torch.random.fork_rng(devices):
        return split(net.filter(batch)[0])[0]


def _is_timed(net: AbstractForecaster) -> bool:
    """Return whether a model is one of series with clocks of their own."""
    return type(net) in TIMED.values()


def _read_row(row: Any, like: dict[str, Any], net: AbstractForecaster) -> LiveBelief:
    """Return a belief from a row of a file.

    Raises:
        ValueError: If it is not like those of the model. Other damage may raise other errors.
    """
    item, belief, static, begun = row["item_id"], row["belief"], row.get("static", {}), row.get("begun", True)
    is_timed = _is_timed(net)
    end, freq = row["time" if "time" in row else "end"], row.get("freq")  # `time` in older files
    if not isinstance(item, str) or type(end) is not int or not isinstance(freq, type(None) if is_timed else str):
        raise ValueError(f"expected a name and an end of each series, got {item!r:.80} and {end!r:.80}")
    expect_like(belief, like, f"series {item!r:.80}")
    index, cardinality = belief["series"]["index"], net.data.cardinality
    if not ((index >= 0) & (index <= net.data.num_series)).all():
        raise ValueError(f"series {item!r:.80}: expected a number up to {net.data.num_series}")
    if not (belief["series"]["static_cat"] < torch.tensor(cardinality, device=net.device)).all():
        raise ValueError(f"series {item!r:.80}: expected static categories below {cardinality}")
    tensors = [values for values in pytree.tree_leaves(belief) if values is not None]
    if any(bool(values.isnan().any()) for values in tensors) or not (belief["scale"] > 0).all():
        raise ValueError(f"series {item!r:.80}: expected numbers, and scales above 0")
    if not set(static) <= {*_STATIC, MEMORY}:
        raise ValueError(f"series {item!r:.80}: expected static features only, got {[*static]!r:.80}")
    if not is_timed:
        with expected_alias_warnings():
            period = pd.Period(ordinal=end, freq=freq)
        assert isinstance(period, pd.Period)
        end = period
    if type(begun) is not bool:
        raise ValueError(f"series {item!r:.80}: expected whether it has begun, got {begun!r:.80}")
    exponents = row.get("exponents", [0])
    if type(exponents) is not list or len(exponents) not in (1, net.data.num_targets):
        raise ValueError(f"series {item!r:.80}: expected a power of two for each target, got {exponents!r:.80}")
    if not all(type(power) is int and abs(power) < _LARGEST_EXPONENT for power in exponents):
        raise ValueError(f"series {item!r:.80}: expected powers of two, got {exponents!r:.80}")
    values = {name: numbers.cpu().numpy() for name, numbers in static.items()}
    info = placed(saved_place(row.get("stamp", list(BEGINNING)))).get("info")
    return LiveBelief(item, end, belief_of(belief), values, begun, tuple(exponents), info)


def _check_memories(known: list[LiveBelief], length: int | None) -> None:
    """Refuse what is kept of covariates where it is damaged, or of another length than the file says.

    Raises:
        ValueError: If it is.
    """
    for one in known:
        memory = one.static.get(MEMORY, np.zeros(0))
        length = memory.size if length is None else length  # older files do not say it
        fits = memory.dtype == np.float64 and memory.shape == (length,)
        if not fits or np.isinf(memory).any() or (length and memory[0] <= 0):
            raise ValueError(
                f"series {one.item_id!r:.80}: expected {MEMORY} of {length} finite numbers, the first above 0, got "
                f"{memory!r:.80}"
            )


def plain_belief(record: Any) -> Any:
    """Return records as dictionaries of tensors."""
    if isinstance(record, tuple):
        return {str(number): plain_belief(part) for number, part in enumerate(record)}
    if isinstance(
        record, Belief | Series | ParticleState | BankState | PoolState | JointState | Correlation | Gaussian
    ):
        return {field.name: plain_belief(getattr(record, field.name)) for field in fields(record)}
    return record


def belief_of(plain: dict[str, Any]) -> Belief:
    """Return the belief that `plain_belief` has made plain."""
    state, series = plain["state"], Series(**plain["series"])
    if "mean" in state:
        return Belief(**{**plain, "state": Gaussian(**state), "series": series})
    if "members" in state:
        members = tuple(belief_of(one) for one in state["members"].values())
        if "correlation" in state:
            joint = JointState(members, Correlation(**state["correlation"]))
            return Belief(**{**plain, "state": joint, "series": series})
        return Belief(**{**plain, "state": PoolState(members), "series": series})
    if "states" in state:
        states = tuple(Gaussian(**one) for one in state["states"].values())
        return Belief(**{**plain, "state": BankState(**{**state, "states": states}), "series": series})
    particles = ParticleState(**{**state, "state": Gaussian(**state["state"])})
    return Belief(**{**plain, "state": particles, "series": series})
