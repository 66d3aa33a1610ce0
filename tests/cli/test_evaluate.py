"""`evaluate`: the page and the pictures show forecasts that are made once."""

import numpy as np
import pandas as pd

from tsforecast.cli import drawn, evaluate, main


def test_rows_are_taken_evenly_with_both_ends():
    assert drawn.evenly(range(24), 6) == [0, 5, 9, 14, 18, 23]
    assert drawn.evenly(np.array([3, 1, 2]), 5) == [3, 1, 2]


def test_pictures_and_page_show_the_same_forecasts(tmp_path, monkeypatch):
    days = pd.date_range("2024-01-01", periods=40)
    rng = np.random.default_rng(0)
    parts = [pd.DataFrame({"item": name, "date": days, "y": rng.normal(size=40).cumsum()}) for name in "abc"]
    pd.concat(parts).to_csv(tmp_path / "table.csv", index=False)
    run = str(tmp_path / "run")
    words = ["--data", str(tmp_path / "table.csv"), "--prediction_length=3", "--windows=2", "--max_epochs=0"]
    assert main(["train", "bank", *words, "--output", run]) == 0
    asked = []
    made = evaluate.with_prediction_length

    def counting(predictor, horizon):
        found = made(predictor, horizon)
        predict = found.predict
        found.predict = lambda pasts, **kwargs: predict(asked.append((horizon, len(list(pasts)))) or pasts, **kwargs)
        return found

    monkeypatch.setattr(evaluate, "with_prediction_length", counting)
    assert main(["evaluate", run, "--baselines=none", "--num_samples=10", "--plot_series=2"]) == 0
    # Scores of both protocols, then the series of the page, whose rolling forecasts the pictures share.
    assert asked == [(3, 6), (6, 3), (3, 6), (6, 2)]
    page = (tmp_path / "run" / "page.html").read_text(encoding="utf-8")
    assert all(f'"{name}"' in page for name in "abc")
    assert "forecasts of 3 days by bank (a mixture of structural models)</h1>" in page
    assert (tmp_path / "run" / "plots" / "forecasts_rolling.png").is_file()
