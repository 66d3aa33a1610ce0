"""`tsforecast optimise --trials`: a table that is asked for points and told values."""

import csv
import math

import pytest

from tsforecast.cli import main
from tsforecast.cli.trials import read_bounds
from tsforecast.decisions import Number

BOUNDS = ["rate:0.0001:1:log", "depth:1:9:whole"]
QUICK = ["--initial", "4", "--hidden", "10", "--bounds", *BOUNDS]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def fill(path, function, **more):
    """Write the values that a table lacks, as its user does."""
    rows = [{**row, **more} for row in rows_of(path)]
    for row in rows:
        if not row["value"]:
            row["value"] = function(float(row["rate"]), float(row["depth"]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def cost(rate, depth):
    return (math.log10(rate) + 2) ** 2 + 0.1 * (depth - 6) ** 2


def test_a_table_leads_to_the_least_value(tmp_path, capsys):
    path = tmp_path / "trials.csv"
    ask = ["optimise", "--trials", str(path), *QUICK]
    for _ in range(10):
        assert main(ask) == 0
        fill(path, cost, note="mine")
    rows = rows_of(path)
    assert len(rows) == 10
    assert {row["note"] for row in rows} == {"mine"}
    assert all(1e-4 <= float(row["rate"]) <= 1 and row["depth"] in "123456789" for row in rows)
    first, last = ([float(row["value"]) for row in part] for part in (rows[:4], rows[4:]))
    assert sum(last) / 6 < sum(first) / 4
    assert "least value of 9: " in capsys.readouterr().out


NARROW = """hertz,value
2400055542,0.1135
2400011860,0.4062
2400047805,0.4609
2400051998,0.0890
2400021209,nan
2400008794,0.1088
"""


@pytest.mark.parametrize("kind", ["", ":log", ":whole"])
def test_bounds_that_are_narrow_beside_their_numbers_have_points_of_their_own(kind, tmp_path, capsys):
    path = tmp_path / "narrow.csv"
    path.write_text(NARROW)
    bounds = ["--bounds", "hertz:2400000000:2400100000" + kind]
    assert main(["optimise", "--trials", str(path), *bounds, "--initial", "4", "--hidden", "10", "--points", "5"]) == 0
    new = [float(row["hertz"]) for row in rows_of(path)[6:]]
    assert len({*new}) == 5
    assert all(2400000000 <= x <= 2400100000 for x in new)
    said = capsys.readouterr().out.splitlines()
    assert said[5] == "least value of 6: 0.0890 at hertz=2400051998"
    rows = [row["hertz"] for row in rows_of(path)[:6]]
    assert said[6].split("hertz=")[1].split(",")[0] in rows
    assert "where the surrogate expects" in said[6]


def test_points_that_await_their_values_are_not_asked_for_again(tmp_path, capsys):
    path, other = tmp_path / "trials.csv", tmp_path / "other.csv"
    assert main(["optimise", "--trials", str(path), *QUICK, "--points", "3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"rate={row['rate']} depth={row['depth']}" for row in rows_of(path)]
    for count in ("2", "1"):
        assert main(["optimise", "--trials", str(other), *QUICK, "--points", count]) == 0
    assert rows_of(other) == rows_of(path)
    fill(path, cost)
    assert main(["optimise", "--trials", str(path), *QUICK, "--points", "4"]) == 0
    new = [(row["rate"], row["depth"]) for row in rows_of(path)[3:]]
    assert len({*new}) == 4


def test_large_values_may_be_wanted_and_failures_are_told(tmp_path, capsys):
    found = []
    for sign, option in ((1, []), (-1, ["--maximise"])):
        path = tmp_path / f"{sign}.csv"
        for k in range(7):
            assert main(["optimise", "--trials", str(path), *QUICK, *option]) == 0
            fill(path, lambda rate, depth, k=k, sign=sign: "nan" if k == 2 else sign * cost(rate, depth))
        found.append([(row["rate"], row["depth"]) for row in rows_of(path)])
    assert found[0] == found[1]
    assert "largest value of 6: " in capsys.readouterr().out


def test_values_of_places_stay_within_the_bounds():
    for low, high in ((0.0, 1.0), (-5e-9, 5e-9), (2.4e9, 2.4001e9), (-1e300, 1e300)):
        bound = Number("x", low, high)
        for share in (0.0, 0.123456789, 0.5, 1.0):
            place = low + share * (high - low)
            assert abs(float(bound.value([place])) - place) <= 0.5e-6 * (high - low)
    assert Number("x", 0.0, 1.0).value([0.123456789]) == "0.123457"
    low, high = (bound.corners[0] for bound in (Number("n", 1.0, 3.0, whole=True), Number("x", 0.1, 1 / 3, log=True)))
    assert low == (0.5, 3.5)
    assert Number("n", 1.0, 3.0, whole=True).value([3.5]) == "3"
    assert float(Number("x", 0.1, 1 / 3, log=True).value([high[1]])) <= 1 / 3
    assert Number("n", 1.0, 1000.0, log=True, whole=True).value([math.log(31.7)]) == "32"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate", "NAME:LOW:HIGH"),
        ("rate:0", "NAME:LOW:HIGH"),
        ("rate:0:1:exp", "NAME:LOW:HIGH"),
        ("value:0:1", "no name 'value'"),
        ("rate:1:0", "LOW below HIGH"),
        ("rate:0:inf", "both finite"),
        ("rate:0:1:log", "LOW above 0"),
        ("rate:0.5:4:whole", "whole numbers"),
    ],
)
def test_bounds_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        read_bounds([text])
    with pytest.raises(ValueError, match="each name once"):
        read_bounds(["a:0:1", "a:0:2"])


def test_tables_that_cannot_be_read_are_left_alone(tmp_path, capsys):
    path = tmp_path / "trials.csv"
    for text, message in (
        ("rate,value\n0.1,1\n", "expected the columns rate, depth, value, once each, which is not so of depth"),
        ("rate,depth,value\n0.1,1\n", "line 2: expected 3 cells"),
        ("rate,depth,value\n0.1,2,1\n2,3,1\n", "line 3: expected rate from 0.0001 to 1, got 2"),
        ("rate,depth,value\n0.1,2,good\n", "line 2: expected a number in column value, got 'good'"),
    ):
        path.write_text(text)
        assert main(["optimise", "--trials", str(path), *QUICK]) == 2
        assert message in capsys.readouterr().err
        assert path.read_text() == text
    for arguments in (["--trials", str(path)], ["branin", "--trials", str(path), *QUICK], QUICK):
        assert main(["optimise", *arguments]) == 2
        assert "together, and no function" in capsys.readouterr().err


def test_choices_limits_and_objectives_of_a_table(tmp_path, capsys):
    """Cost falls with size, and weight is at most 9: size 3 of kind b; time beside it makes a front."""
    path = tmp_path / "trials.csv"
    ask = ["optimise", "--trials", str(path), "--initial", "4", "--hidden", "10", "--bounds", "kind:a|b",
           "size:1:8:whole", "--objectives", "cost", "time", "--limits", "weight:9", "--acquisition", "ei"]  # fmt: skip
    for _ in range(12):
        assert main(ask) == 0
        rows = rows_of(path)
        for row in rows:
            size, heavy = int(row["size"]), row["kind"] == "a"
            row |= {"cost": f"{10 - size}", "time": f"{size / 2}", "weight": f"{size**2 + 4 * heavy}"}
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    capsys.readouterr()
    assert main(ask) == 0
    said = capsys.readouterr().out
    assert "best of 12 (" in said
    assert " within limits), none of which is better in every objective:" in said
    assert "cost 7, time 1.5 at kind=b, size=3" in said
    assert "weight" not in said


def test_of_limits_nobody_keeps_that_is_said(tmp_path, capsys):
    path = tmp_path / "trials.csv"
    path.write_text("x,value,weight\n1,2,9\n2,1,8\n")
    assert main(["optimise", "--trials", str(path), "--bounds", "x:0:9", "--limits", "weight:5"]) == 0
    assert "none of 2 rows is within all limits" in capsys.readouterr().out
    path.write_text("x,value,weight\n1,2,\n")
    assert main(["optimise", "--trials", str(path), "--bounds", "x:0:9", "--limits", "weight:5"]) == 2
    assert "line 2: expected a number in column weight, got ''" in capsys.readouterr().err
    path.write_text("x,value,kind\n1.5,2,A\n")
    for bounds, message in (
        (["x:0:9", "kind:a|b"], "line 2: expected kind to be one of a, b, got 'A'"),
        (["x:0:9:whole"], "line 2: expected a whole number in column x, got 1.5"),
        (["kind:a"], "--bounds: expected NAME:LOW:HIGH"),
        (["kind:a|a"], "--bounds: expected at least two choices of 'kind', each once"),
    ):
        assert main(["optimise", "--trials", str(path), "--bounds", *bounds]) == 2
        assert message in capsys.readouterr().err
    for limits in ("weight", "weight:heavy", "weight:inf"):
        assert main(["optimise", "--trials", str(path), "--bounds", "x:0:9", "--limits", limits]) == 2
        assert "--limits: expected NAME:MOST with a finite number" in capsys.readouterr().err
    twice = ["--bounds", "x:0:9", "--objectives", "value", "value"]
    assert main(["optimise", "--trials", str(path), *twice]) == 2
    assert "--objectives: expected each column once, got value value" in capsys.readouterr().err
    assert main(["optimise", "branin", "--limits", "weight:5"]) == 2
    assert "--limits and --objectives beside --trials" in capsys.readouterr().err
