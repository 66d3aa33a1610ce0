"""`tsforecast bandit`: an agent plays a contextual bandit several times; rewards, scores and a picture of its regret.

A run folder has, beside config.yaml and run.json:

- rewards.csv: a row for each round of each run that is finished, with cumulative regret where it is known
- decisions-RUN.csv, with --propensities: context, choice, reward and propensity of each round, for --evaluate
- scores.json, regret.png: after the last run
"""

import csv
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils import _pytree as pytree

from tsforecast import progress
from tsforecast.cli import learning_commands, off_policy, runs
from tsforecast.cli.agents import configured
from tsforecast.cli.answers import write_table
from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.config import AgentConfig
from tsforecast.decisions.environments import Environment
from tsforecast.decisions.logs import ERROR
from tsforecast.decisions.play import Decision, decide
from tsforecast.decisions.table_columns import BETWEEN
from tsforecast.decisions.tables import MADE, Roles, Table, make_environment, read_table
from tsforecast.io.files import append_file, replace_file, write_json
from tsforecast.plots import plot_regret, save_figure

log = logging.getLogger(__name__)

REWARDS = "rewards.csv"
_COLUMNS: tuple[str, ...] = ("run", "round", "arm", "reward", "regret", "seconds", "megabytes")


def run(chosen: learning_commands.Bandit) -> int:
    """Play, or go on."""
    if chosen.evaluate:
        return off_policy.run(chosen)
    if chosen.resume:
        folder = Path(chosen.resume)
        chosen, _ = runs.recorded(folder, "bandit", learning_commands.Bandit)
        with runs.hold(folder):
            return _play(folder, chosen)
    _setup(chosen)  # raises now, and not in a folder
    folder = Path(chosen.output) if chosen.output else runs.default_folder(chosen.agent, Path(chosen.data).stem)
    with runs.begun(folder, "bandit", chosen, {"options": chosen.kept}):
        return _play(folder, chosen)


def _setup(chosen: learning_commands.Bandit) -> tuple[str | Table, AgentConfig]:
    """Return the rounds, and the agent of the first run."""
    data: str | Table = chosen.data
    given = chosen.rewards or chosen.arm or chosen.reward or chosen.available or chosen.target != "target"
    if chosen.data not in MADE:
        columns = (chosen.arm, chosen.reward, chosen.available, chosen.missing_rewards)
        roles = Roles(chosen.target, tuple(chosen.rewards or ()), *columns) if given else None
        data = read_table(chosen.data, roles)
    elif given:
        raise ValueError(
            f"expected no --target, --rewards, --arm, --reward or --available with {chosen.data}, which has no columns"
        )
    rounds = _rounds(chosen, data, 0)
    return data, configured(chosen, _names(data, rounds), rounds.features)


def _names(data: str | Table, rounds: Environment) -> tuple[str, ...]:
    """Return the names of the arms; of sets that are drawn their numbers."""
    return data.names if isinstance(data, Table) else tuple(map(str, range(rounds.arms)))


def _rounds(chosen: learning_commands.Bandit, data: str | Table, number: int) -> Environment:
    return make_environment(data, chosen.steps, chosen.seed + number, chosen.change)


def _play(folder: Path, chosen: learning_commands.Bandit) -> int:
    """Plays the runs that are not finished yet."""
    torch.set_num_threads(1)
    data, config = _setup(chosen)
    done = _finished(folder / REWARDS, len(_rounds(chosen, data, 0)))
    try:
        for number in range(done, chosen.runs):
            rounds = _rounds(chosen, data, number)
            bandit = Bandit(AgentConfig(**{**vars(config), "seed": chosen.seed + number}))
            played, seconds = _played(bandit, rounds, chosen, number)
            rows = list(_rows(bandit, rounds, played, number, seconds))
            if chosen.propensities:
                write_table(_decisions(rounds, played, _names(data, rounds)), folder / f"decisions-{number}.csv")
            with append_file(folder / REWARDS) as file:
                csv.DictWriter(file, _COLUMNS, lineterminator="\n").writerows(rows)
    except KeyboardInterrupt:
        log.info("stopped; `tsforecast bandit --resume %s` goes on after the last finished run", folder)
        return 130
    table = pd.read_csv(folder / REWARDS)
    found = scores(table)
    write_json(folder / "scores.json", found)
    title = f"{chosen.agent}, {chosen.data}"
    if found["regret"] is not None:
        figure = plot_regret({chosen.agent: table}, title=title, change=chosen.steps // 2 if chosen.change else None)
        save_figure(figure, folder / "regret.png")
    sys.stdout.write(_summary(title, found) + "\n")
    log.info("%s: %s, scores.json%s", folder, REWARDS, "" if found["regret"] is None else ", regret.png")
    return 0


def _played(
    bandit: Bandit, rounds: Environment, chosen: learning_commands.Bandit, number: int
) -> tuple[list[Decision], float]:
    """Return the decisions of a run, and its seconds."""
    began = time.perf_counter()
    name = f"run {number + 1} of {chosen.runs}"
    draws = chosen.draws if chosen.propensities else 0
    steps = decide(bandit, rounds, chosen.all_arms, chosen.delay, draws)
    played = list(progress.follow(steps, name, len(rounds), "rounds"))
    if bandit.is_warming_up:
        paid = bandit.standing.paid.tolist()
        log.warning(
            "%s: the warm-up has not ended, so that arms were pulled in turn to the last round: arm %d has had %d "
            "rewards of %d; take more rounds, or a smaller --warm_up",
            name, paid.index(min(paid)), min(paid), bandit.config.warm_up,
        )  # fmt: skip
    return played, time.perf_counter() - began


def _decisions(rounds: Environment, played: list[Decision], names: tuple[str, ...]) -> pd.DataFrame:
    """Return a log that `--evaluate` reads."""
    features = {f"x{k + 1}": column for k, column in enumerate(rounds.contexts.T.tolist())}
    table = pd.DataFrame(features)
    if rounds.allowed is not None:
        sets = [BETWEEN.join(names[arm] for arm in row.nonzero()[:, 0].tolist()) for row in rounds.allowed]
        table["available"] = sets
    table["arm"] = [names[each.arm] for each in played]
    table["reward"] = [each.reward for each in played]
    table["propensity"] = [each.propensity for each in played]
    table["propensity" + ERROR] = [each.error for each in played]
    return table


def _rows(
    bandit: Bandit, rounds: Environment, played: list[Decision], number: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run; seconds and megabytes are in the last."""
    regret = rounds.regret(torch.tensor([each.arm for each in played])).cumsum(0).tolist()
    kept = [leaf for leaf in pytree.tree_leaves(bandit.standing.state) if isinstance(leaf, torch.Tensor)]
    megabytes = sum(leaf.numel() * leaf.element_size() for leaf in kept) / 2**20
    for t, (each, lost) in enumerate(zip(played, regret, strict=True)):
        row = {"run": number, "round": t, "arm": each.arm, "reward": _cell(each.reward), "regret": _cell(lost)}
        last = t == len(played) - 1
        yield {**row, "seconds": round(seconds, 3) if last else "", "megabytes": round(megabytes, 4) if last else ""}


def _cell(value: float) -> float | str:
    return "" if value != value else round(value, 6)


def _finished(path: Path, rounds: int) -> int:
    """Return the number of whole runs in the table; half a run is taken away."""
    header = ",".join(_COLUMNS)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    if not lines:
        lines = [header]
    if lines[0] != header:
        raise ValueError(f"{path}: expected the columns {header}, got {lines[0]!r:.80}; begin anew")
    done = (len(lines) - 1) // rounds
    if done and not lines[done * rounds].startswith(f"{done - 1},{rounds - 1},"):
        raise ValueError(f"{path}: expected {rounds} rounds of each run, got others; begin anew")
    with replace_file(path) as temporary:
        temporary.write_text("\n".join(lines[: 1 + done * rounds]) + "\n", encoding="utf-8")
    return done


def scores(table: pd.DataFrame) -> dict[str, Any]:
    """Return means and standard deviations over runs, from rewards by run and round; NaN rounds do not count."""
    paid, lost, seconds, megabytes = (
        table.pivot(index="round", columns="run", values=name).to_numpy(np.float64)
        for name in ("reward", "regret", "seconds", "megabytes")
    )
    rewards, counted = np.nansum(paid, 0), np.isfinite(paid).sum(0)
    known = bool(np.isfinite(lost).all())
    ddof = 1 if len(rewards) > 1 else 0
    return {
        "runs": len(rewards),
        "rounds": len(paid),
        "rounds_counted": counted.tolist(),
        "reward": float(rewards.mean()),
        "reward_sd": float(rewards.std(ddof=ddof)),
        "reward_per_round": float(rewards.sum() / max(counted.sum(), 1)),
        "rewards": rewards.tolist(),
        "regret": float(lost[-1].mean()) if known else None,
        "regret_sd": float(lost[-1].std(ddof=ddof)) if known else None,
        "milliseconds_per_round": float(1e3 * seconds[-1].mean() / len(paid)),
        "megabytes": float(megabytes[-1].mean()),
    }


def _summary(title: str, found: dict[str, Any]) -> str:
    regret = "" if found["regret"] is None else f", regret {found['regret']:.1f} (sd {found['regret_sd']:.1f})"
    return (
        f"{title}: {found['runs']} runs of {found['rounds']} rounds, reward {found['reward']:.1f} "
        f"(sd {found['reward_sd']:.1f}), {found['reward_per_round']:.4f} a round{regret}, "
        f"{found['milliseconds_per_round']:.2f} ms a round"
    )
