"""A metric that is listed appears wherever metrics do."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from gluonts.dataset.split import split
from gluonts.model import SampleForecast

from tsforecast.evaluation import Evaluation, Metric, format_scores, metrics, save_scores, score
from tsforecast.plots.pages.comparison import Contender, differences, page

START = pd.Period("2024-01-01", "D")


def bias(window):
    assert window.samples is not None
    return np.where(window.observed, window.samples.mean(0) - window.label, 0.0)


@pytest.fixture
def evaluation(monkeypatch):
    """Of three steps, the second of which is missing, by a program that has one more metric."""
    listed = (*metrics.METRICS, Metric("bias", "Bias", bias, metrics.count))
    monkeypatch.setattr(metrics, "METRICS", listed)
    target = np.array([1.0, 2.0, 4.0, 5.0, np.nan, 3.0])
    _, template = split([{"item_id": "s0", "start": START, "target": target}], offset=-3)
    samples = np.array([[6.0, 0.0, 2.0], [8.0, 0.0, 2.0]])
    forecast = SampleForecast(samples, pd.Period("2024-01-04", "D"), item_id="s0")
    found = score([forecast], template.generate_instances(3))
    return Evaluation("toy", "model", {"model": {"rolling": found, "long_term": found}}, {})


def test_it_is_computed_and_written_with_the_others(evaluation, tmp_path):
    found = evaluation.scores["model"]["rolling"]
    assert found.overall["bias"] == pytest.approx((2 - 1) / 2)
    assert found.per_horizon["bias"].tolist() == pytest.approx([2, np.nan, -1], nan_ok=True)
    assert found.per_series.loc["s0", "bias"] == pytest.approx(0.5)
    save_scores(evaluation, tmp_path)
    assert json.loads((tmp_path / "scores.json").read_text())["rolling"]["bias"] == pytest.approx(0.5)
    scores = pd.read_csv(tmp_path / "scores.csv").query("protocol == 'rolling'").set_index("metric")["value"]
    assert scores["bias"] == pytest.approx(0.5)
    assert "bias" in pd.read_csv(tmp_path / "per_series.csv")


def test_it_is_in_the_printed_table_and_on_the_page(evaluation):
    header, row = format_scores(evaluation).splitlines()[1:3]
    assert (header.split()[-1], row.split()[-1]) == ("Bias", "0.5000")
    found = evaluation.scores["model"]["rolling"]
    overall = {"rolling": metrics.flat(found.overall)}
    older = {"rolling": {name: value for name, value in overall["rolling"].items() if name != "bias"}}
    forecasts = {"rolling": found.per_forecast}
    contenders = [Contender("new", overall, forecasts), Contender("old", older, forecasts)]
    text = page("Title", [], contenders, {"rolling": differences(contenders, "rolling")}, [], []).html()
    assert "<th>Bias</th></tr>" in text
    assert '<td class="best">0.5000</td></tr>' in text
    assert "<td>-</td></tr>" in text  # of a run which was scored before there was this metric


def test_shares_are_best_at_their_nominal_value():
    (share,) = (metric for metric in metrics.METRICS if metric.name == "coverage_80")
    assert [share.distance(value) for value in (0.7, 0.8, 0.95)] == pytest.approx([0.1, 0.0, 0.15])
    assert share.text(0.8125) == "81.2 %"
    less = dataclasses.replace(share, nominal=None)
    assert (less.distance(0.7), less.text(0.8125), less.text(float("nan"))) == (0.7, "0.8125", "-")
