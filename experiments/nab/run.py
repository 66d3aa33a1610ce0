"""The Numenta Anomaly Benchmark: what the online detector scores on all 58 files, beside published detectors.

    python datasets/nab.py nab_real.tar.gz nab_artificial.tar.gz --output outputs/nab
    python experiments/nab/run.py --data outputs/nab          # results/nab.csv; five minutes

One setting for all files, chosen by one half of them; `detector` is also scored on either half. The model and its tails
are learnt from the first 15 % of a file (750 records at most), and go on learning; a record is judged by those before
it. `one-scale` is the same detector with noise of one scale. The threshold is the best for the whole corpus and each
profile, as it is for all published detectors. `random` draws the published detector's numbers; at the published
threshold it must have its published score. `metronome` alarms every 600 records and looks at no value.
"""

import argparse
import csv
import hashlib
import pathlib
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.nab.benchmark import PROFILES, Labelled, Outcome, evaluate, evaluate_all, read_benchmark
from tsforecast.analysis.detector import Detector
from tsforecast.analysis.switching_levels import SwitchingLevels
from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "nab" / "results" / "nab.csv"
COLUMNS = ["detector", "files", "profile", "score", "threshold", "hits", "windows", "false_alarms"]
COLUMNS += ["ms", "commit", "command"]
# Of `random` in config/thresholds.json of the benchmark, with what it scores there in results/final_results.json.
PUBLISHED_RANDOM = {
    "standard": (0.9984497070312507, 16.831768350517237),
    "reward_low_FP_rate": (0.9995117187500009, 5.763682319827586),
    "reward_low_FN_rate": (0.9984497070312507, 25.876351314080456),
}
PERIOD = 600
Scores = list[NDArray[np.float64]]


def drawn(file: Labelled) -> NDArray[np.float64]:
    """What the published random detector gives the records of a file: a generator that begins with 42."""
    generator = random.Random(42)
    return np.array([generator.uniform(0, 1) for _ in file.values])


def metronome(file: Labelled) -> NDArray[np.float64]:
    """An alarm every so many records."""
    return (np.arange(len(file.values)) % PERIOD == 0).astype(np.float64)


def detected(detector: Detector) -> Callable[[Labelled], NDArray[np.float64]]:
    """The alarm scores of a detector that learns from the probationary part first, and then goes on."""

    def of(file: Labelled) -> NDArray[np.float64]:
        first = file.probation
        state = detector.begin(file.timestamps[:first], file.values[:first])
        _, verdicts = detector.step(state, file.timestamps[first:], file.values[first:])
        return np.concatenate([np.zeros(first), verdicts.alarm])

    return of


def one_at_a_time(detector: Detector, file: Labelled, count: int = 1000) -> float:
    """Milliseconds of a record, where each comes alone."""
    first = file.probation
    state = detector.begin(file.timestamps[:first], file.values[:first])
    began = time.process_time()
    for k in range(first, first + count):
        state, _ = detector.step(state, file.timestamps[k : k + 1], file.values[k : k + 1])
    return 1000 * (time.process_time() - began) / count


def is_chosen(name: str) -> bool:
    """Whether a file is in the half by which settings were chosen: the last bit of a hash of its name."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()[-1] % 2 == 1


def check(files: Sequence[Labelled]) -> None:
    """Refuses a scorer that gives the published random detector another score than the published one.

    Raises:
        ValueError: If it does.
    """
    scores = [drawn(file) for file in files]
    for name, (threshold, published) in PUBLISHED_RANDOM.items():
        ours = evaluate(files, scores, PROFILES[name], threshold).score
        if abs(ours - published) > 1e-6:
            raise ValueError(f"{name}: expected {published} of the random detector, got {ours}")


def rows_of(name: str, files: str, outcomes: Mapping[str, Outcome], milliseconds: str) -> list[dict[str, Any]]:
    """The lines of the table of a detector."""
    return [
        {
            "detector": name,
            "files": files,
            "profile": profile,
            "score": f"{found.score:.2f}",
            "threshold": f"{found.threshold:.6f}",
            "hits": found.hits,
            "windows": found.windows,
            "false_alarms": found.false_alarms,
            "ms": milliseconds,
        }
        for profile, found in outcomes.items()
    ]


def main() -> None:
    """Writes the table and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder that datasets/nab.py has written")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="table to write")
    options = parser.parse_args()
    facts = provenance(options.output)
    series = read_benchmark(options.data)
    files = list(series.values())
    check(files)
    detector = Detector()
    milliseconds = one_at_a_time(detector, series["realTweets/Twitter_volume_AAPL.csv"])
    one_scale = Detector(SwitchingLevels(scales=(1.0,)))
    methods = {
        "detector": detected(detector),
        "one-scale": detected(one_scale),
        "random": drawn,
        "metronome": metronome,
    }
    rows = []
    for name, method in methods.items():
        scores = {key: method(file) for key, file in series.items()}
        parts = {"all": list(series)}
        if name == "detector":
            parts |= {"chosen": [k for k in series if is_chosen(k)], "other": [k for k in series if not is_chosen(k)]}
        for part, keys in parts.items():
            outcomes = evaluate_all([series[k] for k in keys], [scores[k] for k in keys])
            rows += rows_of(name, part, outcomes, f"{milliseconds:.2f}" if name == "detector" else "")
            found = ", ".join(f"{profile} {outcome.score:.2f}" for profile, outcome in outcomes.items())
            sys.stdout.write(f"{name}, {part} files: {found}\n")
    with replace_file(options.output) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | facts for row in rows)


if __name__ == "__main__":
    main()
