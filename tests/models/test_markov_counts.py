"""Regimes of counts: beside all paths of regimes enumerated, and from simulated series."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tests.models.cases import HORIZON, make_batch
from tsforecast.analysis.regimes import regime_report
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.models import MODELS
from tsforecast.models import make_model as build

EXACT = {"rtol": 1e-9, "atol": 1e-9}
DAY = pd.Period("2024-01-01", "D")


def model_of(**options):
    data = {"freq": "D", "prediction_length": HORIZON, "num_series": 1, "season": 7, "clip": "none"}
    units = {"transformation": "none", "scaling": "none"}
    model = build(MODELS["markov"], **{**data, **units, **options}).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.inference.dynamics.parameters():
            value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64))
    return model


def of_counts(model):
    """The distribution of counts of each regime, by SciPy, and the chain."""
    dynamics = model.inference.dynamics
    mean = dynamics.location.detach().numpy().repeat(dynamics.regimes // len(dynamics.location))
    mean = np.exp(mean)
    transition = torch.softmax(dynamics.transition, -1).detach().numpy()
    if dynamics.log_dispersion is None:
        return stats.poisson(mean), transition
    size = np.exp(-dynamics.log_dispersion.detach().numpy())
    return stats.nbinom(size, size / (size + mean)), transition


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_likelihood_regimes_and_forecasts_are_those_of_all_paths(likelihood):
    model = model_of(likelihood=likelihood, regimes=3)
    counts, transition = of_counts(model)
    values = np.array([0.0, 3.0, np.nan, 1.0, 0.0])
    steps = len(values)
    batch = make_batch(model, [{"item_id": "a", "start": DAY, "target": values}], train=False)
    density = np.array([counts.pmf(value) if np.isfinite(value) else np.ones(3) for value in values])
    share = np.linalg.matrix_power(transition, 5000)[0]
    total, probabilities, after = 0.0, np.zeros((steps, 3)), np.zeros(3)
    for path in itertools.product(range(3), repeat=steps):
        chance = share @ transition[:, path[0]] * np.prod(density[range(steps), path])
        chance *= np.prod([transition[a, b] for a, b in itertools.pairwise(path)])
        total += chance
        probabilities[range(steps), path] += chance
        after[path[-1]] += chance
    with torch.no_grad():
        belief, terms = model.filter(batch)
        found = model.inference.regimes(batch)
        paths = model.forecast(belief, batch, 20_000, torch.Generator().manual_seed(0))[0, :, 1, 0].numpy()
        filled = model.impute(batch, 20_000, torch.Generator().manual_seed(0))[0, :, -3, 0].numpy()
    np.testing.assert_allclose(float(terms.sum()), np.log(total), **EXACT)
    np.testing.assert_allclose(found.probabilities[-steps:, 0], probabilities / total, **EXACT)
    ahead = after / total @ transition @ transition
    for drawn, weight in ((paths, ahead), (filled, probabilities[2] / total)):
        for count in range(4):
            expected = weight @ counts.pmf(count)
            error = (expected * (1 - expected) / len(drawn)) ** 0.5
            assert abs((drawn == count).mean() - expected) < 4.5 * error


def switching_counts(series=4, steps=300, seed=0):
    """Poisson counts of rates 2 or 12, those of every other series five times as large."""
    rng = np.random.default_rng(seed)
    entries, truth = [], []
    for k in range(series):
        regime = (rng.random(steps) < 0.03).cumsum() % 2
        rate = np.array([2.0, 12.0])[regime] * (5.0 if k % 2 else 1.0)
        entries.append({"item_id": f"s{k}", "start": DAY, "target": rng.poisson(rate).astype(float)})
        truth.append(regime)
    return entries, np.array(truth)


def test_rates_are_found_and_forecasts_are_whole():
    """Rates within four standard errors, beside a step of training."""
    entries, truth = switching_counts()
    trainer = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
    estimator = StateSpaceEstimator(
        "markov", "D", HORIZON, seed=0, likelihood="negative-binomial", context_length=0, num_batches_per_epoch=2,
        trainer_kwargs=trainer,
    )  # fmt: skip
    predictor = estimator.train(entries)
    known = predictor.prediction_net.hyperparameters
    assert (known["regimes"], known["order"], known["scaling"], known["transformation"]) == (2, 0, "none", "none")
    found = regime_report(predictor, entries).regimes["most_likely"].to_numpy() - 1
    accuracy = (found == truth.ravel()).mean()
    assert max(accuracy, 1 - accuracy) > 0.95
    (forecast, *_) = predictor.predict(entries, num_samples=200)
    assert (forecast.samples == forecast.samples.round()).all()
    assert (forecast.samples >= 0).all()
    log_rates = predictor.prediction_net.dynamics.location.detach().numpy()
    assert abs(np.ptp(log_rates) - np.log(6)) < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "binomial"}, "poisson, negative-binomial"),
        ({"likelihood": "poisson", "order": 2}, "has no lags"),
        ({"likelihood": "poisson", "scaling": "history"}, "scaling='none'"),
        ({"likelihood": "poisson", "num_targets": 2}, "one target"),
    ],
)
def test_what_counts_do_not_have_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        model_of(**options)
