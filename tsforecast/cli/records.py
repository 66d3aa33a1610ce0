"""Commands as records: a frozen dataclass is the parser of a command, its defaults, its help, and what a run keeps."""

import dataclasses
import inspect
import math
import types
import typing
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import docstring_parser
from jsonargparse import ArgumentParser

from tsforecast.cli import names, parsing

_Record = TypeVar("_Record", bound="Command")
_UNKEPT = ("output", "resume")  # options of where a run is, and not of what it does


def option(default: Any = dataclasses.MISSING, text: str = "", **more: Any) -> Any:
    """Return a field that is an option.

    Args:
        default: Its value where it is not given; an option without a default must be given.
        text: Its help; `{TABLE}` stands for the names of a table in `names`.
        more: `metavar`, `choices` (or the name of a table) and `nargs`, as parsers take them; `least` and `most`, of a
            number; `reads`, "file" or "run", of a path that must be there; `writes`, "file" or "folder", of one that is
            made; `also`, another spelling; `place`, the name of an argument without dashes; `later`, of an option that
            older runs lack.
    """
    metadata = {"text": text, **more}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [*default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class _Names(dict[str, str]):
    """The names of each table, with commas between."""

    def __missing__(self, table: str) -> str:
        return ", ".join(getattr(names, table))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Options of a command. A base class is a group of options, whose docstring is its title.

    Attributes:
        argv: The arguments as they were typed.
    """

    argv: tuple[str, ...] = ()

    @classmethod
    def parsed(cls: type[_Record], name: str, argv: Sequence[str]) -> _Record:
        """Return the options in arguments.

        Raises:
            ArgumentError: If the arguments are not understood.
            ValueError: If a number is out of its range, or options do not go together.
            FileNotFoundError: If a file or a run is missing.
        """
        given = parser_of(name, cls).parse_args(list(argv)).as_dict()
        check_ranges(given, cls)
        chosen = cls(**given, argv=tuple(argv))
        if getattr(chosen, "resume", None):
            parsing.refuse_beside_resume(argv)
        else:
            chosen.check()
        chosen._check_files()
        return chosen

    @classmethod
    def recorded(cls: type[_Record], name: str, path: Path, kept: Mapping[str, Any]) -> _Record:
        """Return the options that the record of a run has, each checked as on the command line."""
        known = {field.name: field for field in options_of(cls) if field.name not in _UNKEPT}
        later = {name: field.default for name, field in known.items() if field.metadata.get("later")}
        given, parser = {**later, **kept}, parser_of(name, cls)
        try:
            if wrong := sorted(given.keys() ^ known.keys()):
                raise ValueError(f"options that are missing or unknown: {', '.join(wrong)}")
            for key, value in given.items():
                if value is None and known[key].default is not None:
                    raise ValueError(f"--{key}: expected a value, got null")
                if isinstance(value, int) and abs(value) >= 2**63:
                    raise ValueError(f"--{key}: expected a number of less than 20 digits")
                if known[key].metadata.get("nargs") in ("*", "+") and not isinstance(value, list | None):
                    raise ValueError(f"--{key}: expected a list, got {value!r}")
            found = parser.parse_object(given).as_dict()
            check_ranges(found, cls)
            chosen = cls(**found)
            chosen.check()
        except (ArgumentError, ValueError, TypeError) as error:
            fault = parsing.explained(str(error), parser, ())
            raise ValueError(f"{path} is damaged: {fault:.300}; begin anew") from error
        return chosen

    @property
    def kept(self) -> dict[str, Any]:
        """Return what a run folder keeps: all but where the run is."""
        return {field.name: getattr(self, field.name) for field in options_of(type(self)) if field.name not in _UNKEPT}

    def check(self) -> None:
        """Raise a ValueError for options that do not go together, in commands that have such."""

    def _check_files(self) -> None:
        """Refuse paths that are not there, or cannot be made."""
        for field in options_of(type(self)):
            kind, given = field.metadata.get("reads"), getattr(self, field.name)
            for path in given if isinstance(given, list) else [given] if given is not None else []:
                if kind == "run" and Path(path).is_file():
                    instead = f"{parsing.typed('train')} --data {path}` makes one"
                    if field.default is None:
                        instead += "; or give the file as --data"
                    raise ValueError(f"{path} is a file, and no run folder: `{instead}")
                if kind == "run" and not Path(path).is_dir():
                    raise FileNotFoundError(f"there is no run folder {path}")
                if kind == "file" and not Path(path).exists():
                    raise FileNotFoundError(f"there is no file {path}")
            if (kind := field.metadata.get("writes")) and isinstance(given, str) and given:
                _check_room(field.name, Path(given), kind == "folder")


def _check_room(name: str, path: Path, is_folder: bool) -> None:
    """Refuse a path of the other kind, or below a file."""
    if path.is_file() if is_folder else path.is_dir():
        kinds = ("folder", "file") if is_folder else ("file", "folder")
        raise ValueError(f"--{name}: expected the path of a {kinds[0]}, but {path} is a {kinds[1]}")
    above = next((one for one in path.parents if one.exists()), None)
    if above is not None and not above.is_dir():
        raise ValueError(f"--{name}: {path} cannot be made, since {above} is a file")


def options_of(record: type[Command]) -> list[dataclasses.Field[Any]]:
    """Return the fields of a record that are options: its own, and those of settings that the package declares."""
    return [field for field in dataclasses.fields(record) if field.name != "argv"]


def parser_of(name: str, record: type[Command]) -> ArgumentParser:
    """Return the parser of a command by its record."""
    command = parsing.command_parser(name, inspect.cleandoc(record.__doc__ or ""))
    add_options(command, record)
    return command


def add_options(parser: Any, record: type[Command], grouped: bool = False) -> None:
    """Add the options of a record to a parser of argparse or jsonargparse."""
    left = {field.name: field for field in options_of(record)}
    hints, texts = typing.get_type_hints(record), texts_of(record)
    for base in reversed(record.__mro__):
        own = [left.pop(name) for name in inspect.get_annotations(base) if name in left]
        is_group = own and (base is not record or grouped)
        title = (base.__doc__ or "").strip().split("\n")[0].rstrip(".")
        group = parser.add_argument_group(title) if is_group else parser
        for field in own:
            _add(group, field, hints[field.name], texts[field.name])


def texts_of(record: type[Command]) -> dict[str, str]:
    """Return the help of options: that of the command, else the words of a docstring."""
    texts = {}
    for base in reversed(record.__mro__):
        for entry in docstring_parser.parse(base.__doc__ or "").params:
            text = " ".join((entry.description or "").split()).rstrip(".")
            texts[entry.arg_name] = text[:1].lower() + text[1:]
    own = {field.name: field.metadata["text"] for field in options_of(record) if "text" in field.metadata}
    return texts | {name: text.format_map(_Names()) for name, text in own.items()}


def _add(group: Any, field: dataclasses.Field[Any], hint: Any, text: str) -> None:
    """Add an option to a group of a parser."""
    given = {key: value for key, value in field.metadata.items() if key in ("metavar", "nargs", "choices")}
    if field.metadata.get("reads") == "file":
        given = {"metavar": "FILE"} | given
    if isinstance(given.get("choices"), str):
        given["choices"] = getattr(names, given["choices"])
    given["help"] = text
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType] or [hint]
    kinds = [typing.get_args(kind)[0] if typing.get_origin(kind) is list else kind for kind in kinds]
    kinds = [parsing.JSON if typing.get_origin(kind) is Mapping else kind for kind in kinds]
    is_required = field.default is field.default_factory is dataclasses.MISSING
    if not is_required:
        given["default"] = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if hint is bool:
        given["action"] = "store_true"
    elif len(kinds) == 1 and "choices" not in given:
        given["type"] = kinds[0]
    place = field.metadata.get("place")
    if place:
        group.add_argument(field.name, **{"metavar": place} | given)
        return
    spellings = [f"--{name}" for name in (field.name, field.metadata.get("also")) if name]
    group.add_argument(*spellings, **given, **({"required": True} if is_required else {}))


def check_ranges(options: Mapping[str, Any], *records: type[Command]) -> None:
    """Raise a ValueError for the first number that no command could do anything with."""
    ranges = {field.name: field.metadata for record in records for field in options_of(record)}
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        known = ranges.get(name, {})
        least, most = known.get("least", -math.inf), known.get("most", math.inf)
        if value != value:  # of a whole number of any size
            raise ValueError(f"--{name}: expected a number, got {value}")
        if value < least:
            raise ValueError(f"--{name}: expected at least {least}, got {value}")
        if value > most:
            raise ValueError(f"--{name}: expected at most {most}, got {value}")
