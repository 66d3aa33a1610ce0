"""`tsforecast news RUN`: why forecasts changed, as a table and pictures."""

import logging
from pathlib import Path

from tsforecast.analysis.news import news
from tsforecast.cli.answers import write_tables
from tsforecast.cli.commands import News
from tsforecast.cli.opened import Opened
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import ExactInference
from tsforecast.models.parts.joint_inference import JointInference
from tsforecast.plots.news import plot_news
from tsforecast.plots.style import save_figure

log = logging.getLogger(__name__)


def run(chosen: News) -> int:
    """Writes news.csv and news.png."""
    opened = Opened.of(chosen, chosen.run)
    predictor = opened.predictor()
    before, after = (opened.beyond(data).ending_together() for data in (chosen.before, chosen.data))
    found = news(predictor, before.latest, after.latest)
    out = Path(chosen.output) if chosen.output else opened.folder / "news"
    write_tables(out, after.columns, after.entries, news=found)
    if chosen.plot_series:
        title = f"Why the forecast changed{scale_of(predictor)}"
        figure = plot_news(found, targets=after.targets, most=chosen.plot_series, title=title)
        save_figure(figure, out / "news.png")
    if not set(found["kind"]) - {"rescaled"}:
        log.warning("nothing is new: the observations are those of %s", chosen.before or "the run")
    log.info("%s: what changed the forecasts of %d series", out, found["item_id"].nunique())
    return 0


def scale_of(predictor: StateSpacePredictor) -> str:
    """Return on which scale a model adds up, for titles; nothing where it is that of the data."""
    net = predictor.prediction_net
    name = net.units.transformation
    inference = net.inference.inner if isinstance(net.inference, JointInference) else net.inference
    return f" ({name} of the data)" if isinstance(inference, ExactInference) and name != "none" else ""
