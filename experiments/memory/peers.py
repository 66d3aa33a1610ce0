"""Replay and EWC of Avalanche beside a memory, on one stream: results/memory_peers.csv.

    pip install avalanche-lib
    python experiments/memory/peers.py                      # all learners, three seeds
    python experiments/memory/peers.py --learners vb-grs --seeds 0
    python experiments/memory/peers.py --summary            # means and standard errors

The stream is `gas` of drift.py: six gases by sensors that age, a block of 500 and then blocks of 50. Some gases
are missing for months, and come back. Every fifth row of a block is held out. Each block is scored before it is learnt
from: `lml` and `error` are the mean log-likelihood of a gas and the part of wrong ones, over the later half of the
blocks. `past_lml` and `past_error` are those of all rows that were held out, after the last block: what is remembered.

All have the same network, 128-8-8-6 with tanh, and memories of the same size. `vb` and its memories are ours, by the
linearised fit, without drift. Avalanche's learners take `--epochs` passes over each block by Adam: `naive` does nothing
else, `replay` has a memory filled by reservoir sampling, `ewc` is online elastic weight consolidation with a decay of
0.95. Their rows have several rates and strengths; the best in hindsight is to be compared. Finished runs are not
computed again.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.memory.drift import STREAMS, blocks_of, network_of
from experiments.memory.run import log_marginal
from experiments.tables import ROOT, append_rows, has_row
from tsforecast import learners
from tsforecast.cli.provenance import provenance

OURS: dict[str, dict[str, Any]] = {
    "vb": {},
    "vb-random": {"memory": "random"},
    "vb-grs": {"memory": "grs", "score": "grs"},
    "vb-grs-centred": {"memory": "grs", "score": "centred"},
    "vb-grs-variance": {"memory": "grs"},
}
# Strengths of the penalty of "ewc"; the others have none.
PEERS: dict[str, tuple[float, ...]] = {"naive": (0.0,), "replay": (0.0,), "ewc": (1.0, 100.0)}
RATES = (0.003, 0.01)
DECAY = 0.95
COLUMNS = [
    "data", "learner", "rate", "strength", "memory_size", "epochs", "seed", "blocks", "lml", "error", "past_lml",
    "past_error", "seconds", "commit", "command",
]  # fmt: skip
Block = tuple[Tensor, Tensor]
# Scores rows by log-likelihood and error; learns a block.
Learner = tuple[Callable[[Tensor, Tensor], tuple[float, float]], Callable[[Tensor, Tensor], None]]


def ours(key: dict[str, Any], features: int, classes: int) -> Learner:
    """Return a learner with a memory."""
    chosen = dict(OURS[key["learner"]])
    if chosen:
        chosen["memory_size"] = key["memory_size"]
    generator = torch.Generator().manual_seed(key["seed"])
    network = network_of(STREAMS[key["data"]], features, classes)
    learner = learners.vb(network, learners.CategoricalLikelihood(), 1.0, prior="layers", generator=generator, **chosen)
    belief = learner.init()

    def score(inputs: Tensor, target: Tensor) -> tuple[float, float]:
        with torch.no_grad():
            return log_marginal(learner, belief, inputs, target, generator)

    def learn(inputs: Tensor, target: Tensor) -> None:
        nonlocal belief
        with torch.no_grad():
            belief = learner.update(belief, inputs, target, generator=generator)

    return score, learn


def peer(key: dict[str, Any], features: int, classes: int) -> Learner:
    """Return a learner of Avalanche: each block is an experience.

    Raises:
        SystemExit: If Avalanche is not installed.
    """
    try:
        from avalanche.benchmarks import benchmark_from_datasets  # pyright: ignore[reportMissingImports]
        from avalanche.benchmarks.utils import AvalancheDataset, TaskLabels  # pyright: ignore[reportMissingImports]
        from avalanche.training import Naive, ReservoirSamplingBuffer  # pyright: ignore[reportMissingImports]
        from avalanche.training.plugins import EWCPlugin, ReplayPlugin  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise SystemExit(f"{key['learner']} needs Avalanche: `pip install avalanche-lib` ({error})") from error
    network = network_of(STREAMS[key["data"]], features, classes)
    size = key["memory_size"]
    plugins = {
        "naive": lambda: [],
        "replay": lambda: [ReplayPlugin(size, storage_policy=ReservoirSamplingBuffer(size))],
        "ewc": lambda: [EWCPlugin(key["strength"], mode="online", decay_factor=DECAY)],
    }[key["learner"]]()
    strategy = Naive(
        model=network,
        optimizer=torch.optim.Adam(network.parameters(), key["rate"]),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=STREAMS[key["data"]].block,
        train_epochs=key["epochs"],
        plugins=plugins,
        evaluator=None,
    )

    def score(inputs: Tensor, target: Tensor) -> tuple[float, float]:
        network.eval()
        with torch.no_grad():
            log_p = network(inputs).log_softmax(-1)
        places = target.long()
        wrong = log_p.argmax(-1, keepdim=True) != places
        return log_p.gather(-1, places).mean().item(), wrong.double().mean().item()

    def learn(inputs: Tensor, target: Tensor) -> None:
        rows = torch.utils.data.TensorDataset(inputs, target[:, 0].long())
        data = AvalancheDataset([rows], data_attributes=[TaskLabels([0] * len(rows))])
        for experience in benchmark_from_datasets(train=[data]).train_stream:
            strategy.train(experience)

    return score, learn


def run(key: dict[str, Any], blocks: list[Block]) -> dict[str, Any]:
    """Return the scores of one pass."""
    classes = int(max(target.max() for _, target in blocks)) + 1
    torch.manual_seed(key["seed"])
    score, learn = (ours if key["learner"] in OURS else peer)(key, blocks[0][0].shape[-1], classes)
    found, began = [], time.process_time()
    for inputs, target in tqdm(blocks, key["learner"], leave=False, disable=None):
        kept = torch.arange(len(target)) % 5 != 4
        found.append(score(inputs, target))
        learn(inputs[kept], target[kept])
    seconds = time.process_time() - began
    held_out = (torch.cat([parts[k][4::5] for parts in blocks]) for k in range(2))
    scores = (*torch.tensor(found)[len(found) // 2 :].mean(0).tolist(), *score(*held_out))
    names = ("lml", "error", "past_lml", "past_error")
    return {**{name: f"{x:.5f}" for name, x in zip(names, scores, strict=True)}, "seconds": f"{seconds:.1f}"}


def keys_of(options: argparse.Namespace, blocks: int) -> Iterator[dict[str, Any]]:
    """Yield what tells the runs apart, seed by seed."""
    for seed in options.seeds:
        for name in options.learners:
            bare = name in ("vb", "naive", "ewc")
            key = {"data": "gas", "learner": name, "memory_size": 0 if bare else options.size, "seed": seed}
            key["blocks"] = blocks
            if name in OURS:
                yield key | {"rate": 0.0, "strength": 0.0, "epochs": 0}
                continue
            for rate in RATES:
                for strength in PEERS[name]:
                    yield key | {"rate": rate, "strength": strength, "epochs": options.epochs}


def summary(table: pathlib.Path) -> str:
    """Return means and standard errors over the seeds."""
    lines = []
    for names, rows in pd.read_csv(table).groupby(["learner", "rate", "strength"], sort=False):
        scores = [rows[column] for column in ("lml", "error", "past_lml", "past_error")]
        cells = [f"{x.mean():.3f} ± {x.sem():.3f}" if len(x) > 1 else f"{x.iloc[0]:.3f}" for x in scores]
        named = names if isinstance(names, tuple) else (names,)
        lines.append("| " + " | ".join([*map(str, named), *cells, str(len(rows))]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=25, help="observations that a memory keeps")
    parser.add_argument("--epochs", type=int, default=30, help="passes of Avalanche's learners over a block")
    parser.add_argument("--blocks", type=int, help="of the stream at most; default: all")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "memory" / "results" / "memory_peers.csv"
    )
    parser.add_argument("--summary", action="store_true", help="print the table's means, and run nothing")
    options = parser.parse_args()
    if options.summary:
        sys.stdout.write(summary(options.output) + "\n")
        return
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = provenance(options.output)
    blocks = list(blocks_of(STREAMS["gas"]))[: options.blocks]
    for key in keys_of(options, len(blocks)):
        if has_row(options.output, key):
            continue
        found = run(key, blocks)
        append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
        tqdm.write(str(key | found))


if __name__ == "__main__":
    main()
