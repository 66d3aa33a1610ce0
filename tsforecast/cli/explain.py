"""`tsforecast explain RUN`: the parts of forecasts, as a table and pictures."""

import logging
from pathlib import Path

from tsforecast.analysis.explain import explain
from tsforecast.cli.answers import PAGE, heading, write_tables
from tsforecast.cli.commands import Explain
from tsforecast.cli.news import scale_of
from tsforecast.cli.opened import Opened
from tsforecast.plots.news import plot_parts
from tsforecast.plots.pages import explain_page
from tsforecast.plots.style import save_figure

log = logging.getLogger(__name__)


def run(chosen: Explain) -> int:
    """Writes explain.csv, explain.png and page.html.

    Raises:
        ValueError: If the run, the data or an option is not as expected.
        FileNotFoundError: If a file or folder is missing.
    """
    opened = Opened.of(chosen, chosen.run)
    task, predictor = opened.beyond(chosen.data).ending_together(), opened.predictor()
    found = explain(predictor, task.latest, recent=chosen.recent, seed=chosen.seed)
    out = Path(chosen.output) if chosen.output else opened.folder / "explain"
    write_tables(out, task.columns, task.entries, explain=found)
    if chosen.plot_series:
        title = f"What the forecast is made of: mean ± 2 standard deviations{scale_of(predictor)}"
        save_figure(plot_parts(found, most=chosen.plot_series, title=title), out / "explain.png")
        explain_page(found, title=heading(task, f"parts of the forecasts{scale_of(predictor)}")).save(out / PAGE)
    log.info("%s: the parts of the forecasts of %d series", out, len(task.entries))
    return 0
