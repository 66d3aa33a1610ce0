"""Scores of forecasts, baselines on the same windows, and the files and tables that report them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsforecast.data.quantiles import INTERVALS, TENTHS, forecast_quantiles
    from tsforecast.evaluation.baselines import BASELINES, Baseline, default_baselines, fit_baseline
    from tsforecast.evaluation.compare import Difference, crps_by_window, paired_difference
    from tsforecast.evaluation.deepar import DeepAR
    from tsforecast.evaluation.metrics import HUNDREDTHS, LEVELS, METRICS, Metric, Window
    from tsforecast.evaluation.report import Evaluation, evaluate, fit_named
    from tsforecast.evaluation.score_files import format_scores, save_scores
    from tsforecast.evaluation.scores import Scores, score

__all__ = [
    "BASELINES", "HUNDREDTHS", "INTERVALS", "LEVELS", "METRICS", "TENTHS", "Baseline", "DeepAR", "Difference",
    "Evaluation", "Metric", "Scores", "Window", "crps_by_window", "default_baselines", "evaluate", "fit_baseline",
    "fit_named", "forecast_quantiles", "format_scores", "paired_difference", "save_scores", "score",
]  # fmt: skip

# Where each is from; imported when it is asked for: DeepAR needs packages that take seconds to import.
_HOMES = {
    "data.quantiles": ("INTERVALS", "TENTHS", "forecast_quantiles"),
    "evaluation.baselines": ("BASELINES", "Baseline", "default_baselines", "fit_baseline"),
    "evaluation.compare": ("Difference", "crps_by_window", "paired_difference"),
    "evaluation.deepar": ("DeepAR",),
    "evaluation.metrics": ("HUNDREDTHS", "LEVELS", "METRICS", "Metric", "Window"),
    "evaluation.report": ("Evaluation", "evaluate", "fit_named"),
    "evaluation.score_files": ("format_scores", "save_scores"),
    "evaluation.scores": ("Scores", "score"),
}


def __getattr__(name: str) -> Any:
    """Return a public name of the package from its home."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tsforecast.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
