"""What `predict` and `impute` share: levels, files, and folders of buckets."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gluonts.itertools import batcher
from gluonts.model import Forecast

from tsforecast.cli import runs
from tsforecast.cli.opened import Opened
from tsforecast.cli.option_groups import AnswerOptions
from tsforecast.data.buckets.rows import categories_of, selected
from tsforecast.data.buckets.survey import read_survey
from tsforecast.data.quantiles import check_levels, forecast_frame
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.bulk import process_buckets
from tsforecast.forecasting.requests import Request
from tsforecast.io.files import make_folder
from tsforecast.io.frame_files import write_frames
from tsforecast.wording import counted

log = logging.getLogger(__name__)

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_CHUNK = 500  # series that are written at once


def levels(text: str) -> tuple[float, ...]:
    """The levels of --quantiles.

    Raises:
        ValueError: If they are no numbers between 0 and 1, each once.
    """
    try:
        found = tuple(float(level) for level in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected --quantiles such as 0.1,0.5,0.9, got {text!r}") from error
    return check_levels(found, "--quantiles")


def is_table(chosen: AnswerOptions) -> bool:
    """Whether --output is a file, and not a folder.

    Raises:
        ValueError: If options of a folder go with a file.
    """
    out = Path(chosen.output)
    if not out.name.lower().endswith(SUFFIXES):
        return False
    for name, default in (("workers", 1), ("engine", "local"), ("address", None)):
        if getattr(chosen, name) != default:
            raise ValueError(f"--{name} goes with --data BUCKETS and a folder as --output, got the file {out.name!r}")
    return True


def write(
    forecasts: Iterable[Forecast],
    kept: tuple[float, ...] | None,
    targets: Sequence[str],
    columns: Columns | None,
    out: Path,
) -> None:
    """Writes forecasts into a table, as they come; the file is whole or not there.

    Args:
        forecasts: Of any kind.
        kept: Levels of quantiles; None for sample paths.
        targets: Their names.
        columns: Of the data.
        out: File to write.
    """
    make_folder(out.parent)
    chunks = batcher(forecasts, _CHUNK)
    write_frames((forecast_frame(chunk, kept, targets, columns) for chunk in chunks), out)


def buckets_of(opened: Opened, given: Columns | None = None) -> dict[str, Any]:
    """What all requests of the buckets of a run, or of --data, say.

    Args:
        opened: The run.
        given: Columns of the data; None for those that the options name, else the run.

    Raises:
        ValueError: If there are no buckets, or they have not the columns of the run.
        FileNotFoundError: If a bucket is missing.
    """
    data, chosen = opened.buckets, opened.chosen
    if data is None:
        raise ValueError(
            f"expected --output to end in {', '.join(SUFFIXES)}, got {Path(chosen.output).name!r}; a folder is "
            "written for --data BUCKETS, which `tsforecast bucket` makes"
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
    """Writes the folder --output from a folder of buckets, and says what it has.

    Raises:
        FileNotFoundError: As `process_buckets` says.
        ValueError: As `process_buckets` says.
        OSError: As `process_buckets` says.
    """
    chosen, data = opened.chosen, opened.buckets
    assert data is not None
    workers = {name: getattr(chosen, name) for name in ("workers", "engine", "address")}
    manifest = process_buckets(opened.folder / runs.PREDICTOR, data, chosen.output, request, **workers)
    series, rows = (sum(bucket[name] for bucket in manifest["buckets"]) for name in ("series", "rows"))
    told = counted(rows, "row"), series, counted(len(manifest["buckets"]), "bucket")
    log.info("%s: %s of %d series in %s", Path(chosen.output), *told)
