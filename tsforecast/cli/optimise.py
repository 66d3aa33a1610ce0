"""`tsforecast optimise`: the least value of a function by draws from a network's belief, or the next points of a table.

A run on a function with a known least value has a folder. A table of a user's own has rows that he fills in (`trials`).
"""

import csv
import dataclasses
import logging
import math
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tsforecast.cli import runs, trials
from tsforecast.cli.learning_commands import Optimise
from tsforecast.decisions.evaluations import Evaluations
from tsforecast.decisions.functions import FUNCTIONS, TestFunction
from tsforecast.decisions.optimisation import Optimiser
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.decisions.trust_region import TrustRegion
from tsforecast.io.files import append_file, replace_file, write_json
from tsforecast.learners.config import LearnerConfig
from tsforecast.plots import plot_optimisation, save_figure
from tsforecast.progress import follow
from tsforecast.settings import BeliefSettings
from tsforecast.wording import counted

log = logging.getLogger(__name__)

EVALUATIONS = "evaluations.csv"


def run(chosen: Optimise) -> int:
    """Optimise, or go on."""
    if chosen.resume:
        folder = Path(chosen.resume)
        chosen, _ = runs.recorded(folder, "optimise", Optimise)
        with runs.hold(folder):
            return _optimise(folder, chosen, _of_function(chosen))
    if chosen.trials:
        limits = trials.read_limits(chosen.limits)
        goal = trials.Goal(tuple(chosen.objectives), limits, chosen.maximise)
        space = trials.read_bounds(chosen.bounds, goal.columns)
        optimiser = dataclasses.replace(_optimiser(chosen, space.low, space.high), snap=space.snap)
        return trials.propose(Path(chosen.trials), space, optimiser, chosen.points, goal)
    optimiser = _of_function(chosen)
    folder = Path(chosen.output) if chosen.output else runs.default_folder(chosen.learner, chosen.function)
    with runs.begun(folder, "optimise", chosen, chosen.kept):
        return _optimise(folder, chosen, optimiser)


def _of_function(chosen: Optimise) -> Optimiser:
    """Return the optimiser over the box of a function with a known least value."""
    return _optimiser(chosen, FUNCTIONS[chosen.function].low, FUNCTIONS[chosen.function].high)


def _optimiser(chosen: Optimise, low: tuple[float, ...], high: tuple[float, ...]) -> Optimiser:
    """Return the optimiser that the options name."""
    config = LearnerConfig(chosen.learner, **BeliefSettings.values_of(chosen))
    surrogate = Surrogate(config, tuple(chosen.hidden), chosen.scale, chosen.noise)
    region = TrustRegion(patience=chosen.patience, neighbours=chosen.neighbours)
    return Optimiser(
        low, high, surrogate, region, initial=chosen.initial, seed=chosen.seed, acquisition=chosen.acquisition
    )


def _columns(function: TestFunction) -> list[str]:
    return ["evaluation", *(f"x{k + 1}" for k in range(function.dim)), "value", "regret", "seconds"]


def _read(path: Path, function: TestFunction, optimiser: Optimiser) -> tuple[Evaluations, list[dict[str, Any]]]:
    """What a table of evaluations says; half a line that a kill has left is cut off, a missing table is begun."""
    columns = _columns(function)
    if not path.is_file():
        with replace_file(path) as temporary, temporary.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(columns)
        return optimiser.init(), []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with replace_file(path) as temporary:
            temporary.write_bytes(whole)
    known = optimiser.init()
    try:
        lines = [*csv.reader(whole.decode("utf-8").splitlines())]
        if lines[:1] != [columns]:
            raise ValueError(f"expected the columns {', '.join(columns)}")
        rows = []
        for k, line in enumerate(lines[1:]):
            numbers = [float(cell or math.nan) for cell in line]
            if len(numbers) != len(columns) or numbers[0] != k + 1:
                raise ValueError(f"expected evaluation {k + 1} in line {k + 2}")
            known = optimiser.tell(known, torch.tensor(numbers[1:-3], dtype=torch.float64), numbers[-3])
            rows.append(dict(zip(columns, numbers, strict=True)))
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is damaged ({error}); begin a new run") from error
    return known, rows


def _optimise(folder: Path, chosen: Optimise, optimiser: Optimiser) -> int:
    """The loop: each evaluation is in the table before the next begins, and is all that the next depends on."""
    function, path = FUNCTIONS[chosen.function], folder / EVALUATIONS
    known, rows = _read(path, function, optimiser)
    columns, left = _columns(function), range(len(rows), chosen.evaluations)

    def state() -> str:
        return f"least {known.best[1]:.6g}"

    try:
        for _ in follow(left, "optimise", len(left), "evaluations", state):
            began = time.perf_counter()
            point = optimiser.ask(known)
            value = function(point).item()
            known = optimiser.tell(known, point, value)
            regret = known.best[1] - function.least
            row = dict(zip(columns, [len(rows) + 1, *point.tolist(), value, regret], strict=False))
            row["seconds"] = round(time.perf_counter() - began, 6)
            with append_file(path) as file:
                csv.DictWriter(file, columns, lineterminator="\n").writerow(row)
            rows.append(row)
    except KeyboardInterrupt:
        log.info(
            "stopped after %s; `tsforecast optimise --resume %s` goes on", counted(len(rows), "evaluation"), folder
        )
        return 130
    _report(folder, chosen, known, pd.DataFrame(rows))
    return 0


def _report(folder: Path, chosen: Optimise, known: Evaluations, table: pd.DataFrame) -> None:
    """Writes scores and picture, and says what was found."""
    point, value = known.best
    regret = float(table["regret"].iloc[-1])
    found = {
        "function": chosen.function,
        "acquisition": chosen.acquisition,
        "learner": chosen.learner,
        "evaluations": len(table),
        "least": value,
        "at": point.tolist(),
        "regret": regret,
        "seconds_per_evaluation": float(table["seconds"].mean()),
    }
    write_json(folder / "scores.json", found)
    title = f"{chosen.function}, {chosen.learner if chosen.acquisition == 'thompson' else chosen.acquisition}"
    save_figure(plot_optimisation(table, chosen.initial, title=title), folder / "regret.png")
    place = ", ".join(f"{x:.5g}" for x in point.tolist())
    sys.stdout.write(f"least value {value:.6g} at ({place}) after {len(table)} evaluations, regret {regret:.3g}\n")
    log.info("%s: %s, scores.json, regret.png", folder, EVALUATIONS)
