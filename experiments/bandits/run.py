"""Agents on contextual bandits, a line for each run: results/bandits.csv.

    python experiments/bandits/run.py                                           # everything; hours on one core
    python experiments/bandits/run.py --data adult shuttle --agents lofi linear --seeds 0 1
    python experiments/bandits/run.py --changes --data shuttle                  # labels change half-way
    python experiments/bandits/run.py --all_arms                                # the published protocol of the warm-up
    python experiments/bandits/run.py --agents ekf wolf-ekf iterated-ekf --device cuda
    python experiments/bandits/run.py --steps 500 --agents neural-ts-published lofi --seeds 0

Sets are those that `datasets/bandits.py` and `datasets/streams.py mnist --part test` prepared, and the wheel. All
agents of a seed see the same rounds. Without `--all_arms` nothing is fitted to rewards of arms that were not pulled.
Milliseconds are of the CPU, and of a round; pages have those of runs without a GPU alone. Megabytes are those of all
tensors an agent keeps in the end. Settings in the table are all that differ from the library's defaults. Finished runs
are not computed again, and seeds are the outer loop: a table that was stopped early has fewer seeds of all.
"""

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, append_rows, has_row, widen
from tsforecast.cli.memory import keep_freed_memory
from tsforecast.cli.provenance import provenance
from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.config import AgentConfig
from tsforecast.decisions.play import play
from tsforecast.decisions.tables import MADE, Table, make_environment, read_table

SETS = ("adult", "covertype", "shuttle", "mushroom", "wheel", "mnist")
STEPS = 5000
# Row of the table -> agent, and settings that differ from the defaults; the cheapest first.
ROWS: dict[str, dict[str, Any]] = {
    "linear": {},
    "linucb": {},
    "linear-greedy": {"agent": "linear", "rule": "greedy"},
    "linear-raw": {"agent": "linear", "scales_rewards": False},
    "adf": {},  # this and the next three where rewards are 0 or 1
    "laplace": {},
    "fab-cost": {},
    "ep": {},
    "vd-ekf": {},
    "lofi": {},
    "lofi-ucb": {"agent": "lofi", "rule": "ucb"},
    "lofi-greedy": {"agent": "lofi", "rule": "greedy"},
    "lofi-raw": {"agent": "lofi", "scales_rewards": False},
    "decoupled-ekf": {},
    "ogd": {"rule": "epsilon", "amount": 0.05, "noise": 1.0},
    "dropout": {},
    "stein": {},
    "stein-svgd": {"agent": "stein", "settings": {"reflections": 0, "scales": False}},
    "neural-greedy": {},
    "neural-linear": {},
    "neural-linear-limited": {},
    "subspace-svd": {},
    "subspace-random": {},
    "subspace-svd-diagonal": {},
    "bootstrap": {},
    "neural-ts": {},
    "neural-ucb": {},
    "lim2": {},
    "wolf-ekf": {},
    "ekf": {},
    "iterated-ekf": {},
    # Trained in every round, with the width, the inputs and the steps of the paper: for few rounds.
    "neural-ts-published": {
        "agent": "neural-ts",
        "encoding": "block",
        "hidden": [100],
        "settings": {"every": 1, "steps": 100},
    },
}
# With and without drift, on sets whose arms change half-way.
DRIFTING: dict[str, dict[str, Any]] = {
    "linear": {},
    "linear-forgetting": {"agent": "linear", "drift": "forgetting", "rate": 2e-3},
    "linear-window": {},
    "lofi": {},
    "lofi-forgetting": {"agent": "lofi", "drift": "forgetting", "rate": 2e-3},
    "lofi-ou": {"agent": "lofi", "drift": "ou", "rate": 1e-3},
    "vd-ekf": {},
    "vd-ekf-forgetting": {"agent": "vd-ekf", "drift": "forgetting", "rate": 2e-3},
    "neural-linear": {},
    "neural-linear-forgetting": {"agent": "neural-linear", "drift": "forgetting", "rate": 2e-3},
    "adf": {},
    "adf-forgetting": {"agent": "adf", "drift": "forgetting", "rate": 2e-3},
    "ep": {},
    "ep-forgetting": {"agent": "ep", "drift": "forgetting", "rate": 2e-3},
}
COLUMNS = [
    "data", "changes", "row", "agent", "settings", "warm_up", "seed", "rounds", "reward", "regret", "milliseconds",
    "megabytes", "device", "commit", "command",
]  # fmt: skip
KEY = ("data", "changes", "row", "settings", "warm_up", "seed", "rounds")


def run(data: str | Table, agent: str, settings: dict[str, Any], options: argparse.Namespace, seed: int) -> dict:
    """Return the scores of an agent on the rounds of a seed."""
    environment = make_environment(data, options.steps, seed, options.changes)
    settings = settings | {"seed": seed, "device": options.device}
    config = AgentConfig(agent, environment.arms, environment.features, **settings)
    if options.all_arms:  # as many rewards of each arm as there are rounds in the warm-up
        settings = {**settings, "warm_up": config.warm_up * environment.arms}
        config = AgentConfig(agent, environment.arms, environment.features, **settings)
    bandit = Bandit(config)
    began = time.process_time()
    played = list(play(bandit, environment, options.all_arms))
    passed = time.process_time() - began
    arms = torch.tensor([arm for arm, _ in played])
    kept = [leaf for leaf in pytree.tree_leaves(bandit.standing.state) if isinstance(leaf, torch.Tensor)]
    return {
        "rounds": len(played),
        "reward": f"{sum(reward for _, reward in played):.1f}",
        "regret": f"{environment.regret(arms).sum().item():.1f}",
        "milliseconds": f"{1e3 * passed / len(played):.3f}",
        "megabytes": f"{sum(leaf.numel() * leaf.element_size() for leaf in kept) / 2**20:.3f}",
    }


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(SETS))
    parser.add_argument("--agents", nargs="+", metavar="ROW", choices=sorted({*ROWS, *DRIFTING}), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--changes", action="store_true", help="the best arms change half-way")
    parser.add_argument("--all_arms", action="store_true", help="warm up on the rewards of all arms (published code)")
    parser.add_argument("--settings", type=json.loads, default={}, help="for all agents, as JSON")
    parser.add_argument("--device", default="cpu", help="of learners and particles, which it is refused for others")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "bandits" / "results" / "bandits.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as `tsforecast bandit` does
    rows = DRIFTING if options.changes else ROWS
    facts = {"device": options.device, **provenance(options.output)}
    sets = {name: name if name in MADE else read_table(name) for name in options.data}
    jobs = [(seed, name, row) for seed in options.seeds for row in options.agents or rows for name in sets]
    for seed, name, row in tqdm(jobs, mininterval=10, smoothing=0, disable=None):
        own = {**rows[row], **options.settings}
        agent = own.pop("agent", row)
        key = {
            "data": name, "changes": options.changes, "row": row, "settings": json.dumps(own),
            "warm_up": "all arms" if options.all_arms else "pulled arms", "seed": seed, "rounds": options.steps,
        }  # fmt: skip
        if has_row(options.output, key):
            continue
        if "hidden" in own:
            own["hidden"] = tuple(own["hidden"])
        try:
            found = run(sets[name], agent, own, options, seed)
        except (ValueError, RuntimeError) as error:
            tqdm.write(f"{name} {row} {seed}: {error}", file=sys.stderr)
            continue
        widen(options.output, COLUMNS)
        append_rows(options.output, COLUMNS, [{**key, "agent": agent, **found, **facts}])
        tqdm.write(f"{name} {row} {seed}: {found}")


if __name__ == "__main__":
    main()
