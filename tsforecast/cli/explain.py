"""`tsforecast explain RUN`: the parts of forecasts, as a table and pictures."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tsforecast.analysis.drivers import curves_behind, effect_curves, importance, with_windows
from tsforecast.analysis.explain import explain
from tsforecast.cli.answers import PAGE, heading, write_table, write_tables
from tsforecast.cli.commands import Explain
from tsforecast.cli.news import scale_of
from tsforecast.cli.opened import Opened
from tsforecast.data.calendar.frequency import steps_in_words
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models.words import in_words
from tsforecast.plots.drivers import plot_curves
from tsforecast.plots.news import plot_parts
from tsforecast.plots.pages import explain_page
from tsforecast.plots.style import save_figure

log = logging.getLogger(__name__)


def run(chosen: Explain) -> int:
    """Writes explain.csv, explain.png and page.html; of curves of covariates curves.csv, curves.png, importance.csv."""
    opened = Opened.of(chosen, chosen.run)
    task, predictor = opened.beyond(chosen.data).ending_together(), opened.predictor()
    if chosen.importance:
        curves_behind(predictor)
        with_windows(predictor, task.latest, chosen.importance)
    predictor.columns = None if task.columns is None else as_lists(task.columns)  # they name targets and covariates
    found = explain(predictor, task.latest, recent=chosen.recent, seed=chosen.seed)
    out = Path(chosen.output) if chosen.output else opened.folder / "explain"
    write_tables(out, task.columns, task.entries, explain=found)
    if chosen.plot_series:
        title = f"What the forecast is made of: mean ± 2 standard deviations{scale_of(predictor)}"
        save_figure(plot_parts(found, most=chosen.plot_series, title=title), out / "explain.png")
        steps = steps_in_words(opened.length, task.freq)
        title = heading(task, f"parts of the forecasts of {steps} by {in_words(predictor.prediction_net)}")
        explain_page(found, title=title).save(out / PAGE)
    if getattr(predictor.input_transform, "effects", None) is not None:
        _write_curves(chosen, predictor, task.latest, out)
    log.info("%s: the parts of the forecasts of %d series", out, len(task.entries))
    return 0


def _write_curves(
    chosen: Explain, predictor: StateSpacePredictor, entries: Iterable[dict[str, Any]], out: Path
) -> None:
    curves, lost = effect_curves(predictor), None
    write_table(curves, out / "curves.csv")
    if chosen.importance:
        lost = importance(predictor, entries, windows=chosen.importance)
        write_table(lost, out / "importance.csv")
        for name, share, error in zip(lost["covariate"], lost["lost"], lost["std_error"], strict=True):
            worse = "worse" if share >= 0 else "better"
            log.info(
                "without %s forecasts are %.1f %% %s (standard error %.1f)", name, abs(100 * share), worse, 100 * error
            )
    if chosen.plot_series and len(curves):
        save_figure(plot_curves(curves, lost=lost), out / "curves.png")
