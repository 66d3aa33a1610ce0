"""The ISSM with free parameters against statsmodels, on real series.

Conventions. Ours: x_0 ~ prior, then the transition, then the emission, at every step. Theirs: a known Gaussian over
the first emitted state, which is ours pushed through one transition. Series are compared in our scaled units.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import block_diag
from scipy.optimize import minimize
from statsmodels.tsa.statespace.mlemodel import MLEModel
from statsmodels.tsa.statespace.structural import UnobservedComponents

from tests.models.cases import make_batch, make_entries, make_model
from tsforecast.core.seasonal import DECAY
from tsforecast.data import load_task
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import collate, cut
from tsforecast.models import ISSMForecaster
from tsforecast.models import make_model as build

HORIZON = 2


class KnownStart(UnobservedComponents):
    """Started from x_0 ~ N(0, I), whatever the parameters."""

    def update(self, params, **kwargs):
        super().update(params, **kwargs)
        start(self.ssm)


class DampedTrend(MLEModel):
    """Level and damped slope with noise; parameters: observation, level, slope variance, damping."""

    start_params = np.array([0.5, 0.1, 0.01, 0.8])

    def __init__(self, endog):
        super().__init__(endog, k_states=2)
        self["design"], self["selection"] = np.array([[1.0, 0.0]]), np.eye(2)

    def transform_params(self, unconstrained):
        return np.append(np.exp(unconstrained[:3]), 1 / (1 + np.exp(-unconstrained[3])))

    def untransform_params(self, constrained):
        return np.append(np.log(constrained[:3]), np.log(constrained[3] / (1 - constrained[3])))

    def update(self, params, **kwargs):
        params = super().update(params, **kwargs)
        self["obs_cov"] = np.array([[params[0]]])
        self["state_cov"] = np.diag(params[1:3])
        self["transition"] = np.array([[1.0, 1.0], [0.0, params[3]]])
        start(self.ssm)


class LevelAndFactors(MLEModel):
    """Level and one factor for each hour; noise moves the active factor. Parameters: observation, level, factor
    variance."""

    start_params = np.array([0.3, 0.1, 0.01])

    def __init__(self, endog, index, factors):
        super().__init__(endog, k_states=1 + factors)
        steps, active = len(endog), np.zeros((1 + factors, len(endog)))
        active[1 + index, np.arange(steps)] = 1.0
        self.active = active
        design = active.copy()
        design[0] = 1.0
        self["design"], self["selection"], self["transition"] = design[None], np.eye(1 + factors), np.eye(1 + factors)
        self.ssm.tolerance = 0

    def transform_params(self, unconstrained):
        return np.exp(unconstrained)

    def untransform_params(self, constrained):
        return np.log(constrained)

    def update(self, params, **kwargs):
        params = super().update(params, **kwargs)
        self["obs_cov"] = np.array([[params[0]]])
        cov = np.zeros((len(self.active), len(self.active), self.nobs))
        where = np.arange(len(self.active))
        cov[where, where] = params[2] * self.active
        cov[0, 0] = params[1]
        self["state_cov"] = np.roll(cov, -1, axis=-1)  # theirs at t leads to t + 1, ours into t
        self.ssm.initialize_known(np.zeros(len(where)), np.eye(len(where)) + cov[..., 0])


class LevelAndRotations(MLEModel):
    """Level and trigonometric season in the textbooks' form: the states rotate, and the first of each pair is emitted.

    Parameters: observation, level, and the variance that each rotating state gathers in a whole cycle.
    """

    start_params = np.array([0.3, 0.1, 0.01])

    def __init__(self, endog, period, harmonics):
        super().__init__(endog, k_states=1 + 2 * harmonics)
        order = np.arange(1, harmonics + 1)
        turns = [np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in 2 * np.pi * order / period]
        weights = order**-DECAY / np.linalg.norm(order**-DECAY)
        self.period = period
        self["design"] = np.concatenate([[1.0], *([weight, 0.0] for weight in weights)])[None]
        self["transition"], self["selection"] = block_diag(1.0, *turns), np.eye(1 + 2 * harmonics)

    def transform_params(self, unconstrained):
        return np.exp(unconstrained)

    def untransform_params(self, constrained):
        return np.log(constrained)

    def update(self, params, **kwargs):
        params = super().update(params, **kwargs)
        self["obs_cov"] = np.array([[params[0]]])
        self["state_cov"] = np.diag([params[1], *[params[2] / self.period] * (self.k_states - 1)])
        start(self.ssm)


def start(ssm):
    transition, selection = ssm["transition"], ssm["selection"]
    if transition.ndim == 3:
        transition = transition[..., 0]
    noise = selection @ ssm["state_cov"] @ selection.T
    ssm.tolerance = 0  # no steady state
    ssm.loglikelihood_burn = 0
    ssm.initialize_known(np.zeros(len(noise)), transition @ transition.T + noise)


def ours(name, components, freq, steps, item=0, transformation="none"):
    """The model of one bundled series, its batch, and the series in scaled units."""
    entry = load_task(name).entries[item]
    season = 24 if freq == "h" else 7
    model = build(
        ISSMForecaster,
        components=components,
        freq=freq,
        season=season,
        prediction_length=HORIZON,
        transformation=transformation,
        objective="likelihood",
    ).double()
    prepare = Prepare(HORIZON, list(model.dynamics.season_names), [], [])
    prepared = prepare.map_transform({**entry, "target": entry["target"][:steps]}, is_train=True)
    batch = collate([cut(prepared, steps - HORIZON, None, HORIZON)])
    location, scale = model.inference.scale_of(batch)
    values = model.units.transform(torch.as_tensor(entry["target"][:steps], dtype=torch.float64))
    index = prepared["season_index"][:, 0] if model.dynamics.season_names else None
    return model, batch, ((values - location) / scale)[0].numpy(), index


def log_likelihood(model, batch, raw):
    """At log standard deviations and damping logits, observation noise first as in statsmodels."""
    noises = len(model.dynamics.structure.noise_names)
    population = model.dynamics.parameters_of_series.population
    with torch.no_grad():
        order = [*range(1, noises), 0, *range(noises, len(raw))]
        population.zero_()
        population[: len(raw)] = torch.as_tensor(raw, dtype=torch.float64)[order]
    steps = batch["past_observed"].sum() + batch["future_observed"].sum()
    value = -model.loss(batch).sum() * steps
    (gradient,) = torch.autograd.grad(value, population)
    inverse = np.argsort(order)
    return value.item(), gradient[: len(raw)].numpy()[inverse]


def constrained(model, raw):
    """Variances and dampings. A floor keeps the observation's variance above 1e-5 of the prior's."""
    noises = len(model.dynamics.structure.noise_names)
    variances = np.exp(2 * np.asarray(raw[:noises]))
    variances[0] += 1e-5 * len(model.dynamics.structure.components)
    return np.concatenate([variances, 1 / (1 + np.exp(-np.asarray(raw[noises:])))])


# name -> (series, their model of the scaled values, raw parameters at which likelihoods are compared)
CASES = {
    "level": (
        ("wiki", "level", "D", 250, 7, "log1p"),
        lambda y, _: KnownStart(y, level="llevel"),
        [[-0.2, -0.2], [0.3, -1.5]],
    ),
    "trend": (
        ("wiki", "trend", "D", 250, 3, "log1p"),
        lambda y, _: KnownStart(y, level="lltrend"),
        [[-0.3, -1.0, -4.0], [-1.0, 0.0, -2.0]],
    ),
    "damped level": (
        ("wiki", "damped_level", "D", 250, 3, "log1p"),
        lambda y, _: KnownStart(y, level=False, irregular=True, autoregressive=1),
        [[-0.5, -0.5, 2.0], [-1.0, 0.2, 0.5]],
    ),
    "damped trend": (
        ("traffic", "damped_trend", "h", 300, 10, "log1p"),
        lambda y, _: DampedTrend(y),
        [[-0.3, -1.0, -1.0, 0.0], [-1.0, 0.0, -2.0, 3.0]],
    ),
    "seasonal factors": (
        ("electricity", "level+hour_of_day", "h", 240, 8),
        lambda y, index: LevelAndFactors(y, index, 24),
        [[-1.0, -1.0, -2.0], [-0.5, -2.0, -1.5]],
    ),
    "smooth season": (
        ("electricity", "level+day_with_3_harmonics", "h", 240, 8),
        lambda y, _: LevelAndRotations(y, 24, 3),
        [[-1.0, -1.0, -0.5], [-0.5, -2.0, 0.5]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_likelihood_agrees_with_statsmodels(case):
    arguments, theirs, points = CASES[case]
    model, batch, values, index = ours(*arguments)
    other = theirs(values, index)
    for raw in points:
        value, gradient = log_likelihood(model, batch, raw)
        assert value == pytest.approx(other.loglike(constrained(model, raw)), rel=1e-9)
        step = 1e-5
        for i in range(len(raw)):
            moved = [np.array(raw) + sign * step * (np.arange(len(raw)) == i) for sign in (1, -1)]
            slope = np.subtract(*[other.loglike(constrained(model, m)) for m in moved]) / (2 * step)
            assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_fitted_variances_agree_with_statsmodels(case):
    arguments, theirs, points = CASES[case]
    model, batch, values, index = ours(*arguments)

    def objective(raw):
        value, gradient = log_likelihood(model, batch, raw)
        return -value, -gradient

    found = minimize(objective, points[0], jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-6})
    other = theirs(values, index)
    fitted = other.fit(
        constrained(model, points[0]), method="lbfgs", disp=0, cov_type="none", maxiter=500, pgtol=1e-6, factr=10
    )
    assert -found.fun == pytest.approx(fitted.llf, abs=1e-3)  # nats
    np.testing.assert_allclose(constrained(model, found.x), fitted.params, rtol=5e-3, atol=1e-4)


def test_missing_values_agree_with_statsmodels():
    model, batch, values, _ = ours("exchange", "level", "B", 200)
    observed = np.random.default_rng(0).random(len(values)) > 0.2
    seen = torch.as_tensor(observed)[None, :, None]
    batch["past_observed"], batch["future_observed"] = seen[:, :-HORIZON], seen[:, -HORIZON:]
    location, scale = model.inference.scale_of(batch)
    target = load_task("exchange").entries[0]["target"][:200].astype(np.float64)
    values = np.where(observed, (target - location.item()) / scale.item(), np.nan)
    other = KnownStart(values, level="llevel")
    value, _ = log_likelihood(model, batch, [-1.0, 0.1])
    assert value == pytest.approx(other.loglike(constrained(model, [-1.0, 0.1])), rel=1e-9)


def test_the_decomposition_adds_up_and_follows_the_data():
    model = make_model("issm")
    batch = make_batch(model, make_entries())
    parts = model.inference.decompose(batch)
    assert [*parts] == [*model.dynamics.structure.names, "covariates", "fit"]
    total = sum(mean for name, (mean, _) in parts.items() if name != "fit")
    active = ~batch["past_is_pad"]
    torch.testing.assert_close(total[active], parts["fit"][0][active])
    deviation = parts["fit"][1]
    assert (deviation > 0).all()
    seen = batch["past_observed"][..., 0]
    residual = batch["past_target"][..., 0][seen] - parts["fit"][0][seen]
    assert residual.std() < batch["past_target"][..., 0][seen].std() / 2


def test_the_network_starts_from_constant_scales():
    torch.manual_seed(0)
    options = {
        "components": "level+day_of_week",
        "num_series": 3,
        "season": 7,
        "num_time_features": 3,
        "num_static_real": 1,
    }
    options |= {"cardinality": [3, 2], "num_dynamic_real": 2, "freq": "D"}
    network = build(ISSMForecaster, scales="network", **options)
    free = build(ISSMForecaster, scales="free", **options)
    batch = make_batch(free, make_entries())
    assert torch.equal(network.loss(batch), free.loss(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scales": "fixed"}, "network"),
        ({"components": "level+level"}, "every component once"),
        ({"components": "level+moon"}, "unknown component 'moon'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(ISSMForecaster, **options)


def test_parameters_of_few_weeks_of_hours_are_held_where_they_begin():
    """By half the square of their distance in units of .5, once for all horizons, relative to the score."""

    def moved(freq, horizons):
        options = {"components": "level+damped_level", "freq": freq, "num_series": 3, "typical_horizons": horizons}
        model = build(ISSMForecaster, transformation="none", **options)
        with torch.no_grad():
            model.dynamics.parameters_of_series.population.add_(0.3)
            model.dynamics.parameters_of_series.series[1].add_(-0.1)
        return model.loss(make_batch(model, make_entries()))

    count = 3 + 1  # noises, a damping
    penalty = count * torch.tensor([0.3, 0.2, 0.3]).square() / (2 * 0.5**2 * 7)
    torch.testing.assert_close(moved("h", 7.0), moved("h", 0.0) * (1 + penalty))
    torch.testing.assert_close(moved("M", 7.0), moved("M", 0.0))


def of_week(times):
    return np.array([3.0, 1, 4, 1, 5, 9, 2])[times.dayofweek]


def of_year(times):
    """Three harmonics, over years of 365 and of 366 days."""
    phase = 2 * np.pi * (times.dayofyear - 1) / np.where(times.is_leap_year, 366, 365)
    return 5 * np.sin(phase + 0.3) + 2 * np.cos(2 * phase) + np.cos(3 * phase - 1)


@pytest.mark.parametrize(("season", "shape", "steps"), [("day_of_week", of_week, 63), ("year", of_year, 600)])
@pytest.mark.parametrize("begin", ["2024-01-01", "2022-12-04"])
def test_seasons_are_read_from_the_calendar(season, shape, steps, begin):
    """A season that is known exactly is forecast exactly, whatever the phase at which the series begins."""
    length = steps // 2
    model = build(
        ISSMForecaster,
        components=f"level+{season}",
        freq="D",
        season=7,
        prediction_length=length,
        transformation="none",
    )
    with torch.no_grad():
        model.dynamics.parameters_of_series.population[:3] = -7.0
        model.dynamics.parameters_of_series.population[-1] = 3.0  # of the season before anything is seen
    times = pd.period_range(begin, periods=steps + length, freq="D")
    prepare = Prepare(length, list(model.dynamics.season_names), [], [])
    prepared = prepare.map_transform({"start": times[0], "target": shape(times)[:steps]}, is_train=False)
    batch = collate([cut(prepared, steps, None, length)])
    mean = model.inference.predictive(model.filter(batch)[0], batch).mean[0]
    np.testing.assert_allclose(mean.detach(), shape(times)[steps:], atol=0.05)
