"""`tsforecast predict` over buckets: the same bytes whoever computes them, whatever happens on the way."""

import json
import logging
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tsforecast.cli import main
from tsforecast.data.buckets.survey import WORK, bucket_name, read_survey
from tsforecast.forecasting import bulk

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

SERIES, STEPS, HORIZON = 30, 50, 5


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, its table and buckets of the table; a few series end early, by whole buckets or not."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D")
    parts = [
        pd.DataFrame(
            {"item_id": f"s{k}", "day": days, "sales": 50 + k + 3 * (days.dayofweek > 4) + rng.normal(size=STEPS)}
        )
        for k in range(SERIES)
    ]
    parts[3] = parts[3].iloc[:-4]
    table = folder / "sales.csv"
    pd.concat(parts).to_csv(table, index=False)
    run = folder / "run"
    few = ["--windows=0", f"--prediction_length={HORIZON}", "--max_epochs=1", "--num_batches_per_epoch=2"]
    assert main(["train", "issm", "--data", str(table), *few, "--output", str(run), "--accelerator=cpu"]) == 0
    for count in (1, 4):
        assert main(["bucket", str(table), str(folder / f"buckets{count}"), "--buckets", str(count)]) == 0
    return folder


def predict(made, out, *more, buckets=4) -> int:
    data = ["--data", str(made / f"buckets{buckets}"), "--output", str(out), "--device=cpu"]
    return main(["predict", str(made / "run"), *data, *more])


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def frame_of(folder):
    parts = [parquet.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))]
    return pd.concat(parts).sort_values(["item_id", "timestamp"], ignore_index=True)


@pytest.fixture(scope="module")
def whole(made):
    """Forecasts of one uninterrupted call by one process."""
    assert predict(made, made / "whole") == 0
    return made / "whole"


def test_forecasts_of_buckets_are_those_of_the_table(made, whole, tmp_path):
    assert (
        main(["predict", str(made / "run"), "--data", str(made / "sales.csv"), "--output", str(tmp_path / "f.csv")])
        == 0
    )
    expected = pd.read_csv(tmp_path / "f.csv", parse_dates=["day"]).rename(columns={"day": "timestamp"})
    expected = expected.sort_values(["item_id", "timestamp"], ignore_index=True)
    found = frame_of(whole)
    assert list(found) == list(expected)
    # A batch has other series beside each, which moves the last digits of float32.
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, check_dtype=False)
    assert found.groupby("item_id")["timestamp"].min().nunique() == 1  # the end is common to all buckets


def test_each_series_from_its_own_end(made, tmp_path):
    assert predict(made, tmp_path / "out", "--start", "each") == 0
    firsts = frame_of(tmp_path / "out").groupby("item_id")["timestamp"].min()
    assert firsts["s3"] == firsts["s4"] - pd.Timedelta(days=4)


def test_the_manifest_has_the_checksum_of_each_file(made, whole):
    manifest = json.loads((whole / bulk.MANIFEST).read_text())
    survey = read_survey(made / "buckets4")
    assert [bucket["file"] for bucket in manifest["buckets"]] == [bucket.file for bucket in survey.buckets]
    for bucket in manifest["buckets"]:
        assert bulk.checksum(whole / bucket["file"]) == bucket["sha256"]
        assert parquet.read_metadata(whole / bucket["file"]).num_rows == bucket["rows"] == bucket["series"] * HORIZON
    assert sum(bucket["series"] for bucket in manifest["buckets"]) == SERIES
    assert set(contents(whole)) == {bulk.MANIFEST, *(bucket.file for bucket in survey.buckets)}


def test_two_workers_write_the_same_bytes(made, whole, tmp_path):
    assert predict(made, tmp_path / "out", "--workers", "2") == 0
    assert contents(tmp_path / "out") == contents(whole)


def test_tasks_of_ray_write_the_same_bytes(made, whole, tmp_path):
    pytest.importorskip("ray")
    assert predict(made, tmp_path / "out", "--engine", "ray", "--workers", "2") == 0
    assert contents(tmp_path / "out") == contents(whole)


def test_quantiles_do_not_depend_on_the_bucket(made, whole, tmp_path):
    assert predict(made, tmp_path / "out", buckets=1) == 0
    pd.testing.assert_frame_equal(frame_of(tmp_path / "out"), frame_of(whole), rtol=1e-4)


def test_paths_of_a_bucket_have_a_seed_of_its_own(made, tmp_path):
    for name, seed in (("a", 1), ("again", 1), ("other", 2)):
        assert predict(made, tmp_path / name, "--paths", "--num_samples", "3", "--seed", str(seed)) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "again")
    assert not frame_of(tmp_path / "a").equals(frame_of(tmp_path / "other"))
    assert len(frame_of(tmp_path / "a")) == SERIES * HORIZON * 3
    assert len({bulk.seed_of(seed, bucket_name(k)) for seed in range(20) for k in range(20)}) == 400


def test_buckets_that_are_done_are_not_done_again(made, whole, tmp_path, monkeypatch, caplog):
    done, predicted = [], bulk.process_bucket

    def fails(run, path_in, path_out, *rest):
        if len(done) == 2:
            raise OSError(28, "No space left on device", str(path_out))
        done.append(path_in)
        return predicted(run, path_in, path_out, *rest)

    monkeypatch.setattr(bulk, "process_bucket", fails)
    assert predict(made, tmp_path / "out") == 2
    assert len(done) == 2
    monkeypatch.setattr(bulk, "process_bucket", lambda *job: done.append(job[1]) or predicted(*job))
    assert predict(made, tmp_path / "out") == 0
    assert len(done) == len(set(done)) == len(read_survey(made / "buckets4").buckets)
    assert contents(tmp_path / "out") == contents(whole)
    with caplog.at_level(logging.INFO, "tsforecast"):
        assert predict(made, tmp_path / "out") == 0
    assert "is finished already" in caplog.text
    assert len(done) == len(set(done))


def test_a_bucket_that_fails_is_named_by_every_worker(made, tmp_path, capsys):
    folder = tmp_path / "buckets4"
    shutil.copytree(made / "buckets4", folder)
    path = folder / read_survey(folder).buckets[-1].file
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    for workers in ("1", "2"):
        status = main(
            [
                "predict",
                str(made / "run"),
                "--data",
                str(folder),
                "--output",
                str(tmp_path / workers),
                "--workers",
                workers,
            ]
        )
        assert status == 2
        assert f"{path.name}: expected the checksum" in capsys.readouterr().err
        assert not (tmp_path / workers / bulk.MANIFEST).exists()


def test_what_is_wrong_is_said_in_a_line(made, whole, tmp_path, capsys):
    run, buckets, table = str(made / "run"), str(made / "buckets4"), str(made / "sales.csv")
    out, file = str(tmp_path / "out"), str(tmp_path / "f.csv")
    for arguments, message in (
        (["--data", table, "--output", out], "a folder is written for --data BUCKETS"),
        (["--output", out], "a folder is written for --data BUCKETS"),
        (
            ["--data", table, "--output", file, "--workers", "2"],
            "--workers goes with --data BUCKETS and a folder as --output",
        ),
        (["--data", buckets, "--output", out, "--known", table], "--known goes with a file"),
        (["--data", buckets, "--output", out, "--workers", "0"], "--workers: expected at least 1"),
        (["--data", buckets, "--output", out, "--address", "auto"], "goes with --engine ray"),
        (["--data", buckets, "--output", buckets], "holds no results of buckets; give a new folder"),
        (
            ["--data", buckets, "--output", str(whole), "--quantiles", "0.5"],
            "has results with other --device, --quantiles",
        ),
        (["--data", str(made / "buckets1"), "--output", str(whole)], "has results of other data"),
    ):
        assert main(["predict", run, *arguments]) == 2
        told = capsys.readouterr().err.strip().split("\n")[-1]
        assert told.startswith("error: ")
        assert message in told


def test_series_without_a_value_are_told(made, tmp_path, capsys):
    days = pd.date_range("2024-01-01", periods=10, freq="D")
    parts = [pd.DataFrame({"item_id": f"s{k}", "day": days, "sales": np.nan if k % 2 else 50.0}) for k in range(40)]
    pd.concat(parts).to_csv(tmp_path / "t.csv", index=False)
    assert main(["bucket", str(tmp_path / "t.csv"), str(tmp_path / "b"), "--buckets", "30", "--target", "sales"]) == 0
    common = ["predict", str(made / "run"), "--data", str(tmp_path / "b")]
    assert main([*common, "--output", str(tmp_path / "all")]) == 0
    told = capsys.readouterr().err
    assert "no value in the history of" in told
    assert "more warnings of" in told
    assert frame_of(tmp_path / "all")["item_id"].nunique() == 40


def test_nothing_is_left_of_the_work(whole):
    assert not (whole / WORK).exists()
    assert not [name for name in os.listdir(whole) if name.startswith(".")]
