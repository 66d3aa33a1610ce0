"""Tables as environments: labelled rows, rewards of all arms, or logged choices; and sets by name."""

import dataclasses
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tsforecast.data.folder import data_home
from tsforecast.decisions import environments
from tsforecast.decisions.environments import Environment
from tsforecast.decisions.table_columns import arm_sets, features_of, masks_of, numbers_of, read_frame

log = logging.getLogger(__name__)

MISSING_REWARDS = ("refuse", "drop", "zero")

# Sets that `datasets/bandits.py` prepares (the digits: `datasets/streams.py`) -> what they are prepared from.
PREPARED = {
    "adult": "bandits.py adult adult.data adult.test",
    "covertype": "bandits.py covertype covtype.data",
    "shuttle": "bandits.py shuttle shuttle.trn shuttle.tst",
    "mushroom": "bandits.py mushroom agaricus-lepiota.data",
    "movielens": "bandits.py movielens u.data",
    "mnist": "streams.py mnist FOLDER --part test",
}
# Environments that are drawn: number of rounds, generator, whether the best arms change half-way.
MADE: dict[str, Callable[[int, torch.Generator, bool], Environment]] = {
    "linear": lambda steps, generator, changes: environments.linear(steps, generator, changes=changes),
    "wheel": lambda steps, generator, changes: environments.wheel(steps, generator, changes=changes),
    "clicks": lambda steps, generator, changes: environments.clicks(steps, generator, changes=changes),
}
_PAID = "reward "  # what names of columns with rewards of an arm begin with, in tables that `datasets` writes


@dataclasses.dataclass(frozen=True)
class Roles:
    """What columns of a table are; all others are features.

    Attributes:
        target: The label, which is the arm that pays 1.
        rewards: One column an arm: what it pays.
        arm: Of a log, the arm that was chosen.
        reward: Of a log, what it paid.
        available: Of a log, arms that could be chosen, with | between; None where all could.
        missing: What a missing reward of a log is: "refuse", "drop" the row, or "zero".
    """

    target: str = "target"
    rewards: tuple[str, ...] = ()
    arm: str | None = None
    reward: str | None = None
    available: str | None = None
    missing: str = "refuse"

    def __post_init__(self) -> None:
        if (self.arm is None) != (self.reward is None) or (self.rewards and self.arm):
            raise ValueError("expected a column of arms and one of rewards together, or one of rewards for each arm")


@dataclasses.dataclass(frozen=True)
class Table:
    """Contexts of a table, and what is known of rewards.

    Attributes:
        name: Of the set or file.
        contexts: Features of each row; texts are one column a word.
        names: Of the arms.
        labels: Arm of each row: the right one, or of a log the one chosen; None where rewards are of all arms.
        rewards: Of all arms, or of the chosen one; None where labels alone are known.
        allowed: Of a log, arms that could be chosen in each row.
    """

    name: str
    contexts: Tensor
    names: tuple[str, ...]
    labels: Tensor | None
    rewards: Tensor | None
    allowed: Tensor | None = None

    def environment(self, steps: int, generator: torch.Generator, changes: bool = False) -> Environment:
        """Return rounds in random order; of a log in its own order, with NaN for arms that were not chosen.

        Args:
            steps: How many.
            generator: Of the order.
            changes: Whether rewards change their arms half-way.

        Raises:
            ValueError: If a log shall change.
        """
        if self.labels is None:
            assert self.rewards is not None
            return environments.of_rewards(self.contexts, self.rewards, steps, generator, changes)
        if self.rewards is not None:
            if changes:
                raise ValueError("expected labels, or rewards of all arms, where arms change half-way, got a log")
            return environments.of_log(self.contexts, self.labels, self.rewards, len(self.names), steps, self.allowed)
        if self.name == "mushroom" and self.names == ("edible", "poisonous"):
            return environments.of_mushrooms(self.contexts, self.labels == 0, steps, generator, changes)
        return environments.of_labels(self.contexts, self.labels, len(self.names), steps, generator, changes)


def find_table(data: str | Path) -> Path:
    """Return a file, or the one that was prepared under a name.

    Raises:
        FileNotFoundError: If there is neither; the message says how a known set is prepared.
    """
    path = Path(data)
    prepared = data_home() / f"{path}.csv"
    if path.is_file():
        return path
    if path.name == str(path) and prepared.is_file():
        return prepared
    if str(data) in PREPARED:
        how = f"python datasets/{PREPARED[str(data)]}"
        raise FileNotFoundError(f"{data} is not prepared (there is no file {prepared}): make it by `{how}`")
    raise FileNotFoundError(
        f"there is no file {data}, and no set of this name: {', '.join(MADE)} are drawn, {', '.join(PREPARED)} prepared"
    )


def read_table(data: str | Path, roles: Roles | None = None) -> Table:
    """Return a table for decisions.

    Args:
        data: A CSV or Parquet file, or a set that was prepared.
        roles: Of the columns; None for a label `target`, or rewards that `datasets/bandits.py` has written.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If it has no row or feature, lacks a column, or has one arm alone.
    """
    path = find_table(data)
    frame = read_frame(path)
    if roles is None:
        roles = Roles(rewards=tuple(name for name in frame.columns if name.startswith(_PAID)))
    used = [*roles.rewards] or ([roles.arm, roles.reward] if roles.arm and roles.reward else [roles.target])
    used += [roles.available] if roles.available else []
    if missing := [name for name in used if name not in frame.columns]:
        raise ValueError(
            f"{path}: expected the columns {', '.join(missing)}, got {', '.join(map(str, frame.columns))[:200]}"
        )
    if roles.reward:
        frame = settled(path, frame, roles.reward, roles.missing)
    contexts = features_of(path, frame.drop(columns=used))
    labels = rewards = allowed = None
    if roles.rewards:
        rewards = numbers_of(path, frame.loc[:, list(roles.rewards)])
        names = [name.removeprefix(_PAID) for name in roles.rewards]
    else:
        column = pd.Series(frame[used[0]])
        if missing := int(column.isna().sum()):
            raise ValueError(f"{path}: expected an arm in every row of {used[0]!r}, got none in {missing}")
        values = column.astype(str)
        sets = arm_sets(path, frame, roles.available)
        # Arms that could be chosen, but never were, are arms too.
        names = sorted_names({*values, *(name for some in sets or () for name in some)})
        allowed = masks_of(sets, names, len(frame)) if sets else None
        labels = torch.tensor(pd.Categorical(values, categories=names).codes.astype(np.int64))
        if roles.reward:
            rewards = numbers_of(path, frame.loc[:, [roles.reward]])[:, 0]
    if len(names) < 2:
        raise ValueError(f"{path}: expected at least two arms, got {', '.join(map(str, names)) or 'none'}")
    name = path.stem if Path(data).name == str(data) else str(data)
    return Table(name, contexts, tuple(map(str, names)), labels, rewards, allowed)


def sorted_names(names: Iterable[str]) -> list[str]:
    """Return names of arms in order: numbers by their size, behind words."""
    return sorted(names, key=lambda name: (len(name), name) if name.isdecimal() else (0, name))


def settled(path: Path, frame: pd.DataFrame, reward: str, missing: str) -> pd.DataFrame:
    """Return a table without missing rewards, by a rule; a line says the number of these.

    Raises:
        ValueError: If one is missing, and the rule is to refuse.
    """
    absent = frame[reward].isna()
    if not (count := int(absent.sum())):
        return frame
    if missing == "refuse":
        row = int(np.asarray(absent).argmax())
        raise ValueError(
            f"{path}: expected finite rewards, got none in row {row + 1} (of {count}); --missing_rewards zero or drop "
            "is for rewards that never came"
        )
    log.info(
        "%s: %d of %d rows have no reward: %s", path, count, len(frame),
        "they count as 0" if missing == "zero" else "they are left out, as if absence had nothing to do with the arm",
    )  # fmt: skip
    left = frame.assign(**{reward: frame[reward].fillna(0.0)}) if missing == "zero" else frame.loc[~absent]
    if left.empty:
        raise ValueError(f"{path}: expected a row with a reward, got none")
    return left.reset_index(drop=True)  # later parts count rows from 0


def make_environment(data: str | Table, steps: int, seed: int, changes: bool = False) -> Environment:
    """Return the rounds of a set that is drawn, or of a table.

    Args:
        data: A name in `MADE`, or a table.
        steps: How many.
        seed: Of all that is random.
        changes: Whether the best arms change half-way.
    """
    generator = torch.Generator().manual_seed(seed)
    if isinstance(data, Table):
        return data.environment(steps, generator, changes)
    return MADE[data](steps, generator, changes)
