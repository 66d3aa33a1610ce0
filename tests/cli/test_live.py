"""`tsforecast live init` on files and buckets, and what both commands refuse."""

import socket
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from tests.live.stores import observations
from tsforecast.cli import main
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.live.opening import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=50, freq="D")
    parts = [
        pd.DataFrame(
            {"item_id": f"shop {k}", "timestamp": days, "sales": 50 + rng.normal(size=50), "kind": "ab"[k % 2]}
        )
        for k in range(4)
    ]
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    data = ["--data", str(folder / "sales.csv"), "--static_categories", "kind", "--prediction_length", "3"]
    quick = ["--windows", "2", "--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu"]
    assert main(["train", "issm", *data, *quick, "--output", str(folder / "run"), "--quiet"]) == 0
    return folder


def test_a_store_of_buckets_is_that_of_the_file(folder):
    columns = ["--static_categories", "kind"]
    assert main(["bucket", str(folder / "sales.csv"), str(folder / "buckets"), "--buckets", "3", *columns]) == 0
    begin = ["live", "init", str(folder / "run"), "--device", "cpu", "--output"]
    assert main([*begin, str(folder / "one")]) == 0
    assert main([*begin, str(folder / "many"), "--data", str(folder / "buckets"), "--prediction-length", "5"]) == 0
    with open_store(folder / "one") as one, open_store(folder / "many") as many:
        assert sorted(one.rows.names) == sorted(many.rows.names) == [f"shop {k}" for k in range(4)]
        assert (one.engine.horizon, many.engine.horizon) == (3, 5)
        assert one.about.targets == ["sales"]
        order = torch.tensor([one.rows.index[name] for name in many.rows.names])
        for mine, theirs in zip(many.rows.parts, one.rows.parts, strict=True):
            torch.testing.assert_close(mine[:4], theirs[order], rtol=1e-6, atol=1e-6)
        end = pd.Period(ordinal=int(one.rows.end[0]), freq="D")
        assert str(end) == "2024-02-20"
        rows = one.engine.layout.belief(one.rows.gather(np.arange(4)))
        assert rows.series.static_cat[:, 0].tolist() == [0, 1, 0, 1]
        (forecast, *_) = one.engine.forecasts(one.rows, np.arange(4), 3)
    assert main(["predict", str(folder / "run"), "--output", str(folder / "f.csv"), "--device", "cpu"]) == 0
    expected = pd.read_csv(folder / "f.csv")
    np.testing.assert_allclose(forecast.quantile(0.9), expected["0.9"][:3], rtol=1e-5)
    assert load_predictor(folder / "one" / "predictor", "cpu").freq == "D"


def test_a_model_learns_behind_the_store_as_its_options_say(folder):
    begin = ["live", "init", str(folder / "run"), "--device", "cpu", "--output", str(folder / "learns")]
    assert main([*begin, "--adapt", "lofi", "--drift", "ou", "--rank", "3", "--part", "population"]) == 0
    with open_store(folder / "learns") as store:
        assert (store.about.adaptation["learner"], store.about.adaptation["drift"]) == ("lofi", "ou")
        adaptive, first = store.learning.adaptive, int(store.rows.end[0])
        before = {name: p.clone() for name, p in adaptive.module.named_parameters()}
        items = [f"shop {k}" for k in range(4)]
        values = np.random.default_rng(1).normal(50, 9, size=16)  # more than before
        store.observe([observations(items * 4, np.repeat(first + np.arange(4), 4), values)])  # a period has three steps
        moved = {name for name, p in adaptive.module.named_parameters() if not torch.equal(p, before[name])}
        assert moved
        assert all("population" in name for name in moved)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "{folder}/run", "--output", "{folder}/x", "--adapt", "lofy"], "--adapt: there is no learner 'lofy'"),
        (
            ["init", "{folder}/run", "--output", "{folder}/x", "--adapt", "lofi", "--part", "no"],
            "expected part to match",
        ),
        (["init", "{folder}/run", "--output", "{folder}/run"], "not empty and no store"),
        (["init", "{folder}/run", "--output", "{folder}/x", "--data", "{folder}/no.csv"], "no.csv"),
        (["init", "{folder}/run", "--output", "{folder}/x", "--warm_up", "0"], "--warm_up: expected at least 1"),
        (["init", "{folder}/run"], "expected --output"),
        (["serve", "{folder}/none"], "there is no store"),
        (["serve", "{folder}/run"], "is no store, or not finished"),
        (["serve", "{folder}/run", "--port", "70000"], "--port: expected at most 65535"),
        (["serve", "{folder}/run", "--host", "0.0.0.0"], "give --token_file"),
        (["serve", "{folder}/run", "--token_file", "{folder}/sales.csv"], "expected a"),
        (["serve", "{folder}/run", "--tokens", "x"], "there is no option --tokens"),
        (["listen"], "invalid choice"),
        ([], "live init"),
    ],
)
def test_what_can_not_be_is_told(folder, capsys, arguments, said):
    assert main(["live", *(text.replace("{folder}", str(folder)) for text in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_port_in_use_is_told(folder, tmp_path, capsys):
    pytest.importorskip("uvicorn")
    store = str(tmp_path / "store")
    assert main(["live", "init", str(folder / "run"), "--output", store]) == 0
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["live", "serve", store, "--port", port]) == 2
    assert f"--port {port}: Address already in use; give another --port" in capsys.readouterr().err


def test_without_fastapi_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["live", "serve", "store"]) == 2
    assert "pip install 'tsforecast[serve]'" in capsys.readouterr().err
