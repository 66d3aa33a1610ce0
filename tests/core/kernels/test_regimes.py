"""Smoothed regimes by the compiled program beside torch's operations."""

import pytest
import torch

from tests.oracles import generator
from tsforecast.core.kernels import regimes
from tsforecast.core.regimes.em import SwitchingRegression, expected, smooth

pytestmark = pytest.mark.usefixtures("program")


def random_chains(states, dtype=torch.float64, steps=40, runs=2, series=3):
    draw = lambda *shape: torch.randn(*shape, generator=generator(0), dtype=dtype)  # noqa: E731
    transition = torch.softmax(3 * draw(runs, states, states), -1)
    return transition, (4 * draw(steps, runs, series, states)).exp(), torch.softmax(draw(runs, states), -1)


@pytest.mark.parametrize("states", [1, 2, 3, 16])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_what_is_smoothed_is_that_of_torch(states, dtype, error):
    given = random_chains(states, dtype)
    found = regimes.smooth(*given)
    assert found is not None
    for ours, theirs in zip(found, smooth(*(x.double() for x in given)), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=error, atol=error)


@pytest.mark.parametrize("stages", [1, 4])
def test_expectations_are_those_without_the_program(stages, by_torch):
    """Of several runs, with gaps, and with an initial distribution."""
    draw = lambda *shape: torch.randn(*shape, generator=generator(1), dtype=torch.float64)  # noqa: E731
    transition = torch.log_softmax(draw(2, 3, 3), -1)
    initial = torch.log_softmax(draw(2, 3), -1)
    model = SwitchingRegression(draw(2, 3, 2, 1), draw(2, 3, 1, 1).exp(), transition, initial, stages)
    given = model, draw(30, 4, 2), draw(30, 4, 1), draw(30, 4) > -1
    found, reference = expected(*given), by_torch(expected, *given)
    for name in ("weight", "pairs", "before", "log_likelihood"):
        torch.testing.assert_close(getattr(found, name), getattr(reference, name), rtol=1e-12, atol=1e-12)


def test_what_is_differentiated_is_left_to_torch():
    transition, density, start = random_chains(2)
    assert regimes.smooth(transition, density.requires_grad_(), start) is None


def test_what_is_not_a_number_is_not_hidden():
    transition, density, start = random_chains(2)
    density[4, 0, 1] = float("nan")
    found = regimes.smooth(transition, density, start)
    assert found is not None
    for ours, theirs in zip(found, smooth(transition, density, start), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_last_step_that_no_state_explains_has_a_probability_above_zero():
    transition, density, start = random_chains(2)
    density[-1, 0, 1] = 0
    found = regimes.smooth(transition, density, start)
    assert found is not None
    assert found[1][-1, 0, 1] == torch.finfo(torch.float64).tiny
    for ours, theirs in zip(found, smooth(transition, density, start), strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
