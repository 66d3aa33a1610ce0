"""`forecast` and `predict` with a hierarchy: tables that add up, and what does not go with it."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main
from tsforecast.forecasting import quick_bank

ALL = "(all)"


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Banks of sums learn little: forecasts add up whatever they have learnt."""
    monkeypatch.setattr(quick_bank, "_STEPS", 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three shops of two regions, and a bank trained on them."""
    folder = tmp_path_factory.mktemp("sums")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60)
    parts = [
        pd.DataFrame({"region": region, "shop": shop, "date": days, "sales": rng.poisson(size, 60)})
        for region, shop, size in (("N", "A", 20), ("N", "B", 1), ("S", "C", 9))
    ]
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    pd.DataFrame({"sum": ["N", "all"], "N/A": [1, 1], "N/B": [1, 1], "S/C": [0, 1]}).to_csv(
        folder / "sums.csv", index=False
    )
    options = ["--max_epochs", "0", "--windows", "0", "--prediction_length", "5", "--accelerator", "cpu"]
    item = ["--item", "region", "shop"]
    arguments = ["--data", str(folder / "sales.csv"), *item, *options, "--output", str(folder / "run")]
    assert main(["train", "bank", *arguments]) == 0
    return folder


def _check(means):
    assert (means >= 0).all(axis=None)
    np.testing.assert_allclose(means[ALL, ALL], means["N", "A"] + means["N", "B"] + means["S", "C"], atol=1e-6)
    np.testing.assert_allclose(means["N", ALL], means["N", "A"] + means["N", "B"], atol=1e-6)


def test_a_file_becomes_forecasts_of_all_sums(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["forecast", "sales.csv", "--horizon", "5", "--hierarchy", "region/shop"]) == 0
    table = pd.read_csv("sales-forecasts.csv")
    assert list(table.columns[:4]) == ["region", "shop", "date", "mean"]
    assert len(table) == 6 * 5
    _check(table.pivot(index="date", columns=["region", "shop"], values="mean"))
    assert (folder / "sales-forecasts.png").is_file()
    assert "3 series below 3 sums, of which 2 differ" in capsys.readouterr().err


def test_a_trained_model_writes_paths_that_add_up(folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = ["predict", "run", "--hierarchy", "region/shop", "--num_samples", "20"]
    assert main([*arguments, "--paths", "--output", "paths.csv"]) == 0
    paths = pd.read_csv("paths.csv")
    _check(paths.pivot(index=["path", "date"], columns=["region", "shop"], values="value"))


def test_a_kept_run_forecasts_its_sums_again(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    sums = ["--hierarchy", "region/shop", "--aggregate", "week"]
    words = ["forecast", "sales.csv", "--horizon", "14", *sums, "--plot_series", "0", "--output", "first.csv"]
    assert main([*words, "--keep", "kept"]) == 0
    assert "`predict` forecasts its sums, too" in capsys.readouterr().err
    assert main(["predict", "kept", "--output", "again.csv"]) == 0
    assert (folder / "again.csv").read_bytes() == (folder / "first.csv").read_bytes()
    assert main(["predict", "kept", "--known", "sales.csv", "--output", "known.csv"]) == 2
    assert "the run has it, and --hierarchy none --aggregate none leaves it out" in capsys.readouterr().err
    assert main(["predict", "kept", "--hierarchy", "none", "--aggregate", "none", "--output", "alone.csv"]) == 0
    alone = pd.read_csv("alone.csv")
    assert list(alone.columns[:4]) == ["region", "shop", "date", "mean"]
    assert len(alone) == 3 * 14
    assert main(["evaluate", "kept", "--baselines", "none", "--plot_series", "0"]) == 0
    scored = pd.read_csv(folder / "kept" / "per_series.csv", keep_default_na=False)
    assert {*scored["item_id"]} == {"N/A", "N/B", "S/C"}


def test_steps_of_a_file_add_up_to_periods(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = ["forecast", "sales.csv", "--item", "region", "shop", "--horizon", "14", "--aggregate", "week"]
    assert main([*arguments, "--output", "weeks.csv"]) == 0
    table = pd.read_csv("weeks.csv", parse_dates=["date"])
    assert list(table.columns[:5]) == ["region", "shop", "date", "period", "mean"]
    _check_weeks(table, ["region", "shop"], "mean")
    assert (folder / "weeks.png").is_file()
    assert "7 days of the horizon are in no whole 'week'" in capsys.readouterr().err


def test_paths_of_a_trained_model_add_up_to_periods(folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = ["predict", "run", "--aggregate", "week", "--prediction_length", "11", "--num_samples", "20"]
    assert main([*arguments, "--paths", "--output", "weeks.csv"]) == 0
    _check_weeks(pd.read_csv("weeks.csv", parse_dates=["date"]), ["region", "shop", "path"], "value")


def _check_weeks(table, keys, name):
    days, weeks = table[table["period"] == "day"], table[table["period"] == "week"]
    assert weeks["date"].unique().tolist() == [pd.Timestamp("2024-03-04")]
    within = days[days["date"].between("2024-03-04", "2024-03-10")]
    np.testing.assert_allclose(weeks.set_index(keys)[name], within.groupby(keys)[name].sum(), atol=1e-6)


def test_a_summing_matrix_is_a_hierarchy_too(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "--hierarchy", "sums.csv", "--output", "sums-out.csv"]) == 0
    means = pd.read_csv("sums-out.csv", keep_default_na=False).pivot(index="date", columns="item_id", values="mean")
    np.testing.assert_allclose(means["all"], means[["N/A", "N/B", "S/C"]].sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(means["N"], means[["N/A", "N/B"]].sum(axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hierarchy", "region/store"], "there is no column 'store'"),
        (["--hierarchy", "region/shop", "--start", "each"], "with --start common"),
        (["--hierarchy", "region/shop", "--known", "sales.csv"], "without --known"),
        (["--aggregate", "week", "--start", "each"], "--aggregate goes with a file as --output, without --known"),
        (["--aggregate", "fortnight"], "expected --aggregate to be 'hour', 'day'"),
        (["--aggregate", "month"], "no whole 'month' lies within the horizon of 5 days"),
        (["--hierarchy", "none.csv"], "there is no summing matrix none.csv"),
    ],
)
def test_what_does_not_go_with_a_hierarchy_is_said(folder, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "--output", "out.csv", *arguments]) != 0
    assert said in capsys.readouterr().err
