"""Pages of results: what they say comes from tables, and what is not as the tables say is found."""

import importlib
import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page_of():
    return importlib.import_module


def test_a_page_that_is_not_as_its_table_says_is_found(page_of, tmp_path):
    good, old = tmp_path / "good.md", tmp_path / "old.md"
    good.write_text("new")
    old.write_text("old")
    assert page_of("experiments.pages").stale({good: "new", old: "new"}) == [str(old)]


def test_every_page_with_a_table_of_its_own_is_among_them(page_of):
    """Whatever module of a topic makes a page is one of those that are checked."""
    paths = [*(ROOT / "experiments").glob("*/*.py"), *(ROOT / "experiments").glob("*.py")]
    makers = {path for path in paths if re.search(r"^def pages\(", path.read_text(), re.M)}
    makers -= {ROOT / "experiments" / "pages.py"}
    assert makers == {Path(module.__file__) for module in page_of("experiments.pages").MODULES}


def test_numbers_in_pages_have_no_zero_before_the_point(page_of):
    decimal = page_of("experiments.markdown").decimal
    assert [decimal(value) for value in (0.5, -0.25, 10.25, float("nan"))] == [".500", "-.250", "10.250", "-"]


def test_anomaly_scores_say_who_is_ahead_by_the_official_code_run_anew(page_of):
    rows = [
        {"detector": name, "files": files, "profile": profile, "score": score, "hits": 5, "windows": 9}
        | {"false_alarms": 3, "ms": 0.5}
        for name, files, score in (("detector", "all", 57.0), ("detector", "chosen", 56.0), ("detector", "other", 58.0))
        for profile in page_of("experiments.nab.page").PROFILES
    ]
    text = page_of("experiments.nab.page").page(pd.DataFrame(rows))
    assert "| htmjava | 65.5 | 53.3 → 58.8 | 70.4 |  |" in text
    assert "| `detector` | 57.0 | 57.0 | 57.0 | 0.5 |" in text
    assert "- low FP: contextOSE, ARTime, numenta, htmjava\n" in text
    assert "finds 5 of 9 windows, with 3 false alarms" in text


def test_the_summary_has_models_without_options_and_the_best_of_others(page_of):
    leaderboard = page_of("experiments.table1.page")
    cells = [
        ("auto", "default", 0, 0.2),
        ("issm", "default", 0, 0.3),
        ("issm", "default", 1, 0.5),
        ("gls", "best", 0, 0.1),
        ("kvae-rb", "default", 0, 0.18),
    ]
    cells += [("auto_ets", "baseline", 0, 0.15), ("deepar", "baseline", 0, 0.4)]
    rows = [
        {"dataset": "wiki", "model": model, "recipe": recipe, "seed": seed, "protocol": protocol, "crps": crps + more}
        | {"iterations": 1, "train_s": 1}
        for model, recipe, seed, crps in cells
        for protocol, more in (("rolling", 0), ("long_term", -0.3 if model == "deepar" else 0))
    ]
    *_, line = leaderboard.summary(pd.DataFrame(rows))
    ours = "| wiki | .2000 / .2000 | .4000 / .4000 | - | - | - | .1500 / .1000, `auto_ets` / `deepar` |"
    assert line == ours
    stats, _ = leaderboard.statistics(pd.DataFrame(rows))
    text = leaderboard.verdict(pd.DataFrame(stats["mean"]).droplevel("dataset"), "wiki")
    assert "Rolling: `auto` is 33.3 % behind `auto_ets` (0.15). Ahead by default: `kvae-rb`." in text
    assert "Long-term: `auto` is 100.0 % behind `deepar` (0.1)." in text


def test_the_table_of_particles_has_means_over_splits_and_says_what_was_not_run(page_of):
    rows = pd.DataFrame(
        [
            {"data": "boston", "method": "svgd", "rmse": rmse, "log_likelihood": -2 * rmse, "split": split}
            for split, rmse in enumerate((2.0, 4.0))
        ]
    )
    lines = page_of("experiments.stein.page").table(rows)
    assert "| boston | 0 and 2 | 2.96 / -2.50 | 3 (1) / -6 (2) | 2.56 / -2.43 | - |" in lines
    assert "| yacht | 0 | 0.86 / -1.23 | - | 0.47 / -0.81 | - |" in lines
