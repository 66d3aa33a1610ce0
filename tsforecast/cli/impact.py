"""`tsforecast impact DATA --after DATE`: what an intervention did, as tables and a picture."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

from tsforecast.analysis.impact import Impact, Options, impact
from tsforecast.analysis.impact_tables import ALL
from tsforecast.cli import commands, options
from tsforecast.cli.answers import PAGE, write_table
from tsforecast.data.tables.naming import standard
from tsforecast.io.files import make_folder
from tsforecast.plots.impact import plot_impact
from tsforecast.plots.pages import impact_page
from tsforecast.plots.style import save_figure
from tsforecast.wording import counted, in_full

log = logging.getLogger(__name__)

_TOLD = 5  # series whose effects the log has


def run(chosen: commands.Impact) -> int:
    """Writes effects.csv, summary.csv, impact.png, page.html and, of several interventions, overall.csv."""
    how = Options(**{field.name: getattr(chosen, field.name) for field in dataclasses.fields(Options)})
    found = impact(
        Path(chosen.data),
        chosen.after or None,
        chosen.until or None,
        dates=chosen.dates,
        after_column=chosen.after_column,
        until_column=chosen.until_column,
        columns=options.columns(vars(chosen)),
        freq=chosen.freq,
        options=how,
    )
    out = Path(chosen.output)
    make_folder(out)
    for name, table in (("effects", found.frame), ("summary", found.summary), ("overall", found.overall)):
        if table.empty:  # of one intervention nothing is overall
            (out / f"{name}.csv").unlink(missing_ok=True)
            continue
        write_table(table, out / f"{name}.csv")
    if chosen.plot_series:
        save_figure(plot_impact(found, most=chosen.plot_series), out / "impact.png")
        impact_page(found, level=chosen.level, facts=_told(found, chosen.level)).save(out / PAGE)
    for line in _told(found, chosen.level):
        log.info("%s", line)
    log.info("%s: effects on %d series", out, standard(found.summary)["item_id"].nunique())
    return 0


def _told(found: Impact, level: float) -> list[str]:
    """Returns a line for each of the first series and interventions, and for the overall effects."""
    rows, overall = standard(found.summary), standard(found.overall)
    rows = rows[rows["measure"] == "average"]
    left = len(rows) - _TOLD
    lines = [
        f"series {row['item_id']!r}, intervention {row['intervention']}: {_said(row, level)}"
        for _, row in rows.head(_TOLD).iterrows()
    ]
    if left > 0:
        lines.append(f"and {counted(left, 'other')}, see summary.csv")
    if not overall.empty:
        row = overall[overall["measure"] == "average"].iloc[-1]
        whose = "all series" if row["item_id"] == ALL else f"series {row['item_id']!r}"
        lines.append(f"{whose}, {row['interventions']} interventions together: {_said(row, level)}")
    return lines


def _said(row: Any, level: float) -> str:
    return (
        f"on average {in_full(row['actual'])} instead of {in_full(row['predicted'])}, effect {in_full(row['effect'])} "
        f"({100 * level:g} %: {in_full(row['effect_lower'])} to {in_full(row['effect_upper'])}), "
        f"{100 * row['relative']:.3g} % "
        f"of what would have been; probability of none or the contrary {row['tail']:.2g}"
    )
