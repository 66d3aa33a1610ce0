"""`tsforecast evaluate RUN --output DIR`: scores of buckets add up to those of all series."""

import json

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tsforecast.cli import main
from tsforecast.evaluation.buckets import TABLE
from tsforecast.forecasting import bulk

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

SERIES, STEPS, HORIZON = 9, 60, 4
COMMON = ["--baselines=seasonal_naive,auto_ets-1", "--num_samples=20", "--device=cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a folder of buckets, which `evaluate` has scored as a whole."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D")
    parts = [
        pd.DataFrame({"item_id": f"s{k}", "day": days, "sales": 50 + 5 * k + rng.normal(size=STEPS)})
        for k in range(SERIES)
    ]
    parts[2].loc[STEPS - 3, "sales"] = np.nan
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    assert main(["bucket", str(folder / "sales.csv"), str(folder / "buckets"), "--buckets", "3"]) == 0
    few = ["--windows=2", f"--prediction_length={HORIZON}", "--max_epochs=1", "--accelerator=cpu", "--threads=1"]
    output = ["--output", str(folder / "run")]
    assert main(["train", "issm", "--data", str(folder / "buckets"), *few, *output]) == 0
    assert main(["evaluate", str(folder / "run"), *COMMON, "--plot_series=0"]) == 0
    return folder / "run"


def flat(scores: dict, *names: str) -> dict[str, float]:
    """The numbers of nested scores by their way."""
    found = {}
    for name, value in scores.items():
        found |= flat(value, *names, name) if isinstance(value, dict) else {"/".join([*names, name]): value}
    return found


def test_scores_of_buckets_are_those_of_all_series(run, tmp_path, capsys):
    for workers in ("1", "2"):
        assert main(["evaluate", str(run), *COMMON, "--output", str(tmp_path / workers), "--workers", workers]) == 0
    text = capsys.readouterr().out
    assert f"{SERIES} series, {2 * SERIES} forecasts of {HORIZON} steps" in text
    files = sorted(path.name for path in (tmp_path / "1").iterdir() if path.is_file() and path.name[0] != ".")
    expected = ["calibration.csv", bulk.MANIFEST, "per_horizon.csv", "scores.csv", "scores.json", TABLE]
    assert [name for name in files if not name.endswith(".parquet")] == sorted(expected)
    for name in files:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    mine, whole = (json.loads((folder / "scores.json").read_text()) for folder in (tmp_path / "1", run))
    # Paths have a seed for each bucket, and float32 has other last digits in another batch.
    loose = ("crps_ensemble", "sum_", "max_", "dataset")
    mine, whole = ({k: v for k, v in flat(x).items() if not any(part in k for part in loose)} for x in (mine, whole))
    assert mine.keys() == whole.keys()
    for name, value in whole.items():
        if value is None or isinstance(value, str):
            assert mine[name] == value
            continue
        exact = name.startswith("baselines")
        assert mine[name] == pytest.approx(value, rel=1e-12 if exact else 1e-4), name
    single = pd.concat([parquet.read_table(path).to_pandas() for path in sorted((tmp_path / "1").glob("*.parquet"))])
    given = pd.read_csv(run / "per_forecast.csv", parse_dates=["start"])
    key = ["protocol", "model", "item_id", "start"]
    both = single.merge(given, on=key, how="outer", validate="one_to_one")
    assert len(both) == len(given) == len(single) == 3 * 3 * SERIES
    np.testing.assert_allclose(both["crps_x"], both["crps_y"], rtol=1e-4)


def test_what_does_not_fit_is_said_in_a_line(run, tmp_path, capsys):
    for arguments, message in (
        (["--output", str(tmp_path / "o"), "--adapt", "ogd"], "--adapt goes without --output"),
        (["--engine", "ray"], "--engine goes with --output DIR"),
        (["--output", str(run.parent / "buckets")], "holds no results of buckets"),
    ):
        assert main(["evaluate", str(run), *COMMON, *arguments]) == 2
        assert message in capsys.readouterr().err.strip().split("\n")[-1]
