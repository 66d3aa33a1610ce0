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
    options = ["--folder", folder, "--data", "yacht", "--particles", 3, "--steps", 20, "--rate", 0.03, "--splits", 1, 3]
    script("stein", *options, "--output", table, "--methods", "svgd")
    script("stein", *options, "--output", table)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["svgd"] * 2 + ["s2vgd"] * 2
    assert all(float(row["rmse"]) < 14 for row in rows)  # the targets' deviation is 14
    script("stein", *options, "--output", tmp_path / "none.csv", "--validate", "--methods", "svgd")
    assert not (tmp_path / "none.csv").exists()
    (tmp_path / "raw" / "yacht" / "data" / "index_target.txt").unlink()
    with pytest.raises(ValueError, match=r"expected data\.txt and its index files"):
        script("uci_splits", tmp_path / "raw")


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_shards_are_fused_beside_one_learner_of_all(script, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    labels = np.where(x[:, 0] > 0, "right", "left")
    lines = [f"{a},{b},{label}" for (a, b), label in zip(x, labels, strict=True)]
    (tmp_path / "set.csv").write_text("a,b,target\n" + "\n".join(lines))
    options = ["--data", tmp_path / "set.csv", "--points", 80, "--test", 20, "--seeds", 0, "--learners", "vd-ekf"]
    script("fusion", *options, "--shards", 1, 2, "--output", tmp_path / "table.csv")
    script("fusion", *options, "--shards", 2, "--together", 16, "--output", tmp_path / "table.csv")
    script("fusion", *options, "--shards", 1, 2, "--output", tmp_path / "table.csv")
    found = rows_of(tmp_path / "table.csv")
    assert [row["method"] for row in found] == ["all", *["fused", "average", "experts", "shard"] * 2]
    assert all(0 <= float(row["error"]) < 0.6 for row in found)


def test_auto_encoders_of_halves_are_scored_by_all_bounds(script, tmp_path):
    rng = np.random.default_rng(0)
    images = {f"x_{part}": rng.integers(0, 256, (20, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **images)
    options = ["--mnist", tmp_path / "mnist.npz", "--steps", 2, "--hidden", 8, "--latent", 2, "--test", 10]
    for _ in range(2):
        script("multi_source", *options, "--trained", "poe", "moe", "--output", tmp_path / "table.csv")
    found = rows_of(tmp_path / "table.csv")
    assert [(row["data"], row["trained"]) for row in found] == [(d, t) for d in ("tb", "qu") for t in ("poe", "moe")]
    assert all(0 < float(row["nats_missing"]) < float(row["nats_poe"]) for row in found)
