"""Our optimiser beside others on functions with a known least value: results/bayesopt.csv.

    python experiments/bayesopt/run.py                                  # everything; an hour on one core
    python experiments/bayesopt/run.py --methods vd-ekf random --functions branin --seeds 100 101
    python experiments/bayesopt/run.py --summary                        # prints the table and draws what is there

Methods: `random` search; `tpe`, Optuna's sampler with its defaults; `gp`, a Gaussian process of scikit-learn (Matern
5/2 with a length scale for each coordinate, hyperparameters by marginal likelihood for every point) with expected
improvement; `botorch`, its `SingleTaskGP` with `LogExpectedImprovement` and their defaults, where BoTorch is installed
(`pip install botorch`; it is no dependency of ours); `ei` and `mixed`, `Optimiser` with these acquisitions, the second
its default; and, by name of the learner, `Optimiser` with Thompson sampling. `mixed` begins with five Sobol points, its
default, and the others but `random` and `tpe` with ten, of which these are the first. Settings of ours were chosen on
seeds below 10; the table's are from 100 on.
Simple regret is the least value so far minus that of the function. Seconds are of the CPU. Finished rows are not
computed again.
"""

import argparse
import importlib.util
import itertools
import pathlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy import optimize, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, fill, has_row
from tsforecast.decisions.functions import FUNCTIONS, TestFunction
from tsforecast.decisions.optimisation import Optimiser
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.learners.config import LearnerConfig
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.style import style_axis

LEARNERS = ("vd-ekf", "lofi", "ekf")
COLUMNS = [
    "function", "method", "seed", "evaluations", "regret_20", "regret_50", "regret_100", "seconds", "regrets", "commit",
    "command",
]  # fmt: skip
INITIAL = 10
Search = Callable[[TestFunction, int, int], np.ndarray]  # function, evaluations, seed -> values in order


def at(function: TestFunction, place: np.ndarray) -> float:
    """Return the value at a point of the unit box."""
    low, high = np.array(function.low), np.array(function.high)
    return function(torch.from_numpy(low + place * (high - low))).item()


def search_randomly(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
    """Uniform points."""
    places = np.random.default_rng(seed).random((evaluations, function.dim))
    return np.array([at(function, place) for place in places])


def search_by_tpe(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
    """Optuna's tree-structured Parzen estimator."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        return at(function, np.array([trial.suggest_float(f"x{k}", 0, 1) for k in range(function.dim)]))

    study.optimize(objective, evaluations)
    return np.array([trial.value for trial in study.trials], dtype=np.float64)


def search_by_gp(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
    """Expected improvement under a Gaussian process, climbed from the best of many candidates."""
    rng, dim = np.random.default_rng(seed), function.dim
    scales: Any = np.full(dim, 0.3)  # the stubs know of one alone
    places = torch.quasirandom.SobolEngine(dim, scramble=True, seed=seed).draw(INITIAL, dtype=torch.float64).numpy()
    values = np.array([at(function, place) for place in places])
    while len(values) < evaluations:
        scaled = (values - values.mean()) / values.std()
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(scales, (1e-2, 1e2), nu=2.5)
        kernel = kernel + WhiteKernel(1e-4, (1e-8, 1e-1))
        model = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=seed).fit(places, scaled)
        good = places[scaled.argsort()[np.arange(300) % 5]]
        near = good + 10 ** (-1 - 2 * rng.random((300, 1))) * rng.normal(size=good.shape)
        candidates = np.concatenate([rng.random((1000, dim)), near.clip(0, 1)])
        best = most_promising(model, candidates, scaled.min())
        places, values = np.vstack([places, best]), np.append(values, at(function, best))
    return values


def most_promising(model: GaussianProcessRegressor, candidates: np.ndarray, least: float) -> np.ndarray:
    """Return the point with the largest expected improvement: the best candidate, or where the best four lead to."""

    def loss(x: np.ndarray) -> np.ndarray:
        mean, sd = model.predict(np.atleast_2d(x), return_std=True)
        sd = np.maximum(sd, 1e-9)
        z = (least - mean) / sd
        return -sd * (z * stats.norm.cdf(z) + stats.norm.pdf(z))

    losses = loss(candidates)
    best, lowest = candidates[losses.argmin()], losses.min()
    bounds = [(0, 1)] * candidates.shape[1]
    for start in candidates[losses.argsort()[:4]]:
        found = optimize.minimize(lambda x: loss(x)[0], start, bounds=bounds, options={"maxiter": 20})
        if found.fun < lowest:
            best, lowest = found.x, found.fun
    return best


def search_by_botorch(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
    """Expected improvement of BoTorch, with the defaults of its documentation."""
    from botorch.acquisition import LogExpectedImprovement  # pyright: ignore[reportMissingImports]
    from botorch.fit import fit_gpytorch_mll  # pyright: ignore[reportMissingImports]
    from botorch.models import SingleTaskGP  # pyright: ignore[reportMissingImports]
    from botorch.optim import optimize_acqf  # pyright: ignore[reportMissingImports]
    from gpytorch.mlls import ExactMarginalLogLikelihood  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    places = torch.quasirandom.SobolEngine(function.dim, scramble=True, seed=seed).draw(INITIAL, dtype=torch.float64)
    values = torch.tensor([at(function, place) for place in places.numpy()], dtype=torch.float64)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, function.dim)
    while len(values) < evaluations:
        model = SingleTaskGP(places, -values[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        promise = LogExpectedImprovement(model, best_f=-values.min())
        best, _ = optimize_acqf(promise, bounds, q=1, num_restarts=10, raw_samples=512)
        places = torch.cat([places, best])
        values = torch.cat([values, values.new_tensor([at(function, best[0].numpy())])])
    return values.numpy()


def search_by_acquisition(acquisition: str, initial: int) -> Search:
    """Return ours with an acquisition and so many Sobol points, else with defaults."""

    def search(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
        optimiser = Optimiser(function.low, function.high, initial=initial, seed=seed, acquisition=acquisition)
        return optimiser.minimise(function, evaluations).values.numpy()

    return search


def search_by_thompson(learner: str) -> Search:
    """Return ours with a learner."""

    def search(function: TestFunction, evaluations: int, seed: int) -> np.ndarray:
        surrogate = Surrogate(LearnerConfig(learner))
        settings = {"initial": INITIAL, "seed": seed, "acquisition": "thompson"}
        optimiser = Optimiser(function.low, function.high, surrogate, **settings)
        return optimiser.minimise(function, evaluations).values.numpy()

    return search


METHODS: dict[str, Search] = {
    "random": search_randomly,
    **{name: search_by_thompson(name) for name in LEARNERS},
    "tpe": search_by_tpe,
    "gp": search_by_gp,
    "ei": search_by_acquisition("ei", INITIAL),
    "mixed": search_by_acquisition("mixed", Optimiser.initial),
    "botorch": search_by_botorch,
}


def summarise(path: pathlib.Path) -> str:
    """Return medians, means and standard errors of the regret after the last evaluation, and seconds."""
    table = pd.read_csv(path)
    groups = table.groupby(["function", "method"], sort=False)
    found = groups.agg(
        runs=("seed", "count"),
        median_50=("regret_50", "median"),
        median_100=("regret_100", "median"),
        mean_100=("regret_100", "mean"),
        sem_100=("regret_100", "sem"),
        seconds=("seconds", "mean"),
    )
    return found.map("{:.3g}".format).to_string()


def draw(path: pathlib.Path) -> Figure:
    """Draws medians of the regret with quartiles against evaluations, a panel for each function."""
    table = pd.read_csv(path)
    shown = [name for name in METHODS if name in set(table["method"]) and name not in ("ekf", "ei", "botorch")]
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axis, name in zip(figure.subplots(2, 2).flat, FUNCTIONS, strict=True):
        for method, colour in zip(shown, COLOURS, strict=False):
            part = table[(table["function"] == name) & (table["method"] == method)]
            if part.empty:
                continue
            curves = np.array([[float(x) for x in text.split()] for text in part["regrets"]])
            low, middle, high = np.quantile(curves, (0.25, 0.5, 0.75), axis=0)
            steps = np.arange(1, curves.shape[1] + 1)
            axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axis.plot(steps, middle, color=colour, linewidth=1.5, label=method)
        axis.set_title(name, loc="left", fontsize=10)
        axis.set(yscale="log", xlabel="evaluations", ylabel="simple regret")
        style_axis(axis)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Runs what is not in the table yet, and draws it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    installed = [name for name in METHODS if name != "botorch" or importlib.util.find_spec("botorch")]
    parser.add_argument("--methods", nargs="+", default=installed, choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(100, 120)))
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "bayesopt" / "results" / "bayesopt.csv"
    )
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs" / "images" / "bayesopt.png")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of scikit-learn, about bounds of hyperparameters that are reached

    def run(job: tuple[str, int, str]) -> list[dict[str, Any]]:
        method, seed, name = job
        began, function = time.process_time(), FUNCTIONS[name]
        values = METHODS[method](function, options.evaluations, seed)
        seconds = time.process_time() - began
        regrets = np.minimum.accumulate(values) - function.least
        row = {
            "function": name,
            "method": method,
            "seed": seed,
            "evaluations": len(values),
            "seconds": f"{seconds:.2f}",
        }
        row |= {f"regret_{k}": f"{regrets[k - 1]:.4g}" for k in (20, 50, 100) if k <= len(values)}
        row |= {"seconds": f"{seconds:.2f}"}
        return [row | {"regrets": " ".join(f"{x:.3g}" for x in regrets)}]

    jobs = [] if options.summary else list(itertools.product(options.methods, options.seeds, options.functions))
    key = ("method", "seed", "function")
    numbers = {"evaluations": options.evaluations}
    rest = [job for job in jobs if not has_row(options.output, dict(zip(key, job, strict=True)) | numbers)]
    fill(options.output, COLUMNS, rest, run, summarise)
    if options.output.exists():
        save_figure(draw(options.output), options.picture)


if __name__ == "__main__":
    main()
