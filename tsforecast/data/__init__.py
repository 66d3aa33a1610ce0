"""Data sets: the catalog, users' own tables and GluonTS folders, and checks of what goes into a model."""

from tsforecast.data.catalog import CATALOG, load_task
from tsforecast.data.checks import check_entries
from tsforecast.data.known import attach_known
from tsforecast.data.roles import Columns
from tsforecast.data.table import read_task
from tsforecast.data.task import ForecastTask

__all__ = ["CATALOG", "Columns", "ForecastTask", "attach_known", "check_entries", "load_task", "read_task"]
