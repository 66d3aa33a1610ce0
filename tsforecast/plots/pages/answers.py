"""Pages of forecasts, their parts, anomalies and effects: a chart for each series, and its table beside it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.split import periods_between
from gluonts.model import Forecast

from tsforecast.analysis.impact import Impact
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.quantiles import INTERVALS, forecast_quantiles
from tsforecast.data.tables.naming import names_of, standard
from tsforecast.plots.forecasts import BAND_LEVELS
from tsforecast.plots.news import parts_of
from tsforecast.plots.pages.page import Band, Chart, Line, Mark, Page, Panel, Section
from tsforecast.plots.style import COLOURS, MARK, MODEL, OBSERVED, measured, tint

MOST_SERIES = 300  # that a page has charts of
_BEGIN = "#d0d0d0"
_DASH = (5, 4)


@expected_alias_warnings()
def forecast_charts(
    entries: Iterable[Mapping[str, Any]],
    forecasts: Iterable[Forecast],
    *,
    history: int | None = None,
    targets: Sequence[str] = (),
    unit: str = "",
) -> list[Chart]:
    """Return a chart for each series and target: observations, the median and the 50, 80 and 95 % intervals.

    Args:
        entries: GluonTS entries with `item_id` over past and future; the future may be missing.
        forecasts: Forecasts of these series, in any order; several of a series follow each other.
        history: Steps before the first forecast that are kept; by default eight times what forecasts cover.
        targets: What was measured, a name for each target.
        unit: In which it was measured.
    """
    by_item: dict[str, list[Forecast]] = {}
    for forecast in sorted(forecasts, key=lambda forecast: forecast.start_date.ordinal):
        by_item.setdefault(str(forecast.item_id), []).append(forecast)
    charts = []
    for entry in entries:
        found = by_item.get(str(entry["item_id"]))
        if found:
            rows = np.atleast_2d(np.asarray(entry["target"], np.float64))
            names = [targets[row] if row < len(targets) else f"target {row}" for row in range(len(rows))]
            for row, values in enumerate(rows):
                several = f", {names[row]}" if len(rows) > 1 else ""
                label = measured(targets[row] if row < len(targets) else "", unit)
                charts.append(_forecast_chart(entry, values, row, found, history, several, label))
    return charts


def _forecast_chart(
    entry: Mapping[str, Any],
    values: np.ndarray,
    row: int,
    forecasts: Sequence[Forecast],
    history: int | None,
    several: str,
    label: str,
) -> Chart:
    origins = [periods_between(entry["start"], forecast.start_date) - 1 for forecast in forecasts]
    end = origins[-1] + forecasts[-1].prediction_length
    covered = end - origins[0]
    first = max(0, origins[0] - (8 * covered if history is None else history))
    times = stamps_of(entry["start"], max(end, len(values)), entry.get("info"))[first:end]
    observed = np.full(end - first, np.nan)
    seen = values[first:end]
    observed[: len(seen)] = seen
    levels = np.full((len(BAND_LEVELS), end - first), np.nan)
    for forecast, origin in zip(forecasts, origins, strict=True):
        quantiles = forecast_quantiles(forecast, BAND_LEVELS)
        quantiles = quantiles[..., row] if quantiles.ndim == 3 else quantiles
        levels[:, origin - first : origin - first + forecast.prediction_length] = quantiles
    ahead = times[origins[0] - first :]
    table = pd.DataFrame({"time": ahead, "actual": observed[origins[0] - first :]})
    bands = []
    for width in sorted(INTERVALS, reverse=True):
        low, high = (levels[BAND_LEVELS.index(round(0.5 + side * width / 200, 3))] for side in (-1, 1))
        bands.append(Band(f"{width} %", low, high))
    median = levels[BAND_LEVELS.index(0.5)]
    table["median"] = median[origins[0] - first :]
    narrow = next(band for band in bands if band.label == "80 %")
    table["10 %"], table["90 %"] = (np.asarray(side)[origins[0] - first :] for side in (narrow.low, narrow.high))
    lines = [Line("observed", observed, OBSERVED), Line("median", median, MODEL, in_parts=True)]
    begins = [Mark(times[origin - first], times[origin - first], _BEGIN) for origin in origins]
    breaks = [origin - first for origin in origins]
    shown = (times[max(0, origins[0] - first - 2 * covered)], times[-1])
    return Chart(f"{entry['item_id']}{several}", times, [Panel(lines, bands, label)], begins, "", shown, breaks, table)


def forecasts_page(
    title: str, charts: Sequence[Chart], *, facts: Sequence[str] = (), further: Sequence[Section] = ()
) -> Page:
    """Return the page of forecasts.

    Args:
        title: Heading.
        charts: Of `forecast_charts`.
        facts: Lines below the heading.
        further: Sections behind the forecasts.
    """
    return Page(title, [Section("Forecasts", charts, shown=("80 %",)), *further], facts)


def explain_page(frame: Any, *, title: str | None = None, facts: Sequence[str] = ()) -> Page:
    """Return the page of the parts of forecasts: the whole above, and below it each part.

    Args:
        frame: Rows that `tsforecast.analysis.explain.explain` has returned.
        title: Heading.
        facts: Lines below the heading.

    Raises:
        ValueError: If there are no rows.
    """
    frame = _rows(frame)
    parts = ["fit", *parts_of(frame)]
    charts = []
    series = frame.groupby(names_of(frame), sort=False)
    for one, own in islice(series, MOST_SERIES):
        times = own.loc[own["part"] == "fit", "timestamp"].to_numpy()
        panels, table = [], pd.DataFrame({"time": times})
        for number, name in enumerate(parts):
            rows = own[own["part"] == name]
            mean, std, recent = (np.asarray(rows[key], np.float64) for key in ("mean", "std", "recent"))
            shown = "forecast" if name == "fit" else name.replace("_", " ")
            lines = [
                Line(shown, mean, COLOURS[number % len(COLOURS)]),
                Line("without the last steps", mean - recent, MARK, 1.0, dash=_DASH),
            ]
            panels.append(Panel(lines, [Band("± 2 standard deviations", mean - 2 * std, mean + 2 * std)], shown))
            table[shown] = mean
        charts.append(Chart(str(one), times, panels, table=table))
    left = series.ngroups - len(charts)
    return Page(title or "What the forecast is made of", [Section("Parts of the forecasts", charts, left=left)], facts)


def anomalies_page(
    frame: Any, *, rate: float, label: str = "", title: str | None = None, facts: Sequence[str] = ()
) -> Page:
    """Return the page of anomalies: each series with its interval, and the rarity of every step below it.

    Args:
        frame: Rows that `tsforecast.analysis.anomalies` has returned.
        rate: False-alarm rate.
        label: What is observed, see `measured`.
        title: Heading.
        facts: Lines below the heading.

    Raises:
        ValueError: If there are no rows.
    """
    frame = _rows(frame)
    names = names_of(frame)
    scores: Any = frame.groupby(names, sort=False)["score"].max().fillna(0.0)
    rarest = scores.sort_values(ascending=False, kind="stable").index
    has_chart = names.isin(rarest[:MOST_SERIES])
    groups = dict([*frame[has_chart].groupby(names[has_chart], sort=False)])
    charts = []
    for name in rarest[:MOST_SERIES]:
        own = groups[name]
        flagged: Any = own[own["flagged"]]
        value, expected, low, high, score = (
            np.asarray(own[key], np.float64) for key in ("value", "expected", "lower", "upper", "score")
        )
        events = np.where(own["flagged"], np.where(np.isnan(value), expected, value), np.nan)
        lines = [
            Line("observed", value, OBSERVED, 1.0), Line("expected", expected, MODEL, 1.0),
            Line("anomaly", events, MARK, points=True),
        ]  # fmt: skip
        above = Panel(lines, [Band(f"{100 * (1 - rate):g} %", low, high)], label)
        below = Panel([Line("rarity", score, OBSERVED, 1.0)], label="-log10 of the tail probability")
        marks = [
            Mark(event["timestamp"].iloc[0], event["timestamp"].iloc[-1], tint(MARK, 0.75))
            for _, event in flagged.groupby("event")
        ]
        columns = {"timestamp": "time", "kind": "kind", "value": "value", "expected": "expected", "tail": "tail"}
        table = flagged[[*columns]].rename(columns=columns)
        charts.append(Chart(str(name), np.asarray(own["timestamp"]), [above, below], marks, table=table))
    note = "The series with the rarest step comes first; the table has the flagged steps."
    return Page(title or "Anomalies", [Section("Series", charts, note, left=len(rarest) - len(charts))], facts)


def impact_page(found: Impact, *, level: float, title: str | None = None, facts: Sequence[str] = ()) -> Page:
    """Return the page of the effects of interventions: what was and would have been, and the effect below.

    Args:
        found: Effects that `tsforecast.analysis.impact.impact` has returned.
        level: Of its intervals.
        title: Heading.
        facts: Lines below the heading.

    Raises:
        ValueError: If there are none.
    """
    frame: Any = _rows(found.frame)
    past: Any = standard(found.past)
    interval = f"{100 * level:g} %"
    charts = []
    groups: Any = frame.groupby(["item_id", "intervention"], sort=False)
    for (item, number), own in islice(groups, MOST_SERIES):
        before = past[(past["item_id"] == item) & (past["intervention"] == number)]
        times = np.concatenate([before["timestamp"].to_numpy(), own["timestamp"].to_numpy()])
        blank = np.full(len(before), np.nan)
        column = lambda name, own=own, blank=blank: np.concatenate([blank, own[name].to_numpy(np.float64)])  # noqa: E731
        actual = np.concatenate([before["actual"].to_numpy(np.float64), own["actual"].to_numpy(np.float64)])
        panels = []
        for name, text in (("predicted", "without it"), ("effect", "effect"), ("cumulative", "cumulative effect")):
            lines = [Line(text, column(name), MODEL if name == "predicted" else COLOURS[1])]
            if name == "predicted":
                lines.insert(0, Line("actual", actual, OBSERVED))
            bands = [Band(interval, column(f"{name}_lower"), column(f"{name}_upper"))]
            panels.append(Panel(lines, bands, "actual, and without the intervention" if name == "predicted" else text))
        names = ["timestamp", "actual", "predicted", "effect", "effect_lower", "effect_upper"]
        table = own[names].rename(columns={"timestamp": "time", "effect_lower": "from", "effect_upper": "to"})
        several = frame.loc[frame["item_id"] == item, "intervention"].nunique() > 1
        name = f"{item}, intervention {number}" if several else str(item)
        start = own["timestamp"].iloc[0]
        charts.append(Chart(name, times, panels, [Mark(start, start, _BEGIN)], table=table))
    heading = title or "What was, and what would have been without the intervention"
    return Page(heading, [Section("Effects", charts, left=groups.ngroups - len(charts))], facts)


def _rows(frame: Any) -> Any:
    frame = standard(frame)
    if frame.empty:
        raise ValueError("expected the rows of at least one series, got none")
    return frame
