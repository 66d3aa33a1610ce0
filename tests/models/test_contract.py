"""What every forecaster promises."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from tests.models.cases import CASES, HORIZON, make_batch, make_entries, make_model, without
from tsforecast.core import Gaussian
from tsforecast.models import INPUT_NAMES, MODELS
from tsforecast.models.base import scaled
from tsforecast.models.linear import AbstractLinearForecaster

EXACT = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def model_and_entries(case, **options):
    model = make_model(case, **options)
    return model, make_entries(model.num_targets)


def test_the_cases_cover_every_model():
    assert {name for name, _ in CASES.values()} == set(MODELS)


def test_gradients_reach_every_parameter(case):
    model, entries = model_and_entries(case)
    model.loss(make_batch(model, entries)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name
    (population,) = (p for name, p in model.named_parameters() if name.endswith("population"))
    assert (population.grad != 0).all()
    (series,) = (p for name, p in model.named_parameters() if name.endswith("series") and "network" not in name)
    assert (series.grad != 0).any(1).all()


def test_a_series_alone_equals_itself_in_a_batch(case):
    model, entries = model_and_entries(case)
    together = make_batch(model, entries)
    loss, (belief, terms) = model.loss(together), model.filter(together)
    joint = model.predictive(belief, together)
    for k, entry in enumerate(entries):
        alone = make_batch(model, [entry])
        torch.testing.assert_close(model.loss(alone)[0], loss[k], **EXACT)
        belief_alone, terms_alone = model.filter(alone)
        torch.testing.assert_close(terms_alone[:, 0], terms[-len(terms_alone) :, k], **EXACT)
        assert (terms[: -len(terms_alone), k] == 0).all()
        for mine, its in ((belief_alone.location, belief.location), (belief_alone.scale, belief.scale)):
            torch.testing.assert_close(mine[0], its[k], **EXACT)
        predictive = model.predictive(belief_alone, alone)
        torch.testing.assert_close(predictive.mean[0], joint.mean[k], **EXACT)
        torch.testing.assert_close(predictive.cov[0], joint.cov[k], **EXACT)


def test_a_history_shorter_than_a_season_is_scaled_as_if_alone(case):
    model = make_model(case)
    entries = make_entries(model.num_targets, lengths=(30, 13))
    entries[1]["target"] = np.random.default_rng(0).normal(size=entries[1]["target"].shape).astype(np.float32)
    _, scale = model.begin(make_batch(model, entries))
    torch.testing.assert_close(model.begin(make_batch(model, entries[1:]))[1][0], scale[1], **EXACT)
    values = model.transform(torch.as_tensor(np.atleast_2d(entries[1]["target"])[:, :-HORIZON]).double())
    torch.testing.assert_close(scale[1], values.diff().abs().mean(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", [name for name in CASES if not name.endswith("crps")])
def test_the_loss_is_that_of_the_joint_gaussian_of_what_is_observed(case):
    model, entries = model_and_entries(case)
    for entry in entries:
        batch = make_batch(model, [entry])
        stretch = model.stretch(batch, "both")
        system, prior = model.system(stretch, batch)
        joint = system.predictive(prior, len(stretch.values))
        values, observed = scaled(stretch, *model.begin(batch))
        seen = observed.flatten()
        assert 0 < seen.sum() < len(seen)
        marginal = Gaussian(joint.mean[0, seen], joint.cov[0][seen][:, seen])
        expected = -marginal.log_prob(values.flatten()[seen]) / seen.sum()
        torch.testing.assert_close(model.loss(batch)[0], expected, **EXACT)


def test_what_stands_at_a_missing_value_has_no_influence(case):
    model, entries = model_and_entries(case)
    batch = make_batch(model, [without(entry, 8, 9, -2) for entry in entries])
    other = {**batch}
    for part in ("past", "future"):
        target, observed = batch[f"{part}_target"], batch[f"{part}_observed"]
        other[f"{part}_target"] = torch.where(observed, target, 1e6)
    assert torch.equal(model.loss(batch), model.loss(other))
    assert not torch.equal(model.loss(batch), model.loss(make_batch(model, entries)))


def test_filtering_on_equals_filtering_at_once(case):
    model, entries = model_and_entries(case)
    batch = make_batch(model, entries[:1])
    location, scale = model.begin(batch)
    _, prior = model.system(model.stretch(batch, "past"), batch)
    start = model.belief_over(prior, batch, location, scale)
    whole, terms = model.filter(batch, start)
    past = [name for name in batch if name.startswith("past_")]
    first = {**batch, **{name: batch[name][:, :11] for name in past}}
    second = {**batch, **{name: batch[name][:, 11:] for name in past}}
    middle, terms_first = model.filter(first, start)
    end, terms_second = model.filter(second, middle)
    assert torch.equal(end.scale, scale)
    torch.testing.assert_close(torch.cat([terms_first, terms_second]), terms, **EXACT)
    torch.testing.assert_close(end.state.mean, whole.state.mean, **EXACT)
    torch.testing.assert_close(end.state.cov, whole.state.cov, **EXACT)
    begun, _ = model.filter(batch)
    torch.testing.assert_close(begun.state.mean, whole.state.mean, **EXACT)


@pytest.mark.parametrize("history", ["gap", "missing", "constant", "zero", "single"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_difficult_histories_give_finite_forecasts(case, history, dtype):
    model, entries = model_and_entries(case)
    model = model.to(dtype)
    entry = entries[0]
    target = np.array(entry["target"])
    if history == "gap":
        target[..., -12:] = np.nan
    elif history == "missing":
        target[...] = np.nan
    elif history == "single":
        target, entry = target[..., 5:6] * 0 + 7, {**entry, "feat_dynamic_real": entry["feat_dynamic_real"][:, 5:]}
    else:
        target[...] = 5.0 if history == "constant" else 0.0
    batch = make_batch(model, [{**entry, "target": target}], train=False)
    belief, terms = model.filter(batch)
    samples = model.forecast(belief, batch, 20)
    assert samples.shape == (1, 20, HORIZON, model.num_targets)
    assert samples.dtype == dtype
    assert torch.isfinite(samples).all()
    assert torch.isfinite(terms).all()
    if (
        history == "constant" and model.transformation == "none"
    ):  # a long way from the units' origin, it stays near its level
        assert ((samples - 5).abs() < 50).all()


def test_samples_have_the_moments_of_the_predictive(case):
    model, entries = model_and_entries(case, transformation="none")
    batch = make_batch(model, entries, train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        joint = model.predictive(belief, batch)
        count = 4000
        samples = model.forecast(belief, batch, count, torch.Generator().manual_seed(1)).flatten(2)
    error = (samples.mean(1) - joint.mean) / (joint.variance / count).sqrt()
    assert error.abs().max() < 4.5
    centred = samples - joint.mean.unsqueeze(1)
    cov = centred.mT @ centred / count
    deviation = ((joint.cov.square() + joint.variance.unsqueeze(-1) * joint.variance.unsqueeze(-2)) / count).sqrt()
    assert ((cov - joint.cov) / deviation).abs().max() < 4.5


def test_forward_gives_what_gluonts_expects(case):
    model, entries = model_and_entries(case)
    batch = make_batch(model, entries, train=False)
    torch.manual_seed(3)
    samples = model(**{name: batch[name] for name in INPUT_NAMES}, num_samples=7)
    torch.manual_seed(3)
    expected = model.forecast(model.filter(batch)[0], batch, 7)
    assert torch.equal(samples, expected if model.num_targets > 1 else expected[..., 0])


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
        given = model.predictive(belief, batch)
        free = model.predictive(belief, {**batch, "known_future": torch.full_like(batch["known_future"], torch.nan)})
        on = {
            **batch,
            **{f"past_{n}": batch[f"future_{n}"][:, :2] for n in ("time_feat", "season_index", "dynamic_real")},
        }
        on["past_target"] = torch.as_tensor(np.atleast_2d(known).T[None, :2])
        on["past_observed"] = ~on["past_target"].isnan()
        on["past_is_pad"] = torch.zeros(1, 2, dtype=torch.bool)
        on |= {f"future_{n}": batch[f"future_{n}"][:, 2:] for n in ("time_feat", "season_index", "dynamic_real")}
        on["known_future"] = torch.full_like(batch["known_future"][:, 2:], torch.nan)
        later = model.predictive(model.filter(on, belief)[0], on)
    size = 2 * model.num_targets
    torch.testing.assert_close(given.mean[:, size:], later.mean, **EXACT)
    torch.testing.assert_close(given.cov[:, size:, size:], later.cov, **EXACT)
    seen = ~batch["known_future"].flatten().isnan()
    cross = free.cov[0][~seen][:, seen]
    gain = torch.linalg.solve(free.cov[0][seen][:, seen], cross.T).T
    residual = model.transform(batch["known_future"].flatten()[seen].double()) - free.mean[0, seen]
    torch.testing.assert_close(given.mean[0, ~seen], free.mean[0, ~seen] + gain @ residual, **EXACT)
    torch.testing.assert_close(given.cov[0][~seen][:, ~seen], free.cov[0][~seen][:, ~seen] - gain @ cross.T, **EXACT)


@pytest.mark.parametrize("transformation", ["none", "log1p", "asinh"])
def test_known_values_come_back_exactly(case, transformation):
    model, entries = model_and_entries(case, transformation=transformation)
    known = np.full((*entries[0]["target"].shape[:-1], HORIZON), np.nan, np.float32)
    known[..., 1], known[..., 3] = 1.7, 0.3
    batch = make_batch(model, [{**entries[1], "known_future": known}], train=False)
    samples = model.forecast(model.filter(batch)[0], batch, 5)
    fixed = torch.as_tensor(np.atleast_2d(known).T)
    assert (samples[:, :, [1, 3]] == fixed[[1, 3]]).all()
    assert (samples[:, :, 0].std(1) > 0).all()
    if transformation != "asinh":
        quantile = model.marginals(model.filter(batch)[0], batch)[0].icdf(torch.tensor([0.9]))
        torch.testing.assert_close(quantile.reshape(HORIZON, -1)[[1, 3]], fixed[[1, 3]].double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("transformation", ["none", "log1p"])
def test_marginals_agree_with_samples(case, transformation):
    model, entries = model_and_entries(case, transformation=transformation)
    batch = make_batch(model, entries[1:], train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        count = 4000
        samples = model.forecast(belief, batch, count, torch.Generator().manual_seed(2))
        marginals = model.marginals(belief, batch)
    for distribution, paths in zip(marginals, samples, strict=True):
        paths = paths if model.num_targets > 1 else paths.squeeze(-1)
        for level in (0.1, 0.5, 0.9):
            below = (paths < distribution.icdf(torch.tensor(level))).double().mean(0)
            assert ((below - level).abs() < 4.5 * (level * (1 - level) / count) ** 0.5).all()
    if transformation == "none":
        torch.testing.assert_close(
            torch.stack([m.mean for m in marginals]).flatten(1), model.predictive(belief, batch).mean
        )
    else:  # moments of a shifted log-normal
        joint = model.predictive(belief, batch)
        mean = (joint.mean + joint.variance / 2).exp() - 1
        torch.testing.assert_close(torch.stack([m.mean for m in marginals]).flatten(1), mean)


def test_marginals_behind_asinh_are_refused(case):
    model, entries = model_and_entries(case, transformation="asinh")
    batch = make_batch(model, entries, train=False)
    with pytest.raises(ValueError, match="take samples"):
        model.marginals(model.filter(batch)[0], batch)


def test_an_unknown_series_is_the_population(case):
    model, entries = model_and_entries(case)
    stranger = make_batch(model, [{**entries[1], "item_id": "new"}])
    assert stranger["series_index"].item() == 0
    loss = model.loss(stranger)
    assert not torch.allclose(loss, model.loss(make_batch(model, [entries[1]])))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".series", "embedding.weight")):
                parameter.zero_()
    torch.testing.assert_close(model.loss(make_batch(model, [entries[1]])), loss, **EXACT)


@pytest.mark.parametrize("transformation", ["log1p", "asinh"])
def test_transformations(case, transformation):
    model, entries = model_and_entries(case, transformation=transformation)
    values = torch.tensor([-0.5, 0.0, 1e-3, 7.0, 1e6], dtype=torch.float64)
    expected = torch.log1p(values) if transformation == "log1p" else torch.asinh(values)
    torch.testing.assert_close(model.transform(values), expected)
    torch.testing.assert_close(model.restore(model.transform(values)), values)
    assert torch.isfinite(model.restore(torch.tensor([-1e9, 1e9]))).all()
    shifted = [{**entry, "target": np.abs(entry["target"])} for entry in entries]
    other = make_model(case, transformation="none")
    batch = make_batch(model, shifted)
    changed = {**batch, **{f"{p}_target": model.transform(batch[f"{p}_target"].double()) for p in ("past", "future")}}
    for mine, its in zip(model.begin(batch), other.begin(changed), strict=True):
        torch.testing.assert_close(mine, its, **EXACT)


def test_the_scale_is_that_of_the_target(case):
    """In units of a thousandth a series has the same likelihood, and its forecast a thousandfold."""
    model, entries = model_and_entries(case, transformation="none")
    batch = make_batch(model, entries)
    larger = {**batch, **{f"{p}_target": 1000 * batch[f"{p}_target"].double() + 5 for p in ("past", "future")}}
    torch.testing.assert_close(model.loss(larger), model.loss(batch), rtol=1e-6, atol=1e-6)
    mine, its = (model.predictive(model.filter(b)[0], b) for b in (batch, larger))
    torch.testing.assert_close(its.mean, 1000 * mine.mean + 5, rtol=1e-6, atol=1e-3)


def test_clipping(case):
    model, entries = model_and_entries(case, clip="nonnegative")
    batch = make_batch(model, [{**entries[0], "target": entries[0]["target"] - 1}], train=False)
    belief, _ = model.filter(batch)
    torch.manual_seed(0)
    clipped = model.forecast(belief, batch, 50)
    model.clip = "none"
    torch.manual_seed(0)
    free = model.forecast(belief, batch, 50)
    assert (free < 0).any()
    assert torch.equal(clipped, free.clamp_min(0))


@pytest.mark.filterwarnings("ignore")  # Lightning's about our loader
def test_checkpoints_load_without_running_code(case, tmp_path):
    model, entries = model_and_entries(case)
    model = model.float()
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=1e-4)
    trainer = pl.Trainer(
        default_root_dir=tmp_path, max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    batch = {name: value for name, value in make_batch(model, entries).items() if isinstance(value, torch.Tensor)}
    trainer.fit(model, torch.utils.data.DataLoader([batch], batch_size=None))
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    assert torch.load(tmp_path / "some.ckpt", weights_only=True)["tsforecast_format"] == 1
    again = type(model).load_from_checkpoint(tmp_path / "some.ckpt", weights_only=True)
    assert again.hparams == model.hparams
    assert torch.equal(again.loss(batch), model.loss(batch))


def test_the_same_seed_gives_the_same_model(case):
    entries = make_entries(make_model(case).num_targets)
    losses = [make_model(case, seed).loss(make_batch(make_model(case), entries)) for seed in (0, 0, 1)]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


@pytest.mark.parametrize(("options", "message"), [({"transformation": "sqrt"}, "log1p"), ({"clip": "yes"}, "auto")])
def test_unknown_choices_are_refused(case, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(case, **options)


def test_a_loss_that_is_not_finite_stops_the_training(case, monkeypatch):
    model, entries = model_and_entries(case)
    monkeypatch.setattr(model, "loss", lambda batch: torch.full((3,), torch.nan))
    with pytest.raises(FloatingPointError, match="learning_rate"):
        model.training_step(make_batch(model, entries), 0)


@pytest.mark.parametrize("over", ["series", "parameters"])
def test_gradients_of_each_series_by_vmap(case, over):
    """What online adaptation needs: one gradient a series, or a set of parameters, at once."""
    model, entries = model_and_entries(case)
    assert isinstance(model, AbstractLinearForecaster)
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
        joint = model.predictive(belief, {**batch, "known_future": torch.full_like(batch["future_target"], torch.nan)})
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
