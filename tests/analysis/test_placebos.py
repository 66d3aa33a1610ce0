"""Paths that are as wide as errors were: the posterior in closed form, and coverage where a model is wrong."""

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.analysis.impact import Options, effects
from tsforecast.analysis.placebos import PRIOR_WINDOWS, Placebos, Window, calibrated

pytestmark = pytest.mark.usefixtures("unchecked_module")


def test_paths_have_the_covariance_of_the_posterior():
    generator = torch.Generator().manual_seed(0)
    horizon, count, samples = 3, 6, 40_000
    root = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.2, 0.3, 1.5]], dtype=torch.float64)
    paths = (torch.randn(2, samples, horizon, generator=generator, dtype=torch.float64) @ root.T) + 5.0
    cov = torch.stack([torch.cov(each.T) for each in paths])
    errors = 2.0 * torch.randn(count, 2, horizon, generator=generator, dtype=torch.float64)
    # The model expected twice as much of the first window, and half as much of the second, which does not raise it.
    factors = torch.tensor([2.0, 0.5, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    windows = [Window(error, factor * paths.std(1)) for error, factor in zip(errors, factors, strict=True)]
    used = torch.tensor([[True] * count, [False] * count]).T
    found = calibrated(paths, windows, used, generator)
    torch.testing.assert_close(found[1], paths[1])
    own = errors[:, 0] / factors.clamp_min(1.0).unsqueeze(-1)
    # Of a Student-t of n degrees of freedom and this scale matrix over n.
    expected = (PRIOR_WINDOWS * cov[0] + own.T @ own) / (PRIOR_WINDOWS + count - 2)
    centred = found[0] - paths[0].mean(0)
    products = centred[:, :, None] * centred[:, None]
    error = products.std(0) / samples**0.5
    assert ((products.mean(0) - expected).abs() < 4.5 * error).all()
    assert (centred.mean(0).abs() < 4.5 * (expected.diagonal() / samples).sqrt()).all()


def test_windows_that_tell_nothing_are_not_used():
    observed = torch.ones(90, 3, dtype=torch.bool)
    observed[80:, 1] = False  # no value in the last window
    observed[:35, 2] = False  # too little before the first
    found = Placebos.of(observed, 10)
    assert found is not None
    assert found.starts == (30, 40, 50, 60, 70, 80)
    assert found.used.T.tolist() == [[True] * 6, [False] * 6, [False] * 6]  # of five windows none is used
    observed[80, 1] = True
    found = Placebos.of(observed, 10)
    assert found is not None
    assert found.used[:, 1].all()
    assert Placebos.of(observed, 11) is None


def test_a_window_without_a_value_has_the_error_of_a_path():
    paths = torch.randn(1, 50, 2, generator=torch.Generator().manual_seed(0))
    window = Window.of(paths, torch.tensor([[3.0, 0.0]]), torch.tensor([[True, False]]))
    mean = paths[0].mean(0)
    torch.testing.assert_close(window.error[0], torch.stack([3.0 - mean[0], paths[0, 0, 1] - mean[1]]))


def series(count, before, horizon):
    """Noise of which a part lasts for six steps: the model knows none that lasts and vanishes."""
    rng = np.random.default_rng(0)
    steps = before + horizon
    lasting = np.repeat(0.7 * rng.normal(size=(count, steps // 6 + 1)), 6, 1)[:, -steps:]
    values = 10 + lasting + rng.normal(size=(count, steps))
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": str(k), "start": start, "target": row} for k, row in enumerate(values)]
    return entries, (start + before - 1).to_timestamp()


def test_calibrated_intervals_cover_where_those_of_the_model_do_not():
    count = 150
    entries, last = series(count, 96, 6)
    covered = []
    for is_calibrated in (False, True):
        options = Options(seasons="none", level_sd=0.01, num_samples=200, calibrated=is_calibrated)
        summary = effects(entries, "D", [(last, None)], [], options).summary
        assert (summary["windows"] == (10 if is_calibrated else 0)).all()
        rows = summary[summary["measure"] == "average"]
        covered.append(((rows["effect_lower"] <= 0) & (rows["effect_upper"] >= 0)).mean())
    error = (0.95 * 0.05 / count) ** 0.5
    assert covered[0] < 0.95 - 4 * error
    assert abs(covered[1] - 0.95) < 3 * error


def test_a_short_past_keeps_the_intervals_of_the_model():
    entries, last = series(2, 40, 12)  # no place for six windows of 12 steps
    tables = []
    for is_calibrated in (False, True):
        options = Options(seasons="none", num_samples=50, calibrated=is_calibrated)
        tables.append(effects(entries, "D", [(last, None)], [], options).summary)
    assert (tables[1]["windows"] == 0).all()
    pd.testing.assert_frame_equal(*tables)
