"""Gaussian processes and expected improvement, limits, objectives, choices: against formulas and plain search."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from tsforecast.decisions import FUNCTIONS, Choice, Evaluations, Number, Optimiser, Space
from tsforecast.decisions.optimisation import chebyshev
from tsforecast.decisions.process import fit_process, log_improvement, log_probability_below, matern


def points(count, dim, seed=0):
    return 2 * torch.rand(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_the_process_is_that_of_scikit_learn_and_more_probable_than_its_neighbours():
    x, new = points(30, 2), points(7, 2, 1)
    y = (3 * x[:, 0]).sin() + 0.2 * x[:, 1] + 0.2 * points(30, 1, 2)[:, 0]
    y = (y - y.mean()) / y.std()
    found = fit_process(x, y)
    kernel = Matern(found.lengths.numpy(), "fixed", nu=2.5)
    other = GaussianProcessRegressor(kernel, alpha=found.noise, optimizer=None).fit(x.numpy(), y.numpy())
    mean, sd = (values.numpy() for values in found(new))
    expected, spread = other.predict(new.numpy(), return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    np.testing.assert_allclose(sd, spread, atol=1e-6)
    assert found.lengths[1] > 3 * found.lengths[0]

    def posterior(lengths, noise):
        cov = (matern(x, x, lengths) + noise * torch.eye(30)).numpy()
        density = stats.multivariate_normal(cov=cov).logpdf(y.numpy())
        centre = 0.5 * math.log(2) + math.sqrt(2) - 1 + math.log(2)
        prior = stats.norm(centre, math.sqrt(3)).logpdf(lengths.log().numpy()).sum()
        return density + prior + stats.norm(math.log(1e-4), 3).logpdf(math.log(noise))

    best = posterior(found.lengths, found.noise)
    for factor in (0.95, 1.05):
        for k in range(2):
            moved = found.lengths.clone()
            moved[k] *= factor
            assert posterior(moved, found.noise) < best
        assert posterior(found.lengths, factor * found.noise) < best


def test_the_improvement_is_its_integral_and_has_no_underflow():
    for mean, sd, least in ((0.3, 0.5, 0.1), (-1.0, 2.0, 0.0), (2.0, 0.3, 0.1)):
        law = lambda x, mean=mean, sd=sd: (x.new_full((len(x),), mean), x.new_full((len(x),), sd))  # noqa: E731
        found = log_improvement(law, least)(torch.zeros(1, 1).double()).exp().item()
        low = mean - 12 * sd
        exact = integrate.quad(lambda y, m=mean, s=sd, b=least: (b - y) * stats.norm.pdf(y, m, s), low, least)[0]
        assert found == pytest.approx(exact, rel=1e-6)
        below = log_probability_below(law, least)(torch.zeros(1, 1).double()).item()
        assert below == pytest.approx(stats.norm.logcdf(least, mean, sd), rel=1e-9)
    far = torch.tensor([[-1e5], [-1e3], [-30.0], [-1.0], [0.0], [5.0]], dtype=torch.float64, requires_grad=True)
    values = log_improvement(lambda x: (-x[:, 0], torch.ones_like(x[:, 0])), 0.0)(far)
    (slope,) = torch.autograd.grad(values.sum(), far)
    assert (values.diff() > 0).all()
    assert (slope.isfinite() & (slope > 0)).all()


def test_expected_improvement_comes_near_the_least_value_of_branin():
    """After 24 evaluations, beside the median of as many uniform points over a thousand draws."""
    function = FUNCTIONS["branin"]
    optimiser = Optimiser(function.low, function.high, acquisition="ei")
    known = optimiser.minimise(function, 24)
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (function.low, function.high))
    places = low + (high - low) * (points(24_000, 2) + 1) / 2
    chance = function(places).view(1000, 24).amin(1).median() - function.least
    assert known.best[1] - function.least < 0.1 * chance
    again = optimiser.minimise(function, 24, Evaluations(known.points[:20], known.values[:20]))
    assert torch.equal(again.points, known.points)
    with pytest.raises(ValueError, match="acquisition to be thompson or ei or mixed, got 'pi'"):
        Optimiser((0.0,), (1.0,), acquisition="pi")


@pytest.mark.parametrize("acquisition", ["thompson", "ei"])
def test_limits_are_learnt(acquisition):
    """Least x + y where a circle allows it: -1.2 sqrt 2 on its border; the box alone would have -4."""
    optimiser = Optimiser((-2.0, -2.0), (2.0, 2.0), acquisition=acquisition, initial=8)
    known = optimiser.init()
    for _ in range(26):
        point = optimiser.ask(known)
        x, y = point.tolist()
        known = optimiser.tell(known, point, x + y, excess=[x**2 + y**2 - 1.44])
    point, value = known.best
    assert point.square().sum() <= 1.44
    least = -1.2 * math.sqrt(2)
    places = 2 * points(34_000, 2).view(1000, 34, 2)
    chance = places.sum(-1).where(places.square().sum(-1) <= 1.44, math.inf).amin(1)
    assert least <= value < chance.median()
    assert value < least + 0.15
    assert optimiser.recommend(known).number in known.feasible.nonzero()[:, 0]


def test_a_feasible_point_is_looked_for_where_there_is_none_yet():
    """One point in a hundred is feasible: a tube that no initial point meets."""
    optimiser = Optimiser((0.0, 0.0), (1.0, 1.0), acquisition="ei", initial=6)
    known = optimiser.init()
    for _ in range(16):
        point = optimiser.ask(known)
        gap = abs(point[0].item() - 0.83) + abs(point[1].item() - 0.21)
        known = optimiser.tell(known, point, 1.0 + point[1].item(), excess=[gap - 0.07])
    assert not known.feasible[:6].any()
    assert known.feasible.any()
    none = optimiser.tell(optimiser.init(), known.points[0], 1.0, excess=[0.5])
    with pytest.raises(ValueError, match="within all limits, got none of 1"):
        _ = none.best
    with pytest.raises(ValueError, match="expected 1 limits, as before, got 0"):
        optimiser.tell(none, known.points[0], 1.0)
    failed = optimiser.tell(none, known.points[0], 1.0, excess=[math.nan])
    assert failed.succeeded.tolist() == [True, False]


@pytest.mark.parametrize("acquisition", ["thompson", "ei"])
def test_points_spread_along_the_front_of_two_objectives(acquisition):
    """x^2 + y^2 and (x - 1)^2 + y^2: the front is the line from (0, 0) to (1, 0); hypervolume beside random points."""
    optimiser = Optimiser((-2.0, -2.0), (2.0, 2.0), acquisition=acquisition, initial=8)

    def told(known, point):
        x, y = point.tolist()
        return optimiser.tell(known, point, x**2 + y**2, costs=[(x - 1) ** 2 + y**2])

    def volume(known):
        found = known.objectives[known.front]
        grid = torch.cartesian_prod(*[torch.linspace(0, 2, 60, dtype=torch.float64)] * 2)
        return (found[:, None] <= grid).all(-1).any(0).double().mean().item()

    known = optimiser.init()
    while len(known.values) < 30:
        known = told(known, optimiser.ask(known))
    by_chance = []
    for seed in range(20):
        other = optimiser.init()
        for point in 2 * points(30, 2, seed):
            other = told(other, point)
        by_chance.append(volume(other))
    assert volume(known) > np.quantile(by_chance, 0.95)
    first = known.points[known.front][:, 0]
    assert first.min() < 0.3
    assert first.max() > 0.7


def test_the_front_holds_what_nothing_dominates():
    values = torch.tensor([[1.0, 5], [2, 2], [5, 1], [2, 3], [2, 2], [0, 0], [9, math.nan]]).double()
    excess = torch.tensor([[0.0], [0], [0], [0], [0], [1], [0]]).double()
    known = Evaluations(values, values[:, 0], values[:, 1:], excess)
    assert known.front == [0, 1, 2, 4]
    assert chebyshev(values[:2], torch.tensor([0.25, 0.75]).double(), values.new_tensor([1, 2])).tolist() == [
        pytest.approx(2.25 + 0.05 * 2.25), pytest.approx(0.25 + 0.05 * 0.25),
    ]  # fmt: skip


@pytest.mark.parametrize("acquisition", ["thompson", "ei"])
def test_choices_and_whole_numbers_are_found(acquisition):
    """The least of 3 x 8 cells and a number: kind b, 6 layers and a rate of 0.01."""
    space = Space(
        (Choice("kind", ("a", "b", "c")), Number("layers", 1.0, 8.0, whole=True), Number("rate", 1e-4, 1.0, log=True))
    )
    optimiser = Optimiser(space.low, space.high, snap=space.snap, acquisition=acquisition, initial=8)
    known = optimiser.init()
    for _ in range(32):
        point = optimiser.ask(known)
        torch.testing.assert_close(space.snap(point), point)
        row = space.row(point)
        cost = {"a": 3.0, "b": 0.0, "c": 1.0}[row["kind"]] + 0.3 * (int(row["layers"]) - 6) ** 2
        known = optimiser.tell(known, point, cost + (math.log10(float(row["rate"])) + 2) ** 2)
    best = space.row(known.best[0])
    assert (best["kind"], best["layers"]) == ("b", "6")
    assert known.best[1] < 0.3
    torch.testing.assert_close(space.point(best), known.best[0], rtol=0, atol=1e-4)


def test_inputs_that_are_none():
    for make, message in (
        (lambda: Choice("kind", ("a",)), "at least two choices of 'kind'"),
        (lambda: Choice("kind", ("a", "a")), "each once, got a|a"),
        (lambda: Number("n", 1.5, 4.0, whole=True), "whole numbers as bounds, got 1.5 and 4 of 'n'"),
        (lambda: Number("n", 4.0, 1.0), "LOW below HIGH"),
        (lambda: Space(()), "each name once, got none"),
        (lambda: Space((Number("n", 0.0, 1.0), Choice("n", ("a", "b")))), "each name once, got n, n"),
        (lambda: Space((Number("n", 0.0, 1.0),)).point({}), "a value of n"),
        (lambda: Space((Number("n", 0.0, 9.0, whole=True),)).point({"n": 2.5}), "a whole number in column n, got 2.5"),
        (lambda: Space((Choice("k", ("a", "b")),)).point({"k": "A"}), "expected k to be one of a, b, got 'A'"),
    ):
        with pytest.raises(ValueError, match=message.replace("|", r"\|")):
            make()
