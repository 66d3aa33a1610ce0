"""The scripts that make the tables of optimisation and of expectation propagation, made small."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    """Import a script, and call it as the shell does."""
    before = torch.get_default_dtype()

    def call(name: str, *arguments: object):
        module = importlib.import_module(name)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        module.main()
        return module

    yield call
    torch.set_default_dtype(before)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_optimisation_goes_on_where_it_stopped(script, tmp_path):
    pytest.importorskip("sklearn")
    options = ["--functions", "branin", "--seeds", 7, "--evaluations", 12, "--output", tmp_path / "table.csv"]
    options += ["--picture", tmp_path / "picture.png", "--methods"]
    script("experiments.bayesopt.run", *options, "random", "gp")
    script("experiments.bayesopt.run", *options, "random", "tpe", "vd-ekf", "gp")
    rows = rows_of(tmp_path / "table.csv")
    assert [row["method"] for row in rows] == ["random", "gp", "tpe", "vd-ekf"]
    for row in rows:
        regrets = [float(x) for x in row["regrets"].split()]
        assert len(regrets) == 12
        assert regrets == sorted(regrets, reverse=True)
        assert regrets[-1] > 0
    first = [row["regrets"].split()[:10] for row in rows if row["method"] in ("gp", "vd-ekf")]
    assert first[0] == first[1]  # the same points to begin with
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_table_of_expectation_propagation(script, tmp_path, monkeypatch):
    module = importlib.import_module("experiments.streams.ep")
    monkeypatch.setattr(module, "SIZES", {"rates": [16, 128], "sampling": [50], "seconds": [20]})
    options = ["--seeds", 0, "--output", tmp_path / "table.csv", "--images", tmp_path, "--pool", 300, "--steps", 120]
    script("experiments.streams.ep", *options, "--parts", "rates", "sampling", "seconds")
    script("experiments.streams.ep", *options)
    rows = rows_of(tmp_path / "table.csv")
    errors = {(r["part"], r["size"], r["method"]): float(r["mean_error"]) for r in rows if r["mean_error"]}
    for part, size in (("rates", "16"), ("rates", "128")):
        assert errors[part, size, "ep"] < 0.2 * errors[part, size, "laplace"]
        assert errors[part, size, "ep"] < 0.2 * errors[part, size, "adf"]
    assert errors["rates", "16", "fab-cost"] == pytest.approx(errors["rates", "16", "ep"], rel=1e-2)
    assert errors["sampling", "50", "importance sampling"] < 0.01
    clicks = [row for row in rows if row["part"] == "clicks"]
    assert [row["method"] for row in clicks] == list(module.POLICIES)
    for row in clicks:
        curve = np.array([float(x) for x in row["curve"].split()])
        assert (np.diff(curve) >= 0).all()
        assert curve[-1] == float(row["clicks"])
    assert (tmp_path / "ep-errors.png").exists()
    assert (tmp_path / "ep-clicks.png").exists()
