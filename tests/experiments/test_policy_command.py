"""Policies learnt by a command: its folder, what goes on after a kill, what is read again, errors of one line."""

import dataclasses
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.policies.config import PolicyConfig
from experiments.policies.saved import load_policies
from experiments.policies.train import PROGRAM, Policy, main, scores
from tsforecast.cli import main as tsforecast

SMALL = ["--particles", "3", "--episodes", "2", "--horizon", "20", "--hidden", "4", "--iterations", "4", "--quiet"]


def refused(capsys, *arguments: object) -> str:
    """The one line that the command says when it refuses its arguments."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in err
    return line


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies") / "whole"
    assert main(["CartPole-v1", *SMALL, "--output", str(folder)]) == 0
    return folder


def test_a_run_leaves_returns_scores_a_picture_and_policies_that_act(whole, capsys):
    table = pd.read_csv(whole / "returns.csv")
    assert table[["iteration", "policy"]].to_numpy().tolist() == [[k, m] for k in range(4) for m in range(3)]
    assert table["returned"].between(1, 20).all()
    assert (table["steps"] == 2 * table["returned"]).all()  # CartPole pays 1 a step
    found = json.loads((whole / "scores.json").read_text())
    assert found["returned"] == pytest.approx(table["returned"].tail(3).mean())
    assert found["best"] == table["returned"].tail(3).max()
    assert found["over_all"] == pytest.approx(table["returned"].mean())
    assert (whole / "returns.png").stat().st_size > 10_000
    learnt = load_policies(whole / "policies.pt")
    assert learnt.iterations == 4
    assert learnt.config == PolicyConfig(particles=3, episodes=2, horizon=20, hidden=(4,))
    config, learner, policies = learnt.config, learnt.config.build(), learnt.config.build().init()
    for iteration in range(4):
        episodes = learner.explore(policies, config.environments(), config.seed_of(iteration))
        np.testing.assert_allclose(episodes.returns.mean(1), table["returned"][3 * iteration : 3 * iteration + 3])
        policies = learner.update(policies, episodes)
    torch.testing.assert_close(learnt.policies.values, policies.values, rtol=0, atol=0)


@pytest.mark.parametrize("gradient", ["reinforce", "a2c"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, capsys, gradient):
    options = ["CartPole-v1", *SMALL[:-1], "--gradient", gradient]
    assert main([*options, "--quiet", "--output", str(tmp_path / "whole")]) == 0
    folder, seen = tmp_path / "run", []
    seed_of = PolicyConfig.seed_of

    def stop_once(self, iteration):
        seen.append(iteration)
        if seen == [0, 1, 2]:
            raise KeyboardInterrupt
        return seed_of(self, iteration)

    monkeypatch.setattr(PolicyConfig, "seed_of", stop_once)
    capsys.readouterr()
    assert main([*options, "--output", str(folder)]) == 130
    assert (
        f"stopped after 2 iterations; `python experiments/policies/train.py --resume {folder}` goes on"
        in capsys.readouterr().err
    )
    with (folder / "returns.csv").open("a") as file:
        file.write("2,0,9.0,18,0.1\n2,1,")  # killed before the policies were saved, and in the middle of a row
    assert main(["--resume", str(folder), "--quiet"]) == 0
    assert seen == [0, 1, 2, 2, 3]
    tables = [pd.read_csv(path / "returns.csv").drop(columns="seconds") for path in (folder, tmp_path / "whole")]
    pd.testing.assert_frame_equal(*tables)
    assert main(["--resume", str(folder), "--quiet"]) == 0  # there is nothing left to do but the report
    assert "did you mean" not in capsys.readouterr().err


def test_actions_that_are_numbers(tmp_path):
    options = ["--agent", "s2vgd", "--particles", "2", "--episodes", "2", "--horizon", "8", "--iterations", "2"]
    assert main(["Pendulum-v1", *options, "--quiet", "--output", str(tmp_path / "run")]) == 0
    table = pd.read_csv(tmp_path / "run" / "returns.csv")
    assert (table["returned"] < 0).all()
    assert len(table) == 4


def test_scores_are_of_the_last_tenth():
    rows = [(k, m, float(k * (m + 1)), 1, 0.5) for k in range(20) for m in range(2)]
    found = scores(pd.DataFrame(rows, columns=["iteration", "policy", "returned", "steps", "seconds"]))
    assert (found["returned"], found["best"], found["best_policy"]) == (27.75, 37.0, 1)
    assert (found["over_all"], found["steps"], found["seconds_per_iteration"]) == (14.25, 40, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            f"expected an environment of gymnasium, as in `{PROGRAM} CartPole-v1`, or --resume RUN",
        ),
        (["CartPole-v1", "--agent", "svdg"], "--agent: there is no agent 'svdg'; did you mean 'svgd'?"),
        (["CartPole-v1", "--gradient", "ppo"], "--gradient: there is no gradient 'ppo'"),
        (["CartPole-v1", "--iterations", "0"], "--iterations: expected at least 1, got 0"),
        (["CartPole-v1", "--particles", "0"], "expected particles to be a whole number from 1 on, got 0"),
        (["CartPole-v1", "--episodes", "1"], "expected 2 episodes or more for reinforce"),
        (["CartPole-v1", "--rate", "-1"], "expected rate to be positive and finite, got -1.0"),
        (["Cartpole-v99"], "expected an environment of gymnasium, such as CartPole-v1, got 'Cartpole-v99'"),
        (["os:system"], "expected the name of an environment that gymnasium knows, got 'os:system'"),
        (["FrozenLake-v1"], "expected observations in a Box of one dimension"),
    ],
)
def test_one_line_says_what_is_wrong(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named_where_it_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    folder = tmp_path / "run"
    message = refused(capsys, "CartPole-v1", "--output", folder)
    assert "policies need gymnasium: `pip install 'tsforecast[rl]'`" in message
    assert not folder.exists()


def test_folders_of_other_runs_are_refused(capsys, tmp_path, whole):
    assert "is a run already" in refused(capsys, "CartPole-v1", "--output", whole)
    assert "--resume goes with no other option" in refused(capsys, "CartPole-v1", "--resume", whole)
    other = tmp_path / "other"
    assert tsforecast(["optimise", "branin", "--evaluations", "2", "--quiet", "--output", str(other)]) == 0
    assert "is no run of `python experiments/policies/train.py`" in refused(capsys, "--resume", other)


DAMAGED = {
    "no format": lambda p: p.pop("format"),
    "another format": lambda p: p.update(format=99),
    "no configuration": lambda p: p.update(config=[]),
    "an agent that is none": lambda p: p["config"].update(agent="os.system"),
    "policies of another size": lambda p: p.update(leaves=[torch.zeros(3)]),
    "policies that are a text": lambda p: p.update(leaves="good"),
    "iterations that are a text": lambda p: p.update(iterations="ten"),
    "fewer than none": lambda p: p.update(iterations=-1),
}


@pytest.mark.parametrize("change", DAMAGED)
def test_damaged_policies_are_refused(whole, tmp_path, change):
    payload = torch.load(whole / "policies.pt", weights_only=True)
    DAMAGED[change](payload)
    torch.save(payload, tmp_path / "policies.pt")
    with pytest.raises(ValueError, match="holds no readable policies"):
        load_policies(tmp_path / "policies.pt")


def test_a_table_that_is_not_of_the_policies_is_refused(capsys, tmp_path, whole):
    for name, content in (("short", "iteration,policy,returned,steps,seconds\n"), ("other", "a,b\n" * 20)):
        folder = tmp_path / name
        folder.mkdir()
        for path in whole.iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
        (folder / "returns.csv").write_text(content)
        assert "are not of the same run; begin a new run" in refused(capsys, "--resume", folder)


def test_defaults_are_those_of_the_configuration():
    chosen, config = Policy(env="CartPole-v1"), PolicyConfig()
    for field in dataclasses.fields(PolicyConfig):
        assert getattr(chosen, field.name) == (
            list(config.hidden) if field.name == "hidden" else getattr(config, field.name)
        )
