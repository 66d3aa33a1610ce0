"""Text files as spreadsheets and other programs write them."""

import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.sources import read_task

ROWS = [(f"2024-01-{day:02d}", str(day)) for day in range(1, 31)]


def text(delimiter=",", end="", header=("date", "Verkäufe"), decimals=""):
    lines = [delimiter.join(header), *(delimiter.join((date, value + decimals)) + end for date, value in ROWS)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "content",
    [
        text().encode("utf-8-sig"),
        text("\t").encode("utf-16"),
        text().encode("cp1252"),
        ("sep=;\n" + text(";")).encode(),
        ("\n\n" + text()).encode(),
        ("Sales of a month\nshop 3\n\n" + text()).encode(),
        ("Sales of a month\n" + text(";", decimals=",0")).encode(),
        text(end=",").encode(),
        text(end=",,", header=("date", "Verkäufe", "", "")).encode() + b",,,\n,,,\n",
        text(header=(" date ", " Verkäufe")).encode(),
        text(",  ").encode(),
        text().replace("\n", "\r\n").encode(),
    ],
)
def test_every_layout(tmp_path, caplog, content):
    (tmp_path / "mine.csv").write_bytes(content)
    with caplog.at_level(logging.INFO):
        (entry,) = read_task(tmp_path / "mine.csv", windows=0).entries
    np.testing.assert_array_equal(entry["target"], np.arange(1, 31))
    assert "one series: time 'date', target 'Verkäufe'\n" in caplog.text


def test_lines_are_counted_from_the_top_of_the_file(tmp_path):
    (tmp_path / "mine.csv").write_text("Sales\n\n" + text() + "soon,3\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine.csv, line 34, column 'date': 'soon' is not a time stamp"):
        read_task(tmp_path / "mine.csv")


def test_a_letter_far_down_that_is_not_utf8(tmp_path):
    frame = pd.DataFrame({"date": [date for date, _ in ROWS] * 2, "shop": ["Köln"] * 30 + ["Bonn"] * 30, "sales": 1})
    rows = frame.sort_values("shop").to_csv(index=False)
    (tmp_path / "mine.csv").write_bytes(rows.encode("cp1252"))
    assert [entry["item_id"] for entry in read_task(tmp_path / "mine.csv", windows=0).entries] == ["Bonn", "Köln"]
