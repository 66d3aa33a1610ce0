"""Commands date what they write as the user's rows, and call columns as the user does: weeks that end on Fridays."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.analysis import anomalies
from tsforecast.analysis.explain import explain
from tsforecast.analysis.impact import impact
from tsforecast.analysis.news import news
from tsforecast.cli import main
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.live.calendar import Calendar
from tsforecast.live.opening import open_store
from tsforecast.plots.anomalies import plot_anomalies
from tsforecast.plots.impact import plot_impact
from tsforecast.plots.news import plot_news, plot_parts

pytestmark = [
    pytest.mark.usefixtures("unchecked_module"),
    pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers"),
]
AHEAD, SEEN = 4, 76
FRIDAYS = pd.date_range("2010-02-05", periods=SEEN + AHEAD, freq="W-FRI")
KEYS = ["unique_id", "ds"]


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = [pd.DataFrame({"unique_id": k, "ds": FRIDAYS, "y": 50 + rng.normal(size=len(FRIDAYS))}) for k in (1, 2)]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The table, what is known of it, the same a step earlier, and two runs."""
    folder = tmp_path_factory.mktemp("fridays")
    whole = table()
    whole.to_csv(folder / "whole.csv", index=False)
    known = whole[whole["ds"] < FRIDAYS[SEEN]]
    known.to_csv(folder / "known.csv", index=False)
    known[known["ds"] < FRIDAYS[SEEN - 1]].to_csv(folder / "before.csv", index=False)
    few = ["--prediction_length=4", "--windows=2", "--max_epochs=1", "--num_batches_per_epoch=1", "--accelerator=cpu"]
    for model, *more in (("issm", "--components=level"), ("markov", "--starts=1", "--regimes=2")):
        data = ["--data", str(folder / "known.csv"), "--output", str(folder / model), "--threads=1", "--quiet"]
        options = few if model == "issm" else few[:3] + few[-1:]
        assert main(["train", model, *data, *options, *more]) == 0
    return folder


def written(path, keys=KEYS) -> pd.DataFrame:
    """A file, every row of which is found in the data by item and date."""
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, parse_dates=keys[1:])
    assert next(iter(frame)) == keys[0]
    kind = "int64" if frame["unique_id"].dtype == "int64" else str  # a file of text has no numbers for names
    whole = table().astype({"unique_id": kind})
    assert len(frame.merge(whole[keys].drop_duplicates(), on=keys)) == len(frame) > 0
    return frame


def ran(made, command, *options) -> None:
    assert main([command, str(made / "issm"), "--device=cpu", *map(str, options)]) == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_forecasts_and_missing_values(made, tmp_path, suffix):
    ran(made, "predict", "--output", tmp_path / f"f.{suffix}")
    assert sorted(written(tmp_path / f"f.{suffix}")["ds"].unique()) == list(FRIDAYS[SEEN:])
    ran(made, "impute", "--output", tmp_path / f"i.{suffix}", "--num_samples=3")
    assert len(written(tmp_path / f"i.{suffix}")) == 2 * SEEN


def test_analyses(made, tmp_path):
    ran(made, "explain", "--output", tmp_path)
    assert sorted(written(tmp_path / "explain.csv")["ds"].unique()) == list(FRIDAYS[SEEN:])
    ran(made, "news", "--before", made / "before.csv", "--data", made / "known.csv", "--output", tmp_path)
    found = written(tmp_path / "news.csv")
    assert sorted(found["ds"].unique()) == list(FRIDAYS[SEEN : SEEN + AHEAD - 1])
    assert found.loc[found["kind"] == "new", "source"].unique().tolist() == [f"{FRIDAYS[SEEN - 1]:%Y-%m-%d}"]
    ran(made, "anomalies", "--output", tmp_path, "--since", FRIDAYS[50])
    found = written(tmp_path / "anomalies.csv")
    assert found.loc[found["tail"].notna(), "ds"].min() == FRIDAYS[50]
    assert main(["regimes", str(made / "markov"), "--device=cpu", "--output", str(tmp_path)]) == 0
    assert sorted(written(tmp_path / "ahead.csv")["ds"].unique()) == list(FRIDAYS[SEEN:])
    assert len(written(tmp_path / "regimes.csv")) == 2 * SEEN
    effect = ["--after", f"{FRIDAYS[59]:%Y-%m-%d}", "--num-samples=20", "--output", str(tmp_path)]
    assert main(["impact", str(made / "known.csv"), *effect]) == 0
    assert sorted(written(tmp_path / "effects.csv")["ds"].unique()) == list(FRIDAYS[60:SEEN])
    assert next(iter(pd.read_csv(tmp_path / "summary.csv"))) == "unique_id"


def test_frames_have_the_same_and_can_be_drawn(made):
    known, predictor = table()[lambda rows: rows["ds"] < FRIDAYS[SEEN]], load_predictor(made / "issm/predictor", "cpu")
    parts, causes = explain(predictor, known), news(predictor, known[known["ds"] < FRIDAYS[SEEN - 1]], known)
    rare, effects = anomalies(known, predictor, since=FRIDAYS[50]), impact(known, FRIDAYS[59])
    for frame in (parts, causes, rare, effects.frame):
        assert next(iter(frame)) == "unique_id"
        assert len(frame.merge(table(), on=KEYS)) == len(frame) > 0
    titles = [axis.get_title(loc="left") for axis in plot_impact(effects).axes + plot_parts(parts).axes]
    assert titles[0].startswith("1: ")
    assert plot_news(causes).axes
    assert plot_anomalies(rare[rare["unique_id"] == 1], rate=0.001).axes


def test_scores_are_dated_by_the_first_step(made):
    ran(made, "evaluate", "--baselines=seasonal_naive", "--num_samples=5", "--plot_series=0")
    found = pd.read_csv(made / "issm" / "per_forecast.csv", parse_dates=["start"])
    rolling = found.loc[found["protocol"] == "rolling", "start"]
    assert sorted(rolling.unique()) == list(FRIDAYS[[SEEN - 2 * AHEAD, SEEN - AHEAD]])


def test_a_service_answers_likewise(made):
    assert main(["live", "init", str(made / "issm"), "--device=cpu", "--output", str(made / "store")]) == 0
    with open_store(made / "store") as store:
        calendar, end = store.engine.calendar, int(store.rows.end[0])
        assert calendar.stamps(end, AHEAD) == tuple(stamp.isoformat() for stamp in FRIDAYS[SEEN:])
        assert calendar.ordinals_of([calendar.stamp(end)]).tolist() == [end]
    description = made / "store" / "store.json"
    before = description.read_text()
    old = before.replace('"stamp"', '"other"')
    assert old != before
    description.write_text(old)  # of a version that did not know them
    with open_store(made / "store") as store:
        assert store.engine.calendar.stamp(end) == Calendar("W-FRI", ()).period(end).start_time.isoformat()
