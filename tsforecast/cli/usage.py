"""What is wrong with the arguments of a command, said before torch is imported."""

from collections.abc import Sequence
from importlib import import_module

from tsforecast.cli import commands, names, parsing, train_parser
from tsforecast.cli.records import Command, check_ranges


def understood(command: str, arguments: Sequence[str]) -> Command | Sequence[str]:
    """Return what a command takes: its record, or the arguments of `train` and `tune`, whose models have options.

    Args:
        command: Its name.
        arguments: Of the command. Those that ask for help end the process.

    Raises:
        ArgumentError: If they are not understood.
        ValueError: If a number is out of its range, a name is not known, or there is nothing to work on.
        FileNotFoundError: If a file or a run is missing.
    """
    parsing.refuse_renamed(command, arguments)
    if command not in ("train", "tune"):
        return commands.parsed(command, arguments)
    of_training = arguments
    if command == "tune":  # what it does not know is for `train`
        own, rest = commands.tune().parse_known_args(list(arguments))
        check_ranges(vars(own), commands.Tune)
        of_training = [own.model, *rest]
    _check_train(of_training)
    given = {word.split("=")[0] for word in arguments}
    if "--data" in given and given.isdisjoint({"-h", "--help", "--irregular", "--horizon", "--recipe"}):
        import_module("tsforecast.cli.given_files").check_table(arguments)
    return arguments


def _check_train(arguments: Sequence[str]) -> None:
    # `--print_config` ends a call of the parser; what it prints, `train` finds out.
    words = [word for word in arguments if not word.startswith("--print_config")]
    chosen = train_parser.parser(train_parser.named(words)).parse_args(words)
    if chosen.model:
        train_parser.check_ranges(chosen[chosen.model])
    elif not chosen.resume:
        models = ", ".join(names.TRAINED)
        raise ValueError(f"expected a model ({models}) or --resume RUN, or data alone, as in `train --data FILE`")
