"""Scores a baseline with no model beside it.

    python experiments/table1/baseline.py deepar-20 --dataset exchange --seed 1

On the windows of `evaluate`, by the same code. With `--output` the folder gets what `evaluate` writes of a model, and
baseline.json: seconds and iterations of the fit, command and commit.
"""

import argparse
import json
import pathlib
import sys
import time

from tsforecast.cli.provenance import commit
from tsforecast.data import CATALOG, load_task
from tsforecast.data.calendar.frequency import default_season
from tsforecast.evaluation import BASELINES, DeepAR, evaluate, fit_named, format_scores, save_scores
from tsforecast.io.files import replace_file


def main() -> None:
    """Fits, scores, and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help=f"{', '.join(BASELINES)}; or with a season, deepar with a number of epochs")
    parser.add_argument("--dataset", required=True, choices=CATALOG)
    parser.add_argument("--seed", type=int, default=0, help="of the training and of sample paths")
    parser.add_argument("--output", type=pathlib.Path, help="folder for what is found; default: it is only printed")
    options = parser.parse_args()
    task = load_task(options.dataset)
    season = default_season(task.freq)
    horizons = {"rolling": task.prediction_length, "long_term": task.prediction_length * task.windows}
    started = time.monotonic()
    fitted = fit_named(options.name, task, season, seed=options.seed)
    facts = {
        "dataset": options.dataset,
        "name": options.name,
        "seed": options.seed,
        "fit_s": round(time.monotonic() - started, 1),
        "iterations": fitted.iterations if isinstance(fitted, DeepAR) else None,
        "deviations": dict(fitted.deviations),
        "command": f"python experiments/table1/baseline.py {options.name} --dataset {options.dataset} "
        f"--seed {options.seed}",
        "commit": commit(),
    }
    found = evaluate(lambda protocol: fitted.predictor(horizons[protocol]), task, model=options.name, baselines=())
    sys.stdout.write(f"{format_scores(found)}\n\n{json.dumps(facts, indent=2)}\n")
    if options.output is not None:
        save_scores(found, options.output)
        with replace_file(options.output / "baseline.json") as temporary:
            temporary.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
