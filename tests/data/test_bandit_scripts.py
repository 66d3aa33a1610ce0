"""The sets of `datasets/bandits.py`, from small files in the raw form."""

import gzip
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.decisions.tables import PREPARED, make_environment, read_table

ROOT = Path(__file__).parent.parent.parent
ADULT = "39, State-gov, 77516, Bachelors, 13, Single, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, US, "
MUSHROOM = "p,x,s,n,t,p,f,c,n,k,e,?,s,s,w,w,p,w,o,p,k,s,u\ne,x,s,y,t,a,f,c,b,k,e,c,s,s,w,w,p,w,o,p,n,n,g\n"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Runs the script, and returns the table."""
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(ROOT / "datasets"))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", ["bandits.py", name, *map(str, arguments)])
        runpy.run_path(str(ROOT / "datasets" / "bandits.py"), run_name="__main__")
        return read_table(name)

    return run


def test_adult(prepare, tmp_path):
    (tmp_path / "adult.data").write_text(f"{ADULT}<=50K\n{ADULT.replace('State-gov', '?')}>50K\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{ADULT.replace('39', '50')}>50K.\n")
    table = prepare("adult", tmp_path / "adult.data", tmp_path / "adult.test")
    assert table.names == ("above", "below")
    assert table.labels.tolist() == [1, 0]
    assert table.contexts[:, 0].tolist() == [39, 50]


def test_covertype_has_the_published_shares(prepare, tmp_path):
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(1, 8), 10)
    np.savez(tmp_path / "cover.npz", values=rng.integers(0, 9, (70, 54)), label=kinds)
    table = prepare("covertype", tmp_path / "cover.npz")
    shares = np.bincount(table.labels, minlength=7)[table.names.index("lodgepole")] / len(table.labels)
    assert abs(shares - 0.4876) < 4 * np.sqrt(0.4876 * 0.5124 / 40_000)
    rows = "\n".join(",".join(map(str, [*row, kind])) for kind, row in enumerate(rng.integers(0, 9, (7, 54)), 1))
    (tmp_path / "covtype.data").write_text(rows)
    assert len(prepare("covertype", "--balanced", tmp_path / "covtype.data").labels) == 7


def test_shuttle_and_mushrooms(prepare, tmp_path):
    for name, state in (("shuttle.trn", 4), ("shuttle.tst", 1)):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(f"50 21 77 0 28 0 27 48 22 {state}\n")
    table = prepare("shuttle", tmp_path / "shuttle.trn", tmp_path / "shuttle.tst")
    assert (table.names, table.contexts.shape) == (("high", "radiator"), (2, 9))
    (tmp_path / "mushroom.data").write_text(MUSHROOM)
    table = prepare("mushroom", tmp_path / "mushroom.data")
    assert table.labels.tolist() == [1, 0]
    rounds = make_environment(table, 40, 0)
    assert sorted(set(rounds.expected.flatten().tolist())) == [-15, 0, 5]
    assert set(rounds.rewards[:, 1].tolist()) <= {5.0, -35.0}
    assert rounds.rewards[:, 0].abs().max() == 0


def test_movielens(prepare, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{u}\t{f}\t{rng.integers(1, 6)}\t88" for u in range(1, 9) for f in range(1, 9) if (u + f) % 3]
    (tmp_path / "u.data").write_text("\n".join(rows))
    table = prepare("movielens", "--films", 4, "--factors", 3, tmp_path / "u.data")
    assert (table.contexts.shape, table.rewards.shape, table.labels) == ((8, 3), (8, 4), None)
    assert ((table.rewards >= 1) & (table.rewards <= 5)).all()
    rounds = make_environment(table, 16, 0, changes=True)
    assert sorted(rounds.rewards[:8, 0].tolist()) == sorted(rounds.rewards[8:, 1].tolist())


BROKEN = {
    "adult": ("1, 2\n", "rows of 15 columns"),
    "covertype": ("1,2,3\n", "55 columns"),
    "shuttle": ("1 2 3\n", "10 columns"),
    "mushroom": (MUSHROOM.replace("e,x,s,y", "z,x,s,y"), "class e or p, got 'z'"),
    "movielens": ("1\t1\t9\t88\n", "ratings from 1 to 5"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_of_another_form_are_refused(name, prepare, tmp_path):
    content, message = BROKEN[name]
    (tmp_path / "raw").write_text(content)
    sources = [word for word in PREPARED[name].split()[2:]]
    with pytest.raises(SystemExit, match=message):
        prepare(name, *[tmp_path / "raw" for _ in sources])
    with pytest.raises(SystemExit, match="no file"):
        prepare(name, *[tmp_path / "nowhere" for _ in sources])


def test_labels_change_half_way(tmp_path):
    pd.DataFrame({"x": range(9), "target": list("abcabcabc")}).to_csv(tmp_path / "t.csv", index=False)
    rounds = make_environment(read_table(tmp_path / "t.csv"), 18, 0, changes=True)
    right = rounds.rewards.argmax(-1)
    labels = rounds.contexts[:, 0].long() % 3
    assert torch.equal(right[:9], labels[:9])
    assert torch.equal(right[9:], (labels[9:] + 1) % 3)
