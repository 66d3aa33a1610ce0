"""The bank against its models one by one, and its score against samples."""

import math
import pickle

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gamma, multivariate_normal, multivariate_t

from tests.models.cases import entries_of, make_batch, make_model
from tsforecast import StateSpaceEstimator
from tsforecast.core import Gaussian, kalman
from tsforecast.models import MODELS
from tsforecast.models import make_model as build
from tsforecast.models.parts import bank_inference
from tsforecast.models.parts.component_names import structures_of
from tsforecast.models.parts.objectives import crps_of_mixture
from tsforecast.models.parts.units import near, scaled
from tsforecast.models.parts.volatility import InverseGamma
from tsforecast.models.records import Series
from tsforecast.models.transformations import OF_SIZE_ONE, transformation_of

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def alone(bank, structure: int):
    """The model of a structure of a bank without transformation, as an issm with the same parameters."""
    names = ("freq", "prediction_length", "season", "cardinality", "num_dynamic_real", "num_time_features")
    sizes = {name: bank.hyperparameters[name] for name in (*names, "num_static_real")}
    components = bank.hyperparameters["structures"].split(",")[structure]
    issm = build(MODELS["issm"], **sizes, components=components, transformation="none", clip="none").double()
    mine = issm.dynamics.state_dict()
    its = bank.dynamics.structures[structure].state_dict()
    for name in mine:
        mine[name] = its[name]
    mine["parameters_of_series.population"] = (
        its["parameters_of_series.population"] + its[f"parameters_of_series.categories.{len(sizes['cardinality'])}"][0]
    )
    issm.dynamics.load_state_dict(mine)
    return issm


def test_the_models_of_a_bank_are_issms():
    """Their beliefs are; and their densities are Student's t, the Gaussian of an issm of unknown variance.

    With nothing forgotten, the density of a whole past is the multivariate one. Models are weighed here by a quarter of
    it, and three quarters of the Gaussian.
    """
    bank = make_model("bank", structures="damped_trend,level+day_of_week", transformations="none,symlog")
    with torch.no_grad():
        bank.dynamics.log_shape.copy_(torch.tensor([[0.5, 1.0], [2.0, 1.5]]))
        bank.dynamics.log_power.fill_(0.0)
        bank.dynamics.logit_own.fill_(math.log(1 / 3))
    bank.dynamics.forgetting = bank.dynamics.volatility_discount = torch.ones_like
    batch = make_batch(bank, entries_of("bank"))
    with torch.no_grad():
        state = bank.filter(batch)[0].bank
        past = near(bank.inference.slice_of(batch, "past"), *bank.inference.scale_of(batch))
        terms = bank.inference._after(past, Series.of(batch), None)[1]
    seen = batch["past_observed"].squeeze(-1)
    for number in range(2):
        issm = alone(bank, number)
        belongs = {**batch, "series_index": torch.zeros_like(batch["series_index"])}
        if number == 0:
            belongs |= {f"{part}_season_index": batch[f"{part}_season_index"][..., :0] for part in ("past", "future")}
        with torch.no_grad():
            belief = issm.filter(belongs)[0]
            time_slice = issm.inference.slice_of(belongs, "past")
            model = issm.dynamics.linear(time_slice, Series.of(belongs))
            joint = model.system.predictive(model.prior, len(time_slice.values))
        torch.testing.assert_close(state.states[number].mean[:, 0], belief.gaussian.mean, **EXACT)
        torch.testing.assert_close(state.states[number].cov[:, 0], belief.gaussian.cov, **EXACT)
        shape = bank.dynamics.log_shape[number, 0].exp().item()
        values = (time_slice.values.squeeze(-1).T - belief.location) / belief.scale
        for k, own in enumerate(seen):
            moments = joint.mean[k][own].numpy(), joint.cov[k][own][:, own].numpy()
            laws = multivariate_t(*moments, df=2 * shape), multivariate_normal(*moments)
            density, plain = (law.logpdf(values[k][own].detach().numpy()) for law in laws)
            for expected, found in ((density, terms.density), (0.25 * density + 0.75 * plain, terms.evidence)):
                found = found[:, k, number, 0].sum()
                density_of_data = expected - own.sum() * state.scale[k, 0].log()
                torch.testing.assert_close(found, density_of_data.to(found), **EXACT)
            torch.testing.assert_close(state.evidence[k, number, 0], found, **EXACT)


def test_variances_settle():
    """The belief over them is that of a loop over the steps, which goes back to the prior a little in each."""
    bank = make_model("bank")
    entries = entries_of("bank")
    with torch.no_grad():
        bank.dynamics.log_volatility_memory.fill_(1.0)
        found = bank.filter(make_batch(bank, entries))[0].bank
        batch = make_batch(bank, entries)
        past = bank.inference.slice_of(batch, "past")
        state = bank.inference.members.beginning(past, Series.of(batch))
        _, _, squares = bank.inference.members.errors(past, Series.of(batch), state)
        count, total = state.seen, state.squares
        for square, seen in zip(squares, past.observed, strict=True):
            count = torch.where(seen[:, 0], math.exp(-math.exp(-1.0)) * count + 1, count)
            total = torch.where(seen[..., None], math.exp(-math.exp(-1.0)) * total + square, total)
        belief = bank.dynamics.volatility(count, total)
    torch.testing.assert_close(found.seen, count, **EXACT)
    torch.testing.assert_close(found.squares, total, **EXACT)
    begun = bank.dynamics.log_shape[0, 0].clamp_min(0.0).exp()  # a shape of 1, or a larger one that is learnt
    torch.testing.assert_close(belief.shape[:, 0, 0] - 0.5 * count, begun.expand(3), **EXACT)


def test_what_is_missing_is_as_wide_as_the_values_around_it():
    """The spread of what is filled in is that of the smoother, times the widths: within four standard errors."""
    bank, count = make_model("bank", structures="level", transformations="none"), 20_000
    entries = entries_of("bank")
    entries[0]["target"][12] = math.nan
    batch = make_batch(bank, entries)
    with torch.no_grad():
        bank.dynamics.log_volatility_memory.fill_(1.0)
        filled = bank.impute(batch, count, torch.Generator().manual_seed(0)).squeeze(-1)[0]
        at = int(torch.nonzero(filled.std(0) > 0)[-1])
        past, series = bank.inference.slice_of(batch, "past"), Series.of(batch)
        state = bank.inference.members.beginning(past, series)
        (model,) = bank.inference.members.models(bank.inference.members.wide(past, state.size), series)
        values, observed = scaled(bank.inference.members.wide(past, state.size), state.location, state.scale)
        smoothed = kalman.smooth(model.system, model.prior, values, observed).states
        emitted = model.system.at(at)[1].marginal(Gaussian(smoothed.mean[at], smoothed.cov[at]))
        unit = (state.size * state.scale)[0]
        centre = (emitted.mean[0] * state.scale[0] + state.location[0]) * state.size[0]
        squares = ((filled[:, at] - centre) / unit).square() / emitted.variance[0]
        expected = bank.inference._widths_within(past, series)[0, :, at].square().mean()
    assert abs(squares.mean() - expected) < 4 * squares.std() / math.sqrt(count)
    assert abs(expected - 1) > 8 * squares.std() / math.sqrt(count)


def test_widths_are_those_of_the_inverse_gamma():
    """Their nodes are near its quantiles, in the middle of thirds."""
    belief = InverseGamma(torch.tensor([1.0, 3.0, 30.0]), torch.tensor([2.0, 1.0, 60.0]))
    for shape, rate, found in zip(belief.shape, belief.rate, belief.widths(), strict=True):
        exact = gamma(shape.item(), scale=1 / rate.item()).ppf([1 / 6, 1 / 2, 5 / 6]) ** -0.5
        torch.testing.assert_close(found, torch.tensor(exact, dtype=found.dtype), rtol=0.03, atol=0)


@pytest.mark.parametrize("name", OF_SIZE_ONE)
def test_densities_change_by_the_slope_of_a_transformation(name):
    values = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(transformation_of(name).apply(values).sum(), values)
    torch.testing.assert_close(transformation_of(name).log_slope(values), slope.log(), **EXACT)
    torch.testing.assert_close(transformation_of(name).restore(transformation_of(name).apply(values)), values, **EXACT)


def test_the_loss_is_the_crps_of_the_paths():
    """Within four standard errors of the score of many paths, E|X - y| - E|X - X'| / 2, and the rule's own error.

    Without a transformation, whose far tails the rule leaves out.
    """
    bank = make_model("bank-crps", transformations="none")
    batch = make_batch(bank, entries_of("bank-crps"))
    with torch.no_grad():
        belief = bank.filter(batch)[0]
        future = bank.inference.slice_of(batch, "future")
        mixture = bank.inference._mixture(belief.bank, Series.of(batch), future)
        values = future.values.squeeze(-1).T / belief.bank.size
        score = crps_of_mixture(mixture, values, torch.ones_like(values, dtype=torch.bool))
        paths, others = (bank.forecast(belief, batch, 20_000).squeeze(-1) / belief.bank.size[..., None] for _ in "ab")
    terms = (paths - values.unsqueeze(1)).abs() - 0.5 * (paths - others[:, torch.randperm(20_000)]).abs()
    error = terms.std(1) / math.sqrt(20_000)
    assert ((terms.mean(1) - score).abs() < 4 * error + 0.01 * score).all()


@pytest.mark.parametrize("known", [[], [1]])
def test_quantiles_are_those_of_paths(known):
    """Also given a known step, which has no variance."""
    bank, count = make_model("bank", transformations="none,symlog"), 20_000
    batch = make_batch(bank, entries_of("bank"), train=False)
    batch["known_future"][:, known] = 1.7
    with torch.no_grad():
        belief = bank.filter(batch)[0]
        found = bank.inference.marginals(belief, batch)
        paths = bank.forecast(belief, batch, count, torch.Generator().manual_seed(0))
    free = [step for step in range(paths.shape[2]) if step not in known]
    for level, quantile in zip((0.1, 0.9), found.quantile(torch.tensor([0.1, 0.9])), strict=True):
        below = (paths < quantile.unsqueeze(1)).double().mean(1)[:, free]
        assert ((below - level).abs() < 4.5 * (level * (1 - level) / count) ** 0.5).all()
        given = torch.full_like(quantile[:, known], batch["known_future"][0, 1, 0].item())
        torch.testing.assert_close(quantile[:, known], given, rtol=1e-12, atol=1e-12)


def test_steps_are_weighed_by_what_came_before(monkeypatch):
    """However many steps are summed up at once, as by a loop over them; with missing values, which forget nothing."""
    bank = make_model("bank")
    batch = make_batch(bank, entries_of("bank"))
    with torch.no_grad():
        whole, steps = bank.filter(batch)
        monkeypatch.setattr("tsforecast.models.parts.volatility._STEPS", 3)
        torch.testing.assert_close(bank.filter(batch)[1], steps, **EXACT)
        past = bank.inference.slice_of(batch, "past")
        state, terms = bank.inference._after(past, Series.of(batch), None)
        evidence = torch.zeros_like(state.evidence)
        once = bank.dynamics.forgetting(torch.ones(1, dtype=evidence.dtype))
        for density, told, seen, found in zip(terms.density, terms.evidence, past.observed, steps, strict=True):
            expected = torch.logsumexp((bank.dynamics.log_weight(evidence) + density).flatten(1), 1)
            expected = torch.where(seen[:, 0], expected + state.scale[:, 0].log(), 0.0)
            torch.testing.assert_close(found, expected, **EXACT)
            evidence = torch.where(seen[..., None], once * evidence + told, evidence)
    torch.testing.assert_close(whole.bank.evidence, evidence, **EXACT)


def test_values_that_are_supposed_say_of_the_models_what_the_same_values_say_when_they_come():
    """Weights and widths of a what-if are those of an update, also behind a gap; older evidence fades in both."""
    bank = make_model("bank")
    with torch.no_grad():
        bank.dynamics.log_memory.fill_(1.0)
        bank.dynamics.log_volatility_memory.fill_(1.0)
    batch = make_batch(bank, entries_of("bank"), train=False)
    batch["known_future"][:, :, 0] = torch.tensor([math.nan, 1.7, 0.4, math.nan])
    with torch.no_grad():
        belief = bank.filter(batch)[0]
        supposed = bank.inference._joints(belief, batch)[0]
        came = {**batch, "past_target": batch["known_future"]}
        came |= {f"past_{name}": batch[f"future_{name}"] for name in ("time_feat", "season_index", "dynamic_real")}
        came["past_observed"] = ~came["past_target"].isnan()
        came["past_is_pad"] = torch.zeros_like(came["past_observed"][..., 0])
        updated = bank.filter(came, belief)[0].bank
    assert (updated.evidence - belief.bank.evidence).abs().max() > 0.1
    for name in ("evidence", "seen", "squares"):
        torch.testing.assert_close(getattr(supposed, name), getattr(updated, name), **EXACT)
    for mine, its in zip(bank.inference._weighted(supposed), bank.inference._weighted(updated), strict=True):
        torch.testing.assert_close(mine, its, **EXACT)


def test_widths_settle_over_the_horizon():
    """Of what a series adds to the variance of all, the mean of exp(-t / 2) over 0 .. h is left h steps ahead."""
    bank = make_model("bank")
    batch = make_batch(bank, entries_of("bank"), train=False)
    with torch.no_grad():
        bank.dynamics.log_volatility_memory.fill_(math.log(2.0))
        belief = bank.filter(batch)[0]
        found = bank.inference.marginals(belief, batch).deviation.squeeze(-1)
        widths = bank.inference._weighted(belief.bank)[1].flatten(1).unsqueeze(-1)
        bank.dynamics.volatility_persistence = torch.zeros_like
        plain = bank.inference.marginals(belief, batch).deviation.squeeze(-1)
    lasting = [quad(lambda t: math.exp(-t / 2), 0, ahead)[0] / ahead for ahead in range(1, found.shape[-1] + 1)]
    expected = plain * (1 + (widths.square() - 1) * torch.tensor(lasting, dtype=plain.dtype)).sqrt()
    assert (widths - 1).abs().max() > 0.1
    torch.testing.assert_close(found, expected, **EXACT)


def test_changes_over_gaps_do_not_count():
    """In the unit of the score, by which a window that wakes up is divided."""
    bank = make_model("bank-crps", transformations="none")
    batch = make_batch(bank, entries_of("bank-crps"))
    batch["future_observed"][:, 1] = False
    with torch.no_grad():
        losses = [bank.loss({**batch, "future_target": batch["future_target"].clone()})]
        batch["future_target"][:, 1] = 1e6  # what is not observed
        losses.append(bank.loss(batch))
        high = {
            **batch,
            "future_target": torch.where(batch["future_observed"], batch["future_target"] + 1e4, torch.nan),
        }
        mixture = bank.inference._mixture(
            bank.filter(high)[0].bank, Series.of(high), bank.inference.slice_of(high, "future")
        )
        size = bank.filter(high)[0].bank.size
        values = high["future_target"].squeeze(-1).double() / size
        seen = high["future_observed"].squeeze(-1)
        score = crps_of_mixture(mixture, torch.nan_to_num(values), seen).sum(1) / seen.sum(1)
        unit = score / bank.loss(high)
        last = torch.stack(
            [
                row[seen_row][-1]
                for row, seen_row in zip(
                    high["past_target"].squeeze(-1), high["past_observed"].squeeze(-1), strict=True
                )
            ]
        )
        first = (values[:, 0] - last / size.squeeze(1)).abs()
        late = (values[:, 3] - values[:, 2]).abs()  # steps 1 and 2 are on either side of a gap
        pairs = 1 + (seen[:, 3] & seen[:, 2])
        expected = (first + torch.where(pairs == 2, late, 0.0)) / pairs
    assert torch.equal(*losses)
    torch.testing.assert_close(unit, expected, rtol=1e-6, atol=0)


def test_a_long_window_is_scored_on_steps_that_lie_evenly(monkeypatch):
    """In the same unit as on all of its steps."""
    bank = make_model("bank-crps")
    batch = make_batch(bank, entries_of("bank-crps"))
    batch["future_observed"][0, 0] = False
    with torch.no_grad():
        belief, future = bank.filter(batch)[0], bank.inference.slice_of(batch, "future")
        values, seen = future.values.squeeze(-1).T / belief.bank.size, batch["future_observed"].squeeze(-1)
        score = crps_of_mixture(bank.inference._mixture(belief.bank, Series.of(batch), future), values, seen)
        whole = bank.loss(batch)
        monkeypatch.setattr(bank_inference, "_SCORED", 2)
        ends = bank.loss(batch)
    unit = score.sum(1) / seen.sum(1) / whole
    expected = score[:, [0, -1]].sum(1) / seen[:, [0, -1]].sum(1).clamp_min(1)
    assert score.shape[1] > 2
    torch.testing.assert_close(ends * unit, expected, rtol=1e-6, atol=0)


def test_the_future_has_the_likelihood_of_the_mixture():
    """The joint density of all models by the dense t of the horizon, with the slopes of transformations."""
    bank = make_model("bank")
    bank.dynamics.volatility_discount = torch.ones_like
    batch = make_batch(bank, entries_of("bank"))
    with torch.no_grad():
        loss = bank.loss(batch)
        belief = bank.filter(batch)[0]
        state, joints = bank.inference._joints(belief, batch)
        log_weight = bank.dynamics.log_weight(state.evidence).flatten(1)
        volatility = bank.dynamics.volatility(state.seen, state.squares)
        observed = batch["future_observed"].squeeze(-1)
        values = bank.inference.slice_of(batch, "future").values.squeeze(-1).T / belief.bank.size
        for k in range(len(values)):
            seen = observed[k]
            found = []
            for structure, joint in enumerate(joints):
                for number, name in enumerate(bank.dynamics.transformations):
                    row = number * len(values) + k
                    shape, rate = (x[k, structure, number].item() for x in (volatility.shape, volatility.rate))
                    location, scale = (x[k, number] for x in (state.location, state.scale))
                    mean, cov = joint.mean[row] * scale + location, joint.cov[row] * scale.square()
                    known = multivariate_t(mean[seen].numpy(), cov[seen][:, seen].numpy() * rate / shape, 2 * shape)
                    density = torch.tensor(known.logpdf(transformation_of(name).apply(values[k][seen]).numpy()))
                    found.append(density + transformation_of(name).log_slope(values[k][seen]).sum())
            total = torch.logsumexp(log_weight[k] + torch.stack(found), 0) / seen.sum()
            torch.testing.assert_close(loss[k], -total - belief.bank.scale[k, 0].log(), **EXACT)


def test_a_series_decides_for_its_structure():
    """After a straight line the trend has nearly all the weight, before the first value its prior alone."""
    bank = make_model("bank", structures="level,trend", transformations="none")
    with torch.no_grad():
        for parameter in bank.parameters():
            parameter.zero_()
        bank.dynamics.log_memory.fill_(3.0)
        for member in bank.dynamics.structures:
            member.parameters_of_series.population[: len(member.structure.noise_names)] = -3.0
    entries = entries_of("bank", lengths=(30, 30, 30))
    for entry in entries:
        entry["target"] = torch.arange(30.0).numpy()
    weight = bank.dynamics.log_weight(bank.filter(make_batch(bank, entries))[0].bank.evidence).exp()
    assert (weight[:, 1] > 0.99).all()
    missing = [{**entry, "target": entry["target"] * math.nan} for entry in entries]
    weight = bank.dynamics.log_weight(bank.filter(make_batch(bank, missing, train=False))[0].bank.evidence).exp()
    torch.testing.assert_close(weight, torch.full_like(weight, 0.5), **EXACT)


def test_forecasts_name_the_models_and_their_weights():
    entries = entries_of("bank", lengths=(30, 20, 25))
    estimator = StateSpaceEstimator(
        "bank", "D", 4, structures="level,trend", seed=0, trainer_kwargs={"max_epochs": 1, "enable_progress_bar": False}
    )
    plain = [{name: entry[name] for name in ("item_id", "start", "target")} for entry in entries]
    (first, *_) = estimator.train(plain).predict(plain)
    assert set(first.weights) == {"level", "level on symlog", "trend", "trend on symlog"}
    assert sum(first.weights.values()) == pytest.approx(1.0)
    assert list(first.weights.values()) == sorted(first.weights.values(), reverse=True)
    assert pickle.loads(pickle.dumps(first)).weights == first.weights


def test_structures_by_frequency():
    assert structures_of("auto", "M") == [
        "level+month_of_year", "damped_level+month_of_year", "trend+month_of_year", "damped_trend+month_of_year",
        "level", "damped_trend",
    ]  # fmt: skip
    assert structures_of("auto", "Y-DEC") == ["level", "damped_level", "trend", "damped_trend"]
    assert [name.count("+") for name in structures_of("auto", "30min")] == [3, 2, 1, 1, 0]
    assert [name.count("year") for name in structures_of("auto", "W-SUN")] == [0] * 4 + [1] * 6
    assert [name.count("year") for name in structures_of("auto", "2W-SUN")] == [0] * 4 + [1] * 4
    assert structures_of("auto", "4W-SUN")[4:] == ["level+year", "damped_level+year"]
    assert structures_of("auto", "13W-SUN")[4:] == ["level+cycle_of_4", "damped_level+cycle_of_4"]
    assert structures_of("auto", "52W-SUN") == structures_of("auto", "Y-DEC")
    assert structures_of("level, trend+day_of_week", "D") == ["level", "trend+day_of_week"]
    with pytest.raises(ValueError, match="every structure once"):
        structures_of("level,level", "D")
