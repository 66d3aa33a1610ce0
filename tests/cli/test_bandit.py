"""`tsforecast bandit`: its folder, what goes on after a kill, users' tables, errors of one line."""

import json

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main
from tsforecast.cli.bandit import scores

QUICK = ["--steps", "60", "--runs", "2", "--warm_up", "3", "--quiet"]


@pytest.fixture
def table(tmp_path):
    """Labelled rows: the colour is the label, by a word and a number."""
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 80)
    frame = pd.DataFrame({"size": rng.normal(size=80), "colour": colour, "target": np.char.add("arm ", colour)})
    frame.loc[3, "size"] = np.nan
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_a_run_leaves_rewards_scores_and_a_picture_and_goes_on_after_a_kill(tmp_path, table, capsys):
    folder = tmp_path / "run"
    assert main(["bandit", "linear", "--data", str(table), "--output", str(folder), *QUICK]) == 0
    assert "2 runs of 60 rounds" in capsys.readouterr().out
    whole = (folder / "rewards.csv").read_text()
    found = json.loads((folder / "scores.json").read_text())
    rows = pd.read_csv(folder / "rewards.csv")
    assert found["rewards"] == rows.groupby("run")["reward"].sum().tolist()
    assert found["reward"] > 0.8 * 51  # the word tells the arm
    assert found["regret"] == pytest.approx(60 - found["reward"])
    assert (folder / "regret.png").stat().st_size > 10_000
    first = [line for line in whole.splitlines() if not line.startswith("1,")]
    (folder / "rewards.csv").write_text("\n".join([*first, "1,0,0,"]))  # killed while it wrote the second run
    assert main(["bandit", "--resume", str(folder), "--quiet"]) == 0
    again = pd.read_csv(folder / "rewards.csv")
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), rows.drop(columns="seconds"))


def test_rewards_of_all_arms_and_logs_are_played(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "a": rng.normal(size=90), "b": rng.normal(size=90)})
    frame.to_csv(tmp_path / "all.csv", index=False)
    assert main(["bandit", "linear", "--data", str(tmp_path / "all.csv"), "--rewards", "a", "b", *QUICK,
                 "--output", str(tmp_path / "all")]) == 0  # fmt: skip
    frame = pd.DataFrame({"x": rng.normal(size=90), "shown": rng.choice(["u", "v"], 90), "click": rng.random(90)})
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert main(["bandit", "linear", "--data", str(tmp_path / "log.csv"), "--arm", "shown", "--reward", "click",
                 *QUICK, "--output", str(tmp_path / "log")]) == 0  # fmt: skip
    found = json.loads((tmp_path / "log" / "scores.json").read_text())
    assert found["regret"] is None
    assert 10 < found["rounds_counted"][0] < 50
    assert 0 < found["reward_per_round"] < 1
    assert not (tmp_path / "log" / "regret.png").exists()
    assert "the warm-up has not ended" not in capsys.readouterr().err
    frame.loc[:2, "shown"] = "rare"
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert main(["bandit", "linear", "--data", str(tmp_path / "log.csv"), "--arm", "shown", "--reward", "click",
                 *QUICK, "--warm_up", "9", "--output", str(tmp_path / "rare")]) == 0  # fmt: skip
    assert "the warm-up has not ended" in capsys.readouterr().err


def test_scores_of_one_run():
    table = pd.DataFrame(
        {"run": 0, "round": [0, 1], "reward": [1.0, np.nan], "regret": [0.0, 2.0], "seconds": [np.nan, 0.004],
         "megabytes": [np.nan, 0.5]}
    )  # fmt: skip
    found = scores(table)
    assert (found["reward"], found["reward_sd"], found["regret"], found["rounds_counted"]) == (1, 0, 2, [1])
    assert found["milliseconds_per_round"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lofo", "--data", "wheel"], "expected agent to be one of"),
        (["lofi"], "expected --data: linear"),
        (["lofi", "--data", "nothing"], "no file nothing, and no set of this name"),
        (["lofi", "--data", "movielens"], "python datasets/bandits.py movielens u.data"),
        (["lofi", "--data", "wheel", "--arm", "x"], "wheel, which has no columns"),
        (["lofi", "--data", "wheel", "--steps", "0"], "--steps: expected at least 1"),
        (["neural-ts", "--data", "wheel", "--drift", "ou"], "none or forgetting"),
        (["lofi", "--data", "TABLE", "--target", "nothing"], "expected the columns nothing"),
        (["lofi", "--data", "TABLE", "--arm", "target"], "together"),
        (["lofi", "--data", "ONE"], "at least two arms, got same"),
        (["lofi", "--data", "EMPTY"], "expected"),
        (["lofi", "--data", "HOLES"], "expected an arm in every row"),
        (["lofi", "--data", "TABLE", "--arm", "target", "--reward", "size"], "finite rewards, got none in row 4"),
        (["lofi", "--data", "LONELY"], "at least one column of features"),
        (["--resume", "nowhere"], "no run folder nowhere"),
    ],
)
def test_errors_are_one_line(arguments, message, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    pd.DataFrame({"x": [1.0, 2.0], "target": ["same", "same"]}).to_csv("one.csv", index=False)
    pd.DataFrame({"x": [1.0, 2.0], "target": ["one", None]}).to_csv("holes.csv", index=False)
    pd.DataFrame({"target": ["one", "two"]}).to_csv("lonely.csv", index=False)
    (tmp_path / "empty.csv").write_text("")
    files = {"TABLE": str(table), "ONE": "one.csv", "EMPTY": "empty.csv", "HOLES": "holes.csv", "LONELY": "lonely.csv"}
    assert main(["bandit", *(files.get(word, word) for word in arguments)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "outputs").exists()


def test_arms_have_features_of_a_file(tmp_path, table, capsys):
    arms = tmp_path / "arms.csv"
    arms.write_text("name,light,kind\narm red,0.3,warm\narm green,0.6,cold\narm blue,0.1,cold\narm grey,1,cold\n")
    run = ["bandit", "ekf", "--data", str(table), *QUICK[:-1], "--hidden", "--arms", str(arms), "--output"]
    assert main([*run, str(tmp_path / "run"), "--encoding", "block"]) == 0
    assert "left out are features of 1 arm that the data do not have" in capsys.readouterr().err
    for text, message in (
        ("name,light\narm red,1\narm green,2\n", "expected features of every arm, got none of arm blue"),
        ("name,light\narm red,1\narm green,2\narm blue,\n", "a number of every feature, got none of arm arm blue"),
        ("name,light\narm red,1\narm red,2\n", "expected each arm once, got arm red twice"),
    ):
        arms.write_text(text)
        assert main([*run, str(tmp_path / "other"), "--encoding", "block"]) == 2
        assert message in capsys.readouterr().err
    arms.write_text("name,light\narm red,1\narm green,2\narm blue,3\n")
    assert main([*run, str(tmp_path / "other")]) == 2
    assert "encoding concatenated or block, where arms have features" in capsys.readouterr().err
