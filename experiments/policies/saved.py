"""Policies in one file, from which they go on learning or act; no code of the file is run."""

import dataclasses
from pathlib import Path

from torch.utils import _pytree as pytree

from experiments.policies.config import PolicyConfig
from experiments.policies.policy_gradient import Policies, PolicyGradient
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors

FORMAT = 1  # raised when older files can no longer be read


@dataclasses.dataclass(frozen=True)
class LearntPolicies:
    """What `load_policies` finds.

    Attributes:
        config: Of the policies.
        learner: By which they act and go on.
        policies: After the last iteration.
        iterations: How many there were.
    """

    config: PolicyConfig
    learner: PolicyGradient
    policies: Policies
    iterations: int


def save_policies(config: PolicyConfig, policies: Policies, iterations: int, path: str | Path) -> None:
    """Writes policies and all that they need to go on; an older file is replaced when all is written.

    Args:
        config: Of the policies.
        policies: After so many iterations.
        iterations: How many there were.
        path: Of the file.

    Raises:
        OSError: If the file can not be written.
    """
    plain = {**dataclasses.asdict(config), "hidden": list(config.hidden)}
    leaves = pytree.tree_leaves(policies)
    save_tensors({"format": FORMAT, "config": plain, "iterations": iterations, "leaves": leaves}, path)


def load_policies(path: str | Path) -> LearntPolicies:
    """Return the policies that `save_policies` has written.

    Raises:
        ValueError: If the file is damaged, or of another program or format; or gymnasium lacks the environment.
        OSError: If it can not be opened.
    """
    payload = load_tensors(path)
    try:
        if payload["format"] != FORMAT:
            raise ValueError(f"it has format {payload['format']}, this version of tsforecast reads {FORMAT}")
        given = payload["config"]
        config = PolicyConfig(**{**given, "hidden": tuple(given["hidden"])})
        iterations = payload["iterations"]
        if not isinstance(iterations, int) or iterations < 0:
            raise ValueError(f"expected a number of iterations, got {iterations!r:.80}")
        learner = config.build()
        like = learner.init()
        expect_like(payload["leaves"], pytree.tree_leaves(like), "its policies")
        policies = pytree.tree_unflatten(payload["leaves"], pytree.tree_structure(like))
    except (KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError, ValueError) as error:
        raise ValueError(f"{path} holds no readable policies ({error})") from error
    return LearntPolicies(config, learner, policies, iterations)
