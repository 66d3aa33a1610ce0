"""The tables that the arguments of a command name, looked at before torch is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli.option_groups import COLUMNS
from tsforecast.data.tables.formats import check_form
from tsforecast.data.tables.roles import Columns


def columns(options: Mapping[str, Any] | Namespace, fallback: Columns | None = None) -> Columns:
    """The columns that the options name; those of `fallback` for what they leave open."""
    given = {name: options[name] for name in COLUMNS if options[name]}
    for name in ("item", "timestamp", "target"):
        if isinstance(given.get(name), list) and len(given[name]) == 1:
            given[name] = given[name][0]
    for name in ("covariates", "past_covariates", "static_categories", "static_reals", "holidays"):
        if isinstance(given.get(name), str):
            given[name] = [given[name]]
    base = fallback or Columns()
    return Columns(**{name: given.get(name, getattr(base, name)) for name in COLUMNS})


def check_table(chosen: Namespace) -> None:
    """Refuses the `--data` of a training that are not there, or whose columns are not as expected.

    Args:
        chosen: Options of the training.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: As `check_form` does.
    """
    path = Path(chosen["data"])
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    check_form(path, columns(chosen))
