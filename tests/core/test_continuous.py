import numpy as np
import pytest
import torch
from scipy.integrate import quad_vec
from scipy.linalg import expm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Matern as MaternKernel

from tests.oracles import generator
from tsforecast.core import ISSM, Gaussian, Harmonics, Level, kalman
from tsforecast.core.continuous import (
    DampedTrend,
    DenseSDE,
    Matern,
    OrnsteinUhlenbeck,
    Rotations,
    SumSDE,
    over_gaps,
    stable_drift,
)

pytestmark = pytest.mark.usefixtures("float64")
T = torch.tensor


def dense() -> DenseSDE:
    rng = generator(3)
    turn, damping, factor = (torch.randn(3, 3, generator=rng) for _ in range(3))
    return DenseSDE(stable_drift(turn, 0.5 * damping), factor @ factor.mT, torch.randn(3, generator=rng))


def equations() -> dict:
    return {
        "wiener": OrnsteinUhlenbeck(T(0.0), T(0.7)),
        "ou": OrnsteinUhlenbeck(T(0.8), T(0.7)),
        "trend": DampedTrend(T(0.0), T(0.3), T(0.2)),
        "damped_trend": DampedTrend(T(0.9), T(0.3), T(0.2)),
        "rotations": Rotations(T([0.4, 1.7]), T(0.6)),
        "damped_rotations": Rotations(T([0.4, 1.7]), T(0.6), T(0.3)),
        "matern12": Matern(0, T(1.3), T(0.6)),
        "matern32": Matern(1, T(1.3), T(0.6)),
        "matern52": Matern(2, T(1.3), T(0.6)),
        "dense": dense(),
        "sum": SumSDE([Matern(1, T(1.3), T(0.6)), DampedTrend(T(0.0), T(0.3), T(0.2))]),
    }


@pytest.mark.parametrize("name", list(equations()))
def test_the_step_over_a_gap_is_the_integral_of_the_equation(name):
    """Oracle: SciPy's matrix exponential and its quadrature. Short and long gaps are relative to the rates of one."""
    sde = equations()[name]
    gaps = T([0.0, 1e-3, 0.4, 0.61, 3.0, 30.0])
    step = sde.discretise(gaps)
    drift, diffusion = (x.expand(sde.size, sde.size).numpy() for x in (sde.drift, sde.diffusion))
    for k, gap in enumerate(gaps.tolist()):

        def rate(s: float) -> np.ndarray:
            return expm(drift * s) @ diffusion @ expm(drift * s).T

        noise = quad_vec(rate, 0.0, gap, epsabs=1e-14, epsrel=1e-12)[0]
        np.testing.assert_allclose(step.matrix[k].numpy(), expm(drift * gap), rtol=1e-9, atol=1e-12)
        size = max(np.abs(noise).max(), 1e-300)
        np.testing.assert_allclose(step.noise[k].numpy() / size, noise / size, rtol=1e-8, atol=1e-10)
    assert torch.equal(step.matrix[0], torch.eye(sde.size))
    assert not step.noise[0].any()


@pytest.mark.parametrize("name", list(equations()))
def test_gaps_compose(name):
    sde = equations()[name]
    one, two, both = (sde.discretise(T([gap])) for gap in (0.3, 11.0, 11.3))
    torch.testing.assert_close(two.matrix @ one.matrix, both.matrix, rtol=1e-10, atol=1e-12)
    carried = two.matrix @ one.noise @ two.matrix.mT + two.noise
    torch.testing.assert_close(carried, both.noise, rtol=1e-10, atol=1e-12)


def test_noise_of_short_gaps_keeps_its_digits():
    """What is left of sigma^2 - A sigma^2 A' in differences would be noise: the leading terms are written out."""
    gap = 1e-5
    matern, trend = equations()["matern52"], equations()["damped_trend"]
    density = float(matern.diffusion[-1, -1])
    assert float(matern.discretise(T(gap)).noise[0, 0]) == pytest.approx(density * gap**5 / 20, rel=1e-4)
    level = float(trend.discretise(T(gap)).noise[0, 0]) - 0.3 * gap
    assert level == pytest.approx(0.2 * gap**3 / 3, rel=1e-4)
    assert bool(torch.linalg.cholesky_ex(matern.discretise(T(1e-3)).noise)[1] == 0)


def test_at_equal_gaps_it_is_the_regular_model():
    """Oracle: `ISSM` of level, damped level and harmonics, whose coefficients wander while their basis rotates."""
    gap, cycle, count = 2.5, 7, 2
    variances, rate = T([0.5, 0.3, 0.2]), T(0.4)
    phi = torch.exp(-rate * gap)
    noises = torch.stack([variances[0] * gap, variances[1] * (1 - phi**2) / (2 * rate), variances[2] * gap])
    steps = torch.arange(12)
    regular = ISSM(
        (Level(), Level(damped=True), Harmonics(cycle, count)),
        ((steps + 1) % cycle)[:, None, None],
        noises[None, None],
        T([[0.3]]),
        phi[None, None],
        T([[0.0]]),
        None,
    )
    frequency = 2 * torch.pi * torch.arange(1, count + 1) / (cycle * gap)
    parts = [
        OrnsteinUhlenbeck(T(0.0), variances[0]),
        OrnsteinUhlenbeck(rate, variances[1]),
        Rotations(frequency, variances[2]),
    ]
    system = over_gaps(SumSDE(parts), torch.full((12, 1), gap), T([[0.3]]))
    values = torch.randn(12, 1, 1, generator=generator(0))
    spread = torch.diag(T([2.0, 1.0, *[0.5] * 4]))[None]
    a, b = T([0.4, -0.7]), T([0.2, 0.9])
    mean = torch.cat([T([0.1, 0.3]), a, b])[None]
    turned = torch.cat([T([0.1, 0.3]), torch.stack([a, b], -1).flatten()])[None]  # at phase 0, before the first step
    expected = regular.log_likelihood(Gaussian(mean, spread), values)
    found = system.log_likelihood(Gaussian(turned, spread), values)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", list(equations()))
def test_random_times_are_a_fine_grid_with_missing_values(name):
    """Oracle: the smoother over every step of the grid."""
    sde, rng = equations()[name], generator(1)
    times = T([0, 3, 3, 4, 9, 16, 17, 30])
    values = torch.randn(len(times), 1, generator=rng)
    gaps = torch.diff(times, prepend=times[:1]).double() * 0.1
    prior, noise = Gaussian(torch.zeros(sde.size), torch.eye(sde.size)), T([[0.3]])
    found = kalman.smooth(over_gaps(sde, gaps, noise), prior, values)
    # The grid has one row more, for the second observation of one moment.
    rows = torch.sort(torch.cat([torch.arange(31), T([3])])).values
    place = T([0, 3, 4, 5, 10, 17, 18, 31])
    grid = over_gaps(sde, torch.diff(rows, prepend=rows[:1]).double() * 0.1, noise)
    filled = torch.zeros(len(rows), 1).index_copy(0, place, values)
    seen = torch.zeros(len(rows), 1, dtype=torch.bool).index_fill(0, place, True)
    expected = kalman.smooth(grid, prior, filled, seen)
    torch.testing.assert_close(found.states.mean, expected.states.mean[place], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.states.cov, expected.states.cov[place], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.log_likelihood.sum(), expected.log_likelihood.sum(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("derivatives", [0, 1, 2])
def test_the_matern_system_is_a_gaussian_process(derivatives):
    """Oracle: scikit-learn's Gaussian process of the same kernel, with two observations of one moment."""
    rng = np.random.default_rng(derivatives)
    times = np.sort(np.append(rng.uniform(0, 10, 24), 5.0))
    times[10] = times[9]
    values = np.sin(times) + 0.3 * rng.standard_normal(len(times))
    asked = np.array([-0.5, 2.2, 5.05, 12.0])
    kernel = ConstantKernel(0.8) * MaternKernel(1.4, nu=derivatives + 0.5)
    process = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(times[:, None], values)
    mean, deviation = process.predict(asked[:, None], return_std=True)
    together = np.concatenate([times, asked])
    order = np.argsort(together, kind="stable")
    sde = Matern(derivatives, T(1.4), T(0.8))
    ordered = torch.as_tensor(together[order])
    system = over_gaps(sde, torch.diff(ordered, prepend=ordered[:1]), T([[0.1]]))
    y = torch.as_tensor(np.concatenate([values, np.zeros(4)])[order])[:, None]
    seen = torch.as_tensor(order < len(times))[:, None]
    smoothed = kalman.smooth(system, Gaussian(torch.zeros(sde.size), sde.stationary), y, seen)
    place = [int(np.flatnonzero(order == len(times) + k)[0]) for k in range(4)]
    np.testing.assert_allclose(smoothed.states.mean[place, 0].numpy(), mean, atol=1e-6)
    np.testing.assert_allclose(smoothed.states.cov[place, 0, 0].sqrt().numpy(), deviation, atol=1e-6)
    assert float(smoothed.log_likelihood.sum()) == pytest.approx(process.log_marginal_likelihood_value_, abs=1e-6)


def test_likelihood_is_differentiable_in_all_parameters():
    gaps, values = T([[0.0], [0.2], [0.0], [1.5]]), torch.randn(4, 1, 1, generator=generator(2))

    def evidence(rate, variance, length, drift, factor):
        parts = [
            OrnsteinUhlenbeck(rate, variance),
            DampedTrend(rate, variance, variance),
            Rotations(rate[None], variance, rate),
            Matern(2, length, variance),
            DenseSDE(stable_drift(drift, factor), factor @ factor.mT, drift[0]),
        ]
        sde = SumSDE(parts)
        prior = Gaussian(torch.zeros(1, sde.size), torch.eye(sde.size)[None])
        return over_gaps(sde, gaps, variance[None, None]).log_likelihood(prior, values).sum()

    rng = generator(4)
    matrices = [torch.randn(2, 2, generator=rng).requires_grad_() for _ in range(2)]
    scalars = [T(x).requires_grad_() for x in (0.4, 0.6, 1.3)]
    assert torch.autograd.gradcheck(evidence, [*scalars, *matrices])


def test_times_that_go_back_are_refused():
    with pytest.raises(ValueError, match=r"expected gaps of at least 0, got -1\.0"):
        over_gaps(OrnsteinUhlenbeck(T(0.0), T(1.0)), T([0.0, 2.0, -1.0]), T([[1.0]]))


def test_a_smoothness_that_has_no_system_is_refused():
    with pytest.raises(ValueError, match="expected 0, 1 or 2 derivatives, got 3"):
        Matern(3, T(1.0), T(1.0))
