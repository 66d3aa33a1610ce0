"""The commands, `tsforecast train | evaluate | predict | bucket | stream | ..`: parse, seed, run, write a folder."""

import json
import logging
import sys
from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from typing import Any

from tsforecast import progress
from tsforecast.cli import command_lines, names, parsing
from tsforecast.cli.memory import imported, keep_freed_memory
from tsforecast.wording import command_line_wording

__all__ = ["guarded", "main"]

log = logging.getLogger(__name__)

_USAGE = """usage: tsforecast COMMAND ...

  tsforecast forecast FILE                forecasts of all series in a file, and a picture, within seconds
  tsforecast train --data FILE            train what suits the data; the result is a run folder
  tsforecast train MODEL --data FILE      train a model of your choice; --dataset NAME for a data set of the package
  tsforecast evaluate RUN                 scores beside baselines, and pictures, into the run folder
  tsforecast compare RUN RUN ...          one page of their scores, pictures and differences
  tsforecast predict RUN --output FILE    forecasts beyond the end of the data
  tsforecast impute RUN --output FILE     the data, with what stands in for missing values
  tsforecast anomalies RUN                steps and stretches that are rare, at a false-alarm rate; or --data FILE
  tsforecast explain RUN                  the parts of forecasts: level, trend, seasons, covariates, last steps
  tsforecast impact DATA --after DATE     what an intervention did
  tsforecast news RUN --data FILE         why forecasts changed
  tsforecast regimes RUN                  which regimes series were in, when that changed, which come next
  tsforecast export RUN --output FOLDER   the model as MLflow loads it
  tsforecast bucket INPUT OUT             tables of any size into a folder that all commands take as --data
  tsforecast live init RUN --output STORE  beliefs of all series into a store
  tsforecast live serve STORE             keeps them current over HTTP: observations in, forecasts out
  tsforecast tune MODEL --study FOLDER    looks for hyperparameters, on windows before the test part
  tsforecast stream LEARNER --data NAME   predicts, scores and learns from one observation after the other
  tsforecast optimise FUNCTION            looks for the least value of a function, by draws from a belief
  tsforecast optimise --trials FILE       proposes the next rows of a table that you fill in
  tsforecast bandit AGENT --data NAME     decides, and learns from what its decisions paid

`tsforecast COMMAND --help` lists the options of a command. Everywhere: --quiet says warnings only, --verbose more, and
--log-json in lines of JSON.
`tsforecast --print_completion bash` (or zsh, tcsh) prints what lets the shell complete commands and options.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: Name of the command and its arguments; those of the process by default.

    Returns:
        Exit status: 0, 2 where the user has to change something (one line on stderr says what), 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_USAGE)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        sys.stdout.write(f"tsforecast {version('tsforecast')}\n")
        return 0
    keep_freed_memory()
    name, *rest = parsing.underscored(arguments)
    return guarded(rest, lambda rest: _dispatch(name, rest))


def guarded(arguments: Sequence[str], run: Callable[[list[str]], int]) -> int:
    """Runs a command with its other options, messages where the user wants them; returns its exit status as `main`."""
    quiet, verbose, in_json = (word in arguments for word in parsing.OUTPUT)
    rest = [word for word in arguments if word not in parsing.OUTPUT]
    progress.quiet.set(quiet or in_json)  # no bars
    least = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    with _messages(least, JSONLines() if in_json else _Plain()), command_line_wording():
        try:
            return run(rest)
        except (ValueError, OSError, ArithmeticError) as error:
            log.debug("failed", exc_info=True)  # goes to the log of the run, where there is one
            log.error(" ".join(str(error).split()))
            return 2
        except KeyboardInterrupt:
            log.critical("stopped")
            return 130


def _dispatch(name: str, rest: list[str]) -> int:
    """Runs the command of a name."""
    if name == "--print_completion":
        return _print_completion(rest)
    if name not in command_lines.NAMES:
        if name in names.TRAINED:
            raise ValueError(f"{name!r} is a model: `{parsing.typed('train')} {name} --data FILE` trains it")
        raise ValueError(parsing.unknown("command", name, command_lines.NAMES))
    if name == "evaluate" and rest[:1] == ["--compare"]:
        name, rest = "compare", rest[1:]
    if name == "train":
        given = {word.split("=")[0] for word in rest}
        if rest and rest[0].startswith("--") and given & {"--data", "--dataset"}:  # options alone, and data
            rest = [names.AUTO, *rest]
    try:
        return _run(name, command_lines.parsed(name, rest))
    except ArgumentError as error:
        model = [word for word in rest[:1] if word in names.TRAINED]
        help_ = " ".join([parsing.typed(name), *model, "--help"])
        fault = parsing.explained(str(error), command_lines.parser_of(name, rest), rest)
        raise ValueError(f"{fault}; `{help_}` lists the options") from error


def _run(name: str, chosen: Any) -> int:
    """Import a command and call its `run`: the import takes seconds.

    Returns:
        What `run` does: 0, or 130 where Ctrl-C has stopped what `--resume` goes on with.

    Raises:
        ValueError: By `run` if data, a run or options are not as expected, or Lightning refuses those of its trainer.
        OSError: By `run` if a file is missing, or cannot be written.
    """
    try:
        command = imported(f"tsforecast.cli.{name}")
        if threads := getattr(chosen, "threads", None):
            import_module("torch").set_num_threads(threads)
        return command.run(chosen)
    except Exception as error:
        if type(error).__name__ == "MisconfigurationException":  # of Lightning, which many commands do not import
            raise ValueError(str(error)) from error
        raise


def _print_completion(arguments: Sequence[str]) -> int:
    """Prints a script for a shell, by shtab."""
    try:
        import shtab  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("completion needs shtab: `pip install tsforecast[completion]`") from error
    if len(arguments) != 1 or arguments[0] not in shtab.SUPPORTED_SHELLS:
        raise ValueError(f"--print_completion: expected one of {', '.join(shtab.SUPPORTED_SHELLS)}")
    every = ArgumentParser(prog="tsforecast")
    subparsers = every.add_subparsers()
    for name in command_lines.NAMES:
        parser = command_lines.parser_of(name)
        subparsers.add_parser(name, help=parser.description)
        subparsers.choices[name] = parser
    sys.stdout.write(shtab.complete(every, arguments[0]) + "\n")
    return 0


class _Plain(logging.Formatter):
    """Messages to read; one that ends the command is marked."""

    def format(self, record: logging.LogRecord) -> str:
        said = super().format(record)
        return f"error: {said}" if record.levelno == logging.ERROR and record.name == __name__ else said


class JSONLines(logging.Formatter):
    """Messages to parse: a JSON object in each line, with `time` (UTC), `level`, `logger` and `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


@contextmanager
def _messages(least: int, formatter: logging.Formatter) -> Iterator[None]:
    """What the layers below log goes to stderr while a command runs, from a level on."""
    logger = logging.getLogger("tsforecast")
    level = logger.level
    handler = logging.StreamHandler()
    handler.setLevel(least)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
