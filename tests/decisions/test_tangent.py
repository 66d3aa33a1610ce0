"""NeuralTS against linear Thompson sampling, and its design against the sum over rounds."""

import pytest
import torch

from tests.decisions.cases import linear_network, numbers, rounds
from tsforecast.decisions import BlockFeatures, Descent, Interactions, TangentRewards


@pytest.mark.parametrize("full", [True, False])
def test_neural_ts_on_a_linear_model_is_linear_thompson_sampling(full):
    """With weights N(0, I) and noise lam: lam Z^-1 is the posterior covariance, and its mean the fitted network's."""
    lam, arms, features = 0.3, 2, 3
    encoding = BlockFeatures(torch.eye(arms))
    network = linear_network((arms * features, 1))
    zeros = torch.zeros(network.size, dtype=torch.float64)
    settings = {"width": 1, "lam": lam, "full": full, "every": 1}
    model = TangentRewards(arms, features, network, zeros, encoding, descent=Descent(steps=2000, rate=0.02), **settings)
    seen = rounds(15, features, arms, numbers())
    if not full:  # orthogonal contexts, for which the diagonal is exact
        seen = Interactions(torch.eye(features, dtype=torch.float64).repeat(5, 1), seen.arms, seen.rewards)
    state = model.warm_up(model.init(numbers()), seen, numbers())
    x = encoding.pulled(seen.contexts, seen.arms)
    cov = torch.linalg.inv(torch.eye(6, dtype=torch.float64) + x.T @ x / lam)
    each = encoding.each(torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64) if full else seen.contexts[1])
    found = model.expect(state, each[0, :features])
    torch.testing.assert_close(found.sd.square(), (each @ cov * each).sum(-1), rtol=0, atol=1e-8)
    mean = cov @ x.T @ seen.rewards / lam
    torch.testing.assert_close(found.mean, each @ mean, rtol=0, atol=1e-4)  # as near as the descent comes


@pytest.mark.parametrize("full", [True, False])
def test_a_width_divides_the_design_and_multiplies_the_decay(full):
    """Z = lam I + sum g g' / m, sigma^2 = lam g' Z^-1 g / m, and m lam |theta|^2 / 2 beside the squares; m = 4."""
    lam, network = 0.3, linear_network((6, 1))
    zeros, encoding = torch.zeros(6, dtype=torch.float64), BlockFeatures(torch.eye(2))
    descent = Descent(steps=500, rate=0.05)
    model = TangentRewards(2, 3, network, zeros, encoding, 4, lam, nu=0.5, full=full, descent=descent)
    seen = rounds(9, 3, 2, numbers())
    state = model.warm_up(model.init(numbers()), seen, numbers())
    x = encoding.pulled(seen.contexts, seen.arms)
    design = lam * torch.eye(6, dtype=torch.float64) + x.T @ x / 4
    design = design if full else design.diagonal().diag()
    each = encoding.each(seen.contexts[0])
    found = model.expect(state, seen.contexts[0])
    expected = 0.25 * lam * (each @ torch.linalg.inv(design) * each).sum(-1) / 4
    torch.testing.assert_close(found.sd.square(), expected, rtol=0, atol=1e-8)
    mean = torch.linalg.solve(x.T @ x + 4 * lam * torch.eye(6).double(), x.T @ seen.rewards)
    torch.testing.assert_close(found.mean, each @ mean, rtol=0, atol=1e-4)


@pytest.mark.parametrize("full", [True, False])
def test_neural_ts_that_forgets_has_the_faded_design(full):
    """Z_t = (1 - f) Z_{t-1} + f lam I + g_t g_t' / m, written as a sum over ages; f = 0.2, m = 1."""
    lam, network = 0.3, linear_network((6, 1))
    zeros = torch.zeros(network.size, dtype=torch.float64)
    encoding = BlockFeatures(torch.eye(2))
    settings = {"width": 1, "lam": lam, "full": full, "forgetting": 0.2, "descent": Descent(steps=0)}
    model = TangentRewards(2, 3, network, zeros, encoding, **settings)
    seen = rounds(9, 3, 2, numbers())
    state = model.warm_up(model.init(numbers()), seen, numbers())
    x = encoding.pulled(seen.contexts, seen.arms)
    kept = 0.8 ** torch.arange(8, -1, -1, dtype=torch.float64)
    design = lam * torch.eye(6, dtype=torch.float64) + (kept * x.T) @ x
    design = design if full else design.diagonal().diag()
    each = encoding.each(seen.contexts[0])
    expected = lam * (each @ torch.linalg.inv(design) * each).sum(-1)
    torch.testing.assert_close(model.expect(state, seen.contexts[0]).sd.square(), expected, rtol=0, atol=1e-8)
