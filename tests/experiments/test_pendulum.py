"""The pendulum experiment: physics, scores, and the script itself in two steps."""

import csv
import dataclasses
import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats

from tsforecast.core import Gaussian
from tsforecast.core.mixture import GaussianMixture

TINY = ["--sequences", "8", "--epochs", "1", "--batch-size", "4", "--particles", "3", "--test-sequences", "3"]


@pytest.fixture(scope="module")
def simulation():
    return importlib.import_module("experiments.pendulum.simulation")


@pytest.fixture(scope="module")
def forecasts():
    return importlib.import_module("experiments.pendulum.forecasts")


@pytest.fixture(scope="module")
def pendulum():
    return importlib.import_module("experiments.pendulum.run")


def near_the_top(count=4):
    return np.stack([np.deg2rad(np.linspace(165, 196, count)), np.linspace(-0.2, 0.3, count)])


def test_energy_is_conserved_without_damping_and_lost_with_it(simulation):
    free, damped = simulation.Pendulum(damping=0.0), simulation.Pendulum()
    energy = free.energy(free.swing(near_the_top(), 100))
    # A rule of fourth order loses of the order of (.01 s / time scale)^4 = 1e-8 of it in a period; this is ten periods.
    np.testing.assert_allclose(energy, energy[:, :1].repeat(100, 1), rtol=1e-6)
    energy = damped.energy(damped.swing(near_the_top(), 150))
    assert (np.diff(energy) < 0).all()
    assert (energy[:, -1] < 0.1 * energy[:, 0]).all()


def test_energy_is_lost_at_the_rate_of_the_damping(simulation):
    """dE/dt = -damping (length angle')^2, from the equation of motion."""
    damped = simulation.Pendulum()
    states = damped.swing(near_the_top(), 5001, step=0.001, substep=0.001)
    energy = damped.energy(states)
    lost = integrate.simpson(damped.damping * (damped.length * states[1]) ** 2, dx=0.001, axis=-1)
    np.testing.assert_allclose(energy[:, 0] - energy[:, -1], lost, rtol=1e-8)


def test_integration_agrees_with_scipy_and_converges_with_fourth_order(simulation):
    damped, start = simulation.Pendulum(), near_the_top(1)
    exact = integrate.solve_ivp(
        lambda _, state: damped.derivative(state), (0, 5), start[:, 0], rtol=1e-12, atol=1e-12, method="DOP853"
    ).y[:, -1]
    errors = [np.abs(damped.swing(start, 51, substep=substep)[:, 0, -1] - exact).max() for substep in (0.05, 0.025)]
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.25)  # 2^4, up to terms of the next order
    assert np.abs(damped.swing(start, 51)[:, 0, -1] - exact).max() < 1e-5


def test_small_swings_are_those_of_the_damped_oscillator(simulation):
    damped, seconds = simulation.Pendulum(), 0.1 * np.arange(60)
    angle = damped.swing(np.array([[1e-5], [0.0]]), 60)[0, 0]
    rate = damped.damping / 2
    frequency = np.sqrt(damped.gravity / damped.length - rate**2)
    want = np.exp(-rate * seconds) * (np.cos(frequency * seconds) + rate / frequency * np.sin(frequency * seconds))
    np.testing.assert_allclose(angle / 1e-5, want, atol=1e-6)


def test_the_angle_is_zero_at_the_bottom_and_sequences_begin_near_the_top(simulation):
    one = simulation.Pendulum(length=2.0)
    np.testing.assert_allclose(one.positions(np.array([0.0, np.pi / 2, np.pi])), [[0, -2], [2, 0], [0, 2]], atol=1e-12)
    truth, noisy = simulation.simulate(2000, 2, seed=0)
    start = np.rad2deg(np.arctan2(*(truth[:, 0] * torch.tensor([1, -1])).T.numpy())) % 360
    assert stats.kstest(start, stats.norm(180, 10).cdf).pvalue > 1e-3
    assert stats.kstest(((noisy - truth) / 0.05).flatten().numpy(), stats.norm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(truth.norm(dim=-1), 1.0, atol=1e-6)


def test_data_follow_from_the_seed(simulation):
    first, again, other = (simulation.simulate(5, 4, seed)[1] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_crps_of_a_mixture_is_the_integral_of_its_definition(forecasts):
    weight, mean, deviation = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.4, 2.0]), np.array([0.3, 1.0, 0.05])
    value = 0.7
    mixture = GaussianMixture(
        torch.tensor(weight).log()[:, None],
        Gaussian(torch.tensor(mean)[:, None, None], torch.tensor(deviation**2)[:, None, None, None]),
    )

    def cdf(x):
        return (weight * stats.norm.cdf((x - mean) / deviation)).sum()

    below, _ = integrate.quad(lambda x: cdf(x) ** 2, -12, value, points=[-1, 0.4], epsabs=1e-12, limit=200)
    above, _ = integrate.quad(lambda x: (1 - cdf(x)) ** 2, value, 12, points=[1.9, 2, 2.1], epsabs=1e-12, limit=200)
    got = forecasts.mixture_crps(mixture, torch.tensor([[value]], dtype=torch.float64))
    assert got.item() == pytest.approx(below + above, abs=1e-8)


@pytest.mark.parametrize("name", ["rsgls", "sgls"])
def test_sampled_futures_agree_with_the_forecast_distribution(forecasts, simulation, name):
    torch.manual_seed(0)
    model = forecasts.make_model(name, 500)
    observed = simulation.simulate(1, 6, seed=1)[1]
    generator = torch.Generator().manual_seed(5)
    paths = forecasts.sample_futures(model, observed, 5, 1000, generator)[0]
    means = torch.stack([forecasts.track(model, observed, 5, generator, 500).mean[6:, 0] for _ in range(10)]).numpy()
    # The paths are independent given one run of the filter, which is as uncertain as each of the ten.
    error = np.sqrt(paths.var(0, ddof=1) / len(paths) + means.var(0, ddof=1) * (1 + 1 / len(means)))
    assert (np.abs(paths.mean(0) - means.mean(0)) < 5 * error).all()


def test_script_runs_skips_what_is_done_and_repeats_itself(pendulum, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = [*TINY, "--seeds", "0", "--output", "first"]
    with monkeypatch.context() as quick:
        quick.setattr(pendulum, "draw", lambda *_: [])  # drawn below
        pendulum.main([*command, "--models", "rsgls"])
    with open("first/pendulum.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["model"], row["sequences"], row["budget"]) == ("rsgls", "8", "reduced")
    assert row["command"].startswith("python experiments/pendulum/run.py --sequences 8")
    assert np.isfinite([float(row[name]) for name in row if name.startswith(("rmse", "crps", "log"))]).all()

    ran = []
    monkeypatch.setattr(pendulum, "run", lambda name, *rest, run=pendulum.run: ran.append(name) or run(name, *rest))
    pendulum.main(command)
    assert ran == ["sgls"]
    assert "rsgls, seed 0: in first" in capsys.readouterr().out
    with open("first/pendulum_steps.csv", newline="") as file:
        assert [line["model"] for line in csv.DictReader(file)] == ["rsgls"] * 100 + ["sgls"] * 100
    assert Path("first/pendulum_forecasts.png").stat().st_size > 10_000
    assert Path("first/pendulum_scores.png").stat().st_size > 10_000

    whole, _ = pendulum.run("rsgls", 0, pendulum.parse(TINY)[1], Path("again.pt"))
    assert f"{whole['rmse_51_100']:.6g}" == row["rmse_51_100"]


def test_other_settings_are_other_runs_and_bad_ones_are_refused(pendulum, tmp_path, capsys):
    table = tmp_path / "pendulum.csv"
    _, settings = pendulum.parse(TINY)
    rows = pd.DataFrame([{"model": "rsgls", "seed": 0, **dataclasses.asdict(settings)}])
    for _ in range(2):  # as after a command that was stopped between two files
        pendulum.append(table, rows, list(rows))
    assert len(pendulum.of_settings(table, settings)) == 1
    assert pendulum.of_settings(table, pendulum.FULL).empty
    assert pendulum.parse(["--full"])[1] == pendulum.FULL
    assert pendulum.parse(["--full", "--epochs", "3"])[1].epochs == 3
    with pytest.raises(SystemExit):
        pendulum.parse(["--epochs", "0"])
    assert "expected --epochs to be at least 1, got 0" in capsys.readouterr().err
