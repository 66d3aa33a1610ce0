"""Scores of a model over a folder of buckets: the sums of the buckets add up to those of all series."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gluonts.model import Predictor

from tsforecast.data.buckets.survey import Bucket
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation.report import Evaluation, evaluate
from tsforecast.evaluation.score_files import format_scores, save_scores
from tsforecast.evaluation.scores import Scores, Totals, totals_of_json
from tsforecast.forecasting.predictor import StateSpacePredictor, with_prediction_length
from tsforecast.forecasting.requests import Request
from tsforecast.io.files import replace_file
from tsforecast.io.frame_files import write_frames

TABLE = "scores.txt"


@dataclass(frozen=True, kw_only=True)
class Scoring(Request):
    """Scores of a model and of baselines on the last windows of each series, under both protocols.

    A bucket's file has the CRPS of every forecast. When all are done, the folder has the files of `save_scores` that
    are not of single series.
    """

    dataset: str  # name of the data set
    model: str  # name of the model
    prediction_length: int  # steps of a rolling forecast
    windows: int  # test windows, one at least
    baselines: list[str]  # names, as `evaluate` takes them

    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series with their test windows."""
        return self._read(folder, bucket, self.prediction_length, self.windows, None)

    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes the CRPS of every forecast, and returns the sums that all scores are made of."""
        horizons = {"rolling": self.prediction_length, "long_term": self.prediction_length * self.windows}
        seed = torch.initial_seed()

        def predictor_for(protocol: str) -> Predictor:
            torch.manual_seed(seed)
            return with_prediction_length(predictor, horizons[protocol])

        evaluation = evaluate(
            predictor_for,
            task,
            model=self.model,
            baselines=self.baselines,
            num_samples=self.num_samples,
            seed=self.seed,
        )
        write_frames([evaluation.per_forecast()], path)
        totals = {
            name: {protocol: scores.totals.as_json() for protocol, scores in of_model.items()}
            for name, of_model in evaluation.scores.items()
        }
        return {"totals": totals, "deviations": evaluation.deviations}

    def finish(self, out: Path, notes: list[dict[str, Any]]) -> None:
        """Writes scores over all series, and a table of them to read; a ValueError if no series can be used."""
        evaluation = merged(self, notes)
        save_scores(evaluation, out, of_series=False)
        with replace_file(out / TABLE) as temporary:
            temporary.write_text(format_scores(evaluation) + "\n", encoding="utf-8")


def merged(request: Scoring, notes: list[dict[str, Any]]) -> Evaluation:
    """Return the scores over all series, with those of no single one."""
    parts = [note["parts"] for note in notes if note["series"]]
    if not parts:
        raise ValueError("no bucket has a series that can be used: give fewer windows, or shorter ones")
    totals: dict[str, dict[str, Totals]] = {}
    for part in parts:
        for name, of_model in part["totals"].items():
            sums = totals.setdefault(name, {})
            for protocol, saved in of_model.items():
                mine = totals_of_json(saved)
                sums[protocol] = sums[protocol] + mine if protocol in sums else mine
    none = pd.DataFrame()
    scores = {name: {key: Scores(sums, none, none) for key, sums in own.items()} for name, own in totals.items()}
    counts = {name: sum((Counter(part["deviations"][name]) for part in parts), Counter()) for name in request.baselines}
    deviations = {name: dict(count) for name, count in counts.items()}
    return Evaluation(request.dataset, request.model, scores, deviations)
