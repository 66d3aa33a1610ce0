"""Folders of buckets in `predict` and `impute`."""

import logging
from pathlib import Path
from typing import Any

from tsforecast.cli import forecast_tables, runs
from tsforecast.cli.opened import Opened
from tsforecast.cli.option_groups import AnswerOptions
from tsforecast.data.buckets.rows import categories_of, selected
from tsforecast.data.buckets.survey import read_survey
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.bulk import process_buckets
from tsforecast.forecasting.requests import Request
from tsforecast.wording import counted

log = logging.getLogger(__name__)


def is_table(chosen: AnswerOptions) -> bool:
    """Whether --output is a file, and not a folder; a ValueError if options of a folder go with a file."""
    out = Path(chosen.output)
    if not out.name.lower().endswith(forecast_tables.SUFFIXES):
        return False
    for name, default in (("workers", 1), ("engine", "local"), ("address", None)):
        if getattr(chosen, name) != default:
            raise ValueError(f"--{name} goes with --data BUCKETS and a folder as --output, got the file {out.name!r}")
    return True


def buckets_of(opened: Opened, given: Columns | None = None) -> dict[str, Any]:
    """The common part of requests of the buckets of a run, or of --data; their columns may be given."""
    data, chosen = opened.buckets, opened.chosen
    if data is None:
        raise ValueError(
            f"expected --output to end in {', '.join(forecast_tables.SUFFIXES)}, got {Path(chosen.output).name!r}; a "
            "folder is written for --data BUCKETS, which `tsforecast bucket` makes"
        )
    survey = read_survey(data)
    columns = selected(data, survey, given or opened.columns, only=True)
    categories = categories_of(survey, columns, opened.record["categories"] or None)
    return {
        "freq": opened.record["split"]["freq"],
        "columns": columns,
        "categories": {name: list(values) for name, values in categories.items()},
        "device": chosen.device,
    }


def process(opened: Opened, request: Request) -> None:
    """Write the folder --output from a folder of buckets, see `process_buckets`, and log its contents."""
    chosen, data = opened.chosen, opened.buckets
    assert data is not None
    workers = {name: getattr(chosen, name) for name in ("workers", "engine", "address")}
    manifest = process_buckets(opened.folder / runs.PREDICTOR, data, chosen.output, request, **workers)
    series, rows = (sum(bucket[name] for bucket in manifest["buckets"]) for name in ("series", "rows"))
    told = counted(rows, "row"), series, counted(len(manifest["buckets"]), "bucket")
    log.info("%s: %s of %d series in %s", Path(chosen.output), *told)
