"""The search for hyperparameters: what it may see, what it leaves behind, how it goes on."""

import re

import optuna
import pandas as pd
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.cli.test_commands import SHORT, csv, data, refused  # noqa: F401
from tsforecast.cli import main, train_parser, tune
from tsforecast.data import load_task


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("components: [level, level+day_of_week]\nlearning_rate: {low: 0.01, high: 1.0, log: true}\n")
    return path


@pytest.fixture
def command(csv, tmp_path, space):  # noqa: F811
    return ["tune", "issm", *data(csv), *SHORT, "--study", str(tmp_path / "study"), "--space", str(space)]


def test_a_study_goes_on_and_leaves_the_best_options(command, tmp_path, capsys):
    folder = tmp_path / "study"
    assert main([*command, "--components", "level", "--trials", "2"]) == 0
    study = stored(folder)
    study.ask()  # as a kill leaves it
    assert main([*command, "--components", "level", "--trials", "3"]) == 0
    out = capsys.readouterr().out
    table = pd.read_csv(folder / "trials.csv")
    assert len(table) == 3
    assert table.loc[0, ["components", "learning_rate"]].tolist() == ["level", 0.1]  # what the options say comes first
    assert table["learning_rate"].between(0.01, 1.0).all()
    assert (table[["crps", "seconds"]] > 0).all(axis=None)
    assert (folder / "study.png").read_bytes().startswith(b"\x89PNG")
    best = yaml.safe_load((folder / "best.yaml").read_text())
    row = table.loc[table["crps"].idxmin()]
    assert (best["components"], best["learning_rate"]) == (row["components"], pytest.approx(row["learning_rate"]))
    assert f"tsforecast train issm --config {folder / 'best.yaml'}" in out
    assert main(["train", "issm", "--config", str(folder / "best.yaml"), "--output", str(tmp_path / "run")]) == 0
    assert main([*command, "--trials", "3"]) == 0  # nothing left to do
    assert len(stored(folder).trials) == 4


def test_killed_in_its_first_trial_a_study_begins_with_what_the_options_say(command, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*arguments):
        raise Killed

    def wait(seconds):
        raise AssertionError("it waits for a lock that nobody holds")

    monkeypatch.setattr(tune, "trial_crps", die)
    with pytest.raises(Killed):
        main([*command, "--components", "level", "--trials", "2"])
    log = tmp_path / "study" / "study.log"
    (tmp_path / "study" / "study.log.lock").symlink_to(log)  # Optuna's, and half a line
    with log.open("a") as file:
        file.write('{"op_code":4,"worker')
    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr(tune, "trial_crps", lambda *arguments: 0.5)
    assert main([*command, "--components", "level", "--trials", "2"]) == 0
    table = pd.read_csv(tmp_path / "study" / "trials.csv")
    assert len(table) == 2
    assert table.loc[0, ["components", "learning_rate"]].tolist() == ["level", 0.1]
    names = {path.name for path in (tmp_path / "study").iterdir()}
    assert names == {"best.yaml", "study.log", "study.png", "trials.csv"}


def stored(folder):
    storage = JournalStorage(JournalFileBackend(str(folder / "study.log")))
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(storage=storage, study_name=name)


def test_the_test_part_is_not_looked_at():
    task = load_task("exchange")
    held = tune.validation_task(task, 2)
    for entry, whole in zip(held.entries, task.entries, strict=True):
        assert len(entry["target"]) == len(whole["target"]) - task.windows * task.prediction_length
    lengths = {len(entry["target"]) for entry in held.train}
    assert lengths == {len(held.entries[0]["target"]) - 2 * task.prediction_length}
    with pytest.raises(ValueError, match="too few for 1000 validation windows"):
        tune.validation_task(task, 1000)


def test_settings_with_which_the_training_diverges_are_no_end(command, tmp_path, monkeypatch):
    scores = iter([FloatingPointError("the training loss became nan"), 0.5])

    def trial_crps(*arguments):
        found = next(scores)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(tune, "trial_crps", trial_crps)
    assert main([*command, "--trials", "2"]) == 0
    table = pd.read_csv(tmp_path / "study" / "trials.csv")
    assert table["crps"].isna().tolist() == [True, False]


def test_by_default_rates_and_what_the_model_has_is_tried():
    chosen = train_parser.options_of("gls", "--dataset", "exchange")
    space = tune.read_space(None, chosen)
    assert {*space} == {"components", "objective", "state_dim", "learning_rate", "matrix_learning_rate"}
    assert all(tune.fits(chosen[name], values) for name, values in space.items())


def test_a_rate_that_is_not_given_is_tried_around_the_one_in_its_place():
    chosen = train_parser.options_of("sgls", "--dataset", "exchange", "--learning_rate", "0.02")
    space = tune.read_space(None, chosen)
    assert space["matrix_learning_rate"] == space["learning_rate"] == {"low": 0.002, "high": 0.2, "log": True}
    assert not tune.fits(chosen["matrix_learning_rate"], space["matrix_learning_rate"])  # not among the given ones


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moon: [1, 2]", "the model has no hyperparameter 'moon'"),
        ("learning_rate: 3", "expected choices or low and high"),
        ("learning_rate: {low: 1}", "expected choices or low and high"),
        ("[1, 2]", "expected .* to map hyperparameters"),
        ("{", "no YAML"),
    ],
)
def test_bad_spaces(command, space, capsys, text, message):
    space.write_text(text)
    assert re.search(message, refused(capsys, *command))


def test_bad_arguments(command, csv, tmp_path, capsys, monkeypatch):  # noqa: F811
    assert "--trials: expected at least 1" in refused(capsys, *command, "--trials", "0")
    assert "neither --resume nor --output" in refused(capsys, *command, "--output", str(tmp_path / "x"))
    monkeypatch.setattr(tune, "trial_crps", lambda *arguments: 0.5)
    assert main([*command, "--trials", "1"]) == 0
    other = ["tune", "gls", *data(csv), *SHORT, "--study", str(tmp_path / "study"), "--trials", "1"]
    assert "holds the study issm on" in refused(capsys, *other)
