"""Tables of options, made of the records of commands as the site is built.

A page has `<!-- options: NAME -->` where the table comes: of a command, of a group of options, or of the estimator.
"""

import dataclasses
import inspect
import re
import typing
from argparse import SUPPRESS
from collections.abc import Callable, Collection

from docstring_parser import parse

from tsforecast.cli import command_lines, commands, option_groups, records, train_parser
from tsforecast.cli.declared import declared

# Options that several commands have: a table of each group, and a row in the tables of these commands.
SHARED = {
    "columns": ((option_groups.ColumnOptions,), "[columns of the data](#columns)"),
    "learning": ((option_groups.LearningOptions,), "[learning on](#learning)"),
    "buckets": ((option_groups.BucketOptions,), "[work shared by processes](#buckets)"),
    "device": (
        (option_groups.SeedOptions, option_groups.ThreadOptions),
        "[chance and processor](#chance-and-processor)",
    ),
}
_OTHERS = {"train": train_parser.Train, "tune": command_lines.Tune}
_MARKED = re.compile(r"<!-- options: ([\w ]+) -->")


def with_options(markdown: str) -> str:
    """Return a page with its tables of options."""
    return _MARKED.sub(lambda found: table(found[1]), markdown)


def table(name: str) -> str:
    """Return the options of a command, or of a group, as a table."""
    if name == "estimator":
        return _joined(_estimator_rows())
    if name in SHARED:
        return _joined([row for group in SHARED[name][0] for row in _rows(group, ())])
    record = (commands.RECORDS | _OTHERS)[name]
    groups = {where: [group for group in of if issubclass(record, group)] for of, where in SHARED.values()}
    names = {where: [o.name for group in of for o in records.options_of(group)] for where, of in groups.items() if of}
    rows = _rows(record, [option for options in names.values() for option in options])
    for where, options in names.items():
        rows.append((", ".join(f"`--{option}`" for option in options[:3]) + (", .." if options[3:] else ""), where))
    return _joined(rows)


def _rows(record: type[records.Command], elsewhere: Collection[str]) -> list[tuple[str, str]]:
    """Return the options of a record, but for those that stand elsewhere."""
    hints, texts = typing.get_type_hints(record), records.texts_of(record)
    return [_row(field, hints[field.name], texts[field.name]) for field in _in_order(record, elsewhere)]


def _in_order(record: type[records.Command], elsewhere: Collection[str]) -> list[dataclasses.Field[typing.Any]]:
    """Return the options of a record: arguments without dashes first, then its own, then those of its groups."""
    shown = [field for field in records.options_of(record) if field.name not in elsewhere]
    own = inspect.get_annotations(record)
    order: Callable[[dataclasses.Field[typing.Any]], tuple[bool, bool]]
    order = lambda field: ("place" not in field.metadata, field.name not in own)  # noqa: E731
    return sorted((field for field in shown if field.metadata.get("text") != SUPPRESS), key=order)


def _row(field: dataclasses.Field[typing.Any], hint: typing.Any, text: str) -> tuple[str, str]:
    """Return an option as its user writes it, and its meaning."""
    kinds = {int: "N", float: "X", bool: ""}
    kind = next((letter for type_, letter in kinds.items() if type_ in (hint, *typing.get_args(hint))), "NAME")
    value = field.metadata.get("metavar") or ("FILE" if field.metadata.get("reads") == "file" else kind)
    more = " .." if field.metadata.get("nargs") in ("*", "+") else ""
    if place := field.metadata.get("place"):
        return f"`{place}{more}`", text
    is_plain = isinstance(field.default, int | float | str) and bool(field.default)
    if is_plain and "default" not in text and str(field.default) not in text:
        text += f"; default {field.default}"
    return f"`{' '.join(filter(None, (f'--{field.name}', value)))}{more}`", text


def _estimator_rows() -> list[tuple[str, str]]:
    """Return the options of `train` that every estimator has, by its docstring."""
    made = declared(train_parser.ESTIMATOR, "StateSpaceEstimator")
    texts = {entry.arg_name: " ".join((entry.description or "").split()) for entry in parse(made.__doc__ or "").params}
    names = [name for name in inspect.signature(made).parameters if name not in train_parser.NO_OPTIONS]
    return [(f"`--{name}`", texts[name].split(". ")[0].rstrip(".")) for name in names if name in texts]


def _joined(rows: list[tuple[str, str]]) -> str:
    """Return rows as Markdown."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    lines = [re.sub(r"\(see docs/(\S+\.md)\)", r"([how](\1))", line) for line in lines]
    return "\n".join(["| option | meaning |", "| --- | --- |", *(f"| {line} |" for line in lines)])
