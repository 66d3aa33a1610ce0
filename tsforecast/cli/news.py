"""`tsforecast news RUN`: why forecasts changed, as a table and pictures."""

import logging
from collections.abc import Sequence
from pathlib import Path

from tsforecast.analysis.news import news
from tsforecast.cli import parsers
from tsforecast.cli.opened import Opened, parsed
from tsforecast.data.files import make_folder, replace_file
from tsforecast.data.naming import as_read, cells_of
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import AbstractForecaster, ExactInference
from tsforecast.plots.news import plot_news
from tsforecast.plots.style import save_figure

log = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Writes news.csv and news.png.

    Args:
        argv: Arguments of the command.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If the run, the data or an option is not as expected.
        FileNotFoundError: If a file or folder is missing.
    """
    chosen = parsed(parsers.news(), argv)
    opened = Opened.of(chosen)
    predictor = opened.predictor()
    before, after = (opened.beyond(data).ending_together() for data in (chosen.before, chosen.data))
    found = news(predictor, before.latest, after.latest)
    out = Path(chosen.output) if chosen.output else opened.folder / "news"
    make_folder(out)
    with replace_file(out / "news.csv") as temporary:
        as_read(found, after.columns, cells_of(after.entries)).to_csv(temporary, index=False)
    if chosen.plot_series:
        title = f"Why the forecast changed{scale_of(predictor)}"
        figure = plot_news(found, targets=after.targets, most=chosen.plot_series, title=title)
        save_figure(figure, out / "news.png")
    log.info("%s: what changed the forecasts of %d series", out, found["item_id"].nunique())
    return 0


def scale_of(predictor: StateSpacePredictor) -> str:
    """Return on which scale a model adds up, for titles; nothing where it is that of the data."""
    net = predictor.prediction_net
    assert isinstance(net, AbstractForecaster)
    name = net.units.transformation
    return f" ({name} of the data)" if isinstance(net.inference, ExactInference) and name != "none" else ""
