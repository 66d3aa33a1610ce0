"""One page that compares scored runs: tables, significance and pictures in a single HTML file."""

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

# On a narrow screen wide tables and pictures scroll sideways in their box: a line above says so, a shadow at the edge
# shows that there is more, and the names of the models stay where they are.
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .2rem; }
h1, h3, p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin-bottom: 1.2rem; background:
  linear-gradient(to right, #fff 50%, transparent) local, linear-gradient(to left, #fff 50%, transparent) right local,
  linear-gradient(to right, #bbb, transparent), linear-gradient(to left, #bbb, transparent) right;
  background-size: 2.5rem 100%, 2.5rem 100%, .8rem 100%, .8rem 100%; background-repeat: no-repeat; }
.wide img { display: block; }
.swipe { display: none; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem; }
.beside > .whole { grid-column: 1 / -1; }
.beside > :not(.whole) img { width: 100%; max-width: 33rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.baseline td { color: #666; } td.best { font-weight: 700; } td.sure { font-weight: 700; }
img { max-width: 100%; height: auto; }
code { background: #f4f4f4; padding: .1rem .3rem; overflow-wrap: anywhere; }
p.note { color: #555; font-size: .9rem; }
@media (max-width: 44rem) {
  body { margin: 1rem auto; }
  .swipe { display: block; margin: 0; color: #555; font-size: .85rem; }
  .wide img { max-width: none; width: 54rem; }
  th, td { padding: .25rem .5rem; }
  th { white-space: normal; vertical-align: bottom; min-width: 4rem; }
  th:first-child, td:first-child { position: sticky; left: 0; background: #fff; border-right: 1px solid #ddd;
    min-width: 6rem; max-width: 8.5rem; white-space: normal; overflow-wrap: anywhere; }
}
"""


@dataclass(frozen=True)
class Contender:
    """The scores of one model or baseline.

    Attributes:
        label: Name on the page.
        overall: By protocol, metric and value.
        per_forecast: By protocol, CRPS and size of every forecast by series and start (see `Scores.per_forecast`).
        is_baseline: Whether it is none of the runs.
    """

    label: str
    overall: dict[str, dict[str, float]]
    per_forecast: dict[str, pd.DataFrame]
    is_baseline: bool = False


def differences(contenders: Sequence[Contender], protocol: str) -> dict[str, Difference]:
    """Of everyone to the best run, by label and from the best to the worst; the best run itself is left out."""
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
) -> str:
    """The page as one string of HTML; it needs no other file and no script.

    Args:
        title: Of the page.
        facts: Lines below the title.
        contenders: Runs and baselines.
        differences: `differences` of every protocol.
        figures: Section, caption and picture, in order: small figures, which stand beside each other where there is
            room, or the bytes of PNG files, which take the whole width.
        commands: Label and command line of every run.
    """
    parts = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(fact)}</p>" for fact in facts)]
    for protocol in ("rolling", "long_term"):
        if any(protocol in c.overall for c in contenders):
            parts += [f"<h2>{protocol.replace('_', '-').capitalize()} forecasts</h2>"]
            parts += [_scores(contenders, protocol), _significance(contenders, protocol, differences[protocol])]
    for name, group in itertools.groupby(figures, key=lambda figure: figure[0]):
        pictures = "\n".join(_picture(caption, picture) for _, caption, picture in group)
        parts.append(f'<h2>{html.escape(name)}</h2>\n<div class="beside">{pictures}</div>')
    parts.append("<h2>How the runs were made</h2>")
    parts += [f"<p>{html.escape(label)}: <code>{html.escape(command)}</code></p>" for label, command in commands]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


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
    return f'<p class="swipe">Scroll sideways for more {more} \u2192</p><div class="wide" tabindex="0">{content}</div>'


def _picture(caption: str, picture: Figure | bytes) -> str:
    heading = f"<h3>{html.escape(caption)}</h3>"
    if isinstance(picture, bytes):
        return f'<div class="whole">{heading}{_wide(_image(picture, caption), "of the picture")}</div>'
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=160)
    return f"<div>{heading}{_image(buffer.getvalue(), caption)}</div>"


def _image(png: bytes, caption: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(caption, quote=True)}" src="data:image/png;base64,{data}">'
