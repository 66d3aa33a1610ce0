"""`tsforecast news` and `tsforecast explain`: tables that add up, pictures, and what is wrong in one line."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

pytestmark = [
    pytest.mark.usefixtures("unchecked_module"),
    pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers"),
]


def test_from_files_to_tables_and_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    sales = 50 + 9.0 * (days.dayofweek > 4) + np.random.default_rng(0).normal(size=40)
    frame = pd.DataFrame({"item_id": "s0", "day": days, "sales": sales})
    frame[:-2].to_csv("before.csv", index=False)
    frame.to_csv("after.csv", index=False)
    few = ["--windows=0", "--prediction_length=5", "--max_epochs=1", "--num_batches_per_epoch=2", "--accelerator=cpu"]
    assert main(["train", "issm", "--data", "before.csv", *few, "--output", "run"]) == 0
    assert main(["news", "run", "--data", "after.csv", "--device=cpu"]) == 0
    news = pd.read_csv("run/news/news.csv", parse_dates=["day", "source"])
    steps = news.groupby("day")
    np.testing.assert_allclose(steps["after"].first() - steps["before"].first(), steps["impact"].sum(), atol=1e-8)
    assert list(news.loc[news["kind"] == "new", "source"].unique()) == list(days[-2:])
    same = ["--data", "before.csv", "--output", "same", "--plot_series=0", "--device=cpu"]
    assert main(["news", "run", *same]) == 0
    assert "nothing is new: the observations are those of the run" in capsys.readouterr().err
    assert main(["explain", "run", "--data", "after.csv", "--output", "parts", "--device=cpu"]) == 0
    parts = pd.read_csv("parts/explain.csv").pivot_table(index="day", columns="part", values="mean")
    np.testing.assert_allclose(parts.drop(columns="fit").sum(axis=1), parts["fit"], rtol=1e-5)
    assert {path.name for path in tmp_path.rglob("*.png")} >= {"news.png", "explain.png"}
    title = "after, sales: parts of the forecasts of 5 days by issm (level, damped level and day of week)"
    assert f"<h1>{title}</h1>" in (tmp_path / "parts" / "page.html").read_text()
    capsys.readouterr()
    assert main(["news", "run", "--before", "after.csv", "--data", "before.csv", "--output", "news"]) == 2
    assert "are the files in the right order?" in capsys.readouterr().err
