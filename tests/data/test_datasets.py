"""The scripts in `datasets/`, each on a small file in the form in which users find the raw data."""

import gzip
import importlib.util
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.catalog import SCRIPTS, load_task
from tsforecast.io.packed import unpack

FOLDER = Path(__file__).parents[2] / "datasets"
sys.path.append(str(FOLDER))  # as a script that is run has its folder there


def script(name):
    spec = importlib.util.spec_from_file_location(f"datasets_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def write_meters(path, days=60, customers=3, start="2013-12-30"):
    """LD2011_2014.txt: quoted times, decimal commas, semicolons; an hour's readings add up to its number."""
    times = pd.date_range(start, periods=96 * days, freq="15min") + pd.Timedelta("15min")
    hours = np.repeat(np.arange(24 * days), 4)
    weights = np.tile([0.1, 0.2, 0.3, 0.4], 24 * days)
    head = ";".join(['""', *(f'"MT_{k:03d}"' for k in range(1, customers + 1))])
    rows = [
        f'"{time:%Y-%m-%d %H:%M:%S}";'
        + ";".join(f"{k * hour * weight:.15g}".replace(".", ",") for k in range(customers))
        for time, hour, weight in zip(times, hours, weights, strict=True)
    ]
    path.write_text("\n".join([head, *rows]) + "\n")


def test_electricity(tmp_path, home):
    write_meters(tmp_path / "LD2011_2014.txt")
    script("electricity").main([str(tmp_path / "LD2011_2014.txt"), "--end", "2014-01-21"])
    task = load_task("electricity-full")
    assert (task.freq, task.prediction_length, task.windows) == ("h", 24, 7)
    assert [entry["item_id"] for entry in task.entries] == ["MT_001", "MT_002", "MT_003"]
    for k, entry in enumerate(task.entries):
        assert str(entry["start"]) == "2014-01-01 01:00"  # the end of the first hour
        np.testing.assert_allclose(entry["target"], k * np.arange(48, 48 + 480), rtol=1e-6)
        assert len(task.train[k]["target"]) == 480 - 168


def test_electricity_marks_hours_that_lack_a_reading(tmp_path):
    write_meters(tmp_path / "raw.txt", days=30)
    lines = (tmp_path / "raw.txt").read_text().splitlines()
    gone = [1 + 96 * 3 + 10, *range(1 + 96 * 4 + 20, 1 + 96 * 4 + 24)]  # one reading; a whole hour
    lines = [line for number, line in enumerate(lines) if number not in gone]
    (tmp_path / "raw.txt").write_text("\n".join(lines) + "\n")
    task = script("electricity").read_electricity(tmp_path / "raw.txt", "2013-12-30", "2014-01-20")
    expected = np.arange(21 * 24.0)
    expected[[24 * 3 + 2, 24 * 4 + 5]] = np.nan
    np.testing.assert_allclose(task.entries[1]["target"], expected)


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", '"";"MT_001"\n"2014-01-01 00:15:00";"x"\n', '"";"MT_001"\n"soon";1\n']
)
def test_electricity_refuses_other_files(tmp_path, home, content):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(SystemExit, match=r"error: .*x.txt: expected times and numbers"):
        script("electricity").main([str(tmp_path / "x.txt")])
    assert not home.exists()


@pytest.fixture
def sensors(tmp_path):
    """PEMS-SF: two lanes; lane k of day d reads d + hour / 100 + k / 1000, the days shuffled."""
    generator = np.random.default_rng(0)
    days = script("traffic").calendar()
    order = generator.permutation(len(days))
    folder = tmp_path / "pems"
    folder.mkdir()
    hours = np.repeat(np.arange(24), 6) / 100

    def text(day):
        return "[" + ";".join(" ".join(f"{value:.6g}" for value in day + hours + k / 1000) for k in range(2)) + "]\n"

    for name, part in (("train", order[:267]), ("test", order[267:])):
        (folder / f"PEMS_{name}").write_text("".join(map(text, part)))
        labels = " ".join(str(days[day].weekday() + 1) for day in part)
        (folder / f"PEMS_{name}labels").write_text(f"[{labels}]\n")
    (folder / "randperm").write_text("[" + " ".join(str(day + 1) for day in order) + "]\n")
    (folder / "stations_list").write_text("[400000 400001]\n")
    return folder


def test_traffic(sensors, home):
    script("traffic").main([str(sensors)])
    task = load_task("traffic-full")
    assert (task.freq, task.prediction_length, task.windows) == ("h", 24, 7)
    assert [entry["item_id"] for entry in task.entries] == ["400000", "400001"]
    days = script("traffic").calendar()
    assert len(days) == 440
    for k, entry in enumerate(task.entries):
        assert str(entry["start"]) == "2008-01-02 00:00"
        values = entry["target"].reshape(-1, 24)
        dates = pd.date_range("2008-01-02", "2009-03-30", freq="D")
        present = dates.isin(days)
        assert np.isnan(values[~present]).all()
        expected = np.arange(440)[:, None] + np.arange(24) / 100 + k / 1000
        np.testing.assert_allclose(values[present], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("randperm", "[1 2 3]", "permutation of 1 to 440"),
        ("stations_list", "[1 2 3]", "line 1: expected 3 lanes of 144 readings, got 2 of 144"),
        ("stations_list", "[a]", "whole numbers between brackets"),
        ("PEMS_test", "[0.1 x]\n", "PEMS_test, line 1: expected numbers in brackets"),
        ("PEMS_test", "", "expected 440 days .* got 267"),
        ("PEMS_testlabels", "[" + "1 " * 173 + "]", "days of the week"),
    ],
)
def test_traffic_refuses_other_files(sensors, home, file, content, message):
    (sensors / file).write_text(content)
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        script("traffic").main([str(sensors)])
    assert not home.exists()


def write_plant(folder, name, days=30, scale=1.0):
    times = pd.date_range("2006-01-01", periods=288 * days, freq="5min")
    power = scale * (np.arange(len(times)) % 12 + times.hour)
    table = pd.DataFrame({"LocalTime": times.strftime("%m/%d/%y %H:%M"), "Power(MW)": power})
    table.to_csv(folder / name, index=False)


def test_solar(tmp_path, home):
    write_plant(tmp_path, "Actual_30.45_-88.25_2006_UPV_70MW_5_Min.csv")
    write_plant(tmp_path, "Actual_31.00_-86.75_2006_DPV_12MW_5_Min.csv", scale=2.0)
    write_plant(tmp_path, "DA_30.45_-88.25_2006_UPV_70MW_60_Min.csv")
    script("solar").main([str(tmp_path)])
    task = load_task("solar-full")
    assert [entry["item_id"] for entry in task.entries] == ["30.45_-88.25_2006_UPV_70MW", "31.00_-86.75_2006_DPV_12MW"]
    for scale, entry in zip((1, 2), task.entries, strict=True):
        assert str(entry["start"]) == "2006-01-01 00:00"
        np.testing.assert_allclose(entry["target"], scale * (5.5 + np.arange(720) % 24))


def test_solar_refuses_other_files(tmp_path, home):
    with pytest.raises(SystemExit, match="no files Actual"):
        script("solar").main([str(tmp_path)])
    file = tmp_path / "Actual_1_5_Min.csv"
    file.write_text("time,MW\n")
    with pytest.raises(SystemExit, match="expected the columns LocalTime"):
        script("solar").main([str(tmp_path)])
    file.write_text("LocalTime,Power(MW)\n01/01/06 00:00,1\n2006-01-01,2\n")
    with pytest.raises(SystemExit, match="line 3: expected a time"):
        script("solar").main([str(tmp_path)])
    assert not home.exists()


def write_pages(path, pages=8, days=200):
    columns = pd.date_range("2015-07-01", periods=days, freq="D").strftime("%Y-%m-%d")
    views = np.arange(pages)[:, None] * 1000.0 + np.arange(days)
    views[[1, 4], 7] = np.nan
    table = pd.DataFrame(views, columns=columns)
    table.insert(0, "Page", [f"Page,_{k}_zh.wikipedia.org_all-access_spider" for k in range(pages)])
    table.to_csv(path, index=False)


def test_wiki(tmp_path, home):
    write_pages(tmp_path / "train_1.csv.gz")
    script("wiki").main([str(tmp_path / "train_1.csv.gz"), "--pages", "4"])
    task = load_task("wiki-full")
    assert (task.freq, task.prediction_length, task.windows) == ("D", 30, 5)
    for page, entry in zip((0, 2, 3, 5), task.entries, strict=True):
        assert entry["item_id"] == f"Page,_{page}_zh.wikipedia.org_all-access_spider"
        assert str(entry["start"]) == "2015-07-01"
        np.testing.assert_array_equal(entry["target"], 1000 * page + np.arange(200))
    with pytest.raises(SystemExit, match="only 6 pages have a value every day; give --pages 6 or fewer"):
        script("wiki").main([str(tmp_path / "train_1.csv.gz")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Site,2015-07-01\nx,1\n", "first column Page, got 'Site'"),
        ("Page,2015-07-01,2015-07-03\nx,1,2\n", "a column for each day"),
        ("Page,2015-07-01,2015-07-02\nx,1,y\n", "text in the column 2015-07-02"),
        ("", "No columns to parse"),
    ],
)
def test_wiki_refuses_other_files(tmp_path, home, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(SystemExit, match=message):
        script("wiki").main([str(tmp_path / "x.csv")])
    assert not home.exists()


def test_exchange(tmp_path, home):
    values = np.round(np.random.default_rng(0).uniform(0.5, 1.5, size=(300, 8)), 6)
    text = "\n".join(",".join(f"{value:.6f}" for value in row) for row in values)
    (tmp_path / "exchange_rate.txt.gz").write_bytes(gzip.compress(text.encode()))
    script("exchange").main([str(tmp_path / "exchange_rate.txt.gz")])
    task = load_task("exchange-full")
    assert (task.freq, task.prediction_length, task.windows) == ("B", 30, 5)
    assert [entry["item_id"] for entry in task.entries] == [entry["item_id"] for entry in load_task("exchange").entries]
    np.testing.assert_array_equal(np.stack([entry["target"] for entry in task.entries], axis=1), values)
    (tmp_path / "x.txt").write_text("1,2\n3,4\n")
    with pytest.raises(SystemExit, match="expected 8 columns, got 2"):
        script("exchange").main([str(tmp_path / "x.txt")])
    (tmp_path / "x.txt").write_text("1,b\n")
    with pytest.raises(SystemExit, match="expected eight numbers"):
        script("exchange").main([str(tmp_path / "x.txt")])


def test_gluonts_folder(tmp_path, home):
    for part, length in (("train", 40), ("test", 50)):
        (tmp_path / "raw" / part).mkdir(parents=True)
        row = f'{{"start": "2024-01-01", "target": {list(range(length))}}}\n'
        (tmp_path / "raw" / part / "data.json.gz").write_bytes(gzip.compress(row.encode()))
    arguments = [str(tmp_path / "raw"), "--name", "mine", "--freq", "H", "--prediction-length", "5"]
    script("gluonts_folder").main(arguments)
    task = load_task("mine")
    assert (task.name, task.freq, task.prediction_length, task.windows) == ("mine", "h", 5, 2)
    np.testing.assert_array_equal(task.entries[0]["target"], np.arange(50))


@pytest.mark.parametrize("name", [Path(file).stem for file in SCRIPTS.values()])
def test_missing_source_ends_the_script_with_a_message(name, tmp_path, home):
    with pytest.raises(SystemExit, match=r"error: .*nowhere"):
        script(name).main([str(tmp_path / "nowhere")])


@pytest.mark.parametrize("name", [*SCRIPTS.values(), "gluonts_folder.py", "bundle.py"])
def test_help(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as end:
        script(Path(name).stem).main(["--help"])
    assert end.value.code == 0
    assert f"python datasets/{name}" in capsys.readouterr().out


def test_scripts_run_as_programs(tmp_path):
    command = [sys.executable, str(FOLDER / "exchange.py"), str(tmp_path / "nowhere"), "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent, check=False)
    assert result.returncode == 1
    assert "error: there is no file" in result.stderr


# Start and frequency of a source, the steps before its bundled part, those of the part.
PARTS = {
    "taxi-blizzard": ("2015-12-06 00:00", "30min", 48, 8 * 7 * 48),
    "eia-2020": ("2019-12-15 00:00", "h", 24, 23 * 7 * 24),
}


def write_source(path, values, items, start, freq, item_id=None, filled=None):
    """A source of more series than are bundled, in reverse order; `filled` is the one value that was not measured."""
    names = item_id or [*(f"other{k}" for k in range(len(values) - len(items))), *reversed(items)]
    mask = np.zeros(values.shape, dtype=np.uint8)
    if filled is not None:
        mask[filled] = 1
    np.savez(path, values=values, item_id=names, start=start, freq=freq, imputed_packed=np.packbits(mask, axis=1))


def test_bundle(tmp_path, caplog):
    """The script behind the excerpts, on a folder of the same form."""
    generator = np.random.default_rng(0)
    module = script("bundle")
    raw, out = tmp_path / "raw", tmp_path / "out"
    (raw / "sub").mkdir(parents=True)
    divisors = np.array([[0.788], [1.406], [199.48]])
    arrays = {
        "electricity": generator.integers(1, 400, size=(3, 200)) / divisors,
        "traffic": generator.integers(0, 300, size=(4, 50)).astype(np.int32),
        "solar": np.round(generator.uniform(0, 900, size=(2, 50)), 6),
        "wiki": generator.integers(0, 70_000, size=(2, 50)).astype(np.int32),
    }
    for name, values in arrays.items():
        items = [f"{name}{k}" for k in range(len(values))]
        np.savez(raw / "sub" / module.SOURCES[name], values=values, item_id=items, start="2024-01-01", freq="h")
    wholes = {}
    for name, (start, freq, early, steps) in PARTS.items():
        wholes[name] = generator.integers(0, 1000, size=(34, early + steps + 3)).astype(np.int32)
        write_source(raw / "sub" / module.SOURCES[name], wholes[name], module.PARTS[name].items, start, freq)
    years = {"early": generator.integers(0, 99, size=(3, 1000)), "late": generator.integers(0, 99, size=(5, 700))}
    joined, columns = "electricity-2012-2014", [f"col{k:03d}" for k in range(5)]
    np.savez(raw / module.SOURCES[joined], values=years["early"], item_id=["0", "2", "OT"], start="2016-07-01")
    np.savez(raw / module.LATER[joined], values=years["late"], item_id=columns, start="2014-11-27 01:00")
    with pytest.raises(SystemExit, match=r"no exchange_rate_nips.tar.gz"):
        module.main([str(raw), "--out", str(out)])
    rates = np.round(generator.uniform(size=(8, 30)), 6)
    with tarfile.open(raw / module.SOURCES["exchange"], "w:gz") as archive:
        for part, lengths in (("train", [20]), ("test", [25, 30])):
            rows = [
                f'{{"start": "1990-01-01 00:00:00", "target": {rate[:n].tolist()}}}' for n in lengths for rate in rates
            ]
            text = "\n".join(rows).encode()
            member = tarfile.TarInfo(f"exchange_rate_nips/{part}/{part}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    module.main([str(raw), "--out", str(out)])
    for name, values in {**arrays, "exchange": rates}.items():
        again, start, items = unpack(out / f"{name}.npz")
        np.testing.assert_array_equal(again, values)
        assert len(items) == len(values)
        assert start == ("1990-01-01" if name == "exchange" else "2024-01-01")
    for name, (_, _, early, steps) in PARTS.items():
        again, start, items = unpack(out / f"{name}.npz")
        assert (start, tuple(items)) == (module.PARTS[name].start, module.PARTS[name].items)
        np.testing.assert_array_equal(again, wholes[name][::-1][: len(items), early : early + steps])
    again, start, items = unpack(out / f"{joined}.npz")
    assert (start, items) == ("2012-01-05 01:00", ["col000", "col002", "col004"])
    np.testing.assert_array_equal(again[:, :840], years["early"][:, 96:936])
    np.testing.assert_array_equal(again[:, 840:], years["late"][[0, 2, 4], :672])


@pytest.mark.parametrize(
    ("items", "hours", "message"),
    [(["0", "9"], 1000, r"series col009, which"), (["0", "1"], 900, r"expected 936 hours .*, got 900 and 700")],
)
def test_bundle_refuses_years_that_do_not_fit(tmp_path, items, hours, message):
    module, name = script("bundle"), "electricity-2012-2014"
    np.savez(tmp_path / "a.npz", values=np.ones((2, hours)), item_id=items, start="2016-07-01")
    np.savez(tmp_path / "b.npz", values=np.ones((2, 700)), item_id=["col000", "col001"], start="2014-11-27")
    with pytest.raises(ValueError, match=message):
        module.bundle(name, tmp_path / "a.npz", tmp_path, tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"freq": "30min"}, r"time stamps from 2019-12-16 00:00 to 2020-05-25 00:00, got 2019-12-15"),
        ({"start": "2019-12-16 01:00"}, r"time stamps from 2019-12-16 00:00 to .*, got 2019-12-16 01:00"),
        ({"item_id": [f"x{k}" for k in range(34)]}, r"series DUK, ERCO, .*not in this file"),
        ({"filled": (33, 24 + 3863)}, r"measured values, got 1 filled"),
    ],
)
def test_bundle_refuses_what_is_not_the_part(tmp_path, change, message):
    module = script("bundle")
    start, freq, early, steps = PARTS["eia-2020"]
    values = np.ones((34, early + steps + 3), dtype=np.int32)
    options = {"items": module.PARTS["eia-2020"].items, "start": start, "freq": freq, **change}
    write_source(tmp_path / "a.npz", values, **options)
    with pytest.raises(ValueError, match=message):
        module.bundle("eia-2020", tmp_path / "a.npz", tmp_path)
    assert not (tmp_path / "eia-2020.npz").exists()


def test_bundle_takes_hours_filled_outside_the_part(tmp_path):
    module = script("bundle")
    start, freq, early, steps = PARTS["eia-2020"]
    values = np.ones((34, early + steps + 3), dtype=np.int32)
    for filled in ((33, early - 1), (33, early + steps), (0, early)):
        write_source(tmp_path / "a.npz", values, module.PARTS["eia-2020"].items, start, freq, filled=filled)
        module.bundle("eia-2020", tmp_path / "a.npz", tmp_path)
