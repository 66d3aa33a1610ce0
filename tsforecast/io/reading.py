"""Text, JSON and YAML that may come from strangers: bounded in size and depth, and no code of them runs.

Every function raises one ValueError that names the file and says what was expected.
"""

import json
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

MOST_TEXT = 1 << 20  # bytes of a file of settings
MOST_RECORD = 1 << 28  # bytes of a file with a line or a name for each series
MOST_DEPTH = 32  # brackets within brackets: parsers call themselves for each, and overflow the stack
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")


def expect_file(path: str | Path) -> Path:
    """The path of a file; a FileNotFoundError for others: pipes and devices may never end."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return Path(path)


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """The text of a file in UTF-8; a ValueError if it is longer, or no text, an OSError if it can not be opened."""
    path = expect_file(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path}: expected at most {in_bytes(most)}, got {in_bytes(path.stat().st_size)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8 ({error.reason} at byte {error.start})") from error


def parse_json(text: str) -> Any:
    """The value of a JSON text; a ValueError if it is none, or deeper than `MOST_DEPTH`."""
    if text.count("[") + text.count("{") > MOST_DEPTH:
        depth = 0
        for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
            depth += 1 if bracket[0] in "[{" else -1
            _check_depth(depth)
    return json.loads(text)


def read_json(path: str | Path, most: int = MOST_RECORD) -> Any:
    """The value of a JSON file; a ValueError if it is none, longer than `most` bytes, or deeper than `MOST_DEPTH`."""
    text = read_text(path, most)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error


def check_yaml(text: str) -> None:
    """Refuses YAML beyond plain values, short and flat: tags name classes, aliases multiply."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"expected at most {in_bytes(MOST_TEXT)} of YAML, got {in_bytes(len(text))}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _check_depth(depth)
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"expected plain values, got an alias (*{event.anchor})")
            if isinstance(event, yaml.ScalarEvent):
                _check_text(event.value)
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise ValueError(f"expected plain values, got the tag {tag}")
    except yaml.YAMLError as error:
        raise ValueError(f"this is no YAML ({error})") from error


def _check_text(text: str) -> None:
    """Refuses a text that is deep itself: parsers of options read texts once more."""
    if sum(text.count(sign) for sign in "[{-?") > MOST_DEPTH:
        depth = 0
        try:
            for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                _check_depth(depth)
        except yaml.YAMLError:  # then nobody reads it as YAML
            return


def read_yaml(path: str | Path) -> Any:
    """The value of a YAML file of plain values, see `check_yaml`; a ValueError if none, an OSError if not there."""
    text = read_text(path)
    try:
        check_yaml(text)
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:  # the second of values such as an impossible date
        raise ValueError(f"{path}: {error}") from error


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value of a JSON file is of a type, as an argument is annotated."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in arguments)
    if origin is list:
        return isinstance(value, list) and all(fits(member, arguments[0]) for member in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(member, arguments[1]) for member in value.values())
    if annotation in (None, type(None)):
        return value is None
    if annotation is object:  # the constructor checks what is inside
        return True
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation in (int, str, bool):
        return type(value) is annotation
    raise TypeError(f"a constructor declares the type {annotation}, which no plain value has")


def has_fields(value: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether a value of a JSON file is an object with fields of these types."""
    return isinstance(value, dict) and all(fits(value.get(name), kind) for name, kind in kinds.items())


def first_line(error: Exception) -> str:
    """Without torch's advice to load the file without protection."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    return "it holds more than tensors and plain values" if "weights_only" in text else text


def _check_depth(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError(f"expected at most {MOST_DEPTH} brackets or blocks within each other, got more")


def in_bytes(count: int | float) -> str:
    """A number of bytes in the unit that suits it, "1.5 MiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
