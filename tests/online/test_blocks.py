"""Blocks of observations that are learnt from together, and memories, in streams and their saved states."""

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.online.test_stream import follow, make_table, without_clock
from tsforecast.cli import main
from tsforecast.learners import LearnerConfig
from tsforecast.online.config import OnlineConfig
from tsforecast.online.prequential import advance
from tsforecast.online.progress import Setup
from tsforecast.online.saved_progress import load, save
from tsforecast.online.stream import Observation, read_stream


def config(learner, hidden=(), **settings):
    return OnlineConfig(LearnerConfig(learner, variance=1.0, drift="none", rank=2, settings=settings), hidden, "tanh")


def items_of(count=30, classes=False):
    """From the twelfth on, which is within a block, there are more columns than the network has."""
    rows = torch.randn(count, 12, generator=torch.Generator().manual_seed(0)).tolist()
    names = "abcdefghijkl"
    items = []
    for k, row in enumerate(rows):
        features = dict(zip(names[: 2 if k < 11 else 12], row, strict=False))
        items.append(Observation(features, ("low", "high")[int(row[0] > 0)] if classes else row[0] - row[1], None))
    return items


def test_a_linear_model_learns_the_same_of_blocks_and_predicts_them_before(tmp_path):
    make_table(tmp_path / "t.csv", 42)
    setups = [Setup(config("ekf"), 0, features=3, noise=0.5, block=block) for block in (1, 5)]
    (one, first), (five, second) = (follow(s, read_stream(tmp_path / "t.csv", "target", "when")) for s in setups)
    assert len(five.pending) == 0  # two of the targets are missing
    torch.testing.assert_close(one.stream.belief.mean, five.stream.belief.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(one.stream.belief.cov, five.stream.belief.cov, rtol=1e-8, atol=1e-8)
    assert five.stream.steps == 8
    assert (second["prediction"].iloc[-8:] != first["prediction"].iloc[-8:]).any()


@pytest.mark.parametrize(("memory", "classes"), [("random", 0), ("k-center", 3), ("grs", 3)])
def test_a_stream_that_is_stopped_within_a_block_goes_on_with_block_and_memory(memory, classes, tmp_path):
    setup = Setup(config("vb", (3,), memory=memory, memory_size=4), classes, features=2, block=4)
    items = items_of(18, bool(classes))
    whole, _ = follow(setup, items)
    assert whole.stream.belief.memory.valid.all()
    assert whole.stream.belief.memory.inputs.shape[-1] == whole.columns.capacity >= 12
    for stop in (10, 13):  # before and after columns come
        half, _ = follow(setup, items[:stop])
        assert len(half.pending) == stop % 4
        save(tmp_path / "state.pt", half, {})
        progress, _ = load(tmp_path / "state.pt", setup)
        for item in items[stop:]:
            progress, _ = advance(setup, progress, item)
        for mine, its in zip(*(pytree.tree_leaves(p.stream.belief) for p in (progress, whole)), strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=0)


def test_a_saved_block_that_does_not_fit_is_refused(tmp_path):
    setup = Setup(config("vb"), 0, features=2, block=4)
    half, _ = follow(setup, items_of()[:6])
    save(tmp_path / "state.pt", half, {})
    with pytest.raises(ValueError, match="fewer than 2 observations that wait for their block"):
        load(tmp_path / "state.pt", Setup(config("vb"), 0, features=2, block=2))


def test_the_command_goes_on_with_a_memory(tmp_path):
    make_table(tmp_path / "t.csv", 42)
    options = ["--hidden", "3", "--memory", "grs", "--memory_size", "6", "--block", "7"]
    options = ["stream", "vb", "--data", str(tmp_path / "t.csv"), *options]
    assert main([*options, "--time", "when", "--output", str(tmp_path / "whole")]) == 0
    assert main([*options, "--time", "when", "--output", str(tmp_path / "part"), "--limit", "17"]) == 0
    record = tmp_path / "part" / "run.json"
    record.write_text(record.read_text().replace('"limit": 17', '"limit": null'))
    assert main(["stream", "--resume", str(tmp_path / "part")]) == 0
    whole, part = (without_clock(tmp_path / name / "items.csv") for name in ("whole", "part"))
    for column in ("prediction", "sd", "log_loss"):
        assert whole[column].equals(part[column])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["vb", "--block", "0"], "--block: expected at least 1, got 0"),
        (["lofi", "--memory", "grs"], "expected --memory beside the learner 'vb', got learner 'lofi'"),
        (["vb", "--memory", "grs", "--memory_size", "0"], "--memory_size: expected at least 1, got 0"),
        (["vb", "--memory", "all"], "expected memory to be one of none, random, k-center, grs, got 'all'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message, tmp_path, capsys):
    make_table(tmp_path / "t.csv", 42)
    command = ["stream", *options, "--data", str(tmp_path / "t.csv"), "--time", "when"]
    assert main([*command, "--output", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
