"""What `markov` finds in data where nobody says: regimes, lags, what differs, units."""

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from tsforecast.analysis.regimes import regime_report
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.regime_choice import regime_options, undecided

CALM_WILD = ((0.0, 0.95, 0.0, 0.1), (0.0, 0.5, 0.0, 1.0))
OSCILLATION = ((0.0, 0.5, 0.0, 0.5), (0.0, 1.386, -0.9604, 0.3))
TRAINER = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
THREE = ((0.0, 0.0, 0.0, 0.3), (3.0, 0.0, 0.0, 0.3), (6.0, 0.0, 0.0, 0.3))


def simulated(rows, steps=250, series=4, seed=0, stay=0.97, stages=1):
    """Series with intercepts, two lags and noises that a regime chooses, and the regimes.

    A regime lasts as long as it takes to leave so many stages, each with probability `1 - stay`.
    """
    rng = np.random.default_rng(seed)
    rows, entries, truth = np.array(rows), [], []
    for k in range(series):
        regime, values, path, stage = int(rng.integers(len(rows))), [0.0, 0.0], [], 1
        for _ in range(steps):
            left = rng.random() > stay
            stage += int(left)
            if stage > stages:
                stage = 1
                regime = int(rng.choice([other for other in range(len(rows)) if other != regime]))
            intercept, one, two, noise = rows[regime]
            values.append(intercept + one * values[-1] + two * values[-2] + noise * rng.normal())
            path.append(regime)
        entries.append({"item_id": f"s{k}", "start": pd.Period("2024-01-01", "D"), "target": np.array(values[2:])})
        truth.append(path)
    return entries, np.array(truth)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (CALM_WILD, {"regimes": 2, "order": 1, "switching": "scale+coefficients"}),
        (OSCILLATION, {"regimes": 2, "order": 2, "switching": "scale+coefficients"}),
        (THREE, {"regimes": 3, "order": 0, "switching": "location"}),
    ],
)
def test_what_made_the_series_is_found(rows, expected):
    found = regime_options(simulated(rows)[0], {}, 7, 0)
    assert found == {"seasonal": False, "stages": 1, "scaling": "training", **expected}


@pytest.mark.parametrize("kind", ["walk", "autoregression"])
def test_series_without_regimes_have_one(kind, caplog):
    """The log says it, and who asks for the regimes is told how to have two."""
    noise = np.random.default_rng(2).normal(size=(3, 300))
    values = noise.cumsum(1) if kind == "walk" else [lfilter([1.0], [1.0, -0.6], own) for own in noise]
    day = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"s{k}", "start": day, "target": own} for k, own in enumerate(values)]
    estimator = StateSpaceEstimator("markov", "D", 4, seed=0, num_batches_per_epoch=1, trainer_kwargs=TRAINER)
    with caplog.at_level("INFO"):
        predictor = estimator.train(entries)
    assert "regimes 1, order 1, seasonal False, scaling" in caplog.text
    assert "the data show no second regime" in caplog.text
    (forecast, *_) = predictor.predict(entries, num_samples=20)
    assert np.isfinite(forecast.samples).all()
    with pytest.raises(ValueError, match=r"got 1: there is nothing to tell apart.*regimes=2"):
        regime_report(predictor, entries)


def test_durations_that_hardly_vary_are_found():
    """Forty steps, give or take fourteen; sums of geometric durations vary as much."""
    found = regime_options(
        simulated(CALM_WILD, steps=400, stay=0.8, stages=8)[0], {"scaling": "none", "order": 1}, 1, 0
    )
    assert found["stages"] >= 4
    assert found["regimes"] == 2


def test_series_in_units_of_their_own_are_scaled_each_by_its_own():
    entries, _ = simulated(CALM_WILD)
    for k, entry in enumerate(entries):
        entry["target"] = 100.0 * k + 4.0**k * entry["target"]
    assert regime_options(entries, {"regimes": 2, "order": 1, "stages": 1}, 7, 0)["scaling"] == "history"


def test_what_is_given_wins_and_the_rest_follows():
    entries, _ = simulated(CALM_WILD)
    given = {"regimes": 3, "switching": "scale", "scaling": "series"}
    assert undecided(given) == ["order", "seasonal", "stages"]
    assert {*regime_options(entries, given, 7, 0)} == {"order", "seasonal", "stages"}
    estimator = StateSpaceEstimator("markov", "D", 4, seed=0, **given).settled(entries)
    assert {name: estimator.hyperparameters[name] for name in given} == given
    assert not undecided(estimator.hyperparameters)
    assert estimator.settled(entries) is estimator
    mean = StateSpaceEstimator("markov", "D", 4, form="mean", order=1, **given).settled(entries)
    assert "max_epochs" not in estimator.trainer_kwargs
    assert mean.trainer_kwargs["max_epochs"] == 40  # EM begins at lags of the other form alone


@pytest.mark.parametrize("seed", range(10))
def test_no_start_ends_with_a_dead_regime(seed):
    """Noises and shares are those that made the series, within four standard errors, from every seed."""
    entries, truth = simulated(CALM_WILD, seed=1)
    trainer = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
    estimator = StateSpaceEstimator(
        "markov", "D", 4, seed=seed, scaling="none", regimes=2, order=1, seasonal=False,
        switching="scale+coefficients", num_batches_per_epoch=1, batch_size=6, context_length=0, trainer_kwargs=trainer,
    )  # fmt: skip
    net = estimator.train(entries).prediction_net
    for place, noise in enumerate((0.1, 1.0)):
        error = noise / np.sqrt(2 * (truth == place).sum())
        # The one step of training behind the start moves a logarithm by the learning rate, .02, at most.
        assert abs(float(net.dynamics.log_scales()[place].detach().exp()) - noise) < 4 * error + 0.025 * noise


def test_a_training_from_weights_keeps_regimes_and_units():
    """New data of another level and noise, by which other units would have been chosen."""
    entries, _ = simulated(CALM_WILD, steps=120, series=2)
    trainer = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
    estimator = StateSpaceEstimator("markov", "D", 4, seed=0, num_batches_per_epoch=1, trainer_kwargs=trainer)
    first = estimator.train(entries)
    others = [entry | {"target": 5 + 2 * entry["target"][:60]} for entry in entries]
    second = estimator.train_model(others, from_predictor=first).predictor
    names = ("regimes", "order", "seasonal", "switching", "scaling", "common_centre", "common_scale")
    known = first.prediction_net.hyperparameters
    assert known["scaling"] == "training"
    assert [second.prediction_net.hyperparameters[name] for name in names] == [known[name] for name in names]


def hostile():
    """Series that say little: constant, very short, hardly observed."""
    day = pd.Period("2024-01-01", "D")
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random(80) < 0.8, np.nan, rng.normal(size=80))
    for values in (np.full(50, 3.0), np.arange(6.0), gaps):
        yield [{"item_id": "a", "start": day, "target": values}]


@pytest.mark.parametrize("number", range(3))
def test_series_that_say_little_are_trained_on_and_forecast(number):
    entries = list(hostile())[number]
    estimator = StateSpaceEstimator("markov", "D", 2, seed=0, num_batches_per_epoch=1, trainer_kwargs=TRAINER)
    (forecast,) = estimator.train(entries).predict(entries, num_samples=20)
    assert np.isfinite(forecast.samples).all()


@pytest.mark.parametrize(("lengths", "most"), [([130], 64), ([10, 10], 6), ([5, 130, 7], 64)])
@pytest.mark.parametrize("given", [{}, {"regimes": 2, "seasonal": False, "stages": 1, "switching": "location"}])
def test_lags_that_the_data_cannot_bear_are_refused_at_once(lengths, most, given):
    """A fit to fewer values than coefficients says nothing, and its filter takes gigabytes."""
    rng = np.random.default_rng(0)
    day = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"{k}", "start": day, "target": rng.normal(size=n)} for k, n in enumerate(lengths)]
    estimator = StateSpaceEstimator("markov", "D", 3, order=500, seed=0, trainer_kwargs=TRAINER, **given)
    with pytest.raises(ValueError, match=f"an order of at most {most}, got 500"):
        estimator.train(entries)
    assert sum(max(n - most, 0) for n in lengths) > most
    assert sum(max(n - most - 1, 0) for n in lengths) <= most + 1
