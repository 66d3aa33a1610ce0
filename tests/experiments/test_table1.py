"""The table of results: which runs it asks for, what a baseline leaves in it, and the pages made of it."""

import argparse
import csv
import importlib
import json
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.tables import append_rows
from tsforecast.cli import recipes, train_parser
from tsforecast.evaluation import BASELINES

RESULTS = Path(__file__).resolve().parents[2] / "experiments" / "table1" / "results" / "table1.csv"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    names = {"tables": "tables", "table1": "table1.run", "leaderboard": "table1.page"}
    names |= {name: f"table1.{name}" for name in ("baseline", "differences")}
    return {name: importlib.import_module(f"experiments.{path}") for name, path in names.items()}


@pytest.fixture
def table1(scripts):
    return scripts["table1"]


def options(table1, tmp_path, **changed):
    asked = {"datasets": table1.DATASETS, "models": table1.MODELS, "recipes": table1.RECIPES, "seeds": None}
    return argparse.Namespace(**asked | {"output": tmp_path / "table.csv"} | changed)


# Rows from before windows of `gls` scored three horizons by default: its recipes say what the default was.
WINDOWS_OF_THEN = {(dataset, "gls"): ["--train_horizon", "24"] for dataset in ("electricity-18dec", "traffic")}


def test_recipes_are_what_the_published_rows_were_trained_with():
    """The commands in the table have all options; where one comes twice, the last counts."""
    rows = pd.read_csv(RESULTS, dtype=str)
    trained = rows.loc[~rows["recipe"].isin(["baseline", "default"])]
    commands = trained.groupby(["dataset", "model", "recipe"])["command"].first()
    assert {recipes.RecipeFile(*key) for key in commands.index} <= set(recipes.published())
    for key, recorded in commands.items():
        recipe = recipes.RecipeFile(*key)
        _, script, model, *words = shlex.split(recorded)
        assert (script, model) == ("train.py", recipe.model)
        words += WINDOWS_OF_THEN.get((recipe.dataset, recipe.model), [])
        given = dict(zip(words[::2], words[1::2], strict=True))
        seed, threads = given.pop("--seed"), given.pop("--threads")
        assert yaml.safe_load(recipe.path.read_text()).keys() == {name.removeprefix("--") for name in given}
        asked = ["--recipe", recipe.name, "--dataset", recipe.dataset, "--seed", seed, "--threads", threads]
        old, new = (vars(train_parser.parsed([model, *part]).chosen) for part in (words, asked))
        assert old | {"recipe": None, "config": None} == new | {"recipe": None, "config": None}


def test_the_table_has_no_row_that_the_script_would_not_make(table1):
    rows = pd.read_csv(RESULTS)
    made = {(row.dataset, row.model, row.name) for row in table1.ROWS}
    assert set(rows[["dataset", "model", "recipe"]].itertuples(index=False, name=None)) <= made


def test_baselines_are_those_of_the_evaluation(table1):
    assert {model.partition("-")[0] for model in table1.BASELINE} <= set(BASELINES)


def test_a_run_of_ours_is_trained_by_its_recipe(table1, tmp_path, monkeypatch):
    calls = []

    def call(arguments):
        calls.append(arguments)
        folder = tmp_path / "exchange-gls-best-1"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(json.dumps({"seconds": 7.6, "commit": "abc"}))
        (folder / "metrics.csv").write_text("epoch,step\n0,49\n1,99\n")
        scores = {"crps": 0.1, "coverage": {}}
        (folder / "scores.json").write_text(json.dumps({"rolling": scores, "long_term": scores}))

    monkeypatch.setattr(table1, "call", call)
    (row, _) = table1.run(("exchange", "gls", "best", 1), tmp_path)
    command = ["train.py", "gls", "--recipe", "best", "--dataset", "exchange", "--seed", "1", "--threads", "1"]
    assert calls[0] == [*command, "--output", str(tmp_path / "exchange-gls-best-1")]
    assert row["command"] == "python " + " ".join(command)
    assert (row["iterations"], row["train_s"]) == (100, 8)


def test_what_is_not_trained_is_scored_once(table1, tmp_path):
    jobs = table1.jobs_of(options(table1, tmp_path, recipes=["baseline"], datasets=["exchange"]))
    seeds = {model: [job[3] for job in jobs if job[1] == model] for _, model, *_ in jobs}
    assert seeds.pop("deepar") == [0, 1, 2]
    assert "auto_ets" in seeds
    assert all(found == [0] for found in seeds.values())


@pytest.mark.parametrize(
    ("model", "recipe", "dataset", "asked", "expected"),
    [
        ("arsgls", "paper", "exchange", None, [0, 1, 2]),
        ("arsgls", "paper", "electricity-18dec", None, [0, 1]),
        ("arsgls", "paper", "traffic", None, [0]),
        ("arsgls", "paper", "traffic", [1, 5], [1, 5]),
        ("sgls", "best", "traffic", None, [0]),
        ("sgls", "best", "wiki", None, [0, 1, 2]),
    ],
)
def test_seeds_are_fewer_where_it_is_reduced_unless_they_are_asked_for(
    table1, tmp_path, model, recipe, dataset, asked, expected
):
    chosen = options(table1, tmp_path, recipes=[recipe], models=[model], datasets=[dataset], seeds=asked)
    assert [job[3] for job in table1.jobs_of(chosen)] == expected


def test_a_baseline_becomes_two_lines_and_is_not_run_again(table1, tmp_path, monkeypatch):
    calls = []

    def call(arguments):
        calls.append(arguments)
        folder = Path(arguments[arguments.index("--output") + 1])
        folder.mkdir(parents=True)
        coverage = {"50": 0.5, "80": 0.8, "95": 0.95}
        scores = {"crps": 0.1, "crps_99": 0.1, "nd": 0.1, "mase": 1.0, "num_samples": 100, "coverage": coverage}
        (folder / "scores.json").write_text(json.dumps({"rolling": scores, "long_term": scores}))
        facts = {
            "fit_s": 12.3,
            "iterations": 2500,
            "commit": "abc",
            "command": "python experiments/table1/baseline.py deepar",
        }
        (folder / "baseline.json").write_text(json.dumps(facts))

    monkeypatch.setattr(table1, "call", call)
    asked = options(table1, tmp_path, recipes=["baseline"], models=["deepar"], datasets=["wiki"], seeds=[1])
    (job,) = table1.jobs_of(asked)
    append_rows(asked.output, table1.COLUMNS, table1.run(job, tmp_path / "runs"))
    ((script, name, *rest),) = calls
    assert (script, name) == ("experiments/table1/baseline.py", "deepar")
    assert rest[:4] == ["--dataset", "wiki", "--seed", "1"]
    with asked.output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["protocol"] for row in rows] == ["rolling", "long_term"]
    assert {(row["model"], row["recipe"], row["seed"], row["train_s"], row["iterations"]) for row in rows} == {
        ("deepar", "baseline", "1", "12", "2500")
    }
    assert table1.jobs_of(asked) == []


def test_a_baseline_scores_itself(scripts, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "scored"
    command = ["baseline.py", "random_walk", "--dataset", "exchange", "--output", str(folder)]
    monkeypatch.setattr(sys, "argv", command)
    scripts["baseline"].main()
    assert "exact quantiles of random_walk" in capsys.readouterr().out
    facts = json.loads((folder / "baseline.json").read_text())
    assert facts["command"] == "python experiments/table1/baseline.py random_walk --dataset exchange --seed 0"
    assert facts["iterations"] is None
    rows = pd.read_csv(RESULTS)
    # A seasonal naive of one step, by `evaluate`, is the same forecast.
    beside = rows.loc[(rows["dataset"] == "exchange") & (rows["model"] == "seasonal_naive-1")]
    known = beside.set_index("protocol")
    found = json.loads((folder / "scores.json").read_text())
    for protocol in ("rolling", "long_term"):
        assert found[protocol]["crps"] == pytest.approx(known.loc[protocol, "crps"], rel=1e-9)


@pytest.fixture
def scored(tmp_path):
    """A table in which gls is best, and the forecasts behind it; those of deepar are of another run."""
    rows = []
    for model, recipe, seeds, crps in (
        ("gls", "best", [0, 1], 0.2),
        ("issm", "best", [0], 0.3),
        ("auto_ets", "baseline", [0], 0.25),
        ("deepar", "baseline", [0], 0.4),
        ("gls", "paper", [0], 0.1),
    ):
        for seed in seeds:
            folder = tmp_path / "runs" / f"wiki-{model}-{recipe}-{seed}"
            folder.mkdir(parents=True)
            lines, overall = [], {}
            for protocol, dates in (
                ("rolling", ["2020-01-01", "2020-01-02", "2020-01-03"]),
                ("long_term", ["2020-01-01"]),
            ):
                rows.append({"dataset": "wiki", "protocol": protocol, "model": model, "recipe": recipe, "seed": seed})
                rows[-1]["crps"] = crps + 0.01 * seed
                overall[protocol] = {"crps": rows[-1]["crps"] * (2 if model == "deepar" else 1)}
                for item in "ab":
                    cells = {
                        "protocol": protocol,
                        "model": model,
                        "item_id": item,
                        "crps": rows[-1]["crps"],
                        "size": 10.0,
                    }
                    lines += [cells | {"start": date} for date in dates]
            pd.DataFrame(lines).to_csv(folder / "per_forecast.csv", index=False)
            (folder / "scores.json").write_text(json.dumps(overall))
    return pd.DataFrame(rows), tmp_path / "runs"


def test_the_best_row_is_compared_with_all_whose_forecasts_are_there(scripts, scored, tmp_path):
    table, runs = scored
    found = pd.DataFrame(scripts["differences"].compared(table, "wiki", runs))
    assert set(found["model"] + found["recipe"]) == {"glsbest"}
    differences = found.set_index(["other_model", "other_recipe", "protocol"])["difference"]
    assert differences.to_dict() == pytest.approx(
        {
            (*row, protocol): 0.205 - crps
            for row, crps in ((("issm", "best"), 0.3), (("auto_ets", "baseline"), 0.25), (("gls", "paper"), 0.1))
            for protocol in ("rolling", "long_term")
        }
    )


def test_the_page_shows_differences_from_the_present_best(scripts, scored, tmp_path, monkeypatch):
    leaderboard = scripts["leaderboard"]
    table, runs = scored
    monkeypatch.setattr(leaderboard, "DIFFERENCES", tmp_path / "differences.csv")
    assert leaderboard.paired(table, "wiki") == []
    lines = scripts["differences"].compared(table, "wiki", runs)
    old = {**lines[0], "model": "issm", "other_model": "mstl"}
    pd.DataFrame([*lines, old]).to_csv(tmp_path / "differences.csv", index=False)
    text = "\n".join(leaderboard.paired(table, "wiki"))
    assert "| minus | recipe | rolling, `gls` | long-term, `gls` |" in text
    assert "| `auto_ets` | baseline | -0.0450 [-0.0450, -0.0450] | -0.0450 |" in text  # of too few for an interval
    assert "mstl" not in text


def test_figures_of_benchmarks_are_on_their_own_pages(scripts):
    """Neither pages of models nor how-to guides are written from tables of results."""
    leaderboard = scripts["leaderboard"]
    assert set(leaderboard.pages()) == {leaderboard.README, leaderboard.PAGE}
    generated = importlib.import_module("experiments.pages").pages()
    assert {page.parent.name for page in generated} - {leaderboard.ROOT.name} == {
        "benchmarks",
        "docs",
        "hierarchies",
        "notebooks",
    }
    assert [page.name for page in generated if page.parent.name == "docs"] == ["releases.md"]


def test_a_table_takes_columns_that_have_come_since(scripts, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('seed,crps,commit,command\n0,0.10,e,"a, b"\n')
    columns = ["seed", "crps", "new", "commit", "command"]
    rows = [{"seed": 1, "crps": 0.2, "new": 3, "commit": "d", "command": "c"}]
    before = path.read_text()
    scripts["tables"].fill(path, columns, [], lambda job: rows, lambda table: "")
    assert path.read_text() == before  # nothing was run
    scripts["tables"].fill(path, columns, ["job"], lambda job: rows, lambda table: "")
    assert path.read_text() == 'seed,crps,new,commit,command\n0,0.10,,e,"a, b"\n1,0.2,3,d,c\n'
    with pytest.raises(ValueError, match="got also new"):
        scripts["tables"].widen(path, ["seed", "crps", "commit", "command"])
