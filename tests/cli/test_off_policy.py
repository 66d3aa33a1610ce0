"""`tsforecast bandit --evaluate`: an agent and a policy judged by a log, and our own logs."""

import json

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A log of 800 visits to three pages, of which the kind of visitor says which is best."""
    rng = np.random.default_rng(0)
    kind = rng.choice(["new", "old", "lost"], 800)
    names = np.array(["home", "help", "shop"])
    right = np.select([kind == "new", kind == "old"], [0, 2], 1)
    chances = np.full((800, 3), 0.2)
    chances[np.arange(800), (right + 1) % 3] = 0.6  # a log that mostly errs
    arm = (rng.random(800)[:, None] > chances.cumsum(1)).sum(1)
    frame = pd.DataFrame({"kind": kind, "age": rng.normal(size=800), "page": names[arm]})
    frame["click"] = (rng.random(800) < np.where(arm == right, 0.8, 0.1)).astype(float)
    frame["p"] = chances[np.arange(800), arm]
    for k, name in enumerate(names):
        frame[f"mine {name}"] = (right == k).astype(float)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    frame.to_csv(path, index=False)
    return path


COLUMNS = ["--arm", "page", "--reward", "click", "--propensity", "p"]


def test_a_policy_of_the_table_is_judged(table, tmp_path, capsys):
    """The policy takes the right page: its reward is .8 a visit, the log's 0.2 * .8 + .8 * .1 = .24."""
    folder = tmp_path / "found"
    assert main(["bandit", "--evaluate", str(table), *COLUMNS, "--policy", "mine ", "--output", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "reward of a round by the policy, on 800 rounds that count as" in said
    estimates = pd.read_csv(folder / "estimates.csv", index_col="name")
    assert [*estimates.index] == ["ips", "snips", "dm", "dr", "logged"]
    for name, truth in (("ips", 0.8), ("snips", 0.8), ("dr", 0.8), ("logged", 0.24)):
        assert abs(estimates.loc[name, "value"] - truth) < 4 * estimates.loc[name, "error"]
    assert json.loads((folder / "scores.json").read_text())["rounds"] == 800


def test_an_agent_learns_from_the_first_rows_and_is_judged_on_the_others(table, tmp_path, capsys):
    frame = pd.read_csv(table).drop(columns=["mine home", "mine help", "mine shop"])
    path = tmp_path / "log.parquet"
    frame.to_parquet(path)
    options = ["bandit", "linear", "--evaluate", str(path), *COLUMNS, "--rule", "greedy", "--bootstrap", "200"]
    assert main([*options, "--switch", "3", "--output", str(tmp_path / "found")]) == 0
    said = capsys.readouterr().out
    assert "by linear, on 400 rounds" in said
    assert "intervals by 200 bootstrap draws" in said
    estimates = pd.read_csv(tmp_path / "found" / "estimates.csv", index_col="name")
    assert {"snips", "switch-dr"} <= {*estimates.index}
    for name in ("ips", "dr"):  # after 400 rows it has found the right page of every kind
        assert abs(estimates.loc[name, "value"] - 0.8) < 4 * estimates.loc[name, "error"]


def test_our_own_logs_have_contexts_and_propensities(tmp_path, capsys):
    run, quick = tmp_path / "run", ["--steps", "300", "--runs", "2", "--warm_up", "5", "--quiet"]
    assert main(["bandit", "linear", "--data", "linear", *quick, "--rule", "softmax", "--amount", "0.5",
                 "--propensities", "--delay", "3", "--output", str(run)]) == 0  # fmt: skip
    log = pd.read_csv(run / "decisions-1.csv")
    rewards = pd.read_csv(run / "rewards.csv").query("run == 1")
    assert log["arm"].tolist() == rewards["arm"].tolist()
    assert log["propensity"].between(0, 1).all()
    assert (log["propensity"] < 1).sum() > 250
    capsys.readouterr()
    assert main(["bandit", "linear", "--evaluate", str(run / "decisions-0.csv"), "--warm_up", "5", "--rule", "epsilon",
                 "--first", "0.05"]) == 2  # fmt: skip
    assert "at least 5 rewards of each arm in the first 15 rows" in capsys.readouterr().err
    assert main(["bandit", "linear", "--evaluate", str(run / "decisions-0.csv"), "--warm_up", "2", "--rule", "epsilon",
                 "--first", "0.06"]) == 0  # fmt: skip
    said = capsys.readouterr()
    assert "rounds are left out, in which the log had no choice (propensity 1)" in said.err
    assert "\nlogged" in said.out


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"p": 0.0}, [], "a propensity above 0 and at most 1 in round 1, got 0"),
        ({"p": "often"}, [], "expected numbers as propensities"),
        ({"p": 1.0}, ["--policy", "mine "], "expected rounds with a propensity below 1, got none"),
        ({"click": None}, [], "finite rewards, got none in row 1 (of 800)"),
        ({"page": None}, [], "expected an arm in every row of 'page', got none in 800"),
        ({"page": "home"}, ["--policy", "his "], "expected a probability of every arm, got no column his home"),
        ({"set": "home|help"}, ["--available", "set", "--policy", "mine "], "was chosen, but 'set' has 'home', 'help'"),
        ({}, ["--propensity", "q"], "no column 'q'; --propensity NAME names the probabilities with which they were"),
        ({}, ["--first", "1"], "rows to learn from, and rows to judge by, got 800 and 0"),
        ({}, ["--data", "linear"], "none of --data"),
        ({}, ["--level", "2"], "a level between 0 and 1"),
    ],
)
def test_errors_are_one_line(change, arguments, message, table, tmp_path, capsys):
    path = tmp_path / "log.csv"
    pd.read_csv(table).assign(**change).to_csv(path, index=False)
    assert main(["bandit", "linear", "--warm_up", "5", "--evaluate", str(path), *COLUMNS, *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.rstrip().splitlines()[-1].startswith("error: ")
