"""`tsforecast export`: what another system loads forecasts as the run does."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsforecast import load_predictor
from tsforecast.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

LOADS = """
import sys
import mlflow.pyfunc, pandas as pd
model = mlflow.pyfunc.load_model(sys.argv[1])
frame = pd.read_csv(sys.argv[2])
params = {"prediction_length": 4, "quantiles": [0.1, 0.9], "start": "each"}
model.predict(frame, params=params).to_csv(sys.argv[3], index=False)
try:
    model.predict(frame, params={"prediction_length": 0})
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    kinds = {"shop a": "small", "shop b": "large"}
    parts = [
        pd.DataFrame({"shop": shop, "day": days, "kind": kind, "sold": 30 + rng.normal(size=60)})
        for shop, kind in kinds.items()
    ]
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    few = ["--windows=0", "--prediction_length=3", "--max_epochs=1", "--accelerator=cpu", "--threads=1"]
    columns = ["--item", "shop", "--target", "sold", "--static_categories", "kind"]
    output = ["--output", str(folder / "run")]
    assert main(["train", "issm", "--data", str(folder / "sales.csv"), *few, *columns, *output]) == 0
    return folder


def test_mlflow_forecasts_in_a_fresh_process(made, tmp_path, capfd):
    pytest.importorskip("mlflow")
    assert main(["export", str(made / "run"), "--output", str(tmp_path / "model"), "--quiet"]) == 0
    command = [sys.executable, "-W", "ignore", "-c", LOADS]
    paths = [str(tmp_path / "model"), str(made / "sales.csv"), str(tmp_path / "found.csv")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd(), "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run([*command, *paths], capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert "expected prediction_length of at least 1, got 0" in done.stdout
    forecasts = tmp_path / "expected.csv"
    data = ["--data", str(made / "sales.csv"), "--prediction_length", "4", "--quantiles", "0.1,0.9"]
    assert main(["predict", str(made / "run"), *data, "--output", str(forecasts), "--device", "cpu"]) == 0
    expected, found = (pd.read_csv(path, parse_dates=["day"]) for path in (forecasts, tmp_path / "found.csv"))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5)
    suffixes = {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert not suffixes & {".pkl", ".pickle"}


def test_what_is_wrong_is_said_in_a_line(made, tmp_path, capsys):
    used = tmp_path / "used"
    used.mkdir()
    Path(used / "file").write_text("mine")
    for arguments, message in (
        ([str(made / "run"), "--output", str(used)], "is there already; give a new folder as --output"),
        ([str(tmp_path / "nothing"), "--output", str(tmp_path / "m")], "nothing"),
        ([str(made / "run"), "--output", str(tmp_path / "m"), "--format", "onnx"], "--format"),
    ):
        assert main(["export", *arguments]) == 2
        assert message in capsys.readouterr().err.strip().split("\n")[-1]
    assert load_predictor(made / "run" / "predictor", "cpu").columns is None  # the run is as it was
