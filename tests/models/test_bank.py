"""The bank against its models one by one, and its score against samples."""

import math
import pickle

import pytest
import torch

from tests.models.cases import entries_of, make_batch, make_model
from tsforecast import StateSpaceEstimator
from tsforecast.models import MODELS
from tsforecast.models import make_model as build
from tsforecast.models.parts.component_names import structures_of
from tsforecast.models.parts.objectives import crps_of_mixture
from tsforecast.models.parts.transformation import OF_SIZE_ONE, log_slope, restored, transformed
from tsforecast.models.records import Series

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
    """Their beliefs and their likelihoods, of which the evidence is made."""
    bank = make_model("bank", structures="damped_trend,level+day_of_week", transformations="none,symlog")
    with torch.no_grad():
        bank.dynamics.log_memory.fill_(20.0)
        bank.dynamics.log_power.fill_(0.0)
    batch = make_batch(bank, entries_of("bank"))
    state = bank.filter(batch)[0].bank
    for number in range(2):
        issm = alone(bank, number)
        belongs = {**batch, "series_index": torch.zeros_like(batch["series_index"])}
        if number == 0:
            belongs |= {f"{part}_season_index": batch[f"{part}_season_index"][..., :0] for part in ("past", "future")}
        belief, terms = issm.filter(belongs)
        torch.testing.assert_close(state.states[number].mean[:, 0], belief.gaussian.mean, **EXACT)
        torch.testing.assert_close(state.states[number].cov[:, 0], belief.gaussian.cov, **EXACT)
        count = batch["past_observed"].sum((1, 2))
        memory = bank.dynamics.log_memory.clamp(0.0, 9.0).exp()
        age = count - batch["past_observed"].squeeze(-1).T.cumsum(0)
        units = (terms - torch.where(batch["past_observed"].squeeze(-1).T, state.scale[:, 0].log(), 0.0)) * (
            -age / memory
        ).exp()
        torch.testing.assert_close(state.evidence[:, number, 0], units.sum(0), **EXACT)


@pytest.mark.parametrize("name", OF_SIZE_ONE)
def test_densities_change_by_the_slope_of_a_transformation(name):
    values = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(transformed(values, name).sum(), values)
    torch.testing.assert_close(log_slope(values, name), slope.log(), **EXACT)
    torch.testing.assert_close(restored(transformed(values, name), name), values, **EXACT)


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
        monkeypatch.setattr("tsforecast.models.parts.bank._STEPS", 3)
        torch.testing.assert_close(bank.filter(batch)[1], steps, **EXACT)
        past = bank.inference.slice_of(batch, "past")
        state, terms = bank.inference._after(past, Series.of(batch), None)
        evidence = torch.zeros_like(state.evidence)
        once = bank.dynamics.forgetting(torch.ones(1, dtype=evidence.dtype))
        for term, seen, found in zip(terms, past.observed, steps, strict=True):
            expected = torch.logsumexp((bank.dynamics.log_weight(evidence) + term).flatten(1), 1)
            expected = torch.where(seen[:, 0], expected + state.scale[:, 0].log(), 0.0)
            torch.testing.assert_close(found, expected, **EXACT)
            evidence = torch.where(seen[..., None], once * evidence + term, evidence)
    torch.testing.assert_close(whole.bank.evidence, evidence, **EXACT)


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


def test_the_future_has_the_likelihood_of_the_mixture():
    """The joint density of all models by the dense Gaussian of the horizon, with the slopes of transformations."""
    bank = make_model("bank")
    batch = make_batch(bank, entries_of("bank"))
    with torch.no_grad():
        loss = bank.loss(batch)
        belief = bank.filter(batch)[0]
        log_weight, joints = bank.inference._joints(belief, batch)
        observed = batch["future_observed"].squeeze(-1)
        values = bank.inference.slice_of(batch, "future").values.squeeze(-1).T / belief.bank.size
        for k in range(len(values)):
            seen = observed[k]
            found = []
            for joint in joints:
                for number, name in enumerate(bank.dynamics.transformations):
                    row = number * len(values) + k
                    normal = torch.distributions.MultivariateNormal(
                        joint.mean[row][seen], joint.cov[row][seen][:, seen]
                    )
                    found.append(
                        normal.log_prob(transformed(values[k][seen], name)) + log_slope(values[k][seen], name).sum()
                    )
            total = torch.logsumexp(log_weight[k] + torch.stack(found), 0) / seen.sum()
            torch.testing.assert_close(loss[k], -total - belief.bank.scale[k, 0].log(), **EXACT)


def test_a_series_decides_for_its_structure():
    """After a straight line the trend has nearly all the weight, before the first value its prior alone."""
    bank = make_model("bank", structures="level,trend", transformations="none")
    with torch.no_grad():
        for parameter in bank.parameters():
            parameter.zero_()
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
    assert [name.count("+") for name in structures_of("auto", "30min")] == [3, 1, 1]
    assert structures_of("level, trend+day_of_week", "D") == ["level", "trend+day_of_week"]
    with pytest.raises(ValueError, match="every structure once"):
        structures_of("level,level", "D")
