"""Layers against their formulas written out."""

import math

import numpy as np
import pytest
import torch

from tsforecast.nn import BaseMixture, InputNetwork, ProposalNetwork, SwitchDynamics
from tsforecast.nn.mlp import mlp

EXACT = {"rtol": 1e-6, "atol": 1e-6}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def leaky(x):
    return torch.where(x > 0, x, 0.01 * x)


def test_mlp_ends_in_a_linear_layer():
    layers, x = mlp(3, 5, 2), torch.randn(4, 3)
    first, _, last = layers
    expected = leaky(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(layers(x), expected, **EXACT)


def test_inputs_are_one_layer_over_features_and_an_embedding():
    network = InputNetwork(num_inputs=4, num_series=2, embedding_dim=3, hidden=6)
    inputs, series = torch.randn(5, 3, 4), torch.tensor([2, 0, 1])
    out = network(inputs, series)
    known = inputs[:, 0] @ network.of_time.weight.T + network.of_time.bias
    embedded = network.of_series.weight @ network.embedding.weight[2]
    torch.testing.assert_close(out[:, 0], leaky(known + embedded), **EXACT)
    torch.testing.assert_close(out[:, 1], leaky(network.of_time(inputs[:, 1])), **EXACT)  # unknown: no embedding
    torch.testing.assert_close(network(inputs[:, :1], series)[:, 0], out[:, 0], **EXACT)
    out.sum().backward()
    assert (network.embedding.weight.grad[0] == 0).all()
    assert (network.embedding.weight.grad[1:] != 0).any(1).all()


@pytest.mark.parametrize("hidden", [0, 4])
def test_parameters_are_mixtures_of_bases(hidden):
    bases = {"matrix": torch.randn(3, 2, 5), "noise": torch.randn(3, 2)}
    mixture = BaseMixture(3, bases, hidden)
    switch = torch.randn(7, 4, 3) if hidden else torch.eye(3)[torch.tensor([2, 0, 1, 1])]
    weights = mixture.mix(switch)
    if hidden:
        torch.testing.assert_close(weights, torch.softmax(mixture.weights(switch), -1), **EXACT)
        torch.testing.assert_close(weights.sum(-1), torch.ones(7, 4), **EXACT)
        assert weights.std(0).min() > 0
    else:
        assert torch.equal(weights, switch)
    mixed = mixture.split(weights @ mixture.joined())
    assert mixed.keys() == bases.keys()
    torch.testing.assert_close(mixed["matrix"], torch.einsum("...k,kij->...ij", weights, bases["matrix"]), **EXACT)
    torch.testing.assert_close(mixed["noise"], torch.einsum("...k,ki->...i", weights, bases["noise"]), **EXACT)
    if not hidden:
        assert torch.equal(mixed["matrix"][0], bases["matrix"][2])


def test_products_of_stable_mixtures_do_not_expand():
    torch.manual_seed(0)
    matrices = 3 * torch.randn(4, 5, 5, dtype=torch.float64)
    matrices[0] = 0.5 * torch.eye(5)  # is left as it is
    mixture = BaseMixture(2, {"matrix": matrices, "noise": matrices[:, 0]}, 6, ("matrix",)).double()
    switch = 3 * torch.randn(50, 2, dtype=torch.float64)
    mixed = mixture.split(mixture.mix(switch) @ mixture.joined())
    torch.testing.assert_close(mixture.split(mixture.joined())["matrix"][0], matrices[0], **EXACT)
    torch.testing.assert_close(mixture.split(mixture.joined())["noise"], matrices[:, 0], **EXACT)
    norms = torch.from_numpy(np.linalg.norm(mixed["matrix"].detach().numpy(), 2, (-2, -1)))
    assert (norms <= 1 + 1e-12).all()
    assert norms.max() > 0.3  # and not by making them small
    ends = mixture.split(mixture.joined())["matrix"].detach()[1:]
    np.testing.assert_allclose(np.linalg.norm(ends.numpy(), 2, (-2, -1)), 1.0, rtol=1e-12)


def test_bases_are_copied():
    initial = torch.ones(2, 3)
    mixture = BaseMixture(2, {"noise": initial}, 0)
    with torch.no_grad():
        mixture.bases["noise"] += 1
    assert torch.equal(initial, torch.ones(2, 3))


def test_the_ladder_reads_the_auxiliary_from_its_second_layer_and_the_switch_from_its_third():
    network, inputs = ProposalNetwork(4, switch_dim=2, auxiliary_dim=3, hidden=5, ladder=True), torch.randn(6, 2, 4)
    first, second, third = (m for m in [*network.lower.modules(), *network.upper.modules()] if hasattr(m, "weight"))
    lower = leaky(second(leaky(first(inputs))))
    switch, auxiliary = network(inputs)
    torch.testing.assert_close(auxiliary, network.auxiliary(lower), **EXACT)
    torch.testing.assert_close(switch, network.switch(leaky(third(lower))), **EXACT)
    assert switch.shape == (6, 2, 4)
    assert auxiliary.shape == (6, 2, 6)


@pytest.mark.parametrize("auxiliary_dim", [0, 3])
def test_encoders_share_nothing(auxiliary_dim):
    network = ProposalNetwork(4, switch_dim=2, auxiliary_dim=auxiliary_dim, hidden=5, ladder=False)
    switch, auxiliary = network(torch.randn(6, 2, 4))
    assert switch.shape == (6, 2, 4)
    switch.sum().backward()
    moved = {name.split(".")[0] for name, p in network.named_parameters() if p.grad is not None}
    assert moved == {"switch"}
    if auxiliary_dim:
        assert auxiliary.shape == (6, 2, 6)
    else:
        assert auxiliary is None


@pytest.mark.parametrize(("categorical", "persistence"), [(False, 0.0), (False, 0.7), (True, 0.0), (True, 0.7)])
def test_the_drift_of_the_switch(categorical, persistence):
    dynamics = SwitchDynamics(2, 5, categorical, persistence)
    features, switch = torch.randn(4, 3, 5), torch.randn(6, 3, 2)
    first, drift = dynamics(features)
    assert first.shape == (4, 3, 2 if categorical else 4)
    torch.testing.assert_close(first, dynamics.first(features), **EXACT)
    for time in (0, 3):
        hidden = leaky(switch @ dynamics.of_switch.weight.T + dynamics.of_inputs(features[time]))
        network = dynamics.head(hidden)
        if not categorical:
            network = network / (1 + network.abs() / 5)
        expected = network + math.log(0.7 / 0.3) * switch if categorical and persistence else network
        if not categorical:
            share = torch.tensor([1.0, math.exp(3)]) * persistence  # twice the odds are not twice the share
            share = share / (share + 1 - persistence)
            expected = (1 - share) * network + share * switch
        torch.testing.assert_close(drift(switch, time), expected, **EXACT)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_categories_stay_with_the_probability_of_the_persistence(count):
    dynamics = SwitchDynamics(count, 3, categorical=True, persistence=0.9)
    with torch.no_grad():
        dynamics.head.weight.zero_()
        dynamics.head.bias.zero_()
    probabilities = torch.softmax(dynamics(torch.randn(1, 1, 3))[1](torch.eye(count).unsqueeze(1), 0), -1).squeeze(1)
    torch.testing.assert_close(probabilities.diagonal(), torch.full((count,), 0.9 if count > 1 else 1.0))


def test_a_switch_that_expands_stays_near():
    dynamics = SwitchDynamics(2, 3)
    with torch.no_grad():
        dynamics.of_switch.weight.fill_(9.0)
        dynamics.head.weight.fill_(9.0)
    drift = dynamics(torch.randn(50, 1, 3))[1]
    switch = torch.ones(4, 1, 2)
    for time in range(50):
        switch = drift(switch, time)
    assert (switch.abs() <= 5).all()
    assert (switch.abs() > 4).all()
