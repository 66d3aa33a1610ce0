"""The parser of `tsforecast train`: one subcommand per model, whose options its source declares."""

import dataclasses
import functools
import inspect
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from tsforecast.cli import names, parsing, recipes, records
from tsforecast.cli.declared import declared
from tsforecast.cli.names import AUTO
from tsforecast.cli.option_groups import DataOptions, TrainingOptions
from tsforecast.cli.records import Command, option

ESTIMATOR = "tsforecast.forecasting.estimator"
_PRESETS = "tsforecast.forecasting.presets"
_PRINT = "--print_config"  # and what stands behind it
# Arguments of the estimator that are no options of it on the command line: it has them by other options, or not at all.
NO_OPTIONS = frozenset(
    {
        "model", "freq", "prediction_length", "horizon", "seed", "trainer_kwargs", "num_samples", "models", "preset",
        "series_weights",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoOptions(Command):
    """What `train auto` compares."""

    time_budget: float | None = option(None, "seconds for choosing (half of them) and training", least=0)
    models: str | None = option(None, "models to compare with all their variants, such as issm,gls")
    weights: str = option("sum", "of series in the score: sum, by which large ones count more, or equal",
        choices=("sum", "equal"))  # fmt: skip
    totals: bool | None = option(
        None, "whether series are running totals, whose increments are forecast; default: what the data show"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(AutoOptions, TrainingOptions, DataOptions):
    """Train a model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Estimator(Command):
    """Ranges of what the estimator declares."""

    plateau: float = option(0.0, least=0)


@dataclasses.dataclass(frozen=True)
class Training:
    """A call of `train`: options as arguments, files and the defaults of the model say.

    Attributes:
        model: Name of the model; empty where a run goes on by --resume alone.
        chosen: All options of the run, which `train --irregular` completes.
        given: Those that somebody chose: by arguments, in a recipe, or in another file.
        resume: Folder of a run that goes on.
        is_printed: Whether the options are printed instead of a training.
        argv: The arguments as they were typed.
    """

    model: str
    chosen: Namespace
    given: Namespace
    resume: str | None
    is_printed: bool
    argv: tuple[str, ...]


def parsed(argv: Sequence[str]) -> Training:
    """Return what arguments of `train` say.

    Options of a recipe come first, as if its file had been given by `--config` before all others.

    Args:
        argv: Arguments of the command. Those that ask for help, or for the defaults, end the process.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If there is nothing to train, no such recipe, a number is out of its range, or the table has no form
            that is read.
        FileNotFoundError: If there is no such table.
    """
    words = [word for word in argv if not word.startswith(_PRINT)]
    is_printed, command = len(words) < len(argv), parser(named(words))
    first = command.parse_args(words)
    model = first.model or ""
    chosen = first[model] if model else Namespace()
    resume = first.resume or chosen.get("resume")
    if not model and resume is None:
        models = ", ".join(names.TRAINED)
        raise ValueError(f"expected a model ({models}) or --resume RUN, or data alone, as in `train --data FILE`")
    if is_printed and not (chosen.get("data") or chosen.get("dataset")):
        command.parse_args(list(argv))  # prints the defaults, and ends
    if chosen.get("recipe") and resume is None:
        place = words.index(model) + 1
        words[place:place] = ["--config", str(recipes.find(model, chosen.dataset, chosen.recipe))]
        chosen = command.parse_args(words)[model]
    check_ranges(chosen, model)
    if chosen.get("data") and not (chosen.irregular or chosen.horizon):
        import_module("tsforecast.cli.given_files").check_table(chosen)
    given = command.parse_args(words, defaults=False)[model] if model else Namespace()
    return Training(model, chosen, given, resume, is_printed, tuple(argv))


def options_of(model: str, *words: str) -> Namespace:
    """Return the options of a model: the defaults, and those in arguments."""
    return parser([model]).parse_args([model, *words])[model]


def parser(models: Collection[str] = names.TRAINED) -> ArgumentParser:
    """The options: one subcommand per model; those given have their hyperparameters, as their constructors declare."""
    return _parser(frozenset(models), parsing.typed("train"))


@functools.cache  # a command reads its arguments several times
def _parser(models: frozenset[str], program: str) -> ArgumentParser:
    """Return the parser whose messages name a program: the one that was typed."""
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
    command.add_class_arguments(declared(ESTIMATOR, "StateSpaceEstimator"), skip={*NO_OPTIONS})
    add_options(command, model)


def add_options(parser: ArgumentParser, model: type[Any], skip: Collection[str] = ()) -> None:
    """Adds the options of a model side by side: those of its records, and its own."""
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


def check_ranges(options: Namespace, model: str) -> None:
    """Refuse numbers with which a model could not be trained, as `records.check_ranges` does."""
    least = 0 if model == "bank" else 1  # a bank begins with learnt parameters
    if options.get("max_epochs", least) < least:
        raise ValueError(f"--max_epochs: expected at least {least}, got {options.max_epochs}")
    records.check_ranges(vars(options), Train, _Estimator)
