"""Names of regimes by what series do in them."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.analysis.regime_names import describe, named
from tsforecast.analysis.regimes import RegimeReport


def example(rows, steps=2000):
    """A table of regimes known for certain, and a series of them: (level, coefficient, noise) of each, in turns."""
    rng, values, path = np.random.default_rng(0), [0.0], []
    for step in range(steps):
        regime = step // 200 % len(rows)
        level, slope, noise = rows[regime]
        values.append(level + slope * (values[-1] - level) + noise * rng.normal())
        path.append(regime)
    known = np.eye(len(rows))[path]
    table = pd.DataFrame({"item_id": "a", **{f"p_{k + 1}": column for k, column in enumerate(known.T)}})
    entry = {"item_id": "a", "target": np.array(values[1:])}
    return table.assign(most_likely=np.array(path) + 1), entry


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (((0.0, 0.0, 0.1), (0.0, 0.0, 1.0)), ["calm", "wild"]),
        (((5.0, 0.5, 1.0), (0.0, 0.5, 1.0)), ["high", "low"]),
        (((0.0, 0.98, 0.3), (0.0, 0.2, 1.0)), ["calm, persistent", "wild, reverting"]),
        (((0.0, 0.5, 1.0), (0.0, 0.5, 1.0)), ["usual (1)", "usual (2)"]),
    ],
)
def test_a_name_says_what_sets_a_regime_apart(rows, names):
    table, entry = example(rows)
    assert list(describe(table, [entry])["name"]) == names


def test_numbers_are_those_that_made_the_series():
    rows = ((0.0, 0.9, 0.3), (4.0, 0.2, 1.0))
    table, entry = example(rows, 4000)
    entry["target"][50:60] = np.nan
    found = describe(table, [entry])
    spread = np.nanstd(entry["target"])
    for row, (_, slope, noise) in zip(found.itertuples(), rows, strict=True):
        count = 0.5 * len(table)
        assert abs(row.noise * spread - noise) < 4 * noise / np.sqrt(2 * count) + 0.1 * noise  # of moves between levels
        assert abs(row.persistence - slope) < 4 * np.sqrt((1 - slope**2) / count) + 0.1
    report = named(RegimeReport(table, pd.DataFrame({"before": [1], "after": [2]}), table), found)
    assert report.changes[["before_name", "after_name"]].iloc[0].tolist() == found["name"].tolist()
    assert set(report.regimes["name"]) == set(found["name"])


def test_a_regime_that_is_hardly_there_has_no_numbers():
    table, entry = example(((0.0, 0.0, 0.1), (0.0, 0.0, 1.0)))
    found = describe(table.assign(p_3=5e-4), [entry])
    assert list(found["name"]) == ["calm", "wild", "unvisited"]
    assert found.loc[2, ["level", "noise", "persistence"]].isna().all()
    assert found.loc[:1].notna().all(axis=None)
