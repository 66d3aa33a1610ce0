"""Logs of decisions in tables: contexts, arms, rewards, propensities, and the arms that could be chosen."""

import dataclasses
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from tsforecast.decisions.logged_rounds import LoggedRounds
from tsforecast.decisions.table_columns import arm_sets, features_of, masks_of, numbers_of, read_frame
from tsforecast.decisions.tables import find_table, settled, sorted_names
from tsforecast.wording import listed, option, suggestion

_ROLES = {
    "arm": "the arms that were chosen",
    "reward": "what they paid",
    "propensity": "the probabilities with which they were chosen, without which no other policy can be judged",
    "available": "the arms that could be chosen, with | between",
}
ERROR = " error"  # what the name of a column with standard errors of propensities ends with


@dataclasses.dataclass(frozen=True)
class LogColumns:
    """Names of the columns of a log; all others are features.

    Attributes:
        arm: The arm that was chosen.
        reward: What it paid.
        propensity: The probability with which it was chosen.
        available: Arms that could be chosen, with | between; None where all could.
        policy: Beginning of the names of columns that have the probability of an arm under a policy, before the arm's
            own name; None where there are none.
    """

    arm: str = "arm"
    reward: str = "reward"
    propensity: str = "propensity"
    available: str | None = None
    policy: str | None = None


@dataclasses.dataclass(frozen=True)
class Log:
    """Rounds of a table.

    Attributes:
        rounds: All whose reward is known, or was settled by the rule.
        names: Of the arms.
        chances: Probabilities of a policy for each round and arm; None where the table has none.
    """

    rounds: LoggedRounds
    names: tuple[str, ...]
    chances: Tensor | None


def read_log(data: str | Path, columns: LogColumns, missing: str = "refuse") -> Log:
    """Return the log in a table.

    Args:
        data: A CSV or Parquet file.
        columns: Their names.
        missing: What a missing reward is: "refuse", "drop" the round, or "zero".

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If a column is missing, or a row is not as expected.
    """
    path = find_table(data)
    frame = read_frame(path)
    given = [columns.arm, columns.reward, columns.propensity, *([columns.available] if columns.available else [])]
    for name, role in zip(given, _ROLES, strict=False):
        if name not in frame.columns:
            near = suggestion(name, frame.columns)
            raise ValueError(
                f"{path}: there is no column {name!r}; {option(role, 'NAME')} names {_ROLES[role]}. "
                f"{f'{near} ' if near else ''}The columns are {listed(frame.columns)}"
            )
    frame = settled(path, frame, columns.reward, missing)
    if holes := int(frame[columns.arm].isna().sum()):
        raise ValueError(f"{path}: expected an arm in every row of {columns.arm!r}, got none in {holes}")
    sets = arm_sets(path, frame, columns.available)
    taken = frame[columns.arm].astype(str)
    for row, (arm, own) in enumerate(zip(taken, sets or (), strict=False)):
        if arm not in own:
            raise ValueError(f"{path}, row {row + 1}: {arm!r} was chosen, but {columns.available!r} has {listed(own)}")
    names = sorted_names({*taken, *(name for names in sets or () for name in names)})
    policy: list[str] = []
    if columns.policy is not None:
        more = [name.removeprefix(columns.policy) for name in frame.columns if name.startswith(columns.policy)]
        names = sorted_names({*names, *more})
        policy = [f"{columns.policy}{name}" for name in names]
        if absent := [name for name in policy if name not in frame.columns]:
            raise ValueError(f"{path}: expected a probability of every arm, got no column {', '.join(absent)}")
    if len(names) < 2:
        raise ValueError(f"{path}: expected at least two arms, got {', '.join(names) or 'none'}")
    place = {name: number for number, name in enumerate(names)}
    features = frame.drop(columns=[*given, *policy, columns.propensity + ERROR], errors="ignore")
    contexts = features_of(path, features)
    rewards, propensities = (
        numbers_of(path, frame.loc[:, [name]], kind)[:, 0]
        for name, kind in ((columns.reward, "rewards"), (columns.propensity, "propensities"))
    )
    arms = torch.tensor([place[name] for name in taken])
    try:
        rounds = LoggedRounds(contexts, arms, rewards, propensities, masks_of(sets, names, len(frame)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Log(rounds, tuple(names), _normalised(path, frame, policy) if policy else None)


def _normalised(path: Path, frame: pd.DataFrame, columns: list[str]) -> Tensor:
    """Return probabilities of a policy, with a sum of exactly 1; files have them rounded.

    Raises:
        ValueError: If one is none, or a sum is far from 1.
    """
    values = numbers_of(path, frame.loc[:, columns], "probabilities")
    total = values.sum(1)
    wrong = (values < 0).any(1) | ((total - 1).abs() > 1e-3)
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        raise ValueError(
            f"{path}: expected probabilities of the policy with a sum of 1, got {total[row].item():g} in row {row + 1}"
        )
    return values / total[:, None]
