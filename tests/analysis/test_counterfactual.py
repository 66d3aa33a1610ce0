"""Structural models by evidence: filters, marginal likelihoods and paths beside the joint Gaussian of all steps."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from tsforecast.analysis import counterfactual, whitening
from tsforecast.analysis.counterfactual import paths
from tsforecast.analysis.regression import (
    RegressionPrior,
    Whitened,
    draw,
    log_evidence,
    sizes_of_controls,
    sizes_of_growth,
)
from tsforecast.analysis.structures import _WEIGHTS, STRUCTURES, Grid, Point, StructuralModel, System
from tsforecast.analysis.whitening import Past, whiten
from tsforecast.core.seasonal import Season

pytestmark = pytest.mark.usefixtures("unchecked_module")

POINT = Point(0.3, 0.02, 0.8, 0.5, 0.6)
SEASON = 0.1


def one(*values):
    return torch.tensor(values, dtype=torch.float64)


class Single(StructuralModel):
    """One point of the grid."""

    def grid(self):
        return Grid(*(one(x) for x in (*POINT, SEASON if self.seasons else 0.0, 0.2 if self.moves else 0.0, 0.0)))


def covariance(steps, index=None):
    """Covariance of all steps, but for a level and factors that begin anywhere; and the columns of these."""
    time = np.arange(steps)
    lag = np.abs(time[:, None] - time)
    least = np.minimum(time[:, None], time)
    found = np.eye(steps) + POINT.level * (least + 1) + POINT.wandering / (1 - POINT.damping**2) * POINT.damping**lag
    # A slope that returns adds up.
    slope = POINT.slope / (1 - POINT.growth**2) * POINT.growth**lag
    adds = np.tril(np.ones((steps, steps)))
    found += adds @ slope @ adds.T
    free = [np.ones(steps)]
    if index is not None:
        # The noise moves the factor that is active at a step.
        moved = np.array(
            [[(index[: min(t, s) + 1] == index[t]).sum() * (index[t] == index[s]) for s in time] for t in time]
        )
        ratio = SEASON * (1 + 0.0)
        found += ratio * moved
        free += [(index == k) * 1.0 for k in range(index.max())]
    return found, np.stack(free, 1)


def restricted(cov, free):
    """The matrix of the restricted likelihood, its log determinant, and its degrees of freedom (Harville 1974)."""
    inverse = np.linalg.inv(cov)
    inner = free.T @ inverse @ free
    projected = inverse - inverse @ free @ np.linalg.solve(inner, free.T @ inverse)
    return projected, np.linalg.slogdet(cov)[1] + np.linalg.slogdet(inner)[1], len(cov) - free.shape[1]


@pytest.mark.parametrize("seasonal", [False, True])
@pytest.mark.parametrize("gaps", ["none", "common", "own"])
def test_filters_whiten_as_the_restricted_likelihood_does(seasonal, gaps):
    generator, steps, series = torch.Generator().manual_seed(0), 40, 3
    values = torch.randn(steps, series, generator=generator, dtype=torch.float64)
    controls = torch.randn(steps + 5, series, 2, generator=generator, dtype=torch.float64)
    observed = torch.ones(steps, series, dtype=torch.bool)
    if gaps != "none":
        observed[[5, 17, 18]] = False
    if gaps == "own":
        observed[20, 1] = False
    index = torch.arange(steps + 5).unsqueeze(1) % 4
    model = Single((Season(4),) if seasonal else ())
    past = Past(values * observed, observed, controls, index if seasonal else index[:, :0])
    grid = model.grid()
    found, _ = whiten(model, grid, System.of(model, grid, past.index), past)
    cov, free = covariance(steps, index[:steps, 0].numpy() if seasonal else None)
    columns = whitening.columns_of(past)[:steps]
    for k in range(series):
        seen = observed[:, k].numpy()
        projected, _, degrees = restricted(cov[np.ix_(seen, seen)], free[seen])
        own = np.column_stack([columns[:, k].numpy(), values[:, k].numpy()])[seen]
        np.testing.assert_allclose(found.gram[0, k], own.T @ projected @ own, rtol=1e-5, atol=1e-5)
        assert found.count[k] == degrees


def test_evidence_is_that_of_the_restricted_likelihood_over_points():
    """Differences between points, where what all share cancels."""
    steps = 30
    past = Past(
        torch.randn(steps, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
        torch.ones(steps, 1, dtype=torch.bool),
        torch.zeros(steps + 1, 1, 0).double(),
        torch.zeros(steps + 1, 0).long(),
    )
    model = StructuralModel()
    grid = model.grid()
    found, _ = whiten(model, grid, System.of(model, grid, past.index), past)
    evidence, prior = log_evidence(found, counterfactual.prior_of(model, grid, past))[0, :, 0], grid.log_weight
    time = np.arange(steps)
    level = {k: float(grid.level[k]) for k in range(len(grid.level)) if grid.slope[k] == 0 and grid.wandering[k] == 0}
    expected = {}
    for k, ratio in level.items():
        cov = np.eye(steps) + ratio * (np.minimum(time[:, None], time) + 1)
        projected, log_det, degrees = restricted(cov, np.ones((steps, 1)))
        left = past.values[:, 0].numpy() @ projected @ past.values[:, 0].numpy()
        power = 0.005 + degrees / 2
        expected[k] = float(prior[k]) - log_det / 2 - power * np.log(0.005 + left / 2) + np.log(0.75)
    assert len(expected) == 13
    np.testing.assert_allclose(
        [evidence[k, 0] - evidence[0, 0] for k in level],
        [x - expected[0] for x in expected.values()],
        rtol=1e-6,
        atol=1e-6,
    )


def test_sizes_of_coefficients_are_weighed_by_the_evidence():
    """Marginal likelihoods are multivariate Student-t; posterior means are those of their mixture."""
    rng, count = np.random.default_rng(0), 25
    design = rng.normal(size=(count, 3))  # two controls, and time
    values = design @ [0.6, 0.0, -0.4] + rng.normal(size=count)
    columns = torch.from_numpy(np.column_stack([design, values]))
    whitened = Whitened((columns.T @ columns)[None, None], one(0.0)[None], one(float(count)))
    prior = RegressionPrior(one(0.0), one(1.5), one(0.7), one(0.1, 2.0), one(-0.3, -1.2)[None], one(0.0, 5.0))
    evidence = log_evidence(whitened, prior)[0, 0]
    inner = design.T @ design
    means, expected = [], np.empty((2, 2))
    for i, of_controls in enumerate((0.1, 2.0)):
        before = np.diag(inner.diagonal()[:2] / (count * of_controls))
        left = inner[2, 2] - inner[2, :2] @ np.linalg.solve(inner[:2, :2] + before, inner[:2, 2])
        for j, of_growth in enumerate((1e-12, 5.0)):
            precision = np.zeros((3, 3))
            precision[:2, :2], precision[2, 2] = before, left / (count * of_growth)
            shape = np.eye(count) + design @ np.linalg.solve(precision, design.T)
            log_weight = (-0.3, -1.2)[j]
            expected[i, j] = log_weight + stats.multivariate_t(shape=shape * 0.7 / 1.5, df=3.0).logpdf(values)
            means.append(np.linalg.solve(inner + precision, design.T @ values))
    np.testing.assert_allclose(evidence - evidence[0, 0], expected - expected[0, 0], rtol=1e-8, atol=1e-8)
    weights = np.exp(expected - expected.max()).ravel()
    mean = weights @ np.array(means) / weights.sum()
    drawn = draw(whitened, prior, 40_000, torch.Generator().manual_seed(2)).coefficients[0]
    assert ((drawn.mean(0) - torch.from_numpy(mean)).abs() < 4.5 * drawn.std(0) / 200).all()


@pytest.mark.parametrize(("gaps", "moves"), [(False, False), (True, False), (True, True)])
def test_paths_are_those_of_the_posterior_by_brute_force(monkeypatch, gaps, moves):
    """One point of the grid without growth: a Student-t, by conditioning the joint Gaussian of all steps.

    A coefficient that moves begins at 0.
    """
    monkeypatch.setattr(counterfactual, "sizes_of_growth", lambda: (one(0.0), one(0.0)))
    monkeypatch.setattr(counterfactual, "sizes_of_controls", lambda number: one(0.0))
    steps, horizon = 24, 3
    values = torch.randn(steps, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    observed = torch.ones(steps, 2, dtype=torch.bool)
    observed[4] = False
    if gaps:
        observed[9, 1] = False
    index = torch.arange(steps + horizon).unsqueeze(1) % 4
    generator = torch.Generator().manual_seed(4)
    controls = torch.randn(steps + horizon, 2, int(moves), generator=generator, dtype=torch.float64)
    past = Past(values * observed, observed, controls, index)
    model = Single((Season(4),), moves=moves)
    drawn = paths(model, past, horizon, 40_000, torch.Generator().manual_seed(1))
    still, free = covariance(steps + horizon, index[:, 0].numpy())
    time = np.arange(steps + horizon)
    coefficient = 0.2 * (np.minimum(time[:, None], time) + 1)
    for k in range(2):
        cov = still + coefficient * (controls[:, k] @ controls[:, k].T).numpy()
        seen = np.append(observed[:, k].numpy(), np.zeros(horizon, bool))
        own, among, ahead = (
            values[seen[:steps], k].numpy(),
            cov[np.ix_(seen, seen)],
            cov[np.ix_(~seen, seen)][-horizon:],
        )
        projected, _, degrees = restricted(among, free[seen])
        inverse = np.linalg.inv(among)
        effects = np.linalg.solve(free[seen].T @ inverse @ free[seen], free[seen].T @ inverse @ own)
        mean = free[steps:] @ effects + ahead @ inverse @ (own - free[seen] @ effects)
        rest = free[steps:] - ahead @ inverse @ free[seen]
        joint = cov[steps:, steps:] - ahead @ inverse @ ahead.T
        joint = joint + rest @ np.linalg.solve(free[seen].T @ inverse @ free[seen], rest.T)
        df = 0.01 + degrees
        spread = torch.from_numpy(joint * (0.01 + own @ projected @ own) / (df - 2))
        centred = drawn[k] - torch.from_numpy(mean)
        assert (centred.mean(0).abs() < 4.5 * (spread.diagonal() / len(centred)).sqrt()).all()
        products = centred[:, :, None] * centred[:, None]
        assert ((products.mean(0) - spread).abs() < 4.5 * products.std(0) / len(centred) ** 0.5).all()


def test_a_series_has_the_same_paths_in_a_batch_and_beside_one_with_gaps():
    """Covariances of all series together, and of each: the same posterior."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(50, 2, generator=generator, dtype=torch.float64).cumsum(0)
    controls = torch.randn(60, 2, 1, generator=generator, dtype=torch.float64)
    whole = Past(values, torch.ones(50, 2, dtype=torch.bool), controls, torch.zeros(60, 0).long())
    gapped = dataclasses.replace(whole, observed=whole.observed.clone())
    gapped.observed[7, 1] = False
    model = StructuralModel()
    grid = model.grid()
    system = System.of(model, grid, whole.index)
    (one_cov, ends), (own_cov, own_ends) = (whiten(model, grid, system, past) for past in (whole, gapped))
    torch.testing.assert_close(one_cov.gram[:, 0], own_cov.gram[:, 0])
    torch.testing.assert_close(ends.mean[:, 0], own_ends.mean[:, 0], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(one_cov.gram[:, 1], own_cov.gram[:, 1])


def test_series_of_the_same_controls_share_their_covariance_and_others_come_in_parts(monkeypatch):
    """With coefficients that move: each series as it is alone, however many are filtered together."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    controls = torch.randn(45, 1, 2, generator=generator, dtype=torch.float64).expand(-1, 3, -1)
    alike = Past(values, torch.ones(40, 3, dtype=torch.bool), controls, torch.zeros(45, 0).long())
    apart = dataclasses.replace(alike, controls=torch.cat([controls[:, :2], 2 * controls[:, 2:]], 1))
    model = StructuralModel(moves=True)
    grid = model.grid()
    system = System.of(model, grid, alike.index)
    monkeypatch.setattr(whitening, "_NEAR", 2 * len(grid.level) * 5**2)  # two series
    for past, groups in ((alike, 1), (apart, 3)):
        found, ends = whiten(model, grid, system, past)
        assert ends.cov.shape[1] == groups
        for k in range(3):
            one, own = whiten(model, grid, system, past.part(torch.tensor([k])))
            torch.testing.assert_close(found.gram[:, k], one.gram[:, 0])
            torch.testing.assert_close(found.log_det[:, k], one.log_det[:, 0])
            torch.testing.assert_close(ends.mean[:, k], own.mean[:, 0])
            torch.testing.assert_close(ends.cov[:, k % groups], own.cov[:, 0])


def test_steps_are_in_units_of_the_structure_that_they_belong_to():
    """Seasons move by shares of all other variances; a level under a slope that returns by shares of that slope."""
    grid = StructuralModel((Season(7),)).grid()
    shares = grid.season / (1 + grid.level + grid.slope + grid.wandering)
    assert set(np.round(shares.numpy(), 9)) == {0.0, 1e-3, 1e-1}
    returns = (grid.slope > 0) & (grid.growth < 1)
    assert set((grid.level / grid.slope)[returns].tolist()) == {0.0, 1.0}
    assert not (returns & grid.local_trend).any()


def test_a_structure_has_one_weight_however_many_points_it_has():
    grid, first = StructuralModel().grid(), 0
    for name, points in STRUCTURES.items():
        own = grid.log_weight[first : first + len(points)].exp().sum().item()
        assert own == pytest.approx(_WEIGHTS.get(name, 1.0))
        first += len(points)
    assert first == len(grid.log_weight)


def test_weights_of_growth_and_sizes_of_coefficients():
    """A growth is there in a quarter of the prior; sizes of controls are of all of them together."""
    sizes, weights = sizes_of_growth()
    assert weights[sizes == 0].exp().item() == pytest.approx(0.75)
    assert weights.exp().sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(3 * sizes_of_controls(3), sizes_of_controls(1))


def test_only_slopes_that_wander_need_a_beginning():
    model = StructuralModel()
    grid = model.grid()
    past = Past(torch.zeros(3, 1), torch.ones(3, 1, dtype=torch.bool), torch.zeros(4, 1, 0), torch.zeros(4, 0).long())
    without = counterfactual.prior_of(model, grid, past).growths[:, 0]
    assert grid.local_trend.any()
    assert (without.isinf() == grid.local_trend).all()


def test_the_spread_of_a_growth_is_that_of_its_posterior():
    """One cell of the prior: a Student-t, whose precision the prior of the growth raises by 1 / (count size)."""
    count, size = 20, 0.05
    time, noise = np.linspace(-0.5, 0.5, count), np.random.default_rng(1).normal(size=count)
    columns = torch.from_numpy(np.column_stack([time, noise]))
    whitened = Whitened((columns.T @ columns)[None, None], one(0.0)[None], one(float(count)))
    prior = RegressionPrior(one(0.0), one(1.5), one(0.7), one(0.0), one(0.0)[None], one(size))
    drawn = draw(whitened, prior, 40_000, torch.Generator().manual_seed(2))
    inner, share = time @ time, count * size / (1 + count * size)
    left = noise @ noise - share * (time @ noise) ** 2 / inner
    expected = share / inner * (0.7 + left / 2) / (1.5 + count / 2 - 1)
    centred = drawn.coefficients[0, :, 0] - share * (time @ noise) / inner
    squares = centred.square()
    assert abs(squares.mean() - expected) < 4.5 * squares.std() / len(squares) ** 0.5
