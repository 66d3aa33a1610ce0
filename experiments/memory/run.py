"""What a memory is worth to online variational Bayes, a line for each run: results/memory.csv.

    python experiments/memory/run.py                                     # the table, linearised; hours on one core
    python experiments/memory/run.py --data yacht --memories grs --seeds 0 1
    python experiments/memory/run.py --fit adam --data concrete yacht    # by Adam, with far fewer steps than published
    python experiments/memory/run.py --data mnist --device cuda
    python experiments/memory/run.py --sizes                             # error against the size of the memory

The protocol of Kurle et al. (2020, section 6.1): a fifth of a set is held out at random, the rest comes in blocks, the
first of which is larger. After each block the log-likelihood of a held-out target under the belief is averaged over
those targets (the log marginal likelihood). `lml` is its mean over the last tenth of the blocks, and `curve` has it
after each tenth. `error` is the RMSE in standard deviations of the target, or the part of wrong classes, likewise.
Inputs, and targets that are numbers, are standardised by the training part.

The paper does not say what the noise of numbers is: here it is fixed for each set, and was chosen by `--tune` on a seed
that the table does not have, for the memory "random". Published are 50 000 steps of Adam for the first block and 10 000
for each later one. The linearised fit needs no such steps; those of `adam` are in the table.

Sets are those that `datasets/streams.py` prepared: concrete, boston, energy, yacht and wine-red by `uci-regression
FILE --name ..`, spambase, and mnist (`--part test`: 10 000 images). Finished runs are not computed again, and seeds are
the outer loop: a table that was stopped early has fewer seeds of all.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, append_rows, has_row, widen
from tsforecast import learners
from tsforecast.cli.provenance import provenance
from tsforecast.learners.memory.memory_learner import MemoryLearner, Remembered
from tsforecast.online.stream import read_stream


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a set is learnt (Kurle et al. 2020, table 2).

    Attributes:
        first: Observations of the first block.
        block: Of each later one.
        size: Of the memory in the table.
        sizes: Of the memory where these are compared.
        hidden: Widths of the layers.
        noise: Variance of a standardised number around the network; None for classes.
    """

    first: int
    block: int
    size: int
    sizes: tuple[int, ...]
    hidden: tuple[int, ...]
    noise: float | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """A run.

    Attributes:
        data: Name of the set.
        row: Name of the memory.
        size: Of the memory.
        fit: Name of the fit.
        noise: Variance of a number; None for classes.
        seed: Of the split, the initial values and what is drawn.
    """

    data: str
    row: str
    size: int
    fit: str
    noise: float | None
    seed: int


NUMBERS = (5, 10, 15, 20, 25)
CLASSES = (10, 20, 25, 30, 50)
SETS = {
    "concrete": Setting(100, 10, 15, NUMBERS, (16, 16), 0.1),
    "boston": Setting(100, 10, 15, NUMBERS, (16, 16), 0.1),
    "energy": Setting(100, 10, 15, NUMBERS, (16, 16), 0.03),
    "yacht": Setting(100, 10, 15, NUMBERS, (16, 16), 0.01),
    "spambase": Setting(250, 25, 25, CLASSES, (32, 32)),
    "wine-red": Setting(250, 25, 25, CLASSES, (32, 32)),
    "mnist": Setting(2500, 250, 150, (50, 100, 150, 200, 250), (64, 64)),
}
MEMORIES: dict[str, dict[str, Any]] = {
    "none": {"memory": "none"},
    "random": {"memory": "random"},
    "k-center": {"memory": "k-center"},
    "grs": {"memory": "grs", "score": "grs"},
    "grs-centred": {"memory": "grs", "score": "centred"},
    "grs-variance": {"memory": "grs", "score": "residual_variance"},
}
FITS: dict[str, learners.AdamFit | learners.LinearisedFit] = {
    "linearised": learners.LinearisedFit(),
    "adam": learners.AdamFit(iterations=300, first=3000, draws=8, term_draws=1000),
}
NOISES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
DRAWS = 200  # of the outputs, for a marginal likelihood without closed form
COLUMNS = [
    "data", "fit", "steps", "memory", "memory_size", "noise", "seed", "blocks", "lml", "error", "curve",
    "milliseconds_per_block", "device", "commit", "command",
]  # fmt: skip
KEY = ("data", "fit", "steps", "memory", "memory_size", "noise", "seed")


def load(name: str, numbers: bool) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a prepared set; of classes their places in the order of their names.

    Args:
        name: Of the set.
        numbers: Whether targets are numbers.
    """
    items = list(read_stream(name, "target"))
    inputs = torch.tensor([[float(x) for x in item.features.values()] for item in items])
    if not numbers:
        places = {label: k for k, label in enumerate(sorted({item.target for item in items}))}
        return inputs, torch.tensor([[float(places[item.target])] for item in items])
    return inputs, torch.tensor([[float(item.target)] for item in items])


def split(inputs: Tensor, target: Tensor, seed: int, numbers: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training and held-out parts, standardised by the first."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]

    def scaled(x: Tensor) -> Tensor:
        sd = x[train].std(0)
        return (x - x[train].mean(0)) / torch.where(sd > 0, sd, 1.0)

    inputs, target = scaled(inputs), scaled(target) if numbers else target
    return inputs[train], target[train], inputs[test], target[test]


def make(job: Job, widths: tuple[int, int], device: torch.device) -> MemoryLearner:
    """Return the learner, with the prior and the initial values of the paper."""
    generator = torch.Generator().manual_seed(job.seed)
    pairs = itertools.pairwise((widths[0], *SETS[job.data].hidden, widths[1]))
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), nn.Tanh())][:-1]
    if job.noise is not None:
        likelihood: learners.AbstractLikelihood = learners.GaussianLikelihood(job.noise)
    else:
        likelihood = learners.BernoulliLikelihood() if widths[1] == 1 else learners.CategoricalLikelihood()
    return learners.vb(
        nn.Sequential(*layers).to(device), likelihood, 1.0, memory_size=job.size, fit=FITS[job.fit], prior="layers",
        generator=generator, **MEMORIES[job.row],
    )  # fmt: skip


def log_marginal(
    learner: MemoryLearner, belief: Remembered, inputs: Tensor, target: Tensor, generator: torch.Generator
) -> tuple[float, float]:
    """Return the mean of log E_q[p(target | w)], and the error of the mean of E_q[f(w)].

    By the linearised network for a linearised fit, and by draws of the network for Adam's.
    """
    network, likelihood = learner.network, learner.likelihood
    if isinstance(learner.fit, learners.AdamFit):
        moments = belief.fitted.mean.unsqueeze(0), belief.fitted.variance.unsqueeze(0)
        parts = [network.draw(*moments, inputs.unsqueeze(0), generator)[0] for _ in range(DRAWS)]
        draws = torch.stack(parts)
    else:
        outputs, cov = learners.Diagonal().outputs(belief.fitted, network, inputs)
        if isinstance(likelihood, learners.GaussianLikelihood):
            found = likelihood.predict(outputs, cov, target, None)
            return found.log_prob.mean().item(), (found.mean - target).square().mean().sqrt().item()
        root = torch.linalg.cholesky(cov + 1e-9 * torch.eye(cov.shape[-1]).to(cov))
        noise = torch.randn(DRAWS, *outputs.shape, generator=generator).to(outputs)
        draws = outputs + torch.einsum("noi,kni->kno", root, noise)
    log_prob = torch.stack([likelihood.log_prob(f, target, None) for f in draws])
    lml = (torch.logsumexp(log_prob, 0) - math.log(len(draws))).mean().item()
    if isinstance(likelihood, learners.GaussianLikelihood):
        return lml, (draws.mean(0) - target).square().mean().sqrt().item()
    p = draws.sigmoid().mean(0) if draws.shape[-1] == 1 else draws.softmax(-1).mean(0)
    best = (p > 0.5).double() if p.shape[-1] == 1 else p.argmax(-1, keepdim=True).double()
    return lml, (best != target).double().mean().item()


def run(data: tuple[Tensor, Tensor], job: Job) -> dict[str, Any]:
    """Return the scores of one pass over the blocks of a set."""
    inputs, target, test_inputs, test_target = split(*data, job.seed, job.noise is not None)
    outputs = 1 if job.noise is not None else int(data[1].max()) + 1
    learner = make(job, (inputs.shape[-1], 1 if outputs == 2 else outputs), inputs.device)
    generator, setting = torch.Generator().manual_seed(job.seed), SETS[job.data]
    blocks = [setting.first] + [setting.block] * ((len(inputs) - setting.first) // setting.block)
    belief, last, curve, seconds = learner.init(), [], [], 0.0
    tenths = {round(len(blocks) * k / 10) - 1 for k in range(1, 11)}
    starts = [0, *itertools.accumulate(blocks)]
    for k, (a, b) in enumerate(itertools.pairwise(starts)):
        began = time.process_time()
        belief = learner.update(belief, inputs[a:b], target[a:b], generator=generator)
        seconds += time.process_time() - began
        if k in tenths or k >= 0.9 * len(blocks):
            found = log_marginal(learner, belief, test_inputs, test_target, generator)
            curve += [f"{found[0]:.4g}"] if k in tenths else []
            last += [found] if k >= 0.9 * len(blocks) else []
    lml, error = (sum(x) / len(x) for x in zip(*last, strict=True))
    return {
        "blocks": len(blocks), "lml": f"{lml:.5f}", "error": f"{error:.5f}", "curve": " ".join(curve),
        "milliseconds_per_block": f"{1e3 * seconds / len(blocks):.2f}",
    }  # fmt: skip


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Return the runs, seed by seed."""
    jobs = []
    for seed, name, row in itertools.product(options.seeds, options.data, options.memories):
        setting = SETS[name]
        sizes = (0,) if row == "none" else setting.sizes if options.sizes else (setting.size,)
        noises = NOISES if options.tune and setting.noise is not None else (setting.noise,)
        jobs += [Job(name, row, size, options.fit, noise, seed) for size in sizes for noise in noises]
    return jobs


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=[x for x in SETS if x != "mnist"], choices=SETS)
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES), choices=MEMORIES)
    parser.add_argument("--fit", default="linearised", choices=FITS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(8)))
    parser.add_argument("--sizes", action="store_true", help="all sizes of a memory, instead of that of the table")
    parser.add_argument("--tune", action="store_true", help="all noises")
    parser.add_argument("--device", default="cpu", help="of the learner")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "memory" / "results" / "memory.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = {"device": options.device, **provenance(options.output)}
    loaded = {name: load(name, SETS[name].noise is not None) for name in options.data}
    sets = {name: (x.to(options.device), y.to(options.device)) for name, (x, y) in loaded.items()}
    fit = FITS[options.fit]
    steps = f"{fit.first}, {fit.iterations}" if isinstance(fit, learners.AdamFit) else str(fit.passes)
    for job in tqdm(jobs_of(options), mininterval=10, smoothing=0, disable=None):
        key = {"data": job.data, "fit": job.fit, "steps": steps, "memory": job.row, "memory_size": job.size}
        key |= {"noise": "" if job.noise is None else job.noise, "seed": job.seed}
        if has_row(options.output, key):
            continue
        with torch.no_grad():
            found = run(sets[job.data], job)
        widen(options.output, COLUMNS)
        append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
        tqdm.write(json.dumps(key | found))


if __name__ == "__main__":
    main()
