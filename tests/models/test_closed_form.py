"""What forecasters which are one linear-Gaussian system promise beside the contract: exact moments."""

import math

import numpy as np
import pytest
import torch

from tests.models.cases import HORIZON, LINEAR, linear_of, make_batch, make_entries, make_model, without
from tsforecast.core import Gaussian
from tsforecast.models import ExactInference
from tsforecast.models.parts.units import scaled
from tsforecast.models.transformations import TRANSFORMATIONS, transformation_of

EXACT = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(params=LINEAR)
def case(request):
    return request.param


def model_and_entries(case, **options):
    model = make_model(case, **options)
    return model, make_entries(model.data.num_targets)


@pytest.mark.parametrize("case", [name for name in LINEAR if not name.endswith("crps")])
def test_the_loss_is_that_of_the_joint_gaussian_of_what_is_observed(case):
    model, entries = model_and_entries(case)
    for entry in entries:
        batch = make_batch(model, [entry])
        time_slice = model.inference.slice_of(batch, "both")
        system, prior = linear_of(model.inference, time_slice, batch)
        joint = system.predictive(prior, len(time_slice.values))
        values, observed = scaled(time_slice, *model.inference.scale_of(batch))
        seen = observed.flatten()
        assert 0 < seen.sum() < len(seen)
        marginal = Gaussian(joint.mean[0, seen], joint.cov[0][seen][:, seen])
        expected = -marginal.log_prob(values.flatten()[seen]) / seen.sum()
        torch.testing.assert_close(model.loss(batch)[0], expected, **EXACT)


def test_the_predictive_of_a_series_alone_is_that_in_a_batch(case):
    model, entries = model_and_entries(case)
    together = make_batch(model, entries)
    joint = model.inference.predictive(model.filter(together)[0], together)
    for k, entry in enumerate(entries):
        alone = make_batch(model, [entry])
        predictive = model.inference.predictive(model.filter(alone)[0], alone)
        torch.testing.assert_close(predictive.mean[0], joint.mean[k], **EXACT)
        torch.testing.assert_close(predictive.cov[0], joint.cov[k], **EXACT)


def test_samples_have_the_moments_of_the_predictive(case):
    model, entries = model_and_entries(case, transformation="none")
    batch = make_batch(model, entries, train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        joint = model.inference.predictive(belief, batch)
        count = 4000
        samples = model.forecast(belief, batch, count, torch.Generator().manual_seed(1)).flatten(2)
    error = (samples.mean(1) - joint.mean) / (joint.variance / count).sqrt()
    assert error.abs().max() < 4.5
    centred = samples - joint.mean.unsqueeze(1)
    cov = centred.mT @ centred / count
    deviation = ((joint.cov.square() + joint.variance.unsqueeze(-1) * joint.variance.unsqueeze(-2)) / count).sqrt()
    assert ((cov - joint.cov) / deviation).abs().max() < 4.5


def test_what_is_known_of_the_future_is_conditioned_on(case):
    """Known in full at the beginning of the horizon: the same as having filtered on."""
    model, entries = model_and_entries(case)
    entry = without(entries[0], -3)
    length = entry["target"].shape[-1]
    entry = {**entry, "feat_dynamic_real": entry["feat_dynamic_real"][:, :length]}
    past = {**entry, "target": entry["target"][..., :-HORIZON]}
    known = np.array(entry["target"][..., -HORIZON:])
    known[..., 2:] = np.nan
    batch = make_batch(model, [{**past, "known_future": known}], train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        given = model.inference.predictive(belief, batch)
        nothing = torch.full_like(batch["known_future"], torch.nan)
        free = model.inference.predictive(belief, {**batch, "known_future": nothing})
        on = {
            **batch,
            **{f"past_{n}": batch[f"future_{n}"][:, :2] for n in ("time_feat", "season_index", "dynamic_real")},
        }
        on["past_target"] = torch.as_tensor(np.atleast_2d(known).T[None, :2])
        on["past_observed"] = ~on["past_target"].isnan()
        on["past_is_pad"] = torch.zeros(1, 2, dtype=torch.bool)
        on |= {f"future_{n}": batch[f"future_{n}"][:, 2:] for n in ("time_feat", "season_index", "dynamic_real")}
        on["known_future"] = torch.full_like(batch["known_future"][:, 2:], torch.nan)
        later = model.inference.predictive(model.filter(on, belief)[0], on)
    size = 2 * model.data.num_targets
    torch.testing.assert_close(given.mean[:, size:], later.mean, **EXACT)
    torch.testing.assert_close(given.cov[:, size:, size:], later.cov, **EXACT)
    seen = ~batch["known_future"].flatten().isnan()
    cross = free.cov[0][~seen][:, seen]
    gain = torch.linalg.solve(free.cov[0][seen][:, seen], cross.T).T
    residual = model.units.transform(batch["known_future"].flatten()[seen].double()) - free.mean[0, seen]
    torch.testing.assert_close(given.mean[0, ~seen], free.mean[0, ~seen] + gain @ residual, **EXACT)
    torch.testing.assert_close(given.cov[0][~seen][:, ~seen], free.cov[0][~seen][:, ~seen] - gain @ cross.T, **EXACT)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_marginals_are_those_of_the_joint_gaussian(case, transformation):
    model, entries = model_and_entries(case, transformation=transformation)
    batch = make_batch(model, entries[1:], train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        joint = model.inference.predictive(belief, batch)
        found = model.inference.marginals(belief, batch)
    inside = (joint.mean + joint.variance.sqrt() * 1.2815515655446004).unflatten(1, (HORIZON, -1))
    expected = transformation_of(transformation).restore(inside.double())
    torch.testing.assert_close(
        found.quantile(torch.tensor([0.9], dtype=torch.float64))[0], expected, rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_marginals_given_known_values(case, transformation):
    """What is known has no variance, and the rest that of the joint Gaussian given it."""
    model, entries = model_and_entries(case, transformation=transformation)
    known = np.full((*entries[0]["target"].shape[:-1], HORIZON), np.nan, np.float32)
    known[..., 1], known[..., 3] = 0.6 if transformation == "logit" else 1.7, 0.3
    batch = make_batch(model, [{**entries[1], "known_future": known}], train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        joint = model.inference.predictive(belief, batch)
        found = model.inference.marginals(belief, batch)
    fixed = torch.as_tensor(np.atleast_2d(known).T)[[1, 3]].double()
    for quantile in found.quantile(torch.tensor([0.1, 0.9])):
        torch.testing.assert_close(quantile[0, [1, 3]], fixed, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        found.deviation[0, 0, [0, 2]].flatten(), joint.variance.sqrt().reshape(HORIZON, -1)[[0, 2]].flatten(), **EXACT
    )


@pytest.mark.parametrize("over", ["series", "parameters"])
def test_gradients_of_each_series_by_vmap(case, over):
    """What online adaptation needs: one gradient a series, or a set of parameters, at once."""
    model, entries = model_and_entries(case)
    assert isinstance(model.inference, ExactInference)
    batch = {name: value for name, value in make_batch(model, entries).items() if isinstance(value, torch.Tensor)}
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, one):
            return self.model.loss({name: value.unsqueeze(0) for name, value in one.items()}).squeeze(0)

    def loss(values, one):
        return torch.func.functional_call(Loss(), {f"model.{name}": v for name, v in values.items()}, (one,))

    if over == "series":
        gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch)
    else:
        one = {name: value[0] for name, value in batch.items()}
        several = {name: torch.stack([p, p + 0.01 * torch.randn_like(p)]) for name, p in parameters.items()}
        gradients = torch.func.vmap(torch.func.grad(loss), (0, None))(several, one)
    model.loss({name: value[:1] for name, value in batch.items()}).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name][0], parameter.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("transformation", ["none", "log1p"])
def test_the_crps_is_that_of_the_forecast(case, transformation):
    """In scaled units, by the quantile loss; behind a transformation over tenths, in units of the data."""
    model, entries = model_and_entries(case, transformation=transformation, objective="crps")
    entry = {**entries[0], "target": np.abs(entries[0]["target"])}
    batch = make_batch(model, [entry])
    with torch.no_grad():
        loss = model.loss(batch).item()
        belief, _ = model.filter(batch)
        nothing = torch.full_like(batch["future_target"], torch.nan)
        joint = model.inference.predictive(belief, {**batch, "known_future": nothing})
    value, seen = batch["future_target"].flatten(), batch["future_observed"].flatten()
    normal = torch.distributions.Normal(joint.mean[0], joint.variance[0].sqrt())
    if transformation == "none":
        scale = belief.scale[0].repeat(HORIZON)
        levels = (torch.arange(20000).double() + 0.5) / 20000
        quantiles = normal.icdf(levels.unsqueeze(-1))
    else:
        scale = (batch["past_target"].abs().sum(1) / batch["past_observed"].sum(1))[0].repeat(HORIZON) + 1
        levels = torch.arange(1, 10).double() / 10
        quantiles = normal.icdf(levels.unsqueeze(-1)).exp() - 1
    below = (value < quantiles).double()
    score = (2 * (below - levels.unsqueeze(-1)) * (quantiles - value)).mean(0) / scale
    assert loss == pytest.approx(score[seen].mean().item(), rel=1e-3 if transformation == "none" else 1e-6)


def test_imputed_values_are_those_of_the_joint_gaussian_given_what_is_there(case):
    model, entries = model_and_entries(case)
    entry = without(entries[0], 3, 4, 9)
    batch = make_batch(model, [{**entry, "target": entry["target"][..., :12]}], train=False)
    location, scale = model.inference.scale_of(batch)
    with torch.no_grad():
        system, prior = linear_of(model.inference, model.inference.slice_of(batch, "past"), batch)
        joint = system.predictive(prior, batch["past_target"].shape[1])
        seen = batch["past_observed"].flatten(1)
        steps = batch["past_target"].shape[1]
        units = location.repeat(1, steps), scale.repeat(1, steps)
        value = (model.units.transform(torch.where(seen, batch["past_target"].flatten(1), 0.0)) - units[0]) / units[1]
        given = joint.condition(torch.where(seen, value, 0.0), seen)
        count = 3000
        samples = model.impute(batch, count, torch.Generator().manual_seed(0)).flatten(2)
        values = (model.units.transform(samples.squeeze(0)) - units[0]) / units[1]
    missing = ~seen[0]
    assert missing.sum() >= 3 * model.data.num_targets
    error = (values.mean(0) - given.mean[0])[missing] / (given.variance[0][missing] / count).sqrt()
    assert error.abs().max() < 4.5
    spread = values.var(0)[missing] / given.variance[0][missing] - 1
    assert (spread.abs() < 4.5 * math.sqrt(2 / count)).all()
