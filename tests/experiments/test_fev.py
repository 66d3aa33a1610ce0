"""Tasks of fev-bench: the benchmark's scores, from raw files to rows, what is refused, and the page."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.model import QuantileForecast, SampleForecast

from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import to_period
from tsforecast.evaluation import LEVELS, score
from tsforecast.evaluation.baselines import SeasonalNaive

TENTHS = np.arange(1, 10) / 10


@pytest.fixture(scope="module")
def fev():
    return importlib.import_module("experiments.fev.run")


@pytest.fixture(scope="module")
def tasks():
    return importlib.import_module("experiments.fev.tasks")


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def task_of(series, horizon, windows, variables=()):
    """A task of daily series by item id."""
    start = to_period("2000-01-01", "D")
    entries = [{"item_id": name, "start": start, "target": np.array(values)} for name, values in series.items()]
    module = importlib.import_module("experiments.fev.tasks")
    return module.Task("small", 1, ForecastTask("small", "D", horizon, windows, entries), variables)


def forecast_of(task, item, steps, quantiles):
    """A forecast by its tenths after so many steps of a series."""
    start = task.data.entries[0]["start"] + steps
    return QuantileForecast(np.asarray(quantiles, float), start, [str(level) for level in TENTHS], item)


def test_the_score_of_a_window_by_hand(tasks):
    """Changes before are 2 and 4: a scale of 3. All tenths are 5 at the first step, and 1, .., 9 at the second.

    At the first the label is 8: a level p costs 2 p 3, with a mean of 3. At the second it is 9.5, and the tenths are
    8.5, .., .5 below it: 2 (.1 8.5 + .2 7.5 + .. + .9 .5) = 28.5, of nine levels.
    """
    task = task_of({"a": [0.0, 2.0, 6.0, 8.0, 9.5]}, 2, 1)
    quantiles = np.stack([np.full(9, 5.0), np.arange(1.0, 10)], axis=1)
    found = tasks.score(task, [forecast_of(task, "a", 3, quantiles)])
    assert found["sql"] == pytest.approx((3 + 28.5 / 9) / 3 / 2)
    assert found["mase"] == pytest.approx((3 + 4.5) / 3 / 2)
    assert found["wape"] == pytest.approx(7.5 / 17.5)
    assert found["coverage_80"] == 0.0


def test_scores_are_means_of_series_and_steps_then_of_targets_and_windows(tasks):
    """With missing values, a series without changes, and items of two targets."""
    generator = np.random.default_rng(0)
    series = {f"{item}/{target}": generator.normal(5, 3, 30) for item in "abc" for target in ("x", "y")}
    series["a/x"][[4, 25, 29]] = np.nan
    series["b/y"][:24] = 1.0  # no scale in the first window
    task = task_of(series, 3, 2, ("x", "y"))
    samples = np.sort(generator.normal(5, 3, (12, 101, 3)), axis=1)
    places = [(name, cut) for name in series for cut in (24, 27)]
    quantiles = {place: paths[10:91:10] for place, paths in zip(places, samples, strict=True)}
    found = tasks.score(task, [forecast_of(task, *place, quantiles[place]) for place in places])
    means = []
    for target in ("x", "y"):
        for cut in (24, 27):
            losses, errors = [], []
            for item in "abc":
                values = series[f"{item}/{target}"]
                scale = np.nanmean(np.abs(np.diff(values[:cut])))
                for step in range(3):
                    label, forecast = values[cut + step], quantiles[f"{item}/{target}", cut][:, step]
                    if np.isnan(label) or scale == 0:
                        continue
                    loss = [2 * abs((label - q) * ((label <= q) - p)) for q, p in zip(forecast, TENTHS, strict=True)]
                    losses.append(np.mean(loss) / scale)
                    errors.append(abs(label - forecast[4]) / scale)
            means.append((np.mean(losses), np.mean(errors)))
    np.testing.assert_allclose((found["sql"], found["mase"]), np.mean(means, axis=0), rtol=1e-12)


def test_scores_of_one_window_are_those_of_the_package(tasks):
    generator = np.random.default_rng(1)
    task = task_of({name: generator.normal(5, 3, 30) for name in "ab"}, 4, 1)
    start = task.data.entries[0]["start"] + 26
    forecasts = [SampleForecast(generator.normal(5, 3, (101, 4)), start, name) for name in "ab"]
    found, expected = tasks.score(task, forecasts), score(forecasts, task.data.test(), season=1).overall
    ours = (found["mase"], found["wape"], found["coverage_80"])
    np.testing.assert_allclose(ours, (expected["mase"], expected["nd"], expected["coverage"]["80"]), rtol=1e-12)


def test_forecasts_of_other_windows_are_refused(tasks):
    task = task_of({"a": np.arange(9.0), "b": np.arange(9.0)}, 2, 1)
    quantiles = np.ones((9, 2))
    first = forecast_of(task, "a", 7, quantiles)
    with pytest.raises(ValueError, match="expected a forecast of series 'b' from 2000-01-08"):
        tasks.score(task, [first, forecast_of(task, "b", 6, quantiles)])
    with pytest.raises(ValueError, match="shorter"):
        tasks.score(task, [first])
    with pytest.raises(ValueError, match="of series 'a' from 2000-01-08 contains NaN"):
        tasks.score(task, [forecast_of(task, "a", 7, np.nan * quantiles), first])


@pytest.fixture
def small(fev, tasks, tmp_path, monkeypatch):
    """A task of two series, published with scores of its naive; the script is asked for two models."""
    generator = np.random.default_rng(2)
    values = generator.normal(20, 3, (2, 30))
    rows = [(name, str(day)[:10], values[k, d]) for k, name in enumerate("ab") for d, day in enumerate(days(30))]
    columns = pd.Index(["item_id", "timestamp", "target"])
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "small.csv", index=False)
    monkeypatch.setitem(tasks.SOURCES, "small", tasks.Source(tasks._table("small.csv"), "D", 2, 3, 7))
    errors = [[np.abs(row[c : c + 2] - row[c - 7 : c - 5]) for row in values] for c in (24, 26, 28)]
    scales = [[np.abs(row[7:c] - row[: c - 7]).mean() for row in values] for c in (24, 26, 28)]
    sizes = [[np.abs(row[c : c + 2]).mean() for row in values] for c in (24, 26, 28)]
    mase = np.mean(np.mean(errors, axis=2) / scales)
    wape = np.mean(np.mean(errors, axis=(1, 2)) / np.mean(sizes, axis=1))
    published = {"task": "small", "model": "Seasonal Naive", "sql": 1.0, "mase": mase, "wape": wape}
    pd.DataFrame([published]).to_csv(tmp_path / "published.csv", index=False)
    monkeypatch.setattr(fev, "PUBLISHED", tmp_path / "published.csv")
    monkeypatch.setattr(fev, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(fev, "_is_same", lambda _: True)
    argv = ["run.py", "--raw", str(tmp_path), "--tasks", "small", "--models", "seasonal_naive", "random_walk"]
    monkeypatch.setattr(sys, "argv", [*argv, "--output", str(tmp_path / "table.csv")])
    return values


def days(number):
    return pd.date_range("2000-01-01", periods=number)


def test_from_raw_files_to_rows_once(fev, small, tmp_path, capsys):
    fev.main()
    table = pd.read_csv(tmp_path / "table.csv")
    assert list(table["model"]) == ["seasonal_naive", "random_walk"]
    assert list(table.columns) == fev.COLUMNS
    np.testing.assert_allclose(table["mase"][0], table["naive_mase"][0], rtol=1e-12)
    assert str(tmp_path) not in "".join(table["command"])
    assert str(table["command"][1]).endswith("--raw FOLDER --tasks small --models random_walk")
    capsys.readouterr()
    fev.main()
    assert "0 runs; 2 rows of this state of the package are there" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "table.csv")) == 2


def test_refitted_models_know_all_before_each_window(fev, tasks, small, tmp_path):
    task = tasks.load("small", tmp_path)
    once, again = (list(way("random_walk", task, 0)) for way in (fev.once, fev.refitted))
    assert [one.start_date for one in again] == [one.start_date for one in once]
    values = np.asarray(task.data.entries[1]["target"], np.float64)
    last = SeasonalNaive.fit(values[:28], 1).quantiles(values[:28], 2)
    np.testing.assert_allclose(again[5].quantile("0.9"), last[LEVELS.index(0.9)])
    assert not np.allclose(once[5].quantile("0.9"), again[5].quantile("0.9"))


def test_data_that_are_not_the_benchmarks_are_refused(fev, small, tmp_path):
    table = pd.read_csv(tmp_path / "published.csv")
    for metric in ("mase", "wape"):
        table.assign(**{metric: table[metric] * 1.0002}).to_csv(tmp_path / "published.csv", index=False)
        with pytest.raises(RuntimeError, match=f"small: the seasonal naive has a {metric} of .*the data are not those"):
            fev.run(fev.Job("small", "random_walk", False), tmp_path, tmp_path)
    with pytest.raises(SystemExit, match="2 of 2 runs failed"):
        fev.main()
    assert not (tmp_path / "table.csv").exists()


def test_a_process_that_is_ended_fails_alone(fev, small, tmp_path, monkeypatch):
    def ended(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(fev, "run", ended)
    with pytest.raises(RuntimeError, match=r"small, issm: the process was ended, .*or after 9 CPU seconds"):
        fev.apart(fev.Job("small", "issm", False), tmp_path, tmp_path, 9)


def test_a_bank_needs_a_prior_that_has_not_seen_the_task(fev, tmp_path):
    job = fev.Job("ETT_1W", "bank", False)
    assert not job.has_prior(tmp_path)
    (tmp_path / "ett").mkdir()
    (tmp_path / "ett" / "W.pt").touch()
    assert job.has_prior(tmp_path)
    assert not fev.Job("ETT_15T", "forecast", False).has_prior(tmp_path)
    assert fev.Job("ETT_15T", "issm", False).has_prior(tmp_path)
    assert fev.Job("epf_np", "bank", False).has_prior(tmp_path)


def test_series_of_ett_are_means_of_whole_days(tasks, tmp_path):
    stamps = pd.date_range("2016-07-01 06:00", periods=66, freq="h")
    for number in (1, 2):
        table = pd.DataFrame({"HUFL": np.arange(66.0) * number, "OT": 1.0}, pd.Index(stamps, name="date"))
        table.to_csv(tmp_path / f"ETTh{number}.csv.gz")
    frame = tasks._ett(False, "D")(tmp_path).set_index(["item_id", "variable"])
    assert list(frame.loc[("ETT2", "HUFL"), "target"]) == [59.0, 107.0]  # of hours 18 to 41, and 42 to 65
    assert [str(stamp)[:10] for stamp in frame.loc[("ETT2", "HUFL"), "timestamp"]] == ["2016-07-02", "2016-07-03"]
    with pytest.raises(RuntimeError, match=r"expected a file ETTm1\.csv\.gz below the folder of raw files"):
        tasks._ett(True)(tmp_path)


def test_skill_counts_what_was_not_run_as_the_naive():
    page = importlib.import_module("experiments.fev.page")
    published = pd.DataFrame({"task": ["p", "q"], "model": page.NAIVE, "sql": [1.0, 2.0]})
    assert page.skill(pd.DataFrame({"task": ["q"], "sql": [0.5]}), published) == pytest.approx(0.5)  # of 1/4 and 1


def test_the_page_shows_the_latest_rows(fev):
    page = importlib.import_module("experiments.fev.page")
    published = pd.read_csv(fev.PUBLISHED)
    row = {"task": "epf_np", "model": "forecast", "refit": False, "sql": 0.9, "coverage_80": 0.81, "cpu_s": 7.0}
    others = [row | {"sql": 0.7}, row | {"model": "issm", "refit": True, "sql": 0.6}]
    text = page.page(fev.latest(pd.DataFrame([row, *others])), published)
    naive = published.set_index(["task", "model"])["sql"]["epf_np", "Seasonal Naive"]
    assert f"| epf_np | .700 | .600 `issm, refitted` | {naive:.3f} |" in text
    assert "| ETT_1W | - | - | 2.509 | 2.442 |" in text
    assert f"| `issm, refitted` | {1 - (0.6 / naive) ** 0.1:.3f} | 1 | the task |".replace("0.", ".") in text
    assert "| 1 | the task and other data | 81 % | 7 |" in text


def test_the_page_is_what_the_tables_say():
    page = importlib.import_module("experiments.fev.page")
    assert {path: path.read_text(encoding="utf-8") for path in page.pages()} == page.pages()
