"""`datasets/streams.py`, on small files in the form in which users find the raw data, and how its streams are found."""

import gzip
import json
import struct

import numpy as np
import pandas as pd
import pytest

from tests.data.test_datasets import FOLDER, script
from tsforecast.cli import main as tsforecast
from tsforecast.online.stream import PREPARED, STREAMS, find_stream, read_stream

convert = script("streams").main

ELEC2_HEAD = """@relation Elec2

@attribute date real
@attribute day {1,2,3,4,5,6,7}
@attribute period real
@attribute nswprice real
@attribute nswdemand real
@attribute vicprice real
@attribute vicdemand real
@attribute transfer real
@attribute class {UP,DOWN}

@data
"""
ELEC2_ROWS = """0,2,0,0.056443,0.439155,0.003467,0.422915,0.414912,UP
0,2,0.021277,0.051699,0.415055,0.003467,0.422915,0.414912,DOWN
0.000044,3,1,0.1,0.2,0.3,0.4,0.5,UP
"""
ELEC2_STREAM = """date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,target
0.0,2.0,0.0,0.056443,0.439155,0.003467,0.422915,0.414912,UP
0.0,2.0,0.021277,0.051699,0.415055,0.003467,0.422915,0.414912,DOWN
4.4e-05,3.0,1.0,0.1,0.2,0.3,0.4,0.5,UP
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def elec2_of_openml():
    """The same with names in capitals, and quotes about nominal values."""
    head = "% 1. Title: electricity\n" + ELEC2_HEAD.replace("attribute", "ATTRIBUTE").replace("@data", "@DATA")
    rows = [line.split(",") for line in ELEC2_ROWS.splitlines()]
    return head + "".join(",".join([a, f"'{day}'", *rest]) + "\n" for a, day, *rest in rows)


def elec2_as_csv():
    names = "date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class\n"
    return names + ELEC2_ROWS.replace("UP", "1").replace("DOWN", "0")


@pytest.mark.parametrize(
    "content",
    [ELEC2_HEAD + ELEC2_ROWS, elec2_of_openml(), elec2_as_csv(), (ELEC2_HEAD + ELEC2_ROWS).replace("\n", "\r\n")],
)
def test_elec2(tmp_path, home, content):
    (tmp_path / "elecNormNew.arff").write_text(content, newline="")
    convert(["elec2", str(tmp_path / "elecNormNew.arff")])
    assert (home / "elec2.csv").read_text() == ELEC2_STREAM


def test_gzipped_files_a_byte_order_mark_and_other_names(tmp_path, home):
    (tmp_path / "raw.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + elec2_as_csv().encode()))
    convert(["elec2", str(tmp_path / "raw.gz"), "--out", str(tmp_path / "deep" / "er"), "--name", "power"])
    assert (tmp_path / "deep" / "er" / "power.csv").read_text() == ELEC2_STREAM
    assert not home.exists()


def test_noaa(tmp_path, home):
    (tmp_path / "x.csv").write_text("19.8,14,1019.6,8.4,9.9,15.9,28.9,14\n26.8,22.2,1006.2,8.1,10.9,19,34,21\n")
    (tmp_path / "y.csv").write_text("0\n1\n")
    convert(["noaa", str(tmp_path / "x.csv"), str(tmp_path / "y.csv")])
    assert (home / "noaa.csv").read_text() == (
        "temperature,dew_point,pressure,visibility,wind,wind_max,temperature_max,temperature_min,target\n"
        "19.8,14.0,1019.6,8.4,9.9,15.9,28.9,14.0,dry\n"
        "26.8,22.2,1006.2,8.1,10.9,19.0,34.0,21.0,rain\n"
    )


def gas(head, base):
    """A line of batchK.dat, which ends in a blank: number k is the base and k hundredths."""
    return f"{head} " + "".join(f"{k}:{base + k / 100:.6f} " for k in range(1, 129)) + "\n"


def write_batches(folder):
    """Of the archive's two forms; first numbers tell the rows apart."""
    (folder / "batch1.dat").write_text("".join(gas(f"{label};10.000000", 10 * label) for label in (1, 2, 3, 4)))
    (folder / "batch2.dat.gz").write_bytes(gzip.compress((gas("5", -1) + gas("6", 100)).encode()))


def test_gas_drift_in_the_order_of_the_files(tmp_path, home):
    write_batches(tmp_path)
    convert(["gas-drift", str(tmp_path), "--batches", "2", "1", "--keep-order"])
    found = pd.read_csv(home / "gas-drift.csv")
    assert list(found) == [*(f"x{k}" for k in range(1, 129)), "target"]
    assert found["target"].tolist() == ["acetone", "toluene", "ethanol", "ethylene", "ammonia", "acetaldehyde"]
    expected = np.array([-1, 100, 10, 20, 30, 40])[:, None] + np.arange(1, 129) / 100
    np.testing.assert_allclose(found.drop(columns="target"), expected, atol=1e-12)


def test_gas_drift_is_shuffled_within_each_batch(tmp_path, home):
    (tmp_path / "batch1.dat").write_text("".join(gas(1 + k % 6, k) for k in range(30)))
    (tmp_path / "batch2.dat").write_text("".join(gas(1 + k % 6, k) for k in range(30, 60)))
    orders = {}
    for seed in ("0", "0", "1"):
        convert(["gas-drift", str(tmp_path), "--batches", "1", "2", "--seed", seed])
        found = pd.read_csv(home / "gas-drift.csv")
        order = [round(value) for value in found["x1"]]
        assert found["target"].map(list(script("streams").GASES.values()).index).tolist() == [k % 6 for k in order]
        assert sorted(order[:30]) == list(range(30))
        assert sorted(order[30:]) == list(range(30, 60))
        assert order[:30] != list(range(30))
        assert orders.setdefault(seed, order) == order
    assert orders["0"] != orders["1"]
    convert(["gas-drift", str(tmp_path), "--batches", "1", "2"])
    assert [round(value) for value in pd.read_csv(home / "gas-drift.csv")["x1"]] == orders["0"]


def test_spambase(tmp_path, home):
    zeros = ["0"] * 52
    first, second = ["0.64", *zeros, "0.778", "3.756", "61", "278", "1"], ["0", *zeros, "0", "1.5", "2", "7", "0"]
    (tmp_path / "spambase.data").write_text(",".join(first) + "\n" + ",".join(second) + "\n")
    convert(["spambase", str(tmp_path / "spambase.data"), "--keep-order"])
    found = pd.read_csv(home / "spambase.csv")
    names = [*(f"word{k}" for k in range(1, 49)), *(f"char{k}" for k in range(1, 7))]
    assert list(found) == [*names, "capitals_mean", "capitals_longest", "capitals_total", "target"]
    assert found["target"].tolist() == ["spam", "ham"]
    np.testing.assert_array_equal(found.iloc[:, :-1], np.array([first[:-1], second[:-1]], dtype=float))


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        # yacht_hydrodynamics.data: blanks, also at the end of lines, and an empty last line.
        ("-2.3 0.568 0.11 \n-5.0 0.568 0.27 \n \n", [], "x1,x2,target\n-2.3,0.568,0.11\n-5.0,0.568,0.27\n"),
        # winequality-red.csv: semicolons, quoted names.
        ('"fixed acidity";"pH";"quality"\n7.4;3.5;5\n', [], "fixed acidity,pH,target\n7.4,3.5,5.0\n"),
        # airfoil_self_noise.dat: tabs. housing.data: several blanks.
        ("800\t0\t126.201\n1000\t1\t125.2\n", [], "x1,x2,target\n800.0,0.0,126.201\n1000.0,1.0,125.2\n"),
        (
            " 0.00632  18.00   24.00\n 0.02731   0.00   21.60\n",
            [],
            "x1,x2,target\n0.00632,18.0,24.0\n0.02731,0.0,21.6\n",
        ),
        # Commas without names; CASP.csv: the target comes first.
        ("1,2,3\n4,5,6\n", [], "x1,x2,target\n1.0,2.0,3.0\n4.0,5.0,6.0\n"),
        ("RMSD,F1,F2\n17.284,1,2\n6.021,3,4\n", ["--column", "RMSD"], "F1,F2,target\n1.0,2.0,17.284\n3.0,4.0,6.021\n"),
        ("1,2,3\n4,5,6\n", ["--column", "x1"], "x2,x3,target\n2.0,3.0,1.0\n5.0,6.0,4.0\n"),
    ],
)
def test_regression(tmp_path, home, content, options, expected):
    (tmp_path / "raw.data").write_text(content)
    convert(["uci-regression", str(tmp_path / "raw.data"), "--keep-order", "--name", "mine", *options])
    assert (home / "mine.csv").read_text() == expected


@pytest.mark.parametrize("stream", ["spambase", "uci-regression"])
def test_tables_are_shuffled_and_keep_their_rows(tmp_path, home, stream):
    rows = [[k] * 57 + [k % 2] for k in range(20)]
    (tmp_path / "raw").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    orders = []
    for options in ([], ["--seed", "0"], ["--seed", "1"], ["--keep-order"]):
        convert([stream, str(tmp_path / "raw"), *options])
        found = pd.read_csv(home / f"{stream}.csv")
        assert (found.iloc[:, :-1].nunique(axis=1) == 1).all()
        orders.append(found.iloc[:, 0].astype(int).tolist())
        ones = found["target"].isin(["spam", 1])
        assert ones.tolist() == [k % 2 == 1 for k in orders[-1]]
        assert sorted(orders[-1]) == list(range(20))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != orders[3] == list(range(20))


def idx(values):
    """As on the page of the data: two zeros, 8 for bytes, the number of dimensions, each as a big-endian integer."""
    values = np.asarray(values, dtype=np.uint8)
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


IMAGES = idx([[[0, 255, 7], [1, 2, 3]], [[4, 5, 6], [7, 8, 9]], [[10, 11, 12], [13, 14, 15]]])
LABELS = idx([3, 0, 5])


def write_mnist(folder, part="train", images=IMAGES, labels=LABELS):
    (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_mnist(tmp_path, home):
    write_mnist(tmp_path)
    write_mnist(tmp_path, "t10k", labels=idx([9, 9, 1]))
    convert(["mnist", str(tmp_path)])
    assert (home / "mnist.csv").read_text() == (
        "pixel0,pixel1,pixel2,pixel3,pixel4,pixel5,target\n0,255,7,1,2,3,three\n4,5,6,7,8,9,zero\n10,11,12,13,14,15,five\n"
    )
    convert(["mnist", str(tmp_path), "--digits", "5", "3", "--name", "two-digits"])
    assert pd.read_csv(home / "two-digits.csv")["target"].tolist() == ["three", "five"]
    convert(["mnist", str(tmp_path), "--part", "test", "--name", "rest"])
    assert pd.read_csv(home / "rest.csv")["target"].tolist() == ["nine", "nine", "one"]


def test_the_log_counts_rows_and_classes(tmp_path, home, caplog):
    write_mnist(tmp_path, labels=idx([3, 5, 3]))
    with caplog.at_level("INFO"):
        convert(["mnist", str(tmp_path)])
    assert "3 rows, 6 features" in caplog.text
    assert "classes: three 2, five 1" in caplog.text


DAY = "1,2,3,4,5,6,7,8"
SPAM = ",".join(["0"] * 57)


@pytest.mark.parametrize(
    ("stream", "files", "message"),
    [
        ("elec2", {"a": "x,y\n1,2\n"}, "a: expected the columns date, day, .*, class, got x, y"),
        ("elec2", {"a": ELEC2_HEAD}, "a: expected rows of a table, got none"),
        ("elec2", {"a": ELEC2_HEAD + ELEC2_ROWS + "1,2\n"}, "a, line 17: expected 9 columns, got 2"),
        ("elec2", {"a": ELEC2_HEAD + ELEC2_ROWS.replace("DOWN", "EVEN")}, "line 15: expected numbers .*EVEN"),
        ("elec2", {"a": ELEC2_HEAD + ELEC2_ROWS.replace("DOWN", "2")}, "class 1 for UP or 0 for DOWN, got 2"),
        ("elec2", {"a": ELEC2_HEAD + ELEC2_ROWS.replace("0.5,", "?,")}, r"line 16: expected numbers .*'\?'"),
        ("elec2", {"a": " \n\n"}, "a: expected rows of a table, got an empty file"),
        ("elec2", {"a": b"\xff\xfe\x00"}, "a: expected text, got bytes"),
        ("elec2", {"a": gzip.compress(b"text" * 100)[:-9]}, "a: expected a gzipped file, got one that is damaged"),
        ("elec2", {"a": gzip.compress(b"text")[:10] + b"\xff" * 20}, "a: expected a gzipped file, got one that is dam"),
        ("noaa", {"a": DAY + "\n", "b": "1\n0\n"}, "b: expected 1 rows as in .*a, got 2"),
        ("noaa", {"a": DAY + "\n", "b": "0.5\n"}, "b: expected the class 1 for rain or 0 for dry, got 0.5"),
        ("noaa", {"a": DAY + "\n\n1,2\n", "b": "0\n0\n"}, "a, line 3: expected 8 columns, got 2"),
        ("noaa", {"a": DAY.replace("8", "nan") + "\n", "b": "0\n"}, "a, line 1: expected finite numbers, got .*nan"),
        ("spambase", {"a": SPAM + ",2\n"}, "a: expected the class 1 for spam or 0 for ham, got 2"),
        ("spambase", {"a": SPAM + "\n"}, "a, line 1: expected 58 columns, got 57"),
        ("uci-regression", {"a": "x,y\n"}, "a: expected rows of a table, got none"),
        ("uci-regression", {"a": "1\n2\n"}, "a: expected features and the target 'x1'"),
        ("uci-regression", {"a": "x,x,y\n1,2,3\n"}, "each with a name of its own, got the columns x, x, y"),
        ("uci-regression", {"a": "target,y\n1,2\n"}, "got the columns target, y"),
        ("uci-regression", {"a": "1,?,3\n4,5,6\n"}, r"a, line 1: expected numbers .*'\?'"),  # no row of names
        ("uci-regression", {"a": "x,y\n1,2\n3\n"}, "a, line 3: expected 2 columns, got 1"),
    ],
)
def test_other_files_are_refused(tmp_path, home, stream, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit, match=rf"error: .*{message}"):
        convert([stream, *(str(tmp_path / name) for name in files)])
    assert not home.exists()


def test_an_unknown_column_is_refused(tmp_path, home):
    (tmp_path / "a").write_text("x,y\n1,2\n")
    with pytest.raises(SystemExit, match=r"expected features and the target 'z', .* got the columns x, y"):
        convert(["uci-regression", str(tmp_path / "a"), "--column", "z"])


@pytest.mark.parametrize(
    "line", [gas("7", 0), gas("x", 0), "1 1:2 2:3\n", gas("1", 0).replace(" 5:", " 4:"), gas("1", 0).replace(":", ";")]
)
def test_other_batches_are_refused(tmp_path, home, line):
    (tmp_path / "batch3.dat").write_text(gas("1", 0) + line)
    with pytest.raises(SystemExit, match=r"batch3.dat, line 2: expected a gas from 1 to 6 and 1:number to 128:number"):
        convert(["gas-drift", str(tmp_path), "--batches", "3"])
    (tmp_path / "batch3.dat").write_text(gas("1", 0).replace(" 5:0", " 5:x"))
    with pytest.raises(SystemExit, match=r"batch3.dat, line 1: expected numbers"):
        convert(["gas-drift", str(tmp_path), "--batches", "3"])
    with pytest.raises(SystemExit, match=r"there is no file batch1.dat in .*; --batches takes those that there are"):
        convert(["gas-drift", str(tmp_path)])
    assert not home.exists()


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (b"\x89PNG", idx([1]), [], r"train-images-idx3-ubyte.gz: expected bytes in 3 dimensions \(IDX\), got .*PNG"),
        (IMAGES[:9], idx([1]), [], "expected bytes in 3 dimensions"),
        (IMAGES[:-1], idx([1]), [], "expected 3 x 2 x 3 bytes, got 17"),
        (idx([1, 2]), idx([1, 2]), [], "expected bytes in 3 dimensions"),
        (IMAGES, idx([1, 2]), [], "expected 3 labels from 0 to 9, one an image, got 2 up to 2"),
        (IMAGES, idx([1, 2, 10]), [], "expected 3 labels from 0 to 9, one an image, got 3 up to 10"),
        (IMAGES, idx(np.zeros(0)), [], "expected 3 labels from 0 to 9, one an image, got 0"),
        (IMAGES, idx([1, 2, 3]), ["--digits", "4", "7"], r"expected images of the digits \[4, 7\], got none among 3"),
        (IMAGES, idx([1, 2, 3]), ["--part", "test"], "there is no file t10k-images-idx3-ubyte or .*gz in"),
    ],
)
def test_other_images_are_refused(tmp_path, home, images, labels, options, message):
    write_mnist(tmp_path, images=images, labels=labels)
    with pytest.raises(SystemExit, match=message):
        convert(["mnist", str(tmp_path), *options])
    assert not home.exists()


@pytest.mark.parametrize("stream", PREPARED)
def test_a_missing_source_ends_the_script_with_a_message(tmp_path, home, stream):
    sources = [str(tmp_path / "nowhere")] * len(PREPARED[stream].split())
    with pytest.raises(SystemExit, match=r"error: there is no file .*nowhere"):
        convert([stream, *sources])


@pytest.mark.parametrize("stream", PREPARED)
def test_help(stream, capsys):
    for arguments, expected in (([], f"python datasets/streams.py {stream} "), ([stream], "--name")):
        with pytest.raises(SystemExit) as end:
            convert([*arguments, "--help"])
        assert end.value.code == 0
        assert expected in capsys.readouterr().out


def test_every_stream_is_in_the_documentation():
    text = (FOLDER / "README.md").read_text()
    for stream, sources in PREPARED.items():
        assert f"| `{stream}` |" in text
        assert f"`python datasets/streams.py {stream} {sources.split()[0]}" in text


def test_a_prepared_stream_is_found_by_its_name(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(elec2_as_csv())
    convert(["elec2", "a.csv"])
    convert(["elec2", "a.csv", "--name", "power-0.1"])
    assert find_stream("elec2") == home / "elec2.csv"
    assert find_stream("power-0.1") == home / "power-0.1.csv"
    assert find_stream("a.csv").samefile(tmp_path / "a.csv")
    items = list(read_stream("elec2", "target"))
    assert [item.target for item in items] == ["UP", "DOWN", "UP"]
    assert items[2].features == {
        "date": 4.4e-05, "day": 3.0, "period": 1.0, "nswprice": 0.1, "nswdemand": 0.2, "vicprice": 0.3,
        "vicdemand": 0.4, "transfer": 0.5,
    }  # fmt: skip
    (tmp_path / "elec2").write_text("a file\n")  # a user's own goes first
    assert find_stream("elec2").samefile(tmp_path / "elec2")


def test_what_is_not_prepared_says_how_it_is_made(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, sources in PREPARED.items():
        with pytest.raises(FileNotFoundError, match=f"make it by `python datasets/streams.py {name} {sources}`"):
            next(read_stream(name, "target"))
    with pytest.raises(FileNotFoundError, match="no file unheard and no stream of this name") as error:
        find_stream("unheard")
    assert all(name in str(error.value) for name in [*STREAMS, *PREPARED])
    (home / "sub").mkdir(parents=True)
    (home / "sub" / "x.csv").write_text("a\n1\n")
    with pytest.raises(FileNotFoundError, match=r"^there is no file sub/x$"):  # a path is no name
        find_stream("sub/x")


def test_a_prepared_stream_is_streamed(tmp_path, home, capsys):
    generator = np.random.default_rng(0)
    rain = generator.integers(0, 2, size=60)
    values = generator.normal(size=(60, 8)) + 3 * rain[:, None]
    (tmp_path / "x.csv").write_text("".join(",".join(f"{value:.3f}" for value in row) + "\n" for row in values))
    (tmp_path / "y.csv").write_text("".join(f"{value}\n" for value in rain))
    convert(["noaa", str(tmp_path / "x.csv"), str(tmp_path / "y.csv")])
    run = tmp_path / "run"
    assert tsforecast(["stream", "vd-ekf", "--data", "noaa", "--hidden", "--output", str(run)]) == 0
    found = json.loads((run / "scores.json").read_text())
    assert found["classes"] == ["rain", "dry"] if rain[0] else ["dry", "rain"]
    assert pd.read_csv(run / "items.csv")["target"].tolist() == ["rain" if value else "dry" for value in rain]
    assert found["accuracy"] > 0.9  # eight features three standard deviations apart
    assert tsforecast(["stream", "vd-ekf", "--data", "elec2", "--output", str(tmp_path / "other")]) != 0
    assert "python datasets/streams.py elec2 elecNormNew.arff" in capsys.readouterr().err
