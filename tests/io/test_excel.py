"""Sheets of Excel files as tables, and files that only look like them."""

import builtins
import io
import re
import zipfile
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tsforecast.data import Columns, read_task
from tsforecast.data.tables.formats import check_form, names_in

openpyxl = pytest.importorskip("openpyxl")


def table():
    days = pd.date_range("2024-01-01", periods=30)
    parts = [pd.DataFrame({"shop": shop, "day": days, "sales": np.arange(30.0) + k}) for k, shop in enumerate("ab")]
    return pd.concat(parts, ignore_index=True)


def workbook(path, rows, others=()):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name)
    book.save(path)
    return path


def cells(frame):
    return [list(frame.columns), *frame.astype(object).to_numpy().tolist()]


@pytest.mark.parametrize("above", [[], [["Sales of all shops"], []]])
def test_a_sheet_is_read_as_the_same_table_in_a_frame(tmp_path, caplog, above):
    caplog.set_level("INFO")
    path = workbook(tmp_path / "Sales.XLSX", [*above, *cells(table())], ["notes"])
    found, expected = (read_task(source, None, 3, 1) for source in (path, table()))
    assert found.freq == expected.freq == "D"
    for one, other in zip(found.entries, expected.entries, strict=True):
        assert (one["item_id"], one["start"]) == (other["item_id"], other["start"])
        np.testing.assert_array_equal(one["target"], other["target"])
    assert "the sheet 'Sheet' is read; not read: 'notes'" in caplog.text
    assert ("row 3 is taken as the header" in caplog.text) == bool(above)


def test_dates_across_the_top_and_gaps(tmp_path):
    days = list(pd.date_range("2024-01-01", periods=12).to_pydatetime())
    values = [float(k) for k in range(11)]
    task = read_task(workbook(tmp_path / "wide.xlsx", [["shop", *days], ["a", *values, None]]), None, 2, 1)
    assert str(task.entries[0]["start"]) == "2024-01-01"
    np.testing.assert_array_equal(task.entries[0]["target"], [*values, np.nan])


def test_a_faulty_cell_is_named_by_its_row_in_the_sheet(tmp_path):
    rows = cells(table())
    rows[7][2] = "twelve"
    with pytest.raises(ValueError, match=r"sales.xlsx, line 9, column 'sales': expected a number, got 'twelve'"):
        read_task(workbook(tmp_path / "sales.xlsx", [["Title"], *rows]))


def test_a_command_checks_it_by_its_first_rows(tmp_path):
    path = workbook(tmp_path / "sales.xlsx", cells(table().rename(columns={"sales": "price"}).assign(cost=1.0)))
    check_form(path, Columns(target="price"))
    assert names_in(path) == ["shop", "day", "price", "cost"]  # as of a file of `predict --known`
    with pytest.raises(ValueError, match="there is no column 'sold'"):
        check_form(path, Columns(target="sold"))


def test_the_library_is_asked_for(tmp_path, monkeypatch):
    path = workbook(tmp_path / "sales.xlsx", cells(table()))
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "openpyxl":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'tsforecast\[excel\]'"):
        read_task(path)


SHEET = "xl/worksheets/sheet1.xml"


def changed(tmp_path, change, name=SHEET):
    """A workbook with the text of a part changed."""
    path, good = tmp_path / "sales.xlsx", workbook(tmp_path / "good.xlsx", cells(table()))
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for part in old.namelist():
            text = old.read(part)
            new.writestr(part, change(text) if part == name else text)
    return path


def laughs(text):
    entities = ['<!ENTITY a "ha">', *(f'<!ENTITY {b} "{10 * f"&{a};"}">' for a, b in pairwise("abcdefghij"))]
    doctype = f"<!DOCTYPE lolz [{''.join(entities)}]>"
    return doctype.encode() + re.sub(rb"<v>\d+</v>", b"<v>&j;</v>", text)


HOSTILE = {
    "zeros": (lambda text: text + bytes(300 << 20), "unpacks to more than 256 MiB"),
    "cells in one row": (lambda text: text.replace(b"<sheetData>", b"<sheetData><row>" + b"<c/>" * 8_000_001), "cells"),
    "a row far below": (lambda text: text.replace(b'<row r="9"', b'<row r="999999999999"'), "larger than 1048576 rows"),
    "a claimed size": (lambda text: re.sub(rb'ref="[^"]*"', b'ref="A1:XFD1048576"', text), None),
    "rows far to the right": (
        lambda text: text.replace(b"</sheetData>", b'<row><c r="ZZZ70"><v>1</v></c></row>' * 2000 + b"</sheetData>"),
        "larger than",
    ),
    "entities within entities": (laughs, "not readable as Excel"),
    "no XML": (lambda text: b"\0" * 100, "not readable as Excel"),
    "half": (lambda text: text[: len(text) // 2], "not readable as Excel"),
    "no rows": (lambda text: re.sub(rb"<sheetData>.*</sheetData>", b"<sheetData/>", text), "has no table"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_sheets(tmp_path, kind):
    change, message = HOSTILE[kind]
    path = changed(tmp_path, change)
    if message is None:
        assert len(read_task(path, "D", 2, 1).entries) == 2
        return
    with pytest.raises(ValueError, match=message) as caught:
        read_task(path, "D", 2, 1)
    said = str(caught.value)
    assert str(path) in said
    assert len(said) < 1000
    assert "\n" not in said


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\xd0\xcf\x11\xe0" + bytes(600), b"date,target\n2024-01-01,1\n"]
)
def test_files_that_are_no_workbooks(tmp_path, content):
    (tmp_path / "sales.xlsx").write_bytes(content)
    with pytest.raises(ValueError, match=r"sales.xlsx: not readable as Excel"):
        read_task(tmp_path / "sales.xlsx")


def test_an_archive_without_a_workbook(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("sales.csv", "date,target\n2024-01-01,1\n")
    (tmp_path / "sales.xlsx").write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match=r"sales.xlsx: not readable as Excel"):
        read_task(tmp_path / "sales.xlsx")
