"""A bandit in one file; it goes on from there, and no code of the file is run."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.config import AgentConfig
from tsforecast.decisions.standing import Standing
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors

FORMAT = 3  # raised when older files can no longer be read
_PLAIN = ("chosen", "learnt")


def save_bandit(bandit: Bandit, path: str | Path) -> None:
    """Writes an agent and all it knows; an older file is replaced when all is written.

    Raises:
        OSError: If the file can not be written.
    """
    config, standing = dataclasses.asdict(bandit.config), bandit.standing
    del config["device"]  # one may go on elsewhere
    payload: dict[str, Any] = {"format": FORMAT, "config": {**config, "hidden": list(config["hidden"])}}
    if bandit.config.arm_features is not None:
        payload["config"]["arm_features"] = [list(row) for row in bandit.config.arm_features]
    payload |= {name: getattr(standing, name) for name in _PLAIN}
    payload |= {
        "leaves": [leaf.cpu() for leaf in _leaves(standing)],
        "waiting": standing.waiting,
        "generator": bandit.generator_state(),
    }
    save_tensors(payload, path)


def load_bandit(path: str | Path, device: str = "cpu") -> Bandit:
    """Return the agent that `save_bandit` has written: it chooses as the saved one would.

    Args:
        path: Of the file.
        device: Where it shall compute, wherever the saved one did; see `AgentConfig`.

    Raises:
        ValueError: If the file is damaged, or of another program or format.
        OSError: If it can not be opened.
    """
    payload = load_tensors(path)
    try:
        if payload["format"] != FORMAT:
            raise ValueError(f"it has format {payload['format']}, this version of tsforecast reads {FORMAT}")
        given = payload["config"]
        like = dataclasses.asdict(AgentConfig())
        del like["device"]
        if given.keys() != like.keys():
            raise ValueError(f"expected a configuration of {', '.join(like)}")
        rows = given["arm_features"]
        plain = {"hidden": tuple(given["hidden"]), "arm_features": None if rows is None else tuple(map(tuple, rows))}
        bandit = Bandit(AgentConfig(**given | plain, device=device))
        leaves, fresh = payload["leaves"], _leaves(bandit.standing)
        _check(leaves, [leaf.cpu() for leaf in fresh])
        leaves = [leaf.to(like.device) for leaf, like in zip(leaves, fresh, strict=True)]
        expect_like({name: payload[name] for name in _PLAIN}, {"chosen": 0, "learnt": 0}, "its counts")
        waiting = payload["waiting"]
        for row, arm, number in waiting.values():
            expect_like(row, torch.zeros(bandit.config.features), "a context that waits")
            if not (isinstance(arm, int) and 0 <= arm < bandit.config.arms and isinstance(number, int)):
                raise ValueError(f"expected arm and number of a choice that waits, got {arm!r} and {number!r}")
        parts = pytree.tree_unflatten(leaves, pytree.tree_flatten(_parts(bandit.standing))[1])
        bandit.go_on(Standing(**parts, waiting=waiting, **{n: payload[n] for n in _PLAIN}), payload["generator"])
    except (KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError, IndexError, ValueError) as error:
        raise ValueError(f"{path} holds no readable agent ({error})") from error
    return bandit


def _parts(standing: Standing) -> dict[str, Any]:
    """Return the object made of tensors."""
    names = ("state", "rewards", "paid", "units", "first", "statistics")
    return {name: getattr(standing, name) for name in names}


def _leaves(standing: Standing) -> list[Tensor]:
    return pytree.tree_leaves(_parts(standing))


def _check(given: Any, like: list[Tensor]) -> None:
    """Refuses tensors of other kinds or shapes; only histories may be longer than those of a new agent.

    Raises:
        ValueError: At the first one.
    """
    if not isinstance(given, list) or len(given) != len(like):
        raise ValueError(f"expected {len(like)} tensors")
    for number, (tensor, other) in enumerate(zip(given, like, strict=True)):
        grows = isinstance(tensor, Tensor) and other.ndim > 0 and len(other) == 0
        if grows and tensor.shape[1:] == other.shape[1:] and tensor.dtype == other.dtype:
            continue
        expect_like(tensor, other, f"tensor {number}")
