"""Components in continuous time whose noises a switch sets: the system, its particles, and the grid of cells."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tests.core.particles.oracles import errors_from_one, many
from tests.oracles import generator
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, particles
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.particles.proposals import DiagonalGaussian
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.data.timed_entries import with_ticks
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.models import Series, make_model
from tsforecast.models.continuous import TimedRSGLSISSMForecaster

pytestmark = pytest.mark.usefixtures("float64")
UNIT = 1000


def model(components: str = "level+damped_level", **options) -> TimedRSGLSISSMForecaster:
    torch.manual_seed(0)
    net = make_model(TimedRSGLSISSMForecaster, num_series=1, components=components, unit=UNIT, **options).double()
    with torch.no_grad():  # regimes that differ
        net.dynamics.mixture.bases["factor"].mul_(0.8)
        for layer in net.dynamics.mixture.weights[::2]:
            layer.weight.mul_(4)
    return net


def slice_of(net, times: np.ndarray, last: int | None = None):
    """The time slice of moments at exactly these times, without others between them."""
    clock = Clock.of(net, ["a"])
    whole = {"item_id": "a", "times": times, "target": np.sin(times / 700.0)}
    assert len(clock.ticked(whole, last)[0]["times"]) == len(times)
    batch = clock.past([whole], None if last is None else [last])
    return net.inference.slice_of(batch, "past"), Series.of(batch)


def system_of(net, times: np.ndarray, last: int | None = None) -> tuple[GaussianSwitching, Gaussian, torch.Tensor]:
    time_slice, series = slice_of(net, times, last)
    one = torch.ones(1, 1)
    system, prior = net.dynamics.switching(time_slice, series, 0 * one, one, proposing=True)
    return system, prior, time_slice.values


def test_at_equal_gaps_it_is_the_regular_model():
    """Oracle: a random walk, an AR(1), and an autoregressive switch of variance one, under the same random numbers."""
    net = model(cell=1, switch_dim=2)
    times = np.arange(1, 9) * UNIT
    system, prior, values = system_of(net, times)
    change, first, deviation, rate, noise = net.dynamics.inside.parameters_of_series.population.detach().exp()
    phi = torch.exp(-rate)
    keeps = torch.exp(-net.dynamics.log_rate.detach().exp())
    mixture = net.dynamics.mixture

    def parameters(switch, time):
        level, damped, seen = (mixture.mix(switch) @ mixture.bases["factor"]).exp().square().unbind(-1)
        moved = torch.stack([level * change**2, damped * deviation**2 * (1 - phi**2)], -1)
        return Regime(
            LinearGaussian(torch.diag(torch.stack([torch.ones(()), phi])), torch.zeros(2), torch.diag_embed(moved)),
            LinearGaussian(torch.ones(1, 2), torch.zeros(1), (seen * noise**2)[..., None, None]),
            switch_noise=1 - keeps**2,
        )

    start = DiagonalGaussian(torch.zeros(1, 1, 2), torch.ones(1, 1, 2))
    by_hand = GaussianSwitching(start, lambda switch, _: keeps * switch, parameters)
    begun = Gaussian(torch.zeros(1, 2), torch.diag(torch.stack([first, deviation]) ** 2)[None])
    # In the time of the model the first observation is at the beginning: the state has not moved before it.
    found = particles.filter(system, system.begin(5, prior), values, generator=generator(1))
    moved = lambda s, t: dataclasses.replace(parameters(s, t), transition=_waits()) if t == 0 else parameters(s, t)  # noqa: E731
    by_hand = dataclasses.replace(by_hand, parameters=moved)
    expected = particles.filter(by_hand, by_hand.begin(5, begun), values, generator=generator(1))
    torch.testing.assert_close(found.log_likelihood, expected.log_likelihood, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.particles.switch, expected.particles.switch, rtol=1e-10, atol=1e-10)
    assert found.log_likelihood.std() > 0.1


def _waits() -> LinearGaussian:
    return LinearGaussian(torch.eye(2), torch.zeros(2), torch.zeros(2, 2))


def test_a_moment_that_is_only_asked_for_changes_no_law():
    """A gap in one cell, and in two: the switch of its end and the state given it are as before, in law."""
    net = model("damped_trend+day")
    switch = torch.randn(3, 1, 4, generator=generator(2))
    for times, kept in (
        (np.array([2100, 2800, 3900]), np.array([2100, 3900])),  # one cell
        (np.array([2100, 4000, 5000, 5500]), np.array([2100, 4000, 5500])),  # the end of a cell is a moment anyway
    ):
        split, whole = system_of(net, times)[0], system_of(net, kept)[0]
        first, second = (split.regime(switch, len(times) - k).transition for k in (2, 1))
        together = whole.regime(switch, len(kept) - 1).transition
        torch.testing.assert_close(second.matrix @ first.matrix, together.matrix, rtol=1e-10, atol=1e-12)
        noise = second.matrix @ first.noise @ second.matrix.mT + second.noise
        torch.testing.assert_close(noise, together.noise, rtol=1e-10, atol=1e-12)
        drifted = split.drift(split.drift(switch, len(times) - 2), len(times) - 1)
        torch.testing.assert_close(drifted, whole.drift(switch, len(kept) - 1), rtol=1e-12, atol=0)
        assert float(split.spread[-1].detach().max()) <= 1e-12  # the switch stands still within the cell
        torch.testing.assert_close(split.spread[-2], whole.spread[-1])


def test_steps_of_the_switch_compose():
    """From cell to cell, and over three cells at once: exp(-rate a) exp(-rate b), and variance one in the end."""
    net = model()
    steps = system_of(net, np.array([2, 4, 6, 8]) * UNIT)
    features = torch.as_tensor(Clock.of(net, ["a"]).features(np.array([2, 8]) * UNIT, None))
    rate = net.dynamics.log_rate.detach().exp()
    jump = torch.exp(-rate * features[1, -1])
    switch = torch.ones(1, 1, 4)
    for time in (1, 2, 3):
        switch = steps[0].drift(switch, time)
    torch.testing.assert_close(switch[0, 0], jump, rtol=1e-12, atol=0)
    variance = torch.zeros(4)
    for time in (1, 2, 3):
        variance = torch.exp(-4 * rate) * variance + steps[0].spread[time, 0]
    torch.testing.assert_close(variance, 1 - jump.square(), rtol=1e-12, atol=0)


def test_the_estimated_likelihood_is_that_of_all_paths_of_switches():
    """Oracle: Gauss-Hermite quadrature over the switches of three cells, with the Kalman filter along each path."""
    net = model(switch_dim=1, persistence=0.7)
    times = np.array([500, 1500, 2000, 3500, 3500, 4000, 5000]) + 10**6
    system, prior, values = system_of(net, times)
    values = 1.5 * values
    points, weights = np.polynomial.hermite_e.hermegauss(24)
    points, weights = torch.tensor(points), torch.tensor(weights / weights.sum())
    noises = torch.cartesian_prod(points, points, points)
    log_weight = torch.cartesian_prod(weights, weights, weights).log().sum(-1)
    keep = torch.exp(-2 * net.dynamics.log_rate.detach().exp())
    one = noises[:, 0]
    two = keep * one + (1 - keep**2).sqrt() * noises[:, 1]
    three = keep * two + (1 - keep**2).sqrt() * noises[:, 2]
    paths = torch.stack([one] * 3 + [two] * 3 + [three]).unsqueeze(-1)  # (time, path, switch)
    regimes = [system.regime(paths[time], time) for time in range(len(times))]
    stacked = [
        LinearGaussian(
            *(
                torch.stack([getattr(getattr(r, part), name).expand(len(noises), *shape) for r in regimes])
                for name, shape in (("matrix", (rows, 2)), ("offset", (rows,)), ("noise", (rows, rows)))
            )
        )
        for part, rows in (("transition", 2), ("emission", 1))
    ]
    along = kalman.filter(LinearSystem(*stacked), many(_one(prior), len(noises)), values.expand(-1, len(noises), -1))
    exact = torch.logsumexp(log_weight + along.log_likelihood.sum(0), 0).detach()
    count = 500
    with torch.no_grad():
        begun = system.begin(8, many(_one(prior), count))
        wide = dataclasses.replace(system, initial=DiagonalGaussian(torch.zeros(1, count, 1), torch.ones(1, count, 1)))
        found = particles.filter(wide, begun, values.expand(-1, count, -1), generator=generator(0))
    assert abs(errors_from_one(found.log_likelihood.sum(0), exact)) < 4
    without = particles.filter(system, _calm(system, prior), values, generator=generator(0)).log_likelihood.sum()
    assert abs(float((without - exact).detach())) > 0.05  # regimes matter here


def _one(prior: Gaussian) -> Gaussian:
    return Gaussian(prior.mean[0], prior.cov.expand(1, -1, -1)[0])


def _calm(system, prior):
    """A particle whose switch has begun at -3 and hardly moves on average."""
    return dataclasses.replace(system.begin(1, prior), switch=torch.full((1, 1, 1), -3.0))


@pytest.mark.usefixtures("unchecked_types")
def test_paths_of_switches_stand_still_within_cells_and_follow_the_data():
    """Drawn backwards: all moments of a cell have one switch, and where values jump the factors are larger."""
    net = model()
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 80 * UNIT, 60))
    size = np.where(times < 40 * UNIT, 0.05, 2.0)
    entry = {"item_id": "a", "times": times, "target": np.cumsum(size * rng.standard_normal(60))}
    clock = Clock.of(net, ["a"])
    ticked, _ = clock.ticked(entry)
    cell = torch.as_tensor((ticked["times"] - 1) // (2 * UNIT))
    with torch.no_grad():
        smoothed = net.inference.smoothed(clock.past([entry]), 10, generator(0))
    switch = smoothed.switches
    same = (switch[1:] - switch[:-1]).abs().amax((1, 2, 3))
    assert float(same[cell[1:] == cell[:-1]].max()) < 1e-4
    assert float(same[cell[1:] != cell[:-1]].min()) > 1e-3
    factor = (net.dynamics.mixing_weights(switch) @ net.dynamics.mixture.bases["factor"])[..., 0].mean((1, 2)).detach()
    wild = torch.as_tensor(ticked["times"] > 44 * UNIT)
    calm = torch.as_tensor(ticked["times"] < 36 * UNIT)
    assert float(factor[wild].mean() - factor[calm].mean()) > 0.3


def test_training_reaches_every_parameter():
    net = model("level+damped_level+day", linear_epochs=0)
    clock, rng = Clock.of(net, ["a"]), np.random.default_rng(0)
    times = np.sort(rng.integers(0, 30 * UNIT, 20))
    entry = {"item_id": "a", "times": times, "target": rng.standard_normal(20)}
    cut = {name: entry[name][15:] for name in ("times", "target")}
    batch = clock.past([{**entry, "times": times[:15], "target": entry["target"][:15]}])
    net.loss(batch | clock.future([cut], [int(times[14])], with_targets=True)).sum().backward()
    without = [name for name, p in net.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert without == []


@pytest.mark.parametrize("last", [None, 950])
def test_there_is_a_moment_at_the_end_of_every_cell(last):
    """Oracle: a loop over all multiples. A cell that ends at an observation has no other moment there."""
    rng = np.random.default_rng(1)
    times = np.sort(rng.integers(1000, 4000, 60))
    times[20:25] = times[20] // 50 * 50  # several of one moment, at the end of a cell
    times.sort()
    entry = {"item_id": "a", "times": times, "target": rng.standard_normal(60), "feat_dynamic_real": np.ones((1, 60))}
    found, places = with_ticks(entry, 50, last, [7.0])
    since = times[0] if last is None else last
    expected = sorted([*times, *(k for k in range(0, 5000, 50) if since < k < times[-1] and k not in times)])
    assert found["times"].tolist() == expected
    np.testing.assert_array_equal(found["times"][places], times)
    np.testing.assert_array_equal(found["target"][places], entry["target"])
    others = np.setdiff1d(np.arange(len(expected)), places)
    assert np.isnan(found["target"][others]).all()
    assert (found["feat_dynamic_real"][0, others] == 7).all()
    again, same = with_ticks(found, 50, last, [7.0])
    assert again["times"].tolist() == expected
    assert same.tolist() == list(range(len(expected)))
    long, _ = with_ticks({"times": np.array([3, 10**7])}, 50, None, [])
    ticks = long["times"][1:-1]
    assert 32 <= len(ticks) <= 64
    assert len(set(np.diff(ticks))) == 1
    assert math.log2(np.diff(ticks)[0] / 50) % 1 == 0
