"""A store that is opened again is as it was; one that is damaged says so."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tests.forecasting.test_estimator import make_entries
from tests.live.stores import begun, make_store, observations, same_rows, steps_of
from tsforecast.io.files import checksum
from tsforecast.live import log as logs
from tsforecast.live.beginning import Source, begin_store
from tsforecast.live.count import Count
from tsforecast.live.description import read_description
from tsforecast.live.log import Log
from tsforecast.live.opening import open_store
from tsforecast.live.rules import Pending
from tsforecast.live.snapshot import read_rows, write_rows
from tsforecast.live.steps import Steps
from tsforecast.live.store import FullError, StoreError, count_of, log_of, snapshot_of

pytestmark = pytest.mark.usefixtures("unchecked_module")  # tests of the engine look at types


def traffic(entries, seed=0):
    """Micro-batches of requests: series that are known and new, gaps, repeats and missing values, in any mixture."""
    rng = np.random.default_rng(seed)
    entries = [*entries, *({**e, "item_id": f"new {e['item_id']}"} for e in entries[:2])]
    place = {e["item_id"]: 30 if e["item_id"].startswith("s") else 0 for e in entries}
    for _ in range(6):
        requests = []
        for _ in range(rng.integers(1, 4)):
            found = []
            for entry in entries:
                item = entry["item_id"]
                if rng.random() < 0.6 and place[item] < len(entry["target"]):
                    found.append((item, entry["start"].ordinal + place[item], entry["target"][place[item]]))
                    place[item] += rng.choice([0, 1, 1, 1, 3])
            if found:
                requests.append(observations(*zip(*found, strict=True)))
        yield requests


@pytest.mark.parametrize("model", ["issm", "pool", "rsgls-issm"])
def test_a_restart_from_the_log_equals_a_service_that_was_never_stopped_to_the_bit(tmp_path, model):
    never = make_store(tmp_path, model)
    often = tmp_path / "often"
    shutil.copytree(never, often)
    batches = [requests for requests in traffic(make_entries()) if requests]
    with open_store(never) as store:
        outcomes = [store.observe(requests) for requests in batches]
        for first in (0, 2, 4):
            with open_store(often) as other:  # applies the log of all before
                assert [other.observe(requests) for requests in batches[first : first + 2]] == outcomes[
                    first : first + 2
                ]
                if first == 2:
                    other.snapshot()
                    other.observe([observations(["s0"], [0], [1.0])])  # late: nothing to log
        with open_store(often) as other:
            same_rows(other.rows, store.rows)
            assert other.number == store.number
        rows = np.arange(len(store.rows))
        store.snapshot()
        kept = [part.clone() for part in store.rows.parts]
        store.engine.forecasts(store.rows, rows, 2, num_samples=3)
        assert all(torch.equal(a, b) for a, b in zip(kept, store.rows.parts, strict=True))
    assert sorted(p.name for p in never.iterdir()) == [
        "acknowledged.bin", f"log-{store.number:016d}.bin", "predictor", f"snapshot-{store.number:016d}", "store.json"
    ]  # fmt: skip


def test_what_becomes_of_a_series_does_not_depend_on_its_batch_mates_but_for_rounding(tmp_path):
    entries = make_entries()
    with open_store(make_store(tmp_path)) as store:
        store.observe([steps_of(entries, 30, 31)])
        together = [part[:1].clone() for part in store.rows.parts]
    (tmp_path / "other").mkdir()
    with open_store(make_store(tmp_path / "other")) as store:
        store.observe([steps_of(entries[:1], 30, 31)])
        for mine, theirs in zip(store.rows.parts, together, strict=True):
            torch.testing.assert_close(mine[:1], theirs, rtol=1e-6, atol=1e-6)


def test_a_failed_computation_leaves_neither_record_nor_change(tmp_path, monkeypatch):
    entries = make_entries()
    with open_store(make_store(tmp_path)) as store:
        size = store.log_bytes
        monkeypatch.setattr(store.engine.net.inference.__class__, "filter", None)
        with pytest.raises(TypeError):
            store.observe([steps_of(entries, 30, 31)])
        monkeypatch.undo()
        assert (store.log_bytes, store.number) == (size, 0)
        assert set(store.observe([steps_of(entries, 30, 31)])[0]) == {"applied"}


@pytest.mark.parametrize(("file", "size"), [("log", 1), ("log", 400), ("count", 1)])
def test_a_disk_that_fails_stops_the_store_but_what_was_acknowledged_is_kept(tmp_path, monkeypatch, file, size):
    """Where the disk fails, by the number of observations: large micro-batches are flushed by another thread."""
    path = make_store(tmp_path)
    with open_store(path) as store:
        store.observe([steps_of(make_entries(), 30, 31)])
        kept = store.rows.end[:5].copy()
        first = int(kept[0])
        more = observations(["s0"] * size, first + np.arange(size), np.ones(size))

        def fails(*_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(*((Log, "flush") if file == "log" else (Count, "write")), fails)
        with pytest.raises(StoreError, match=f"{file} .*could not be written"):
            store.observe([more])
        monkeypatch.undo()
        with pytest.raises(StoreError, match="has failed"):
            store.observe([more])
        with pytest.raises(StoreError, match="has failed"):
            store.snapshot()
        np.testing.assert_array_equal(store.rows.end[:5], kept)
    with open_store(path) as store:
        np.testing.assert_array_equal(store.rows.end[:5], kept)
        assert store.observe([more]) == [["applied"] * size]


@pytest.mark.parametrize("moment", ["write", "flush"])
@pytest.mark.parametrize("size", [1, 400])
def test_a_full_disk_refuses_and_the_store_goes_on_when_there_is_room(tmp_path, monkeypatch, moment, size):
    path = make_store(tmp_path)
    entries = make_entries()
    with open_store(path) as store:
        store.observe([steps_of(entries, 30, 31)])
        first, place = int(store.rows.end[0]), store.log_bytes
        more = observations(["s0"] * size, first + np.arange(size), np.ones(size))
        real = os.write, os.fdatasync
        left = [20]  # bytes of room

        def writes(handle, part):
            if not left[0]:
                raise OSError(28, "No space left on device")
            some, left[0] = min(left[0], len(part)), 0
            return real[0](handle, part[:some])

        def flushes(handle):
            if left[0]:
                left[0] = 0
                raise OSError(28, "No space left on device")
            real[1](handle)

        monkeypatch.setattr(os, *(("write", writes) if moment == "write" else ("fdatasync", flushes)))
        with pytest.raises(FullError, match="the disk is full; make room"):
            store.observe([more])
        monkeypatch.undo()
        assert (store.failed, store.log_bytes, store.number) == (False, place, 1)
        assert store.observe([more]) == [["applied"] * size]
        kept = store.rows
    with open_store(path) as store:
        same_rows(store.rows, kept)
        assert store.number == 2


def test_a_snapshot_without_room_for_its_log_leaves_the_old_one_current(tmp_path, monkeypatch):
    path = make_store(tmp_path)
    entries = make_entries()

    def fails(*_):
        raise OSError(28, "No space left on device")

    with open_store(path) as store:
        store.observe([steps_of(entries, 30, 31)])
        monkeypatch.setattr(logs, "create", fails)
        with pytest.raises(OSError, match="No space"):
            store.snapshot()
        monkeypatch.undo()
        assert snapshot_of(path, 1).is_dir()  # and is not current
        store.observe([steps_of(entries, 31, 33)])
        kept = store.rows
    with open_store(path) as store:
        same_rows(store.rows, kept)
        assert store.number == 2
        assert not snapshot_of(path, 1).exists()


def test_damage_to_what_was_acknowledged_is_told_and_no_file_changes(tmp_path):
    """A changed bit anywhere, a log that is cut or gone, a count that is gone; the snapshot has its own test."""
    path = make_store(tmp_path)
    entries = make_entries()
    with open_store(path) as store:
        for k in range(30, 34):
            store.observe([steps_of(entries, k, k + 1)])
        ends = [end for _, end in logs.read(log_of(path, 0), store.about.key, 0, store._log.end)]
    whole = log_of(path, 0).read_bytes()
    harm = {}
    for place in [0, 20, 34, *(end.size + byte for end in ends[:-1] for byte in (0, 8, 9, 12, 16, 20, 30)), -1]:
        damaged = bytearray(whole)
        damaged[place] ^= 16
        harm[f"bit at {place}"] = bytes(damaged)
    harm |= {f"cut at {end.size}": whole[: end.size] for end in ends[:-1]} | {"empty": b"", "gone": None}
    for what, text in harm.items():
        log_of(path, 0).unlink()
        if text is not None:
            log_of(path, 0).write_bytes(text)
        with pytest.raises(ValueError, match="nothing was changed: restore"), open_store(path):
            pass
        assert (log_of(path, 0).read_bytes() if log_of(path, 0).exists() else None) == text, what
    log_of(path, 0).write_bytes(whole)
    count_of(path).rename(tmp_path / "count")
    with pytest.raises(ValueError, match="which counts what was acknowledged"), open_store(path):
        pass
    (tmp_path / "count").rename(count_of(path))
    with open_store(path) as store:
        assert store.number == 4


def test_a_record_that_was_not_acknowledged_is_cut_and_told(tmp_path, caplog):
    """Also a whole one: a service that was killed while it computed with it opens again."""
    path = make_store(tmp_path)
    with open_store(path) as store:
        store.observe([steps_of(make_entries(), 30, 31)])
        steps = store.rules.sift(store.rows, [Pending(steps_of(make_entries(), 31, 32))], 1)
        place = store.log_bytes
        store._log.append(steps.to_bytes())
    with open_store(path) as store:
        assert (store.number, store.log_bytes, log_of(path, 0).stat().st_size) == (1, place, place)
    assert "were not acknowledged, and are cut" in caplog.text


def test_a_count_that_is_damaged_in_one_place_loses_no_record(tmp_path):
    for byte in (3, 4096 + 30):
        folder = tmp_path / str(byte)
        folder.mkdir()
        path = make_store(folder)
        with open_store(path) as store:
            for k in range(30, 33):
                store.observe([steps_of(make_entries(), k, k + 1)])
        damaged = bytearray(count_of(path).read_bytes())
        damaged[byte] ^= 1
        count_of(path).write_bytes(damaged)
        with open_store(path) as store:
            assert store.number == 3
        assert Count(count_of(path), store.about.key).is_whole
        with open_store(path) as store:
            store.snapshot()
        whole = count_of(path).read_bytes()
        for place in (byte, (byte + 4096) % 8192):  # neither names what the snapshot has replaced
            damaged = bytearray(whole)
            damaged[place] ^= 1
            count_of(path).write_bytes(damaged)
            with open_store(path) as store:
                assert store.number == 3


def stops(*_):
    raise KeyboardInterrupt


def test_a_beginning_that_was_stopped_goes_on_with_the_parts_that_are_there(tmp_path):
    entries = begun(make_entries())
    whole = make_store(tmp_path, entries=entries)
    read = []

    def entries_of(part, stops=False):
        if stops:
            raise KeyboardInterrupt
        read.append(part)
        return entries[part::2]

    def sources(stops):
        return [Source("even", partial(entries_of, 0)), Source("odd", partial(entries_of, 1, stops))]

    path = tmp_path / "parts"
    begin = partial(begin_store, path, tmp_path / "predictor-issm", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        begin(sources(True))
    with pytest.raises(ValueError, match="no store, or not finished"), open_store(path):
        pass
    with pytest.raises(ValueError, match="begun with other warm_up"):
        begin(sources(False), warm_up=33)
    with pytest.raises(ValueError, match="begun with other sources"):
        begin([Source("else", partial(entries_of, 0))])
    assert begin(sources(False)) == 5
    assert read == [0, 1]
    with open_store(path) as store, open_store(whole) as other:
        assert store.rows.names == ["s0", "s2", "s4", "s1", "s3"]
        order = torch.tensor([other.rows.index[name] for name in store.rows.names])
        for mine, theirs in zip(store.rows.parts, other.rows.parts, strict=True):
            torch.testing.assert_close(mine[:5], theirs[order], rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="is a store already"):
        begin(sources(False))
    with pytest.raises(ValueError, match="not empty and no store"):
        begin_store(tmp_path, tmp_path / "predictor-issm", sources(False))


def test_a_series_twice_is_refused(tmp_path):
    entries = begun(make_entries(count=2))
    with pytest.raises(ValueError, match="name of its own for each series, got 's0' twice"):
        make_store(tmp_path, entries=[*entries, entries[0]], parts=3)


def test_one_process_at_a_time_has_a_store(tmp_path):
    path = make_store(tmp_path)
    with open_store(path), pytest.raises(ValueError, match="in use"), open_store(path):
        pass


@pytest.mark.parametrize("name", ["part_00.npy", "names.npy", "end.npy"])
def test_a_damaged_snapshot_is_refused(tmp_path, name):
    path = make_store(tmp_path)
    file = path / "snapshot-0000000000000000" / name
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)
    with pytest.raises(ValueError, match="checksum"), open_store(path):
        pass


def test_arrays_of_objects_are_not_read(tmp_path):
    """An array whose contents are a pickle, with a manifest that vouches for it."""
    path = make_store(tmp_path)
    folder = path / "snapshot-0000000000000000"
    np.save(folder / "end.npy", np.array([print] * 5, dtype=object), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["end.npy"] = checksum(folder / "end.npy")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="allow_pickle"), open_store(path):
        pass


def test_a_changed_model_a_missing_snapshot_or_another_format_is_refused(tmp_path):
    path = make_store(tmp_path)
    (path / "predictor" / "more").write_text("")
    with pytest.raises(ValueError, match="not the model with which the store began"), open_store(path):
        pass
    (path / "predictor" / "more").unlink()
    about = json.loads((path / "store.json").read_text())
    for change, message in (({"format": 1}, "expected format 3, got 1"), ({"identity": "../.."}, "is damaged")):
        (path / "store.json").write_text(json.dumps(about | change))
        with pytest.raises(ValueError, match=message), open_store(path):
            pass
    (path / "store.json").write_text(json.dumps(about))
    (path / "snapshot-0000000000000000").rename(path / "elsewhere")
    with pytest.raises(ValueError, match="has no snapshot snapshot-0000000000000000"), open_store(path):
        pass


@pytest.mark.parametrize(
    "change", [{"rows": [77]}, {"rows": [-1]}, {"ordinals": [0]}, {"number": 3}, {"values": [[1.0, 2.0]]}]
)
def test_a_log_that_does_not_fit_its_store_is_refused(tmp_path, change):
    path = make_store(tmp_path)
    with open_store(path) as store:
        fine = Steps(
            0, [], np.array([0]), store.rows.end[:1].copy(), np.array([1]), np.array([[1.0]]), np.zeros((1, 0))
        )
    kinds = {"rows": np.int64, "ordinals": np.int64, "values": np.float64}
    change = {name: np.array(value, kinds[name]) if name in kinds else value for name, value in change.items()}
    log_records(path, replace(fine, **change).to_bytes())
    with pytest.raises(ValueError, match="expected micro-batch 0 of this model"), open_store(path):
        pass
    log_records(path, fine.to_bytes())
    with open_store(path) as store:
        assert store.number == 1


def log_records(path, *records):
    """Writes a log of other records, and counts them."""
    about = read_description(path)
    log = Log(log_of(path, 0), logs.create(log_of(path, 0), about.key, 0))
    for record in records:
        log.append(record)
    log.close()
    Count(count_of(path), about.key).write(0, log.end)


def test_rows_and_micro_batches_come_back(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        store.observe([observations(["\0/../ü\u2028"], [3], [1.5], [9])])
        write_rows(tmp_path / "rows", store.rows, 5)
        again, number = read_rows(tmp_path / "rows", store.engine.empty())
        same_rows(again, store.rows)
        assert number == 5
    numbers = np.array([[1.0, np.nan], [-0.0, np.inf]])
    steps = Steps(2**40, ["ü"], np.array([1, 2]), np.array([-5, 6]), np.array([0, 1]), numbers, np.zeros((2, 0)))
    again = Steps.from_bytes(steps.to_bytes())
    assert (again.number, again.names) == (steps.number, steps.names)
    for name in ("rows", "ordinals", "sequences", "values", "covariates"):
        np.testing.assert_array_equal(getattr(again, name), getattr(steps, name))
    with pytest.raises(ValueError, match="expected a micro-batch"):
        Steps.from_bytes(steps.to_bytes()[:-8])
