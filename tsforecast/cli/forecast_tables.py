"""Tables of forecasts: their levels, and rows that are written as forecasts come."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gluonts.itertools import batcher
from gluonts.model import Forecast

from tsforecast.data.quantiles import check_levels, forecast_frame
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.exact import ExactForecast
from tsforecast.io.files import make_folder
from tsforecast.io.frame_files import write_frames

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_CHUNK = 500  # series that are written at once


def levels(text: str) -> tuple[float, ...]:
    """The levels of --quantiles; a ValueError if they are no numbers between 0 and 1, each once."""
    try:
        found = tuple(float(level) for level in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected --quantiles such as 0.1,0.5,0.9, got {text!r}") from error
    return check_levels(found, "--quantiles")


def write(
    forecasts: Iterable[Forecast],
    kept: tuple[float, ...] | None,
    targets: Sequence[str],
    columns: Columns | None,
    out: Path,
) -> None:
    """Writes forecasts into a table, as they come: quantiles at levels, sample paths for None; whole or not there."""
    make_folder(out.parent)
    chunks = batcher(forecasts, _CHUNK)
    write_frames((forecast_frame(chunk, kept, targets, columns) for chunk in chunks), out)


def weighed(forecasts: Iterable[Forecast], weights: dict[str, float]) -> Iterator[Forecast]:
    """Return forecasts as they come, and add up the weights of the models of a bank."""
    for forecast in forecasts:
        if isinstance(forecast, ExactForecast):
            for name, weight in forecast.weights.items():
                weights[name] = weights.get(name, 0.0) + weight
        yield forecast
