"""Hierarchies: levels of columns that nest and cross, summing matrices, and the entries of sums."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tsforecast.data import Columns, read_task
from tsforecast.data.hierarchy import ALL, find_hierarchy, with_levels

STEPS = 12


def _frame(shops=(("N", "A"), ("N", "B"), ("S", "A")), names=("region", "shop"), seed=0):
    rng = np.random.default_rng(seed)
    days = pd.date_range("2024-01-01", periods=STEPS)
    parts = [
        pd.DataFrame({**dict(zip(names, cells, strict=True)), "date": days, "sales": rng.integers(1, 99, STEPS)})
        for cells in shops
    ]
    return pd.concat(parts, ignore_index=True)


def _find(frame, given, **columns):
    roles = Columns(target="sales", **columns)
    task = read_task(frame, "D", 2, columns=with_levels(roles, given), beyond=True)
    return find_hierarchy(given, task.ending_together(), roles.items)


def test_levels_nest_from_the_top():
    frame = _frame()
    tree, nodes = _find(frame, "region/shop")
    assert tree.bottoms == ("N/A", "N/B", "S/A")  # shop A of each region is another
    assert tree.aggregates == (f"{ALL}/{ALL}", f"N/{ALL}", f"S/{ALL}")
    assert tree.sums.toarray().tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 1]]
    by_item = {entry["item_id"]: entry["target"] for entry in nodes.entries}
    assert [*by_item] == [f"{ALL}/{ALL}", f"N/{ALL}", *tree.bottoms]  # S is its only shop
    np.testing.assert_array_equal(by_item[f"N/{ALL}"], frame[frame.region == "N"].groupby("date").sales.sum())
    assert tree.expanded([*by_item]) == [f"{ALL}/{ALL}", f"N/{ALL}", "S/A", *tree.bottoms]


def test_groups_cross():
    cells = [(region, shop, kind) for region, shop in (("N", "A"), ("N", "B"), ("S", "C")) for kind in ("x", "y")]
    tree, _ = _find(_frame(cells, ("region", "shop", "kind")), ["region/shop", "kind"])
    levels = {tuple(part == ALL for part in name.split("/")) for name in tree.aggregates}
    every = {(r, s, k) for r, s in ((True, True), (False, True), (False, False)) for k in (True, False)}
    assert levels == every - {(False, False, False)}
    assert len(tree.aggregates) == 1 + 2 + 2 + 4 + 3
    row = tree.aggregates.index(f"N/{ALL}/x")
    assert [tree.bottoms[k] for k in np.flatnonzero(tree.sums.toarray()[row])] == ["N/A/x", "N/B/x"]


def test_a_summing_matrix_says_the_same_from_a_frame_and_a_file(tmp_path):
    frame = _frame((("A",), ("B",), ("C",)), ("shop",))
    matrix = pd.DataFrame({"sum": ["total", "net", "A"], "A": [1, 1, 1], "B": [1, -1, 0], "C": [1, 0, 0]})
    path = tmp_path / "sums.csv"
    matrix.to_csv(path, index=False)
    matrix.to_excel(path.with_suffix(".xlsx"), index=False)
    for given in (matrix, pl.from_pandas(matrix), path, str(path), [str(path)], str(path.with_suffix(".xlsx"))):
        tree, nodes = _find(frame, given)
        assert (tree.aggregates, tree.bottoms) == (("total", "net"), ("A", "B", "C"))
        a, b = (frame[frame.shop == name].sales.to_numpy() for name in "AB")
        np.testing.assert_array_equal(nodes.entries[1]["target"], a - b)


def test_a_series_counts_as_0_before_it_begins_and_small_gaps_are_filled():
    frame = _frame((("A",), ("B",)), ("shop",))
    frame["sales"] = np.where(frame.shop == "A", 100.0, 1.0)
    day = frame.date.rank(method="dense").astype(int) - 1
    kept = ~((frame.shop == "B") & (day.isin([0, 1, 5])) | (frame.shop == "A") & (day == 8))
    _, nodes = _find(frame[kept], "shop")
    expected = np.full(STEPS, 101.0)
    expected[:2] = 100
    expected[8] = np.nan  # 100 of 101 would be made up; at 5 it is 1 of 101
    np.testing.assert_array_equal(nodes.entries[0]["target"], expected)


def test_given_sums_fill_what_gaps_leave_open_and_must_agree():
    frame = _frame((("A",), ("B",), (ALL,)), ("shop",))
    day = frame.date.rank(method="dense").astype(int) - 1
    total = frame[frame.shop != ALL].groupby("date").sales.sum().to_numpy()
    frame.loc[frame.shop == ALL, "sales"] = total
    _, nodes = _find(frame[~((frame.shop == "A") & (day == 4))], "shop")
    np.testing.assert_array_equal(nodes.entries[0]["target"], total)
    frame.loc[(frame.shop == ALL) & (day == 7), "sales"] += 3
    with pytest.raises(ValueError, match=r"'\(all\)' is \d+ at 2024-01-08.*differs at 1 step"):
        _find(frame, "shop")


def test_covariates_of_a_sum_are_means():
    frame = _frame((("A",), ("B",)), ("shop",))
    frame["price"] = np.where(frame.shop == "A", 2.0, 4.0)
    more = pd.DataFrame({"date": pd.date_range("2024-01-13", periods=2)})
    ahead = [more.assign(shop=shop, price=price) for shop, price in (("A", 3.0), ("B", 5.0))]
    _, nodes = _find(pd.concat([frame, *ahead]), "shop", covariates=["price"])
    np.testing.assert_array_equal(nodes.entries[0]["feat_dynamic_real"], [[3.0] * STEPS + [4.0, 4.0]])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("region/shop/region", "each column once"),
        ("region//shop", "each column once"),
        ("area/shop", "there is no column 'area'"),
        ("nowhere.csv", "there is no summing matrix nowhere.csv"),
        ([["region"], ["region", "shop"]], "expected hierarchy such as region/shop, .* or a summing matrix as a frame"),
        (np.eye(2), "expected hierarchy such as region/shop, .* or a summing matrix as a frame"),
    ],
)
def test_levels_that_are_not_there_are_named(given, match):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        _find(_frame(), given)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"D": [1, 0]}, "a column 'D', which is no series"),
        ({"B": [1, np.nan]}, "has 'nan' in row 'half', column 'B'"),
        ({"A": [1, 0], "B": [1, 0]}, "no series in its row 'half'"),
        ({"sum": ["total", "total"]}, "two rows 'total'"),
        ({"sum": ["total", "A"]}, "'A' as a series and, with other weights, as a sum"),
        ({"B": None}, "series that the summing matrix lacks: 'B'"),
    ],
)
def test_wrong_summing_matrices_are_explained(change, match):
    matrix = pd.DataFrame({"sum": ["total", "half"], "A": [1, 0], "B": [1, 1]}).assign(**change)
    with pytest.raises(ValueError, match=match):
        _find(_frame((("A",), ("B",)), ("shop",)), matrix.drop(columns=["B"]) if change == {"B": None} else matrix)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"sums\.csv: expected a summing matrix: its first column names the sums"),
        ("A,B\n1,1\n", "lacks: 'A'; .*; its first column, 'A', names the sums"),
    ],
)
def test_files_that_are_no_summing_matrix_are_explained(text, match, tmp_path):
    (tmp_path / "sums.csv").write_text(text)
    frame = _frame((("A",), ("B",)), ("shop",))
    with pytest.raises(ValueError, match=match):
        _find(frame, str(tmp_path / "sums.csv"))
    (tmp_path / "sums.csv").write_text("sum;A;B\ntotal;1;1\n")
    assert _find(frame, str(tmp_path / "sums.csv"))[0].aggregates == ("total",)


def test_a_series_with_two_parents_is_named():
    with pytest.raises(ValueError, match="'A' is in two places of the hierarchy, 'N/A' and 'S/A'"):
        _find(_frame(), "region/shop", item="shop")


def test_one_series_has_no_sums():
    with pytest.raises(ValueError, match="one sum at least has two series, got 1 series"):
        _find(_frame((("A",),), ("shop",)), "shop")


def test_several_targets_and_static_columns_are_refused():
    frame = _frame((("A",), ("B",)), ("shop",)).assign(visits=1, kind="x")
    task = read_task(frame, "D", 2, columns=Columns(item="shop", target=["sales", "visits"]), beyond=True)
    with pytest.raises(ValueError, match="expected one target with a hierarchy"):
        find_hierarchy("shop", task)
    with pytest.raises(ValueError, match="expected no static columns with a hierarchy, got feat_static_cat"):
        _find(frame, "shop", static_categories=["kind"])
