"""How well are regimes found, and what are they worth, where the truth is known? benchmarks/results/regimes.csv.

    python benchmarks/regimes.py --cases calm-wild --models markov,sgls --seeds 0     # goes on where it stopped

Each case is 20 daily series of 600 steps, whose last ten windows of 12 are forecast after one training. The oracle
knows all parameters: its filter is exact, or has 200 particles where the state is hidden or values are missing. Of each
model with its defaults: the share of all steps whose regime is right, under the best assignment of its regimes to the
true ones; its CRPS (mean quantile loss at 19 levels) divided by that of the oracle, and by that of the better of `issm`
and `gls`; and CPU seconds of its training.
"""

import argparse
import pathlib
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from rows import aligned, write
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm, poisson

from tsforecast import StateSpaceEstimator
from tsforecast.analysis.regimes import regime_report
from tsforecast.cli.provenance import provenance
from tsforecast.core import Gaussian, LinearGaussian, particles
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.regimes import chain
from tsforecast.data.task import ForecastTask

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERIES, STEPS, HORIZON, WINDOWS = 20, 600, 12, 10
TRAINING = STEPS - HORIZON * WINDOWS
LEVELS = np.arange(1, 20) / 20
SINGLE, MODELS = ("issm", "gls"), ("markov", "sgls", "rsgls-issm", "arsgls", "statsmodels")
PARTICLES, PATHS = 200, 1000
_NUGGET = 1e-10  # variance of what has no noise, which cannot be factorised


@dataclass(frozen=True)
class Case:
    """A switching system: y_t = c + a_1 y_{t-1} + a_2 y_{t-2} + v e_t, or of a hidden state.

    Attributes:
        rows: (c, a_1, a_2, v) of each regime; of counts, the rate alone.
        duration: Mean number of steps that a regime lasts.
        phases: A duration is the sum of so many geometric ones.
        pull: Effect of a covariate, known ahead, on the log odds to go to a later regime.
        gaps: Share of values that are missing.
        turns: Steps of a turn of a hidden state in two dimensions, by regime; 0 for none. Rows are then (0, damping, 0,
            noise), and its first number is observed with noise .2.
    """

    rows: tuple[tuple[float, ...], ...]
    duration: float = 50.0
    phases: int = 1
    pull: float = 0.0
    gaps: float = 0.0
    turns: tuple[float, ...] = ()

    @property
    def is_counts(self) -> bool:
        """Return whether values are Poisson counts."""
        return len(self.rows[0]) == 1

    @property
    def regime(self) -> np.ndarray:
        """Return the regime of each state of the chain: those of a regime are its phases."""
        return np.repeat(np.arange(len(self.rows)), self.phases)

    def transition(self, inputs: np.ndarray) -> np.ndarray:
        """Return probabilities to go from state to state, (time, series, state, state)."""
        count, phases = len(self.rows), self.phases
        size = count * phases
        leave = phases / self.duration
        found = np.zeros((*inputs.shape, size, size))
        for state in range(size):
            odds = leave / (1 - leave) * np.exp((1 if state < size // 2 else -1) * self.pull * inputs)
            going = odds / (1 + odds)
            found[..., state, state] = 1 - going
            first = np.arange(count) * phases
            ends = (state + 1) % phases == 0
            after = [k for k in first if k // phases != state // phases] if ends else [state + 1]
            for other in after:
                found[..., state, other] = going / len(after)
        return found


_CALM, _WILD = (0.0, 0.95, 0.0, 0.1), (0.0, 0.5, 0.0, 1.0)
CASES = {
    "calm-wild": Case((_CALM, _WILD)),
    "three": Case((_CALM, _WILD, (2.0, 0.7, 0.0, 0.3))),
    "reverting-trending": Case(((0.0, 0.6, 0.0, 0.5), (0.3, 1.0, 0.0, 0.3)), 25.0),
    "oscillation": Case(((0.0, 0.5, 0.0, 0.5), (0.0, 1.386, -0.9604, 0.3))),
    "rotation": Case(((0.0, 0.98, 0.0, 0.1), (0.0, 0.95, 0.0, 0.7)), 1 / 0.03, turns=(0.0, 8.0)),
    "durations": Case((_CALM, _WILD), phases=8),
    "covariate": Case((_CALM, _WILD), pull=2.0),
    "gaps": Case((_CALM, _WILD), gaps=0.2),
    "counts": Case(((2.0,), (12.0,))),
}


@dataclass(frozen=True)
class Truth:
    """Simulated series, (time, series): values, which are NaN where missing, states of the chain, and the covariate."""

    case: Case
    values: np.ndarray
    states: np.ndarray
    inputs: np.ndarray

    @property
    def task(self) -> ForecastTask:
        """Return the series as a task."""
        start, extra = pd.Period("2020-01-01", "D"), [{}] * SERIES
        if self.case.pull:
            extra = [{"feat_dynamic_real": self.inputs[None, :, k].astype(np.float32)} for k in range(SERIES)]
        columns = self.values.T.astype(np.float32)
        entries = [{"item_id": f"s{k}", "start": start, "target": y} | extra[k] for k, y in enumerate(columns)]
        return ForecastTask("regimes", "D", HORIZON, WINDOWS, entries)


def simulate(case: Case, seed: int) -> Truth:
    """Return series of a case."""
    rng = np.random.default_rng(seed)
    inputs = np.zeros((STEPS, SERIES))
    if case.pull:
        inputs[:] = np.sin(2 * np.pi * (np.arange(STEPS)[:, None] / 90 + rng.random(SERIES)))
    transition = case.transition(inputs)
    states = np.zeros((STEPS, SERIES), int)
    state = rng.integers(0, len(case.regime), SERIES)
    for step in range(STEPS):
        state = _drawn(transition[step, np.arange(SERIES), state], rng)
        states[step] = state
    values = _paths(case, case.regime[states], np.zeros((2, SERIES)), rng)
    values[rng.random(values.shape) < case.gaps] = np.nan
    return Truth(case, values, states, inputs)


def _drawn(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a draw from each row of probabilities."""
    return (rng.random((*probabilities.shape[:-1], 1)) > probabilities.cumsum(-1)[..., :-1]).sum(-1)


def _paths(case: Case, regime: np.ndarray, last: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values of regimes (time, *batch) behind the last two values (2, *batch)."""
    rows = np.array(case.rows)
    if case.is_counts:
        return rng.poisson(rows[regime, 0]).astype(float)
    if case.turns:
        state, found = np.zeros((*regime.shape[1:], 2)), []
        for now in regime:
            state = np.einsum("...ij,...j->...i", _matrices(case)[now], state)
            state = state + rows[now, 3][..., None] * rng.normal(size=state.shape)
            found.append(state[..., 0] + 0.2 * rng.normal(size=now.shape))
        return np.stack(found)
    found = [*last]
    for now in regime:
        intercept, one, two, noise = rows[now].T
        found.append((intercept + one * found[-1].T + two * found[-2].T + noise * rng.normal(size=now.shape).T).T)
    return np.stack(found[2:])


def _matrices(case: Case) -> np.ndarray:
    """Return the transition of the hidden state, or of the last two values, in each regime."""
    if not case.turns:
        return np.array([[[one, two], [1.0, 0.0]] for _, one, two, _ in case.rows])
    angles = [2 * np.pi / turn if turn else 0.0 for turn in case.turns]
    turned = [[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in angles]
    return np.array(turned) * np.array([row[1] for row in case.rows])[:, None, None]


class Exact:
    """The filter that knows the parameters, where the density of a value given those before it is known."""

    def __init__(self, truth: Truth) -> None:
        case, values = truth.case, truth.values
        rows = np.array(case.rows)
        if case.is_counts:
            density = poisson.logpmf(values[..., None], rows[:, 0])
        else:
            before = [np.concatenate([np.zeros((lag, SERIES)), values[:-lag]])[..., None] for lag in (1, 2)]
            mean = rows[:, 0] + rows[:, 1] * before[0] + rows[:, 2] * before[1]
            density = norm.logpdf(values[..., None], mean, rows[:, 3])
        self.truth, self.every = truth, truth.case.transition(truth.inputs)
        log_transition = torch.as_tensor(self.every).clamp_min(1e-300).log()
        density = torch.as_tensor(density[..., case.regime]).repeat_interleave(len(case.regime), -1)
        belief = torch.full((SERIES, len(case.regime)), -np.log(len(case.regime)), dtype=torch.float64)
        self.filtered = chain.filter(log_transition, density, belief).probabilities.numpy()
        self.regimes = chain.smooth(log_transition, density, belief).probabilities.numpy()

    def quantiles(self, begin: int, rng: np.random.Generator) -> np.ndarray:
        """Return quantiles (level, time, series) of the steps from `begin` on."""
        case = self.truth.case
        state = _drawn(np.broadcast_to(self.filtered[begin - 1], (PATHS, *self.filtered.shape[1:])), rng)
        states = []
        for step in range(begin, begin + HORIZON):
            state = _drawn(self.every[step, np.arange(SERIES), state], rng)
            states.append(state)
        last = np.broadcast_to(self.truth.values[begin - 2 : begin, None], (2, PATHS, SERIES))
        return np.quantile(_paths(case, case.regime[np.stack(states)], last, rng), LEVELS, axis=1)


class Particles:
    """The particle filter of the core that knows the parameters."""

    def __init__(self, truth: Truth) -> None:
        case = truth.case
        rows, matrices = torch.tensor(case.rows).double(), torch.as_tensor(_matrices(case))
        noise = torch.diag_embed(rows[:, 3:].square() * torch.tensor([1.0, float(bool(case.turns))]) + _NUGGET)
        read = torch.tensor([[1.0, 0.0]]).double()
        emitted = torch.tensor([[0.2**2 if case.turns else _NUGGET]]).double()
        transition = torch.as_tensor(case.transition(np.zeros((1, 1)))[0, 0]).log()

        def step(switch: torch.Tensor, time: int) -> particles.Regime:
            index = switch.argmax(-1)
            moved = LinearGaussian(matrices[index], torch.stack([rows[index, 0], 0 * rows[index, 0]], -1), noise[index])
            return particles.Regime(moved, LinearGaussian(read, torch.zeros(1).double(), emitted))

        count = len(case.rows)
        start = torch.full((1, SERIES, count), -np.log(count)).double()
        self.system = particles.CategoricalSwitching(start, lambda switch, time: switch @ transition, step)
        self.seen = torch.as_tensor(~np.isnan(truth.values)).unsqueeze(-1)
        self.values = torch.as_tensor(np.nan_to_num(truth.values)).unsqueeze(-1)
        self.generator = torch.Generator().manual_seed(0)
        prior = Gaussian(torch.zeros(SERIES, 2).double(), torch.eye(2).double().expand(SERIES, -1, -1))
        begun = self.system.begin(PARTICLES, prior)
        run = particles.filter(self.system, begun, self.values, self.seen, keep_history=True, generator=self.generator)
        assert run.history is not None
        self.history = run.history
        weight = run.history.log_weight.exp().unsqueeze(-1)
        self.regimes = (run.history.switch * weight).sum(1).numpy()  # filtered: smoothing would take minutes

    def quantiles(self, begin: int, rng: np.random.Generator) -> np.ndarray:
        """Return quantiles (level, time, series) of the steps from `begin` on."""
        belief = map_tensors(lambda x: x[begin - 1], self.history)
        paths = particles.forecast(self.system, belief, HORIZON, PATHS, self.generator)[0]
        return np.quantile(paths[..., 0].numpy(), LEVELS, axis=1)


def crps_of(quantiles: np.ndarray, values: np.ndarray) -> float:
    """Return twice the mean quantile loss of (level, time, series) over values that are there."""
    error = values - quantiles
    loss = np.maximum(LEVELS[:, None, None] * error, (LEVELS[:, None, None] - 1) * error)
    return 2 * float(np.nanmean(loss))


def accuracy_of(found: np.ndarray, true: np.ndarray) -> float:
    """Return the share of steps whose regime is right, under the best assignment of regimes to true ones."""
    counts = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(counts, (found.ravel(), true.ravel()), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / found.size)


def measure_oracle(truth: Truth) -> dict[str, float]:
    """Return accuracy and CRPS of the filter that knows the parameters."""
    began, case = time.process_time(), truth.case
    oracle = Particles(truth) if case.turns or case.gaps else Exact(truth)
    rng = np.random.default_rng(0)
    begins = range(TRAINING, STEPS, HORIZON)
    quantiles = np.concatenate([oracle.quantiles(begin, rng) for begin in begins], axis=1)
    probabilities = oracle.regimes.reshape(STEPS, SERIES, len(case.rows), -1).sum(-1)
    accuracy = accuracy_of(probabilities.argmax(-1), case.regime[truth.states])
    return {"accuracy": accuracy, "crps": crps_of(quantiles, truth.values[TRAINING:]), "cpu_s": _since(began)}


def _since(began: float) -> float:
    """Return seconds of the CPU since a time."""
    return time.process_time() - began


def measure(model: str, truth: Truth, seed: int, options: dict[str, Any]) -> dict[str, float]:
    """Return accuracy, CRPS and CPU seconds of a model with its defaults, or other options."""
    if model == "statsmodels":
        return _statsmodels(truth)
    task, began = truth.task, time.process_time()
    predictor = StateSpaceEstimator(
        model, "D", HORIZON, seed=seed, trainer_kwargs={"enable_progress_bar": False}, **options
    ).train(task.train)
    row = {"cpu_s": _since(began)}
    torch.manual_seed(seed)
    parts = []
    for begin in range(TRAINING, STEPS, HORIZON):
        entries = [entry | {"target": entry["target"][:begin]} for entry in task.entries]
        forecasts = list(predictor.predict(entries, num_samples=PATHS))
        parts.append(np.stack([[f.quantile(float(level)) for level in LEVELS] for f in forecasts], -1))
    row["crps"] = crps_of(np.concatenate(parts, axis=1), truth.values[TRAINING:])
    if model in SINGLE:
        return row
    own = [
        one["most_likely"].to_numpy() - 1
        for _, one in regime_report(predictor, task.entries).regimes.groupby("item_id", sort=False)
    ]
    true = [_true_of(truth, k)[-len(likely) :] for k, likely in enumerate(own)]  # from its first value on
    return row | {"accuracy": accuracy_of(np.concatenate(own), np.concatenate(true))}


def _statsmodels(truth: Truth) -> dict[str, float]:
    """Return the same of an autoregression for each series by statsmodels, which forecasts nothing."""
    from statsmodels.tsa.regime_switching.markov_autoregression import MarkovAutoregression

    began, found = time.process_time(), []
    count = len(truth.case.rows)
    for column in pd.DataFrame(truth.values).ffill().bfill().to_numpy().T:
        model = MarkovAutoregression(column, count, 1, switching_ar=True, switching_variance=True)
        np.random.seed(0)  # noqa: NPY002  statsmodels draws from it
        result = model.fit(search_reps=5, disp=False)
        likely = np.asarray(getattr(result, "smoothed_marginal_probabilities")).argmax(-1)  # noqa: B009  of one fit
        found.append(accuracy_of(likely, _true_of(truth, len(found))[1:]))
    return {"accuracy": float(np.mean(found)), "cpu_s": _since(began)}


def _true_of(truth: Truth, series: int) -> np.ndarray:
    """Return the regimes of a series."""
    return truth.case.regime[truth.states[:, series]]


def main() -> None:
    """Measures what the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--options", default="", help="of the models, such as order=1 regimes=3; for trials")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "regimes.csv")
    chosen = parser.parse_args()
    provenance(chosen.output)
    torch.set_num_threads(1)
    options = dict(pair.split("=") for pair in chosen.options.split())
    options = {name: int(value) if value.lstrip("-").isdigit() else value for name, value in options.items()}
    wanted = ["oracle", *SINGLE, *(name for name in chosen.models.split(",") if name)]
    for name in chosen.cases.split(","):
        for seed in map(int, chosen.seeds.split(",")):
            truth = simulate(CASES[name], seed)
            for model in wanted:
                done = _rows(chosen.output, name, seed)
                if model not in done:
                    found = measure_oracle(truth) if model == "oracle" else measure(model, truth, seed, options)
                    _keep(chosen.output, name, model, seed, found, done)
            sys.stdout.write(f"{name}, seed {seed}\n{_table(_rows(chosen.output, name, seed))}\n")
            sys.stdout.flush()


def _rows(path: pathlib.Path, case: str, seed: int) -> dict[str, dict[str, Any]]:
    """Return the rows of a case and a seed, by model."""
    if not path.exists():
        return {}
    table = pd.read_csv(path)
    own = table[(table["case"] == case) & (table["seed"] == seed)]
    return {str(row["model"]): dict(row) for _, row in own.iterrows()}


def _keep(
    path: pathlib.Path, case: str, model: str, seed: int, found: dict[str, float], done: dict[str, dict[str, Any]]
) -> None:
    """Writes a row, its CRPS relative to the oracle's and to the best of a single regime."""
    row: dict[str, Any] = {"case": case, "model": model, "seed": seed}
    row |= {name: f"{found[name]:.4f}" for name in ("accuracy", "crps") if name in found}
    if "crps" in found and "oracle" in done:
        row["crps_to_oracle"] = f"{found['crps'] / done['oracle']['crps']:.3f}"
    if "crps" in found and {*SINGLE} <= {*done}:
        row["crps_to_single"] = f"{found['crps'] / min(done[name]['crps'] for name in SINGLE):.3f}"
    row["cpu_s"] = f"{found['cpu_s']:.1f}"
    write(path, [row], ("case", "model", "seed", "accuracy"), ("crps", "crps_to_oracle", "crps_to_single", "cpu_s"))


def _table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as text."""
    names = ("accuracy", "crps", "crps_to_oracle", "crps_to_single", "cpu_s")
    lines = [["model", *names], *([model, *(f"{row[name]:.3f}" for name in names)] for model, row in rows.items())]
    return aligned(lines, {*range(1, len(names) + 1)})


if __name__ == "__main__":
    main()
