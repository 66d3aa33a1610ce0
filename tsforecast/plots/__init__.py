"""Figures of forecasts, decompositions and scores.

Every function takes data and returns a matplotlib `Figure` which belongs to no window and to no global state;
`save_figure` writes it. Parts have colours of Okabe and Ito, which colour-blind readers can tell apart;
every model has one of its own in all figures (`colour_of`), whatever stands beside it.

A module is imported when one of its functions is asked for, since figures of scores need packages that most commands do
not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsforecast.plots.anomalies import plot_anomalies
    from tsforecast.plots.decisions import plot_regret
    from tsforecast.plots.forecasts import plot_decomposition, plot_forecasts
    from tsforecast.plots.learning import (
        plot_adaptation,
        plot_learning_curve,
        plot_optimisation,
        plot_stream,
        plot_study,
    )
    from tsforecast.plots.regimes import plot_regimes
    from tsforecast.plots.scores import plot_calibration, plot_differences, plot_scores_by_horizon
    from tsforecast.plots.style import COLOURS, LEARNING, MODEL, OBSERVED, colour_of, measured, save_figure

__all__ = [
    "COLOURS", "LEARNING", "MODEL", "OBSERVED", "colour_of", "measured", "plot_adaptation", "plot_anomalies",
    "plot_calibration", "plot_decomposition", "plot_differences", "plot_forecasts", "plot_learning_curve",
    "plot_optimisation", "plot_regimes", "plot_regret", "plot_scores_by_horizon", "plot_stream", "plot_study",
    "save_figure",
]  # fmt: skip

_HOMES = {
    "anomalies": ("plot_anomalies",),
    "decisions": ("plot_regret",),
    "forecasts": ("plot_decomposition", "plot_forecasts"),
    "learning": ("plot_adaptation", "plot_learning_curve", "plot_optimisation", "plot_stream", "plot_study"),
    "regimes": ("plot_regimes",),
    "scores": ("plot_calibration", "plot_differences", "plot_scores_by_horizon"),
    "style": ("COLOURS", "LEARNING", "MODEL", "OBSERVED", "colour_of", "measured", "save_figure"),
}


def __getattr__(name: str) -> Any:
    """Return a function or colour by name."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
