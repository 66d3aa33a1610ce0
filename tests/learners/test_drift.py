"""What happens to a belief between observations, in every family that supports it."""

import itertools
import math

import pytest
import torch

from tests.learners.dense import FAMILIES, SIZE, assert_belief, assert_same, drifted, moments, randn, random_belief
from tests.oracles import generator
from tsforecast.learners import (
    BayesianForgetting,
    ExponentialForgetting,
    Linear,
    NoDrift,
    OrnsteinUhlenbeck,
    ShrinkAndPerturb,
    Wiener,
    rls,
)

pytestmark = pytest.mark.usefixtures("float64")

DRIFTS = {
    "wiener": (Wiener, {"rate": 0.2}),
    "ornstein-uhlenbeck": (OrnsteinUhlenbeck, {"rate": 0.3, "typical": 2.0}),
    "bayesian": (BayesianForgetting, {"rate": 0.2, "typical": 2.0}),
    "exponential": (ExponentialForgetting, {"factor": 0.9}),
    "shrink": (ShrinkAndPerturb, {"decay": 0.9, "sd": 0.3}),
}
# A low-rank covariance cannot mix precisions.
PAIRS = [pair for pair in itertools.product(FAMILIES, DRIFTS) if pair != ("lrkf", "bayesian")]
EVERY = pytest.mark.parametrize(("family", "drift"), PAIRS)


def setting(family: str, drift: str):
    """The drift as a function of belief and time, a belief and a prior."""
    make, settings = DRIFTS[drift]
    prior = FAMILIES[family].prior(randn(SIZE, seed=5), 0.5 + torch.rand(SIZE, generator=generator(6)))
    belief = random_belief(family)
    return lambda b, dt: make(**settings)(FAMILIES[family], b, prior, torch.tensor(dt)), belief, prior


@EVERY
@pytest.mark.parametrize("dt", [1.0, 3.0])
def test_a_drift_is_its_dense_formula(family, drift, dt):
    change, belief, prior = setting(family, drift)
    assert_belief(change(belief, dt), *drifted(drift, *moments(belief), *moments(prior), dt, **DRIFTS[drift][1]))


@EVERY
def test_drifts_over_two_times_are_one_over_their_sum(family, drift):
    change, belief, _ = setting(family, drift)
    assert_belief(change(change(belief, 0.4), 1.3), *moments(change(belief, 1.7)))
    assert not torch.allclose(moments(change(belief, 0.4))[1], moments(belief)[1])


@EVERY
def test_time_may_be_a_number(family, drift):
    make, settings = DRIFTS[drift]
    change, belief, prior = setting(family, drift)
    assert_belief(make(**settings)(FAMILIES[family], belief, prior, 1.3), *moments(change(belief, 1.3)))


@EVERY
def test_no_time_is_no_drift(family, drift):
    change, belief, _ = setting(family, drift)
    assert_belief(change(belief, 0.0), *moments(belief))


@pytest.mark.parametrize(("family", "drift"), [pair for pair in PAIRS if pair[1] in ("ornstein-uhlenbeck", "bayesian")])
@pytest.mark.parametrize("dt", [1e4, math.inf])
def test_after_a_long_time_the_prior_is_back(family, drift, dt):
    change, belief, prior = setting(family, drift)
    assert_belief(change(belief, dt), *moments(prior))


STILL = [
    NoDrift(),
    Linear(),
    Wiener(0.0),
    OrnsteinUhlenbeck(0.0),
    BayesianForgetting(0.0),
    ExponentialForgetting(1.0),
    ShrinkAndPerturb(1.0, 0.0),
]


@pytest.mark.parametrize(
    ("family", "drift"),
    [pair for pair in itertools.product(FAMILIES, STILL) if pair != ("lrkf", BayesianForgetting(0.0))],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_no_rate_is_no_drift(family, drift):
    belief, prior = random_belief(family), FAMILIES[family].prior(torch.zeros(SIZE), torch.ones(SIZE))
    assert_belief(drift(FAMILIES[family], belief, prior, torch.tensor(2.3)), *moments(belief))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "lrkf"])
def test_all_evidence_forgotten_is_the_prior(family):
    prior = FAMILIES[family].prior(randn(SIZE, seed=5), 0.5 + torch.rand(SIZE, generator=generator(6)))
    after = BayesianForgetting(1.0)(FAMILIES[family], random_belief(family), prior, torch.tensor(1.0))
    assert_belief(after, *moments(prior))


@pytest.mark.parametrize("family", FAMILIES)
def test_half_of_the_mean_is_forgotten_in_the_half_life(family):
    """ln 2 typical / rate."""
    change, belief, prior = setting(family, "ornstein-uhlenbeck")
    after = change(belief, math.log(2) * 2.0 / 0.3)
    assert_same(moments(after)[0], (moments(belief)[0] + moments(prior)[0]) / 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slow_return_is_a_random_walk(family):
    """OU with a small rate a: Wiener with 2 a / typical, but for terms of the order of a^2 and a (m - m0), a S."""
    belief = random_belief(family)
    mean, cov = moments(belief)
    prior = FAMILIES[family].prior(mean, 1e6 * torch.ones(SIZE))  # so that a S0 stands where a S vanishes
    slow = OrnsteinUhlenbeck(1e-7, 2.0)(FAMILIES[family], belief, prior, torch.tensor(3.0))
    assert_belief(slow, mean, cov + 2 * 1e-7 / 2.0 * 3.0 * 1e6 * torch.eye(SIZE), rtol=1e-5, atol=1e-5)
    walk = Wiener(2 * 1e-7 / 2.0)(FAMILIES[family], belief, prior, torch.tensor(3.0))
    assert_belief(slow, *moments(walk), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["full", "precision", "covariance", "lofi-0"])
def test_exponential_forgetting_is_noise_in_proportion_to_the_covariance(family):
    """Wiener with (1 / l - 1) S: oracle for a diagonal S in every family, for any in the full one."""
    change, belief, prior = setting(family, "exponential")
    mean, cov = moments(belief)
    noise = (1 / 0.9 - 1) * cov
    assert_belief(change(belief, 1.0), mean, cov + noise)
    pushed = Linear(noise=noise if family == "full" else noise.diagonal())(
        FAMILIES[family], belief, prior, torch.tensor(1.0)
    )
    assert_belief(change(belief, 1.0), *moments(pushed))


def test_without_excitation_exponential_forgetting_winds_up_and_bayesian_forgetting_does_not():
    """One of two inputs is always zero: its weight's variance grows to 0.9^-100, or stays the prior's."""
    x, y = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 1)
    grown = rls(2, 1.0, 1.0, drift=ExponentialForgetting(0.9, floor=0.0))
    bounded, kept = rls(2, 1.0, 1.0, 0.9), rls(2, 1.0, 1.0, drift=BayesianForgetting(0.1))
    for learner, expected in ((grown, 0.9**-100), (bounded, 100.0), (kept, 1.0)):
        belief = learner.init()
        for _ in range(100):
            belief, _ = learner.step(belief, x, y, dt=torch.tensor(1.0))
        assert_same(belief.cov[1, 1], torch.tensor(expected))
    assert belief.cov[0, 0] > 1 / 11  # an effective sample size of 1 / rate, and the prior


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize(("factor", "dt", "steps"), [(0.9, 4.0, 500), (0.99, 5000.0, 200), (0.99, 1e6, 3)])
@pytest.mark.usefixtures("unchecked_types")
def test_beliefs_stay_proper_for_ever_under_exponential_forgetting(family, factor, dt, steps):
    """In float32, and where some inputs never come: over 2000 units of time at a rate of .1, and a million at .01."""
    drift, chosen = ExponentialForgetting(factor), FAMILIES[family]
    variance = torch.full((SIZE,), 0.5, dtype=torch.float32)
    mean = torch.zeros(SIZE, dtype=torch.float32)
    belief, prior = chosen.init(mean, variance), chosen.prior(mean, variance)
    with torch.no_grad():
        for k in range(steps):
            belief = drift(chosen, belief, prior, torch.tensor(dt, dtype=torch.float32))
            matrix = torch.zeros(1, SIZE, dtype=torch.float32)
            matrix[0, k % 2 : 3] = 2.0
            belief = chosen.condition(belief, matrix, matrix.new_ones(1))
    assert belief.mean.isfinite().all()
    spread = chosen.variance(belief)
    assert (spread > 0).all()
    assert (spread <= 0.5 / 0.01 * 1.0001).all()
    assert chosen.sample(belief, 3, generator(0)).isfinite().all()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_bound_on_variances_leaves_smaller_ones_and_cuts_the_others(family):
    belief = random_belief(family)
    mean, cov = moments(belief)
    assert_belief(FAMILIES[family].bound(belief, 1e6 * cov.diagonal()), mean, cov)
    bounded = moments(FAMILIES[family].bound(belief, 0.5 * cov.diagonal()))
    assert_same(bounded[0], mean)
    assert (bounded[1].diagonal() <= 0.5 * cov.diagonal() * (1 + 1e-9)).all()
    if not family.startswith("lofi"):  # whose correlations change
        assert_same(bounded[1], 0.5 * cov)


def test_a_linear_drift_does_not_look_at_the_time():
    drift, belief = Linear(0.9, 0.1, 0.2), random_belief("full")
    once, twice = (drift(FAMILIES["full"], belief, belief, torch.tensor(dt)) for dt in (1.0, 2.0))
    expected = 0.9 * belief.mean + 0.1, 0.81 * belief.cov + 0.2 * torch.eye(SIZE)
    assert_belief(once, *expected)
    assert_belief(twice, *expected)


def test_shrinking_without_decay_adds_noise_in_proportion_to_time():
    belief = random_belief("full")
    after = ShrinkAndPerturb(1.0, 0.3)(FAMILIES["full"], belief, belief, torch.tensor(2.5))
    assert_belief(after, belief.mean, belief.cov + 0.09 * 2.5 * torch.eye(SIZE))


@pytest.mark.parametrize("dt", [None, 0.5])
def test_a_learner_drifts_before_it_predicts(dt):
    """Towards its own prior; for one unit of time, if none is given."""
    learner = rls(2, 2.0, 0.5, drift=OrnsteinUhlenbeck(0.7, 2.0), mean=torch.tensor([1.0, -1.0]))
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.3]])
    belief = learner.update(learner.init(), randn(1, 2), randn(1, 1, seed=1))
    keep = math.exp(-0.7 * (1.0 if dt is None else dt) / 2.0)
    mean = keep * belief.mean + (1 - keep) * torch.tensor([1.0, -1.0])
    cov = keep**2 * belief.cov + (1 - keep**2) * 2.0 * torch.eye(2)
    _, prediction = learner.step(belief, x, y, **({} if dt is None else {"dt": torch.tensor(dt)}))
    assert_same(prediction.mean, x @ mean[:, None])
    assert_same(prediction.variance, x @ cov @ x.T + 0.5)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (Wiener, {"rate": -1e-3}, "rate"),
        (Wiener, {"rate": math.nan}, "rate"),
        (OrnsteinUhlenbeck, {"rate": -1e-3}, "rate"),
        (OrnsteinUhlenbeck, {"typical": 0.0}, "typical"),
        (BayesianForgetting, {"rate": 1.5}, "rate"),
        (BayesianForgetting, {"rate": -0.1}, "rate"),
        (BayesianForgetting, {"typical": -1.0}, "typical"),
        (ExponentialForgetting, {"factor": 0.0}, "factor"),
        (ExponentialForgetting, {"factor": 1.1}, "factor"),
        (ShrinkAndPerturb, {"decay": 0.0}, "decay"),
        (ShrinkAndPerturb, {"decay": 1.1}, "decay"),
        (ShrinkAndPerturb, {"sd": -0.1}, "sd"),
    ],
)
def test_settings_outside_of_their_range_are_refused(make, settings, message):
    with pytest.raises(ValueError, match=f"expected {message} to be"):
        make(**settings)
