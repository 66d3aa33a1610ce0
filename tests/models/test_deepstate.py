"""What is particular to DeepState: an ISSM where its network says nothing, and a memory that goes on."""

import pytest
import torch

from tests.models.cases import CARDINALITY, linear_of, make_batch, make_entries, make_model
from tsforecast.models import DeepStateForecaster, ISSMForecaster
from tsforecast.models import make_model as build

OPTIONS = {
    "components": "damped_level+day_of_week", "freq": "D", "season": 7, "num_series": 3, "num_time_features": 3,
    "num_static_real": 1, "cardinality": CARDINALITY, "num_dynamic_real": 2, "objective": "likelihood",
}  # fmt: skip


def test_without_a_say_of_the_network_it_is_an_issm():
    torch.manual_seed(0)
    model, issm = (build(kind, **OPTIONS).double() for kind in (DeepStateForecaster, ISSMForecaster))
    scales, prior = torch.tensor([-1.0, -2.0, -0.3]), torch.tensor([0.5, -0.2])
    means, effects = torch.randn(7), torch.tensor([0.3, -0.4])
    with torch.no_grad():
        for head, bias in ((model.dynamics.head, scales), (model.dynamics.prior_head, torch.cat([prior, means]))):
            head.weight.zero_()
            head.bias.copy_(bias)
        model.dynamics.effects.copy_(effects)
        issm.dynamics.parameters_of_series.population.copy_(torch.cat([scales, model.dynamics.damping, prior, effects]))
        issm.dynamics.season_means.copy_(means)
        batch = make_batch(model, make_entries())
        # The floor of the observation variance is all that differs.
        torch.testing.assert_close(model.loss(batch), issm.loss(batch), rtol=2e-3, atol=0.0)


def test_scales_follow_the_calendar_and_not_the_observations():
    model = make_model("deepstate")
    batch = make_batch(model, make_entries())
    system, prior = linear_of(model.inference, model.inference.slice_of(batch, "past"), batch)
    assert system.state_noise.std(0).min() > 0
    later = {**batch, "past_target": batch["past_target"] + 1}
    other, same = linear_of(model.inference, model.inference.slice_of(later, "past"), batch)
    assert torch.equal(system.state_noise, other.state_noise)
    assert torch.equal(prior.mean, same.mean)


def test_forecasts_go_on_from_the_memory():
    model = make_model("deepstate")
    batch = make_batch(model, make_entries())
    with torch.no_grad():
        whole, _ = linear_of(model.inference, model.inference.slice_of(batch, "both"), batch)
        belief, _ = model.filter(batch)
        future = model.inference.slice_of(batch, "future")
        ahead = model.dynamics.linear(future, belief.series, belief.memory).system
    steps = len(ahead.state_noise)
    torch.testing.assert_close(ahead.state_noise, whole.state_noise[-steps:])
    torch.testing.assert_close(ahead.emission_noise, whole.emission_noise[-steps:])


@pytest.mark.parametrize("name", ["hidden", "num_layers", "embedding_dim"])
def test_bad_sizes(name):
    with pytest.raises(ValueError, match=f"expected {name} to be at least 1"):
        build(DeepStateForecaster, **OPTIONS, **{name: 0})
