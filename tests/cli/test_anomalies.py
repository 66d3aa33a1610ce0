"""`tsforecast anomalies`: a table and pictures, of a run or of a file alone."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")
STEPS, AT = 120, 90


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table of two series, one with a spike, and a run trained with it."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D")
    parts = [pd.DataFrame({"item_id": f"s{k}", "day": days, "sales": 50 + rng.normal(size=STEPS)}) for k in range(2)]
    parts[1].loc[AT, "sales"] += 15
    pd.concat(parts).to_csv(folder / "sales.csv", index=False)
    few = ["--windows=0", "--prediction_length=5", "--max_epochs=1", "--accelerator=cpu", "--components=level"]
    assert main(["train", "issm", "--data", str(folder / "sales.csv"), *few, "--output", str(folder / "run")]) == 0
    return folder


def test_a_run_judges_its_data(made, tmp_path, capsys):
    out = tmp_path / "found"
    assert (
        main(["anomalies", str(made / "run"), "--since", "2024-02-20", "--output", str(out), "--plot_series", "1"]) == 0
    )
    frame = pd.read_csv(out / "anomalies.csv", parse_dates=["day"])
    assert len(frame) == 2 * STEPS
    flagged = frame[frame["flagged"]]
    assert (flagged["item_id"] == "s1").all()
    assert flagged.loc[flagged["score"].idxmax(), "day"] == pd.Timestamp("2024-01-01") + pd.Timedelta(days=AT)
    assert [path.name for path in out.glob("*.png")] == ["1-s1.png"]
    assert "<h1>sales: anomalies by issm (level), at 0.001 false alarms a step</h1>" in (out / "page.html").read_text()
    assert "s1: spike at 2024-03-31," in capsys.readouterr().err


def test_what_is_wrong_is_said_in_a_line(made, tmp_path, capsys):
    run, table = str(made / "run"), str(made / "sales.csv")
    for arguments, message in (
        ([], "expected a run, or data"),
        ([run, "--since", "2031-01-01"], "expected since to be within the data, which go from 2024-01-01"),
        ([run, "--since", "2024-01-09"], "expected at least 40 values before the judged part"),
        ([run, "--rate", "2"], "false-alarm rate between 0 and 0.5, got 2.0"),
        ([run, "--freq", "D"], "--freq goes with --data FILE alone"),
        (["--data", table, "--target", "price"], "price"),
    ):
        assert main(["anomalies", *arguments, "--output", str(tmp_path / "out")]) == 2, arguments
        told = capsys.readouterr().err.strip().split("\n")[-1]
        assert told.startswith("error: ")
        assert message in told
    assert not (tmp_path / "out").exists()
