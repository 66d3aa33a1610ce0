"""Steps of descents against the formula, and several networks against one."""

import torch

from tests.decisions.cases import linear_network, numbers, rounds
from tsforecast.decisions import ArmOutput, Descent, Fit, OutputPerArm
from tsforecast.decisions.fitting import gradient_step


def test_networks_fitted_together_are_fitted_alone():
    seen, generator = rounds(12, 3, 2, numbers()), numbers(1)
    network = ArmOutput(linear_network((3, 4, 2)))
    inputs = OutputPerArm(2).pulled(seen.contexts, seen.arms)
    weights = torch.randn(5, network.size, generator=generator, dtype=torch.float64)
    counts = torch.poisson(torch.ones(5, 12, dtype=torch.float64), generator)
    descent = Descent(steps=20, decay=0.1)
    found = descent.fit(Fit(network, inputs, seen.rewards, counts, weights[0]), weights, numbers())
    for member, own, one in zip(weights, counts, found, strict=True):
        alone = descent.fit(Fit(network, inputs, seen.rewards, own, weights[0]), member, numbers())
        torch.testing.assert_close(one, alone, rtol=0, atol=1e-8)


def test_a_descent_comes_to_the_ridge_regression_around_its_anchor():
    """min sum_i c_i (x_i' w - y_i)^2 / (2 n) + decay |w - a|^2 / 2, of a linear network."""
    seen = rounds(12, 3, 2, numbers())
    anchor, counts = torch.tensor([5.0, -3.0, 1.0]).double(), torch.arange(12.0).double() / 6
    fit = Fit(linear_network((3, 1)), seen.contexts, seen.rewards, counts, anchor)
    found = Descent(steps=600, rate=0.05, decay=0.4).fit(fit, torch.zeros(3).double(), numbers())
    x = seen.contexts
    gram = (counts * x.T) @ x / 12 + 0.4 * torch.eye(3).double()
    expected = torch.linalg.solve(gram, (counts * x.T) @ seen.rewards / 12 + 0.4 * anchor)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_gradient_step_is_that_of_the_mean_of_squares():
    """w - rate 2 X' (X w - y) / n, with a gradient no longer than allowed."""
    seen = rounds(12, 3, 2, numbers())
    weights = torch.randn(3, generator=numbers(1), dtype=torch.float64)
    gradient = 2 * seen.contexts.T @ (seen.contexts @ weights - seen.rewards) / 12
    for longest, factor in ((100.0, 1.0), (0.5, 0.5 / float(gradient.norm()))):
        found = gradient_step(Fit(linear_network((3, 1)), seen.contexts, seen.rewards), weights, 0.1, longest)
        torch.testing.assert_close(found, weights - 0.1 * factor * gradient, rtol=0, atol=1e-10)
