"""The parser of `tsforecast train`: one subcommand per model, whose options its source declares."""

import dataclasses
import inspect
from collections.abc import Collection
from typing import Any

from jsonargparse import ArgumentParser

from tsforecast.cli import names, parsing
from tsforecast.cli.data_options import add_data, add_threads
from tsforecast.cli.declared import declared
from tsforecast.cli.names import AUTO

_ESTIMATOR = "tsforecast.forecasting.estimator"


def parser(models: Collection[str] = names.TRAINED) -> ArgumentParser:
    """The options: one subcommand per model, its hyperparameters as its constructor declares them.

    Args:
        models: Those that get their options, which takes time. The others have their name and summary alone.
    """
    train = parsing.command_parser("train", "Train a model.")
    train.add_argument("--resume", metavar="RUN", type=str, help="go on with a run that was stopped")
    commands = train.add_subcommands(required=False, dest="model", metavar="MODEL")
    command = parsing.command_parser(f"train {AUTO}", "A model and options that the data choose.")
    if AUTO in models:
        add_data(command)
        _add_run(command)
        command.add_argument("--time_budget", type=float, help="seconds for choosing (half of them) and training")
        command.add_argument("--models", type=str, help="models to compare with all their variants, such as issm,gls")
    commands.add_subcommand(AUTO, command)
    for name, model in declared("tsforecast.models", "MODELS").items():
        summary = (model.__doc__ or "").strip().split("\n")[0]
        command = parsing.command_parser(f"train {name}", summary)
        if name in models:
            _add_model(command, name, model)
        commands.add_subcommand(name, command)
    return train


def named(argv: Collection[str]) -> list[str]:
    """Models that arguments name: those whose options are needed to read them."""
    return [name for name in names.TRAINED if name in argv]


def _add_model(command: ArgumentParser, name: str, model: type[Any]) -> None:
    command.add_argument(
        "--config", action=parsing.ConfigFile, help="YAML file of options, such as the config.yaml of a run"
    )
    command.add_argument(
        "--recipe", metavar="NAME", type=str, help="options of a published row of --dataset, such as best or paper"
    )
    if name in declared("tsforecast.forecasting.presets", "SWITCHING"):
        presets = declared("tsforecast.forecasting.presets", "PRESETS")
        command.add_argument(
            "--preset",
            choices=presets,
            default=presets[0],
            help="settings by frequency: best, fast, those of the papers, or none; all other options win",
        )
    add_data(command)
    _add_run(command)
    skip: set[str | int] = {
        "model", "freq", "prediction_length", "seed", "trainer_kwargs", "num_samples", "models", "preset",
    }  # fmt: skip
    command.add_class_arguments(declared(_ESTIMATOR, "StateSpaceEstimator"), skip=skip)
    add_options(command, model)


def add_options(parser: ArgumentParser, model: type[Any], skip: Collection[str] = ()) -> None:
    """Adds the options of a model side by side: those of its records, and its own.

    Args:
        parser: Parser of a command.
        model: Class of the model, or what its source declares.
        skip: More options that are left out, beside those that data decide.
    """
    left_out: set[str | int] = {*declared("tsforecast.models", "DATA_DECIDED"), *skip}
    own = inspect.signature(model).parameters
    records = {name: given.default for name, given in own.items() if dataclasses.is_dataclass(given.default)}
    for record in records.values():
        fields = vars(record)
        parser.add_class_arguments(type(record), skip=left_out & {*fields})
        parser.set_defaults({key: value for key, value in fields.items() if key not in left_out})
    parser.add_class_arguments(model, skip=(left_out | {"data", *records}) & {*own})


def _add_run(command: ArgumentParser) -> None:
    group = command.add_argument_group("run")
    group.add_argument("--output", metavar="RUN", type=str, help="run folder; default: outputs/MODEL-DATA-TIME")
    group.add_argument("--resume", metavar="RUN", type=str, help="go on with a run that was stopped")
    group.add_argument("--seed", type=int, default=0, help="of the initial weights and the order of the data")
    epochs = declared(_ESTIMATOR, "DEFAULT_EPOCHS")
    group.add_argument("--max_epochs", type=int, default=epochs, help="length of the training")
    group.add_argument("--gradient_clip_val", type=float, default=10.0, help="largest norm of the gradient; 0: any")
    group.add_argument("--accelerator", type=str, default="auto", help="auto, cpu, gpu or another name of Lightning's")
    group.add_argument("--devices", type=int, default=1, help="of the accelerator, a process each: GPUs, or CPUs")
    add_threads(group)
    group.add_argument(
        "--validation",
        action="store_true",
        help="hold out the last window before the test part and keep the best epoch",
    )
