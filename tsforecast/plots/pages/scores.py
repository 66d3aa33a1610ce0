"""Charts of scores: by step ahead, and calibration."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tsforecast.plots.pages.page import Chart, Line, Panel, Section
from tsforecast.plots.style import OBSERVED, line_styles

_DASH = (5, 4)


def score_sections(per_horizon: Any, calibration: Any, models: Mapping[str, str] | None = None) -> list[Section]:
    """Return the sections of scores by step ahead and of calibration.

    Args:
        per_horizon: Columns `protocol`, `model`, `step` and `crps`, see `Evaluation.per_horizon`.
        calibration: Columns `protocol`, `model`, `probability`, `coverage` and `pit`, see `Evaluation.calibration`.
        models: By the column `model` the model that gives the colour, where the name is another.
    """
    styles = line_styles([*dict.fromkeys(per_horizon["model"])], models)
    steps = []
    for protocol, part in per_horizon.groupby("protocol", sort=False):
        panel = Panel(_lines(part, "step", "crps", styles), label="CRPS")
        steps.append(Chart(_title(protocol), part["step"].unique(), [panel], axis="steps ahead"))
    shares = []
    for protocol, part in calibration.groupby("protocol", sort=False):
        for column, name in (("coverage", "share in central intervals"), ("pit", "share below quantiles")):
            own = part.dropna(subset=column)
            levels = own["probability"].unique()
            lines = [*_lines(own, "probability", column, styles), Line("calibrated", levels, OBSERVED, 1.0, dash=_DASH)]
            shares.append(Chart(f"{_title(protocol)}, {name}", levels, [Panel(lines, label=name)], axis="nominal"))
    note = "A line below the diagonal of the intervals shows that they are too narrow."
    return [Section("Scores by step ahead", steps), Section("Calibration", shares, note)]


def _title(protocol: object) -> str:
    return str(protocol).replace("_", "-").capitalize()


def _lines(rows: Any, key: str, value: str, styles: Mapping[str, Mapping[str, object]]) -> list[Line]:
    """Return a line for each model over all places that any of them has."""
    places = rows[key].unique()
    found = []
    for number, (name, own) in enumerate(rows.groupby("model", sort=False)):
        values = own.set_index(key)[value].reindex(places).to_numpy(np.float64)
        dash = (6, 3) if styles[str(name)]["linestyle"] != "-" else None
        found.append(Line(str(name), values, str(styles[str(name)]["color"]), 2.2 if number == 0 else 1.2, dash=dash))
    return found
