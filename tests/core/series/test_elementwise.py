"""The form for very many small systems against the step form. Oracle: the loop over `at`."""

import pytest
import torch

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, NotPositiveDefiniteError
from tsforecast.core.series import elementwise

SERIES, STEPS = 520, 19


def _random(*shape, generator):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _covariance(*shape, generator):
    root = _random(*shape, shape[-1], generator=generator) * 0.5
    return root @ root.mT + 0.2 * torch.eye(shape[-1], dtype=torch.float64)


def _problem(states, targets, per_series, varying):
    generator = torch.Generator().manual_seed(states + 10 * targets)
    batch, time = (SERIES,) if per_series else (), STEPS if varying else 1
    system = LinearSystem(
        LinearGaussian(
            _random(time, *batch, states, states, generator=generator) * 0.25,
            _random(time, *batch, states, generator=generator),
            _covariance(time, *batch, states, generator=generator),
        ),
        LinearGaussian(
            _random(time, *batch, targets, states, generator=generator),
            _random(time, *batch, targets, generator=generator),
            _covariance(time, *batch, targets, generator=generator),
        ),
    )
    prior = Gaussian(_random(SERIES, states, generator=generator), _covariance(SERIES, states, generator=generator))
    values = _random(STEPS, SERIES, targets, generator=generator)
    observed = torch.rand(STEPS, SERIES, targets, generator=generator) > 0.3
    return system, prior, values, observed


@pytest.fixture
def calls(monkeypatch):
    made = []
    original = elementwise.filter_steps

    def counted(*args):
        made.append(args)
        return original(*args)

    monkeypatch.setattr(elementwise, "filter_steps", counted)
    return made


@pytest.mark.parametrize(("states", "targets"), [(1, 1), (2, 1), (4, 2), (3, 4)])
@pytest.mark.parametrize("per_series", [False, True])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_equals_the_step_form(states, targets, per_series, varying, missing, calls):
    system, prior, values, observed = _problem(states, targets, per_series, varying)
    observed = observed if missing else None
    with torch.no_grad():
        belief, terms = system.posterior(prior, values, observed)
    assert calls
    step, expected = prior, []
    for time in range(STEPS):
        transition, emission = system.at(time)
        seen = None if observed is None else observed[time]
        step, term = emission.posterior(transition.marginal(step), values[time], seen)
        expected.append(term)
    torch.testing.assert_close(terms, torch.stack(expected), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(belief.mean, step.mean, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(belief.cov, step.cov, rtol=1e-8, atol=1e-9)


def test_is_not_taken_with_gradients(calls):
    system, prior, values, observed = _problem(2, 1, True, False)
    with_gradient = system.log_likelihood(prior, values, observed)
    assert not calls
    with torch.no_grad():
        torch.testing.assert_close(system.log_likelihood(prior, values, observed), with_gradient, rtol=1e-8, atol=1e-9)
    assert calls


def test_failure_names_the_step():
    system, prior, values, observed = _problem(2, 1, True, True)
    noise = system.emission.noise.clone()
    noise[7] *= -100
    broken = LinearSystem(system.transition, LinearGaussian(system.emission.matrix, system.emission.offset, noise))
    with torch.no_grad(), pytest.raises(NotPositiveDefiniteError, match="step 7"):
        broken.log_likelihood(prior, values, observed)
