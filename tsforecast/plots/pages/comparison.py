"""The page that compares scored runs: tables, significance, charts of scores, and pictures of forecasts."""

import base64
import html
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tsforecast.evaluation import metrics
from tsforecast.evaluation.compare import Difference, paired_difference
from tsforecast.plots.pages.page import Page, Section

# On a narrow screen wide tables and pictures scroll sideways in their box: a line above says so, a shadow at the edge
# shows that there is more, and the names of the models stay where they are.
_STYLE = """
.scroll { overflow-x: auto; margin-bottom: 1.2rem; background:
  linear-gradient(to right, #fff 50%, transparent) local, linear-gradient(to left, #fff 50%, transparent) right local,
  linear-gradient(to right, #bbb, transparent), linear-gradient(to left, #bbb, transparent) right;
  background-size: 2.5rem 100%, 2.5rem 100%, .8rem 100%, .8rem 100%; background-repeat: no-repeat; }
.scroll img { display: block; }
.swipe { display: none; }
tr.baseline td { color: #666; } td.best { font-weight: 700; } td.sure { font-weight: 700; }
img { max-width: 100%; height: auto; }
code { background: #f4f4f4; padding: .1rem .3rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  .swipe { display: block; margin: 0; color: #555; font-size: .85rem; }
  .scroll img { max-width: none; width: 54rem; }
  .scroll th { white-space: normal; vertical-align: bottom; min-width: 4rem; }
  .scroll th:first-child, .scroll td:first-child { position: sticky; left: 0; background: #fff; min-width: 6rem;
    border-right: 1px solid #ddd; max-width: 8.5rem; white-space: normal; overflow-wrap: anywhere; }
}
"""


@dataclass(frozen=True)
class Contender:
    """The scores of one model or baseline."""

    label: str  # name on the page
    overall: dict[str, dict[str, float]]  # by protocol, metric and value
    # By protocol, CRPS and size of every forecast by series and start (see `Scores.per_forecast`).
    per_forecast: dict[str, pd.DataFrame]
    is_baseline: bool = False  # whether it is none of the runs


def differences(contenders: Sequence[Contender], protocol: str) -> dict[str, Difference]:
    """Return differences of all others to the best run, by label and from the best to the worst."""
    present = ranked(contenders, protocol)
    best = next(contender for contender in present if not contender.is_baseline)
    return {
        other.label: paired_difference(other.per_forecast[protocol], best.per_forecast[protocol])
        for other in present
        if other is not best
    }


def ranked(contenders: Sequence[Contender], protocol: str) -> list[Contender]:
    """The contenders with scores in the protocol, the smallest CRPS first."""
    return sorted((c for c in contenders if protocol in c.overall), key=lambda c: c.overall[protocol]["crps"])


def page(
    title: str,
    facts: Sequence[str],
    contenders: Sequence[Contender],
    differences: Mapping[str, Mapping[str, Difference]],
    figures: Sequence[tuple[str, str, Figure | bytes]],
    commands: Sequence[tuple[str, str]],
    further: Sequence[Section] = (),
) -> Page:
    """Return the page that compares runs.

    Args:
        title: Of the page.
        facts: Lines below the title.
        contenders: Runs and baselines.
        differences: `differences` of every protocol; the tables of scores stand alone where there are none.
        figures: Section, caption and picture, in order: figures, or the bytes of PNG files.
        commands: Label and command line of every run.
        further: Sections with charts, between scores and pictures.
    """
    sections = []
    for protocol in ("rolling", "long_term"):
        if any(protocol in c.overall for c in contenders):
            tables = _scores(contenders, protocol)
            if differences.get(protocol):
                tables += _significance(contenders, protocol, differences[protocol])
            sections.append(Section(f"{protocol.replace('_', '-').capitalize()} forecasts", markup=tables))
    sections += further
    for name, group in itertools.groupby(figures, key=lambda figure: figure[0]):
        pictures = "\n".join(_picture(caption, picture) for _, caption, picture in group)
        sections.append(Section(name, markup=pictures))
    made = "".join(f"<p>{html.escape(label)}: <code>{html.escape(command)}</code></p>" for label, command in commands)
    return Page(title, [*sections, Section("How the runs were made", markup=made)], facts, _STYLE)


def _scores(contenders: Sequence[Contender], protocol: str) -> str:
    rows, columns = ranked(contenders, protocol), metrics.printed()
    scores = [[c.overall[protocol].get(metric.name, math.nan) for metric in columns] for c in rows]
    distances = [[metric.distance(value) for metric, value in zip(columns, values, strict=True)] for values in scores]
    best = pd.DataFrame(distances).min()
    lines = [_row(["", *(metric.title for metric in columns)], "th")]
    for contender, values, distance in zip(rows, scores, distances, strict=True):
        cells = [f"<td>{_name(contender.label)}</td>"]
        for metric, value, apart, least in zip(columns, values, distance, best, strict=True):
            cells.append(f"<td{_class('best', apart == least)}>{metric.text(value)}</td>")
        lines.append(f"<tr{_class('baseline', contender.is_baseline)}>{''.join(cells)}</tr>")
    return _wide(f"<table>{''.join(lines)}</table>", "columns")


def _significance(contenders: Sequence[Contender], protocol: str, differences: Mapping[str, Difference]) -> str:
    best = next(c for c in ranked(contenders, protocol) if not c.is_baseline)
    lines = [_row(["", "CRPS minus that of the best run", "95 % interval", "series on which it is ahead"], "th")]
    by_label = {c.label: c for c in contenders}
    for label, difference in differences.items():
        sure = difference.low > 0 or difference.high < 0
        ahead = _series_ahead(by_label[label].per_forecast[protocol], best.per_forecast[protocol])
        cells = [
            _name(label),
            f"{difference.estimate:+.3g}",
            difference.interval,
            ahead,
        ]
        line = "".join(f"<td{_class('sure', sure and k in (1, 2))}>{cell}</td>" for k, cell in enumerate(cells))
        lines.append(f"<tr{_class('baseline', by_label[label].is_baseline)}>{line}</tr>")
    note = (
        f"The best run is {html.escape(best.label)}. Differences are paired, over the same series and windows, with "
        "intervals clustered by series and by blocks of windows; bold ones are sure of their sign."
    )
    return _wide(f"<table>{''.join(lines)}</table>", "columns") + f'<p class="note">{note}</p>'


def _series_ahead(mine: pd.DataFrame, best: pd.DataFrame) -> str:
    """The number of series with a smaller CRPS."""
    change = (mine["crps"] - best["crps"]) * mine["size"]
    totals = change.groupby("item_id").sum()
    return f"{int((totals < 0).sum())} of {len(totals)}"


def _name(label: str) -> str:
    """A label that may be broken behind an underscore."""
    return html.escape(label).replace("_", "_<wbr>")


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"


def _class(name: str, given: Any) -> str:
    return f' class="{name}"' if given else ""


def _wide(content: str, more: str) -> str:
    """A box that scrolls sideways on a narrow screen, and a line that names its hidden content."""
    return (
        f'<p class="swipe">Scroll sideways for more {more} \u2192</p><div class="scroll" tabindex="0">{content}</div>'
    )


def _picture(caption: str, picture: Figure | bytes) -> str:
    heading = f"<h3>{html.escape(caption)}</h3>"
    if isinstance(picture, bytes):
        return heading + _wide(_image(picture, caption), "of the picture")
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=160)
    return heading + _image(buffer.getvalue(), caption)


def _image(png: bytes, caption: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(caption, quote=True)}" src="data:image/png;base64,{data}">'
