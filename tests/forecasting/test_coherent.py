"""Forecasts of hierarchies: paths that add up, their marginals, values that stay positive, and frames."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from gluonts.model.forecast import SampleForecast
from scipy import sparse, special

import tsforecast
from tsforecast import Forecaster
from tsforecast.data import Columns, read_task
from tsforecast.data.hierarchy import ALL, Hierarchy, find_hierarchy, with_levels
from tsforecast.forecasting import coherent
from tsforecast.forecasting.coherent import Joint, Marginals, coherent_forecasts, joint_paths
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.reconciliation import Correlation

STEPS, HORIZON = 40, 3
SHOPS = [("N", "A"), ("N", "B"), ("S", "C"), ("S", "D"), ("W", "E")]
TREE = Hierarchy(("a", "b", "c"), ("all", "ab"), sparse.csr_array(np.array([[1.0, 1, 1], [1, 1, 0]])))


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=STEPS)
    common = rng.normal(size=STEPS)
    parts = [
        pd.DataFrame(
            {"region": region, "shop": shop, "day": days, "sales": 20 + 3 * common + 3 * rng.normal(size=STEPS)}
        )
        for region, shop in SHOPS
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def nodes(frame):
    columns = with_levels(Columns(target="sales"), "region/shop")
    task = read_task(frame, "D", HORIZON, columns=columns, beyond=True)
    return find_hierarchy("region/shop", task.ending_together())


def _by_mean(entries):
    """Forecast each series alone by its mean and standard deviation, with sums that are a tenth too large."""
    middles = special.ndtri((np.arange(499) + 0.5) / 499)
    for entry in entries:
        mean, deviation = np.nanmean(entry["target"]), np.nanstd(entry["target"])
        mean *= 1.1 if ALL in entry["item_id"] else 1.0
        samples = np.repeat((mean + deviation * middles)[:, None], HORIZON, axis=1)
        start = entry["start"] + len(entry["target"])
        yield SampleForecast(samples, start, entry["item_id"], entry.get("info"))


def test_every_path_and_the_means_add_up(nodes):
    tree, task = nodes
    found = {one.item_id: one for one in coherent_forecasts(_by_mean, task, tree, num_samples=50)}
    assert [*found] == [*tree.aggregates, *tree.bottoms]
    for row, name in zip(tree.sums.toarray(), tree.aggregates, strict=True):
        members = [found[item] for item, weight in zip(tree.bottoms, row, strict=True) if weight]
        np.testing.assert_allclose(found[name].samples, sum(one.samples for one in members), atol=1e-6)
        np.testing.assert_allclose(found[name].mean, sum(one.mean for one in members), atol=1e-6)
    again = coherent_forecasts(_by_mean, task, tree, num_samples=50)
    assert all((one.samples == found[one.item_id].samples).all() for one in again)


def test_windows_before_the_end_say_how_nodes_move_together(nodes):
    _, task = nodes
    scores = coherent.window_scores(_by_mean, task)
    rows = scores.swapaxes(0, 1).reshape(len(task.entries), -1)
    assert not np.isnan(rows).any()
    shops = np.corrcoef(rows[-5:])
    error = 0.5 / np.sqrt(rows.shape[1])  # of a correlation of a half, were errors independent over time
    assert abs(shops[np.triu_indices(5, 1)].mean() - 0.5) < 4 * error


def test_paths_have_the_joint_distribution_given_the_sums():
    rng = np.random.default_rng(0)
    mean, deviation = np.array([70.0, 38, 20, 10, 30]), np.array([5.0, 4, 2, 3, 2])
    marginals = Marginals(mean[:, None], (mean[:, None] + deviation[:, None] * coherent._SCORES)[:, None])
    loading = np.sqrt(np.array([[0.6], [0.5], [0.4], [0.3], [0.2]]))
    across = Correlation(1 - np.square(loading[:, 0]), loading)
    count = 20_000
    paths = joint_paths(marginals, TREE, Joint(across, across, np.eye(1)), count, np.zeros(3, bool), rng)[:, 0]
    covariance = (np.diag(across.own) + loading @ loading.T) * np.outer(deviation, deviation)
    gap = np.concatenate([np.eye(2), -TREE.sums.toarray()], axis=1)
    gain = covariance @ gap.T @ np.linalg.inv(gap @ covariance @ gap.T)
    given = covariance - gain @ gap @ covariance
    np.testing.assert_allclose(paths.mean(0), mean - gain @ gap @ mean, atol=1e-8)
    error = np.sqrt((np.square(given) + np.outer(np.diag(given), np.diag(given))) / count)
    assert (np.abs(np.cov(paths.T) - given) < 5 * error + 1e-3 * deviation.min() ** 2).all()


def test_steps_of_a_path_move_together():
    marginals = Marginals(np.zeros((5, 2)), np.tile(coherent._SCORES, (5, 2, 1)))
    across = Correlation(np.ones(5), np.zeros((5, 1)))
    over_time = np.array([[1.0, 0.8], [0.8, 1.0]])
    joint = Joint(across, across, over_time)
    paths = joint_paths(marginals, TREE, joint, 10_000, np.zeros(3, bool), np.random.default_rng(0))
    for node in range(5):
        found = np.corrcoef(paths[:, :, node].T)[0, 1]
        assert abs(found - 0.8) < 5 * (1 - 0.8**2) / np.sqrt(10_000)


@pytest.mark.parametrize(("deviation", "is_said"), [(0.65, True), (3.0, False)])
def test_series_that_were_never_negative_stay_so_and_it_is_said(deviation, is_said, caplog):
    caplog.set_level("INFO")
    mean, spread = np.array([60.0, 0.5, 3, 3, 60]), np.array([5.0, deviation / 2, deviation, deviation, 5])
    quantiles = np.maximum(mean[:, None] + spread[:, None] * coherent._SCORES, 0)  # from 0 up, if three deviations are
    marginals = Marginals(mean[:, None], quantiles[:, None])
    independent = Correlation(np.ones(5), np.zeros((5, 1)))
    joint = Joint(independent, independent, np.eye(1))
    free, positive = (
        joint_paths(marginals, TREE, joint, 2000, np.full(3, bound), np.random.default_rng(0))[:, 0]
        for bound in (False, True)
    )
    assert (free[:, 2:4] < 0).any()
    assert (positive >= 0).all()
    np.testing.assert_allclose(positive[:, 0], positive[:, 2:].sum(1), atol=1e-8)
    assert any("were below 0, and are 0" in one for one in caplog.messages) == is_said
    assert (positive[:, 2] == 0).mean() >= (0 if is_said else special.ndtr(-1))  # forecast to be 0: stays so


def test_values_keep_the_mean_and_zeros():
    known = np.array([0.0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    marginals = Marginals(np.array([[4.0], [4.0]]), np.stack([known, known - 2])[:, None])
    values = marginals.values(0, np.tile([-3.0, -2.5, 0.15, 3.5], (2, 1)))
    np.testing.assert_allclose(values.mean(1), 4)
    np.testing.assert_allclose(values[0], np.array([0, 0, 5.5, 13]) * 4 / 4.625)
    np.testing.assert_allclose(values[1], np.array([-2, -2, 3.5, 11]) + 4 - 2.625)


def test_scores_of_values_invert_quantiles():
    samples = np.repeat(coherent._SCORES.searchsorted(special.ndtri((np.arange(999) + 0.5) / 999))[:, None], 3, axis=1)
    start = pd.Period("2024-01-01", "D")
    found = coherent._scores([SampleForecast(samples, start)], np.array([[7.0, 100.0, np.nan]]))
    assert abs(found[0, 0]) < 0.3
    assert found[0, 1] == coherent._FARTHEST
    assert np.isnan(found[0, 2])


def test_short_series_move_together_as_their_changes(nodes, caplog):
    _, task = nodes
    caplog.set_level("INFO")
    short = [{**entry, "target": entry["target"][:6]} for entry in task.entries]
    joint = Joint.of(_by_mean, replace(task, entries=short))
    assert any("too many or too short for windows" in one for one in caplog.messages)
    assert not joint.weighed.common.any()
    changes = np.diff([entry["target"] for entry in short])
    full = np.diag(joint.drawn.own) + joint.drawn.common @ joint.drawn.common.T
    np.testing.assert_allclose(full, np.corrcoef(changes), atol=1e-8)


@pytest.mark.parametrize("front", ["forecast", "Forecaster"])
def test_a_frame_of_forecasts_has_all_sums(frame, front):
    if front == "forecast":
        found = tsforecast.forecast(frame, HORIZON, columns={"target": "sales"}, hierarchy="region/shop")
    else:
        shops = Forecaster(HORIZON, columns={"item": "shop", "target": "sales"}).fit(frame)
        found = shops.predict(hierarchy="region/shop")
    assert list(found.columns[:4]) == ["region", "shop", "day", "mean"]
    assert len(found) == (1 + 3 + 5) * HORIZON
    means = found.pivot_table(index="day", columns=["region", "shop"], values="mean")
    shops = means[[pair for pair in means if ALL not in pair]]
    np.testing.assert_allclose(means[(ALL, ALL)], shops.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(means[("S", ALL)], shops["S"].sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(means[("W", ALL)], shops["W"]["E"], atol=1e-12)


def test_series_of_a_hierarchy_end_together(frame):
    with pytest.raises(ValueError, match="start='common' with a hierarchy"):
        tsforecast.forecast(frame, HORIZON, columns={"target": "sales"}, hierarchy="region/shop", start="each")


def test_scores_of_exact_forecasts_are_those_among_their_quantiles(frame):
    columns = Columns(item=["region", "shop"], target="sales")
    task = read_task(frame, "D", HORIZON, columns=columns, beyond=True)
    forecasts = list(fitted(task).predict(task.latest, num_samples=0))
    actual = np.tile([[15.0, 22.0, np.nan]], (len(SHOPS), 1))
    found = coherent._scores(forecasts, actual)
    assert np.isnan(found[:, 2]).all()
    for k, score in np.ndenumerate(found[:, :2]):  # the quantile of the probability below a value is the value
        again = forecasts[k[0]].quantile(float(special.ndtr(score)))[k[1]]
        np.testing.assert_allclose(again, actual[k], rtol=1e-6)
