"""Command lines: how options are written, what is wrong with them, and what the user has typed to start a command."""

import re
import sys
from argparse import ArgumentParser as PlainParser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NewType

from jsonargparse import (
    ActionConfigFile,  # pyright: ignore[reportPrivateImportUsage]
    ArgumentParser,
    get_loader,
    set_loader,
)
from yaml import YAMLError

from tsforecast.io.reading import check_yaml, read_text
from tsforecast.wording import suggestion

OUTPUT = ("--quiet", "--verbose", "--log_json")  # understood by every command, anywhere

_EPILOG = (
    "Everywhere: --quiet says warnings only, --verbose more, --log_json in lines of JSON; an option may have dashes "
    "for its underscores."
)

# Type of options that take an object in JSON, under the name that help texts give it.
JSON = NewType("JSON", dict)

# What the parser's types are called.
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "dict": "a JSON object such as '{\"name\": 1}'",
}


def typed(command: str) -> str:
    """What this user types for a command: `python train.py` if he began so, else `tsforecast train`."""
    if command.startswith("python "):  # of an experiment
        return command
    script = Path(sys.argv[0])
    if script.name not in ("train.py", "evaluate.py"):
        return f"tsforecast {command}"
    if command in ("train", "evaluate"):
        return f"python {script.with_name(f'{command}.py')}"
    return f"python {script.with_name('evaluate.py')} --compare" if command == "compare" else f"tsforecast {command}"


_PLAIN = "plain"  # the mode of our parsers; other users of jsonargparse keep theirs
# Of an option, or of a whole file of them: nothing but plain values, see `check_yaml`, which returns nothing.
set_loader(_PLAIN, lambda text: check_yaml(text) or get_loader("yaml")(text), exceptions=(YAMLError, ValueError))


class ConfigFile(ActionConfigFile):
    """An option that takes a file of options; it is refused unread where it is longer than any can be."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        """Takes over the options of the file."""
        if Path(values).is_file():
            read_text(values)
        super().__call__(parser, cfg, values, option_string)


def command_parser(command: str, description: str) -> ArgumentParser:
    """A parser of a command, without options yet; wrong arguments raise `ArgumentError`."""
    return ArgumentParser(
        prog=typed(command),
        description=description,
        epilog=_EPILOG,
        exit_on_error=False,
        allow_abbrev=False,
        parser_mode=_PLAIN,
    )


def underscored(arguments: Iterable[str]) -> list[str]:
    """Arguments whose options have underscores, however they were written."""
    return [
        re.sub(r"^--[A-Za-z][\w-]*", lambda found: "--" + found[0][2:].replace("-", "_"), word) for word in arguments
    ]


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """The message for a name that is not among the choices: the nearest of them, and all."""
    near = suggestion(name, choices)
    return f"there is no {kind} {name!r}{f'; {near}' if near else '.'} There are {', '.join(choices)}"


def explained(message: str, parser: PlainParser, arguments: Sequence[str]) -> str:
    """The message of a parser, in terms of what the user has typed, with the nearest name for an unknown one."""
    message = " ".join(message.split())
    known = _known(parser, arguments)
    if found := re.search(r'Parser key "([\w.]+)"(?: element \d+)?: (.*)', message):
        types = [_TYPES[name] for name in dict.fromkeys(re.findall(r"<class '(\w+)'>", found[2])) if name in _TYPES]
        value = re.search(r"(?:Got|Given) value: (.*)", found[2])
        if types and value:
            return f"--{found[1]}: expected {types[0]}, got {value[1]!r}"
        return f"--{found[1]}: {found[2]}"
    if found := re.search(r"unrecognized arguments: (\S+)", message):
        name = found[1].split("=")[0]
        if not name.startswith("-"):
            return f"unexpected argument {name!r}"
        return "; ".join(filter(None, [f"there is no option {name}", suggestion(name, known)]))
    if found := re.search(r"Subcommand '(\S+)' does not accept option '([\w.]+)'", message):
        fault = f"the configuration has an option {found[2]!r}, which {found[1]!r} does not have"
        return "; ".join(filter(None, [fault, suggestion(found[2], known)]))
    if found := re.search(r"argument MODEL: invalid choice: '(.*?)' \(choose from (.*)\)", message):
        return unknown("model", found[1], re.findall(r"[\w-]+", found[2]))
    if found := re.search(r"argument (--\w+): invalid (\w+) value: (.*)", message):
        return f"{found[1]}: expected {_TYPES.get(found[2], found[2])}, got {found[3]}"
    if found := re.search(r"argument (--\w+)\S*: expected (?:one|at least one) argument", message):
        return f"{found[1]}: expected a value"
    if found := re.search(r"the following arguments are required: (.*)", message):
        return f"expected {', '.join(_label(parser, name) for name in found[1].split(', '))}"
    return message


def _known(parser: PlainParser, arguments: Sequence[str]) -> list[str]:
    """The options of a parser, and of its subcommand if the arguments begin with one."""
    names = [*OUTPUT]
    for action in parser._actions:
        names += [name for name in action.option_strings if name.startswith("--")]
        if isinstance(action.choices, Mapping) and arguments and arguments[0] in action.choices:
            names += _known(action.choices[arguments[0]], ())
    return names


def _label(parser: PlainParser, name: str) -> str:
    """An argument that is required, as the help of the command shows it."""
    for action in parser._actions:
        if action.dest == name.removeprefix("--"):
            return action.option_strings[0] if action.option_strings else str(action.metavar or name)
    return name


def refuse_beside_resume(argv: Sequence[str]) -> None:
    """Raise a ValueError for all else beside --resume: a run goes on as it began."""
    place = next(k for k, word in enumerate(argv) if word.split("=")[0] == "--resume")
    others = [*argv[:place], *argv[place + 2 - ("=" in argv[place]) :]]
    if others:
        raise ValueError(f"--resume goes with no other option, got {' '.join(others)}")
