"""float32 over 100 000 steps: covariances stay symmetric positive definite and the likelihood close to float64's."""

import pytest
import torch

from tests.oracles import generator
from tsforecast.core import ISSM, Component, Gaussian, Harmonics, Level, Season, Trend, kalman, kernels, map_tensors

WEEKLY = (Level(), Season(7, "day"))
WEEKLY_TREND = (Trend(), Season(7, "day"))
DAMPED = (Trend(damped=True), Level(damped=True), Season(7, "day"))
YEARLY = (Level(), Harmonics(350, 3), Season(7, "day"))
NOISES = {
    **{WEEKLY: [0.05, 0.01], WEEKLY_TREND: [0.01, 1e-8, 0.001], DAMPED: [0.01, 1e-8, 0.05, 0.001]},
    YEARLY: [0.05, 1e-4, 0.01],
}
RATIOS = torch.tensor([10.0, 1e4])  # prior variance to observation variance


def problem(components: tuple[Component, ...], steps: int) -> tuple[ISSM, Gaussian, torch.Tensor]:
    """One series for each ratio of variances, by the model itself but for its damping: the observation noise is 1, and
    the level of the trend reaches 1e3. All float64, but made of float32 numbers.
    """
    rng, size = generator(0), sum(c.size for c in components)
    noises = torch.tensor(NOISES[components]).float().double()
    drawn = noises.sqrt() * torch.randn(steps, 2, len(noises), generator=rng).double()
    level = drawn[..., 0].cumsum(0)
    if isinstance(components[0], Trend):
        level = level + drawn[..., 1].cumsum(0).cumsum(0)
    cycles = [7 if isinstance(c, Season) else c.cycle for c in components if c.is_seasonal]
    index = torch.stack([torch.arange(steps) % cycle for cycle in cycles], -1)
    season = torch.zeros(steps, 2).double()
    for d in range(7):
        season[d::7] = drawn[d::7, :, -1].cumsum(0)
    if components == YEARLY:
        waves = components[1].basis(index[:, 0], season)
        season += (waves.unsqueeze(1) * drawn[..., 1:2].cumsum(0)).sum(-1)
    values = (level + season + torch.randn(steps, 2, generator=rng).double()).float().double().unsqueeze(-1)
    one, damping = torch.ones(1).double(), torch.full((sum(c.is_damped for c in components),), 0.96875).double()
    system = ISSM(components, index, noises[None], one, damping, 0 * one)
    cov = RATIOS.double()[:, None, None] * torch.eye(size).double()
    return system, Gaussian(torch.zeros(2, size).double(), cov), values


def cast(records, dtype: torch.dtype):
    return map_tensors(lambda x: x.to(dtype) if x.is_floating_point() else x, records)


def assert_positive_definite(cov: torch.Tensor):
    """Symmetric to rounding; and the float32 numbers, taken exactly, have positive eigenvalues only."""
    scale = cov.diagonal(dim1=-2, dim2=-1).amax(-1)
    assert ((cov - cov.mT).abs().amax((-2, -1)) <= 4 * torch.finfo(cov.dtype).eps * scale).all()
    assert (torch.linalg.eigvalsh(cov.double()) > 0).all()


@pytest.mark.parametrize(
    ("components", "steps"),
    [(WEEKLY, 100_800), (WEEKLY_TREND, 33_600), (YEARLY, 33_600)],
    ids=["level", "trend", "year"],
)
@pytest.mark.parametrize("form", ["blocks", "compiled"])
def test_whole_series_over_100_000_steps(components, steps, form, monkeypatch):
    """The documented bound: the log-likelihood is good to 1e-3, relatively, up to a ratio of 1e4."""
    if form == "blocks":
        monkeypatch.setattr(ISSM, "whole", lambda *_: None)
    elif not kernels.is_ready():
        pytest.skip("no C++ compiler, or the program is switched off")
    time_slice = 16_800
    system, prior, values = problem(components, steps)
    totals = []
    for dtype in (torch.float32, torch.float64):
        model, belief, y = cast((system, prior, values), dtype)
        terms = []
        for first in range(0, steps, time_slice):  # a multiple of all cycles: the phase is that of the first time slice
            belief, log_likelihood = model.posterior(belief, y[first : first + time_slice])
            assert_positive_definite(belief.cov)
            terms.append(log_likelihood.double())
        totals.append(torch.cat(terms).sum(0))
    assert ((totals[0] - totals[1]).abs() < 1e-3 * totals[1].abs()).all()


@pytest.mark.parametrize("components", [WEEKLY, WEEKLY_TREND, DAMPED, YEARLY], ids=["level", "trend", "damped", "year"])
def test_step_form_is_symmetric_to_the_last_bit(components):
    system, prior, values = problem(components, 400)
    exact = kalman.filter(system, prior, values)
    single = kalman.filter(*cast((system, prior, values), torch.float32))
    for cov in (single.filtered.cov, single.predicted.cov):
        assert_positive_definite(cov)
        assert torch.equal(cov, cov.mT)
    total, expected = single.log_likelihood.double().sum(0), exact.log_likelihood.sum(0)
    assert ((total - expected).abs() < 1e-3 * expected.abs()).all()
