"""`tsforecast impute`: what is there comes back as it was, and what is missing with its uncertainty."""

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tsforecast.cli import main
from tsforecast.forecasting import bulk

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

SERIES, STEPS = 8, 60
LEVELS = ["0.1", "0.5", "0.9"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, its table with gaps of single days and of a week, and buckets of the table."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D")
    parts = []
    for k in range(SERIES):
        sales = 50 + k + 9 * (days.dayofweek > 4) + rng.normal(size=STEPS)
        sales[rng.choice(np.arange(1, STEPS), 6, replace=False)] = np.nan
        sales[30:37] = np.nan
        parts.append(pd.DataFrame({"item_id": f"s{k}", "day": days, "sales": sales}))
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    few = ["--windows=0", "--prediction_length=5", "--max_epochs=3", "--accelerator=cpu", "--threads=1"]
    table = ["--data", str(folder / "sales.csv")]
    assert main(["train", "issm", *table, *few, "--output", str(folder / "run")]) == 0
    assert main(["bucket", str(folder / "sales.csv"), str(folder / "buckets"), "--buckets", "3"]) == 0
    return folder


def impute(made, data, out, *more) -> int:
    levels = ["--quantiles", ",".join(LEVELS), "--device=cpu"]
    return main(["impute", str(made / "run"), "--data", str(made / data), "--output", str(out), *levels, *more])


def checked(frame, made) -> None:
    """The frame has every step; what was there is unchanged, and weekdays are told apart where a week is missing."""
    given = pd.read_csv(made / "sales.csv", parse_dates=["day"]).rename(columns={"day": "timestamp"})
    both = frame.merge(given, on=["item_id", "timestamp"], how="outer", validate="one_to_one")
    assert len(both) == len(frame) == SERIES * STEPS
    seen = both["sales"].notna()
    assert both.loc[seen, "mean"].equals(both.loc[seen, LEVELS[0]])  # a mean of equal values may be rounded
    for column in ("mean", *LEVELS):
        np.testing.assert_allclose(both.loc[seen, column], both.loc[seen, "sales"], rtol=1e-6)
    assert (both.loc[~seen, "0.1"] < both.loc[~seen, "0.5"]).all()
    assert (both.loc[~seen, "0.5"] < both.loc[~seen, "0.9"]).all()
    gap = both[~seen & both["timestamp"].between("2024-01-31", "2024-02-06")]
    weekend = gap["timestamp"].dt.dayofweek > 4
    assert gap.loc[weekend, "mean"].mean() - gap.loc[~weekend, "mean"].mean() > 4


@pytest.mark.parametrize("data", ["sales.csv", "buckets"])
def test_a_table_comes_back_without_gaps(made, tmp_path, data):
    assert impute(made, data, tmp_path / "f.csv") == 0
    frame = pd.read_csv(tmp_path / "f.csv").rename(columns={"day": "timestamp"})
    assert list(frame) == ["item_id", "timestamp", "mean", *LEVELS]
    checked(frame.assign(timestamp=pd.to_datetime(frame["timestamp"])), made)


def test_buckets_come_back_without_gaps(made, tmp_path):
    for name in ("one", "again"):
        assert impute(made, "buckets", tmp_path / name) == 0
    files = sorted(path.name for path in (tmp_path / "one").glob("*.parquet"))
    assert len(files) == 3
    for name in (*files, bulk.MANIFEST):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    checked(pd.concat([parquet.read_table(tmp_path / "one" / name).to_pandas() for name in files]), made)
    assert impute(made, "buckets", tmp_path / "one", "--seed", "1") == 2  # other paths belong into another folder


def test_paths_are_joint(made, tmp_path):
    assert impute(made, "sales.csv", tmp_path / "f.parquet", "--paths", "--num_samples", "7") == 0
    frame = pd.read_parquet(tmp_path / "f.parquet")
    assert list(frame) == ["item_id", "day", "path", "value"]
    assert len(frame) == 7 * SERIES * STEPS


def test_what_is_wrong_is_said_in_a_line(made, tmp_path, capsys):
    run, table = str(made / "run"), str(made / "sales.csv")
    empty = tmp_path / "empty.csv"
    days = pd.date_range("2024-01-01", periods=9, freq="D")
    pd.DataFrame({"item_id": "a", "day": days, "sales": np.nan}).to_csv(empty, index=False)
    for arguments, message in (
        (["--data", table, "--output", str(tmp_path / "f")], "a folder is written for --data BUCKETS"),
        (
            ["--data", table, "--output", str(tmp_path / "f.csv"), "--num_samples", "0"],
            "--num_samples: expected at least 1",
        ),
        (
            ["--data", str(empty), "--output", str(tmp_path / "f.csv"), "--target", "sales"],
            "1 of 1 series can not be used: 'a'",
        ),
    ):
        assert main(["impute", run, *arguments]) == 2, arguments
        told = capsys.readouterr().err.strip().split("\n")[-1]
        assert told.startswith("error: ")
        assert message in told
    assert not list(tmp_path.glob("f*"))
