"""Training by workers of Ray Train, as docs/howto/cluster.md prints it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast import StateSpaceEstimator, load_predictor
from tsforecast.data import read_task

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"


def test_workers_of_ray_train_learn_what_one_process_learns(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    parts = [pd.DataFrame({"item_id": f"s{k}", "day": days, "sales": k + rng.normal(size=60)}) for k in range(8)]
    data, out = tmp_path / "sales.csv", tmp_path / "predictor"
    pd.concat(parts).to_csv(data, index=False)
    few = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for text, small in {
        '"max_epochs": 20': str(few)[1:-1],
        "batch_size=64": "batch_size=4, num_batches_per_epoch=2",
        "/shared/sales-buckets": str(data),
        "/shared/predictor": str(out),
        "/shared/ray": str(tmp_path / "ray"),
    }.items():
        assert text in code
        code = code.replace(text, small)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # beside other tests, workers would wait for a core
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        exec(compile(code, PAGE, "exec"), {"__name__": "page"})
    finally:
        ray.shutdown()

    task = read_task(data, windows=0)
    estimator = StateSpaceEstimator(
        "issm", task.freq, task.prediction_length, batch_size=8, num_batches_per_epoch=2, seed=0, trainer_kwargs=few
    )
    expected = estimator.train(task.train).prediction_net.state_dict()
    found = load_predictor(out, "cpu").prediction_net.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
