"""The Numenta Anomaly Benchmark: what the online detector scores on all 58 files, beside published detectors.

    python datasets/nab.py nab_real.tar.gz nab_artificial.tar.gz --output outputs/nab
    python runs/nab.py --data outputs/nab          # results/nab.csv and docs/nab-results.md; five minutes

One setting for all files, chosen by one half of them; `detector` is also scored on either half. The model and its tails
are learnt from the first 15 % of a file (750 records at most), and go on learning; a record is judged by those before
it. `one-scale` is the same detector with noise of one scale. The threshold is the best for the whole corpus and each
profile, as it is for all published detectors. `random` draws the published detector's numbers; at the published
threshold it must have its published score. `metronome` alarms every 600 records and looks at no value.
"""

import argparse
import csv
import hashlib
import json
import pathlib
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.analysis.detector import Detector
from tsforecast.analysis.switching_levels import SwitchingLevels
from tsforecast.cli import runs
from tsforecast.data.files import replace_file
from tsforecast.evaluation.nab import PROFILES, PUBLISHED, Labelled, Outcome, evaluate, evaluate_all, read_benchmark

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "results" / "nab.csv", ROOT / "docs" / "nab-results.md"
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
    command = " ".join(["python", *map(shlex.quote, sys.argv)])
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
            "commit": runs.commit(),
            "command": command,
        }
        for profile, found in outcomes.items()
    ]


def page(rows: Sequence[Mapping[str, Any]], published: Mapping[str, Mapping[str, float]]) -> str:
    """The table beside published scores."""
    halves = {f"{r['files']}_{r['profile']}": float(r["score"]) for r in rows if r["files"] != "all"}
    rows = [row for row in rows if row["files"] == "all"]
    scores: dict[str, dict[str, float]] = {name: dict(found) for name, found in published.items()}
    ours = {str(row["detector"]): str(row["ms"]) for row in rows}
    for row in rows:
        scores.setdefault(f"`{row['detector']}`", {})[str(row["profile"])] = float(row["score"])
    lines = [
        f"| {name} | {found['standard']:.1f} | {found['reward_low_FP_rate']:.1f} | {found['reward_low_FN_rate']:.1f} | "
        f"{ours.get(name.strip('`'), '')} |"
        for name, found in sorted(scores.items(), key=lambda item: -item[1]["standard"])
    ]
    counts = {str(row["detector"]): row for row in rows if row["profile"] == "standard"}
    found = counts["detector"]
    return INTRODUCTION + "\n".join(lines) + CONCLUSION.format(**found, **halves)


INTRODUCTION = """# Anomaly benchmark: results

The Numenta Anomaly Benchmark has 58 series of servers, machines, traffic, advertisements and tweets, and 116 windows in
which an alarm is right; an early one is worth more, and every record that is flagged outside costs.

```sh
python datasets/nab.py nab_real.tar.gz nab_artificial.tar.gz --output outputs/nab
python runs/nab.py --data outputs/nab    # results/nab.csv and this page
```

`detector` is `tsforecast.analysis.detector.Detector` with its default settings, the same for all files; it learns from
the first 15 % of a file and goes on. The threshold is the best for the whole corpus and each profile, as it is for all
published detectors. They search it step by step; ours is the exact optimum, worth up to two points (`random` against
the published one). Published scores are those of numenta/NAB, commit ea702d75.

| detector | standard | low FP | low FN | ms a record |
| --- | --- | --- | --- | --- |
"""
CONCLUSION = """

With the standard profile `detector` finds {hits} of {windows} windows, with {false_alarms} false alarms.
Milliseconds are of the CPU, with records that come one at a time.

`metronome` alarms every 600 records and looks at no value: the score pays for that, and much of what separates
detectors is how seldom they repeat themselves. The detector's alarms are news, too: a record must be rarer than all
others of a while, which is three tenths of the first part. `one-scale` is the same detector with noise of one scale
instead of three.

## How it was chosen

Statistics and settings were chosen by the scores of one half of the files (26 of them, by a hash of their names), and
about four hundred variants were scored there. About thirty were scored on the whole corpus too, and two that were
better on the first half were dropped for it. So the score of the first half is too high, and that of the others little:

| files | standard | low FP | low FN |
| --- | --- | --- | --- |
| by which it was chosen | {chosen_standard:.1f} | {chosen_reward_low_FP_rate:.1f} | {chosen_reward_low_FN_rate:.1f} |
| the others | {other_standard:.1f} | {other_reward_low_FP_rate:.1f} | {other_reward_low_FN_rate:.1f} |

The detector before this one had no regimes: its statistics were the distance of a record from the levels, and that of a
fast level from a slow one. It had 65.1, 56.2 and 70.4, with settings chosen by all files: 58.2, 47.2 and 64.1 on the
first half, 73.6, 65.8 and 78.1 on the other. So the gain is on the first half; on the other both are alike. The
switching model with the settings that were guessed first had 68.4, 54.9 and 74.9.

A target of 70 was missed. On the first half these did not help, or not on the other half as well: levels that outliers
move less; levels and novelty of stretches; the tail probability of the mixture instead of its density; densities of
all past values as a further regime; novelty given the time of the day; logarithms beside values; a prior that favours
the smallest scale; other gains, scales and counts.
"""


def main() -> None:
    """Writes the table and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder that datasets/nab.py has written")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="table to write")
    options = parser.parse_args()
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
        writer.writerows(rows)
    if options.output == RESULTS:
        published = json.loads((options.data / PUBLISHED).read_text())
        with replace_file(PAGE) as temporary:
            temporary.write_text(page(rows, published))


if __name__ == "__main__":
    main()
