"""Command lines: the parser of each command, and the options in its arguments."""

from argparse import ArgumentError
from argparse import ArgumentParser as PlainParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tsforecast.cli import names, parsing, records, train_parser
from tsforecast.cli.commands import RECORDS
from tsforecast.cli.records import Command, option

LIVE = ("init", "serve")
NAMES = tuple(dict.fromkeys(name.split()[0] for name in (*RECORDS, "train", "tune")))
_LIVE = "Keep beliefs of a trained model current behind a service (see docs/howto/serve.md)."


@dataclass(frozen=True, kw_only=True)
class Tune(Command):
    """Look for hyperparameters by Optuna, on windows before the test part."""

    model: str = option(text="{MODELS}", place="MODEL", choices="MODELS")
    trials: int = option(20, "in all, with those of an earlier call", least=1)
    study: str = option(text="goes on where it stopped", metavar="FOLDER")
    space: str | None = option(None, "YAML: hyperparameter -> list of choices, or {{low, high, log}}", metavar="FILE")
    validation_windows: int = option(3, "before the test part, to score on", least=1)


@dataclass(frozen=True)
class Tuning:
    """A call of `tune`: its own options, and those of the training that is tried."""

    own: Tune
    training: train_parser.Training


def parsed(name: str, arguments: Sequence[str]) -> Command | train_parser.Training | Tuning:
    """Return the options of a command from its arguments; those of `live` begin with a name, too."""
    if name == "train":
        return train_parser.parsed(arguments)
    if name == "tune":  # what it does not know is for `train`
        own, rest = tune().parse_known_args(list(arguments))
        records.check_ranges(vars(own), Tune)
        return Tuning(Tune(**vars(own)), train_parser.parsed([own.model, *rest]))
    if name == "live":
        if not arguments or arguments[0] not in LIVE:
            parser_of(name).parse_args(list(arguments))
            raise ValueError(f"expected `{parsing.typed('live')} init` or `{parsing.typed('live')} serve`")
        name, arguments = f"live {arguments[0]}", arguments[1:]
    return RECORDS[name].parsed(name, arguments)


class _Parser(PlainParser):
    def error(self, message: str) -> NoReturn:  # where argparse would write its usage and end the process
        raise ArgumentError(None, message)


def tune() -> PlainParser:
    """Return the own options of `tsforecast tune`; all others are those of `train`."""
    command = _Parser(
        prog=parsing.typed("tune"),
        description=Tune.__doc__,
        epilog="All other options are those of `tsforecast train MODEL`: what is not tried stays as they say.",
        allow_abbrev=False,
    )
    records.add_options(command, Tune)
    return command


def parser_of(name: str, arguments: Sequence[str] = names.TRAINED) -> Any:
    """Return the parser of a command."""
    if name == "train":
        return train_parser.parser(train_parser.named(arguments))
    if name == "tune":
        return tune()
    if name == "live" and arguments[:1] and arguments[0] in LIVE:
        name = f"live {arguments[0]}"
    if name == "live":
        command = parsing.command_parser(name, _LIVE)
        commands = command.add_subcommands(required=False, dest="live", metavar="init|serve")
        for part in LIVE:
            own = parser_of(f"live {part}")
            commands.add_subcommand(part, own, help=RECORDS[f"live {part}"].__doc__)
        return command
    return records.parser_of(name, RECORDS[name])
