"""Outliers of a filter: they count as missing, the change of a level does not."""

import pytest
import torch

from tests.oracles import generator, random_data, random_gaussian, random_system
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman
from tsforecast.core.disturbances import disturbances
from tsforecast.core.outliers import MOST, outliers, widened

STEPS, AT = 60, 40
EXACT = {"rtol": 1e-8, "atol": 1e-8}


def level(noise=1.0):
    """A level that wanders, observed with noise."""
    one, none = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    system = LinearSystem(LinearGaussian(one, none, 0.01 * noise * one), LinearGaussian(one, none, noise * one))
    return system, Gaussian(torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, 1, dtype=torch.float64))


def values(at, size):
    """Two series of noise, the first of which is moved by a size from some steps on."""
    found = torch.randn(STEPS, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found[at, 0] += size
    return found


@pytest.mark.parametrize("noise", [0.01, 1.0, 100.0])
def test_a_spike_is_missing_whatever_the_noise_of_the_system(noise):
    system, prior = level(noise)
    found, more = outliers(system, prior, values(AT, 20.0), None, prior.cov)
    assert found.nonzero().tolist() == [[AT, 0, 0]]
    assert not more.any()


def test_a_shift_is_followed_after_a_few_steps():
    system, prior = level()
    data = values(slice(AT, None), 20.0)
    found, more = outliers(system, prior, data, None, prior.cov)
    assert found.nonzero().tolist() == [[AT + k, 0, 0] for k in range(MOST)]
    assert more.nonzero().tolist() == [[AT + MOST, 0]]
    ahead = disturbances(system, prior, data, ~found, (more, prior.cov)).predicted[0]
    assert (ahead[AT + MOST + 1 :, 0] - 20).abs().max() < 2
    # At this step an error like that is no wonder: it is one standard deviation.
    mean, variance = (x[AT + MOST, 0] for x in disturbances(system, prior, data, ~found, (more, prior.cov)).predicted)
    usual = disturbances(system, prior, data, ~found).predicted[1][AT + MOST, 0]
    assert (variance - usual).item() == pytest.approx((data[AT + MOST, 0] - mean).square().item(), rel=1e-6)


def test_disturbances_with_a_state_that_becomes_uncertain_are_those_of_a_noisier_system():
    """Oracle: the same covariance in the noise of the transition to that step."""
    rng = generator(4)
    system, prior = random_system((6,), 3, 2, rng), random_gaussian((), 3, rng)
    data, observed = random_data((6,), 2, rng)
    more = torch.zeros(6, 1, dtype=data.dtype)
    more[3] = 2.5
    again = random_gaussian((), 3, rng).cov
    ours = disturbances(system, prior, data.unsqueeze(1), observed.unsqueeze(1), (more, again))
    matrix, noise = system.transition.matrix, system.transition.noise.clone()
    noise[3] += 2.5 * matrix[3] @ again @ matrix[3].mT
    noisier = LinearSystem(LinearGaussian(matrix, system.transition.offset, noise), system.emission)
    other = disturbances(noisier, prior, data.unsqueeze(1), observed.unsqueeze(1))
    for one, two in ((ours.predicted, other.predicted), (ours.others, other.others)):
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, **EXACT)
    torch.testing.assert_close(ours.shocks, other.shocks, **EXACT)


def test_widened_leaves_other_series_as_they_are():
    _, prior = level()
    found = widened(prior, torch.tensor([0.0, 3.0], dtype=torch.float64), prior.cov)
    torch.testing.assert_close(found.cov.flatten(), torch.tensor([1.0, 4.0], dtype=torch.float64))
    assert found.mean is prior.mean
    assert kalman.filter(level()[0], found, values(AT, 0.0)).belief.mean.isfinite().all()
