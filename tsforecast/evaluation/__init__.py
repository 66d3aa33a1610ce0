"""Scores of forecasts, baselines on the same windows, and the files and tables that report them."""

from tsforecast.data.quantiles import INTERVALS, TENTHS, forecast_quantiles
from tsforecast.evaluation.baselines import BASELINES, Baseline, default_baselines, fit_baseline
from tsforecast.evaluation.compare import Difference, crps_by_window, paired_difference
from tsforecast.evaluation.deepar import DeepAR
from tsforecast.evaluation.metrics import HUNDREDTHS, LEVELS, METRICS, Metric, Window
from tsforecast.evaluation.report import Evaluation, evaluate, fit_named, format_scores, save_scores
from tsforecast.evaluation.scores import Scores, score

__all__ = [
    "BASELINES",
    "HUNDREDTHS",
    "INTERVALS",
    "LEVELS",
    "METRICS",
    "TENTHS",
    "Baseline",
    "DeepAR",
    "Difference",
    "Evaluation",
    "Metric",
    "Scores",
    "Window",
    "crps_by_window",
    "default_baselines",
    "evaluate",
    "fit_baseline",
    "fit_named",
    "forecast_quantiles",
    "format_scores",
    "paired_difference",
    "save_scores",
    "score",
]
