"""`tsforecast explain RUN`: the parts of forecasts, as a table and pictures."""

import logging
from collections.abc import Sequence
from pathlib import Path

from tsforecast.analysis.explain import explain
from tsforecast.cli import parsers
from tsforecast.cli.news import scale_of
from tsforecast.cli.opened import Opened, parsed
from tsforecast.data.files import make_folder, replace_file
from tsforecast.data.naming import as_read, cells_of
from tsforecast.plots.news import plot_parts
from tsforecast.plots.style import save_figure

log = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Writes explain.csv and explain.png.

    Args:
        argv: Arguments of the command.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If the run, the data or an option is not as expected.
        FileNotFoundError: If a file or folder is missing.
    """
    chosen = parsed(parsers.explain(), argv)
    opened = Opened.of(chosen)
    task, predictor = opened.beyond(chosen.data).ending_together(), opened.predictor()
    found = explain(predictor, task.latest, recent=chosen.recent, seed=chosen.seed)
    out = Path(chosen.output) if chosen.output else opened.folder / "explain"
    make_folder(out)
    with replace_file(out / "explain.csv") as temporary:
        as_read(found, task.columns, cells_of(task.entries)).to_csv(temporary, index=False)
    if chosen.plot_series:
        title = f"What the forecast is made of: mean ± 2 standard deviations{scale_of(predictor)}"
        save_figure(plot_parts(found, most=chosen.plot_series, title=title), out / "explain.png")
    log.info("%s: the parts of the forecasts of %d series", out, len(task.entries))
    return 0
