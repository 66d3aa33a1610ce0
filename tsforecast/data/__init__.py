"""Data sets: the catalog, users' own tables and GluonTS folders, and checks of the entries of models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsforecast.data.catalog import CATALOG, load_task
    from tsforecast.data.checks import check_entries
    from tsforecast.data.known import attach_known
    from tsforecast.data.sources import read_task
    from tsforecast.data.tables.roles import Columns
    from tsforecast.data.task import ForecastTask

__all__ = ["CATALOG", "Columns", "ForecastTask", "attach_known", "check_entries", "load_task", "read_task"]

# Where each is from; imported when it is asked for: the command line has readers of this package without torch.
_HOMES = {
    "CATALOG": "catalog",
    "Columns": "tables.roles",
    "ForecastTask": "task",
    "attach_known": "known",
    "check_entries": "checks",
    "load_task": "catalog",
    "read_task": "sources",
}


def __getattr__(name: str) -> Any:
    """Return a public name of the package from its home."""
    if name in _HOMES:
        return getattr(import_module(f"tsforecast.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
