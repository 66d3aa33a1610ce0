"""The tutorial's commands, and the Python code of every page, out of the pages, on a file as the tutorial describes."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def blocks(language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


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


FAST = '"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_progress_bar": False'
# What makes the code of a page small, by what it says.
SMALL = {
    "docs/tutorial.md": {'"max_epochs": 50': FAST},
    "README.md": {", seed=0)": f", seed=0, num_batches_per_epoch=1, trainer_kwargs={{{FAST}}})"},
    "docs/learners.md": {
        ", seed=0)": f", seed=0, num_batches_per_epoch=1, trainer_kwargs={{{FAST}}})",
        "task.windows - 1": "2",
        "datasets.Phishing()": "datasets.Phishing().take(40)",
        "randn(500": "randn(410",
        "rand(100)": "rand(10)",
    },
}


@pytest.mark.parametrize("page", SMALL)
def test_python_of_a_page_runs_as_printed(page, folder, monkeypatch, capsys):
    """All blocks in their order, as a reader copies them."""
    monkeypatch.chdir(folder)
    code = "\n".join(blocks("python", (ROOT / page).read_text()))
    for text, small in SMALL[page].items():
        assert text in code
        code = code.replace(text, small)
    names = {}
    exec(compile(code, page, "exec"), names)
    said = capsys.readouterr().out
    if page == "docs/tutorial.md":
        assert "seasonal_naive" in said
        assert [*names["table"]] == ["item_id", "timestamp", "mean", "0.1", "0.5", "0.9"]
        assert names["table"]["timestamp"].min() == pd.Timestamp("2024-04-29")
        assert "seasonal_naive" in names["scores"].scores
        assert "shop 2 2024-04-29" in said
    elif page == "README.md":
        assert len(said.splitlines()) == len(names["task"].train)
    else:
        assert names["predicted"].mean.shape == (10, 1, 10)
        assert len(names["forecasts"]) == len(names["task"].entries)


def test_every_page_with_python_is_tried():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert {str(path.relative_to(ROOT)) for path in pages if blocks("python", path.read_text())} == {*SMALL}
