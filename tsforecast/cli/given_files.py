"""The tables that the arguments of a command name, looked at before torch is imported."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli.option_groups import COLUMNS, DataOptions
from tsforecast.cli.records import add_options
from tsforecast.data.tables.formats import check_form
from tsforecast.data.tables.roles import Columns


def columns(options: Mapping[str, Any] | Namespace, fallback: Columns | None = None) -> Columns:
    """The columns that the options name; those of `fallback` for what they leave open."""
    given = {name: options[name] for name in COLUMNS if options[name]}
    for name in ("item", "timestamp", "target"):
        if isinstance(given.get(name), list) and len(given[name]) == 1:
            given[name] = given[name][0]
    for name in ("covariates", "static_categories", "static_reals", "holidays"):
        if isinstance(given.get(name), str):
            given[name] = [given[name]]
    base = fallback or Columns()
    return Columns(**{name: given.get(name, getattr(base, name)) for name in COLUMNS})


def check_table(arguments: Sequence[str]) -> None:
    """Refuses the `--data` of a training that are not there, or whose columns are not as expected.

    Args:
        arguments: Of the command. What it does not know of them is for its own parser.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: As `check_form` does.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_options(parser, DataOptions)
    try:
        chosen = vars(parser.parse_known_args(list(arguments))[0])
    except argparse.ArgumentError:  # its own parser says what is wrong
        return
    if chosen["data"] is None:
        return
    path = Path(chosen["data"])
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not chosen["irregular"]:
        check_form(path, columns(chosen))
