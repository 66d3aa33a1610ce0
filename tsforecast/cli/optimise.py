"""`tsforecast optimise`: the least value of a function by draws from a network's belief, or the next points of a table.

A run on a function with a known least value has a folder. A table of a user's own has rows that he fills in (`trials`).
"""

import csv
import json
import logging
import math
import sys
import time
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jsonargparse import Namespace
from tqdm import tqdm

from tsforecast.cli import parsers, parsing, runs, trials
from tsforecast.decisions.functions import FUNCTIONS, TestFunction
from tsforecast.decisions.optimisation import Evaluations, ThompsonOptimiser, TrustRegion
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.io.files import append_file, replace_file
from tsforecast.learners.config import LearnerConfig
from tsforecast.plots import plot_optimisation, save_figure
from tsforecast.progress import is_watched, quiet

log = logging.getLogger(__name__)

EVALUATIONS = "evaluations.csv"
_OWN = ("output", "resume")


def run(argv: Sequence[str]) -> int:
    """Optimises, or goes on.

    Args:
        argv: Arguments of the command.

    Returns:
        0, or 130 after Ctrl-C.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If options or the folder are not as expected.
        FileNotFoundError: If the folder is missing.
    """
    chosen = parsers.optimise().parse_args(list(argv))
    parsing.check_ranges(chosen)
    if chosen.resume:
        parsing.refuse_beside_resume(argv, chosen.function)
        folder = Path(chosen.resume)
        chosen = _recorded(folder)
        with runs.hold(folder):
            return _optimise(folder, chosen, _of_function(chosen))
    if chosen.trials:
        bounds = trials.read_bounds(chosen.bounds)
        low, high = zip(*(bound.corners() for bound in bounds), strict=True)
        return trials.propose(
            Path(chosen.trials), bounds, _optimiser(chosen, low, high), chosen.points, chosen.maximise
        )
    optimiser = _of_function(chosen)
    folder = Path(chosen.output) if chosen.output else runs.default_folder(chosen.learner, chosen.function)
    options = {key: value for key, value in chosen.as_dict().items() if key not in _OWN}
    record = runs.new_record("optimise", options, argv)
    with runs.hold(folder):
        runs.create(folder, json.dumps(options, indent=2) + "\n", record)
        return _optimise(folder, chosen, optimiser)


def _recorded(folder: Path) -> Namespace:
    """The options that a run began with, each checked as on the command line.

    Raises:
        ValueError: If the folder is no such run, or its record is damaged.
    """
    record = runs.read_record(folder)
    if not isinstance(record.get("optimise"), dict):
        raise ValueError(f"{folder} is no run of `tsforecast optimise`")
    try:
        chosen = parsers.optimise().parse_object(record["optimise"])
        parsing.check_ranges(chosen)
    except (ArgumentError, ValueError) as error:
        fault = parsing.explained(str(error), parsers.optimise(), ())
        raise ValueError(f"{folder / runs.RECORD} is damaged: {fault:.300}; begin a new run") from error
    return chosen


def _of_function(chosen: Namespace) -> ThompsonOptimiser:
    """Return the optimiser over the box of a function with a known least value.

    Raises:
        ValueError: If there is no such function, or the options do not fit together.
    """
    if chosen.function not in FUNCTIONS:
        raise ValueError(parsing.unknown("function", chosen.function, FUNCTIONS))
    return _optimiser(chosen, FUNCTIONS[chosen.function].low, FUNCTIONS[chosen.function].high)


def _optimiser(chosen: Namespace, low: tuple[float, ...], high: tuple[float, ...]) -> ThompsonOptimiser:
    """Return the optimiser that the options name.

    Raises:
        ValueError: If they do not fit together.
    """
    if chosen.rank < 0:
        raise ValueError(f"expected --rank of at least 0, got {chosen.rank}")
    config = LearnerConfig(chosen.learner, variance=chosen.variance, rank=chosen.rank, settings=chosen.settings)
    surrogate = Surrogate(config, tuple(chosen.hidden), chosen.scale, chosen.noise)
    region = TrustRegion(patience=chosen.patience, neighbours=chosen.neighbours)
    return ThompsonOptimiser(low, high, surrogate, region, initial=chosen.initial, seed=chosen.seed)


def _columns(function: TestFunction) -> list[str]:
    return ["evaluation", *(f"x{k + 1}" for k in range(function.dim)), "value", "regret", "seconds"]


def _read(path: Path, function: TestFunction, optimiser: ThompsonOptimiser) -> tuple[Evaluations, list[dict[str, Any]]]:
    """What a table of evaluations says; half a line that a kill has left is cut off, a missing table is begun.

    Raises:
        ValueError: If it is damaged.
    """
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


def _optimise(folder: Path, chosen: Namespace, optimiser: ThompsonOptimiser) -> int:
    """The loop: each evaluation is in the table before the next begins, and is all that the next depends on."""
    function, path = FUNCTIONS[chosen.function], folder / EVALUATIONS
    known, rows = _read(path, function, optimiser)
    columns, every = _columns(function), 0.1 if is_watched() else 30
    bar = tqdm(initial=len(rows), total=chosen.evaluations, unit="eval", mininterval=every, disable=quiet.get())
    try:
        with bar:
            while len(rows) < chosen.evaluations:
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
                bar.update()
                bar.set_postfix_str(f"least {known.best[1]:.6g}", refresh=False)
    except KeyboardInterrupt:
        log.info("stopped after %d evaluations; `tsforecast optimise --resume %s` goes on", len(rows), folder)
        return 130
    _report(folder, chosen, known, pd.DataFrame(rows))
    return 0


def _report(folder: Path, chosen: Namespace, known: Evaluations, table: pd.DataFrame) -> None:
    """Writes scores and picture, and says what was found."""
    point, value = known.best
    regret = float(table["regret"].iloc[-1])
    found = {
        "function": chosen.function,
        "learner": chosen.learner,
        "evaluations": len(table),
        "least": value,
        "at": point.tolist(),
        "regret": regret,
        "seconds_per_evaluation": float(table["seconds"].mean()),
    }
    with replace_file(folder / "scores.json") as temporary:
        temporary.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    title = f"{chosen.function}, {chosen.learner}"
    save_figure(plot_optimisation(table, chosen.initial, title=title), folder / "regret.png")
    place = ", ".join(f"{x:.5g}" for x in point.tolist())
    sys.stdout.write(f"least value {value:.6g} at ({place}) after {len(table)} evaluations, regret {regret:.3g}\n")
    log.info("%s: %s, scores.json, regret.png", folder, EVALUATIONS)
