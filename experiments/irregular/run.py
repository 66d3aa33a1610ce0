r"""Models in continuous time beside a regular grid with missing values, a Gaussian process, and GRU-D.

    python experiments/irregular/run.py --data FOLDER  # a quarter of an hour on one core; FOLDER has solar/ and nab/
    python experiments/irregular/run.py --data FOLDER --only exchange regimes \
        --methods continuous rsgls-issm sgls --seeds 0 1 2
    python experiments/irregular/run.py --draw  # results/irregular.png, docs/images/irregular.png

Data: power of four photovoltaic sites, whose times are irregular by themselves; three series of the Numenta benchmark,
two of them of sensors, and eight damped pendulums. Two have calm and wild times: daily exchange rates, and a simulation
whose noise jumps between two sizes at random times. Of regular observations some are kept at random (10, 30, 50 %). Two
questions: values between observations that were left out (interpolation), and all that comes in the time after the last
one (extrapolation). CRPS is the quantile loss over tenths by the mean absolute value; MSE is that of the median, by the
variance of what was asked. One line of results/irregular.csv for each finished run; those which are there are not run
again.
"""

import argparse
import csv
import io
import itertools
import pathlib
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.irregular.gru_d import GRUDBaseline
from tsforecast import StateSpaceEstimator, load_task
from tsforecast.cli.provenance import provenance
from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.task import ForecastTask
from tsforecast.data.timed_entries import median_gap
from tsforecast.evaluation.metrics import LEVELS
from tsforecast.io.files import replace_file
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.forecasts import BAND_LEVELS, plot_timed

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "outputs" / "irregular"
TENTHS = [LEVELS.index(k / 10) for k in range(1, 10)]
EXAMPLES = {"pendulum-0.3-continuous": "angle of a pendulum"}
MOST_ASKED = 150  # values between observations that are asked for, of a series
ENDING = 0.05  # share of the time of a series that is extrapolated
MINUTE = 60 * 10**9
METHODS = ("continuous", "gp", "gru-d", "grid", "rsgls-issm", "sgls")
QUESTIONS = ("interpolation", "extrapolation")
FIELDS = (
    "data", "rate", "method", "question", "crps", "mse", "coverage_80", "coverage_95", "values", "observations",
    "seconds", "threads", "seed", "commit", "command",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Observed series, and what is asked of each.

    Attributes:
        entries: Data entries of what was observed.
        asked: By question and item, times and values.
        step: Of the regular grid on which all times lie, in nanoseconds.
        freq: The same for pandas.
        model: That suits the data.
    """

    entries: list[dict[str, Any]]
    asked: dict[str, dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]]
    step: int
    freq: str
    model: str = "issm"


def problem(
    series: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]],
    rate: float,
    step: int,
    freq: str,
    model: str,
    seed: int,
) -> Problem:
    """Keeps a share of the values of each series at random, and asks for others."""
    rng = np.random.default_rng(seed)
    entries: list[dict[str, Any]] = []
    asked: dict[str, Any] = {question: {} for question in QUESTIONS}
    for item, (times, values) in series.items():
        last = times[-1] - int(ENDING * (times[-1] - times[0]))
        past = np.flatnonzero(times <= last)
        kept = np.sort(rng.choice(past, max(int(rate * len(past)), 8), replace=False))
        between = past[(past > kept[0]) & (past < kept[-1]) & ~np.isin(past, kept)]
        between = np.sort(rng.choice(between, min(MOST_ASKED, len(between)), replace=False))
        later = np.flatnonzero(times > last)[:MOST_ASKED]
        entries.append({"item_id": item, "times": times[kept], "target": values[kept]})
        for question, rows in zip(QUESTIONS, (between, later), strict=True):
            asked[question][item] = times[rows], values[rows]
    return Problem(entries, asked, step, freq, model)


def pv(folder: pathlib.Path, rate: float, seed: int) -> Problem:
    """The last 60 days of four sites, on the grid of 15 minutes on which their times lie."""
    frame = pd.read_csv(folder / "solar" / "pv_12sites_pasion.csv.gz")
    frame["at"] = pd.to_datetime(frame["Date"].astype(str) + " " + frame["Time"].astype(str).str.zfill(4))
    series = {}
    for item in sorted(frame["Location"].unique())[:4]:
        rows = frame.query("Location == @item").sort_values("at").drop_duplicates("at")
        rows = rows[rows["at"] > rows["at"].max() - pd.Timedelta("60D")]
        times = np.asarray(rows["at"], "datetime64[ns]").astype(np.int64)
        series[str(item)] = times, np.asarray(rows["PolyPwr"], np.float64)
    return problem(series, rate, 15 * MINUTE, "15min", "issm", seed)


def nab(name: str, minutes: int) -> Callable[[pathlib.Path, float, int], Problem]:
    """The last thousand steps of a series of the Numenta benchmark."""

    def make(folder: pathlib.Path, rate: float, seed: int) -> Problem:
        with tarfile.open(folder / "nab" / "nab_real.tar.gz") as archive:
            file = archive.extractfile(f"nab/data/realKnownCause/{name}.csv")
            assert file is not None
            frame = (
                pd.read_csv(io.BytesIO(file.read()), parse_dates=["timestamp"]).drop_duplicates("timestamp").tail(1000)
            )
        times = frame["timestamp"].to_numpy("datetime64[ns]").astype(np.int64)
        series = {name: (times, frame["value"].to_numpy(np.float64))}
        return problem(series, rate, minutes * MINUTE, "h" if minutes == 60 else f"{minutes}min", "issm", seed)

    return make


def pendulum(folder: pathlib.Path, rate: float, seed: int) -> Problem:
    """Angles of eight damped pendulums, angle'' = -9.81 sin(angle) - 0.05 angle', every 40 ms with noise of 0.05."""
    rng = np.random.default_rng(1)
    state, path = np.stack([rng.uniform(0.3, 1.2, 8), rng.uniform(-1, 1, 8)]), []
    derivative = lambda x: np.stack([x[1], -9.81 * np.sin(x[0]) - 0.05 * x[1]])  # noqa: E731
    for _ in range(300):
        for _ in range(4):  # Runge-Kutta by 10 ms
            one = derivative(state)
            two = derivative(state + 0.005 * one)
            three = derivative(state + 0.005 * two)
            four = derivative(state + 0.01 * three)
            state = state + 0.01 * (one + 2 * two + 2 * three + four) / 6
        path.append(state[0] + 0.05 * rng.standard_normal(8))
    step = 40 * 10**6
    times = np.arange(1, 301, dtype=np.int64) * step
    series = {f"pendulum {k}": (times, np.stack(path)[:, k]) for k in range(8)}
    return problem(series, rate, step, "40ms", "oscillation", seed)


def exchange(folder: pathlib.Path, rate: float, seed: int) -> Problem:
    """The last 1500 business days of eight exchange rates."""
    series = {}
    for entry in load_task("exchange").train:
        values = np.asarray(entry["target"], np.float64)[-1500:]
        first = entry["start"].to_timestamp()
        days = (
            pd.bdate_range(first, periods=len(entry["target"]))[-len(values) :]
            .to_numpy("datetime64[ns]")
            .astype(np.int64)
        )
        series[str(entry["item_id"])] = days, values
    return problem(series, rate, 1440 * MINUTE, "D", "issm", seed)


def regimes(folder: pathlib.Path, rate: float, seed: int) -> Problem:
    """Eight random walks, whose changes have a deviation of .05 or .5 in an hour; a size lasts 80 hours on average."""
    rng, series = np.random.default_rng([2, seed]), {}
    for k in range(8):
        times = np.sort(rng.integers(1, 1000 * 60, 2000))  # minutes
        jumps = np.cumsum(rng.exponential(80 * 60, 60))
        is_wild = (np.searchsorted(jumps, np.arange(times[-1] + 1)) + k) % 2 == 1
        variance = np.cumsum(np.where(is_wild, 0.5, 0.05) ** 2 / 60)[times]
        walk = np.cumsum(np.sqrt(np.diff(variance, prepend=variance[0])) * rng.standard_normal(len(times)))
        series[f"walk {k}"] = times * MINUTE, walk + 0.03 * rng.standard_normal(len(times))
    return problem(series, rate, MINUTE, "min", "issm", seed)


DATA: dict[str, tuple[Callable[[pathlib.Path, float, int], Problem], tuple[float, ...]]] = {
    "pv": (pv, (0.8,)),
    "pendulum": (pendulum, (0.1, 0.3, 0.5)),
    "nyc_taxi": (nab("nyc_taxi", 30), (0.1, 0.3, 0.5)),
    "ambient_temperature": (nab("ambient_temperature_system_failure", 60), (0.1, 0.3, 0.5)),
    "machine_temperature": (nab("machine_temperature_system_failure", 5), (0.1, 0.3, 0.5)),
    "exchange": (exchange, (0.3,)),
    "regimes": (regimes, (0.3,)),
}

Answers = dict[str, dict[str, NDArray[np.float64]]]  # by question and item, quantiles (level, time)


def continuous(found: Problem, seed: int, model: str = "issm") -> Answers:
    """The model in continuous time."""
    has_cycle = found.model == "oscillation" and model != "sgls"
    own: dict[str, Any] = {"components": "oscillation+damped_level"} if has_cycle else {}
    task = ForecastTask("data", "ns", 1, 0, found.entries, gap=median_gap(found.entries))
    trainer = {"enable_progress_bar": False}
    estimator = StateSpaceEstimator(model, horizon=_horizon(found), seed=seed, trainer_kwargs=trainer, **own)
    predictor = estimator.train(task).on_clock
    answers: Answers = {}
    for question, how in zip(QUESTIONS, (predictor.interpolate, predictor.forecast), strict=True):
        times = {item: each for item, (each, _) in found.asked[question].items()}
        answers[question] = {one.item_id: one.quantiles(LEVELS)[..., 0] for one in how(found.entries, times)}
    return answers


def rsgls_issm(found: Problem, seed: int) -> Answers:
    """The same with a switch that sets its noises."""
    return continuous(found, seed, "rsgls-issm")


def sgls(found: Problem, seed: int) -> Answers:
    """Dense systems between which a Markov chain jumps."""
    return continuous(found, seed, "sgls")


def _horizon(found: Problem) -> int:
    entries = {entry["item_id"]: int(entry["times"][-1]) for entry in found.entries}
    return max(int(times[-1]) - entries[item] for item, (times, _) in found.asked["extrapolation"].items())


def grid(found: Problem, seed: int) -> Answers:
    """The regular model on the finest grid that has all times, with missing values between."""
    length = max(-(-_horizon(found) // found.step), 1)
    entries = []
    for entry in found.entries:
        steps = (entry["times"] - entry["times"][0]) // found.step
        target = np.full(int(steps[-1]) + 1, np.nan)
        target[steps] = entry["target"]
        start = to_period(pd.Timestamp(int(entry["times"][0])), found.freq)
        entries.append({"item_id": entry["item_id"], "start": start, "target": target})
    model = "gls" if found.model == "oscillation" else "issm"
    trainer = {"enable_progress_bar": False, "accelerator": "cpu"}
    predictor = StateSpaceEstimator(
        model, found.freq, length, train_horizon=min(length, 32), seed=seed, batch_size=8, trainer_kwargs=trainer
    ).train(entries)
    begin = {entry["item_id"]: int(entry["times"][0]) for entry in found.entries}
    end = {entry["item_id"]: int(entry["times"][-1]) for entry in found.entries}
    answers: Answers = {question: {} for question in QUESTIONS}
    for forecast in predictor.predict(entries, num_samples=0):
        item = str(forecast.item_id)
        places = (found.asked["extrapolation"][item][0] - end[item]) // found.step - 1
        answers["extrapolation"][item] = forecast.quantiles(LEVELS)[:, places]  # pyright: ignore
    for filled in predictor.impute(entries, num_samples=200):  # pyright: ignore[reportAttributeAccessIssue]
        item = str(filled.item_id)
        places = (found.asked["interpolation"][item][0] - begin[item]) // found.step
        answers["interpolation"][item] = np.quantile(filled.samples[:, places], LEVELS, axis=0)
    return answers


def gp(found: Problem, seed: int) -> Answers:
    """A Gaussian process for each series: a Matern kernel, a periodic one of a day, and noise, by its likelihood."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, ExpSineSquared, Matern, WhiteKernel

    normal = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64)).numpy()[:, None]
    unit = median_gap(found.entries)
    cycle, fixed = (2.0e9 / unit, False) if found.model == "oscillation" else (86_400 * 10**9 / unit, True)
    answers: Answers = {question: {} for question in QUESTIONS}
    for entry in found.entries:
        item, begin = entry["item_id"], entry["times"][0]
        place = lambda times, begin=begin: ((times - begin) / unit)[:, None]  # noqa: E731
        location, scale = entry["target"].mean(), entry["target"].std()
        period = ExpSineSquared(1.0, cycle, periodicity_bounds="fixed" if fixed else (cycle / 3, 3 * cycle))
        kernel = (
            ConstantKernel(1.0) * Matern(10.0, (0.1, 1e5), nu=1.5)
            + ConstantKernel(0.5) * period * Matern(200.0, (1.0, 1e6), nu=1.5)
            + WhiteKernel(0.1, (1e-5, 10.0))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            process = GaussianProcessRegressor(kernel, random_state=seed)
            process.fit(place(entry["times"]), (entry["target"] - location) / scale)
        for question in QUESTIONS:
            mean, deviation = process.predict(place(found.asked[question][item][0]), return_std=True)
            answers[question][item] = (mean + deviation * normal) * scale + location
    return answers


def gru_d(found: Problem, seed: int) -> Answers:
    """A recurrent network with time gaps for all series together."""
    baseline = GRUDBaseline(found.entries, median_gap(found.entries), seed=seed)
    return {
        question: {e["item_id"]: baseline.quantiles(e, each[e["item_id"]][0])[..., 0] for e in found.entries}
        for question, each in found.asked.items()
    }


ANSWER: dict[str, Callable[[Problem, int], Answers]] = dict(
    zip(METHODS, (continuous, gp, gru_d, grid, rsgls_issm, sgls), strict=True)
)


def scores(found: Problem, answers: Answers, question: str) -> dict[str, float]:
    """Of all series together, each value divided by the deviation of its series' observations."""
    losses, squares, inside, wide, sizes, spread = [], [], [], [], [], []
    for entry in found.entries:
        values, quantiles = found.asked[question][entry["item_id"]][1], answers[question][entry["item_id"]]
        scale = entry["target"].std()
        error = (values - quantiles[TENTHS]) / scale
        level = np.arange(1, 10)[:, None] / 10
        losses.append(2 * np.maximum(level * error, (level - 1) * error).mean(0))
        squares.append(((values - quantiles[LEVELS.index(0.5)]) / scale) ** 2)
        sizes.append(np.abs(values) / scale)
        spread.append(((values - values.mean()) / scale) ** 2)
        for kept, (low, high) in ((inside, (0.1, 0.9)), (wide, (0.025, 0.975))):
            kept.append((quantiles[LEVELS.index(low)] <= values) & (values <= quantiles[LEVELS.index(high)]))
    joined = [np.concatenate(parts) for parts in (losses, squares, inside, wide, sizes, spread)]
    loss, square, covered, covered_95, size, variance = (float(part.mean()) for part in joined)
    return {
        "crps": loss / size,
        "mse": square / variance,
        "coverage_80": covered,
        "coverage_95": covered_95,
        "values": len(joined[0]),
    }


def run(name: str, rate: float, method: str, seed: int, folder: pathlib.Path, output: pathlib.Path) -> None:
    """Answers both questions by one method, and adds two rows."""
    found = DATA[name][0](folder, rate, seed)
    begin = time.perf_counter()
    cpu = time.process_time()
    answers = ANSWER[method](found, seed)
    seconds = time.process_time() - cpu
    sys.stdout.write(f"{name} {rate} {method}: {time.perf_counter() - begin:.0f} s, {seconds:.0f} s of a core\n")
    sys.stdout.flush()
    facts = provenance(output)
    facts["command"] = (
        f"python experiments/irregular/run.py --data FOLDER --only {name} --methods {method} --seeds {seed}"
    )
    rows = []
    for question in QUESTIONS:
        rows.append(
            {
                "data": name, "rate": rate, "method": method, "question": question, **scores(found, answers, question),
                "observations": sum(len(entry["times"]) for entry in found.entries), "seconds": round(seconds, 1),
                "threads": torch.get_num_threads(), "seed": seed, **facts,
            }
        )  # fmt: skip
    if seed == 0:
        keep(found, answers, KEPT / f"{name}-{rate}-{method}.npz")
    added = [
        {key: f"{value:.5g}" if isinstance(value, float) else str(value) for key, value in r.items()} for r in rows
    ]
    written = [*rows_of(output), *added]
    with replace_file(output) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(FIELDS))
        writer.writeheader()
        writer.writerows(written)


def rows_of(output: pathlib.Path) -> list[dict[str, str]]:
    """What is there."""
    if not output.is_file():
        return []
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(found: Problem, answers: Answers, path: pathlib.Path) -> None:
    """Keeps observations and answers of the first series, for the picture."""
    entry = found.entries[0]
    arrays = {"times": entry["times"], "target": entry["target"]}
    for question in QUESTIONS:
        times, values = found.asked[question][entry["item_id"]]
        arrays |= {f"{question}_times": times, f"{question}_values": values}
        arrays[f"{question}_quantiles"] = answers[question][entry["item_id"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def draw(output: pathlib.Path) -> None:
    """Draws the CRPS of both questions by method, data and rate."""
    table = pd.read_csv(output)
    table["case"] = (
        table["data"].str.replace("_", " ") + " " + (100 * table["rate"]).round().astype(int).astype(str) + " %"
    )
    cases = list(dict.fromkeys(table["case"]))
    table = table.groupby(["case", "method", "question"], as_index=False)["crps"].mean()  # over seeds
    figure = Figure(figsize=(10, 1.2 + 0.42 * len(cases)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, question in zip(axes, QUESTIONS, strict=True):
        for number, method in enumerate(METHODS):
            rows = table[(table["question"] == question) & (table["method"] == method)]
            place = [cases.index(case) + 0.12 * (number - (len(METHODS) - 1) / 2) for case in rows["case"]]
            axis.plot(rows["crps"], place, "o", color=COLOURS[number], label=method, markersize=5)
        axis.set_xscale("log")
        axis.set_xlabel(f"CRPS of {question}")
        axis.grid(axis="both", color="#E5E5E5", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(cases)), cases, fontsize=8)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS), frameon=False, fontsize=9)
    save_figure(figure, output.with_suffix(".png"))


def draw_examples(path: pathlib.Path) -> None:
    """Draws what the model in continuous time says of the first series, of data whose runs are kept."""
    entries, answers, held_out = [], {}, {}
    for name, item in EXAMPLES.items():
        with np.load(KEPT / f"{name}.npz", allow_pickle=False) as kept:
            entries.append({"item_id": item, "times": kept["times"], "target": kept["target"]})
            frames, times, values = [], [], []
            for question in QUESTIONS:
                rows = kept[f"{question}_quantiles"][[LEVELS.index(level) for level in BAND_LEVELS]]
                frame = pd.DataFrame(dict(zip(map(str, BAND_LEVELS), rows, strict=True)))
                frames.append(frame.assign(timestamp=kept[f"{question}_times"].astype("datetime64[ns]")))
                times.append(kept[f"{question}_times"])
                values.append(kept[f"{question}_values"])
            answers[item] = frames
            held_out[item] = {"times": np.concatenate(times), "target": np.concatenate(values)}
    since = {entry["item_id"]: int(entry["times"][-(len(entry["times"]) // 2)]) for entry in entries}
    shown = {item: [f[f["timestamp"] >= pd.Timestamp(since[item])] for f in each] for item, each in answers.items()}
    title = "Three values in ten were observed; of the others some are asked for"
    save_figure(plot_timed(entries, shown, since=since, held_out=held_out, title=title), path)


def main() -> None:
    """Runs what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, help="folder with solar/pv_12sites_pasion.csv.gz and nab/nab_real.tar.gz"
    )
    parser.add_argument("--only", nargs="+", choices=list(DATA), default=list(DATA), help="data")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of which values are kept, and of the model")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "irregular" / "results" / "irregular.csv"
    )
    parser.add_argument("--draw", action="store_true", help="only the picture")
    chosen = parser.parse_args()
    if chosen.draw:
        draw(chosen.output)
        draw_examples(ROOT / "docs" / "images" / "irregular.png")
        return
    if chosen.data is None:
        sys.exit("expected --data FOLDER")
    provenance(chosen.output)
    torch.set_num_threads(1)
    for method in chosen.methods:
        for name in chosen.only:
            for seed, rate in itertools.product(chosen.seeds, DATA[name][1]):
                done = [(row["data"], row["rate"], row["method"], row["seed"]) for row in rows_of(chosen.output)]
                if (name, f"{rate:.5g}", method, str(seed)) not in done:
                    run(name, rate, method, seed, chosen.data, chosen.output)


if __name__ == "__main__":
    main()
