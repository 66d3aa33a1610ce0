"""Two processes that train together learn what one learns from batches of both."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import torch

from tsforecast.cli import main
from tsforecast.io.tensors import load_tensors

# Lightning starts the script again for the second process.
SCRIPT = """
import sys
from tsforecast.cli import main
sys.exit(main(["train", *sys.argv[1:]]))
"""


def test_two_processes_train_as_one_with_batches_of_both(tmp_path, capsys):
    """Losses and weights agree to rounding; the folder is written by one process, and --resume goes on by two."""
    (tmp_path / "train.py").write_text(SCRIPT)
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=90, freq="D")
    parts = [
        pd.DataFrame(
            {"item_id": f"s{k}", "day": days, "sales": 20 + k + 4 * (days.dayofweek > 4) + rng.normal(size=90)}
        )
        for k in range(10)
    ]
    pd.concat(parts).to_csv(tmp_path / "sales.csv", index=False)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": os.getcwd()}

    common = ["issm", "--data", tmp_path / "sales.csv", "--prediction_length=5", "--windows=1", "--accelerator=cpu"]
    common += ["--max_epochs=2", "--num_batches_per_epoch=3", "--threads=1", "--validation"]
    assert main(["train", *map(str, common), "--batch_size=8", "--output", str(tmp_path / "run1")]) == 0
    command = [
        sys.executable,
        tmp_path / "train.py",
        *common,
        "--devices=2",
        "--batch_size=4",
        "--output",
        tmp_path / "run2",
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    one, two = (pd.read_csv(tmp_path / run / "metrics.csv") for run in ("run1", "run2"))
    np.testing.assert_allclose(two, one, rtol=1e-5)
    mine, its = (load_tensors(tmp_path / run / "checkpoints" / "last.ckpt")["state_dict"] for run in ("run2", "run1"))
    for name, value in its.items():
        torch.testing.assert_close(mine[name], value, rtol=1e-4, atol=1e-5)
    assert done.stderr.count("finished after") == 1
    assert done.stderr.count("long table") == 1  # the second process says nothing
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run2")]) == 0
    assert "finished already" in capsys.readouterr().err
