"""The log: what was flushed comes back, a torn end is cut, other damage is told."""

import os

import pytest

from tsforecast.live import log as logs
from tsforecast.live.log import HEADER, Log

STORE = bytes(range(16))
RECORDS = [b"first", b"", bytes(30), b"last"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "log.bin"
    logs.create(path, STORE, 7)
    log = Log(path, HEADER)
    for record in RECORDS:
        log.append(record)
    log.flush()
    log.close()
    return path


def contents(path):
    return [record for record, _ in logs.read(path, STORE, 7)]


def test_records_come_back_in_order(path):
    assert contents(path) == RECORDS
    *_, (_, size) = logs.read(path, STORE, 7)
    assert size == path.stat().st_size


def test_any_torn_end_is_cut_and_the_log_goes_on(path):
    whole = path.read_bytes()
    ends = [HEADER, *(size for _, size in logs.read(path, STORE, 7))]
    for length in range(HEADER, len(whole)):
        path.write_bytes(whole[:length])
        kept = sum(end <= length for end in ends) - 1
        assert contents(path) == RECORDS[:kept]
        log = Log(path, ends[kept])
        log.append(b"new")
        log.close()
        assert contents(path) == [*RECORDS[:kept], b"new"]


@pytest.mark.parametrize("tail", [bytes(5), bytes(4096)])
def test_zeros_at_the_end_are_torn(path, tail):
    path.write_bytes(path.read_bytes() + tail)
    assert contents(path) == RECORDS


def test_a_changed_byte_of_the_last_record_cuts_it(path):
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    assert contents(path) == RECORDS[:-1]


def test_a_changed_byte_before_the_last_record_is_damage(path):
    whole = path.read_bytes()
    sizes = [size for _, size in logs.read(path, STORE, 7)]
    for place in (HEADER + 8, sizes[1] + 4, sizes[1] + 20):  # contents, check, contents
        damaged = bytearray(whole)
        damaged[place] ^= 255
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged, and"):
            contents(path)


@pytest.mark.parametrize(("store", "first"), [(bytes(16), 7), (STORE, 8)])
def test_a_log_of_another_store_or_place_is_refused(path, store, first):
    with pytest.raises(ValueError, match="no log of this store from record"):
        next(logs.read(path, store, first))


def test_a_record_that_can_not_be_written_leaves_nothing(path, monkeypatch):
    log = Log(path, path.stat().st_size)
    real = os.write
    wrote = []

    def fails_half_way(handle, part):
        if wrote:
            raise OSError(28, "No space left on device")
        wrote.append(real(handle, bytes(part)[:5]))
        return wrote[0]

    monkeypatch.setattr(os, "write", fails_half_way)
    with pytest.raises(OSError, match="No space"):
        log.append(b"x" * 100)
    monkeypatch.setattr(os, "write", real)
    assert contents(path) == RECORDS
    log.append(b"after")
    log.close()
    assert contents(path) == [*RECORDS, b"after"]
