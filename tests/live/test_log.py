"""What was acknowledged of a log comes back or is missed aloud; what lies behind it may be torn."""

import io
import os
import struct
import zlib
from itertools import pairwise

import pytest

from tsforecast.live import count as counting
from tsforecast.live import log as logs
from tsforecast.live.count import Count
from tsforecast.live.log import HEADER, End, Log

STORE = bytes(range(16))
FIRST = 7
RECORDS = [b"first", b"", bytes(30), b"last"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.bin"


@pytest.fixture
def ends(path):
    """The places between records."""
    log = Log(path, logs.create(path, STORE, FIRST))
    found = [log.end]
    for record in RECORDS:
        log.append(record)
        found.append(log.end)
    log.flush()
    log.close()
    return found


def contents(path, counted, **options):
    return [record for record, _ in logs.read(path, STORE, FIRST, counted, **options)]


def test_records_come_back_in_order_as_far_as_they_count(path, ends):
    for k, end in enumerate(ends):
        assert contents(path, end) == RECORDS[:k]
        assert contents(path, end, beyond=True) == RECORDS
    assert [end for _, end in logs.read(path, STORE, FIRST, ends[-1])] == ends[1:]
    assert (ends[0].size, ends[-1].size) == (HEADER, path.stat().st_size)
    assert [end.number for end in ends] == list(range(FIRST, FIRST + 5))


def test_any_changed_bit_of_what_was_acknowledged_is_an_error(path, ends):
    """Of lengths, numbers, checks, contents and the header, also in the last record; the file is not touched."""
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="nothing was changed"):
            contents(path, ends[-1])
        assert path.read_bytes() == damaged


def test_a_log_that_was_cut_removed_or_replaced_is_an_error(path, ends):
    whole = path.read_bytes()
    for length in range(len(whole)):  # also at the end of a record
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="nothing was changed"):
            contents(path, ends[-1])
    other = Log(path, logs.create(path, STORE, FIRST))
    for record in [b"First", *RECORDS[1:]]:
        other.append(record)
    other.close()
    with pytest.raises(ValueError, match="not the log whose records were acknowledged"):
        contents(path, ends[-1])
    path.unlink()
    with pytest.raises(ValueError, match="there is no log"):
        contents(path, ends[-1])


def test_records_that_changed_places_or_come_from_elsewhere_are_an_error(path, ends):
    whole = path.read_bytes()
    parts = [whole[a.size : b.size] for a, b in pairwise(ends)]
    for order in ((1, 0, 2, 3), (0, 0, 2, 3), (0, 2, 3)):
        path.write_bytes(whole[:HEADER] + b"".join(parts[k] for k in order))
        with pytest.raises(ValueError, match="nothing was changed"):
            contents(path, ends[-1])


def test_what_lies_behind_may_be_torn_and_the_log_goes_on(path, ends):
    whole, (*_, before, end) = path.read_bytes(), ends
    for tail in (*(whole[before.size :][:n] for n in range(1, end.size - before.size)), bytes(5), bytes(4096)):
        path.write_bytes(whole[: before.size] + tail)
        for beyond in (False, True):
            assert contents(path, before, beyond=beyond) == RECORDS[:3]
        log = Log(path, before)
        log.append(b"new")
        log.close()
        assert contents(path, log.end) == [*RECORDS[:3], b"new"]


@pytest.mark.parametrize(("store", "first"), [(bytes(16), FIRST), (STORE, 8)])
def test_a_log_of_another_store_or_place_is_refused(path, ends, store, first):
    with pytest.raises(ValueError, match="no log of this store from record"):
        next(logs.read(path, store, first, ends[-1]))


def test_a_record_of_impossible_length_is_not_read(path, ends):
    """Its own check is right: a length costs no memory before the file is known to have it."""
    frame = struct.pack("<QII", ends[-1].number, logs.MOST_BYTES + 1, ends[-1].check)
    path.write_bytes(path.read_bytes() + frame + struct.pack("<II", zlib.crc32(frame), 0) + bytes(64))
    assert contents(path, ends[-1], beyond=True) == RECORDS
    sizes = []

    class Reads(io.BytesIO):
        def read(self, size):
            sizes.append(size)
            return super().read(size)

    file = Reads(path.read_bytes()[ends[-1].size :])
    assert logs._record(file, ends[-1]) is None
    assert len(sizes) == 1


def test_a_record_that_can_not_be_written_is_removed(path, ends, monkeypatch):
    log = Log(path, ends[-1])
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
    log.cut_to(ends[-1])
    assert contents(path, log.end, beyond=True) == RECORDS
    log.append(b"after")
    log.close()
    assert contents(path, log.end) == [*RECORDS, b"after"]


def test_counts_are_written_in_turn_and_one_of_them_may_be_damaged(tmp_path, caplog):
    path = tmp_path / "count.bin"
    places = [(3, End(number, 100 * number, number)) for number in range(5, 9)]
    counting.create(path, STORE, *places[0])
    count = Count(path, STORE)
    for first, end in places[1:]:
        count.write(first, end)
        again = Count(path, STORE)
        assert (again.first, again.end, again.is_whole) == (first, end, True)
    whole = path.read_bytes()
    ahead, behind = (0, 4096) if whole[:4096] > whole[4096:] else (4096, 0)
    for place, expected in ((ahead, places[-2]), (behind, places[-1])):
        for byte in range(52):
            damaged = bytearray(whole)
            damaged[place + byte] ^= 1 << byte % 8
            path.write_bytes(damaged)
            count = Count(path, STORE)
            assert ((count.first, count.end), count.is_whole) == (expected, False)
        assert "one of its two places is damaged" in caplog.text
        count.write(9, End(9, 0, 0))  # in place of the damaged one
        assert Count(path, STORE).is_whole


def test_a_count_that_is_missing_damaged_or_of_another_store_is_refused(tmp_path):
    path = tmp_path / "count.bin"
    with pytest.raises(ValueError, match="there is no file"):
        Count(path, STORE)
    counting.create(path, STORE, 0, End(0, HEADER, 1))
    with pytest.raises(ValueError, match="not of this store"):
        Count(path, bytes(16))
    for text in (b"", bytes(8192), path.read_bytes()[:40]):
        path.write_bytes(text)
        with pytest.raises(ValueError, match="is damaged"):
            Count(path, STORE)
