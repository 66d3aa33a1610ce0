"""What is wrong with the arguments of a command, said before torch is imported."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tsforecast.cli import names, parsers, parsing, train_parser
from tsforecast.cli.live_parsers import own_parser

# Options of commands that name a file or a folder which must be there.
_READ = {
    "predict": ("data", "known", "at"),
    "impute": ("data", "at"),
    "regimes": ("data",),
    "anomalies": ("data",),
    "explain": ("data",),
    "news": ("before", "data"),
    "impact": ("data",),
}


def check_usage(command: str, arguments: Sequence[str]) -> None:
    """Print help, or refuse arguments that a command does not take, before the command itself is imported.

    Args:
        command: Its name.
        arguments: Of the command.

    Raises:
        ArgumentError: If they are not understood.
        ValueError: If a number is out of its range, a name is not known, or there is nothing to work on.
    """
    parsing.refuse_renamed(command, arguments)
    if command == "train":
        _check_train(arguments)
        _check_data(arguments)
        return
    parser = parsers.PARSERS[command]()
    if command == "live":
        parser, arguments = own_parser(arguments)
    if command == "tune":  # what it does not know is for `train`
        own, rest = parser.parse_known_args(list(arguments))
        parsing.check_ranges(vars(own))
        _check_train([own.model, *rest])
        _check_data(arguments)
        return
    chosen = parser.parse_args(list(arguments))
    parsing.check_ranges(vars(chosen))
    if chosen.get("adapt") not in (None, *names.LEARNERS):
        raise ValueError(f"--adapt: {parsing.unknown('learner', chosen.adapt, names.LEARNERS)}")
    if command == "stream" and not chosen.resume:
        _check_stream(chosen)
    if command == "optimise" and not chosen.resume:
        _check_optimise(chosen)
    _check_files(command, chosen)


def _check_train(arguments: Sequence[str]) -> None:
    # `--print_config` ends a call of the parser; what it prints, `train` finds out.
    words = [word for word in arguments if not word.startswith("--print_config")]
    chosen = train_parser.parser(train_parser.named(words)).parse_args(words)
    if chosen.model:
        parsing.check_ranges(chosen[chosen.model])
    elif not chosen.resume:
        models = ", ".join(names.TRAINED)
        raise ValueError(f"expected a model ({models}) or --resume RUN, or data alone, as in `train --data FILE`")


def _check_files(command: str, chosen: Any) -> None:
    """Refuses options of a command that name files or folders of runs which are not there."""
    resumed = chosen.resume if command == "stream" and chosen.learner is None else None
    for folder in chosen.runs if command == "compare" else [chosen.get("run"), resumed]:
        if isinstance(folder, str) and not Path(folder).is_dir():
            raise FileNotFoundError(f"there is no run folder {folder}")
    for name in _READ.get(command, ()):
        if chosen.get(name) is not None and not Path(chosen[name]).exists():
            raise FileNotFoundError(f"there is no file {chosen[name]}")


def _check_data(arguments: Sequence[str]) -> None:
    given = {word.split("=")[0] for word in arguments}
    if "--data" in given and given.isdisjoint({"-h", "--help", "--irregular", "--horizon", "--recipe"}):
        import_module("tsforecast.cli.given_files").check_table(arguments)


def _check_stream(chosen: Any) -> None:
    if chosen.data is None:
        raise ValueError("expected data, as in `tsforecast stream lofi --data digits`, or --resume RUN")
    for name, known in (("learner", names.LEARNERS), ("activation", names.ACTIVATIONS), ("weight", names.WEIGHTS)):
        value = getattr(chosen, name)
        if value not in (None, *known):
            raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {value!r}")


def _check_optimise(chosen: Any) -> None:
    if chosen.trials is not None or chosen.bounds:
        if chosen.function or chosen.output or not (chosen.trials and chosen.bounds):
            raise ValueError(
                "expected --trials FILE and --bounds NAME:LOW:HIGH .. together, and no function or --output"
            )
    elif chosen.function is None:
        raise ValueError(f"expected a function ({', '.join(names.FUNCTIONS)}), --trials FILE or --resume RUN")
    elif chosen.function not in names.FUNCTIONS:
        raise ValueError(parsing.unknown("function", chosen.function, names.FUNCTIONS))
    if chosen.learner not in names.OF_NUMBERS:
        raise ValueError(f"--learner: {parsing.unknown('learner', chosen.learner, names.OF_NUMBERS)}")
