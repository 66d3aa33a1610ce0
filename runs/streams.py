"""Learners on streams that drift, beside river's, each item predicted before it is learnt from: results/streams.csv.

    python runs/streams.py                                       # everything; an hour and a half on one core
    python runs/streams.py --datasets noaa --learners vd-ekf adaptive-random-forest

Streams are those that `datasets/streams.py` prepared, and phishing, which river ships. `elec2-lagged` is elec2 with one
more feature, the label before, for all learners alike; `gas-drift-unshuffled` (`--keep-order --name ...`) has the order
of the files, in which each gas comes in long runs. Accuracy and log-loss (nats) are means over the items whose class
has come before. Probabilities are cut at 1e-6, which spares learners that hold a class for impossible. Seconds are of
the CPU. Settings in the table are all that differ from the library's defaults; none was tuned. Finished rows are not
computed again.
"""

import argparse
import csv
import itertools
import json
import math
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from river import base, drift, dummy, forest, linear_model, optim, preprocessing, tree
from tqdm import tqdm

from tsforecast.adapters.river import OnlineClassifier
from tsforecast.data.stream import STREAMS, Observation, read_stream

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATASETS = ("phishing", "noaa", "gas-drift", "elec2", "elec2-lagged", "gas-drift-unshuffled")
LEAST = 1e-6  # that a probability counts for
COLUMNS = [
    "dataset", "learner", "library", "settings", "seed", "items", "accuracy", "log_loss", "seconds_per_item", "commit",
    "command",
]  # fmt: skip
KEY = ("dataset", "learner", "settings", "seed", "items")
DRIFTS: list[dict[str, Any]] = [
    {},
    {"drift": "ou", "rate": 1e-3},
    {"drift": "forgetting", "rate": 1e-3},
    {"drift": "ou", "rate": 1e-2},
    {"drift": "forgetting", "rate": 1e-2},
]


def _linear(classes: int, rate: float) -> Any:
    """River's linear model: logistic regression knows two classes alone."""
    model = linear_model.LogisticRegression if classes == 2 else linear_model.SoftmaxRegression
    return preprocessing.StandardScaler() | model(optim.SGD(rate))


def _retrained(model: Any) -> Any:
    """Begun anew where ADWIN sees a drift in the errors (against the annotation of river)."""
    detector: Any = drift.ADWIN()
    return drift.DriftRetrainingClassifier(model, detector, train_in_background=False)


def _ours(learner: str, features: int, classes: int, seed: int, **settings: Any) -> base.Classifier:
    """With as many columns and outputs as there are."""
    return OnlineClassifier(learner, max_features=features, max_classes=classes, seed=seed, **settings)


# Learner -> (library, settings, whether seeds differ, what makes it out of features, classes, seed and settings).
Make = Callable[..., base.Classifier]
LEARNERS: dict[str, tuple[str, list[dict[str, Any]], bool, Make]] = {
    "no-change": ("river", [{}], False, lambda f, c, s: dummy.NoChangeClassifier()),
    "logistic": ("river", [{"rate": 0.01}, {"rate": 0.1}], False, lambda f, c, s, rate: _linear(c, rate)),
    "logistic-adwin": (
        "river",
        [{"rate": 0.01}, {"rate": 0.1}],
        False,
        lambda f, c, s, rate: _retrained(_linear(c, rate)),
    ),
    "hoeffding-adaptive-tree": ("river", [{}], True, lambda f, c, s: tree.HoeffdingAdaptiveTreeClassifier(seed=s)),
    "adaptive-random-forest": ("river", [{}], True, lambda f, c, s: forest.ARFClassifier(seed=s)),
    "vd-ekf": ("tsforecast", DRIFTS, True, lambda f, c, s, **more: _ours("vd-ekf", f, c, s, **more)),
    "lofi": ("tsforecast", DRIFTS, True, lambda f, c, s, **more: _ours("lofi", f, c, s, **more)),
    "vd-ekf-linear": ("tsforecast", DRIFTS, False, lambda f, c, s, **more: _ours("vd-ekf", f, c, s, hidden=(), **more)),
}


def _lagged(items: Iterator[Observation]) -> Iterator[Observation]:
    """With the target before as a feature, for the first halfway between the two."""
    before = 0.5
    for item in items:
        yield Observation({**item.features, "before": before}, item.target, None)
        before = float(item.target == "UP")


def load(dataset: str, limit: int | None) -> list[tuple[dict[Any, Any], int]]:
    """Features and class of each item, in order; classes are counted, as river's logistic regression takes no words.

    Raises:
        FileNotFoundError: If it is not prepared.
    """
    name = dataset.removesuffix("-lagged")
    items = STREAMS[name][2]() if name in STREAMS else read_stream(name, "target")
    if name != dataset:
        items = _lagged(items)
    kept = list(itertools.islice(items, limit))
    classes = sorted({item.target for item in kept})
    return [(item.features, classes.index(item.target)) for item in kept]


def measure(items: list[tuple[dict[Any, Any], int]], learner: base.Classifier, bar: tqdm) -> dict[str, Any]:
    """One pass: predict, score, learn."""
    seen: set[int] = set()
    right, loss, scored = 0, 0.0, 0
    began = time.process_time()
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
    seconds = (time.process_time() - began) / len(items)
    scores = {"accuracy": f"{right / scored:.4f}", "log_loss": f"{loss / scored:.4f}"}
    return scores | {"seconds_per_item": f"{seconds:.2e}"}


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--settings", type=json.loads, help="only these, as JSON, such as '{}'")
    parser.add_argument("--limit", type=int, help="items at most")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "streams.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.output.exists():
        with options.output.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    facts = {"commit": commit.stdout.strip(), "command": shlex.join(["python", "runs/streams.py", *sys.argv[1:]])}
    for dataset in options.datasets:
        items = load(dataset, options.limit)
        features, classes = len(items[0][0]), len({target for _, target in items})
        for name, seed in itertools.product(options.learners, options.seeds):
            library, choices, draws, make = LEARNERS[name]
            for chosen in choices if options.settings is None else [options.settings]:
                row = {"dataset": dataset, "learner": name, "library": library, "settings": json.dumps(chosen)}
                row |= {"seed": seed, "items": len(items)}
                if tuple(str(row[key]) for key in KEY) in done or (seed != options.seeds[0] and not draws):
                    continue
                with tqdm(total=len(items), desc=f"{dataset} {name} {chosen}", mininterval=10, disable=None) as bar:
                    row |= measure(items, make(features, classes, seed, **chosen), bar) | facts
                options.output.parent.mkdir(parents=True, exist_ok=True)
                is_new = not options.output.exists()
                with options.output.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if is_new:
                        writer.writeheader()
                    writer.writerow(row)
                names = ("dataset", "learner", "settings", "seed", "accuracy", "log_loss", "seconds_per_item")
                tqdm.write("  ".join(str(row[key]) for key in names))


if __name__ == "__main__":
    main()
