"""How far long work is, where nobody sees a bar."""

import logging

import pytest

from tsforecast import progress


@pytest.mark.parametrize(("seconds", "lines"), [(4.0, [2, 5, 8]), (0.1, [])])
def test_lines_now_and_then_without_a_terminal(seconds, lines, monkeypatch, caplog):
    clock = iter(seconds * tick for tick in range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    caplog.set_level(logging.INFO, "tsforecast.progress")
    assert list(progress.follow("abcdefghij", "forecasts", 10, "series", lambda: "least 7")) == [*"abcdefghij"]
    said = [record.getMessage() for record in caplog.records]
    assert [int(line.split()[1]) for line in said] == lines
    if lines:  # the clock has moved by four seconds an item, and once before the first
        assert said[0] == "forecasts: 2 of 10 series, 48 s left; least 7"


def test_a_bar_on_a_terminal(monkeypatch, caplog, capsys):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    caplog.set_level(logging.INFO, "tsforecast.progress")
    assert list(progress.follow(range(3), "forecasts", 3, "series", lambda: "least 7")) == [0, 1, 2]
    shown = capsys.readouterr().err
    assert "forecasts" in shown
    assert "least 7" in shown
    assert not caplog.records


def test_a_list_that_grows_counts_what_has_joined(monkeypatch, caplog):
    clock = iter(12.0 * tick for tick in range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    caplog.set_level(logging.INFO, "tsforecast.progress")
    items = ["a", "b"]
    for item in progress.follow(items, "selection", 2, "candidates"):
        items += ["c"] if item == "b" else []
    assert caplog.messages == ["selection: 1 of 2 candidates, 24 s left", "selection: 2 of 3 candidates, 18 s left"]
