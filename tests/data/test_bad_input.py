"""One test for each thing that users' files have been seen to contain; messages name file, line and remedy."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns

HEADER = "item,timestamp,target\n"


def rows(count=30, item="a", first=1):
    stamps = pd.date_range("2024-01-01", periods=count, freq="D")
    return "".join(f"{item},{stamp:%Y-%m-%d},{k + first}\n" for k, stamp in enumerate(stamps))


def refused(tmp_path, text, message, error=ValueError, **options):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(error, match=message) as caught:
        read_task(path, **options)
    assert "mine.csv" in str(caught.value)


def test_missing_file(tmp_path):
    for name in ("nowhere.csv", "nowhere.parquet", "nowhere.json"):
        with pytest.raises(FileNotFoundError, match=f"there is no .*{name}"):
            read_task(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (HEADER, "there are no rows"),
        (HEADER + "\n,,\n", "no rows"),
    ],
)
def test_empty_file(tmp_path, text, message):
    refused(tmp_path, text, message)


@pytest.mark.parametrize("content", [b"PAR1 no parquet", b""])
def test_damaged_parquet(tmp_path, content):
    (tmp_path / "mine.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"mine.parquet: not readable as Parquet"):
        read_task(tmp_path / "mine.parquet")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0", b"a\0b\n1\0002\n", b"\xff\xfe\x81"])
def test_not_text(tmp_path, content):
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"mine.csv: not readable"):
        read_task(tmp_path / "mine.csv")


def test_ragged_rows(tmp_path):
    refused(tmp_path, HEADER + rows(5) + "a,2024-01-06,6,7\n", "line 7.*same number of cells")
    refused(tmp_path, HEADER + rows(5).replace("\n", ",7\n"), "more cells than the header")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(target="sales"), r"no column 'sales'; the columns are 'item', 'timestamp', 'target'"),
        (Columns(item="item", covariates=["item"]), "a column has two roles, 'item'"),
    ],
)
def test_missing_columns(tmp_path, columns, message):
    refused(tmp_path, HEADER + rows(), message, columns=columns)


def test_columns_that_can_not_be_guessed(tmp_path):
    refused(tmp_path, "when,target\nnow,1\n", r"no column looks like time stamps; name it by .*\(timestamp='NAME'\)")
    refused(
        tmp_path, "date,id,low,high\n2024-01-01,a,1,2\n", r"no column looks like a target; name it by .*\(target='NAME'"
    )


def test_duplicate_time_stamps(tmp_path):
    text = HEADER + rows() + "a,2024-01-05,99\n"
    refused(tmp_path, text, r"line 32.*2024-01-05.* of item 'a' occurs twice, first in .*line 6; keep one row or add")
    text = "timestamp,target\n" + "".join(row.split(",", 1)[1] + "\n" for row in (rows() + rows(item="b")).split())
    refused(tmp_path, text, r"another column tells the series apart, name it by columns=Columns\(item='NAME'\)")


def test_irregular_time_stamps(tmp_path):
    stamps = ["00:00", "01:00", "02:00", "03:10", "04:00"]
    text = "timestamp,target\n" + "".join(f"2024-01-01 {stamp},1\n" for stamp in stamps)
    refused(
        tmp_path, text, r"line 5, column 'timestamp': 2024-01-01 03:10:00 is no whole number of steps .*'h'.*resample"
    )
    generator = np.random.default_rng(0)
    stamps = np.sort(generator.uniform(0, 1e6, size=20))
    text = "timestamp,target\n" + "".join(f"{pd.Timestamp('2024-01-01') + pd.Timedelta(s, 's')},1\n" for s in stamps)
    refused(tmp_path, text, "no whole number of steps|spread over")


@pytest.mark.parametrize(
    ("freq", "message"),
    [
        ("fortnightly", r"frequency 'fortnightly' is not known; expected e.g. '15min'"),
        ("h", r"all rows are 24 steps of frequency 'h' apart"),
        (
            "M",
            r"line 3.* 2024-01-02 .*same step of frequency 'M' as 2024-01-01 .*aggregate the rows",
        ),
        ("B", r"line 7, column 'timestamp': 2024-01-06 .*is a Saturday, no business day; give freq='D'"),
        ("7h", "no whole number of steps of frequency '7h'"),
        ("2D", "line 3.*no whole number of steps of frequency '2D'"),
    ],
)
def test_wrong_or_unknown_frequency(tmp_path, freq, message):
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + rows())
    with pytest.raises(ValueError, match=message):
        read_task(path, freq=freq)


def test_far_too_fine_a_frequency(tmp_path):
    refused(
        tmp_path, "date,y\n2024-01-01,1\n2024-01-08,1\n2024-02-01 00:00:01,2\n", "spread over .* longer freq", freq="s"
    )


def test_frequency_of_too_few_rows(tmp_path):
    refused(tmp_path, HEADER + rows(2) + rows(2, item="b"), "no series has three time stamps; give it, e.g. freq='D'")


def test_series_of_different_frequencies(tmp_path):
    text = HEADER + rows(60) + "".join(f"b,2024-01-01 {hour:02d}:00,1\n" for hour in range(24))
    refused(tmp_path, text, r"line 63.*2024-01-01 01:00:00 is no whole number of steps of frequency 'D'")


@pytest.mark.parametrize(
    ("stamp", "message"),
    [
        ("", "the time stamp is empty"),
        ("soon", "'soon' is not a time stamp; write it as 2024-12-31"),
        ("2024-13-01", "'2024-13-01' is not a time stamp"),
        ("1704067200", r"'1704067200' is not a time stamp; write it as"),
        ("2024-02-01T00:00Z", r"differ in whether they have a time zone"),
    ],
)
def test_what_is_no_time_stamp(tmp_path, stamp, message):
    refused(tmp_path, HEADER + rows() + f"a,{stamp},5\n", rf"line 32, column 'timestamp': .*{message}")


def test_day_or_month(tmp_path):
    refused(
        tmp_path, "date,y\n01/02/2024,1\n02/02/2024,1\n03/02/2024,1\n", "'01/02/2024' day and month can not be told"
    )
    refused(
        tmp_path, "date,y\n2024-01-01,1\n", "line 2.*is not a time stamp", columns=Columns(timestamp_format="%d/%m/%Y")
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("year", [1066, 2500])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_time_stamps_out_of_range(tmp_path, unit, year, zone):
    """Counted in nanoseconds, as everything here, they would be others: 2500 is 1915."""
    stamps = np.array([f"2024-01-{day:02d}" for day in range(1, 10)] + [f"{year}-01-01"], f"datetime64[{unit}]")
    frame = pd.DataFrame({"timestamp": pd.Series(stamps).dt.tz_localize(zone), "target": np.arange(10.0)})
    frame.to_parquet(tmp_path / "mine.parquet")
    message = (
        rf"row 10, column 'timestamp': '{year}-01-01 .*' is out of the range of time stamps, the years 1678 to 2261"
    )
    with pytest.raises(ValueError, match=message):
        read_task(tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match=message.replace("row 10", "row 9")):
        read_task(frame)


def test_periods_out_of_range():
    frame = pd.DataFrame({"timestamp": pd.period_range("2495", periods=10, freq="Y"), "target": np.arange(10.0)})
    with pytest.raises(ValueError, match=r"row 0, column 'timestamp': '2495' is out of the range of time stamps"):
        read_task(frame)


@pytest.mark.parametrize("stamp", ["2500-01-01", "01/31/2500", "2500-01-01T00:00Z"])
def test_time_stamps_out_of_range_in_text(tmp_path, stamp):
    zone = "T00:00Z" if stamp.endswith("Z") else ""
    text = "timestamp,target\n" + "".join(f"2024-01-{day:02d}{zone},1\n" for day in range(1, 10)) + f"{stamp},1\n"
    refused(tmp_path, text, rf"line 11, column 'timestamp': '{stamp}' is out of the range of time stamps, the years")


@pytest.mark.parametrize("cell", ["abc", "12 kW", "1.2.3", "1,23,456"])
def test_text_in_a_column_of_numbers(tmp_path, cell):
    text = HEADER + rows() + f'a,2024-01-31,"{cell}"\n'
    refused(tmp_path, text, rf"line 32, column 'target': expected a number, got '{cell}'; .*")


@pytest.mark.parametrize("cell", ["inf", "-inf", "Infinity"])
def test_infinite_values(tmp_path, cell):
    refused(
        tmp_path, HEADER + rows() + f"a,2024-01-31,{cell}\n", "line 32, column 'target': the value is infinite; correct"
    )


def test_mixed_types_in_parquet(tmp_path):
    """Parquet itself keeps columns of one type; text columns may hold numbers."""
    stamps = pd.date_range("2024-01-01", periods=10, freq="D")
    frame = pd.DataFrame({"timestamp": stamps, "target": [str(k) for k in range(10)]})
    frame.to_parquet(tmp_path / "mine.parquet")
    np.testing.assert_array_equal(read_task(tmp_path / "mine.parquet").entries[0]["target"], np.arange(10))
    frame.loc[4, "target"] = "four"
    frame.to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match="row 5, column 'target': expected a number, got 'four'"):
        read_task(tmp_path / "mine.parquet")


def test_empty_item(tmp_path):
    refused(tmp_path, HEADER + rows(5) + ",2024-01-06,6\n", "line 7, column 'item': the item is empty")


def test_series_without_values(tmp_path, caplog):
    void, late = (
        "".join(f"{item},2024-01-{day:02d},{'' if day <= last else 5}\n" for day in range(1, 31))
        for item, last in (("b", 30), ("c", 20))
    )
    path, options = tmp_path / "mine.csv", {"prediction_length": 5, "windows": 2}
    path.write_text(HEADER + rows() + rows(item="d") + void + late)
    assert [entry["item_id"] for entry in read_task(path, **options).entries] == ["a", "d"]
    assert "1 series with no value are left out: 'b'" in caplog.text
    assert "1 series with no value before the 10 steps of the test windows are left out: 'c'" in caplog.text
    assert [entry["item_id"] for entry in read_task(path, windows=0).entries] == ["a", "d", "c"]
    told = "mine.csv, line 31: 1 of 1 series can not be used: 'b', which ends here, has no value; delete such series"
    refused(tmp_path, HEADER + void, told)


def test_series_without_values_beyond_the_end(tmp_path, caplog):
    void = "".join(f"b,2024-01-{day:02d},\n" for day in range(1, 21))
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + rows() + void)
    entries = read_task(path, beyond=True).entries
    assert [entry["item_id"] for entry in entries] == ["a", "b"]
    np.testing.assert_array_equal(entries[1]["target"], np.full(20, np.nan))
    assert "'b' is constant" not in caplog.text
    head = "item,timestamp,target,price\n"
    known = rows().replace("\n", ",1\n") + "".join(f"a,2024-02-0{day},,1\n" for day in range(1, 4))
    options = {"columns": Columns(covariates=["price"]), "beyond": True, "prediction_length": 3}
    path.write_text(head + known + void.replace("\n", ",1\n"))
    assert [entry["item_id"] for entry in read_task(path, **options).entries] == ["a"]
    assert "1 series with no value are left out: 'b'" in caplog.text


def test_series_too_short(tmp_path, caplog):
    options = {"prediction_length": 5, "windows": 2}
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + rows() + rows(10, item="b"))
    assert [entry["item_id"] for entry in read_task(path, **options).entries] == ["a"]
    assert "1 series with no more than the 10 steps of the test windows are left out: 'b'" in caplog.text
    path.write_text(HEADER + rows() + rows(11, item="b"))
    assert len(read_task(path, **options).train[1]["target"]) == 1
    told = (
        "line 41: 2 of 3 series can not be used: 'b', which ends here, has no more than the 10 steps of the test "
        "windows; give a shorter prediction_length or fewer windows, or delete such series"
    )
    refused(tmp_path, HEADER + rows() + rows(10, item="b") + rows(9, item="c"), told, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prediction_length": 0}, "prediction_length of at least 1, got 0"),
        ({"windows": -1}, "windows of at least 0, got -1"),
    ],
)
def test_lengths_out_of_range(tmp_path, options, message):
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + rows())
    with pytest.raises(ValueError, match=message):
        read_task(path, **options)


def test_faults_of_covariates(tmp_path):
    columns = Columns(covariates=["price"], static_reals=["size"])
    head = "timestamp,target,price,size\n"
    body = "".join(f"2024-01-{day:02d},{day},{day / 2},3\n" for day in range(1, 31))
    refused(
        tmp_path, head + body + "2024-01-31,31,,3\n", "line 32, column 'price': the cell is empty, but", columns=columns
    )
    refused(
        tmp_path, head + body + "2024-01-31,31,x,3\n", "line 32, column 'price': expected a number", columns=columns
    )
    refused(tmp_path, head + body + "2024-01-31,31,1,4\n", "line 32, column 'size': .*4.* differs", columns=columns)
    columns = Columns(covariates=["price"])
    options = {"columns": columns, "beyond": True, "prediction_length": 4}
    refused(
        tmp_path, head + body, "line 31: the covariates of series 'mine' end here, 4 steps of 'D' before", **options
    )


def test_faults_of_categories(tmp_path):
    columns = Columns(static_categories=["kind"])
    head, body = "timestamp,target,kind\n", "".join(f"2024-01-{day:02d},1,x\n" for day in range(1, 31))
    refused(tmp_path, head + body + "2024-01-31,1,y\n", "line 32, column 'kind': 'y' differs", columns=columns)
    refused(tmp_path, head + body + "2024-01-31,1,\n", "line 32, column 'kind': the category is empty", columns=columns)
