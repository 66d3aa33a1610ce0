"""A page of charts: its records, and the HTML that they become."""

import base64
import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from tsforecast.io.files import make_folder, replace_file
from tsforecast.plots.style import MODEL, tint

MOST_VALUES = 400_000  # numbers on a page: what a phone still draws at once
_DIGITS = 6
_WHITE = (0.85, 0.7, 0.5)  # of the bands, from the widest
_CLOSED = "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Line:
    """A line, or points, over the times of a chart; NaN is a gap. In parts, it ends where the chart has breaks."""

    label: str
    values: ArrayLike
    colour: str
    width: float = 1.5
    points: bool = False
    dash: tuple[int, int] | None = None
    in_parts: bool = False


@dataclass(frozen=True)
class Band:
    """An interval at each time of a chart, such as "80 %". Readers choose bands by their labels."""

    label: str
    low: ArrayLike
    high: ArrayLike


@dataclass(frozen=True)
class Mark:
    """A coloured stretch behind the lines, from one time to another."""

    start: Any
    end: Any
    colour: str


@dataclass(frozen=True)
class Panel:
    """Lines and bands over one axis of values."""

    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """One series of a section: panels over the same times, and the table beside them."""

    name: str  # of the series, in the choice
    times: Any  # time stamps in order, or numbers
    panels: Sequence[Panel]  # from above; all move together
    marks: Sequence[Mark] = ()  # stretches behind all panels
    axis: str = ""  # what the times are where they are numbers
    window: tuple[Any, Any] | None = None  # first and last time that is shown first; by default all
    breaks: Sequence[int] = ()  # places of times at which bands, and lines in parts, begin anew
    table: pd.DataFrame | None = None  # rows whose first column are times of the chart

    @property
    def size(self) -> int:
        """The numbers that the chart holds."""
        own = sum(len(panel.lines) + 2 * len(panel.bands) for panel in self.panels) + 1
        return own * len(self.times) + (0 if self.table is None else self.table.size)


@dataclass(frozen=True)
class Section:
    """A heading, a line of text, HTML of one's own, and charts of which one is shown at a time."""

    title: str  # heading
    charts: Sequence[Chart] = ()  # one for each series that can be chosen
    note: str = ""  # line below the heading
    markup: str = ""  # trusted HTML between the note and the charts
    shown: Sequence[str] | None = None  # bands that are drawn at first; None for all
    left: int = 0  # series that have no chart; a line says how many


@dataclass(frozen=True)
class Page:
    """A page with charts."""

    title: str  # heading of the page
    sections: Sequence[Section]  # from above
    facts: Sequence[str] = ()  # lines below the title
    style: str = field(default="", repr=False)  # further CSS

    def html(self) -> str:
        """Return the page as one string. Charts beyond `MOST_VALUES` numbers are left out; a line says how many."""
        room, parts, data = MOST_VALUES, [], []
        for section in self.sections:
            kept = []
            for chart in section.charts:
                room -= chart.size
                if room < 0 and kept:
                    break
                kept.append(_chart(chart))
            parts += [f"<h2>{html.escape(section.title)}</h2>"]
            left = section.left + len(section.charts) - len(kept)
            notes = [section.note, f"{left} further series are in the tables alone." if left else ""]
            parts += [f'<p class="note">{html.escape(note)}</p>' for note in notes if note]
            parts += [section.markup]
            if kept:
                parts.append(f'<div class="section" data-place="{len(data)}"></div>')
                labels = _labels(section.charts)
                data.append({"charts": kept, "intervals": labels, "shown": [*(section.shown or labels)]})
        facts = "".join(f"<p>{html.escape(fact)}</p>" for fact in self.facts)
        contents = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_CLOSED}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{html.escape(self.title)}</title>",
                f"<style>{_asset('uplot.css')}{_asset('page.css')}{self.style}</style>\n</head>\n<body>",
                f"<h1>{html.escape(self.title)}</h1>{facts}",
                *parts,
                f'<p class="note">Charts have {_DIGITS} digits. Drag to zoom; a click on a row finds its time.</p>',
                f'<script type="application/json" id="data">{contents}</script>',
                f"<script>{_asset('uplot.js')}</script>\n<script>{_asset('page.js')}</script>\n</body>\n</html>\n",
            ]
        )

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all, and return its path."""
        path = Path(path)
        make_folder(path.parent)
        with replace_file(path) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, as notebooks show it."""
        source = base64.b64encode(self.html().encode()).decode()
        return (
            f'<iframe src="data:text/html;base64,{source}" title="{html.escape(self.title, quote=True)}" '
            'sandbox="allow-scripts" style="width: 100%; height: 40rem; border: 0"></iframe>'
        )


def _asset(name: str) -> str:
    return (files("tsforecast.plots.pages") / name).read_text(encoding="utf-8")


def _labels(charts: Iterable[Chart]) -> list[str]:
    """Return the labels of all bands, each once."""
    return [*dict.fromkeys(band.label for chart in charts for panel in chart.panels for band in panel.bands)]


def _chart(chart: Chart) -> dict[str, Any]:
    is_time = np.asarray(chart.times).dtype.kind == "M" or isinstance(chart.times, pd.PeriodIndex)
    table = pd.DataFrame() if chart.table is None else chart.table
    return {
        "name": chart.name,
        "time": is_time,
        "axis": chart.axis,
        "x": _places(chart.times),
        "window": None
        if chart.window is None
        else _places([*chart.window] if not is_time else pd.DatetimeIndex(chart.window)),
        "breaks": [int(place) for place in chart.breaks if place],
        "marks": [
            {"from": start, "to": end, "colour": mark.colour}
            for mark in chart.marks
            for start, end in [_places(pd.DatetimeIndex([mark.start, mark.end]) if is_time else [mark.start, mark.end])]
        ],
        "panels": [_panel(panel) for panel in chart.panels],
        "columns": [str(name) for name in table.columns],
        "rows": [[_cell(cell) for cell in row] for row in table.itertuples(index=False)],
        "places": _places(table.iloc[:, 0]) if len(table) else [],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    shades = dict(zip((band.label for band in panel.bands), _WHITE, strict=False))
    return {
        "label": panel.label,
        "lines": [
            {"label": line.label, "values": _numbers(line.values), "colour": line.colour, "width": line.width,
             "points": line.points, "dash": line.dash, "parts": line.in_parts}
            for line in panel.lines
        ],
        "bands": [
            {"label": band.label, "low": _numbers(band.low), "high": _numbers(band.high),
             "colour": tint(MODEL, shades.get(band.label, _WHITE[0]))}
            for band in panel.bands
        ],
    }  # fmt: skip


def _places(times: Any) -> list[float]:
    """Return times as seconds since 1970, and numbers as they are."""
    values = np.asarray(times)
    if values.dtype.kind == "M":
        return (values.astype("datetime64[ms]").astype(np.int64) / 1000).tolist()
    return [float(value) for value in values]


def _numbers(values: ArrayLike) -> list[float | None]:
    return [_rounded(value) for value in np.asarray(values, np.float64).tolist()]


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _cell(cell: Any) -> str | float | None:
    """Return a cell of a table: a number, or text; None where nothing is."""
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else ""
    if isinstance(cell, int | float | np.number):
        return _rounded(float(cell))
    if cell is None or cell is pd.NaT or cell is pd.NA:
        return None
    if isinstance(cell, pd.Timestamp):
        return cell.strftime("%Y-%m-%d" if cell == cell.normalize() else "%Y-%m-%d %H:%M")
    return str(cell)
