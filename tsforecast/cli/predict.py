"""`tsforecast predict RUN`: forecasts beyond the end of the data, into a file."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from gluonts.itertools import batcher
from gluonts.model import Forecast
from jsonargparse import Namespace
from pyarrow import csv

from tsforecast.cli import options, parsers, parsing, runs
from tsforecast.cli.memory import check_forecast_memory
from tsforecast.cli.train import settings
from tsforecast.data import Columns, ForecastTask, attach_known, read_task
from tsforecast.data.files import remove_leftovers, replace_file
from tsforecast.data.quantiles import check_levels, forecast_frame
from tsforecast.data.wording import listed
from tsforecast.forecasting.exact import ExactForecast
from tsforecast.forecasting.predictor import load_predictor, with_prediction_length
from tsforecast.models import AbstractForecaster
from tsforecast.progress import follow

log = logging.getLogger(__name__)

_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_NAMED = 10  # series that a warning names, at most
_CHUNK = 500  # series that are written at once


def run(argv: Sequence[str]) -> int:
    """Writes forecasts.

    Args:
        argv: Arguments of the command.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If the run, the data or an option is not as expected.
        FileNotFoundError: If a file or folder is missing.
    """
    chosen = parsers.predict().parse_args(list(argv))
    parsing.check_ranges(chosen)
    out = Path(chosen.out)
    if not out.name.endswith(_SUFFIXES):
        raise ValueError(f"expected --out to end in {', '.join(_SUFFIXES)}, got {out.name!r}")
    levels = _levels(chosen.quantiles)
    folder, record = options.trained_run(chosen)
    trained = settings(folder, record)
    length = chosen.prediction_length or record["split"]["prediction_length"]
    columns = options.columns(chosen, runs.columns_of_run(record) or options.columns(trained))
    entries = _from_start(_task(chosen, trained, record, length, columns), chosen.start).latest
    if chosen.known is not None:
        entries = attach_known(entries, chosen.known, length, _columns_of_known(columns))
    predictor = load_predictor(folder / runs.PREDICTOR, device=chosen.device)
    if length != record["split"]["prediction_length"]:
        predictor = with_prediction_length(predictor, length)
    net = predictor.prediction_net
    assert isinstance(net, AbstractForecaster)
    num_samples = chosen.num_samples if chosen.paths or not predictor.has_marginals else 0
    batch = min(predictor.batch_size, len(entries))
    check_forecast_memory(batch, length * net.data.num_targets, num_samples, predictor.has_marginals)
    torch.manual_seed(chosen.seed)
    forecasts = predictor.predict(entries, num_samples=num_samples)
    shown = follow(forecasts, "forecasts", len(entries), "series")
    kept = None if chosen.paths else levels
    weights: dict[str, float] = {}
    _write((forecast_frame(chunk, kept, columns.targets) for chunk in batcher(_weighed(shown, weights), _CHUNK)), out)
    for name, weight in sorted(weights.items(), key=lambda item: -item[1])[:_NAMED]:
        log.info("%3.0f %%  %s", 100 * weight / len(entries), name)
    log.info("%s: forecasts of %d series, %d steps of %r each", out, len(entries), length, record["split"]["freq"])
    return 0


def _weighed(forecasts: Iterable[Forecast], weights: dict[str, float]) -> Iterator[Forecast]:
    """Returns forecasts as they come, and adds up the weights of the models of a bank."""
    for forecast in forecasts:
        if isinstance(forecast, ExactForecast):
            for name, weight in forecast.weights.items():
                weights[name] = weights.get(name, 0.0) + weight
        yield forecast


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(level) for level in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected --quantiles such as 0.1,0.5,0.9, got {text!r}") from error
    return check_levels(levels, "--quantiles")


def _task(chosen: Namespace, trained: Namespace, record: dict[str, Any], length: int, columns: Columns) -> ForecastTask:
    """The data whose future is wanted."""
    if chosen.data is None and trained.dataset is not None:
        if length != record["split"]["prediction_length"]:
            raise ValueError(f"--prediction_length goes with --data FILE; the data set {trained.dataset!r} has its own")
        return options.task_of(trained, found=columns)
    return read_task(
        chosen.data or trained.data,
        record["split"]["freq"],
        length,
        columns=columns,
        beyond=True,
        categories=record["categories"] or None,
        drop_unusable=chosen.drop_unusable or trained.drop_unusable,
    )


def _from_start(task: ForecastTask, start: str) -> ForecastTask:
    """The task whose series end where their forecasts begin; a warning names series that end before others."""
    if start == "common":
        return task.ending_together()
    early = [str(entry["item_id"]) for entry, gap in zip(task.entries, task.gaps_at_end, strict=True) if gap]
    if early:
        names = listed(early, _NAMED)
        log.warning("%d series end before others (%s): their forecasts cover earlier dates", len(early), names)
    return task


def _columns_of_known(columns: Columns) -> Columns:
    """A what-if file has the columns of the data, as far as it needs them."""
    return replace(columns, covariates=(), static_categories=(), static_reals=())


def _write(frames: Iterable[pd.DataFrame], path: Path) -> None:
    """Writes tables one after the other into one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    with replace_file(path) as temporary:
        if path.suffix == ".parquet":
            writer = None
            for frame in frames:
                table = pa.Table.from_pandas(frame, preserve_index=False)
                writer = writer or pq.ParquetWriter(temporary, table.schema)
                writer.write_table(table)
            if writer is not None:
                writer.close()
            return
        with pa.output_stream(str(temporary), compression="gzip" if path.suffix == ".gz" else None) as stream:
            for number, frame in enumerate(frames):
                _append_csv(frame, stream, header=number == 0)


def _append_csv(frame: pd.DataFrame, stream: pa.NativeFile, header: bool) -> None:
    """Appends rows by pyarrow, which takes a quarter of the time of pandas; names are quoted where they have to be."""
    if header:
        stream.write((",".join(map(str, frame.columns)) + "\n").encode())
    codes, stamps = pd.factorize(frame["timestamp"])
    frame = frame.assign(timestamp=pd.Series(stamps).astype(str).to_numpy()[codes])
    names = "".join(
        str(name) for column in frame.columns.intersection(["item_id", "target"]) for name in frame[column].unique()
    )
    quoting = "needed" if any(mark in names for mark in ',"\r\n') else "none"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    csv.write_csv(table, stream, csv.WriteOptions(include_header=False, quoting_style=quoting))
