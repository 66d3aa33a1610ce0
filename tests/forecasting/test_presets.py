"""Presets: settings of switching models by name, model and frequency."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.presets import PRESETS, SWITCHING, preset
from tsforecast.models import MODELS, options_of

OF_TRAINER = ("max_epochs", "gradient_clip_val")


@pytest.mark.parametrize("freq", ["h", "M"])
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("model", SWITCHING)
def test_every_model_takes_every_preset(model, name, freq):
    """Its options make an estimator as they are."""
    found = preset(model, freq, 6, name)
    trainer = {option: found.pop(option) for option in OF_TRAINER if option in found}
    StateSpaceEstimator(model, freq, 6, preset="none", trainer_kwargs=trainer, **found)
    assert trainer.get("max_epochs", 1) > found.get("linear_epochs", 0)


def test_all_models_with_linear_epochs_have_presets():
    assert set(SWITCHING) == {name for name, model in MODELS.items() if "linear_epochs" in options_of(model)}


def test_the_best_follows_from_frequency_and_horizon():
    hours, days = preset("arsgls", "h", 24), preset("arsgls", "D", 30)
    assert (hours["components"], hours["particle_length"], hours["gradient_length"]) == ("auto", 168, 48)
    several = preset("arsgls", "h", 24, num_targets=2)  # components are a sum
    assert (several["context_length"], several["train_horizon"], several["gradient_length"]) == (672, 72, 48)
    assert "components" not in several
    assert (days["gradient_length"], days["history_length"]) == (60, 360)
    assert "context_length" not in days  # that of the frequency
    assert hours["series_scales"] is True
    assert "skip" not in preset("sgls", "h", 24)  # it has no decoder


def test_a_training_of_a_given_length_is_mostly_that_of_the_linear_model():
    assert preset("sgls", "D", 30, max_epochs=20)["linear_epochs"] == 17
    assert preset("sgls", "D", 30, max_epochs=400)["linear_epochs"] == 30
    fast = preset("sgls", "D", 30, "fast")
    assert (fast["linear_epochs"], fast["max_epochs"], fast["num_particles"]) == (15, 20, 5)


def entries(freq, length=60):
    values = np.random.default_rng(0).normal(size=length).cumsum()
    return [{"item_id": "a", "start": pd.Period("2020-01-01", freq), "target": values}]


def test_an_estimator_has_the_best_preset_and_what_is_given_wins(caplog):
    caplog.set_level("INFO", "tsforecast")
    given = {"persistence": 0.5, "history_length": 7, "trainer_kwargs": {"gradient_clip_val": 3.0}}
    settled = StateSpaceEstimator("sgls", "D", 5, **given).settled(entries("D"))
    best = preset("sgls", "D", 5)
    assert settled.hyperparameters["linear_epochs"] == best["linear_epochs"]
    assert (settled.hyperparameters["persistence"], settled.history_length) == (0.5, 7)
    assert settled.trainer_kwargs == {"gradient_clip_val": 3.0, "max_epochs": best["max_epochs"]}
    assert (settled.on_grid.batch_size, settled.preset) == (best["batch_size"], "none")
    assert settled.settled(entries("D")) is settled
    (said,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("preset best: ")]
    assert f"linear_epochs={best['linear_epochs']}" in said
    assert "persistence" not in said


def test_models_without_presets_and_none_are_left_as_they_are():
    for estimator in (StateSpaceEstimator("issm", "D", 5), StateSpaceEstimator("sgls", "D", 5, preset="none")):
        assert estimator.settled(entries("D")) is estimator
    with pytest.raises(ValueError, match="'issm' has no presets"):
        StateSpaceEstimator("issm", "D", 5, preset="fast")


def test_what_has_none_is_refused():
    with pytest.raises(ValueError, match="'issm' has no presets, only sgls"):
        preset("issm", "D", 5)
    with pytest.raises(ValueError, match="among best, fast, paper, none, got 'slow'"):
        preset("sgls", "D", 5, "slow")


def counts():
    """Counts whose rate changes every ten steps."""
    rates = np.where(np.arange(60) // 10 % 2, 12.0, 2.0)
    values = np.random.default_rng(0).poisson(rates).astype(float)
    return [{"item_id": "a", "start": pd.Period("2020-01-01", "D"), "target": values}]


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("arsgls", {"likelihood": "negative-binomial"}),
        ("arsgls", {"likelihood": "student-t"}),
        ("sgls", {"switch": "categorical", "switch_dim": 2}),
    ],
)
def test_a_preset_follows_the_switch_and_the_likelihood(model, given):
    """The preset once refused them: paths of counts and of categories have no derivative."""
    small = {"num_batches_per_epoch": 1, "batch_size": 2, "num_particles": 2, "hidden": 4}
    trainer = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
    estimator = StateSpaceEstimator(model, "D", 5, seed=0, trainer_kwargs=trainer, **small, **given)
    predictor = estimator.train(counts())
    (forecast,) = predictor.predict(counts(), num_samples=3)
    assert np.isfinite(forecast.samples).all()
    if given.get("likelihood") == "negative-binomial":
        np.testing.assert_allclose(forecast.samples, forecast.samples.round(), rtol=1e-6)  # of floats in other units
