"""Policies act side by side in an environment of gymnasium and learn by Stein gradients.

    python experiments/policies/train.py CartPole-v1
    python experiments/policies/train.py --resume RUN

A run folder has, beside config.yaml and run.json:

- returns.csv: a row for each policy in each iteration, with the mean return of its episodes, without discount
- policies.pt: the policies after the last iteration; `saved.load_policies` reads them
- scores.json, returns.png: after the last iteration
"""

import csv
import io
import logging
import sys
import time
from argparse import ArgumentError
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parents[2]))

from experiments.policies.config import GRADIENTS, PolicyConfig
from experiments.policies.config import POLICIES as AGENTS
from experiments.policies.figure import plot_returns
from experiments.policies.saved import LearntPolicies, load_policies, save_policies
from tsforecast.cli import guarded, parsing, run_records, runs
from tsforecast.cli.option_groups import RunOptions, SeedOptions
from tsforecast.cli.records import option, parser_of
from tsforecast.io.files import append_file, replace_file, write_json
from tsforecast.plots import save_figure
from tsforecast.progress import is_watched, quiet

log = logging.getLogger("tsforecast.policy")  # whose messages are shown
PROGRAM = "python experiments/policies/train.py"

RETURNS, POLICIES = "returns.csv", "policies.pt"
_COLUMNS = ("iteration", "policy", "returned", "steps", "seconds")


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status, as `tsforecast.cli.main` does for its commands."""
    return guarded(parsing.underscored(sys.argv[1:] if argv is None else argv), _explained)


def _explained(argv: list[str]) -> int:
    try:
        return run(argv)
    except ArgumentError as error:
        raise ValueError(
            f"{parsing.explained(str(error), parser_of(PROGRAM, Policy), argv)}; `{PROGRAM} --help` lists the options"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Policy(SeedOptions, RunOptions):
    """Learn policies of an environment of gymnasium by Stein policy gradients (see docs/particles.md)."""

    env: str = option("", "name in gymnasium's register, such as CartPole-v1", place="ENV", nargs="?")
    horizon: int | None = option(None, "steps of an episode at most; default: the environment's")
    iterations: int = option(60, "in all", least=1)
    agent: str = option("svgd", ", ".join(AGENTS))
    gradient: str = option("reinforce", ", ".join(GRADIENTS))
    particles: int = option(16, "policies that act side by side")
    episodes: int = option(4, "of each in an iteration; joint: of one policy, for all")
    hidden: list[int] = option([25, 10], "widths of hidden layers; none: linear", nargs="*")
    temperature: float = option(1.0, "larger for policies that differ more")
    variance: float = option(1.0, "of every weight in the prior")
    rate: float = option(0.01, "of Adam")
    discount: float = option(0.99, "of a reward one step later")
    trace: float = option(0.97, "lambda of the advantages of a2c")
    reflections: int = option(1, "Householder reflections of s2vgd")

    def check(self) -> None:
        """Refuse names that there are not."""
        if not self.env:
            raise ValueError(f"expected an environment of gymnasium, as in `{PROGRAM} CartPole-v1`, or --resume RUN")
        for name, known in (("agent", AGENTS), ("gradient", GRADIENTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"--{name}: {parsing.unknown(name, getattr(self, name), known)}")


def run(argv: Sequence[str]) -> int:
    """Learns, or goes on.

    Args:
        argv: Arguments of the command.

    Returns:
        0, or 130 after Ctrl-C.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If options or the folder are not as expected, or gymnasium is not installed.
        FileNotFoundError: If the folder is missing.
    """
    chosen = Policy.parsed(PROGRAM, argv)
    if chosen.resume:
        folder = Path(chosen.resume)
        record = run_records.read_record(folder)
        if not isinstance(record.get("policy"), dict):
            raise ValueError(f"{folder} is no run of `{PROGRAM}`")
        chosen = Policy.recorded(PROGRAM, folder / run_records.RECORD, record["policy"])
        with runs.hold(folder):
            return _learn(folder, chosen)
    _config(chosen).build()  # raises now, and not in a folder
    folder = Path(chosen.output) if chosen.output else runs.default_folder(chosen.agent, chosen.env)
    with runs.begun(folder, "policy", chosen, chosen.kept):
        return _learn(folder, chosen)


def _config(chosen: Policy) -> PolicyConfig:
    options = {key: value for key, value in chosen.kept.items() if key != "iterations"}
    return PolicyConfig(**{**options, "hidden": tuple(chosen.hidden)})


def _begun(folder: Path, config: PolicyConfig) -> LearntPolicies:
    """Return the policies from which a run goes on; rows that came after they were saved are taken away.

    Raises:
        ValueError: If policies and table do not go together.
    """
    path = folder / RETURNS
    if not (folder / POLICIES).is_file():
        learner = config.build()
        learnt = LearntPolicies(config, learner, learner.init(), 0)
        with replace_file(path) as temporary:
            temporary.write_text(",".join(_COLUMNS) + "\n", encoding="utf-8")
        save_policies(config, learnt.policies, 0, folder / POLICIES)
        return learnt
    learnt = load_policies(folder / POLICIES)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    rows = 1 + learnt.iterations * config.played[0]
    if learnt.config != config or lines[:1] != [",".join(_COLUMNS) + "\n"] or len(lines) < rows:
        raise ValueError(f"{path} and {POLICIES} are not of the same run; begin a new run")
    with replace_file(path) as temporary:
        temporary.write_text("".join(lines[:rows]), encoding="utf-8")
    return learnt


def _learn(folder: Path, chosen: Policy) -> int:
    """The loop: the rows of an iteration are in the table before the policies that came of it are saved."""
    torch.set_num_threads(1)
    config = _config(chosen)
    learnt = _begun(folder, config)
    learner, policies, environments = learnt.learner, learnt.policies, config.environments()
    bar = tqdm(
        initial=learnt.iterations, total=chosen.iterations, unit="iteration", disable=quiet.get(),
        mininterval=0.1 if is_watched() else 30,
    )  # fmt: skip
    done = learnt.iterations
    try:
        with bar:
            for iteration in range(learnt.iterations, chosen.iterations):
                began = time.perf_counter()
                episodes = learner.explore(policies, environments, seed=config.seed_of(iteration))
                policies = learner.update(policies, episodes)
                found = episodes.returns.mean(1)
                seconds = round(time.perf_counter() - began, 4)
                _append(folder / RETURNS, iteration, found.tolist(), episodes.lasts.sum((1, 2)).tolist(), seconds)
                done = iteration + 1
                save_policies(config, policies, done, folder / POLICIES)
                bar.update()
                bar.set_postfix_str(f"mean {found.mean():.4g}, best {found.max():.4g}", refresh=False)
    except KeyboardInterrupt:
        log.info("stopped after %d iterations; `%s --resume %s` goes on", done, PROGRAM, folder)
        return 130
    _report(folder, chosen, pd.read_csv(folder / RETURNS))
    return 0


def _append(path: Path, iteration: int, returned: list[float], steps: list[int], seconds: float) -> None:
    """Adds a row for each policy; the time of the whole iteration stands in each."""
    text = io.StringIO()
    rows = [(iteration, k, round(paid, 6), n, seconds) for k, (paid, n) in enumerate(zip(returned, steps, strict=True))]
    csv.writer(text, lineterminator="\n").writerows(rows)
    with append_file(path) as file:
        file.write(text.getvalue())


def scores(table: pd.DataFrame) -> dict[str, Any]:
    """Return the returns of the last tenth of the iterations, of all policies and of the best, and of all iterations.

    Args:
        table: Columns `iteration`, `policy`, `returned`, `steps` and `seconds`.
    """
    every = table.pivot(index="iteration", columns="policy", values="returned").to_numpy()
    last = every[-max(len(every) // 10, 1) :].mean(0)
    return {
        "iterations": len(every),
        "policies": len(last),
        "returned": float(last.mean()),
        "best": float(last.max()),
        "best_policy": int(last.argmax()),
        "over_all": float(every.mean()),
        "steps": int(table["steps"].sum()),
        "seconds_per_iteration": float(table.groupby("iteration")["seconds"].first().mean()),
    }


def _report(folder: Path, chosen: Policy, table: pd.DataFrame) -> None:
    """Writes scores and picture, and says what was found."""
    found = scores(table)
    write_json(folder / "scores.json", found)
    title = f"{chosen.agent} ({chosen.gradient}) on {chosen.env}"
    save_figure(plot_returns(table, title=title), folder / "returns.png")
    sys.stdout.write(
        f"{title}: return {found['returned']:.4g} of {found['policies']} policies, {found['best']:.4g} of the best, in "
        f"the last tenth of {found['iterations']} iterations; {found['over_all']:.4g} in all of them\n"
    )
    log.info("%s: %s, %s, scores.json, returns.png", folder, RETURNS, POLICIES)


if __name__ == "__main__":
    raise SystemExit(main())
