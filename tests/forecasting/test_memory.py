"""Memory of training steps: measured before the training, and bounded by fewer windows."""

import weakref

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast import StateSpaceEstimator
from tsforecast.forecasting import grid_windows
from tsforecast.forecasting.grid_windows import bytes_of_step, windows_within
from tsforecast.forecasting.lightning_module import ForecasterInTraining

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


def test_batches_are_as_large_as_the_memory_allows(caplog):
    caplog.set_level("INFO")
    assert windows_within(64, 2**20) == 64
    assert not caplog.messages
    assert windows_within(64, 2**28) == 5  # of a quarter of a GiB each, in one and a quarter
    assert "windows in a batch: 5 instead of 64, since each takes about 256 MiB" in caplog.text
    assert windows_within(10**9, 2**28) < 10**4  # a machine does not have half of 10^9 times as much
    assert windows_within(8, 2**28) == 8  # few may have more
    assert windows_within(8, 2**50) == 1


def test_a_training_measures_its_steps_and_takes_fewer_windows(monkeypatch):
    entries = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(90.0) % 7}]
    quiet = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    estimator = StateSpaceEstimator("issm", "D", 5, components="level", seed=0, num_batches_per_epoch=1,
                                    context_length=30, trainer_kwargs=quiet)  # fmt: skip
    seen, sizes = [], []

    def measured(module, batches):
        before = torch.get_rng_state()
        seen.append(bytes_of_step(module, batches))
        assert torch.equal(before, torch.get_rng_state())
        return 2**30 // 3  # as if it were much more

    monkeypatch.setattr("tsforecast.forecasting.grid_windows.bytes_of_step", measured)
    estimator.train(entries)
    loss = ForecasterInTraining.training_step
    assert seen[0] > 4 * 35  # a number of each step, at least

    def step(self, batch, index):
        sizes.append(len(batch["past_target"]))
        return loss(self, batch, index)

    monkeypatch.setattr("tsforecast.forecasting.lightning_module.ForecasterInTraining.training_step", step)
    estimator.train(entries)
    assert sizes == [int(grid_windows.BYTES // (2**30 // 3))]


def test_few_windows_are_measured_too_and_refused(monkeypatch):
    entries = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(90.0) % 7}]
    quiet = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    estimator = StateSpaceEstimator("issm", "D", 5, components="level", seed=0, batch_size=1, trainer_kwargs=quiet)
    monkeypatch.setattr(grid_windows, "_machine", lambda: 1000.0)
    with pytest.raises(ValueError, match="for one window, half of this machine's memory"):
        estimator.train(entries)


def test_many_lags_are_measured_before_regimes_are_looked_for(monkeypatch):
    entries = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(90.0) % 7}]
    quiet = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    estimator = StateSpaceEstimator("markov", "D", 5, order=12, seed=0, trainer_kwargs=quiet)
    monkeypatch.setattr("tsforecast.forecasting.resolution.regime_options", lambda *_: pytest.fail("was looked for"))
    monkeypatch.setattr(grid_windows, "_machine", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"for one window.*a lower --order"):
        estimator.train(entries)


def test_what_a_step_would_keep_is_counted_and_let_go():
    """Each storage counts once, also where a later one lies at the address of an earlier one."""
    weights = torch.ones(1000, requires_grad=True)
    there = []

    class Module:
        class inference:
            @staticmethod
            def loss(batch, linear):
                x = weights
                for _ in range(50):
                    x = torch.exp(x)  # keeps what it returns
                    there.append(weakref.ref(x.untyped_storage()))
                    x.view(10, 100).square()  # keeps the same once more
                return x

    found = bytes_of_step(Module, iter([{"past_target": torch.zeros(2, 3)}]))
    assert found == int(grid_windows._BEHIND * 50 * 4000 / 2)
    assert sum(storage() is not None for storage in there) <= 1


def test_a_count_beyond_the_machine_ends_it(monkeypatch):
    """Else the measurement itself would take all of the memory."""
    weights, steps = torch.ones(1000, requires_grad=True), []

    class Module:
        class inference:
            @staticmethod
            def loss(batch, linear):
                x = weights
                for step in range(50):
                    steps.append(step)
                    x = torch.exp(x)
                return x

    monkeypatch.setattr(grid_windows, "_machine", lambda: 10 * 4000 * grid_windows._BEHIND)
    with pytest.raises(ValueError, match="for one window, half of this machine"):
        bytes_of_step(Module, iter([{"past_target": torch.zeros(1, 3)}]))
    assert len(steps) == 11
