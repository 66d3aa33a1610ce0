"""The parser of `tsforecast train`: one subcommand per model, whose options its source declares."""

import dataclasses
import inspect
from collections.abc import Collection
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from tsforecast.cli import names, parsing, records
from tsforecast.cli.declared import declared
from tsforecast.cli.names import AUTO
from tsforecast.cli.option_groups import DataOptions, TrainingOptions
from tsforecast.cli.records import Command, option

_ESTIMATOR = "tsforecast.forecasting.estimator"
_PRESETS = "tsforecast.forecasting.presets"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoOptions(Command):
    """What `train auto` compares."""

    time_budget: float | None = option(None, "seconds for choosing (half of them) and training", least=0)
    models: str | None = option(None, "models to compare with all their variants, such as issm,gls")
    weights: str = option("sum", "of series in the score: sum, by which large ones count more, or equal",
        choices=("sum", "equal"))  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Estimator(Command):
    """Ranges of what the estimator declares."""

    plateau: float = option(0.0, least=0)


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
        _add_data_and_run(command, AUTO)
        records.add_options(command, AutoOptions)
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
    if name in declared(_PRESETS, "SWITCHING"):
        presets = declared(_PRESETS, "PRESETS")
        command.add_argument(
            "--preset",
            choices=presets,
            default=presets[0],
            help="settings by frequency: best, fast, those of the papers, or none; all other options win",
        )
    _add_data_and_run(command, name)
    skip: set[str | int] = {
        "model", "freq", "prediction_length", "horizon", "seed", "trainer_kwargs", "num_samples", "models", "preset",
        "series_weights",
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


def _add_data_and_run(command: ArgumentParser, model: str) -> None:
    records.add_options(command, DataOptions, grouped=True)
    records.add_options(command, TrainingOptions, grouped=True)
    epochs = declared(_PRESETS, "EPOCHS").get(model, declared(_PRESETS, "DEFAULT_EPOCHS"))
    command.set_defaults({"max_epochs": epochs})


def check_ranges(options: Namespace) -> None:
    """Refuse numbers with which no model could be trained, as `records.check_ranges` does."""
    records.check_ranges(vars(options), DataOptions, TrainingOptions, AutoOptions, _Estimator)
