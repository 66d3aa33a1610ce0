"""The tables that the arguments of a command name, looked at before torch is imported."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli.option_groups import COLUMNS
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.formats import check_form
from tsforecast.data.tables.roles import Columns


def columns(options: Mapping[str, Any] | Namespace, fallback: Columns | None = None) -> Columns:
    """The columns that the options name; those of `fallback` for what they leave open."""
    given = {name: options[name] for name in COLUMNS if options[name]}
    named = columns_of(given)
    return replace(fallback or Columns(), **{name: getattr(named, name) for name in given})


def check_table(chosen: Namespace) -> None:
    """Refuses the `--data` of a training that are not there, or whose columns are not as expected."""
    path = Path(chosen["data"])
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    check_form(path, columns(chosen))
