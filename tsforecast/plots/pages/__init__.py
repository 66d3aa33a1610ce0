"""Pages that answer a click: charts with hover, zoom, choice of series and of interval, in one HTML file each.

A page needs no network and no other file. Charts are drawn by uPlot (MIT), whose script is in the page. A notebook
shows a `Page` as it is; `save` writes it.
"""

from tsforecast.plots.pages.answers import (
    anomalies_page,
    explain_page,
    forecast_charts,
    forecasts_page,
    impact_page,
)
from tsforecast.plots.pages.page import Band, Chart, Line, Mark, Page, Panel, Section

__all__ = [
    "Band",
    "Chart",
    "Line",
    "Mark",
    "Page",
    "Panel",
    "Section",
    "anomalies_page",
    "explain_page",
    "forecast_charts",
    "forecasts_page",
    "impact_page",
]
