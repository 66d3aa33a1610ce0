"""The script of policies, made small."""

import csv
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_table_of_policies_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    table = tmp_path / "policies.csv"

    def call(*arguments: str) -> list[dict[str, str]]:
        monkeypatch.setattr(sys, "argv", ["policies", "--output", str(table), *arguments])
        importlib.import_module("experiments.policies.run").main()
        with table.open(newline="") as stream:
            return list(csv.DictReader(stream))

    small = ("--iterations", "2", "--horizon", "10", "--gradients", "a2c", "--agents", "svgd", "joint")
    first = call(*small, "--seeds", "0")
    assert [(row["agent"], row["particles"], row["episodes"]) for row in first] == [
        ("svgd", "16", "4"),
        ("joint", "1", "64"),
    ]
    assert all(0 < float(row["returned"]) <= float(row["best"]) <= 10 for row in first)
    both = call(*small, "--seeds", "0", "1")
    assert both[:2] == first
    assert [row["seed"] for row in both] == ["0", "0", "1", "1"]
    call("--summary")
    lines = capsys.readouterr().out.splitlines()
    assert [[x.strip() for x in line.split("|")[3:5]] for line in lines] == [["64", "svgd"], ["64", "joint"]]
    assert lines[0].split("|")[-2].strip() == "2"
    call("--draw", "--image", str(tmp_path / "images" / "policies.png"))
    assert (tmp_path / "images" / "policies.png").stat().st_size > 5000
