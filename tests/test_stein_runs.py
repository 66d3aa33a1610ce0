"""The scripts that make the table of SVGD and S2VGD, made small."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script(monkeypatch):
    """Import a script of a folder, and call it as the shell does."""
    monkeypatch.syspath_prepend(str(ROOT / "runs"))
    monkeypatch.syspath_prepend(str(ROOT / "datasets"))

    def call(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        importlib.import_module(name).main()

    return call


def raw_set(folder: Path, rows: int = 60) -> None:
    """As the shared folders of papers are."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    np.savetxt(folder / "data.txt", np.column_stack([x, 100 + 10 * x.sum(1) + rng.normal(size=rows)]))
    np.savetxt(folder / "index_features.txt", [0, 1], fmt="%d")
    np.savetxt(folder / "index_target.txt", [2], fmt="%d")
    for k in range(4):
        np.savetxt(folder / f"index_test_{k}.txt", rng.permutation(rows)[:6], fmt="%d")


def test_splits_are_prepared_and_a_table_goes_on_where_it_stopped(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "data"))
    raw_set(tmp_path / "raw" / "yacht" / "data")
    script("uci_splits", tmp_path / "raw")
    folder, table = tmp_path / "data" / "uci-splits", tmp_path / "table.csv"
    options = ["--folder", folder, "--data", "yacht", "--particles", 3, "--steps", 60, "--rate", 0.03, "--splits", 1, 3]
    script("stein", *options, "--output", table, "--methods", "svgd")
    script("stein", *options, "--output", table)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["svgd"] * 2 + ["s2vgd"] * 2
    assert all(float(row["rmse"]) < 10 for row in rows)  # the targets' deviation is 14
    script("stein", *options, "--output", tmp_path / "none.csv", "--validate", "--methods", "svgd")
    assert not (tmp_path / "none.csv").exists()
    (tmp_path / "raw" / "yacht" / "data" / "index_target.txt").unlink()
    with pytest.raises(ValueError, match=r"expected data\.txt and its index files"):
        script("uci_splits", tmp_path / "raw")
