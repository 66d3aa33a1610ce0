"""`tsforecast bandit --evaluate LOG`: the reward of an agent, or of a policy in the log.

The agent learns from the first rows, as they are in the file, and is judged on the others. With --output a folder has

- estimates.csv: a row for each estimator, with its interval
- scores.json: the same, and what the estimates rest on
"""

import dataclasses
import logging
import sys
from pathlib import Path

import pandas as pd
import torch

from tsforecast import progress
from tsforecast.cli import learning_commands
from tsforecast.cli.agents import configured
from tsforecast.cli.answers import write_table
from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.logged_rounds import LoggedRounds
from tsforecast.decisions.logs import Log, LogColumns, read_log
from tsforecast.decisions.off_policy import PolicyValue, evaluate_policy
from tsforecast.io.files import make_folder, write_json

log = logging.getLogger(__name__)


def run(chosen: learning_commands.Bandit) -> int:
    """Evaluates a policy, and returns 0."""
    assert chosen.evaluate is not None
    torch.set_num_threads(1)
    columns = LogColumns(
        chosen.arm or LogColumns.arm, chosen.reward or LogColumns.reward, chosen.propensity, chosen.available,
        chosen.policy,
    )  # fmt: skip
    data = read_log(chosen.evaluate, columns, chosen.missing_rewards)
    chances, rounds = (data.chances, data.rounds) if data.chances is not None else _chances(chosen, data)
    kept = rounds.had_a_choice
    if left := int((~kept).sum()):
        log.warning(
            "%d of %d rounds are left out, in which the log had no choice (propensity 1), such as in a warm-up: the "
            "estimates are those of the other rounds", left, len(rounds),
        )  # fmt: skip
        if left == len(rounds):
            raise ValueError(f"{chosen.evaluate}: expected rounds with a propensity below 1, got none")
    found = evaluate_policy(
        rounds[kept], chances[kept], level=chosen.level, bootstrap=chosen.bootstrap, switch=chosen.switch,
        seed=chosen.seed,
    )  # fmt: skip
    for line in found.warnings(data.names):
        log.warning("%s", line)
    name = "the policy" if data.chances is not None else chosen.agent
    sys.stdout.write(_summary(name, found, chosen) + "\n")
    if chosen.output:
        folder = Path(chosen.output)
        make_folder(folder)
        rows = [dataclasses.asdict(each) for each in (*found.estimates, found.logged)]
        write_table(pd.DataFrame(rows), folder / "estimates.csv")
        write_json(folder / "scores.json", {"policy": name, "log": chosen.evaluate} | dataclasses.asdict(found))
        log.info("%s: estimates.csv, scores.json", folder)
    return 0


def _chances(chosen: learning_commands.Bandit, data: Log) -> tuple[torch.Tensor, LoggedRounds]:
    """Return probabilities of the agent after the first rows, and the rows that come after these."""
    rounds = data.rounds
    first = int(len(rounds) * chosen.first)
    if first in (0, len(rounds)):
        raise ValueError(f"expected rows to learn from, and rows to judge by, got {first} and {len(rounds) - first}")
    bandit = Bandit(configured(chosen, data.names, rounds.contexts.shape[1]))
    pairs = list(zip(rounds.contexts, rounds.arms.tolist(), rounds.rewards.tolist(), strict=True))
    for context, arm, reward in progress.follow(pairs[:first], "learning", first, "rounds"):
        bandit.learn(context, arm, reward)
    if bandit.is_warming_up:
        paid = bandit.standing.paid.tolist()
        raise ValueError(
            f"expected at least {chosen.warm_up} rewards of each arm in the first {first} rows, got {min(paid)} of "
            f"{data.names[paid.index(min(paid))]}: take a smaller --warm_up, or a larger --first"
        )
    last = rounds[slice(first, None)]
    steps = progress.follow(range(len(last)), "judging", len(last), "rounds")
    asked = [bandit.chances(last.contexts[t], last.allowed[t], chosen.draws).value for t in steps]
    return torch.stack(asked), last


def _summary(name: str, found: PolicyValue, chosen: learning_commands.Bandit) -> str:
    """Return a table of the estimates."""
    how = f"{chosen.bootstrap} bootstrap draws" if chosen.bootstrap else "the normal law"
    lines = [
        f"reward of a round by {name}, on {found.rounds} rounds that count as {found.effective:.0f} (largest weight "
        f"{found.largest_weight:.3g}); {100 * chosen.level:g} % intervals by {how}",
        f"{'':10}{'value':>12}{'low':>12}{'high':>12}",
    ]
    for each in (*found.estimates, found.logged):
        lines.append(f"{each.name:10}{each.value:12.6g}{each.low:12.6g}{each.high:12.6g}")
    return "\n".join(lines)
