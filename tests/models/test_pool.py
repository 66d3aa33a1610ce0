"""A pool is its members, trained as if alone, and the mixture of their forecasts."""

import numpy as np
import pytest
import torch

from tests.models.cases import CASES, HORIZON, entries_of, make_batch, make_model
from tsforecast.models import MODELS
from tsforecast.models import make_model as build
from tsforecast.models.transformations import transformation_of

WEIGHTS = (0.5, 0.2, 0.3)
EXACT = {"rtol": 1e-9, "atol": 1e-9}
MEMBERS = [
    ("bank", {"structures": "trend,level+day_of_week"}),
    ("issm", {"components": "damped_level+cycle_of_3"}),
    ("gls", {"state_dim": 3, "objective": "likelihood", "transformation": "asinh"}),
]


def alone(pool, number):
    """One of the members, built by itself, with the parameters that it has in the pool."""
    name, options = MEMBERS[number]
    common = {key: value for key, value in pool.hyperparameters.items() if key not in ("members", "weights")}
    if name == "bank":
        common = {key: value for key, value in common.items() if key not in ("transformation", "scaling")}
    model = build(MODELS[name], **{**common, **options}).double()
    model.dynamics.load_state_dict(pool.dynamics.members[number].state_dict())
    return model


@pytest.fixture(scope="module")
def pool():
    return make_model("pool").eval()


@pytest.fixture(scope="module")
def members(pool):
    return [alone(pool, number).eval() for number in range(3)]


def batches(members, **options):
    return [make_batch(member, entries_of("pool"), **options) for member in members]


def test_the_case_is_that_of_this_file():
    assert [one.split()[0] for one in CASES["pool"][1]["members"].split("; ")] == [name for name, _ in MEMBERS]


def test_quantiles_are_those_of_the_mixture_of_the_members(pool, members):
    batch = make_batch(pool, entries_of("pool"))
    found = pool.inference.marginals(pool.filter(batch)[0], batch)
    levels = torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64)
    parts = [m.inference.marginals(m.filter(b)[0], b) for m, b in zip(members, batches(members), strict=True)]
    for level, values in zip(levels, found.quantile(levels), strict=True):
        below = sum(weight * part.cdf(values) for weight, part in zip(WEIGHTS, parts, strict=True))
        torch.testing.assert_close(below, level.expand(below.shape), rtol=0, atol=2e-7)
    mean = sum(weight * part.expectation() for weight, part in zip(WEIGHTS, parts, strict=True))
    torch.testing.assert_close(found.expectation(), mean, rtol=1e-6, atol=1e-6)  # weights are float32 numbers
    assert len(found.names) == found.log_weight.shape[1] == 3 * 12 + 1 + 1
    assert found.names[0] == "bank structures=trend,level+day_of_week: trend"
    assert found.names[-1].startswith("gls state_dim=3")


def test_the_likelihood_is_that_of_the_mixture_in_the_units_of_the_data(pool, members):
    batch = make_batch(pool, entries_of("pool"))
    belief, terms = pool.filter(batch)
    seen, density = batch["past_observed"][..., 0].T, 0.0
    values = torch.where(batch["past_observed"], batch["past_target"], 0.0).double()[..., 0].T
    for weight, member, own in zip(WEIGHTS, members, batches(members), strict=True):
        known, log_density = member.filter(own)
        slope = transformation_of(member.units.transformation).log_slope(values) - known.scale[:, 0].log()
        density = density + weight * (log_density + slope).exp()
    expected = torch.where(seen, (density * belief.scale[:, 0]).log(), 0.0)
    torch.testing.assert_close(terms, expected, rtol=1e-6, atol=1e-6)


def test_a_value_too_far_for_a_member_is_weighed_by_the_others(pool, members):
    """A later value, beyond the scale of the bank and of the issm, is near behind the asinh of the gls."""
    batch = make_batch(pool, entries_of("pool")[:1])
    place = int(batch["past_observed"][0, :, 0].nonzero()[-1])
    past = [name for name in batch if name.startswith("past_")]
    parts = (slice(place), slice(place, place + 1))
    first, second = ({**batch, **{name: batch[name][:, part] for name in past}} for part in parts)
    second["past_target"] = torch.full_like(second["past_target"], 1e12, dtype=torch.float64)
    belief, terms = pool.filter(second, pool.filter(first)[0])
    near = {}
    for number, (member, own) in enumerate(zip(members, pool.inference.members, strict=True)):
        early, late = (dict(pool.inference.each(part))[own] for part in (first, second))
        known, log_density = member.filter(late, member.filter(early)[0])
        if not member.units.too_far(late, known)[0, 0, 0]:
            slope = transformation_of(member.units.transformation).log_slope(late["past_target"][0, 0, 0])
            slope = slope - known.scale[0, 0].log()
            near[number] = log_density[0, 0] + slope
    assert [*near] == [2]  # so its weight is all there is
    torch.testing.assert_close(terms[0, 0], near[2] + belief.scale[0, 0].log(), rtol=1e-6, atol=1e-6)


def test_a_pool_draws_as_many_paths_of_a_member_as_its_weight_says(pool, monkeypatch):
    """Members that forecast their own numbers are recognised in its paths, which are in random order."""
    batch = make_batch(pool, entries_of("pool"))

    def forecast(self, belief, future, count, generator):
        number = next(k for k, member in enumerate(pool.inference.members) if member is self)
        return torch.full((3, count, HORIZON, 1), float(number))

    belief = pool.filter(batch)[0]
    for kind in {type(member) for member in pool.inference.members}:
        monkeypatch.setattr(kind, "forecast", forecast)
    paths = pool.forecast(belief, batch, 200, torch.Generator().manual_seed(3))
    drawn = paths[0, :, 0, 0].long()
    assert (paths == drawn[None, :, None, None]).all()
    assert all(abs(int(count) - 200 * weight) <= 1 for count, weight in zip(drawn.bincount(), WEIGHTS, strict=True))
    assert (drawn.diff() != 0).sum() > 50  # not one member after the other


def test_members_are_trained_as_if_alone(pool, members):
    """Losses add up, and a step of the optimiser moves each member as its own would."""
    batch = make_batch(pool, entries_of("pool"))
    own = [m.loss(b) for m, b in zip(members, batches(members), strict=True)]
    torch.testing.assert_close(pool.loss(batch), sum(own), **EXACT)
    for model in (pool, *members):
        model.zero_grad()
    pool.loss(batch).sum().backward()
    torch.stack(own).sum().backward()
    moved = pool.groups.optimizer(pool.dynamics.named_parameters(), 100.0, 10)["optimizer"]
    rates = {id(p): group["lr"] for group in moved.param_groups for p in group["params"]}
    for k, member in enumerate(members):
        single = member.groups.optimizer(member.dynamics.named_parameters(), 100.0, 10)["optimizer"]
        its = {id(p): group["lr"] for group in single.param_groups for p in group["params"]}
        for (name, mine), other in zip(
            pool.dynamics.members[k].named_parameters(), member.dynamics.parameters(), strict=True
        ):
            torch.testing.assert_close(mine.grad, other.grad, **EXACT)
            assert rates[id(mine)] == its[id(other)], name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": "bank; kvae"}, "expected members among bank, issm, gls, rsgls-issm, got 'kvae'"),
        ({"members": "bank;"}, "got ''"),
        (
            {"members": "issm colour=red"},
            r"expected options of issm as name=value, of .*components.*; got 'colour=red'",
        ),
        ({"members": "issm num_series=4"}, "got 'num_series=4'"),
        ({"members": "issm objective"}, "got 'objective'"),
        ({"members": "bank; issm", "weights": "1"}, "expected 2 positive weights joined by ',', one for each member"),
        ({"members": "bank; issm", "weights": "1,0"}, "positive weights"),
        ({"members": "bank; issm", "weights": "1,much"}, "got '1,much'"),
    ],
)
def test_bad_members_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(MODELS["pool"], **options)


def test_weights_are_divided_by_their_sum():
    found = build(MODELS["pool"], members="issm; gls", weights="3, 1")
    np.testing.assert_allclose(found.dynamics.log_weight.exp().numpy(), [0.75, 0.25], rtol=1e-6)
    equal = build(MODELS["pool"], members="issm; gls")
    np.testing.assert_allclose(equal.dynamics.log_weight.exp().numpy(), [0.5, 0.5], rtol=1e-6)


def test_a_member_with_a_learning_rate_of_0_stays_as_it_begins():
    options = {**CASES["pool"][1], "members": "bank structures=level learning_rate=0; issm components=level"}
    pool = make_model("pool", **{**options, "weights": "equal"}).train()
    batch = make_batch(pool, entries_of("pool"))
    pool.loss(batch).sum().backward()
    fixed, learnt = ([p.grad is not None for p in one.parameters()] for one in pool.dynamics.members)
    assert (any(fixed), any(learnt)) == (False, True)
    own = pool.inference.each(batch)[1]
    torch.testing.assert_close(pool.loss(batch), own[0].loss(own[1], False))
    with pytest.raises(ValueError, match="expected a member that learns, but the learning_rate of each is 0"):
        make_model("pool", **{**options, "members": "bank structures=level learning_rate=0", "weights": "equal"})
