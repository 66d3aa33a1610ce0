"""The tutorial's commands and code, out of the page itself, on a file as it describes."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two shops with prices for the 14 days to come, up to the day of the what-if forecast."""
    folder = tmp_path_factory.mktemp("tutorial")
    stamps = pd.date_range("2024-01-01", "2024-05-12", freq="D")
    sales = 50 + 5 * np.sin(np.arange(len(stamps)) * 2 * np.pi / 7)
    parts = [
        pd.DataFrame({"item_id": item, "timestamp": stamps, "sales": sales * (k + 1), "price": 1.99 + k})
        for k, item in enumerate(("shop 1", "shop 2"))
    ]
    frame = pd.concat(parts).assign(sales=lambda x: x["sales"].where(x["timestamp"] < "2024-04-29"))
    frame.to_csv(folder / "sales.csv", index=False)
    (folder / "known.csv").write_text(re.findall(r"```\n(item_id,timestamp,sales\n.*?)```", PAGE, re.DOTALL)[0])
    return folder


def test_commands(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    commands = [shlex.split(text.replace("\\\n", " ")) for text in blocks("sh")]
    assert [command[:2] for command in commands] == [["tsforecast", name] for name in ("train", "evaluate", "predict")]
    train, evaluate, predict = (command[1:] for command in commands)
    assert main([*train, "--max_epochs", "1", "--num_batches_per_epoch", "2", "--accelerator", "cpu"]) == 0
    assert main(["train", "--resume", "outputs/sales"]) == 0
    assert main([*evaluate, "--num_samples", "10"]) == 0
    assert "seasonal_naive" in capsys.readouterr().out
    assert main([*predict, "--num_samples", "10"]) == 0
    forecasts = pd.read_csv("forecasts.csv")
    assert forecasts["timestamp"].min() == "2024-04-29"
    assert len(forecasts) == 2 * 14
    assert main([*predict, "--known", "known.csv", "--quantiles", "0.05,0.5,0.95", "--num_samples", "10"]) == 0
    given = pd.read_csv("forecasts.csv").set_index(["item_id", "timestamp"]).loc[("shop 1", "2024-05-03")]
    np.testing.assert_allclose(given[["0.05", "0.5", "0.95"]].astype(float), 0, atol=1e-6)


def test_python(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    code = blocks("python")
    fast = '"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_progress_bar": False'
    short = code[0].replace('"max_epochs": 50', fast)
    assert short != code[0]
    names = {}
    exec(compile(short, "tutorial.md", "exec"), names)
    assert "seasonal_naive" in capsys.readouterr().out
    task = names["task"]
    names["news"] = [
        {**entry, "start": entry["start"] + len(seen["target"]), "target": entry["target"][len(seen["target"]) :]}
        | {"feat_dynamic_real": entry["feat_dynamic_real"][:, len(seen["target"]) : len(entry["target"])]}
        for entry, seen in zip(task.entries, task.train, strict=True)
    ]
    names["horizon"] = [
        {
            "item_id": entry["item_id"],
            "feat_dynamic_real": entry["feat_dynamic_real"][:, len(entry["target"]) :][:, :14],
        }
        for entry in task.entries
    ]
    exec(compile(code[-1], "tutorial.md", "exec"), names)
    assert "shop 2" in capsys.readouterr().out
