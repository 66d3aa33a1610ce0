"""Seeded losses and forecasts of every model and learner: a change of structure must not change a digit of them.

    python benchmarks/fingerprints.py before.json                       # at the commit before
    python benchmarks/fingerprints.py after.json --against before.json  # at the commit after; says what differs

Every model, on a grid and in continuous time, is trained for four steps and forecasts by the command line, as users do.
So the script runs before and after any change behind it. Numbers are compared as text: all digits count. They differ
with the number of threads, so there is one. About three minutes on one core.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tsforecast.models import MODELS
from tsforecast.models.continuous import TIMED

ROOT = Path(__file__).resolve().parent.parent
LEARNERS = ("lofi", "vd-ekf", "ekf", "lrkf", "bong", "wolf-ekf")
TRAINING = "--max_epochs 2 --num_batches_per_epoch 2 --seed 0 --threads 1 --quiet"
ON_A_GRID = ("--dataset", "exchange", "--history_length", "200")


def run(*words: str) -> None:
    """Runs a command of the program.

    Raises:
        RuntimeError: If it fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from tsforecast.cli import main; sys.exit(main())", *words],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-500:]}")


def fingerprint_model(name: str, folder: Path, *data: str, timed: bool = False) -> dict[str, str]:
    """Losses of an untuned model, and a digest of its forecasts.

    Args:
        name: Of the model.
        folder: For its run.
        data: Options of the data and of what belongs to them.
        timed: Whether its series have clocks of their own.
    """
    place = folder / f"{name}{'-timed' if timed else ''}"
    run("train", name, *data, *TRAINING.split(), "--output", str(place))
    out = place.with_suffix(".csv")
    run("predict", str(place), "--output", str(out), "--num_samples", "20", "--seed", "0", "--paths", "--quiet")
    with (place / "metrics.csv").open() as file:
        losses = " ".join(row["train_loss"] for row in csv.DictReader(file))
    return {"losses": losses, "forecasts": hashlib.sha256(out.read_bytes()).hexdigest()}


def write_timed(path: Path) -> Path:
    """Writes two series whose observations need no grid, by arithmetic alone."""
    lines = ["item_id,timestamp,target"]
    for item in range(2):
        for k in range(60):
            minutes = 97 * k + k * k * (item + 3) % 89
            lines.append(f"s{item},2024-03-{1 + minutes // 1440:02}T{minutes // 60 % 24:02}:{minutes % 60:02},{k % 7}")
    path.write_text("\n".join(lines) + "\n")
    return path


def fingerprint_learner(name: str, folder: Path) -> dict[str, str]:
    """Scores of a stream, all digits."""
    run("stream", name, "--data", "digits", "--limit", "60", "--output", str(folder / name), "--quiet")
    scores = json.loads((folder / name / "scores.json").read_text())
    return {key: repr(scores[key]) for key in ("log_loss", "accuracy", "calibration_error")}


def main() -> int:
    """Writes the fingerprints, and compares them if asked to.

    Returns:
        1 if something differs.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    chosen = parser.parse_args()
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            found[f"model {model}"] = fingerprint_model(model, Path(name), *ON_A_GRID)
            print(model, found[f"model {model}"], flush=True)
        data = ("--irregular", "--data", str(write_timed(Path(name, "clock.csv"))))
        for model in TIMED:
            found[f"timed {model}"] = fingerprint_model(model, Path(name), *data, timed=True)
            print("timed", model, found[f"timed {model}"], flush=True)
        for learner in LEARNERS:
            found[f"learner {learner}"] = fingerprint_learner(learner, Path(name))
            print(learner, found[f"learner {learner}"], flush=True)
    chosen.out.write_text(json.dumps(found, indent=2) + "\n")
    if chosen.against is None:
        return 0
    before = json.loads(chosen.against.read_text())
    differing = [key for key in sorted(before.keys() | found.keys()) if before.get(key) != found.get(key)]
    print(f"{len(found)} compared, differing: {', '.join(differing) or 'none'}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
