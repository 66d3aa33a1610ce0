"""A training whose schedule goes by faster where the loss falls no longer, or where time is short."""

import itertools
import logging

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.forecasting.test_estimator import make_entries, make_estimator
from tsforecast.forecasting import pace
from tsforecast.forecasting.pace import Pace


def rates_of(monkeypatch, epochs, losses=None, seconds=None, model="issm", checkpoint=None, callbacks=(), **options):
    """The learning rates of every epoch, of one step each, where losses and seconds of epochs are as given."""
    rates = []
    watch = pl.callbacks.LambdaCallback(
        on_train_batch_start=lambda trainer, *_: rates.append(trainer.optimizers[0].param_groups[0]["lr"])
    )
    if losses is not None:
        monkeypatch.setattr(pace, "_loss", lambda _: float(next(losses)))
    if seconds is not None:
        times = itertools.accumulate(itertools.chain([0.0], itertools.cycle([seconds, 0.0])))
        monkeypatch.setattr(pace.time, "monotonic", lambda: next(times))
    trainer = {"callbacks": [watch, *callbacks]}
    options = {"learning_rate": 0.5, "num_batches_per_epoch": 1, **options}
    make_estimator(model, epochs=epochs, trainer_kwargs=trainer, **options).train(make_entries(), ckpt_path=checkpoint)
    return np.array(rates)


def schedule(epochs, places):
    return 0.5 * 0.01 ** (np.array(places) / epochs)


def test_a_loss_that_falls_is_waited_for(monkeypatch):
    rates = rates_of(monkeypatch, 16, losses=iter(np.arange(16.0, 0, -1)), plateau=0.01)
    np.testing.assert_allclose(rates, schedule(16, range(16)))


def test_where_the_loss_falls_no_longer_rates_fall_four_times_as_fast(monkeypatch, caplog):
    """Eighths of 16 epochs are of two, and three of them are looked at first; the last epoch is there in any case."""
    losses = iter([6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.001, 1.0, 1.001, 1.001, 1.001])
    with caplog.at_level(logging.INFO, "tsforecast"):
        rates = rates_of(monkeypatch, 16, losses=losses, plateau=0.01)
    # the line through the last four epochs falls until the ninth
    np.testing.assert_allclose(rates, schedule(16, [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 15]))
    assert caplog.text.count("falls no longer") == 1


def test_noise_is_no_fall(monkeypatch):
    """A fall within its standard error does not count."""
    losses = iter([1.0, 3.0, 2.9, 1.1, 1.0, 2.9, 2.0, 2.0, 2.0, 2.0, 2.0])
    assert len(rates_of(monkeypatch, 16, losses=losses, plateau=1e-9)) < 16


def test_each_stage_has_a_pace_of_its_own(monkeypatch):
    """The linear stage is cut short; the one with particles begins with its own rate, as without the cut."""
    options = {"linear_epochs": 16, "linear_share": 0.5, "plateau": 0.01}
    losses = iter([*[1.0] * 9, *np.arange(16.0, 0, -1)])
    rates = rates_of(monkeypatch, 32, losses=losses, model="rsgls", **options)
    first = schedule(16, [0, 1, 2, 3, 4, 5, 9, 13, 15])
    last = 0.5 * schedule(16, range(16))
    np.testing.assert_allclose(rates[:-16], first)
    np.testing.assert_allclose(rates[-16:], last.clip(0.005))


@pytest.mark.parametrize(("budget", "epochs"), [(100.0, 16), (16.0, 16), (9.0, 9), (4.0, 4), (0.0, 1)])
def test_a_training_ends_in_its_time(monkeypatch, budget, epochs):
    """Where an epoch takes a second; rates have fallen as far as ever, but for no time at all."""
    rates = rates_of(monkeypatch, 16, seconds=1.0, time_budget=budget)
    assert len(rates) <= epochs
    assert len(rates) >= 0.7 * epochs
    np.testing.assert_allclose(rates[-1], schedule(16, 15) if epochs > 1 else 0.5)


def test_a_training_that_is_resumed_goes_on_at_its_pace(monkeypatch, tmp_path):
    """To the same weights; and one that had ended does not go on."""
    weights = []
    for stop in (None, 5):
        losses = iter([1.0] * 20)
        folder = tmp_path / str(stop)
        keep = ModelCheckpoint(folder, "{epoch}", save_top_k=-1)
        rates = rates_of(monkeypatch, 16, losses, plateau=0.01, callbacks=[keep])
        if stop is not None:
            again = rates_of(
                monkeypatch, 16, losses, plateau=0.01, callbacks=[keep], checkpoint=folder / "epoch=5.ckpt"
            )
            np.testing.assert_array_equal(again, rates[6:])
        weights.append(torch.load(folder / f"epoch={len(rates) - 1}.ckpt", weights_only=True))
    for name, weight in weights[0]["state_dict"].items():
        assert torch.equal(weight, weights[1]["state_dict"][name])
    end = folder / f"epoch={len(rates) - 1}.ckpt"
    assert len(rates_of(monkeypatch, 16, iter(()), plateau=0.01, checkpoint=end)) == 0


@pytest.mark.parametrize("change", [{"skipped": -1}, {"skipped": 1.0}, {"losses": ["x"]}, {"seconds": [1.0, 2.0]}])
def test_a_foreign_state_is_refused(change):
    with pytest.raises(ValueError, match="expected counts, losses and seconds"):
        Pace().load_state_dict({**Pace().state_dict(), **change})
