"""Words of messages: options as the reader gives them, in Python or on a command line, and near names."""

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_LISTED = 20  # names in a message, at most
_COMPARED = 200  # letters of names among which the nearest is looked for

_at_command_line: ContextVar[bool] = ContextVar("at_command_line", default=False)
_called: ContextVar[dict[str, str]] = ContextVar("called", default={})  # noqa: B039 it is never changed in place


@contextmanager
def command_line_wording() -> Iterator[None]:
    """Within the block, messages speak of options of the command line instead of Python's keywords."""
    token = _at_command_line.set(True)
    try:
        yield
    finally:
        _at_command_line.reset(token)


@contextmanager
def options_called(**names: str) -> Iterator[None]:
    """Within the block, messages call options as its caller knows them, such as horizon for prediction_length."""
    token = _called.set(_called.get() | names)
    try:
        yield
    finally:
        _called.reset(token)


def option(name: str, value: str | int | float | bool | Sequence[str] | None = None, within: str | None = None) -> str:
    """An option as the reader of a message gives it.

    Args:
        name: Of the option: the same in Python and on the command line; see `options_called` for others.
        value: What to give; True for a switch, None for the bare name.
        within: What the keyword is an argument of, for example "columns=Columns"; None for the function itself.

    Returns:
        `freq='D'` or `--freq D`; `columns=Columns(wide=True)` or `--wide`.
    """
    name = _called.get().get(name, name)
    if _at_command_line.get():
        if value is None or value is True:
            return f"--{name}"
        values = [str(value)] if isinstance(value, str | float | int) else list(value)
        return " ".join([f"--{name}", *map(shlex.quote, values)])
    keyword = name if value is None else f"{name}={value!r}"
    return keyword if within is None else f"{within}({keyword})"


def counted(count: int, noun: str) -> str:
    """A number of things: "1 value", "2 values"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_full(value: float) -> str:
    """Return a number to four digits, in full: 290200 is 290,200 and not 2.902e+05."""
    return f"{float(f'{value:.4g}'):,.12g}"


def plain(name: object) -> str:
    """A name without letter case, blanks and marks: `Item ID`, `item-id` and `item_id` are the same."""
    return re.sub(r"[\W_]+", "", str(name).lower())


def shortened(name: object, length: int = 60) -> str:
    """A name as far as it can be shown: the middle of a long one is left out."""
    text = str(name)
    return text if len(text) <= length else f"{text[: length // 2]}..{text[-(length // 2 - 2) :]}"


def suggestion(name: object, choices: Iterable[object]) -> str:
    """The nearest of the choices as a question, "" where none is near."""
    if len(str(name)) > _COMPARED:
        return ""
    by_plain = {plain(choice): str(choice) for choice in choices if len(str(choice)) <= _COMPARED}
    near = difflib.get_close_matches(plain(name), list(by_plain), n=1)
    return f"did you mean {by_plain[near[0]]!r}?" if near else ""


def listed(names: Iterable[object], most: int = _LISTED) -> str:
    """Names in quotes, the first of many."""
    return some([repr(shortened(name)) for name in names], most)


def some(texts: Sequence[str], most: int = _LISTED) -> str:
    """The first of many texts, and the number of the others."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
