"""Regimes of several targets: beside all paths of regimes enumerated, and from simulated series."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal
from statsmodels.datasets import macrodata

from tests.models.cases import HORIZON, make_batch
from tsforecast.analysis.regimes import regime_report
from tsforecast.data.windows import collate, cut
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.models import MODELS
from tsforecast.models import make_model as build

EXACT = {"rtol": 1e-10, "atol": 1e-10}
STEPS, TARGETS = 5, 2
TRAINER = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}


def model_of(seed=0, **options):
    """A model of two targets with parameters at random, in the units of its data."""
    data = {"freq": "D", "prediction_length": HORIZON, "num_series": 1, "num_targets": TARGETS, "season": 7}
    plain = {"transformation": "none", "clip": "none", "scaling": "training", "seasonal": False}
    switching = {"switching": "location+scale+coefficients" if options.get("order") else "location+scale"}
    model = build(MODELS["markov"], **{**data, **plain, **switching, **options}).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.inference.dynamics.parameters():
            value.copy_(0.5 * torch.randn(value.shape, generator=generator, dtype=torch.float64))
    return model


def enumerated(model, values, steps):
    """Log-likelihood, and probabilities of regimes, of values that may be missing: one Gaussian for each path."""
    dynamics = model.inference.dynamics
    regimes = dynamics.regimes
    transition = torch.softmax(dynamics.transition, -1).detach().numpy()
    share = np.linalg.matrix_power(transition, 5000)[0]
    lower = np.tril(dynamics.mixing.detach().numpy(), -1) + np.eye(TARGETS)
    factor = lower * np.exp(dynamics.log_scale.detach().numpy())[:, None]
    location = np.broadcast_to(dynamics.location.detach().numpy(), (regimes, TARGETS))
    order = len(dynamics.lags)
    row = dynamics.coefficients.detach().numpy()[:, :, 0] if order else np.zeros((regimes, TARGETS, TARGETS))
    wide = np.exp(2 * dynamics.log_prior_scales.detach().numpy()).sum() if order else 1.0
    seen = np.isfinite(values).ravel()
    total, probabilities = -np.inf, np.full((steps, regimes), -np.inf)
    for path in itertools.product(range(regimes), repeat=steps):
        mean, cov = np.zeros(0), np.zeros((0, 0))
        last_mean, last_cov = np.zeros(TARGETS), wide * np.eye(TARGETS)
        cross = np.zeros((0, TARGETS))  # of the values before the last with it
        for k in path:
            with_all = np.vstack([cross, last_cov]) if len(mean) else cross
            cross = with_all @ row[k].T
            new = row[k] @ last_cov @ row[k].T + factor[k] @ factor[k].T
            last_mean = location[k] + row[k] @ last_mean
            mean, cov = np.r_[mean, last_mean], np.block([[cov, cross], [cross.T, new]])
            cross, last_cov = cov[:-TARGETS, -TARGETS:], new
        chance = np.log(share @ transition[:, path[0]])
        chance += sum(np.log(transition[a, b]) for a, b in itertools.pairwise(path))
        chance += multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(values.ravel()[seen])
        total = np.logaddexp(total, chance)
        probabilities[range(steps), path] = np.logaddexp(probabilities[range(steps), path], chance)
    return total, np.exp(probabilities - total)


@pytest.mark.parametrize(
    ("options", "gaps"),
    [
        ({"order": 1}, ()),
        ({"order": 1, "regimes": 3}, ()),
        ({"order": 0}, ((1, 0), (2, 0), (2, 1))),
        ({"order": 0, "switching": "scale"}, ()),
    ],
)
def test_likelihood_and_regimes_are_those_of_all_paths(options, gaps):
    model = model_of(**options)
    values = np.random.default_rng(0).normal(size=(STEPS, TARGETS))
    for gap in gaps:
        values[gap] = np.nan
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": values.T}
    batch = make_batch(model, [entry], train=False)
    total, probabilities = enumerated(model, values, STEPS)
    found = model.inference.regimes(batch)
    steps = found.probabilities[-STEPS:, 0].detach()
    np.testing.assert_allclose(float(model.filter(batch)[1].detach().sum()), total, **EXACT)
    np.testing.assert_allclose(steps, probabilities, **EXACT)


def switching_pair(steps=300, seed=0):
    """Two targets whose covariance a regime chooses: calm and together, or wild and against one another."""
    rng = np.random.default_rng(seed)
    regime = (rng.random(steps) < 0.03).cumsum() % 2
    factors = np.array([[[0.2, 0.0], [0.18, 0.08]], [[1.0, 0.0], [-0.9, 0.4]]])
    value, values = np.zeros(2), []
    for s in regime:
        value = np.array([[0.6, 0.2], [0.0, 0.5]]) @ value + factors[s] @ rng.normal(size=2)
        values.append(value)
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.array([[10.0], [500.0]])}
    return entry | {"target": entry["target"] + np.array([[1.0], [40.0]]) * np.array(values).T}, regime


@pytest.fixture(scope="module")
def trained():
    """A predictor of a pair of targets of other sizes, its entry, and the true regimes."""
    entry, truth = switching_pair()
    estimator = StateSpaceEstimator("markov", "D", 4, seed=0, num_batches_per_epoch=2, trainer_kwargs=TRAINER)
    return estimator.train([entry]), entry, truth


def test_regimes_of_two_targets_are_found_by_default(trained):
    predictor, entry, truth = trained
    known = predictor.prediction_net.hyperparameters
    assert known["regimes"] == 2
    assert known["order"] == 1
    assert "scale" in known["switching"]
    found = regime_report(predictor, [entry]).regimes["most_likely"].to_numpy() - 1
    assert (found == truth).mean() > 0.93
    factor = predictor.prediction_net.dynamics.system(torch.zeros(1, 1, 0)).factor[0].detach().double().numpy()
    cov = factor @ factor.transpose(0, 2, 1)
    correlation = cov[:, 0, 1] / np.sqrt(cov[:, 0, 0] * cov[:, 1, 1])
    for place, true in enumerate((0.91, -0.91)):
        error = (1 - true**2) / np.sqrt((truth == place).sum())
        assert abs(correlation[place] - true) < 5 * error + 0.02


def test_the_next_values_have_the_moments_of_the_mixture_over_regimes():
    """Means, variances and the covariance of sample paths, within 4.5 of their standard errors."""
    model = model_of(order=1)
    values = np.random.default_rng(1).normal(size=(20, TARGETS))
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": values.T}
    batch = make_batch(model, [entry], train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        paths = model.forecast(belief, batch, 4000, torch.Generator().manual_seed(0))[0, :, 0].numpy()
        weight = model.inference.regimes_ahead(belief, batch)[0, 0].numpy()
        system = model.inference.dynamics.markov(model.inference.slice_of(batch, "future"), belief.series).system
    location, row, factor = (
        x.detach().numpy() for x in (system.location[0, 0], system.coefficient[0], system.factor[0])
    )
    means = location + row @ values[-1]
    mean = weight @ means
    apart = means - mean
    cov = np.einsum("k,kij->ij", weight, factor @ factor.transpose(0, 2, 1) + apart[:, :, None] * apart[:, None])
    assert (np.abs(paths.mean(0) - mean) < 4.5 * paths.std(0) / 4000**0.5).all()
    products = (paths - mean)[:, :, None] * (paths - mean)[:, None]
    assert (np.abs(products.mean(0) - cov) < 4.5 * products.std(0) / 4000**0.5).all()


def test_a_gap_in_one_of_two_targets_is_filled_by_the_other(trained):
    predictor, entry, _ = trained
    gap = entry | {"target": entry["target"].copy()}
    gap["target"][1, 200:205] = np.nan
    (held,) = predictor.predict([gap], num_samples=50)
    assert held.samples.shape == (50, 4, 2)
    assert np.isfinite(held.samples).all()
    histories = predictor.histories()
    prepared = list(histories.transform(iter([gap]), is_train=True))
    batch = collate([cut(one, len(one["target"]), None, 0) for one in prepared], histories.device)
    with torch.no_grad():
        found = histories.net.inference.impute(batch, 200, torch.Generator().manual_seed(0))[0].numpy()
    there = np.isfinite(gap["target"].T)
    np.testing.assert_allclose(found[:, there], np.broadcast_to(gap["target"].T[there], (200, there.sum())), rtol=1e-5)
    error = found.mean(0)[200:205, 1] - entry["target"][1, 200:205]
    naive = entry["target"][1, 199] - entry["target"][1, 200:205]
    assert np.square(error).mean() < np.square(naive).mean()


def test_growth_and_inflation_of_the_united_states_were_calm_together_from_the_1990s_on():
    """Both were wild in the 1970s and calm from 1992 to 2004 (statsmodels' table of quarters)."""
    table = macrodata.load_pandas().data
    target = np.stack([100 * np.diff(np.log(table[name])) for name in ("realgdp", "cpi")])
    entry = {"item_id": "us", "start": pd.Period("1959Q2"), "target": target}
    chosen = {"regimes": 2, "order": 1, "seasonal": False, "stages": 1, "switching": "location+scale"}
    estimator = StateSpaceEstimator(
        "markov", "Q-DEC", 8, seed=0, context_length=0, train_length=0, num_batches_per_epoch=1,
        trainer_kwargs=TRAINER, **chosen,
    )  # fmt: skip
    table = regime_report(estimator.train([entry]), [entry]).regimes
    year = table["timestamp"].dt.year
    assert (table["p_2"][(year > 1973) & (year < 1982)] > 0.5).all()
    assert (table["p_1"][(year > 1991) & (year < 2005)] > 0.5).all()
