"""`tsforecast train MODEL`: from a data set to a run folder."""

import logging
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from jsonargparse import Namespace
from lightning.pytorch.callbacks import LambdaCallback, Timer

from tsforecast.cli import irregular, options, parsing, run_records, runs
from tsforecast.cli.choices import DATA, RUN, as_record, choices, settled, tell
from tsforecast.cli.epochs import progress, trainer_options
from tsforecast.cli.provenance import commit
from tsforecast.cli.run_log import collected_notes, log_file
from tsforecast.cli.train_parser import Training, check_ranges
from tsforecast.data import ForecastTask
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.forecasting import presets
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.forecasting.predictor import save_predictor
from tsforecast.plots import plot_learning_curve, save_figure
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)


def run(call: Training) -> int:
    """Train, or go on training."""
    if (helped := runs.helped()) is not None:
        return _help(helped)
    if call.resume:
        return _resume(Path(call.resume), call)
    model, chosen, selection = call.model, call.chosen, None
    if chosen.irregular:
        irregular.complete(call)
    with collected_notes() as notes:
        task = options.task_of(chosen)
        folder = Path(chosen.output) if chosen.output else runs.default_folder(model, task.name)
        if not call.is_printed:
            runs.refuse_used(folder)
        if not task.gap:
            model, chosen, selection = settled(call, task)
            check_ranges(chosen, model)
    if call.is_printed:
        sys.stdout.write(config(model, chosen))
        return 0
    record = new_record(model, folder, chosen, task, "train", call.argv)
    if selection is not None:
        record["selection"] = as_record(selection)
    with runs.hold(folder):
        runs.create(folder, config(model, chosen), record)
        try:
            return _train(folder, record, chosen, task, None, notes)
        except Exception:
            if runs.last_checkpoint(folder) is None:  # nothing to go on with: the name is free again
                shutil.rmtree(folder)
            raise


def _resume(folder: Path, call: Training) -> int:
    """Goes on with a run that was stopped."""
    record = run_records.read_record(folder, "train")
    _refuse_changes(call, record["model"])
    if runs.finished(folder):
        log.info("%s is finished already; `%s %s` scores it", folder, parsing.typed("evaluate"), folder)
        return 0
    chosen = options.settings(folder, record)
    task = options.task_of(chosen, record)
    runs.check_resumed(folder, record, _split_record(task)["fingerprint"])
    with runs.hold(folder):
        return _train(folder, record, chosen, task, runs.last_checkpoint(folder))


def _help(folder: Path) -> int:
    """Trains beside the process that has begun a run, which writes its folder: Lightning calls the command again."""
    with warnings_only("tsforecast"):
        record = run_records.read_record(folder, "train")
        chosen = options.settings(folder, record)
        task = options.task_of(chosen, record)
        if chosen.threads:
            torch.set_num_threads(chosen.threads)
        pl.seed_everything(chosen.seed, verbose=False)
        training, validation = options.training_parts(task, chosen.validation)
        forecaster = estimator(folder, record, chosen, [Timer(verbose=False)])
        forecaster.train(training, validation, ckpt_path=runs.last_checkpoint(folder))
    return 0


def _refuse_changes(call: Training, model: str) -> None:
    """A run goes on as it began: no other model, no other options."""
    if call.model not in ("", model):
        raise ValueError(f"the run is one of {model!r}, not {call.model!r}; leave the model out beside --resume")
    for name in vars(call.given):
        if name != "resume":
            raise ValueError(f"a run goes on with its own options: leave out --{name} beside --resume")


def config(model: str, chosen: Namespace) -> str:
    """The resolved options as YAML, without what belongs to this run only."""
    kept = {
        name: value
        for name, value in vars(chosen).items()
        if name not in ("config", "recipe", "preset", "output", "resume", "drop_unusable")
    }
    if chosen.data is not None:
        kept["data"] = str(Path(chosen.data).resolve())
    return f"# tsforecast train {model} --config THIS_FILE\n" + yaml.safe_dump(kept, sort_keys=False)


def _split_record(task: ForecastTask) -> dict[str, Any]:
    """Return what run.json keeps of how the data are split, and by which they are known again."""
    split = {"freq": task.freq, "prediction_length": task.prediction_length, "windows": task.windows}
    return {
        "split": split | ({"gap": task.gap} if task.gap else {}),
        "fingerprint": runs.fingerprint(task),
        # Equal for runs that can be compared, with covariates or without.
        "targets_fingerprint": runs.fingerprint(task, ("item_id", "times" if task.gap else "start", "target")),
    }


def new_record(
    model: str, folder: Path, chosen: Namespace, task: ForecastTask, command: str, argv: Sequence[str]
) -> dict[str, Any]:
    """Return the contents of run.json of a run that begins."""
    return {
        "format": run_records.FORMAT,
        "model": model,
        "dataset": task.name,
        **_split_record(task),
        "series": len(task.entries),
        "categories": task.categories,
        "columns": None if task.columns is None else as_lists(task.columns),
        "seed": chosen.seed,
        "command": shlex.join(["tsforecast", command, *argv]),
        "versions": run_records.versions(),
        "commit": commit(),
        "folder": str(folder.resolve()),
        "started": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def estimator(
    folder: Path, record: dict[str, Any], chosen: Namespace, callbacks: Sequence[pl.Callback] = ()
) -> StateSpaceEstimator:
    """The estimator of a run, which writes checkpoints and losses."""
    return estimator_of(record, chosen, trainer_options(folder, chosen, callbacks))


def estimator_of(record: dict[str, Any], chosen: Namespace, trainer: dict[str, Any]) -> StateSpaceEstimator:
    """The estimator of a run with further options of the trainer."""
    own = {name: value for name, value in vars(chosen).items() if name not in RUN | DATA}
    trainer = {"max_epochs": chosen.max_epochs, "gradient_clip_val": chosen.gradient_clip_val or None} | trainer
    if run_records.is_irregular(record):
        time, names = {"horizon": record["split"]["prediction_length"]}, irregular.own_options(record["model"])
        names = ("context_length", "batch_size", "num_batches_per_epoch", *names)
        own = {name: own[name] for name in names if own.get(name) is not None}
    else:
        time = {name: record["split"][name] for name in ("freq", "prediction_length")}
        own["preset"] = presets.NONE  # config.yaml has its options
        trainer |= {"accelerator": chosen.accelerator, "devices": chosen.devices}
    return StateSpaceEstimator(record["model"], seed=chosen.seed, trainer_kwargs=trainer, **time, **own)


def _training(
    folder: Path, record: dict[str, Any], chosen: Namespace, task: ForecastTask, timer: Timer
) -> Callable[..., Any]:
    """Return what trains on the data, from the checkpoint `ckpt_path` on."""
    lines = progress(chosen.max_epochs)
    if task.gap:
        return partial(estimator(folder, record, chosen, [timer, lines]).train, task)

    def tell_choices(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, ForecasterInTraining)
        if "chosen" not in record:
            record["chosen"] = choices(chosen, task, forecaster.on_grid, module.forecaster)
            run_records.write_record(folder, record)
            tell(record["chosen"])

    training, validation = options.training_parts(task, chosen.validation)
    forecaster = estimator(folder, record, chosen, [timer, LambdaCallback(on_train_start=tell_choices), lines])
    forecaster.columns_of_entries = task.columns
    return partial(forecaster.train, training, validation)


def _train(
    folder: Path,
    record: dict[str, Any],
    chosen: Namespace,
    task: ForecastTask,
    checkpoint: Path | None,
    notes: Sequence[logging.LogRecord] = (),
) -> int:
    """Trains from the beginning or from a checkpoint, and completes the run folder."""
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    with log_file(folder / "train.log", notes):
        runs.keep_metrics(folder)
        log.info("%s: %s on %s, %d series", folder, record["model"], task.name, len(task.entries))
        if checkpoint is not None:
            log.info("goes on after epoch %d", len(runs.read_metrics(folder)))
        pl.seed_everything(chosen.seed, verbose=False)
        timer = Timer(verbose=False)  # over interruptions: checkpoints have its time
        train = _training(folder, record, chosen, task, timer)
        try:
            with runs.with_help(folder):
                predictor = train(ckpt_path=checkpoint)
        except (KeyboardInterrupt, SystemExit):  # Lightning turns the one into the other
            log.warning(
                "stopped; `%s --resume %s` goes on after the last finished epoch", parsing.typed("train"), folder
            )
            return 130
        metrics = runs.keep_metrics(folder)
        if chosen.max_epochs:
            figure = plot_learning_curve(metrics, title=f"{record['model']}, {task.name}")
            save_figure(figure, folder / "learning_curve.png")
        else:
            log.info("no epoch: parameters stay those learnt from public series")
        seconds = round(timer.time_elapsed(), 1)
        if task.gap:
            record["components"] = predictor.prediction_net.hyperparameters.get("components")
        run_records.write_record(folder, record | {"finished": _now(), "epochs": len(metrics), "seconds": seconds})
        save_predictor(predictor, folder / runs.PREDICTOR)  # last: from then on the run counts as finished
        log.info("%s: finished after %.0f s; `%s %s` scores it", folder, seconds, parsing.typed("evaluate"), folder)
    return 0
