"""The table of zero-shot tasks: scores as the benchmark has them, from prepared data to a row and the page."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.model import SampleForecast

from tests.data.test_datasets import script
from tsforecast.cli import main as tsforecast
from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.folder import write_folder
from tsforecast.evaluation import score

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "zeroshot" / "results" / "zeroshot.csv"
TENTHS = np.arange(1, 10) / 10


@pytest.fixture(scope="module", autouse=True)
def scripts():
    names = {"zeroshot": "run", "zeroshot_before": "before", "zeroshot_page": "page"}
    return {name: importlib.import_module(f"experiments.zeroshot.{path}") for name, path in names.items()}


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def zeroshot(scripts):
    return scripts["zeroshot"]


def task_of(series, horizon, freq="D", name="zeroshot-small"):
    start = to_period("2000-01-01", freq)
    entries = [
        {"item_id": str(number), "start": start, "target": np.asarray(values, np.float64)}
        for number, values in enumerate(series)
    ]
    return ForecastTask(name, freq, horizon, 1, entries)


def benchmark_scores(series, quantiles, horizon, season):
    """Weighted quantile loss and MASE of quantiles (series, level, step), as the benchmark defines them."""
    loss = size = 0.0
    scaled = []
    for values, of_series in zip(np.asarray(series, np.float64), quantiles, strict=True):
        past, label = values[:-horizon], values[-horizon:]
        error = label - of_series
        level = TENTHS[:, None]
        loss += np.nansum(2 * np.maximum(level * error, (level - 1) * error)) / len(TENTHS)
        size += np.nansum(np.abs(label))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled.append(np.abs(error[4]) / np.nanmean(np.abs(past[season:] - past[:-season])))
    cells = np.concatenate(scaled)
    return loss / size, cells[np.isfinite(cells)].mean()


@pytest.mark.parametrize("season", [1, 7])
def test_scores_are_those_of_the_benchmark(season):
    """With missing values in past and label, and a series that never changes and so has no scale."""
    generator = np.random.default_rng(0)
    series = generator.normal(10, 5, (4, 50))
    series[1, [3, 20, 44]] = np.nan
    series[2, :-6] = 3.0
    task = task_of(series, 6)
    samples = generator.normal(10, 5, (4, 101, 6))
    start = task.entries[0]["start"] + 44
    forecasts = [SampleForecast(paths, start, str(number)) for number, paths in enumerate(samples)]
    found = score(forecasts, task.test(), season=season).overall
    quantiles = np.sort(samples, axis=1)[:, np.round(100 * TENTHS).astype(int)]
    expected = benchmark_scores(series, quantiles, 6, season)
    np.testing.assert_allclose((found["crps"], found["mase"]), expected, rtol=1e-12)


@pytest.mark.parametrize("season", [1, 4])
def test_the_naive_repeats_what_was_last_seen_in_all_quantiles(zeroshot, season):
    generator = np.random.default_rng(1)
    series = generator.normal(0, 5, (3, 40))
    series[0, [29, 33, 38]] = np.nan  # 33 is the end of the past, where a value that was seen is repeated
    series[1, :34] = 2.0
    filled = pd.DataFrame(series[:, :34].T).ffill().to_numpy().T
    naive = filled[:, 34 - season + np.arange(6) % season]
    expected = benchmark_scores(series, np.repeat(naive[:, None], 9, axis=1), 6, season)
    found = zeroshot.seasonal_naive(task_of(series, 6), season)
    np.testing.assert_allclose((found["wql"], found["mase"]), expected, rtol=1e-12)


def test_tasks_are_those_that_are_prepared_and_published(zeroshot):
    prepared = script("zeroshot").TASKS
    published = zeroshot.published()
    assert set(zeroshot.TASKS) == set(prepared) == set(published["task"])
    facts = published.groupby("task")[["horizon", "num_series"]].first()
    assert {name: (task.horizon, task.series) for name, task in prepared.items()} == {
        name: tuple(row) for name, row in zip(facts.index, facts.to_numpy().tolist(), strict=True)
    }
    seasons = published.groupby("task")["seasonality"].unique().map(list)
    assert (seasons["monash_covid_deaths"], seasons["exchange_rate"], seasons["ETTm"]) == ([1], [5], [96])


def test_a_naive_that_is_not_the_published_one_stops_the_run(zeroshot):
    known = {"wql": 0.2, "mase": 1.0}
    zeroshot.check_naive("small", {"wql": 0.200001, "mase": 1.00001}, known)
    with pytest.raises(RuntimeError, match=r"small: the seasonal naive has a mase of 1.001, published is 1: its data"):
        zeroshot.check_naive("small", {"wql": 0.2, "mase": 1.001}, known)


@pytest.fixture
def small(zeroshot, tmp_path, monkeypatch):
    """A task of two monthly series which is prepared, and published with scores of its naive and others.

    The season is not that of the frequency, as with the daily deaths of the benchmark.
    """
    name = "monash_cif_2016"
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    series = [50 + step % 12 + np.arange(40.0) for step in (np.arange(40), np.arange(5, 45))]
    task = task_of(series, 4, "M", f"zeroshot-{name}")
    write_folder(task, tmp_path / "home" / task.name)
    naive = np.stack([values[:-4][-6:][:4] for values in series])
    wql, mase = benchmark_scores(series, np.repeat(naive[:, None], 9, axis=1), 4, 6)
    facts = {"task": name, "horizon": 4, "seasonality": 6, "num_series": 2}
    rows = [facts | {"model": "seasonal_naive", "wql": wql, "mase": mase, "trained_on_this_dataset": False}]
    for place, model in enumerate(("auto_ets", "auto_arima", "auto_theta", "chronos_bolt_base", "moirai_large")):
        rows.append(rows[0] | {"model": model, "wql": 0.009 - place / 1000, "trained_on_this_dataset": place == 4})
    pd.DataFrame(rows).to_csv(tmp_path / "published.csv", index=False)
    monkeypatch.setattr(zeroshot, "PUBLISHED", tmp_path / "published.csv")
    monkeypatch.setattr(sys, "argv", ["zeroshot.py", "--tasks", name, "--seeds", "3", "--output"])
    sys.argv += [str(tmp_path / "table.csv"), "--runs", str(tmp_path / "runs"), "--priors", str(tmp_path / "priors")]
    (tmp_path / "priors" / "cif").mkdir(parents=True)
    (tmp_path / "priors" / "cif" / "M.pt").touch()
    return name


def test_from_prepared_data_to_a_row_and_the_page(zeroshot, scripts, small, tmp_path, monkeypatch):
    asked, seasons = [], []

    def spy(forecasts, test, *, season):
        seasons.append(season)
        return score(forecasts, test, season=season)

    def call(arguments):
        asked.append(arguments)
        short = ["--max_epochs=1", "--time_budget=0", "--accelerator=cpu"]
        assert tsforecast(["train", *arguments[3:], *short]) == 0

    monkeypatch.setattr(zeroshot, "call", call)
    monkeypatch.setattr(zeroshot, "score", spy)
    zeroshot.main()
    assert seasons == [6, 6]  # of the naive and of the model
    table = pd.read_csv(tmp_path / "table.csv")
    (row,) = table.to_dict("records")
    command = ["train.py", "auto", "--dataset", f"zeroshot-{small}", "--seed", "3"]
    begun = ["-c", zeroshot._TRAINED, str(tmp_path / "priors" / "cif")]
    assert asked == [[*begun, *command[1:], "--output", str(tmp_path / "runs" / f"{small}-auto-3")]]
    assert row["without"] == "cif"
    assert row["command"] == "python " + " ".join(command)
    assert (row["task"], row["seed"], row["horizon"], row["seasonality"], row["num_samples"]) == (small, 3, 4, 6, 100)
    assert 0 < row["wql"] < 1
    assert 0 <= row["coverage_50"] <= row["coverage_80"] <= row["coverage_95"] <= 1
    assert list(table.columns) == zeroshot.COLUMNS
    zeroshot.main()  # what is there is not run again
    assert len(asked) == 1
    text = scripts["zeroshot_page"].page(table, zeroshot.published(), pd.DataFrame())
    line, chosen = [line for line in text.splitlines() if line.startswith(f"| {small} |")]
    assert row["chosen"] in chosen
    assert line.split(" | ")[2:5] == [".00700, auto_theta", ".00600", ".00500, moirai_large †"]
    assert f"| Chronos-Bolt base | {row['wql'] / 0.006:.3f} |" in text
    assert "Not run yet" not in text


def test_a_training_that_was_stopped_goes_on(zeroshot, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(zeroshot, "call", calls.append)
    (tmp_path / "run.json").write_text('{"seconds": 1, "commit": "abc"}')
    record, command = zeroshot.train("zeroshot-ETTh", 0, tmp_path, tmp_path / "priors")
    assert calls == [["-c", zeroshot._TRAINED, str(tmp_path / "priors"), "--resume", str(tmp_path)]]
    assert (record["commit"], command) == ("abc", "python train.py auto --dataset zeroshot-ETTh --seed 0")


def test_a_task_that_is_not_prepared_is_named(zeroshot, small, tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(SystemExit, match=f"{small} not prepared in .*: run `python datasets/zeroshot.py --raw FOLDER`"):
        zeroshot.main()


def test_prepared_data_that_are_damaged_fail_alone(zeroshot, small, tmp_path):
    (tmp_path / "home" / f"zeroshot-{small}" / "train" / "data.json").write_text("{")
    with pytest.raises(SystemExit, match="1 of 1 runs failed"):
        zeroshot.main()


def test_another_window_is_refused(zeroshot, small, tmp_path):
    write_folder(task_of(np.ones((2, 40)), 5, "M", f"zeroshot-{small}"), tmp_path / "home" / f"zeroshot-{small}")
    with pytest.raises(RuntimeError, match=r"expected horizon, series and windows \(4, 2, 1\), got \(5, 2, 1\)"):
        zeroshot.run((small, 0), tmp_path, tmp_path / "priors")


def test_a_task_without_a_prior_that_has_not_seen_it_is_named(zeroshot, small, tmp_path, capsys):
    (tmp_path / "priors" / "cif" / "M.pt").unlink()
    zeroshot.main()
    assert f"without a prior that has not seen the task, and left out: {small}" in capsys.readouterr().out


def test_windows_before_the_benchmarks_end_where_its_own_begins(scripts):
    series = [np.arange(40.0), np.arange(10.0, 22.0), np.arange(9.0)]
    found = scripts["zeroshot_before"].before(task_of(series, 3), 2)
    assert [entry["item_id"] for entry in found.entries] == ["0"]  # the second would leave nothing to train on
    assert found.windows == 2
    (entry,) = found.train
    np.testing.assert_array_equal(entry["target"], np.arange(31.0))
    labels = [label["target"] for _, label in found.test()]
    np.testing.assert_array_equal(np.concatenate(labels), np.arange(31.0, 37.0))


def test_the_page_says_where_we_lose_and_what_was_not_run(scripts):
    names = ("auto_ets", "auto_arima", "auto_theta", "chronos_bolt_base", "seasonal_naive")
    published = pd.DataFrame(
        [
            {"task": task, "model": model, "wql": 0.2, "mase": 1.0, "trained_on_this_dataset": False}
            for task in ("won", "lost", "absent")
            for model in names
        ]
    )
    cells = {"coverage_50": 0.5, "coverage_80": 0.81, "coverage_95": 0.95, "train_s": 7, "forecast_s": 1, "seed": 0}
    cells |= {f"{kind}_{level}": level / 100 for kind in ("sum", "max") for level in (50, 80, 95)}
    cells |= {"naive_wql": 0.2, "naive_mase": 1.0, "chosen": "bank", "select_s": 5, "without": "m1"}
    lost = {"task": "lost", "wql": 0.4} | cells | {"coverage_80": 0.7, "naive_mase": 1.00005, "without": None}
    ours = pd.DataFrame([{"task": "won", "wql": 0.1} | cells, lost])
    text = scripts["zeroshot_page"].page(ours, published, pd.DataFrame())
    assert "| won | **.1000** | .2000, auto_ets | .2000 | .2000, auto_ets | 81 | 13 |" in text
    assert "| won | `bank` | 80 | 80 |" in text
    assert "| lost ‡ | " in text
    assert "ahead of the best of the three classics on 1 of 2 tasks. It loses on lost (2.00)" in text
    assert "| the best of AutoETS, AutoARIMA, AutoTheta | 1.000 |" in text  # of 1/2 and 2
    assert "Not run yet: absent." in text
    assert "Its MASE does as well, but on lost (5e-05)" in text


def test_the_page_is_what_the_tables_say(zeroshot, scripts):
    page = scripts["zeroshot_page"]
    expected = page.page(pd.read_csv(RESULTS), zeroshot.published(), pd.read_csv(page.BEFORE))
    assert page.PAGE.read_text(encoding="utf-8") == expected
