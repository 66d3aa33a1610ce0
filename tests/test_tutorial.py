"""The tutorial's commands, and the Python code of every page, out of the pages, on a file as the tutorial describes."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

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
    assert [command[:2] for command in commands] == [
        ["tsforecast", name] for name in ("forecast", "train", "evaluate", "predict")
    ]
    forecast, train, evaluate, predict = (command[1:] for command in commands)
    assert main(forecast) == 0
    at_once = pd.read_csv("sales-forecasts.csv")
    assert at_once["timestamp"].min() == "2024-04-29"
    assert len(at_once) == 2 * 14
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
SEEDED = {", seed=0)": f", seed=0, num_batches_per_epoch=1, trainer_kwargs={{{FAST}}})"}
MODELS = [f"docs/models/{name}.md" for name in (
    "bank", "issm", "gls", "deepstate", "markov", "switching", "rsgls-issm", "arsgls", "kvae", "pool"
)]  # fmt: skip
# What makes the code of a page small, by what it says.
SMALL = {
    "README.md": {},
    "docs/tutorial.md": {'"max_epochs": 50': FAST},
    "docs/learners.md": {
        "datasets.Phishing()": "datasets.Phishing().take(40)",
        "randn(500": "randn(410",
        "rand(100)": "rand(10)",
    },
    "docs/bandits.md": {},
    "docs/particles.md": {"steps=200": "steps=20", "range(60)": "range(2)"},
    "docs/fusion.md": {},
    "docs/memory.md": {},
    "docs/choosing.md": {},
    "docs/howto/data.md": {},
    "docs/howto/covariates.md": SEEDED,
    "docs/howto/cross-validation.md": {},
    "docs/howto/missing.md": SEEDED | {"num_samples=100": "num_samples=3"},
    "docs/howto/irregular.md": SEEDED
    | {'len(entry["target"])': "200", 'entry["target"][arrived]': 'entry["target"][:200][arrived]'},
    "docs/howto/what-if.md": SEEDED,
    "docs/howto/anomalies.md": SEEDED,
    "docs/howto/explain.md": SEEDED | {'.startswith("NYIS")': ' == "NYIS-ZONJ"', '"2020-03-01"': '"2020-03-15"'},
    "docs/howto/regimes.md": {
        '"datasets/us-output.csv"': f'"{ROOT}/datasets/us-output.csv"',
        ')["growth"]': ')["growth"][-30:]',
        "order=4": "order=1, starts=1",
        "train_length=0,": f"train_length=0, num_batches_per_epoch=1, trainer_kwargs={{{FAST}}},",
    },
    "docs/howto/hierarchies.md": {  # few series have a bank that does not learn
        '"datasets/tourism.csv")': f"\"{ROOT}/datasets/tourism.csv\").query(\"state == 'nsw' and purpose < 'i'\")",
    },
    "docs/howto/impact.md": {},
    "docs/howto/live.md": SEEDED | {"task.windows - 1": "2"},
    "docs/howto/tuning.md": SEEDED,
    "docs/howto/gpu.md": {'"max_epochs": 40, "accelerator": "auto"': f"{FAST}", "task.train)": "task.train[:2])"},
    "docs/optimisation.md": {"evaluations=30": "evaluations=12", "range(15)": "range(11)"},
    "docs/learners-reference.md": {},
    "docs/howto/many.md": {
        '"max_epochs": 50': FAST,
        "epoch=8": "epoch=1",
        "predict(task.train,": "predict(task.train[:5],",
    },
    **dict.fromkeys(
        MODELS, SEEDED | {"task.train[:2]": '[entry | {"target": entry["target"][-300:]} for entry in task.train[:2]]'}
    ),
}


def check_tutorial(names, said):
    assert "seasonal_naive" in said
    assert [*names["table"]] == ["item_id", "timestamp", "mean", "0.1", "0.5", "0.9"]
    assert names["table"]["timestamp"].min() == pd.Timestamp("2024-04-29")
    assert "seasonal_naive" in names["scores"].scores
    assert "shop 2 2024-04-29" in said


def check_covariates(names, said):
    assert names["frame"]["holiday"].sum() > 5
    assert names["table"]["timestamp"].min() == names["days"][300]


def check_missing(names, said):
    assert names["filled"].samples.shape == (3, 400)
    assert (names["low"] < names["high"]).all()


def check_explain(names, said):
    causes = names["causes"].groupby("timestamp")
    change = causes["after"].first() - causes["before"].first()
    np.testing.assert_allclose(causes["impact"].sum(), change, atol=1e-8)
    assert len(names["parts"]) == 48 * names["parts"]["part"].nunique()


def check_irregular(names, said):
    assert len(names["between"]) == (~names["arrived"]).sum()
    assert (names["ahead"]["time"] > names["table"]["time"].max()).all()
    assert (names["between"]["0.1"] <= names["between"]["0.9"]).all()


def check_regimes(names, said):
    table, changes, ahead = (names[name] for name in ("table", "changes", "ahead"))
    assert [*table] == [*ahead] == ["item_id", "timestamp", "p_1", "p_2", "most_likely"]
    assert (len(table), len(ahead)) == (30, 8)
    assert (changes["lower"] <= changes["upper"]).all()


def check_what_if(names, said):
    np.testing.assert_allclose(names["forecast"].samples[:, 9], names["known"][9], rtol=1e-5)
    assert np.ptp(names["forecast"].samples[:, 8]) > 0


def check_hierarchies(names, said):
    means = names["found"].pivot_table(index="quarter", columns=["purpose", "state", "area"], values="mean")
    series = [cells for cells in means if "(all)" not in cells]
    assert len(series) == 4  # of business trips and holidays
    np.testing.assert_allclose(means[("(all)",) * 3], means[series].sum(axis=1), rtol=1e-6)


# What there is after the code of a page: names, and what it has printed.
def check_anomalies(names, said):
    planted = (names["entries"][0]["start"] + 300).to_timestamp()
    assert f"{planted}" in said  # the spike in the frame
    assert f"{names['stamps'][700]}" in said  # and that of the stream


CHECKS = {
    "docs/howto/anomalies.md": check_anomalies,
    "README.md": lambda names, said: np.testing.assert_equal(len(names["forecaster"].predict()), 2 * 14),
    "docs/tutorial.md": check_tutorial,
    "docs/learners.md": lambda names, said: np.testing.assert_equal(names["predicted"].mean.shape, (10, 1, 10)),
    "docs/bandits.md": lambda names, said: np.testing.assert_equal(names["bandit"].standing.learnt, 41),
    "docs/memory.md": lambda names, said: np.testing.assert_array_equal(names["belief"].memory.inputs.shape, (15, 2)),
    "docs/fusion.md": lambda names, said: np.testing.assert_array_less(names["sound"][2], 0.1),
    "docs/particles.md": lambda names, said: np.testing.assert_equal(len(names["belief"].target), 61),
    "docs/howto/data.md": lambda names, said: np.testing.assert_equal(len(names["table"]), 3 * 14),
    "docs/howto/covariates.md": check_covariates,
    "docs/howto/cross-validation.md": lambda names, said: np.testing.assert_equal(len(names["rows"]), 3 * 7),
    "docs/howto/missing.md": check_missing,
    "docs/howto/irregular.md": check_irregular,
    "docs/howto/what-if.md": check_what_if,
    "docs/howto/explain.md": check_explain,
    "docs/howto/regimes.md": check_regimes,
    "docs/howto/hierarchies.md": check_hierarchies,
    "docs/howto/impact.md": lambda names, said: np.testing.assert_array_less(names["found"].summary["effect_upper"], 0),
    "docs/howto/live.md": lambda names, said: np.testing.assert_equal(len(names["forecasts"]), len(said.splitlines())),
    "docs/howto/tuning.md": lambda names, said: np.testing.assert_equal(len(said.splitlines()), 2),
    "docs/howto/gpu.md": lambda names, said: np.testing.assert_equal(len(names["forecasts"]), 2),
    "docs/choosing.md": lambda names, said: np.testing.assert_equal(names["estimator"].model, "arsgls"),
    "docs/optimisation.md": lambda names, said: np.testing.assert_equal(len(names["known"].values), 11),
    "docs/learners-reference.md": lambda names, said: np.testing.assert_equal(names["more"].converged, True),
    "docs/howto/many.md": lambda names, said: np.testing.assert_equal(len(names["forecast"].quantile(0.9)), 30),
    **dict.fromkeys(MODELS, lambda names, said: np.testing.assert_equal(len(names["forecast"].quantile(0.9)), 30)),
}


@pytest.mark.parametrize("page", SMALL)
def test_python_of_a_page_runs_as_printed(page, folder, tmp_path, monkeypatch, capsys):
    """All blocks in their order, as a reader copies them."""
    shutil.copy(folder / "sales.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("python", (ROOT / page).read_text()))
    for text, small in SMALL[page].items():
        assert text in code
        code = code.replace(text, small)
    names = {}
    exec(compile(code, page, "exec"), names)
    CHECKS[page](names, capsys.readouterr().out)


def test_readme_is_short():
    """A stranger reads it in five minutes; code and tables count."""
    assert 300 < len((ROOT / "README.md").read_text().split()) <= 700


def test_documentation_is_bounded():
    """What is added takes the place of something."""
    pages = (ROOT / "docs").rglob("*.md")
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 45_000


def test_the_site_needs_no_network():
    """Styles, scripts and fonts are in the site."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    names = [*config["extra_css"], *config["extra_javascript"]]
    assert not any("://" in name for name in names)
    assert config["theme"]["highlightjs"] is False  # the theme would take it from elsewhere
    style = ROOT / "docs" / "katex" / "katex.min.css"
    fonts = re.findall(r"url\(([^)]*)\)", style.read_text())
    assert fonts
    assert [name for name in fonts if not (style.parent / name).is_file()] == []
    assert [name for name in names if name != "pygments.css" and not (ROOT / "docs" / name).is_file()] == []


def test_links_between_pages_lead_somewhere():
    """In the repository; the site is checked by `mkdocs build --strict`."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if "://" in target:
                continue
            path = page if not target else (page.parent / target).resolve()
            assert path.exists(), f"{page}: {target}"
            if anchor:
                assert anchor in anchors(path), f"{page}: {target}#{anchor}"


def anchors(path):
    """Of headings, as GitHub and mkdocs name them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles]


def test_every_page_with_python_is_tried():
    elsewhere = {"docs/howto/cluster.md"}  # tests/forecasting/test_ray_train.py
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert {str(path.relative_to(ROOT)) for path in pages if blocks("python", path.read_text())} == {
        *SMALL,
        *elsewhere,
    }
