"""Options that cannot be met are refused before anything is computed: all that is needed to say so is known."""

import importlib

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")
DAYS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of one series with a covariate, and runs of a bank with curves and of two regimes."""
    made = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    heat = rng.normal(size=DAYS + 3)
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=DAYS + 3), "heat": heat})
    frame["sales"] = 50 + 3 * heat + rng.normal(size=DAYS + 3)
    frame.loc[DAYS:, "sales"] = np.nan  # the covariate goes on
    frame.to_csv(made / "heat.csv", index=False)
    frame[["day", "sales"]].dropna().to_csv(made / "plain.csv", index=False)
    (made / "file").write_text("", encoding="utf-8")
    few = ["--prediction_length=3", "--windows=2", "--max_epochs=0", "--accelerator=cpu", "--seed=0"]
    plain, heated = (["--data", str(made / name), *few] for name in ("plain.csv", "heat.csv"))
    assert main(["train", "bank", *heated, "--covariates=heat", "--effects=curves", "--output", f"{made}/bank"]) == 0
    assert main(["train", "markov", *plain, "--regimes=2", "--max_epochs=1", "--output", f"{made}/markov"]) == 0
    assert main(["train", "markov", *plain, "--regimes=1", "--max_epochs=1", "--output", f"{made}/calm"]) == 0
    return made


def _nothing(*_, **__):
    raise AssertionError("something was computed")


@pytest.mark.parametrize(
    ("arguments", "work", "message"),
    [
        (["anomalies", "bank", "--given=all"], "analysis.anomalies.accounts", "one linear system"),
        (
            ["anomalies", "bank", "--output=file"],
            "analysis.anomalies.accounts",
            "--output: expected the path of a fo",
        ),
        (["explain", "bank", "--importance=50"], "cli.explain.explain", "a series of more than 51 horizons"),
        (["explain", "bank", "--output=file/x"], "cli.explain.explain", "cannot be made, since"),
        (["regimes", "markov", "--level=2"], "analysis.regimes._past", "between 0 and 1, got 2.0"),
        (["regimes", "markov", "--output=file"], "analysis.regimes._past", "expected the path of a folder"),
        (["regimes", "calm"], "analysis.regimes._past", "at least two regimes, got 1"),
        (["evaluate", "bank", "--baselines=naif"], "cli.evaluate.evaluate", "got 'naif'"),
        (["evaluate", "bank", "--baselines=deepar-x"], "cli.evaluate.evaluate", "got 'deepar-x'"),
        (["evaluate", "bank", "--refit", "--baselines=naif"], "cli.evaluate.refitted", "got 'naif'"),
        (["evaluate", "bank", "--frame=file/x.csv"], "cli.evaluate.evaluate", "cannot be made, since"),
        (["impact", "plain.csv", "--after=2024-02-10", "--output=file"], "cli.impact.impact", "expected the path of"),
    ],
)
def test_nothing_is_computed_before_a_refusal(folder, monkeypatch, capsys, arguments, work, message):
    monkeypatch.chdir(folder)
    module, _, name = f"tsforecast.{work}".rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), name, _nothing)
    assert main(arguments) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert said.startswith("error: ")
    assert message in said


def test_a_table_goes_into_a_folder_that_is_made(folder, tmp_path):
    """The folders of other results are made, too."""
    out = tmp_path / "new" / "deep" / "x.csv"
    options = ["--baselines=none", "--num_samples=10", "--plot_series=0", "--frame", str(out)]
    assert main(["evaluate", str(folder / "bank"), *options]) == 0
    found = pd.read_csv(out)
    assert len(found) == 6
    assert {"day", "cutoff", "sales", "mean"} <= {*found}
