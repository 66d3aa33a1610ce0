"""Beliefs in a file: written, and read by the model that they are of."""

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils import _pytree as pytree

from tsforecast.core import Gaussian
from tsforecast.core.correlation import Correlation
from tsforecast.core.particles.state import ParticleState
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import BEGINNING, place_of, placed, saved_place
from tsforecast.data.effects.effects import MEMORY
from tsforecast.forecasting.live_beliefs import _LARGEST_EXPONENT, _STATIC, LiveBelief, split
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.models import FORMAT, AbstractForecaster, Belief, Series
from tsforecast.models.continuous import TIMED
from tsforecast.models.records import BankState, JointState, PoolState


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
    """Reads the file of `save_beliefs`, none of whose code is run; a ValueError if damaged, or of another model."""
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
    if is_timed:  # batches of such models are in double precision
        batch = {name: values.double() if values.is_floating_point() else values for name, values in batch.items()}
    with torch.no_grad(), torch.random.fork_rng(devices):
        return split(net.filter(batch)[0])[0]


def _is_timed(net: AbstractForecaster) -> bool:
    """Return whether a model is one of series with clocks of their own."""
    return type(net) in TIMED.values()


def _read_row(row: Any, like: dict[str, Any], net: AbstractForecaster) -> LiveBelief:
    """Return a belief from a row of a file."""
    item, belief, static, begun = row["item_id"], row["belief"], row.get("static", {}), row.get("begun", True)
    is_timed = _is_timed(net)
    end, freq = row["end"], row.get("freq")
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
    """Refuse what is kept of covariates where it is damaged, or of another length than the file says."""
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
