"""Evaluation of a model and its baselines under both protocols, and the files and table that report it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from gluonts.model import Forecast, Predictor

from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import as_pandas, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation import metrics
from tsforecast.evaluation.baselines import Baseline, check_baseline, default_baselines, fit_baseline, installed
from tsforecast.evaluation.deepar import DeepAR, check_deepar
from tsforecast.evaluation.scores import Scores, score
from tsforecast.forecasting.predictor import StateSpacePredictor, with_prediction_length

Protocol = Literal["rolling", "long_term"]
BASELINES_NOTE = (
    "Baselines are fitted once, before the test windows. Their quantiles below 0 are 0 where a series has no negative "
    "value before the forecast."
)
CRPS_NOTE = (
    "CRPS: weighted quantile loss over tenths (CRPS-99: hundredths; CRPS-ens: of the sample paths themselves), "
    "summed over all cells / sum of |labels|."
)
PROTOCOLS: tuple[Protocol, ...] = ("rolling", "long_term")


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model and of baselines on the same windows.

    Attributes:
        dataset: Name of the data set.
        model: Name of the model.
        scores: By name and protocol; the model comes first, then the baselines.
        deviations: By baseline, how many series are forecast in another way than its name says, by how.
        adapted: Name of the model that went on learning, which has rolling scores only; None if there is none.
        horizon: Length of the windows of series with clocks of their own, in words; None where they have steps.
    """

    dataset: str
    model: str
    scores: dict[str, dict[str, Scores]]
    deviations: dict[str, dict[str, int]]
    adapted: str | None = None
    horizon: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Overall scores as `scores.json` has them: baselines apart from the model, None for NaN and infinity."""
        overall = {
            name: {key: of_protocol.overall for key, of_protocol in scores.items()}
            for name, scores in self.scores.items()
        }
        model = overall.pop(self.model)
        if self.adapted is not None:
            model["adapted"] = {"model": self.adapted, **overall.pop(self.adapted)}
        baselines = {name: scores | {"deviations": self.deviations.get(name, {})} for name, scores in overall.items()}
        return _without_nan({"dataset": self.dataset, "model": self.model, **model, "baselines": baselines})

    def table(self) -> pd.DataFrame:
        """Overall scores in long form: protocol, model, metric, value."""
        rows = [
            (protocol, name, metric, value)
            for protocol in PROTOCOLS
            for name, scores in self.scores.items()
            if protocol in scores
            for metric, value in metrics.flat(scores[protocol].overall).items()
        ]
        return pd.DataFrame(rows, columns=pd.Index(["protocol", "model", "metric", "value"]))

    def per_horizon(self) -> pd.DataFrame:
        """Scores by protocol, model and step ahead."""
        return self._stacked("per_horizon")

    def per_series(self) -> pd.DataFrame:
        """Scores by protocol, model and item id."""
        return self._stacked("per_series")

    def per_forecast(self) -> pd.DataFrame:
        """CRPS and size of every forecast by protocol, model, item id and start."""
        return self._stacked("per_forecast").filter(["protocol", "model", "item_id", "start", "crps", "size"])

    def calibration(self) -> pd.DataFrame:
        """Calibration tables (`Scores.calibration`) by protocol, model and probability."""
        return self._stacked("calibration")

    def _stacked(self, field: str) -> pd.DataFrame:
        frames = {
            (protocol, name): getattr(scores[protocol], field).reset_index()
            for protocol in PROTOCOLS
            for name, scores in self.scores.items()
            if protocol in scores
        }
        stacked = pd.concat(frames, names=["protocol", "model"])  # pyright: ignore[reportArgumentType, reportCallIssue]
        return stacked.reset_index([0, 1]).reset_index(drop=True)


def evaluate(
    predictor_for: Callable[[str], Predictor] | StateSpacePredictor,
    task: Any,
    *,
    windows: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    model: str = "model",
    baselines: Sequence[str] | None = None,
    num_samples: int = 100,
    season: int | None = None,
    workers: int = 1,
    adapted: tuple[str, Iterable[Forecast]] | None = None,
    seed: int = 0,
) -> Evaluation:
    """Scores a model and baselines under the rolling and the long-term protocol of a task.

    Rolling: `task.windows` forecasts of `task.prediction_length` steps, each from all data before it. Long-term: one
    forecast over all of these steps. Baselines are fitted to the training range only.

    Args:
        predictor_for: Gives the predictor for a protocol ("rolling" or "long_term"), whose horizons differ. Or a
            predictor of tsforecast, of which those of both horizons are made.
        task: The data and its split; or, beside a predictor, a DataFrame in long format, of which the last windows of
            the predictor's horizon are for testing. What comes before them is for training: of the baselines here, and
            of the model before.
        windows: Test windows of a frame; None for what `tsforecast.data.read_task` takes.
        columns: What the columns of a frame are, see `StateSpaceEstimator.train`; None for those of the training.
        model: Name of the model in tables and files.
        baselines: Names from `BASELINES`, with a season where wanted (`auto_ets-168`; with `deepar` a number of
            epochs); by default those which are fitted at once, auto_ets where statsforecast is installed.
        num_samples: Sample paths of the model. Models whose quantiles are exact are scored by these, and by paths where
            a score is of paths. Scores of 100 paths are 1 to 2 % higher than those of exact quantiles.
        season: Main season in steps, for seasonal baselines and MASE; by default that of the frequency.
        workers: Processes that fit statsforecast's models; see `fit_baseline`.
        adapted: Name and rolling forecasts of the model that goes on learning.
        seed: Of the baselines that are trained.

    Raises:
        ValueError: If names are not unique, or as `fit_baseline` and `score` say.
    """
    task = _task_of(predictor_for, task, windows, columns)
    season = season or default_season(task.freq)
    baselines = installed(default_baselines(season)) if baselines is None else baselines
    check_baselines(baselines, task, [model] if adapted is None else [model, adapted[0]])
    steps = task.prediction_length
    horizons: dict[Protocol, int] = {"rolling": steps, "long_term": task.test_length}
    if isinstance(predictor_for, StateSpacePredictor):
        make = lambda protocol, of=predictor_for: with_prediction_length(of, horizons[protocol])  # noqa: E731
    else:
        make = predictor_for
    scores: dict[str, dict[str, Scores]] = {model: _scores_of(model, make, task, season, num_samples)}
    if adapted is not None:
        name, forecasts = adapted
        scores[name] = {"rolling": score(forecasts, task.test("rolling"), season=season, progress=f"{name}, rolling")}
    deviations: dict[str, dict[str, int]] = {}
    for name in baselines:
        fitted = fit_named(name, task, season, seed=seed, workers=workers)
        make = lambda protocol, of=fitted: of.predictor(horizons[protocol])  # noqa: E731
        scores[name] = _scores_of(name, make, task, season, num_samples)
        deviations[name] = dict(fitted.deviations)
    return Evaluation(task.name, model, scores, deviations, None if adapted is None else adapted[0])


def _scores_of(
    name: str, predictor_for: Callable[[Protocol], Predictor], task: ForecastTask, season: int, num_samples: int
) -> dict[str, Scores]:
    """The scores of a model or baseline under every protocol."""
    scores: dict[str, Scores] = {}
    for protocol in PROTOCOLS:
        test = task.test(protocol)
        forecasts = predictor_for(protocol).predict(test.input, num_samples=num_samples)
        scores[protocol] = score(forecasts, test, season=season, progress=f"{name}, {protocol}")
    return scores


def _task_of(predictor: Any, data: Any, windows: int | None, columns: Any) -> ForecastTask:
    """The task of a data frame with its last windows for testing; a task as it is."""
    if isinstance(data, ForecastTask):
        if windows is not None or columns is not None:
            raise ValueError("windows and columns are of a DataFrame, but the data are a task, which has its own")
        return data
    data = as_pandas(data)
    if not isinstance(data, pd.DataFrame):
        raise ValueError(f"expected a ForecastTask (see read_task) or a DataFrame, got a {type(data).__name__}")
    if not isinstance(predictor, StateSpacePredictor):
        raise ValueError(
            f"expected a StateSpacePredictor beside a DataFrame, got a {type(predictor).__name__}: its frequency and "
            "horizon say how to split the data; make a task of the frame by read_task"
        )
    known = {"columns": columns_of(columns or predictor.columns), "categories": predictor.categories}
    return read_task(data, predictor.freq, predictor.prediction_length, windows, **known)


def check_baselines(names: Sequence[str], task: ForecastTask, others: Sequence[str] = ()) -> None:
    """Raise a ValueError for wrong and repeated names of baselines, before anything is fitted."""
    together = [*others, *names]
    if len({*together}) != len(together):
        raise ValueError(f"expected names that differ, but got {', '.join(together)}")
    for name in names:
        if name.partition("-")[0] == "deepar":
            check_deepar(task, name)
        else:
            check_baseline(name)


def fit_named(name: str, task: ForecastTask, season: int, *, seed: int = 0, workers: int = 1) -> Baseline | DeepAR:
    """Fits a baseline to the training range of a task.

    Args:
        name: As `evaluate` takes it.
        task: Whose training range it sees.
        season: Main season in steps, for a name which gives none.
        seed: Of those which are trained.
        workers: Processes that fit statsforecast's models; see `fit_baseline`.

    Raises:
        ValueError: If there is no such baseline, or DeepAR cannot take the task.
    """
    if name.partition("-")[0] == "deepar":
        return DeepAR.fit(task, name, seed)
    return fit_baseline(name, task.train, season, horizon=task.test_length, workers=workers)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, float):  # NumPy's float64 is one
        return float(value) if math.isfinite(value) else None
    return value
