"""`train --irregular` and what other commands do with its run."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tsforecast.cli import irregular, main, train_parser

pytestmark = pytest.mark.usefixtures("unchecked_module")


COLUMNS = ("--target", "pH", "--item", "probe", "--timestamp", "at")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("irregular")
    rng = np.random.default_rng(0)
    parts = []
    for k in range(2):
        minutes = np.sort(rng.integers(0, 10 * 1440, 80))
        level = 5 + k + np.sin(minutes / 1440 * 2 * np.pi)
        stamps = pd.Timestamp("2024-03-01") + pd.to_timedelta(minutes, unit="min")
        parts.append(pd.DataFrame({"probe": f"p{k}", "at": stamps, "pH": level + 0.1 * rng.standard_normal(80)}))
    pd.concat(parts).to_csv(folder / "ph.csv", index=False)
    pd.DataFrame({"probe": ["p1", "p1"], "at": ["2024-03-03 07:30:00.5", "2024-03-20"]}).to_csv(folder / "at.csv")
    assert train(folder, "--output", str(folder / "run")) == 0
    return folder


def train(folder, *more, epochs: int = 1, model: str = "issm") -> int:
    few = [f"--max_epochs={epochs}", "--num_batches_per_epoch=2", "--context_length=20"]
    table = ["--data", str(folder / "ph.csv"), *COLUMNS]
    return main(["train", model, *table, "--irregular", "--horizon=12h", "--windows=2", *few, *more])


def test_options_that_a_file_does_not_have_are_those_of_clocks(tmp_path):
    (tmp_path / "some.yaml").write_text("data: series.csv\nirregular: true\nlinear_epochs: 3\n")
    call = train_parser.parsed(["rsgls-issm", "--config", str(tmp_path / "some.yaml")])
    chosen, defaults = call.chosen, train_parser.options_of("rsgls-issm")
    irregular.complete(call)
    own = irregular.own_options("rsgls-issm")
    others = [name for name in own if name not in ("components", "linear_epochs") and name in defaults]
    assert any(own[name].default != defaults[name] for name in others)
    assert {name: chosen[name] for name in others} == {name: own[name].default for name in others}
    assert (chosen.components, chosen.linear_epochs) == ("auto", 3)


def test_a_run_is_scored_beside_baselines(made, capsys):
    assert main(["evaluate", str(made / "run"), "--plot_series=1"]) == 0
    said = capsys.readouterr().out
    assert "ph, rolling: 2 series, 4 forecasts of 12 h" in said
    found = json.loads((made / "run" / "scores.json").read_text())
    assert [found["model"], *found["baselines"]] == ["issm", "last_value", "whole_past"]
    scores = [found["rolling"], *(one["rolling"] for one in found["baselines"].values())]
    assert all(0 <= one["coverage"]["80"] <= 1 and one["crps"] > 0 and one["mse"] > 0 for one in scores)
    for name, count in (("per_series", 6), ("per_forecast", 12), ("calibration", 303)):
        assert len(pd.read_csv(made / "run" / f"{name}.csv")) == count
    assert (made / "run" / "plots" / "forecasts.png").stat().st_size > 10_000


def test_answers_come_at_any_times(made):
    run, at = str(made / "run"), str(made / "at.csv")
    assert main(["predict", run, "--every", "3h", "--quantiles", "0.1,0.9", "--output", str(made / "f.csv")]) == 0
    ahead = pd.read_csv(made / "f.csv", parse_dates=["at"])
    assert list(ahead) == ["probe", "at", "mean", "0.1", "0.9"]
    assert (ahead["at"].dt.hour % 3 == 0).all()
    assert len(ahead) == 8
    assert main(["impute", run, "--at", at, "--quantiles", "0.1,0.9", "--output", str(made / "i.csv")]) == 0
    inside = pd.read_csv(made / "i.csv", parse_dates=["at"])
    assert inside["at"].tolist() == [pd.Timestamp("2024-03-03 07:30:00.5"), pd.Timestamp("2024-03-20")]
    wide = inside["0.9"] - inside["0.1"]
    assert wide[0] < wide[1]
    paths = ["--paths", "--num_samples=3", "--every=6h", "--output", str(made / "p.parquet")]
    assert main(["predict", run, *paths]) == 0
    assert pd.read_parquet(made / "p.parquet")["path"].nunique() == 3


def test_a_run_that_was_stopped_ends_as_if_it_had_not(made, capsys):
    """With covariates, which are read again, and of a model whose last epoch draws particles."""
    table = pd.read_csv(made / "ph.csv")
    table.assign(light=np.arange(len(table)) % 5).to_csv(made / "light.csv", index=False)
    options = ["--data", str(made / "light.csv"), "--covariates", "light", "--components=level"]
    options += ["--num_particles=3"]
    assert train(made, *options, "--output", str(made / "whole"), epochs=3, model="rsgls-issm") == 0
    log, handler = logging.getLogger("tsforecast.cli.epochs"), Stop()
    log.addHandler(handler)
    try:
        assert train(made, *options, "--output", str(made / "stopped"), epochs=3, model="rsgls-issm") == 130
    finally:
        log.removeHandler(handler)
    assert f"--resume {made / 'stopped'}" in capsys.readouterr().err
    assert main(["train", "--resume", str(made / "stopped")]) == 0
    assert "goes on after epoch" in capsys.readouterr().err
    whole, stopped = (
        torch.load(made / run / "predictor" / "prediction-net-state.pt", weights_only=True) for run in RUNS
    )
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert [len(pd.read_csv(made / run / "metrics.csv")) for run in RUNS] == [3, 3]
    assert main(["evaluate", str(made / "whole"), "--plot_series=0"]) == 0
    assert "rsgls-issm" in capsys.readouterr().out
    out = made / "regimes"
    assert main(["regimes", str(made / "whole"), "--output", str(out), "--plot_series=1", "--num_samples=5"]) == 0
    assert "share of time by regime" in capsys.readouterr().out
    assert {one.name for one in out.iterdir()} == {"regimes.csv", "changes.csv", "names.csv", "regimes-1.png"}
    assert len(pd.read_csv(out / "regimes.csv")) == len(table)


RUNS = ("whole", "stopped")
GRID_ALONE = {"explain": [], "anomalies": [], "export": ["--output", "exported"]}


class Stop(logging.Handler):
    """Interrupts the training when its second epoch has ended, before the checkpoint of the third."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("epoch 3 of"):
            raise KeyboardInterrupt


def test_options_are_printed_and_nothing_is_trained(made, capsys):
    capsys.readouterr()
    assert train(made, "--print_config", "--output", str(made / "printed")) == 0
    said = yaml.safe_load(capsys.readouterr().out)
    assert [said[name] for name in ("irregular", "horizon", "components", "max_epochs")] == [True, "12h", "auto", 1]
    assert not (made / "printed").exists()


def test_what_does_not_go_together_is_refused(made, capsys):
    run, out = str(made / "run"), ["--output", str(made / "x.csv")]
    for arguments, message in (
        (["predict", run, "--at", str(made / "at.csv"), *out], "expected times behind its last observation"),
        (["predict", run, "--prediction_length=3", *out], "--prediction_length goes with regular series"),
        (["predict", run, "--output", str(made / "folder")], "answers into a file"),
        (["impute", run, "--paths", *out], "--paths goes with predict"),
        *(([name, run, *more], "this command expects series on a grid") for name, more in GRID_ALONE.items()),
        (["compare", run, run], "compare expects runs of series on a grid"),
        (["regimes", run], "expected a model that has regimes, sgls or rsgls-issm; TimedISSMForecaster has none"),
        (["evaluate", run, "--adapt", "lofi"], "--adapt does not go with a run of `train --irregular`"),
        (
            ["train", "bank", "--data", "x.csv", "--irregular"],
            "--irregular goes with 'issm', 'gls', 'rsgls-issm', 'sgls', got 'bank'",
        ),
        (["train", "issm", "--irregular"], "--irregular goes with --data FILE"),
        (
            ["train", "rsgls-issm", "--data", "x.csv", "--irregular", "--recurrence=paper"],
            "--recurrence does not go with rsgls-issm --irregular",
        ),
        (
            ["train", "sgls", "--data", str(made / "ph.csv"), "--irregular", "--switch=gaussian", *COLUMNS],
            "expected switch to be one of categorical, got 'gaussian'",
        ),
        (["train", "issm", "--data", "x.csv", "--horizon=1h"], "--horizon goes with --irregular"),
        (["train", "issm", "--data", "x.csv", "--irregular", "--freq=D"], "--freq does not go with issm --irregular"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert train(made, "--components", "weekday", "--output", str(made / "bad")) == 2
    assert "unknown component 'weekday': in continuous time there are level" in capsys.readouterr().err
    assert not (made / "bad").exists()
