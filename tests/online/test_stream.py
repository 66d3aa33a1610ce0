"""`tsforecast stream`: every item once, in order, whatever happens in between."""

import dataclasses
import io
import json
import math
import resource
import signal
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils import _pytree as pytree

from tsforecast import learners
from tsforecast.cli import main
from tsforecast.learners import LearnerConfig
from tsforecast.online.config import OnlineConfig
from tsforecast.online.prequential import advance, scores
from tsforecast.online.progress import Setup, begin
from tsforecast.online.saved_progress import load, save
from tsforecast.online.stream import STREAMS, Observation, delayed, read_lines, read_stream
from tsforecast.plots import plot_stream
from tsforecast.processes import imported_once

CONFIG = OnlineConfig(LearnerConfig("vd-ekf", variance=1.0, drift="none", rank=2), (), "tanh")
CLASSES, NUMBERS = Setup(CONFIG, 3), Setup(CONFIG, 0)


def changed(**settings):
    return dataclasses.replace(CONFIG, learner=dataclasses.replace(CONFIG.learner, **settings))


def make_table(path, count=120, seed=0):
    """A linear target with gaps, and time stamps that are not regular."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(count, 3)), columns=["a", "b", "c"])
    frame["target"] = 3 + frame["a"] - 2 * frame["b"] + 0.1 * rng.normal(size=count)
    frame.loc[rng.random(count) < 0.1, "c"] = np.nan
    frame.loc[[5, 40], "target"] = np.nan
    frame.insert(0, "when", pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.exponential(1, count).cumsum(), "h"))
    frame.to_csv(path, index=False)
    return frame


def follow(setup, items):
    progress, rows = begin(setup), []
    for item in items:
        progress, row = advance(setup, progress, item)
        rows.append(row)
    return progress, pd.DataFrame(rows)


def without_clock(path):
    return pd.read_csv(path).drop(columns="milliseconds")


def test_a_class_is_scored_before_it_is_learnt_from():
    rng = np.random.default_rng(0)
    items = [Observation({"x": x}, "high" if x > 0 else "low", None) for x in rng.normal(size=200).tolist()]
    progress, rows = follow(CLASSES, items)
    found = scores(CLASSES, progress)
    first = {item.target for item in items[:1]}
    assert rows["prediction"].isna().tolist() == [True] + [False] * 199
    assert rows["prediction"][1] in first
    scored = rows.dropna(subset=["log_loss"])
    assert len(scored) == found["scored"] == 198  # each class was new once
    assert found["log_loss"] == pytest.approx(scored["log_loss"].mean())
    assert found["accuracy"] == pytest.approx(1 - scored["error"].mean())
    assert found["accuracy"] > 0.9
    assert sum(row["count"] for row in found["calibration"]) == 198
    for number, (count, confidence, right) in enumerate(progress.bins.tolist()):
        inside = scored[(scored["probability"] * 10).clip(upper=9.999) // 1 == number]
        assert count == len(inside)
        assert confidence == pytest.approx(inside["probability"].sum())
        assert right == (1 - inside["error"]).sum()
    assert (progress.bins[:, 0] > 0).sum() > 1
    assert found["classes"] == list(dict.fromkeys(item.target for item in items))


def test_numbers_are_scored_in_their_own_units(tmp_path):
    frame = make_table(tmp_path / "t.csv")
    progress, rows = follow(NUMBERS, read_stream(tmp_path / "t.csv", "target", "when"))
    found = scores(NUMBERS, progress)
    assert rows["target"].isna().sum() == 2
    assert rows["prediction"].notna().sum() == 118  # all but the first two, which have no scale yet
    last = rows.iloc[60:].dropna(subset=["error"])
    assert last["error"].abs().mean() < 0.3 * frame["target"].std()
    z = rows["error"] / rows["sd"]
    loss = 0.5 * z**2 + np.log(rows["sd"]) + 0.5 * math.log(2 * math.pi)
    pd.testing.assert_series_equal(rows["log_loss"], loss, check_names=False)
    assert found["rmse"] == pytest.approx(math.sqrt((rows["error"] ** 2).mean()))
    assert found["coverage"]["95"] == pytest.approx((z.abs().dropna() <= 1.959964).mean())


def test_the_belief_is_that_of_the_core(tmp_path):
    """Standardised by hand, a linear stream is the core's learner with the drift of the gaps between."""
    config = changed(learner="ekf", drift="ou", rate=0.05)
    setup = Setup(config, 0, features=2, noise=0.3, unit=3600.0)
    rng = np.random.default_rng(1)
    hours = rng.exponential(1, 30).cumsum()
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    start = pd.Timestamp("2024-01-01")
    stamps = [start + pd.Timedelta(hours=h) for h in hours]
    items = [Observation({"a": a, "b": b}, t, s) for (a, b), t, s in zip(x.tolist(), y.tolist(), stamps, strict=True)]
    progress, _ = follow(setup, items)
    network = torch.nn.Linear(2, 1).double()
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    drift = learners.OrnsteinUhlenbeck(0.05)
    learner = learners.ekf(network, learners.GaussianLikelihood(0.3), 1.0, drift=drift)
    belief = learner.drift(learner.init(), 1.0)
    for k in range(30):
        if k:
            belief = learner.drift(belief, (stamps[k] - stamps[k - 1]).total_seconds() / 3600)
        seen = x[: k + 1]
        scaled = (x[k] - seen.mean(0)) / seen.std(0) if k else np.zeros(2)
        target = (y[k] - y[: k + 1].mean()) / y[: k + 1].std() if k else 0.0
        belief = learner.update(belief, torch.tensor(scaled[None]), torch.tensor([[target]], dtype=torch.float64))
    torch.testing.assert_close(progress.stream.belief.mean, belief.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(progress.stream.belief.cov, belief.cov, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("setup", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_saved_and_read_again_it_goes_on_as_if_nothing_had_happened(setup, tmp_path):
    rng = np.random.default_rng(2)
    target = lambda x: "ab"[int(x > 0)] if setup.classes else x  # noqa: E731
    items = [Observation({"x": x, "y": x * x}, target(x), None) for x in rng.normal(size=40).tolist()]
    whole, _ = follow(setup, items)
    half, _ = follow(setup, items[:17])
    save(tmp_path / "state.pt", half, {"bytes": 3})
    progress, extra = load(tmp_path / "state.pt", setup)
    assert extra == {"bytes": 3}
    for item in items[17:]:
        progress, _ = advance(setup, progress, item)
    ours, theirs = (pytree.tree_leaves(p.stream.belief) for p in (progress, whole))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert progress.columns == whole.columns
    assert progress.labels == whole.labels
    torch.testing.assert_close(progress.sums, whole.sums, rtol=0, atol=0)
    assert [p.name for p in tmp_path.iterdir()] == ["state.pt"]


def test_a_killed_run_goes_on_without_losing_or_repeating_an_item(tmp_path):
    make_table(tmp_path / "t.csv", count=250)
    options = [
        "lofi",
        "--hidden",
        "--rank",
        "2",
        "--data",
        str(tmp_path / "t.csv"),
        "--time",
        "when",
        "--drift",
        "ou",
        "--save_every",
        "7",
    ]
    assert main(["stream", *options, "--output", str(tmp_path / "whole")]) == 0
    command = ["stream", *options, "--output", str(tmp_path / "killed")]
    process = imported_once("tsforecast.cli.stream").Process(target=main, args=(command,))
    process.start()
    items = tmp_path / "killed" / "items.csv"
    while not (items.exists() and items.read_text().count("\n") > 50) and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL  # it had not come to its end
    with items.open("a") as file:
        file.write("half a ro")  # as when it is killed while writing
    (tmp_path / "killed" / ".state.part-0123456789abcdef.pt").write_bytes(b"half a state")
    assert main(["stream", "--resume", str(tmp_path / "killed")]) == 0
    pd.testing.assert_frame_equal(without_clock(items), without_clock(tmp_path / "whole" / "items.csv"))
    mine, its = (json.loads((tmp_path / name / "scores.json").read_text()) for name in ("killed", "whole"))
    assert mine | {"milliseconds_per_item": 0} == its | {"milliseconds_per_item": 0}
    assert mine["items"] == 250
    names = {"config.yaml", "run.json", "items.csv", "state.pt", "scores.json", "stream.png"}
    assert {p.name for p in (tmp_path / "killed").iterdir()} == names


@pytest.mark.parametrize(
    "written", [["run.json"], ["run.json", "config.yaml"], ["run.json", "config.yaml", "items.csv"]], ids=len
)
def test_killed_before_its_first_state_a_run_begins_again(tmp_path, written):
    make_table(tmp_path / "t.csv", count=45)
    options = ["stream", "vd-ekf", "--data", str(tmp_path / "t.csv"), "--time", "when"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*options, "--output", str(whole)]) == 0
    killed.mkdir()
    for name in written:
        (killed / name).write_bytes((whole / name).read_bytes() if name != "items.csv" else b"")
    assert main(["stream", "--resume", str(killed)]) == 0
    pd.testing.assert_frame_equal(without_clock(killed / "items.csv"), without_clock(whole / "items.csv"))


def test_the_command_of_a_run_that_never_began_begins_it(tmp_path, capsys):
    make_table(tmp_path / "t.csv", count=45)
    options = ["stream", "vd-ekf", "--data", str(tmp_path / "t.csv"), "--time", "when"]
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")  # written before anything else
    assert main([*options, "--output", str(run)]) == 0
    assert json.loads((run / "scores.json").read_text())["items"] == 45
    assert main([*options, "--output", str(run)]) == 2
    assert "is a run already" in capsys.readouterr().err


def test_rows_without_a_state_are_kept(tmp_path, capsys):
    make_table(tmp_path / "t.csv", count=45)
    run = tmp_path / "run"
    options = ["--data", str(tmp_path / "t.csv"), "--time", "when", "--output", str(run)]
    assert main(["stream", "vd-ekf", *options]) == 0
    (run / "state.pt").unlink()
    assert main(["stream", "--resume", str(run)]) == 2
    assert "has rows in items.csv, but no state.pt to go on from" in capsys.readouterr().err
    assert len(pd.read_csv(run / "items.csv")) == 45


@pytest.mark.parametrize(("hidden", "name"), [([], "items.csv"), (["300"], "state.pt")])
def test_a_full_disk_ends_a_stream_with_one_line_and_it_can_go_on(tmp_path, hidden, name, capsys):
    make_table(tmp_path / "t.csv", count=150)
    options = ["vd-ekf", "--hidden", *hidden, "--data", str(tmp_path / "t.csv"), "--time", "when", "--save_every", "10"]
    run = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, before[1]))
    try:
        assert main(["stream", *options, "--output", str(run)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    line = (
        f"error: [Errno 27] File too large: '{run / name}': mend this, then `tsforecast stream --resume {run}` goes on"
    )
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert main(["stream", "--resume", str(run)]) == 0
    assert main(["stream", *options, "--output", str(tmp_path / "whole")]) == 0
    pd.testing.assert_frame_equal(without_clock(run / "items.csv"), without_clock(tmp_path / "whole" / "items.csv"))


def test_a_network_that_outgrows_the_memory_ends_a_stream_with_one_line_and_it_can_go_on(tmp_path, monkeypatch, capsys):
    few = [{"a": 1.0 * k, "target": 0.5 * k} for k in range(5)]
    lines = [json.dumps(x) for x in (*few, {"target": 1.0} | dict.fromkeys(map(str, range(200_000)), 1.0), *few)]
    run = tmp_path / "run"

    def stream(arguments, given):
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(given)))
        return main(["stream", *arguments])

    assert stream(["ekf", "--hidden", "--data", "-", "--output", str(run)], lines) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is not enough memory for observation 5 (298 GiB at once)")
    assert f"`tsforecast stream --resume {run}` goes on" in line
    assert len(pd.read_csv(run / "items.csv")) == 5
    assert stream(["--resume", str(run)], lines[6:]) == 0
    assert json.loads((run / "scores.json").read_text())["items"] == 10


def test_ctrl_c_saves(tmp_path, monkeypatch):
    make_table(tmp_path / "t.csv")
    whole, stopped = str(tmp_path / "whole"), str(tmp_path / "stopped")
    options = ["stream", "vd-ekf", "--data", str(tmp_path / "t.csv"), "--time", "when"]
    assert main([*options, "--output", whole]) == 0
    count = 0

    def press(*arguments):
        nonlocal count
        count += 1
        if count == 34:  # the first row is looked at twice
            raise KeyboardInterrupt
        return advance(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("tsforecast.cli.stream.advance", press)
        assert main([*options, "--output", stopped]) == 130
    assert len(pd.read_csv(tmp_path / "stopped" / "items.csv")) == 32
    assert main(["stream", "--resume", stopped]) == 0
    rows = [without_clock(tmp_path / name / "items.csv") for name in ("whole", "stopped")]
    same = [r.drop(columns=["weights_moved", "weights_sd"]) for r in rows]  # written where states were saved
    pd.testing.assert_frame_equal(*same)


def test_json_lines_on_standard_input(tmp_path, monkeypatch, capsys):
    lines = [
        json.dumps({"x": k % 5, "y": None if k == 3 else 1.5, "label": k % 5 > 2, "at": 10 * k}) for k in range(60)
    ]
    lines[7] = json.dumps({"x": 2, "new": 4.0, "at": 70})  # without a target, and with a feature nobody has seen
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([lines[0], "", *lines[1:]])))
    options = ["--target", "label", "--task", "classes", "--output", str(tmp_path / "run")]
    assert main(["stream", "ekf", "--data", "-", *options]) == 0
    rows = pd.read_csv(tmp_path / "run" / "items.csv")
    assert len(rows) == 60
    assert math.isnan(rows["log_loss"][7])
    assert rows["prediction"].notna()[1:].all()
    assert "60 observations, log-loss" in capsys.readouterr().out


def labelled(count, *, timed=False, seed=4):
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2024-01-01")
    hours = rng.exponential(1, count).cumsum()
    times = [start + pd.Timedelta(hours=h) if timed else None for h in hours]
    return [Observation({"x": x}, float(x), t) for x, t in zip(rng.normal(size=count).tolist(), times, strict=True)]


@pytest.mark.parametrize("timed", [False, True])
def test_targets_that_come_at_once_change_nothing(timed):
    setup = Setup(changed(drift="ou", rate=0.05), 0, unit=3600.0)
    items = labelled(30, timed=timed)
    at_once, rows = follow(setup, items)
    late, events = follow(setup, delayed(items, pd.Timedelta(0) if timed else 0))
    events = events.dropna(subset=["target"]).reset_index(drop=True)
    columns = ["prediction", "sd", "log_loss", "error"]
    pd.testing.assert_frame_equal(events[columns], rows[columns], rtol=0, atol=0)
    torch.testing.assert_close(late.stream.belief.mean, at_once.stream.belief.mean, rtol=0, atol=0)
    assert late.waiting == {}


def test_weights_drift_once_for_each_observation():
    for count in (1, 2, 3):
        belief = follow(Setup(changed(drift="wiener", rate=5.0), 0), labelled(count))[0].stream.belief
        assert belief.variance[3].item() == 1 + 5 * count  # of a feature that never came


def test_a_delay_in_observations():
    events = list(delayed(labelled(6), 2))
    order = [(event.key, event.target is None) for event in events]
    before = [(0, True), (1, True), (0, False), (2, True), (1, False), (3, True), (2, False), (4, True), (3, False)]
    assert order == [*before, (5, True), (4, False), (5, False)]


def test_a_delay_in_time():
    items, delay = labelled(40, timed=True), pd.Timedelta("3h")
    events = list(delayed(items, delay))
    times = [event.time for event in events]
    assert times == sorted(times)
    for event in events:
        assert event.time == items[event.key].time + (delay if event.target is not None else pd.Timedelta(0))
    assert sorted(event.key for event in events if event.target is not None) == list(range(40))


def test_a_class_may_have_any_name(tmp_path):
    """Words for missing values are text among texts, and missing among numbers and truth values; empty is missing."""
    words = ["NA", "null", "nan", "None", "NaN", "n/a", "yes", ""]
    rows = [f"{word},{word if k < 6 else k},{word if k < 6 else k % 2 == 0},{k}" for k, word in enumerate(words)]
    (tmp_path / "t.csv").write_text("target,number,truth,x\n" + "\n".join(rows) + "\n")
    items = list(read_stream(tmp_path / "t.csv", "target"))
    assert [item.target for item in items] == [*words[:-1], None]
    assert [item.features["x"] for item in items] == [*range(8)]
    for name, last in (("number", [6, 7]), ("truth", [True, False])):
        cells = [item.features[name] for item in items]
        assert all(cell != cell for cell in cells[:6])
        assert cells[6:] == last
    targets = [item.target for item in read_stream(tmp_path / "t.csv", "number")]
    assert targets == [None] * 6 + [6, 7]


@pytest.mark.parametrize("options", [["bbb"], ["bog", "--noise", "0.02", "--hidden"]], ids=" ".join)
def test_plain_gradients_go_through_late_targets(options, tmp_path):
    """An explicit step leaves the covariance of either not positive definite on these data."""
    frame = make_table(tmp_path / "t.csv", 60)
    data = ["--data", str(tmp_path / "t.csv"), "--time", "when", "--delay", "20", "--output", str(tmp_path / "run")]
    assert main(["stream", *options, *data]) == 0
    found = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert found["items"] == len(frame) + frame["target"].notna().sum()
    assert found["rmse"] < frame["target"].std()


@pytest.mark.parametrize("delay", [0, 3])
def test_a_prediction_knows_no_target_that_has_not_come(delay):
    items = labelled(20)
    altered = [dataclasses.replace(item, target=99.0) if k == 10 else item for k, item in enumerate(items)]
    tables = [follow(NUMBERS, delayed(part, delay))[1] for part in (items, altered)]
    made = [table[table["target"].isna()].set_index("id")["prediction"] for table in tables]
    same = (made[0] == made[1]) | (made[0].isna() & made[1].isna())
    assert same.tolist() == [k < 10 + max(delay, 1) for k in range(20)]


def test_what_waits_is_saved(tmp_path):
    items = list(delayed([dataclasses.replace(i, target="ab"[i.target > 0]) for i in labelled(40)], 7))
    whole, _ = follow(CLASSES, items)
    half, _ = follow(CLASSES, items[:31])
    assert len(half.waiting) == scores(CLASSES, half)["waiting"] == 7
    save(tmp_path / "state.pt", half, {})
    progress, _ = load(tmp_path / "state.pt", CLASSES)
    for item in items[31:]:
        progress, _ = advance(CLASSES, progress, item)
    torch.testing.assert_close(progress.sums, whole.sums, rtol=0, atol=0)
    torch.testing.assert_close(progress.stream.belief.mean, whole.stream.belief.mean, rtol=0, atol=0)
    assert progress.waiting == {}


def test_targets_by_their_id_on_standard_input(tmp_path, monkeypatch, capsys):
    lines = [{"who": f"n{k}", "x": k % 3} for k in range(30)]
    late = [{"who": f"n{k}", "label": "yes" if k % 3 else "no"} for k in range(29, -1, -1)]
    both = [{"who": "new", "x": 1, "label": "yes"}]
    text = "\n".join(json.dumps(line) for line in [*lines[:20], *late[10:], *lines[20:], *late[:9], *both])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    options = ["--target", "label", "--id", "who", "--task", "classes", "--output", str(tmp_path / "run")]
    assert main(["stream", "ekf", "--data", "-", *options]) == 0
    rows = pd.read_csv(tmp_path / "run" / "items.csv")
    assert len(rows) == 60
    found = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert found["waiting"] == 1
    assert found["scored"] == 10  # of the first twenty nothing was known yet; one of the others has no target
    capsys.readouterr()


@pytest.mark.parametrize(
    ("items", "match"),
    [
        ([Observation({}, 1.0, None, "a")], "observation 0: expected the features of 'a' before, or with, its target"),
        ([Observation({"x": 1}, None, None, "a")] * 2, "observation 1: expected a target of 'a', which was predicted"),
    ],
)
def test_targets_that_belong_to_nothing(items, match):
    with pytest.raises(ValueError, match=match):
        follow(NUMBERS, items)


@pytest.mark.parametrize("name", STREAMS)
def test_the_named_streams(name, tmp_path, capsys):
    options = ["--limit", "150", "--hidden", "--output", str(tmp_path / "run")]
    assert (
        main(["stream", "ekf" if name != "digits" else "vd-ekf", "--data", name, "--expected_features", "64", *options])
        == 0
    )
    found = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert found["items"] == 150
    assert found.get("accuracy", 1.0) > {"digits": 0.6, "breast-cancer": 0.85, "phishing": 0.75}.get(name, 0)
    assert (tmp_path / "run" / "stream.png").stat().st_size > 10_000


def test_the_picture_says_what_the_scores_say():
    progress, rows = follow(NUMBERS, [Observation({"x": k % 7}, float(k % 7), None) for k in range(50)])
    rows["weights_moved"], rows["weights_sd"] = math.nan, math.nan
    figure = plot_stream(rows, scores(NUMBERS, progress), title="a stream")
    assert figure.get_suptitle().startswith("a stream: RMSE ")
    top = figure.axes[0].lines[1].get_ydata()
    assert top[-1] == pytest.approx(rows["log_loss"].mean())


@pytest.mark.parametrize(
    ("items", "setup", "match"),
    [
        ([Observation({"x": math.inf}, "a", None)], CLASSES, "observation 0: expected a finite number for feature 'x'"),
        ([Observation({"x": "1"}, "a", None)], CLASSES, "a number for feature 'x', got the text '1'"),
        ([Observation({"x": 1}, "a", None)], NUMBERS, "expected a number for the target, got the text 'a'"),
        ([Observation({"x": 1}, ["a"], None)], CLASSES, "expected a class"),
        (
            [Observation({"x": 1}, 1.0, pd.Timestamp(day)) for day in ("2024-01-02", "2024-01-01")],
            NUMBERS,
            "observation 1: expected time stamps that do not fall",
        ),
    ],
)
def test_bad_observations(items, setup, match):
    with pytest.raises(ValueError, match=match):
        follow(setup, items)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected data, as in `tsforecast stream lofi"),
        (["lofi", "--data", "nowhere.csv"], "there is no file nowhere.csv"),
        (
            ["lofi", "--data", "t.csv", "--target", "price"],
            "there is no column 'price'; there are when, a, b, c, target",
        ),
        (["lofi", "--data", "empty.csv"], "empty.csv"),
        (["svm", "--data", "t.csv"], "expected learner to be one of ekf"),
        (
            ["lofi", "--data", "t.csv", "--task", "ranks"],
            "expected task to be one of classes, numbers, auto, got 'ranks'",
        ),
        (["lofi", "--data", "t.csv", "--time", "a"], "expected a time stamp"),
        (["lofi", "--data", "t.csv", "--save_every", "0"], "--save_every: expected at least 1, got 0"),
        (
            ["lofi", "--data", "t.csv", "--delay", "3", "--id", "a"],
            "expected --id, for targets that come later, or --delay",
        ),
        (["lofi", "--data", "t.csv", "--delay", "soon"], "expected --delay as a number of observations or a time"),
        (["lofi", "--data", "t.csv", "--unit", "long"], "expected --unit as a time such as 7D, got 'long'"),
        (["lofi", "--data", "t.csv", "--delay", "-2"], "expected a delay of at least 0, got"),
        (["lofi", "--data", "t.csv", "--delay", "2h"], "expected observations with a time, for a delay of"),
        (["--resume", "nowhere"], "there is no run folder nowhere"),
        (["lofi", "--resume", "run"], "--resume goes with no other option, got lofi"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "t.csv")
    frame = pd.read_csv(tmp_path / "t.csv").assign(a="never")
    if arguments[-2:] == ["--time", "a"]:
        frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "empty.csv").write_text("")
    assert main(["stream", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_damaged_states_are_refused(tmp_path, capsys):
    make_table(tmp_path / "t.csv")
    run = tmp_path / "run"
    assert main(["stream", "vd-ekf", "--data", str(tmp_path / "t.csv"), "--time", "when", "--output", str(run)]) == 0
    whole = (run / "state.pt").read_bytes()
    (run / "state.pt").write_bytes(whole[:-200])
    assert main(["stream", "--resume", str(run)]) == 2
    assert "holds no readable state" in capsys.readouterr().err
    (run / "state.pt").write_bytes(whole)
    (run / "items.csv").write_text("item\n")
    assert main(["stream", "--resume", str(run)]) == 2
    assert "is shorter than the run's state says" in capsys.readouterr().err


def test_lines_that_are_no_objects():
    with pytest.raises(ValueError, match="line 2: expected a JSON object, got 'oops'"):
        list(read_lines(io.StringIO('{"target": 1}\noops\n'), "target"))
    with pytest.raises(ValueError, match="line 1: expected a JSON object, got list"):
        list(read_lines(io.StringIO("[1]\n"), "target"))
    with pytest.raises(ValueError, match="line 1: expected a text or number in 'id', got None"):
        list(read_lines(io.StringIO('{"x": 1}'), "target", key="id"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,target\n1,2,3,4,5\n", "line 2: expected 3 cells, as the header has, got 5"),
        ("a,b,target\n1,2,3\n1,2,3,4,5\n", "Expected 3 fields in line 3, saw 5"),
        (
            "a,target\n1.5,1.5\n2,2\nred,3\n4,4\n",
            "observation 2 (row 3): expected a number for feature 'a', as before, got the text",
        ),
        (
            "a,target\n1.5,1.5\n2,2\n3,red\n4,4\n",
            "observation 2 (row 3): expected a number for the target, got the text",
        ),
        ("a,target\n1.5,1.5\n1e400,2\n", "observation 1 (row 2): expected a finite number for feature 'a'"),
    ],
)
def test_a_bad_row_of_a_table_is_named(text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text)
    assert main(["stream", "vd-ekf", "--hidden", "--data", "t.csv"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_a_first_row_that_is_refused_leaves_no_folder(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,target\n1e400,1.5\n")
    assert (
        main(["stream", "vd-ekf", "--hidden", "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path / "o")]) == 2
    )
    assert "observation 0 (row 1)" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_values_of_any_size_and_texts_among_labels_of_a_table_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("a,target\n1e300,7\n-1e300,7\n,high\n5,8\n0.5,8\n")
    items = list(read_stream(tmp_path / "t.csv", "target"))
    assert [item.target for item in items] == [7, 7, "high", 8, 8]
    progress, rows = follow(CLASSES, items)
    assert scores(CLASSES, progress)["scored"] == 2
    assert rows["prediction"].tolist()[1] == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "-1"], "--limit: expected at least 1, got -1"),
        (["--rank", "-1"], "--rank: expected at least 0, got -1"),
        (["--expected_classes", "0"], "--expected_classes: expected at least 1, got 0"),
        (["--expected_features", "-2"], "--expected_features: expected at least 0, got -2"),
        (["--seed", "99999999999999999999"], "--seed: expected at most"),
        (["--unit", "soon"], "expected --unit as a time such as 7D, got 'soon'"),
        (["--unit=-1h"], "expected --unit to be longer than no time, got '-1h'"),
        (["--hidden", "0"], "expected hidden to be a tuple of positive widths"),
        (["--variance", "nan"], "--variance: expected a number, got 'nan'"),
        (["--noise", "-1"], "expected noise to be positive and finite, got -1.0"),
        (["--rate", "-1"], "expected rate to be at least 0"),
        (["--rate", "nan"], "--rate: expected a number, got 'nan'"),
        (["--weight", "imq", "--threshold", "-1"], "expected threshold to be positive, got -1.0"),
        (["--settings", '{"size": 3}'], "expected what learner 'lofi' takes, got"),
        (["--threads", "-1"], "--threads"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_bad_numbers_among_the_options_get_one_line_and_leave_nothing(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,target\n1.5,1.5\n2,2\n")
    assert main(["stream", "lofi", "--data", "t.csv", *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err.splitlines()[-1]
    assert "Traceback" not in captured.err
    assert not (tmp_path / "outputs").exists()


def test_the_default_is_lofi_with_a_wiener_drift_and_its_state_says_so(tmp_path):
    (tmp_path / "t.csv").write_text("a,target\n" + "".join(f"{k % 7},{k % 5}.5\n" for k in range(30)))
    for name, chosen in (("default", []), ("named", ["lofi", "--drift", "wiener", "--rate", "0.001"])):
        assert main(["stream", *chosen, "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path / name)]) == 0
    default, named = (without_clock(tmp_path / name / "items.csv") for name in ("default", "named"))
    pd.testing.assert_frame_equal(default, named)


@pytest.mark.parametrize(
    ("target", "options", "told"), [("3", [], True), ("3.5", [], False), ("3", ["--task", "numbers"], False)]
)
def test_integer_labels_are_not_taken_for_numbers_in_silence(target, options, told, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,target\n" + f"1,{target}\n2,{target}\n" * 3)
    arguments = ["stream", "vd-ekf", "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path / "run"), *options]
    assert main(arguments) == 0
    assert ("begin again with --task classes" in capsys.readouterr().err) == told


def test_a_target_that_never_varies_is_scored(tmp_path, capsys):
    """It is predicted without a spread, which has an error and no density."""
    values = [5.0] * 30
    items = [Observation({"a": float(k)}, value, None, None) for k, value in enumerate(values)]
    progress, rows = follow(NUMBERS, items)
    found = scores(NUMBERS, progress)
    assert (found["items"], found["scored"], found["rmse"], found["log_loss"]) == (30, 28, 0.0, None)
    assert rows["prediction"][2:].eq(5.0).all()
    assert rows["sd"][2:].eq(0.0).all()
    assert "log_loss" not in rows
    later, more = follow(NUMBERS, [*items, *(Observation({"a": 1.0}, y, None, None) for y in (6.0, 4.0, 5.5))])
    assert more["error"][30] == 1.0
    assert more["log_loss"].notna().sum() == 2
    assert scores(NUMBERS, later)["scored"] == 31
    assert scores(NUMBERS, later)["rmse"] == pytest.approx(math.sqrt(more["error"].pow(2).mean()))
    assert scores(NUMBERS, later)["log_loss"] == pytest.approx(more["log_loss"].mean())
    save(tmp_path / "state.pt", later, {})
    assert scores(NUMBERS, load(tmp_path / "state.pt", NUMBERS)[0]) == scores(NUMBERS, later)
    payload = torch.load(tmp_path / "state.pt", weights_only=True)
    payload["sums"] = payload["sums"][:-1]  # as it was before
    torch.save(payload, tmp_path / "state.pt")
    assert load(tmp_path / "state.pt", NUMBERS)[0].sums.tolist() == [*later.sums[:-1].tolist(), 0.0]

    pd.DataFrame({"a": np.arange(30.0), "y": 5}).to_csv(tmp_path / "constant.csv", index=False)
    command = ["stream", "lofi", "--data", str(tmp_path / "constant.csv"), "--target", "y", "--task", "numbers"]
    assert main([*command, "--output", str(tmp_path / "run")]) == 0
    assert "30 observations, RMSE 0," in capsys.readouterr().out
    assert not (tmp_path / "run" / "stream.png").exists()
