"""Learners on streams that drift, beside river's, each item predicted before it is learnt from: results/streams.csv.

    python experiments/streams/run.py                                       # everything; hours on one core
    python experiments/streams/run.py --datasets noaa --learners vd-ekf adaptive-random-forest

Streams of classes are those that `datasets/streams.py` prepared, and phishing, which river ships. `elec2-lagged` is
elec2 with one more feature, the label before, for all learners alike; `gas-drift-unshuffled` (made by `--keep-order
--name ...`) has the order of the files, in which each gas comes in long runs. Streams of numbers are river's: the polls
of `trump-approval`, and `friedman-drift`, whose function is another one between its 5 000th and 10 000th item.

Accuracy and log-loss (nats) are means over the items whose class has come before. Probabilities are cut at 1e-6, which
spares learners that hold a class for impossible. Errors of numbers are over all items but the first. Seconds are of the
CPU. Settings in the table are all that differ from the library's defaults, but that {} of ours is without a drift;
they were compared on the first 5000 days of noaa.
Finished rows are not computed again.
"""

import argparse
import csv
import itertools
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from river import datasets, drift, dummy, forest, linear_model, optim, preprocessing, stats, tree
from river.datasets import synth
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import append_rows
from tsforecast.cli.provenance import provenance
from tsforecast.online.river import OnlineClassifier, OnlineRegressor
from tsforecast.online.stream import STREAMS, Observation, read_stream

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBERS: dict[str, Callable[[], Any]] = {
    "trump-approval": datasets.TrumpApproval,
    "friedman-drift": lambda: synth.FriedmanDrift("gra", position=(5_000, 10_000), seed=0).take(15_000),
}
CLASSES = ("phishing", "noaa", "gas-drift", "elec2", "elec2-lagged", "gas-drift-unshuffled")
LEAST = 1e-6  # that a probability counts for
COLUMNS = [
    "dataset", "learner", "library", "settings", "seed", "items", "accuracy", "log_loss", "rmse", "mae",
    "seconds_per_item", "commit", "command",
]  # fmt: skip
KEY = ("dataset", "learner", "settings", "seed", "items")
DRIFTS: list[dict[str, Any]] = [
    {},
    {"drift": "wiener", "rate": 1e-3},
    {"drift": "wiener", "rate": 1e-2},
    {"drift": "ou", "rate": 1e-3},
    {"drift": "forgetting", "rate": 1e-3},
    {"drift": "ou", "rate": 1e-2},
    {"drift": "forgetting", "rate": 1e-2},
]
RATES: list[dict[str, Any]] = [{"rate": 0.01}, {"rate": 0.1}, {"rate": 1.0}]


def _scaled(model: Any) -> Any:
    """After standardised inputs; river's trees of numbers need them too, as there are linear models in their leaves."""
    return preprocessing.StandardScaler() | model


def _logistic(classes: int, rate: float) -> Any:
    """River's linear model: logistic regression knows two classes alone."""
    model = linear_model.LogisticRegression if classes == 2 else linear_model.SoftmaxRegression
    return _scaled(model(optim.SGD(rate)))


def _retrained(model: Any) -> Any:
    """Begun anew where ADWIN sees a drift in the errors (against the annotation of river)."""
    detector: Any = drift.ADWIN()
    return drift.DriftRetrainingClassifier(model, detector, train_in_background=False)


def _linear(rate: float) -> Any:
    """River's linear model of numbers, with an intercept as fast as in river's examples."""
    return _scaled(linear_model.LinearRegression(optim.SGD(rate), intercept_lr=0.1))


def _ours(learner: str, features: int, classes: int, seed: int, **settings: Any) -> Any:
    """With as many columns and outputs as there are, and no drift unless one is among the settings."""
    settings = {"drift": "none", **settings}
    if not classes:
        return OnlineRegressor(learner, expected_features=features, seed=seed, **settings)
    return OnlineClassifier(learner, expected_features=features, expected_classes=classes, seed=seed, **settings)


@dataclass(frozen=True)
class Entry:
    """A learner of the table.

    Attributes:
        make: It, from the numbers of features and classes, the seed, and settings.
        settings: Those in the table.
        package: It is from.
        is_random: Whether seeds differ.
    """

    make: Callable[..., Any]
    settings: list[dict[str, Any]]
    package: str = "river"
    is_random: bool = False


OURS = {
    "vd-ekf": Entry(lambda *a, **more: _ours("vd-ekf", *a, **more), DRIFTS, "tsforecast", True),
    "lofi": Entry(lambda *a, **more: _ours("lofi", *a, **more), DRIFTS, "tsforecast", True),
    "vd-ekf-linear": Entry(lambda *a, **more: _ours("vd-ekf", *a, hidden=(), **more), DRIFTS, "tsforecast"),
}
CLASSIFIERS = {
    "no-change": Entry(lambda f, c, s: dummy.NoChangeClassifier(), [{}]),
    "logistic": Entry(lambda f, c, s, rate: _logistic(c, rate), RATES),
    "logistic-adwin": Entry(lambda f, c, s, rate: _retrained(_logistic(c, rate)), RATES),
    "hoeffding-adaptive-tree": Entry(
        lambda f, c, s: tree.HoeffdingAdaptiveTreeClassifier(seed=s), [{}], is_random=True
    ),
    "adaptive-random-forest": Entry(lambda f, c, s: forest.ARFClassifier(seed=s), [{}], is_random=True),
    **OURS,
}
REGRESSORS = {
    "no-change": Entry(lambda f, c, s: dummy.StatisticRegressor(stats.Shift(0)), [{}]),
    "linear": Entry(lambda f, c, s, rate: _linear(rate), [{"rate": 0.01}, {"rate": 0.001}]),
    "hoeffding-adaptive-tree": Entry(
        lambda f, c, s: _scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=s)), [{}], is_random=True
    ),
    "adaptive-random-forest": Entry(lambda f, c, s: _scaled(forest.ARFRegressor(seed=s)), [{}], is_random=True),
    **OURS,
}


def _lagged(items: Iterator[Observation]) -> Iterator[Observation]:
    """With the target before as a feature, for the first halfway between the two."""
    before = 0.5
    for item in items:
        yield Observation({**item.features, "before": before}, item.target, None)
        before = float(item.target == "UP")


def load(dataset: str, limit: int | None) -> tuple[list[tuple[dict[Any, Any], Any]], int]:
    """Features and target of each item, in order, and the number of classes, 0 for numbers.

    Classes are counted: river's logistic regression takes no words.

    Raises:
        FileNotFoundError: If it is not prepared.
    """
    if dataset in NUMBERS:
        return list(itertools.islice(NUMBERS[dataset](), limit)), 0
    name = dataset.removesuffix("-lagged")
    stream = STREAMS[name][2]() if name in STREAMS else read_stream(name, "target")
    items = list(itertools.islice(stream if name == dataset else _lagged(stream), limit))
    classes = sorted({item.target for item in items})
    return [(item.features, classes.index(item.target)) for item in items], len(classes)


def classify(items: list[tuple[dict[Any, Any], int]], learner: Any, bar: tqdm) -> dict[str, str]:
    """Scores of one pass: predict, score, learn."""
    seen: set[int] = set()
    right, loss, scored = 0, 0.0, 0
    for features, target in items:
        # No-change keeps no probabilities before its first label, and fails.
        found = learner.predict_proba_one(features) if seen else {}
        if target in seen:
            right += bool(found) and max(found, key=lambda c: found[c]) == target
            loss -= math.log(max(found.get(target, 0.0), LEAST))
            scored += 1
        learner.learn_one(features, target)
        seen.add(target)
        bar.update()
    return {"accuracy": f"{right / scored:.4f}", "log_loss": f"{loss / scored:.4f}"}


def regress(items: list[tuple[dict[Any, Any], float]], learner: Any, bar: tqdm) -> dict[str, str]:
    """The same for numbers; nothing is predicted before the first."""
    errors: list[float] = []
    for features, target in items:
        errors.append(target - learner.predict_one(features) if errors else 0.0)
        learner.learn_one(features, target)
        bar.update()
    squares, absolute = sum(error**2 for error in errors), sum(map(abs, errors))
    return {"rmse": f"{math.sqrt(squares / (len(errors) - 1)):.4f}", "mae": f"{absolute / (len(errors) - 1):.4f}"}


def measure(dataset: str, options: argparse.Namespace, facts: dict[str, str], done: set[tuple[str, ...]]) -> None:
    """Adds the rows of a stream that are not in the table yet."""
    items, classes = load(dataset, options.limit)
    entries, score = (CLASSIFIERS, classify) if classes else (REGRESSORS, regress)
    names = [name for name in options.learners or entries if name in entries]
    for name, seed in itertools.product(names, options.seeds):
        entry = entries[name]
        for chosen in entry.settings if options.settings is None else [options.settings]:
            row = {"dataset": dataset, "learner": name, "library": entry.package, "settings": json.dumps(chosen)}
            row |= {"seed": seed, "items": len(items)}
            if tuple(str(row[key]) for key in KEY) in done or (seed != options.seeds[0] and not entry.is_random):
                continue
            learner = entry.make(len(items[0][0]), classes, seed, **chosen)
            with tqdm(total=len(items), desc=f"{dataset} {name} {chosen}", mininterval=10, disable=None) as bar:
                began = time.process_time()
                row |= score(items, learner, bar)
                row["seconds_per_item"] = f"{(time.process_time() - began) / len(items):.2e}"
            append_rows(options.output, COLUMNS, [row | facts])
            tqdm.write("  ".join(str(row[key]) for key in COLUMNS[:-2] if key in row))


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=[*CLASSES, *NUMBERS], choices=[*CLASSES, *NUMBERS])
    parser.add_argument("--learners", nargs="+", choices=sorted({*CLASSIFIERS, *REGRESSORS}), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--settings", type=json.loads, help="only these, as JSON, such as '{}'")
    parser.add_argument("--limit", type=int, help="items at most")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "streams" / "results" / "streams.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.output.exists():
        with options.output.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    facts = provenance(options.output)
    for dataset in options.datasets:
        measure(dataset, options, facts, done)


if __name__ == "__main__":
    main()
