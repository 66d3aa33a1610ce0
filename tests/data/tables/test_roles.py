"""Columns that are found without being told, wide tables, and data frames."""

import json
import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.sources import read_task
from tsforecast.data.tables.contents import all_numbers, looks_like_dates, looks_like_numbers
from tsforecast.data.tables.roles import Columns
from tsforecast.wording import command_line_wording


def long_frame(item, timestamp, target, count=30, freq="D"):
    stamps = pd.date_range("2020-01-01", periods=count, freq=freq)
    parts = [pd.DataFrame({item: name, timestamp: stamps, target: np.arange(count) + 1.0}) for name in ("a", "b")]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("item", "timestamp", "target"),
    [
        ("unique_id", "ds", "y"),
        ("Store", "Date", "Sales"),
        ("sku", "DATE", "qty"),
        ("Item", "Month", "Quantity"),
        ("Item ID", "Date Time", "Unit Sales"),
        ("STORE_NBR", "week", "demand"),
        ("product-id", "Day", "Value"),
        ("SeriesId", "year", "Units_Sold"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", "frame"])
def test_usual_names_are_understood(tmp_path, caplog, item, timestamp, target, suffix):
    source = long_frame(item, timestamp, target).assign(junk="x", other=2.0)
    if suffix == ".csv":
        source.to_csv(tmp_path / "mine.csv", index=False)
        source = tmp_path / "mine.csv"
    elif suffix == ".parquet":
        source.to_parquet(tmp_path / "mine.parquet")
        source = tmp_path / "mine.parquet"
    with caplog.at_level(logging.INFO):
        task = read_task(source, windows=0)
    assert [entry["item_id"] for entry in task.entries] == ["a", "b"]
    np.testing.assert_array_equal(task.entries[1]["target"], np.arange(30) + 1)
    said = f"long table: item {item!r}, time {timestamp!r}, target {target!r}; columns not used: 'junk', 'other'"
    assert said in caplog.text


@pytest.mark.parametrize(
    ("columns", "cells"),
    [
        ("Year,Passengers", [f"{year}" for year in range(1990, 2010)]),
        ("Month,Passengers", [f"{year}-{month:02d}" for year in (2001, 2002) for month in range(1, 13)]),
        ("when,Passengers", [f"2001-01-{day:02d}" for day in range(1, 29)]),
        ("month,fecha,Passengers", [f"1,2001-01-{day:02d}" for day in range(1, 29)]),
    ],
)
def test_time_stamps_by_content(tmp_path, columns, cells):
    rows = "".join(f"{cell},{k}\n" for k, cell in enumerate(cells))
    (tmp_path / "mine.csv").write_text(f"{columns}\n{rows}")
    task = read_task(tmp_path / "mine.csv", windows=0, columns=Columns(target="passengers"))
    assert len(task.entries[0]["target"]) == len(cells)


def test_names_that_are_given_need_no_case(tmp_path):
    frame = long_frame("Shop", "When", "Amount Sold").assign(Price=1.5)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    columns = Columns(item="SHOP", timestamp="when", target="amount_sold", covariates=["price"])
    task = read_task(tmp_path / "mine.csv", columns=columns, windows=0)
    assert len(task.entries) == 2
    assert task.entries[0]["feat_dynamic_real"].shape == (1, 30)
    with pytest.raises(ValueError, match=r"there is no column 'amout'; did you mean 'Amount Sold'\? The columns are"):
        read_task(tmp_path / "mine.csv", columns=Columns(target="amout"))


def test_several_columns_name_a_series(tmp_path, caplog):
    frame = pd.concat([long_frame("sku", "date", "sales").assign(Branch=store) for store in (1, 2)])
    frame.to_csv(tmp_path / "mine.csv", index=False)
    with command_line_wording(), pytest.raises(ValueError, match=r"tells the series apart, name it by --item sku NAME"):
        read_task(tmp_path / "mine.csv")
    names = ["1/a", "1/b", "2/a", "2/b"]
    task = read_task(tmp_path / "mine.csv", columns=Columns(item=["branch", "sku"]), windows=0)
    assert [entry["item_id"] for entry in task.entries] == names
    for source in (
        frame.rename(columns={"Branch": "Store"})[["Store", "sku", "date", "sales"]],
        tmp_path / "shops.csv",
    ):
        if isinstance(source, pd.DataFrame):
            source.to_csv(tmp_path / "shops.csv", index=False)
        with caplog.at_level(logging.INFO):
            task = read_task(source, windows=0)
        assert [entry["item_id"] for entry in task.entries] == names
        assert "long table: item 'Store' and 'sku', time 'date', target 'sales'" in caplog.text


def test_remedies_are_what_the_reader_types(tmp_path):
    path = tmp_path / "mine.csv"
    for text, keyword, dashed in [
        ("when,y\nsoon,1\n", "columns=Columns(timestamp='NAME')", "--timestamp NAME"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", "freq='D'", "--freq D"),
        ("date;y\n2024-01-01;1,5\n2024-01-02;1.5\n2024-01-03;1\n", "columns=Columns(decimal=',')", "--decimal ,"),
        ("date,y\n01/02/2024,1\n", "timestamp_format='%d/%m/%Y'", "--timestamp_format %d/%m/%Y"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match=r"mine.csv") as caught:
            read_task(path)
        assert keyword in str(caught.value)
        with command_line_wording(), pytest.raises(ValueError, match=r"mine.csv") as caught:
            read_task(path)
        assert dashed in str(caught.value)
        assert "=" not in str(caught.value)


def wide_frame():
    frame = pd.DataFrame({"Date": pd.date_range("2024-01-01", periods=30, freq="D")})
    return frame.assign(north=np.arange(30.0), south=np.where(np.arange(30) < 5, np.nan, 100.0))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", "frame"])
def test_wide_tables(tmp_path, suffix):
    source = wide_frame().sample(frac=1, random_state=0)
    if suffix == ".csv":
        source.to_csv(tmp_path / "mine.csv", index=False)
        source = tmp_path / "mine.csv"
    elif suffix == ".parquet":
        source.to_parquet(tmp_path / "mine.parquet")
        source = tmp_path / "mine.parquet"
    with pytest.raises(ValueError, match=r"each of the 2 columns 'north', 'south' is a series.*Columns\(wide=True\)"):
        read_task(source)
    with command_line_wording(), pytest.raises(ValueError, match=r"give --wide; if one .* by --target NAME"):
        read_task(source)
    task = read_task(source, columns=Columns(wide=True), windows=0)
    assert [entry["item_id"] for entry in task.entries] == ["north", "south"]
    np.testing.assert_array_equal(task.entries[0]["target"], np.arange(30))
    assert task.entries[1]["start"] == pd.Period("2024-01-06", freq="D")  # with its first value
    np.testing.assert_array_equal(task.entries[1]["target"], np.full(25, 100))
    only = read_task(source, columns=Columns(wide=True, target="SOUTH"), windows=0)
    assert [entry["item_id"] for entry in only.entries] == ["south"]


def test_faults_of_wide_tables(tmp_path):
    path = tmp_path / "mine.csv"
    wide_frame().astype({"south": object}).assign(south="x").to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"mine.csv, line 2, column 'south': expected a number, got 'x'"):
        read_task(path, columns=Columns(wide=True))
    with pytest.raises(ValueError, match=r"item does not go with wide"):
        read_task(path, columns=Columns(wide=True, item="north"))
    path.write_text("date,a,a\n2024-01-01,1,2\n")
    with pytest.raises(ValueError, match=r"two columns are called 'a'"):
        read_task(path, columns=Columns(wide=True))
    wide_frame().assign(south=np.nan, north=np.nan).to_csv(path, index=False)
    with pytest.raises(ValueError, match="line 31: 2 of 2 series can not be used: 'north', which ends here"):
        read_task(path, columns=Columns(wide=True))


def test_a_frame_stays_as_it_is():
    frame = long_frame("unique_id", "ds", "y").set_index(["unique_id", "ds"])
    kept = frame.copy()
    task = read_task(frame, windows=0)
    assert [entry["item_id"] for entry in task.entries] == ["a", "b"]
    pd.testing.assert_frame_equal(frame, kept)
    series = pd.DataFrame({"load": np.arange(40.0)}, index=pd.date_range("2024-01-01", periods=40, freq="h"))
    task = read_task(series, windows=0)
    assert (task.freq, len(task.entries), len(task.entries[0]["target"])) == ("h", 1, 40)
    assert read_task(series.to_period("h"), windows=0).entries[0]["start"] == task.entries[0]["start"]


def test_cells_of_a_frame():
    frame = long_frame("unique_id", "ds", "y")
    with pytest.raises(ValueError, match=r"DataFrame, row 4, column 'y': expected a number, got 'x'"):
        read_task(frame.astype({"y": object}).assign(y=lambda x: x["y"].where(x.index != 4, "x")))
    nullable = frame.assign(
        y=pd.array([None, *range(59)], dtype="Int64"), unique_id=frame["unique_id"].astype("category")
    )
    assert np.isnan(read_task(nullable, windows=0).entries[0]["target"][0])
    with pytest.raises(ValueError, match=r"row 0, column 'y': expected a number, got Timestamp"):
        read_task(frame.assign(y=frame["ds"]))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,000", "1,5"], [1, 1.5]),
        (["0,125", "1"], [0.125, 1]),
        (["96.000,50", "1.234", "7"], [96000.5, 1234, 7]),
        (["1,234,567", "1,234"], [1234567, 1234]),
        (["1,234.5", "9"], [1234.5, 9]),
        (["1,234", "9.5"], [1234, 9.5]),
        (["1 234,5", "7\u202f000"], [1234.5, 7000]),
        (["?", "-", "n.a.", "2"], [np.nan, np.nan, np.nan, 2]),
    ],
)
@pytest.mark.parametrize("late", [0, 150])  # more rows than columns are recognised by
def test_signs_that_can_not_be_meant_otherwise(tmp_path, cells, values, late):
    cells = [*["5"] * late, *cells]
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=len(cells)), "y": cells})
    frame.to_csv(tmp_path / "mine.csv", sep=";", index=False)
    for source in (tmp_path / "mine.csv", frame):
        (entry,) = read_task(source, freq="D", windows=0).entries
        np.testing.assert_array_equal(entry["target"], [*[5] * late, *values])


def test_a_comma_between_cells_is_no_decimal_sign(tmp_path):
    """In a file that is delimited by it; elsewhere 1,000 may be 1."""
    rows = [("2024-01-01", "1,000"), ("2024-01-02", "12,500")]
    (tmp_path / "mine.csv").write_text("date,y\n" + "".join(f'{date},"{cell}"\n' for date, cell in rows))
    np.testing.assert_array_equal(read_task(tmp_path / "mine.csv", "D", windows=0).entries[0]["target"], [1000, 12500])
    (tmp_path / "mine.csv").write_text("date;y\n" + "".join(f"{date};{cell}\n" for date, cell in rows))
    with (
        command_line_wording(),
        pytest.raises(ValueError, match=r"'1,000' \(2 cells of .*\); write 1000 if .*thousands.*, give --decimal ,"),
    ):
        read_task(tmp_path / "mine.csv", "D")
    (entry,) = read_task(tmp_path / "mine.csv", "D", windows=0, columns=Columns(decimal=",")).entries
    np.testing.assert_array_equal(entry["target"], [1, 12.5])


def test_decimal_comma_beside_a_fault(tmp_path):
    rows = "".join(f"2024-01-{day:02d};{day},5\n" for day in range(1, 31))
    path = tmp_path / "mine.csv"
    path.write_text("date;y\n" + rows + "2024-01-31;x\n")
    with pytest.raises(ValueError, match=r"line 32, column 'y': expected a number, got 'x'"):
        read_task(path, columns=Columns(decimal=","))
    path.write_text("date;y\n" + rows + "2024-01-31;1.5\n")
    with pytest.raises(
        ValueError, match=r"'1,5' \(30 cells of this column are none\); if its comma is the decimal sign"
    ):
        read_task(path)


@pytest.mark.parametrize("role", ["covariates", "static_reals"])
def test_no_remedy_that_is_refused_next(tmp_path, role):
    path = tmp_path / "mine.csv"
    columns = Columns(**{role: ["price"]})
    for cell in ("none", "abc"):
        path.write_text(f"date,y,price\n2024-01-01,1,{cell}\n")
        with pytest.raises(ValueError, match=rf"line 2, column 'price': expected a number, got '{cell}'") as caught:
            read_task(path, freq="D", columns=columns)
        assert "empty" not in str(caught.value)
    path.write_text("date,y,price\n2024-01-01,1,\n")
    with pytest.raises(
        ValueError, match=r"line 2, column 'price': the cell is empty, but .* needs a number in every row"
    ):
        read_task(path, freq="D", columns=columns)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_one_rule_for_large_numbers(suffix, tmp_path):
    """Targets of any finite size, features of float32, in every kind of file."""
    path = tmp_path / f"mine.{suffix}"

    def read_rows(y, price):
        rows = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=len(y)), "y": y, "price": price})
        if suffix == "json":
            line = {"start": "2024-01-01", "target": y, "feat_dynamic_real": [price]}
            path.write_text(json.dumps(line) + "\n")
            return read_task(path, "D", 1, 0)
        rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path)
        return read_task(path, "D", 1, 0, columns=Columns(covariates=["price"]))

    (entry,) = read_rows([1.0, 1e300, -1e300], [1.0, 3e38, 1.0]).entries
    assert entry["target"].tolist() == [1.0, 1e300, -1e300]
    place = "line 1, field feat_dynamic_real, step 1" if suffix == "json" else r"(line 3|row 2), column 'price'"
    with pytest.raises(ValueError, match=place + r": the value is 1e\+300, beyond the largest, 3.4e38; correct it"):
        read_rows([1.0, 1.0, 1.0], [1.0, 1e300, 1.0])
    if suffix != "json":  # which has no infinity
        with pytest.raises(ValueError, match=r"(line 3|row 2), column 'y': the value is infinite; correct it, or"):
            read_rows([1.0, np.inf, 1.0], [1.0, 1.0, 1.0])


GERMAN = ["816", "14.134", "980", "3.062"]


@pytest.mark.parametrize(
    ("cells", "delimiter", "asks"),
    [
        (GERMAN, ";", True),
        (GERMAN, "\t", True),
        (GERMAN, ",", False),
        (["14.134", "16.126"], ";", True),
        (["14.134", "16.126"], "\t", False),  # numbers of three decimals, which all have a point
        ([*GERMAN, "1.5"], ";", False),
        ([*GERMAN, "0.500"], ";", False),
        ([*GERMAN, "1234"], ";", False),
    ],
)
@pytest.mark.parametrize("late", [0, 150])  # more rows than columns are recognised by
def test_a_point_that_may_separate_thousands_is_asked_for(tmp_path, cells, delimiter, asks, late):
    cells, path = [*["5"] * late * (len(cells) > 2), *cells], tmp_path / "mine.csv"
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=len(cells)), "y": cells})
    frame.to_csv(path, sep=delimiter, index=False)
    read = lambda source, decimal: read_task(source, "D", windows=0, columns=Columns(decimal=decimal)).entries[0]  # noqa: E731
    as_decimals = [float(cell) for cell in cells]
    if asks:
        with (
            command_line_wording(),
            pytest.raises(ValueError, match=r"'14.134' the point may .*--decimal , .*--decimal \."),
        ):
            read(path, None)
    else:
        np.testing.assert_array_equal(read(path, None)["target"], as_decimals)
    np.testing.assert_array_equal(read(path, ".")["target"], as_decimals)
    if asks:
        for source in (path, frame):
            np.testing.assert_array_equal(read(source, ",")["target"], [int(cell.replace(".", "")) for cell in cells])


def test_text_of_a_frame_is_asked_for_likewise():
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=4), "y": GERMAN})
    with pytest.raises(ValueError, match=r"DataFrame, column 'y': in '14.134' the point may"):
        read_task(frame, "D", windows=0)


def test_series_of_several_columns_have_a_name_each(tmp_path):
    pairs = [("north/a", "1"), ("north", "a/1"), ("north\\", "a"), ("north", ""), ("", "north"), ("north\\/a", "1")]
    rows = [
        f"{area},{shop},2024-01-{day:02d},{number}" for number, (area, shop) in enumerate(pairs) for day in (1, 2, 3)
    ]
    (tmp_path / "mine.csv").write_text("area,shop,date,sold\n" + "\n".join(rows) + "\n")
    entries = read_task(tmp_path / "mine.csv", "D", windows=0, columns=Columns(item=["area", "shop"])).entries
    names = ["north\\/a/1", "north/a\\/1", "north\\\\/a", "north", "/north", "north\\\\\\/a/1"]
    assert {entry["item_id"]: entry["target"].tolist() for entry in entries} == {
        name: [number] * 3 for number, name in enumerate(names)
    }


def test_of_very_many_columns_the_first_are_looked_at(tmp_path, caplog, monkeypatch):
    """Each look takes a while; the log says how to name others."""
    looked = []
    monkeypatch.setattr("tsforecast.data.tables.recognition.looks_like_names", lambda cells: looked.append(1) and False)
    columns = {"date": pd.date_range("2024-01-01", periods=5).astype(str), "y": np.arange(5.0)}
    frame = pd.DataFrame(columns | {f"word{k}b": "x" for k in range(1500)})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    with caplog.at_level("INFO"), command_line_wording():
        (entry,) = read_task(tmp_path / "mine.csv", "D", windows=0).entries
    assert entry["target"].tolist() == [0, 1, 2, 3, 4]
    assert len(looked) == 1000
    assert "of 1500 columns the first 1000 are looked at for names of series; --item NAME names others" in caplog.text


def test_dates_are_looked_for_in_the_first_of_very_many_columns(tmp_path, monkeypatch):
    looked = []
    look = lambda cells, **_: looked.append(1) and False  # noqa: E731
    monkeypatch.setattr("tsforecast.data.tables.recognition.looks_like_dates", look)
    (tmp_path / "mine.csv").write_text(",".join(f"word{k}b" for k in range(1500)) + "\n" + ",".join(["x"] * 1500))
    with pytest.raises(ValueError, match="no column looks like time stamps; name it by"):
        read_task(tmp_path / "mine.csv")
    assert len(looked) == 1000


def test_series_of_a_wide_table_are_not_looked_at_one_by_one(tmp_path, monkeypatch):
    """Twenty thousand columns cost a look at all their cells together, and a file of commas is read once."""
    looked, read, real = [], [], pd.read_csv
    monkeypatch.setattr(
        "tsforecast.data.tables.contents.looks_like_numbers", lambda cells: looked.append(cells.name) or True
    )
    monkeypatch.setattr(pd, "read_csv", lambda *args, **options: read.append(options) or real(*args, **options))
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=9).astype(str)})
    frame = frame.assign(**{f"s{k}": [1.5, "", "NA", *["2.25"] * 6] for k in range(50)})
    frame["s50"] = ["a"] + ["1"] * 8
    frame.to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(ValueError, match="expected a number, got 'a'"):
        read_task(tmp_path / "mine.csv", windows=0)
    assert looked == ["s50"]
    assert len([options for options in read if "nrows" not in options or options["nrows"] is None]) <= 2


@pytest.mark.parametrize("cells", [["1", "2", ""], ["1.500,2", "NA"], ["x", "1"], [1.0, np.nan], [None, None]])
def test_all_numbers_agrees_with_a_look_at_each_column(cells):
    frame = pd.DataFrame({"a": cells, "b": ["1"] * len(cells)})
    assert all_numbers(frame) == looks_like_numbers(frame["a"]) == (cells != ["x", "1"])


@pytest.mark.parametrize(
    ("text", "found"), [(["Jan", "May"], False), (["may 2020", "jun 2020"], True), (["ax"], False)]
)
def test_no_date_is_without_a_digit(text, found):
    assert looks_like_dates(pd.Series(text)) == found


@pytest.mark.parametrize(
    ("role", "cells", "remedy"),
    [
        ("covariates", "abac", r"such as columns=Columns\(covariates=\['kind=[bc]'\]\); .*static_categories=\['kind'"),
        ("static_reals", "aaaa", r"none\); columns=Columns\(static_categories=\['kind'\]\) takes a category of each"),
        ("covariates", "a123", "expected a number, got 'a'; correct it"),
        ("past_covariates", "abac", "none\\); correct it"),
    ],
)
def test_categories_that_are_given_for_numbers_are_told_their_roles(role, cells, remedy):
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=4), "y": 1.0, "kind": [*cells]})
    with pytest.raises(ValueError, match=remedy):
        read_task(frame, "D", 1, 1, columns=Columns(target="y", **{role: ["kind"]}))
