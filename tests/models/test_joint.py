"""Several targets, each with a model of its own, and errors of a step that are correlated."""

import dataclasses

import numpy as np
import pytest
import torch
from statsmodels.tsa.statespace.mlemodel import MLEModel

from tests.models.cases import HORIZON, entries_of, make_batch, make_model
from tsforecast.core.correlation import Correlation
from tsforecast.models.parts.joint_inference import JointInference

EXACT = {"rtol": 1e-8, "atol": 1e-8}
MATRIX = np.array([[1.0, -0.6], [-0.6, 1.0]])


def with_correlation(belief, matrix=MATRIX, weight=1e12):
    """The belief with a correlation that further steps do not move."""
    products = weight * torch.as_tensor(matrix).expand(len(belief.location), -1, -1)
    state = dataclasses.replace(belief.joint, correlation=Correlation(products, torch.full_like(products, weight)))
    return dataclasses.replace(belief, state=state)


def alone(batch, target, count=2):
    """The batch with one of the targets, as a series of its own."""
    own = dict(batch)
    for name in ("past_target", "past_observed", "known_future"):
        own[name] = batch[name][..., target : target + 1]
    number = torch.full((len(batch["series_index"]), 1), target)
    own["static_cat"] = torch.cat([batch["static_cat"], number], 1)
    own["series_index"] = (batch["series_index"] - 1) * count + target + 1
    return own


@pytest.fixture(params=["bank-targets", "issm-targets"])
def net(request):
    return make_model(request.param)


def history(net):
    return make_batch(net, entries_of("issm-targets"), train=False)


def test_each_target_is_forecast_as_if_it_were_alone(net):
    batch = history(net)
    with torch.no_grad():
        found = net.inference.marginals(net.inference.filter(batch)[0], batch)
        for target in range(2):
            inner, own = net.inference.inner, alone(batch, target)
            expected = inner.marginals(inner.filter(own)[0], own)
            levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
            torch.testing.assert_close(
                found.quantile(levels)[..., target], expected.quantile(levels)[..., 0], rtol=1e-6, atol=1e-6
            )
            torch.testing.assert_close(found.of_target(target).expectation(), expected.expectation(), **EXACT)


def test_components_of_each_target_are_those_of_it_alone():
    """So that `evaluate` draws those of the first target."""
    net = make_model("issm-targets")
    batch = history(net)
    with torch.no_grad():
        found = net.inference.decompose(batch)
        expected = [net.inference.inner.decompose(alone(batch, target)) for target in range(2)]
    for name, pair in found.items():
        for part, own in zip(pair, zip(*(one[name] for one in expected), strict=True), strict=True):
            torch.testing.assert_close(part, torch.cat(own), **EXACT)


def test_the_likelihood_is_that_of_correlated_innovations_in_statsmodels():
    """x_{t+1} = x_t + K_t e_t, y_t = x_t + e_t, e_t ~ N(0, S_t R S_t), with gains by the local level's filter."""
    options = {"components": "level", "num_dynamic_real": 0, "num_static_real": 0, "cardinality": []}
    net = make_model("issm-targets", **options)
    (entry,) = entries_of("issm-targets", lengths=(20,))
    entry = {"start": entry["start"], "target": np.array(entry["target"]), "item_id": entry["item_id"]}
    entry["target"][1, 7] = np.nan
    batch = make_batch(net, [entry], train=False)
    inference = net.inference
    assert isinstance(inference, JointInference)
    with torch.no_grad():
        belief = with_correlation(inference.begin(batch))
        _, terms = net.filter(batch, belief)
    location, scale = (x[0].double().numpy() for x in (belief.location, belief.scale))
    values = (entry["target"].T - location) / scale
    noise, mean, variance = [], [], []
    for target, member in enumerate(belief.joint.members):
        own = alone(batch, target)
        system = inference.inner.dynamics.linear(inference.inner.slice_of(own, "past"), inference.series_of(own)).system
        noise.append((system.state_noise[0, 0, 0].item(), system.emission_noise[0, 0].item()))
        mean.append(member.gaussian.mean[0, 0].item())
        variance.append(member.gaussian.cov[0, 0, 0].item())
    steps = len(values)
    transition, cov = np.zeros((4, 4, steps)), np.zeros((4, 4, steps))
    gains, deviations = np.zeros((steps, 2)), np.zeros((steps, 2))
    for target, (of_state, of_value) in enumerate(noise):
        p = variance[target]
        for time in range(steps):
            p += of_state
            deviations[time, target] = np.sqrt(p + of_value)
            gains[time, target] = 0 if np.isnan(values[time, target]) else p / (p + of_value)
            p *= 1 - gains[time, target]
    for time in range(steps):
        transition[:2, :2, time], transition[:2, 2:, time] = np.eye(2), np.diag(gains[time])
        later = min(time + 1, steps - 1)
        cov[2:, 2:, time] = deviations[later][:, None] * MATRIX * deviations[later]
    model = MLEModel(values, k_states=4, k_posdef=4)
    model["design"], model["selection"] = np.hstack([np.eye(2), np.eye(2)]), np.eye(4)
    model["transition"], model["state_cov"] = transition, cov
    first = np.zeros((4, 4))
    first[2:, 2:] = deviations[0][:, None] * MATRIX * deviations[0]
    model.initialize_known(np.array([*mean, 0.0, 0.0]), first)
    expected = model.ssm.loglikeobs()
    np.testing.assert_allclose(terms[:, 0].numpy(), expected, **EXACT)


def joint_of(net, belief, batch):
    """Mean and covariance of the horizon of all targets, target outermost, in scaled units; the values known of it."""
    inner, means, roots = net.inference.inner, [], []
    for target, member in enumerate(belief.joint.members):
        own = alone(batch, target)
        own["known_future"] = torch.full_like(own["known_future"], torch.nan)
        joint = inner.predictive(member, own)
        means.append(joint.mean[0].numpy())
        roots.append(np.linalg.cholesky(joint.cov[0].numpy()))
    cov = [[MATRIX[i, j] * roots[i] @ roots[j].T for j in range(2)] for i in range(2)]
    return np.concatenate(means), np.block(cov)


def test_known_values_of_a_target_condition_all_as_numpy_does():
    net = make_model("issm-targets")
    batch = make_batch(net, entries_of("issm-targets")[:1], train=False)
    known = torch.full((1, HORIZON, 2), torch.nan, dtype=torch.float64)
    known[0, [0, 2], 0], known[0, 3, 1] = torch.tensor([1.5, -0.5], dtype=torch.float64), 0.7
    batch["known_future"] = known
    with torch.no_grad():
        belief = with_correlation(net.filter(batch)[0])
        found, paths = net.marginals(belief, batch), net.forecast(belief, batch, 4000, torch.Generator().manual_seed(0))
        mean, cov = joint_of(net, belief, batch)
    given = known[0].T.flatten().numpy()
    seen = ~np.isnan(given)
    gain = cov[:, seen] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    expected = mean + gain @ (given[seen] - mean[seen])
    variance = np.diag(cov - gain @ cov[seen])
    np.testing.assert_allclose(found.mean[0, 0].T.flatten().numpy()[~seen], expected[~seen], **EXACT)
    np.testing.assert_allclose(found.deviation[0, 0].T.flatten().numpy()[~seen] ** 2, variance[~seen], **EXACT)
    drawn = paths[0].transpose(1, 2).flatten(1).numpy()
    np.testing.assert_array_equal(drawn[:, seen], np.broadcast_to(given[seen], (4000, seen.sum())))
    error = np.abs(drawn.mean(0) - expected)[~seen] / np.sqrt(variance[~seen] / 4000)
    assert error.max() < 5
    left = cov - gain @ cov[seen]
    spread = np.sqrt((np.outer(np.diag(left), np.diag(left)) + left**2) / 4000)  # of a sample covariance
    free = np.ix_(~seen, ~seen)
    assert (np.abs(np.cov(drawn.T)[free] - left[free]) / spread[free]).max() < 5


def test_what_is_known_of_one_target_moves_the_other_of_a_bank():
    net = make_model("bank-targets")
    batch = make_batch(net, entries_of("bank-targets")[:1], train=False)
    half = torch.tensor([0.5], dtype=torch.float64)
    with torch.no_grad():
        belief = with_correlation(net.filter(batch)[0], np.array([[1, 0.9], [0.9, 1]]))
        before = net.marginals(belief, batch).quantile(half)[0]
        batch["known_future"][0, 1, 0] = before[0, 1, 0] + 0.5
        after = net.marginals(belief, batch).quantile(half)[0]
        paths = net.forecast(belief, batch, 2000, torch.Generator().manual_seed(0))
    assert after[0, 1, 1] > before[0, 1, 1]
    below = (paths[0, :, :, 1] < before[0, :, 1]).double().mean(0)
    assert below[1] < 0.5 - 5 * 0.5 / 2000**0.5


def test_the_correlation_of_errors_is_found():
    """Also where targets are seldom known at the same time, and with an outlier."""
    rng = np.random.default_rng(0)
    matrix = np.array([[1, 0.8, -0.5], [0.8, 1, -0.3], [-0.5, -0.3, 1]])
    errors = torch.as_tensor(rng.multivariate_normal(np.zeros(3), matrix, 500)).unsqueeze(-1)
    errors[100] = 50.0
    seen = torch.as_tensor(rng.random((500, 3, 1)) < 0.8)
    none = Correlation.none(1, 3, errors)
    torch.testing.assert_close(none.matrix()[0], torch.eye(3, dtype=torch.float64))
    running = none.running(torch.where(seen, errors, 0.0), seen)
    last = Correlation(running.products[-1], running.weight[-1])
    pairs = float(seen.double().mean() ** 2 * 500)
    assert (last.matrix()[0].numpy() - matrix).__abs__().max() < 5 / np.sqrt(pairs)  # whose standard errors are less
    half = Correlation(running.products[200], running.weight[200])
    rest = half.running(torch.where(seen, errors, 0.0)[200:], seen[200:])
    torch.testing.assert_close(rest.products[-1], last.products, **EXACT)
