"""Episodes of control problems: environments of gymnasium, in which many policies act at once."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record

# Bounds of observations from here on are no bounds: gymnasium has the largest float32 where a number has none.
_UNBOUNDED = 1e6


@register_record
@dataclasses.dataclass(frozen=True)
class Episodes:
    """What policies saw, did and were paid; behind the end of an episode all is zero.

    Attributes:
        inputs: Observations in units of their bounds, before each action.
        actions: The number of an action, or several numbers in units of their bounds.
        rewards: Of each action.
        lasts: Whether the step belongs to the episode.
    """

    inputs: Float[Tensor, "particle episode time feature"]
    actions: Float[Tensor, "particle episode time target"]
    rewards: Float[Tensor, "particle episode time"]
    lasts: Bool[Tensor, "particle episode time"]

    @property
    def returns(self) -> Float[Tensor, "particle episode"]:
        """Return the sums of rewards, without discount."""
        return self.rewards.sum(-1)


@dataclasses.dataclass(frozen=True)
class Control:
    """What a policy must know of an environment; made by `control_of`.

    Attributes:
        name: In gymnasium's register.
        choices: How many actions there are to choose from; 0 where actions are numbers.
        low: Bounds of actions that are numbers.
        high: Their other bounds.
        centre: Of each observation's bounds; 0 where it has none.
        half: Half the distance of these bounds; 1 where there are none.
        horizon: Steps of an episode at most.
    """

    name: str
    choices: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    centre: tuple[float, ...]
    half: tuple[float, ...]
    horizon: int

    @property
    def features(self) -> int:
        """Return how many numbers an observation has."""
        return len(self.centre)

    @property
    def outputs(self) -> int:
        """Return how many outputs a policy network has: logits of choices, or means of numbers."""
        return self.choices or len(self.low)

    def scaled(self, observations: Sequence[Any], like: Tensor) -> Float[Tensor, "row feature"]:
        """Return observations in units of their bounds."""
        rows = [[float(x) for x in observation] for observation in observations]
        raw = torch.tensor(rows, dtype=like.dtype)
        return (raw - raw.new_tensor(self.centre)) / raw.new_tensor(self.half)

    def commands(self, actions: Float[Tensor, "row target"]) -> list[Any]:
        """Return what the environment takes: whole numbers, or numbers that are cut to their bounds."""
        if self.choices:
            return actions[:, 0].long().tolist()
        low, high = actions.new_tensor(self.low), actions.new_tensor(self.high)
        cut = torch.minimum(torch.maximum((low + high) / 2 + (high - low) / 2 * actions, low), high)
        return list(cut.numpy().astype("float32"))


def environment(name: str, horizon: int | None = None) -> Any:
    """Return one of gymnasium's environments.

    Args:
        name: In its register.
        horizon: Steps of an episode at most; None for its own.

    Raises:
        ValueError: If gymnasium is not installed, or has no such environment.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise ValueError("policies need gymnasium: `pip install 'tsforecast[rl]'`") from error
    if ":" in name:  # gymnasium would import the module before it
        raise ValueError(f"expected the name of an environment that gymnasium knows, got {name!r}")
    try:
        return gymnasium.make(name, max_episode_steps=horizon, disable_env_checker=True)
    except gymnasium.error.Error as error:
        raise ValueError(f"expected an environment of gymnasium, such as CartPole-v1, got {name!r}: {error}") from error


def control_of(made: Any) -> Control:
    """Return what a policy must know of an environment.

    Args:
        made: By `environment`.

    Raises:
        ValueError: If observations are no row of numbers, actions neither choices nor such a row with bounds, or
            episodes have no end.
    """
    seen, acts, name = made.observation_space, made.action_space, made.spec.id
    if type(seen).__name__ != "Box" or len(seen.shape) != 1:
        raise ValueError(f"{name}: expected observations in a Box of one dimension, got {seen}")
    discrete = type(acts).__name__ == "Discrete"
    bounded = type(acts).__name__ == "Box" and len(acts.shape) == 1 and bool(acts.is_bounded())
    if not discrete and not bounded:
        raise ValueError(f"{name}: expected a Discrete space of actions, or a Box of one dimension, got {acts}")
    if discrete and int(acts.start):
        raise ValueError(f"{name}: expected actions that are counted from 0, got {acts}")
    if not made.spec.max_episode_steps:
        raise ValueError(f"{name}: expected episodes that end; give a horizon")
    low, high = seen.low.astype(float).tolist(), seen.high.astype(float).tolist()
    pairs = [(a, b) if -_UNBOUNDED < a < b < _UNBOUNDED else (-1.0, 1.0) for a, b in zip(low, high, strict=True)]
    return Control(
        name,
        int(acts.n) if discrete else 0,
        () if discrete else tuple(acts.low.astype(float).tolist()),
        () if discrete else tuple(acts.high.astype(float).tolist()),
        tuple((a + b) / 2 for a, b in pairs),
        tuple((b - a) / 2 for a, b in pairs),
        int(made.spec.max_episode_steps),
    )


def roll_out(
    control: Control,
    environments: Sequence[Sequence[Any]],
    act: Callable[[Float[Tensor, "particle episode feature"]], Float[Tensor, "particle episode target"]],
    seed: int,
    like: Tensor,
) -> Episodes:
    """Return an episode of each environment; those that are over wait for the others.

    Args:
        control: What they have in common.
        environments: One for each episode of each particle.
        act: Returns actions, given the observations of all environments.
        seed: Of the first environment; each other has the next one.
        like: Of the type that all numbers shall have.

    Raises:
        ValueError: If a reward or an observation is not finite.
    """
    shape = len(environments), len(environments[0])
    flat = [each for row in environments for each in row]
    seen = [each.reset(seed=(seed + k) % 2**31)[0] for k, each in enumerate(flat)]
    lasting = [True] * len(flat)
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    while any(lasting) and len(steps) < control.horizon:
        inputs = control.scaled(seen, like)
        actions = act(inputs.unflatten(0, shape)).flatten(0, 1)
        commands = control.commands(actions)
        before, rewards = torch.tensor(lasting), [0.0] * len(flat)
        for k, each in enumerate(flat):
            if lasting[k]:
                seen[k], reward, ends, cut, _ = each.step(commands[k])
                rewards[k] = float(reward)
                lasting[k] = not (ends or cut)
        paid = torch.tensor(rewards, dtype=like.dtype)
        if not (math.isfinite(sum(rewards)) and bool(inputs.isfinite().all())):
            raise ValueError(f"{control.name}: expected finite rewards and observations, got others")
        steps.append((inputs * before.unsqueeze(-1), actions * before.unsqueeze(-1), paid, before))
    parts = [torch.stack(column, 1).unflatten(0, shape) for column in zip(*steps, strict=True)]
    return Episodes(*parts)
