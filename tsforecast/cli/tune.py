"""`tsforecast tune MODEL`: looks for hyperparameters, on windows before the test part."""

import importlib.util
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jsonargparse import Namespace
from lightning.pytorch import seed_everything
from tqdm import tqdm

from tsforecast.cli import command_lines, options, parsing, runs, train
from tsforecast.cli.choices import settled
from tsforecast.cli.run_log import log_file
from tsforecast.data import ForecastTask
from tsforecast.evaluation import score
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.io.files import replace_file, scratch_folder
from tsforecast.io.reading import MOST_RECORD, parse_json, read_text, read_yaml
from tsforecast.plots import plot_study, save_figure
from tsforecast.progress import is_watched

log = logging.getLogger(__name__)

# What is tried of hyperparameters that a model has; rates are tried around what the options say.
_CHOICES: dict[str, list[Any]] = {
    "components": ["auto", "paper"],
    "objective": ["crps", "likelihood"],
    "state_dim": [8, 16, 32],
    "hidden": [32, 64, 128],
    "num_bases": [5, 10, 20],
    "switch_dim": [2, 4, 10],
    "persistence": [0.0, 0.9, 0.95, 0.99],
}
_RATES = ("learning_rate", "matrix_learning_rate", "network_learning_rate")
_STUDY, _TRIALS, _BEST, _PICTURE = "study.log", "trials.csv", "best.yaml", "study.png"


def run(call: command_lines.Tuning) -> int:
    """Try settings until there are as many trials as asked for; a study that was stopped goes on."""
    own, chosen = call.own, call.training.chosen
    if chosen.resume or chosen.output:
        raise ValueError("expected neither --resume nor --output: a study has a folder of its own, see --study")
    if importlib.util.find_spec("optuna") is None:
        raise ValueError("tune needs Optuna: `pip install tsforecast[tune]`")
    if chosen.irregular:
        raise ValueError("--irregular goes with `train issm`, `gls`, `rsgls-issm` and `sgls`")
    task = validation_task(options.task_of(chosen), own.validation_windows)
    _, chosen, _ = settled(call.training, task)
    space = read_space(own.space, chosen)
    folder = Path(own.study)
    with runs.hold(folder):
        return _search(folder, own, chosen, space, task)


def _search(folder: Path, own: command_lines.Tune, chosen: Namespace, space: dict[str, Any], task: ForecastTask) -> int:
    """Begins or goes on with a study whose folder is held."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = f"{own.model} on {task.name} ({runs.fingerprint(task)})"
    _mend(folder / _STUDY)
    storage, names = _open(folder / _STUDY)
    others = names - {name}
    if others:
        raise ValueError(f"{folder} holds the study {', '.join(others)}, not {name}: give another --study")
    study = optuna.create_study(storage=storage, study_name=name, direction="minimize", load_if_exists=True)
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # left by a study that was killed
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    done = [trial for trial in study.trials if trial.state.is_finished() and trial.state.name != "FAIL"]
    if done:
        _write(folder, study, chosen, own.model)  # a kill may have come between a trial and its row
    elif not study.get_trials(states=[optuna.trial.TrialState.WAITING]):
        # What the options say comes first: all else is compared with it.
        given = {key: chosen[key] for key, values in space.items() if fits(chosen[key], values)}
        study.enqueue_trial(given)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    with tqdm(total=own.trials, initial=len(done), unit="trial", desc=name, disable=not is_watched()) as bar:
        for count in range(len(done), own.trials):
            # By what is done, so that a study that was stopped goes on as if it had not been.
            study.sampler = optuna.samplers.TPESampler(seed=chosen.seed + count)
            trial = study.ask()
            tried = {key: suggest(trial, key, values) for key, values in space.items()}
            began = time.monotonic()
            try:
                with scratch_folder(folder) as scratch:
                    crps = trial_crps(own.model, chosen, task, tried, scratch)
                trial.set_user_attr("seconds", round(time.monotonic() - began, 1))
                study.tell(trial, crps)
            except (ArithmeticError, ValueError) as error:  # settings with which the training diverges, or none at all
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                crps = math.nan
                log.info("trial %d failed: %s", trial.number, error)
            except KeyboardInterrupt:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                log.warning("stopped; the same command goes on")
                return 130
            log.info("trial %d: CRPS %.5g with %s", trial.number, crps, tried)
            _write(folder, study, chosen, own.model)
            bar.update()
    sys.stdout.write(_summary(folder, study, own.model))
    return 0


def _open(path: Path) -> tuple[Any, set[str]]:
    """The log of a study as Optuna's storage, and the names of the studies in it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        for line in read_text(path, MOST_RECORD).splitlines() if path.exists() else []:
            entry = parse_json(line)
            if not isinstance(entry, dict) or not isinstance(entry.get("op_code"), int):
                raise ValueError(f"expected an entry of Optuna's journal, got {line!r:.80}")
        storage = JournalStorage(JournalFileBackend(str(path)))
        return storage, {summary.study_name for summary in optuna.get_all_study_summaries(storage)}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError) as error:
        raise ValueError(f"{path} is damaged, or no log of a study ({error!r:.200}); give another --study") from error


def validation_task(task: ForecastTask, windows: int) -> ForecastTask:
    """The task without its test part, its last windows in place of it; a ValueError if a series is too short."""
    entries = task.train
    shortest = min(entry["target"].shape[-1] for entry in entries)
    if shortest <= windows * task.prediction_length:
        raise ValueError(
            f"the shortest series has {shortest} steps before the test part, too few for {windows} validation windows "
            f"of {task.prediction_length} steps and something to train on"
        )
    return replace(task, entries=entries, windows=windows)


def read_space(path: str | None, chosen: Namespace) -> dict[str, Any]:
    """What is tried, of a YAML file or for None of every model: hyperparameter -> choices, or `low`, `high`, `log`."""
    if path is None:
        space: dict[str, Any] = {name: values for name, values in _CHOICES.items() if name in chosen}
        if chosen.get("components") == "none":  # of models that do without them
            space["components"] = ["none", *space["components"]]
        for name in _RATES:
            if name in chosen:
                rate = chosen["learning_rate"] if chosen[name] is None else chosen[name]
                space[name] = {"low": rate / 10, "high": rate * 10, "log": True}
        return space
    space = read_yaml(path)
    if not isinstance(space, dict) or not space:
        raise ValueError(f"expected {path} to map hyperparameters to what is tried, got {space!r}")
    for name, values in space.items():
        if name not in chosen:
            raise ValueError(f"{path}: the model has no hyperparameter {name!r}")
        is_range = isinstance(values, Mapping) and {"low", "high"} <= {*values} <= {"low", "high", "log"}
        if not is_range and not (isinstance(values, list) and values):
            raise ValueError(f"{path}: expected choices or low and high (and log) for {name!r}, got {values!r}")
    return space


def fits(value: Any, values: Any) -> bool:
    """Whether a value is among those tried."""
    if isinstance(values, Mapping):
        return value is not None and values["low"] <= value <= values["high"]
    return value in values


def suggest(trial: Any, name: str, values: Any) -> Any:
    """A value of the space, by Optuna."""
    if not isinstance(values, Mapping):
        return trial.suggest_categorical(name, values)
    low, high, is_log = values["low"], values["high"], bool(values.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=is_log)
    return trial.suggest_float(name, float(low), float(high), log=is_log)


def trial_crps(model: str, chosen: Namespace, task: ForecastTask, tried: Mapping[str, Any], scratch: Path) -> float:
    """CRPS on the validation windows, of a model trained on what comes before them.

    Raises:
        ArithmeticError: If the training diverges.
        ValueError: If the settings do not go together.
    """
    settings = chosen.clone()
    settings.update(Namespace(**tried))
    split = {"freq": task.freq, "prediction_length": task.prediction_length}
    seed_everything(chosen.seed, verbose=False)
    with log_file(scratch / "train.log"):
        estimator = train.estimator(scratch, {"model": model, "split": split}, settings)
        predictor = estimator.train(task.train)
    assert isinstance(predictor, StateSpacePredictor)
    torch.manual_seed(chosen.seed)
    test = task.test("rolling")
    return score(predictor.predict(test.input), test).overall["crps"]


def _mend(path: Path) -> None:
    """Prepares the log of a killed study for Optuna: no lock of a dead process, no half line at the end."""
    for stale in path.parent.glob(f"{path.name}.lock*"):  # nobody else writes here: the folder is held
        stale.unlink()
    content = path.read_bytes() if path.is_file() else b""
    whole = content.rfind(b"\n") + 1
    if content[whole:].startswith(b"{") and content.startswith(b'{"op_code"'):
        os.truncate(path, whole)


def _write(folder: Path, study: Any, chosen: Namespace, model: str) -> None:
    """Trials as a table and a picture, and the best as options of `train`."""
    rows = [
        {"trial": t.number, "crps": t.value, "seconds": t.user_attrs.get("seconds"), **t.params}
        for t in study.trials
        if t.state.name in ("COMPLETE", "PRUNED")
    ]
    table = pd.DataFrame(rows)
    with replace_file(folder / _TRIALS) as temporary:
        table.to_csv(temporary, index=False)
    if any(t.state.name == "COMPLETE" for t in study.trials):
        best = chosen.clone()
        best.update(Namespace(**study.best_params))
        with replace_file(folder / _BEST) as temporary:
            temporary.write_text(train.config(model, best), encoding="utf-8")
        save_figure(plot_study(table, title=study.study_name), folder / _PICTURE)


def _summary(folder: Path, study: Any, model: str) -> str:
    lines = [f"{study.study_name}: {len(study.trials)} trials in {folder}"]
    complete = [t for t in study.trials if t.state.name == "COMPLETE"]
    if not complete:
        return lines[0] + "; none could be trained: look at the space\n"
    best, first = study.best_trial, complete[0]
    lines += [f"CRPS {first.value:.5g} with {first.params}", f"CRPS {best.value:.5g} with {best.params} (best)"]
    lines += ["Train it: " + f"{parsing.typed('train')} {model} " + shlex.join(["--config", str(folder / _BEST)])]
    return "\n".join(lines) + "\n"
