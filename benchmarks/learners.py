"""What does a step of an online learner cost, beside a plain torch loop, and how does the cost grow?

    python benchmarks/learners.py                         # the problems, then growth; a quarter of an hour on one core
    python benchmarks/learners.py --problems digits       # a part of it; see --help

Needs `pip install -e .[bench,online]`.

Problems: one observation a step of diabetes (MLP 10-50-1, Gaussian), breast cancer (30-20-2, two classes) and digits
(64-20-10, ten classes), as scikit-learn ships them, in float32. Contenders: this library, eager and compiled (`run`
with compiled=True), the formulas written out in a plain loop (the Jacobian by `torch.func.jacrev`), river's linear
models (scaling and logistic or linear regression) and, beside vd-ekf, the compiled loop with sixteen steps in each
round ("unrolled") and the diagonal filter of posteriors (by the empirical Fisher: another algorithm of the same cost).
All take turns in one process: compare ratios; a turn is a pass over the stream, or as many as take .1 s. The plain loop
is the one beside which step times of rebayes and BONG are known: it asks the network for the outputs that are scored,
then for the mean, then for the Jacobian. Its predictions must agree with the library's first. Gradients are off.
"batch": 100 learners of different streams by `run_many`, beside one; not of ekf, a hundred of whose covariances take
gigabytes.

Growth ("growth-WEIGHTS-OUTPUTS"): seconds and peak memory (in vectors of the weights, above what the process had
before) of one update with many weights, beside the Jacobian of the same network alone, in a process of its own: as the
update has it, which is in closed form for layers ("of_jacobian"), and by `torch.func.jacrev` ("of_jacrev"). Of layers
on a vector the Jacobian costs hardly more than writing it; "-convolutions" is of an image, whose weights are shared.
"""

import argparse
import itertools
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "runs"))
PROBLEMS = ["diabetes", "cancer", "digits"]
LEARNERS = ["vd-ekf", "decoupled-ekf", "lofi-10", "lofi-20", "ekf", "ogd"]
CONVOLUTIONS = "1000000-10-convolutions"
# Weights and outputs of the growth rows, by learner; the full family has a covariance of all pairs.
GROWTH = {
    "ekf": ("500-1", "1000-1", "2000-1", "2000-10"),
    "vd-ekf": ("100000-1", "1000000-1", "10000000-1", "1000000-10", CONVOLUTIONS),
    "lofi-10": ("100000-1", "1000000-1", "10000000-1", "1000000-10", CONVOLUTIONS),
    "lofi-40": ("1000000-1",),
}
KEY = ("problem", "learner", "hardware", "threads", "contender")
RESULTS = (
    "weights", "rounds", "us_per_step", "times_faster_than_plain", "of_jacobian", "of_jacrev", "peak_vectors",
    "first_call_s", "error", "versions",
)  # fmt: skip


def plain_steps(
    problem: str, name: str, widths: tuple[int, ...], weights: Any, variance: float, noise: float | None
) -> Any:
    """The textbook's loop: a function from a stream to the predictions of each step."""
    import torch

    shapes = list(itertools.pairwise(widths))

    def outputs(theta: Any, x: Any) -> Any:
        start = 0
        for k, (fan_in, fan_out) in enumerate(shapes):
            matrix = theta[start : start + fan_in * fan_out].view(fan_out, fan_in)
            bias = theta[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
            start += (fan_in + 1) * fan_out
            x = matrix @ x + bias
            x = torch.relu(x) if k < len(shapes) - 1 else x
        return x

    def mean(theta: Any, x: Any) -> Any:
        return outputs(theta, x) if noise is not None else outputs(theta, x).softmax(-1)

    jacobian_of = torch.func.jacrev(mean)
    eye = torch.eye(widths[-1])

    def covariance(predicted: Any) -> Any:
        return noise * eye if noise is not None else predicted.diag() - predicted.outer(predicted) + 1e-4 * eye

    def run(inputs: Any, targets: Any) -> Any:
        m = weights.clone()
        rank = int(name.split("-")[1]) if name.startswith("lofi") else 0
        spread = variance * torch.eye(len(m)) if name == "ekf" else torch.full_like(m, variance)
        diagonal, columns = torch.full_like(m, 1 / variance), torch.zeros(len(m), rank)
        predictions = []
        for x, y in zip(inputs, targets, strict=True):
            found = outputs(m, x)
            predictions.append(found if noise is not None else found.softmax(-1))
            predicted = mean(m, x)
            jacobian, r, e = jacobian_of(m, x), covariance(predicted), y - predicted
            if name == "ekf":
                cross = spread @ jacobian.T
                gain = torch.cholesky_solve(cross.T, torch.linalg.cholesky(jacobian @ cross + r)).T
                m, spread = m + gain @ e, spread - gain @ cross.T
            elif name == "ogd":
                m = m + 0.01 * jacobian.T @ torch.linalg.solve(r, e)
            elif name.startswith("lofi"):
                root = torch.linalg.cholesky(torch.linalg.inv(r))
                wide = torch.cat([columns, jacobian.T @ root], 1)
                inner = torch.eye(wide.shape[1]) + wide.T @ (wide / diagonal[:, None])
                score = (jacobian.T @ torch.linalg.solve(r, e)) / diagonal
                m = m + score - (wide / diagonal[:, None]) @ torch.linalg.solve(inner, wide.T @ score)
                rotated = wide @ torch.linalg.eigh(wide.T @ wide)[1]
                dropped = rotated.shape[1] - rank
                diagonal, columns = diagonal + rotated[:, :dropped].square().sum(1), rotated[:, dropped:]
            else:
                cross = jacobian * spread
                gain = torch.linalg.solve(cross @ jacobian.T + r, cross).T
                m = m + gain @ e
                if name == "decoupled-ekf":
                    spread = spread - spread * (gain * jacobian.T).sum(1)
                else:
                    spread = 1 / (1 / spread + (torch.linalg.solve(r, jacobian) * jacobian).sum(0))
        return torch.stack(predictions)

    return run


def make(problem: str, name: str, steps: int) -> tuple[dict[str, Callable[[], Any]], int]:
    """What each contender does, and the number of weights."""
    import torch
    from online import STREAMS, load, make_network  # pyright: ignore[reportMissingImports]

    from tsforecast import learners
    from tsforecast.core.gaussian import map_tensors
    from tsforecast.learners.loop import run, run_many

    widths, variance, noise, _ = STREAMS[problem]
    inputs, target, _, _ = load(problem, 0)
    inputs, target = inputs[:steps], target[:steps]
    network = make_network(widths, 0)
    likelihood = (
        learners.GaussianLikelihood(noise) if noise is not None else learners.CategoricalLikelihood(jitter=1e-4)
    )
    if name == "ogd":
        learner = learners.ogd(network, likelihood)
    elif name.startswith("lofi"):
        learner = learners.lofi(network, likelihood, variance, rank=int(name.split("-")[1]))
    else:
        learner = learners.LEARNERS[name](network, likelihood, variance)
    one_hot = target if noise is not None else torch.nn.functional.one_hot(target[:, 0].long(), widths[-1]).float()
    plain = plain_steps(problem, name, widths, learners.weights_of(network), variance, noise)
    rows = (inputs.unsqueeze(1), target.unsqueeze(1))
    belief = learner.init()
    orders = torch.stack([torch.randperm(len(inputs), generator=torch.Generator().manual_seed(k)) for k in range(100)])

    streams = [x[orders].transpose(0, 1).unsqueeze(2) for x in (inputs, target)]
    beliefs = map_tensors(lambda x: x.expand(len(orders), *x.shape), belief)
    batches = {
        "tsforecast batch of 100": lambda: run_many(learner, beliefs, *streams)[1].mean,
        "tsforecast batch of 100 compiled": lambda: run_many(learner, beliefs, *streams, compiled=True)[1].mean,
    }

    def unrolled() -> Any:
        return run(learner, belief, *rows, compiled=True, unroll=16)[1].mean[:, 0]

    return {
        "plain": lambda: plain(inputs, one_hot),
        "tsforecast": lambda: run(learner, belief, *rows)[1].mean[:, 0],
        "tsforecast compiled": lambda: run(learner, belief, *rows, compiled=True)[1].mean[:, 0],
        **({"tsforecast compiled, unrolled": unrolled} if name == "vd-ekf" else {}),
        **({} if name == "ekf" else batches),  # covariances of a hundred take gigabytes
        "river linear": river_loop(inputs.numpy(), target[:, 0].numpy(), noise is None),
        **posteriors_loop(name, network, inputs, target, variance, noise),
    }, learners.weights_of(network).numel()


def river_loop(inputs: Any, target: Any, classes: bool) -> Callable[[], Any]:
    """River's linear model over the same stream."""
    from river import linear_model, multiclass, preprocessing

    def run() -> None:
        if classes:
            model = preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
        else:
            model = preprocessing.StandardScaler() | linear_model.LinearRegression()
        for x, y in zip(inputs, target.tolist(), strict=True):
            row = dict(enumerate(x.tolist()))
            model.predict_one(row)
            model.learn_one(row, int(y) if classes else y)

    return run


def posteriors_loop(
    name: str, network: Any, inputs: Any, target: Any, variance: float, noise: float | None
) -> dict[str, Callable[[], Any]]:
    """The diagonal filter of posteriors over the same network and stream (its full one fails in float32)."""
    if name != "vd-ekf":
        return {}
    import torch
    from posteriors import ekf  # pyright: ignore[reportMissingImports]

    parameters = {key: p.detach().clone() for key, p in network.named_parameters()}

    def log_likelihood(theta: Any, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        found = torch.func.functional_call(network, theta, (x,))
        if noise is None:
            return -torch.nn.functional.cross_entropy(found, y[:, 0].long(), reduction="none"), found
        return -((found - y).square().sum(-1)) / (2 * noise), found

    filtering: Any = ekf.diag_fisher.build(log_likelihood, 1.0, per_sample=True, init_sds=variance**0.5)

    def run() -> None:
        state = filtering.init(parameters)
        for k in range(len(inputs)):
            state, _ = filtering.update(state, (inputs[k : k + 1], target[k : k + 1]), inplace=False)

    return {"posteriors": run}


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """All contenders of one problem and learner, in turns."""
    import torch

    from tsforecast.cli.memory import keep_freed_memory

    torch.set_num_threads(job["threads"])
    keep_freed_memory()  # as the commands do; else covariances of megabytes are fresh pages at every step, for everyone
    functions, weights = make(job["problem"], job["learner"], job["steps"])
    with torch.no_grad():
        truth = functions["plain"]()
        errors, first = {}, {}
        for name, function in functions.items():
            began = time.perf_counter()
            result = function()
            first[name] = time.perf_counter() - began
            if name.startswith("tsforecast") and "batch" not in name:
                errors[name] = (result - truth).abs().max().item()
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(job["rounds"]):
            for name, function in functions.items():
                if name == "river linear" and job["learner"] != LEARNERS[0]:
                    continue
                seconds[name].append(_seconds(function))
    steps = len(truth)
    rows = []
    for name, taken in seconds.items():
        if not taken:
            continue
        ratio = statistics.median(p / t for p, t in zip(seconds["plain"], taken, strict=True))
        row = {
            "contender": name,
            "weights": weights,
            "rounds": len(taken),
            "us_per_step": f"{1e6 * min(taken) / steps:.1f}",
        }
        row |= {"times_faster_than_plain": f"{ratio:.2f}"}
        if "compiled" in name:
            row["first_call_s"] = f"{first[name]:.1f}"
        if name in errors:
            row["error"] = f"{errors[name]:.1e}"
        rows.append(row)
    return rows


def _seconds(function: Callable[[], Any]) -> float:
    """CPU time of a call: the mean of as many as take a tenth of a second."""
    began, calls = time.process_time(), 0
    while not calls or time.process_time() - began < 0.1:
        function()
        calls += 1
    return (time.process_time() - began) / calls


def grow(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One learner with many weights: of one hidden layer over 99 inputs and a bias, or of convolutions of an image."""
    import torch
    from torch import nn

    from tsforecast import learners

    torch.set_num_threads(job["threads"])
    weights, outputs = map(int, job["growth"].split("-")[:2])
    y = torch.randn(1, outputs)
    if job["growth"] == CONVOLUTIONS:
        x, channels = torch.randn(1, 3, 32, 32), (3, 64, 128, 256, 256)
        layers = [nn.Conv2d(a, b, 3, 1 if a == 3 else 2, 1) for a, b in itertools.pairwise(channels)]
        steps = [step for layer in layers for step in (layer, nn.ReLU())]
        network = nn.Sequential(*steps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], outputs))
        first = learners.as_network(nn.Sequential(nn.Conv2d(3, 1, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
        first.linearise(torch.zeros(first.size), x)  # what torch loads for this is no memory of the update
    else:
        x, hidden = torch.randn(1, 99), max(round(weights / (100 + outputs)), 1)
        network = nn.Sequential(nn.Linear(99, hidden), nn.Tanh(), nn.Linear(hidden, outputs, bias=False))
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    rank = {"rank": int(job["learner"].split("-")[1])} if job["learner"].startswith("lofi") else {}
    learner = learners.LEARNERS["lofi" if rank else job["learner"]](
        network, learners.GaussianLikelihood(1.0), 0.01, **rank
    )
    belief = learner.init()
    mean = learner.weights(belief)
    before = _resident()
    size = learner.network.size
    count = 3 if weights > 10**6 else 10
    seconds: dict[str, list[float]] = {"jacobian": [], "update": [], "jacrev": []}
    for _ in range(count):
        began = time.process_time()
        learner.network.linearise(mean, x)
        middle = time.process_time()
        belief = learner.update(belief, x, y)
        seconds["jacobian"].append(middle - began)
        seconds["update"].append(time.process_time() - middle)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / (4 * size)
    jacobian_of = torch.func.jacrev(lambda theta: learner.network(theta, x))
    for _ in range(count):  # after the peak, to which it does not belong
        began = time.process_time()
        jacobian_of(mean)
        seconds["jacrev"].append(time.process_time() - began)
    usual = {name: statistics.median(times) for name, times in seconds.items()}
    row = {"contender": "tsforecast", "weights": size, "rounds": count}
    row |= {"us_per_step": f"{1e6 * min(seconds['update']):.0f}", "peak_vectors": f"{peak:.1f}"}
    return [row | {f"of_{name}": f"{usual['update'] / usual[name]:.2f}" for name in ("jacobian", "jacrev")}]


def _resident() -> int:
    """Bytes that the process holds."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measures what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--learners", nargs="+", default=LEARNERS, choices=LEARNERS)
    parser.add_argument("--growth", nargs="*", default=list(GROWTH), choices=list(GROWTH))
    parser.add_argument("--steps", type=int, default=353, help="of each stream (default 353)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results" / "learners_speed.csv")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        print(json.dumps((grow if "growth" in job else measure)(job)))
        return

    from importlib.metadata import version

    from rows import aligned, write
    from tqdm import tqdm

    from tsforecast.cli.provenance import provenance

    common = {"rounds": options.rounds, "threads": options.threads, "steps": options.steps}
    jobs = [common | {"problem": p, "learner": name} for p in options.problems for name in options.learners]
    jobs += [common | {"learner": name, "growth": kind} for name in options.growth for kind in GROWTH[name]]
    facts = {"hardware": _hardware(), "threads": options.threads}
    libraries = "; ".join(f"{name} {version(name)}" for name in ("torch", "river", "posteriors"))
    facts["versions"] = f"{libraries}; python {platform.python_version()}"
    provenance(options.out)
    rows: list[dict[str, Any]] = []
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    for job in (bar := tqdm(jobs, unit="run")):
        problem = job["problem"] if "problem" in job else f"growth-{job['growth']}"
        bar.set_description(f"{problem} {job['learner']}")
        command = [sys.executable, "-W", "ignore", __file__, "--job", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **limits})
        if done.returncode:
            raise SystemExit(f"{problem} {job['learner']} failed: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        rows += [{"problem": problem, "learner": job["learner"], **facts, **row} for row in found]
        write(options.out, rows, KEY, RESULTS)
    names = ("problem", "learner", "contender", *RESULTS[:9])
    lines = [names, *(tuple(str(row.get(name, "-")) for name in names) for row in rows)]
    print(aligned(lines, numbers=set(range(3, len(names)))))
    print(f"\nwritten to {options.out}")


def _hardware() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
