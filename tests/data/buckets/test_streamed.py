"""Series that are read again in every walk: one part in memory, in orders that follow from a seed."""

from itertools import chain, islice

import numpy as np
import pandas as pd
import pytest

from tsforecast.data import read_task
from tsforecast.data import sources as table
from tsforecast.data.buckets.bucketing import make_buckets
from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.epochs import EpochLoader
from tsforecast.data.transform import Prepare

pytestmark = pytest.mark.usefixtures("unchecked_module")  # they would read a part to look at an entry

COUNTS = (3, 0, 4, 2)


def entry(name, length=12):
    target = np.arange(length, dtype=np.float64)
    return {"item_id": name, "start": pd.Period("2024-01-01", "D"), "target": target}


def streamed(counts=COUNTS):
    reads = []

    def read(number):
        reads.append(number)
        return [entry(f"{number}-{place}") for place in range(counts[number])]

    return StreamedEntries(read, counts, "x"), reads


def test_a_walk_reads_one_part_after_the_other():
    entries, reads = streamed()
    names = [e["item_id"] for e in entries]
    assert names == [f"{number}-{place}" for number, count in enumerate(COUNTS) for place in range(count)]
    assert reads == [0, 1, 2, 3]
    assert len(entries) == 9
    assert [entries[place]["item_id"] for place in (0, 3, -1)] == ["0-0", "2-0", "3-1"]
    assert [e["item_id"] for e in entries[2:5]] == ["0-2", "2-0", "2-1"]
    with pytest.raises(IndexError, match="below 9"):
        entries[9]
    assert all(len(e["target"]) == 5 for e in entries.until(3).until(4))


def test_parts_that_have_changed_are_refused():
    entries, _ = streamed()
    other = StreamedEntries(entries.read, (3, 0, 5, 2), "x")
    with pytest.raises(ValueError, match="part 2 had 5 series, and has 4 now"):
        list(other)


@pytest.mark.parametrize("processes", [1, 2, 6])
def test_processes_share_out_all_series(processes):
    """Each has parts of its own; of fewer parts than processes, series of its own."""
    entries, _ = streamed()
    shares = [
        [e["item_id"] for e in entries.drawn(np.random.default_rng(3), rank, processes)] for rank in range(processes)
    ]
    assert sorted(chain(*shares)) == sorted(e["item_id"] for e in entries)
    parts = [{name.split("-")[0] for name in share} for share in shares]
    if processes == 2:
        assert not parts[0] & parts[1]
    again = [e["item_id"] for e in entries.drawn(np.random.default_rng(3), 0, processes)]
    assert again == shares[0]


def loader(entries, rank=0, processes=1, num_batches=6, **options):
    prepared = Prepare(3, [], [], []).apply(entries, is_train=True)
    found = EpochLoader(prepared, 4, 3, 2, num_batches, 0, buffer=3, count=len(entries), **options)
    found.place = lambda: (rank, processes)
    return found


def test_an_epoch_reads_no_more_than_its_steps_need():
    entries, reads = streamed((5,) * 20)
    found = [name for batch in loader(entries) for name in batch["item_id"]]
    assert len(set(found)) == 12
    assert len(reads) <= 4  # 12 windows and 3 in the buffer, of 5 series a part


def test_all_processes_have_as_many_steps_whatever_they_read():
    """Of series of their own, though one process has two parts of three."""
    entries, _ = streamed((1, 7, 2))
    epochs = [list(loader(entries, rank, 2)) for rank in (0, 1)]
    assert [len(epoch) for epoch in epochs] == [6, 6]
    names = [{name for batch in epoch for name in batch["item_id"]} for epoch in epochs]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) > 3


def test_a_process_without_series_says_so():
    entries, _ = streamed((0, 1))
    with pytest.raises(ValueError, match="take fewer processes than series"):
        [list(loader(entries, rank, 2)) for rank in (0, 1)]


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_resumed_epoch_goes_on_behind_the_batches_that_were_made(wrapped):
    entries = streamed()[0] if wrapped else list(streamed()[0])
    whole = loader(entries)
    whole.set_epoch(2)
    expected = list(whole)
    stopped = loader(entries)
    stopped.set_epoch(2)
    begun = list(islice(stopped, 4))
    resumed = loader(entries)
    resumed.set_epoch(2)
    resumed.load_state_dict(stopped.state_dict())
    found = begun + list(resumed)
    assert len(found) == len(expected)
    for mine, its in zip(found, expected, strict=True):
        assert mine["item_id"] == its["item_id"]
        np.testing.assert_array_equal(mine["past_target"], its["past_target"])
    assert len(list(resumed)) == 6  # the next epoch is whole
    resumed.load_state_dict({"made": 6})
    assert len(list(resumed)) == 6  # saved at the end of an epoch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    parts = [
        pd.DataFrame({"shop": f"s{k}", "day": days, "sales": k + rng.normal(size=40), "price": rng.normal(size=40)})
        for k in range(12)
    ]
    parts.append(pd.DataFrame({"shop": "short", "day": days[:9], "sales": 1.0, "price": 0.0}))
    path = tmp_path_factory.mktemp("data")
    pd.concat(parts).to_csv(path / "sales.csv", index=False)
    make_buckets([str(path / "sales.csv")], path / "buckets", 4)
    return path / "buckets"


@pytest.mark.parametrize("windows", [0, 2])
def test_a_large_folder_has_the_series_of_a_small_one(folder, monkeypatch, windows):
    options = {"prediction_length": 5, "windows": windows}
    kept = read_task(folder, **options)
    monkeypatch.setattr(table, "MOST_KEPT", 10)
    read = read_task(folder, **options)
    assert isinstance(read.entries, StreamedEntries)
    assert not isinstance(kept.entries, StreamedEntries)
    assert len(read.entries) == len(kept.entries) == (13 if windows == 0 else 12)
    for mine, its in zip(read.train, kept.train, strict=True):
        assert mine.keys() == its.keys()
        for name, value in its.items():
            np.testing.assert_array_equal(mine[name], value)
    assert (read.freq, read.columns, read.targets) == (kept.freq, kept.columns, kept.targets)


def test_defaults_follow_from_what_the_folder_says(folder, monkeypatch, caplog):
    kept = read_task(folder)
    monkeypatch.setattr(table, "MOST_KEPT", 10)
    read = read_task(folder)
    assert (read.prediction_length, read.windows, read.reasons) == (kept.prediction_length, kept.windows, kept.reasons)
    caplog.clear()
    entries = read_task(folder, prediction_length=5, windows=2).entries
    assert "'short'" not in [entry["item_id"] for _ in range(2) for entry in entries]
    assert [message.endswith("are left out: 'short'") for message in caplog.messages] == [True]
    with pytest.raises(ValueError, match="13 of 13 series can not be used"):
        read_task(folder, prediction_length=40, windows=1)
