"""Vowpal Wabbit on the same rounds as `experiments/bandits/run.py`, a line for each run: results/bandits.csv.

    pip install vowpalwabbit
    python experiments/bandits/vw.py --seeds 0

`cb_explore_adf` with products of context and arm (`-q ca`), by three ways to explore. Contexts are standardised by
those seen so far, as for our agents. It has no warm-up. Its cost is minus the reward, in units of the root mean square
of the rewards so far. Milliseconds include making its examples, which are texts.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.bandits.run import COLUMNS, STEPS
from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.decisions.environments import Environment
from tsforecast.decisions.tables import MADE, make_environment, read_table
from tsforecast.learners.statistics import Statistics

WAYS = ("--epsilon 0.05", "--bag 5", "--squarecb")
SETS = ("adult", "covertype", "shuttle", "mushroom", "wheel", "mnist")


def run(rounds: Environment, way: str, seed: int) -> dict[str, object]:
    """Return the scores of a way to explore."""
    from vowpalwabbit import Workspace  # pyright: ignore[reportMissingImports]

    vw = Workspace(f"--cb_explore_adf {way} -q ca --quiet --random_seed {seed}")
    generator = torch.Generator().manual_seed(seed)
    statistics, paid, chosen = Statistics.empty(rounds.features), [], []
    squares = 0.0
    began = time.process_time()
    for context, rewards in zip(rounds.contexts, rounds.rewards, strict=True):
        statistics, row = statistics.standardise(context)
        shared = "shared |c " + " ".join(f"{k}:{v:.4g}" for k, v in enumerate(row.nan_to_num().tolist()) if v)
        arms = [f"|a arm{k}" for k in range(rounds.arms)]
        shares = torch.tensor(vw.predict("\n".join([shared, *arms])), dtype=torch.float64)
        arm = int(torch.multinomial(shares, 1, generator=generator))
        reward = float(rewards[arm])
        squares += reward**2
        scale = (squares / (len(paid) + 1)) ** 0.5 or 1.0
        arms[arm] = f"0:{-reward / scale:.6g}:{shares[arm]:.6g} {arms[arm]}"
        vw.learn("\n".join([shared, *arms]))
        paid.append(reward)
        chosen.append(arm)
    passed = time.process_time() - began
    vw.finish()
    return {
        "rounds": len(paid),
        "reward": f"{sum(paid):.1f}",
        "regret": f"{rounds.regret(torch.tensor(chosen)).sum().item():.1f}",
        "milliseconds": f"{1e3 * passed / len(paid):.3f}",
    }


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "bandits" / "results" / "bandits.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    facts = {"device": "cpu", **provenance(options.output)}
    for name in options.data:
        data = name if name in MADE else read_table(name)
        for seed in options.seeds:
            rounds = make_environment(data, options.steps, seed)
            for way in WAYS:
                key = {
                    "data": name, "changes": False, "row": f"vw {way}", "settings": json.dumps({}),
                    "warm_up": "pulled arms", "seed": seed, "rounds": options.steps,
                }  # fmt: skip
                if has_row(options.output, key):
                    continue
                found = run(rounds, way, seed)
                append_rows(options.output, COLUMNS, [{**key, "agent": "vowpalwabbit", **found, **facts}])
                tqdm.write(f"{name} {way} {seed}: {found}")


if __name__ == "__main__":
    main()
