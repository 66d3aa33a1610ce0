"""Seeded losses and forecasts of every model and learner: a change of structure must not change a digit of them.

    python benchmarks/fingerprints.py before.json                       # at the commit before
    python benchmarks/fingerprints.py after.json --against before.json  # at the commit after; says what differs

Every model is trained for four steps and forecasts by the command line, as users do, so that the script runs before and
after any change behind it. Numbers are compared as text: all digits count. They differ with the number of threads, so
there is one. About three minutes on one core.
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

ROOT = Path(__file__).resolve().parent.parent
LEARNERS = ("lofi", "vd-ekf", "ekf", "lrkf", "bong", "wolf-ekf")
TRAINING = (
    "--dataset exchange --max_epochs 2 --num_batches_per_epoch 2 --seed 0 --history_length 200 --threads 1 --quiet"
)


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


def fingerprint_model(name: str, folder: Path) -> dict[str, str]:
    """Losses of an untuned model, and a digest of its forecasts."""
    run("train", name, *TRAINING.split(), "--quiet", "--output", str(folder / name))
    out = folder / f"{name}.csv"
    run("predict", str(folder / name), "--output", str(out), "--num_samples", "20", "--seed", "0", "--paths", "--quiet")
    with (folder / name / "metrics.csv").open() as file:
        losses = " ".join(row["train_loss"] for row in csv.DictReader(file))
    return {"losses": losses, "forecasts": hashlib.sha256(out.read_bytes()).hexdigest()}


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
            found[f"model {model}"] = fingerprint_model(model, Path(name))
            print(model, found[f"model {model}"], flush=True)
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
