"""Effects of interventions: the published example of CausalImpact, growth, dates, and what is refused."""

import importlib
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.signal import lfilter

from tests.analysis.r_random import RRandom
from tsforecast.analysis.impact import Impact, Options, _units, effects, impact
from tsforecast.analysis.impact_tables import ALL
from tsforecast.analysis.interventions import pairs_of_table, read_dates
from tsforecast.cli import main
from tsforecast.cli.impact import _told
from tsforecast.wording import in_full

pytestmark = pytest.mark.usefixtures("unchecked_module")


def published():
    """The simulated data of the documentation of CausalImpact: `set.seed(1)`, a control, and 10 more from 71 on."""
    random = RRandom(1)
    control = 100 + random.autoregression(0.999, 100)
    values = 1.2 * control + random.normal(100)
    values[70:] += 10
    days = pd.date_range("2014-01-01", periods=100, freq="D")
    return pd.DataFrame({"timestamp": days, "target": values, "x1": control})


def test_the_published_example_of_causalimpact():
    """The vignette prints actual 117 and 3511; without: 107 (0.37) [106, 107]; effect 11 (0.37) [9.8, 11], 9.9 %."""
    frame = published()
    first = [105.2950, 105.8943, 106.6209, 106.1572, 101.2812, 101.4484]
    np.testing.assert_allclose(frame["target"][:6], first, atol=5e-5)
    np.testing.assert_allclose(frame["x1"][:3], [88.21513, 88.48415, 87.87684], atol=5e-6)
    options = Options(seasons="none", level_sd=0.01, num_samples=4000)
    found = impact(frame, "2014-03-11", covariates=["x1"], options=options)
    average, cumulative = (found.summary.iloc[k] for k in range(2))
    assert average["actual"] == pytest.approx(117.0, abs=0.5)
    assert cumulative["actual"] == pytest.approx(3511, abs=0.5)
    printed = {"predicted": 107, "predicted_lower": 106, "predicted_upper": 107, "effect": 11, "effect_lower": 9.8}
    for name, value in printed.items():
        # As rounded as it was printed, and 3 %.
        assert average[name] == pytest.approx(value, rel=0.03, abs=0.05 if name == "effect_lower" else 0.5), name
    for name, value in {"predicted": 3196, "effect": 316, "effect_lower": 294, "effect_upper": 337}.items():
        assert cumulative[name] == pytest.approx(value, rel=0.03), name
    assert average["predicted_sd"] == pytest.approx(0.37, rel=0.03)
    assert average["relative"] == pytest.approx(0.099, rel=0.03)
    assert average["tail"] < 1e-3


def series(length=60, count=3):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=length, freq="D")
    parts = []
    for k in range(count):
        control = rng.normal(size=length)
        values = 20 + k + 2 * control + 3 * (days.dayofweek > 4) + rng.normal(size=length) * 0.5
        parts.append(pd.DataFrame({"item_id": f"s{k}", "timestamp": days, "y": values, "x": control}))
    return pd.concat(parts, ignore_index=True)


def test_several_interventions_on_several_series_with_gaps():
    frame = series()
    first = frame["timestamp"].between("2024-02-01", "2024-02-05")
    second = frame["timestamp"] > "2024-02-20"
    frame.loc[first, "y"] += 4.0
    frame.loc[second, "y"] -= 3.0
    frame.loc[[10, 70, 75, 112], "y"] = np.nan
    found = impact(
        frame,
        ["2024-01-31", "2024-02-20"],
        ["2024-02-05", "2024-02-29"],
        ["x"],
        options=Options(num_samples=400),
    )
    summary = found.summary[found.summary["measure"] == "average"].set_index(["item_id", "intervention"])
    assert summary.index.tolist() == [(f"s{k}", number) for k in range(3) for number in (1, 2)]
    truth = np.tile([4.0, -3.0], 3)
    assert (np.abs(summary["effect"] - truth) < 4 * summary["effect_sd"]).all()
    assert (summary["effect_sd"] < 1.0).all()
    steps = found.frame[(found.frame["item_id"] == "s0") & (found.frame["intervention"] == 1)]
    assert steps["timestamp"].tolist() == list(pd.date_range("2024-02-01", "2024-02-05"))
    np.testing.assert_allclose(steps["actual"] - steps["predicted"], steps["effect"], rtol=1e-6)
    totals = found.summary[found.summary["measure"] == "cumulative"]
    np.testing.assert_allclose(totals["effect"].iloc[0], steps["cumulative"].iloc[-1], rtol=1e-6)
    gap = found.frame[found.frame["actual"].isna()]
    assert gap["effect"].isna().all()
    assert gap["predicted"].notna().all()


def untouched(values, before, **options):
    """Effects where nothing has happened, on daily series, (series, time)."""
    start = pd.Period("2023-01-01", "D")
    entries = [{"item_id": str(k), "start": start, "target": row} for k, row in enumerate(values)]
    last = (start + before - 1).to_timestamp()
    return effects(entries, "D", [(last, None)], [], Options(num_samples=400, **options)).summary


def covers(rows):
    return (rows["effect_lower"] <= 0) & (rows["effect_upper"] >= 0)


def test_steady_growth_is_no_effect():
    """A slope of 5 under noise of 3."""
    values = 90 + 5 * np.arange(180) + 3 * np.random.default_rng(0).normal(size=180)
    found = untouched(values[None], 150)
    assert covers(found).all()
    # As an ordinary regression on time extrapolates.
    assert found["effect_sd"][0] < 3 * 3 * np.sqrt(1 / 30 + 1 / 150 + 12 * 90**2 / 150**3)


def test_growth_under_an_autoregression_is_no_effect_on_average():
    rng, count, steps = np.random.default_rng(1), 100, 150
    noise = rng.normal(size=(count, steps))
    for time in range(1, steps):
        noise[:, time] += 0.6 * noise[:, time - 1]
    found = untouched(0.2 * np.arange(steps) + noise, 120, seasons="none")
    rows = found[found["measure"] == "average"]
    assert abs(rows["effect"].mean()) < 3.5 * rows["effect"].std() / count**0.5
    assert covers(rows).mean() > 0.95 - 3.5 * (0.95 * 0.05 / count) ** 0.5


def test_averages_of_noise_are_as_sure_as_they_can_be():
    """Of 20 steps behind 400: a standard deviation of sqrt(1 / 20 + 1 / 400), where no part has to wander."""
    found = untouched(np.random.default_rng(2).normal(size=(50, 420)), 400, seasons="none")
    rows = found[found["measure"] == "average"]
    assert rows["effect_sd"].median() == pytest.approx((1 / 20 + 1 / 400) ** 0.5, rel=0.15)


def test_a_season_of_less_than_two_cycles_is_left_out_and_named(caplog):
    values = np.random.default_rng(3).normal(size=(2, 16))
    with caplog.at_level(logging.WARNING):
        found = untouched(values, 12)
    assert "less than two cycles of day_of_week are known before the date: left out" in caplog.text
    pd.testing.assert_frame_equal(found, untouched(values, 12, seasons="none"))


@pytest.mark.parametrize("seasons", ["auto", "week_with_2_harmonics"])
def test_two_whole_cycles_of_a_season_are_enough(caplog, seasons):
    values = np.random.default_rng(3).normal(size=(1, 18)) + 5 * (np.arange(18) % 7 == 0)
    with caplog.at_level(logging.WARNING):
        found = untouched(values, 14, seasons=seasons)
        assert "left out" not in caplog.text
        untouched(values, 13, seasons=seasons)
    assert "left out" in caplog.text
    assert not found.equals(untouched(values, 14, seasons="none"))


def test_units_are_those_of_what_is_known():
    values, known = np.array([[1.0], [3.0], [100.0]]), np.array([[True], [True], [False]])
    np.testing.assert_allclose(_units(values, known), [[2.0], [2.0**0.5]])


def test_large_values_keep_their_last_digits():
    """Steps of 1 at 1e9, which single precision does not tell apart."""
    values = np.random.default_rng(4).normal(size=(1, 70))
    low, high = untouched(values, 60), untouched(1e9 + values, 60)
    for name in ("effect", "effect_lower", "effect_upper"):
        np.testing.assert_allclose(low[name], high[name], atol=1e-4)


def test_an_effect_and_its_share_have_one_sign_also_about_zero():
    found = untouched(np.random.default_rng(5).normal(size=(30, 60)), 50, seasons="none")
    assert (found["predicted"] < 0).any()
    assert (found["predicted"] > 0).any()
    np.testing.assert_array_equal(np.sign(found["effect"]), np.sign(found["relative"]))
    np.testing.assert_allclose(found["relative"] * found["predicted"].abs(), found["effect"])
    np.testing.assert_allclose(found["relative_upper"] * found["predicted"].abs(), found["effect_upper"])


def test_the_overall_effect_is_that_of_all_interventions():
    frame = series(120, 2)
    for begin, end in (("2024-02-10", "2024-02-14"), ("2024-03-10", "2024-03-14")):
        frame.loc[frame["timestamp"].between(begin, end), "y"] += 4.0
    dates = {"after": ["2024-02-09", "2024-03-09"], "until": ["2024-02-14", "2024-03-14"]}
    found = impact(frame, **dates, covariates=["x"], options=Options(num_samples=1000))
    overall = found.overall[found.overall["measure"] == "cumulative"].set_index("item_id")
    assert overall["interventions"].to_dict() == {"s0": 2, "s1": 2, ALL: 4}
    own = found.summary[found.summary["measure"] == "cumulative"]
    np.testing.assert_allclose(overall["effect"][ALL], own["effect"].sum())
    assert overall["effect_sd"][ALL] == pytest.approx((own["effect_sd"] ** 2).sum() ** 0.5, rel=0.1)
    average = found.overall[found.overall["measure"] == "average"].set_index("item_id")
    np.testing.assert_allclose(average["effect"] * [10, 10, 20], overall["effect"])
    assert (np.abs(average["effect"] - 4.0) < 4 * average["effect_sd"]).all()


def test_intervals_hold_simulated_effects_of_dates_by_series():
    """Two campaigns of each of 180 series, at three pairs of dates; shares within 3.5 of their standard errors."""
    rng, count, steps = np.random.default_rng(5), 180, 190
    noise = rng.normal(size=(count, steps + 50))
    values = lfilter([1.0], [1.0, -0.5], noise, axis=1)[:, 50:]
    starts, rows, effects = [(120, 150), (125, 160), (130, 155)], [], rng.normal(0.0, 2.0, (count, 2))
    days = pd.date_range("2024-01-01", periods=steps)
    for k in range(count):
        for effect, begin in zip(effects[k], starts[k % 3], strict=True):
            values[k, begin : begin + 10] += effect
            rows.append({"shop": f"s{k}", "after": days[begin - 1], "until": days[begin + 9]})
    frame = pd.concat(pd.DataFrame({"item_id": f"s{k}", "timestamp": days, "y": values[k]}) for k in range(count))
    options = Options(seasons="none", num_samples=500)
    found = impact(frame, dates=pd.DataFrame(rows), options=options)

    def share(table, true):
        held = table[table["measure"] == "average"].set_index("item_id")
        true = pd.Series(true, held.index)
        return (held["effect_lower"].le(true) & held["effect_upper"].ge(true)).mean()

    assert abs(share(found.summary, effects.ravel()) - 0.95) < 3.5 * (0.95 * 0.05 / (2 * count)) ** 0.5
    overall = found.overall[found.overall["item_id"] != ALL]
    assert abs(share(overall, effects.mean(1)) - 0.95) < 3.5 * (0.95 * 0.05 / count) ** 0.5
    whole = found.overall[(found.overall["item_id"] == ALL) & (found.overall["measure"] == "average")]
    assert abs(whole["effect"].item() - effects.mean()) < 3.5 * whole["effect_sd"].item()


def test_tables_are_means_and_quantiles_of_the_paths_over_steps_with_a_value():
    """Oracle: differences of the values and each path, and their quantiles."""
    frame = series(60, 1)
    frame.loc[frame["timestamp"] == "2024-02-22", "y"] = np.nan
    found = impact(frame, "2024-02-20", covariates=["x"], options=Options(num_samples=200))
    rows, actual = found.frame, found.frame["actual"]
    np.testing.assert_allclose(rows["effect_lower"], actual - rows["predicted_upper"])
    np.testing.assert_allclose(rows["effect_upper"], actual - rows["predicted_lower"])
    average = found.summary.set_index("measure").loc["average"]
    assert average["actual"] == pytest.approx(actual.mean())  # of the steps that have one
    assert average["effect"] == pytest.approx(rows["effect"].mean())


def test_coefficients_that_move_follow_a_control_whose_effect_grows():
    rng = np.random.default_rng(1)
    control, days = rng.normal(size=120), pd.date_range("2024-01-01", periods=120, freq="D")
    values = np.linspace(0.0, 4.0, 120) * control + 0.3 * rng.normal(size=120)
    frame = pd.DataFrame({"timestamp": days, "y": values, "x": control})
    errors = []
    for dynamic in (False, True):
        options = Options(seasons="none", dynamic=dynamic, num_samples=200)
        found = impact(frame, days[99], covariates=["x"], options=options).frame
        errors.append(found["effect"].abs().mean())
    assert errors[1] < 0.5 * errors[0]


def test_coefficients_move_of_controls_alone():
    with pytest.raises(ValueError, match="dynamic moves coefficients of controls: name some by covariates"):
        impact(pd.DataFrame({"timestamp": [], "y": []}), "2024-01-01", options=Options(dynamic=True))


def test_of_many_controls_those_that_matter_do():
    """Eleven controls, as many coefficients as an exact posterior has, two of which are not 0."""
    rng, days = np.random.default_rng(6), pd.date_range("2024-01-01", periods=140, freq="D")
    controls = rng.normal(size=(140, 11)).cumsum(0)
    values = controls[:, 0] - 0.5 * controls[:, 4] + 0.3 * rng.normal(size=140)
    frame = pd.DataFrame(controls, columns=[f"x{k}" for k in range(11)]).assign(timestamp=days, y=values)
    found = impact(frame, days[119], covariates=[f"x{k}" for k in range(11)], options=Options(seasons="none")).summary
    assert covers(found).all()
    # The standard deviation of the prediction by least squares.
    past = np.column_stack([np.ones(120), controls[:120]])
    ahead = np.r_[1.0, controls[120:].mean(0)]
    spread = 0.3 * (1 / 20 + ahead @ np.linalg.solve(past.T @ past, ahead)) ** 0.5
    assert 0.5 * spread < found["effect_sd"][0] < 1.5 * spread


def test_each_series_has_its_own_date():
    """By a table, its file, and a column of the data: the same."""
    frame = series(60, 3)
    after = {"s0": "2024-02-01", "s1": "2024-02-10"}
    table = pd.DataFrame({"shop": [*after], "after": [*after.values()], "until": ["2024-02-08", ""]})
    options = Options(num_samples=50)
    by_table = impact(frame, dates=pl.from_pandas(table), covariates=["x"], options=options)
    summary = by_table.summary[by_table.summary["measure"] == "average"]
    assert summary["item_id"].tolist() == ["s0", "s1"]
    first = by_table.frame.groupby("item_id")["timestamp"].agg(["min", "max"])
    assert [f"{x:%m-%d}" for x in first.to_numpy().ravel().astype("datetime64[s]").tolist()] == [
        "02-02",
        "02-08",
        "02-11",
        "02-29",
    ]
    column = frame.assign(started=frame["item_id"].map(after).fillna("none"))
    by_column = impact(column, after_column="started", covariates=["x"], options=options)
    assert by_column.frame.groupby("item_id")["timestamp"].min().tolist() == first["min"].tolist()
    alone = impact(frame[frame["item_id"] == "s1"], "2024-02-10", covariates=["x"], options=options).summary
    both = by_column.summary[by_column.summary["item_id"] == "s1"]
    np.testing.assert_allclose(alone["actual"], both["actual"])
    np.testing.assert_allclose(alone["effect"], both["effect"], atol=4 * alone["effect_sd"].iloc[0] / 50**0.5 * 30)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected one of after, dates and after_column"),
        ({"after": "2024-02-01", "after_column": "x"}, "expected one of after, dates and after_column"),
        ({"dates": pd.DataFrame({"item": ["s0"]}), "until": "2024-02-01"}, "until goes with after"),
        ({"after": "2024-02-01", "until_column": "x"}, "until_column with after_column"),
        ({"dates": pd.DataFrame({"item": ["s0"]})}, "expected a table with a column that names the series, 'after'"),
        (
            {"dates": pd.DataFrame({"item": ["zz"], "after": ["2024-02-01"]})},
            "name the series 'zz', which the data lack",
        ),
        (
            {"dates": pd.DataFrame({"item": ["s0"], "after": ["2024-02-01"], "until": ["2024-01-20"]})},
            "series 's0': expected until later than after",
        ),
    ],
)
def test_dates_of_series_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        impact(series(count=1), **given)


def test_dates_of_a_table_come_in_any_order_and_interventions_may_touch():
    first, middle, last = (pd.Timestamp(f"2024-02-{day}") for day in ("01", "10", "20"))
    table = pd.DataFrame({"shop": "a", "after": [middle, first], "until": [last, middle]})
    assert pairs_of_table(table) == {"a": [(first, middle), (middle, last)]}


def test_dates_with_a_zone_are_read_in_utc():
    assert read_dates(["2024-02-01T23:30-02:00"], "after") == [pd.Timestamp("2024-02-02T01:30")]


def test_the_order_of_day_and_month_is_not_guessed():
    frame, quick = series(count=1), Options(seasons="none", num_samples=20)
    with pytest.raises(ValueError, match=r"'02.03.2024' day and month can not be told apart; give after='2024-02-03'"):
        impact(frame, "02.03.2024")
    expected = impact(frame, "2024-02-13", options=quick).frame
    for same in ("13.02.2024", "2/13/2024", "13 Feb 2024", pd.Timestamp("2024-02-13"), "2024-02-13T00:00"):
        pd.testing.assert_frame_equal(impact(frame, same, options=quick).frame, expected)
    # One date of several that can be told apart tells of the others.
    found = impact(frame, ["02.02.2024", "13.02.2024"], options=quick).frame
    assert found.groupby("intervention")["timestamp"].min().tolist() == [
        pd.Timestamp("2024-02-03"),
        pd.Timestamp("2024-02-14"),
    ]


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        ({"after": "2023-12-31"}, r"'s0': expected after between 2024-01-01 and the step before 2024-02-29, got 2023"),
        ({"after": "2024-02-29"}, r"'s0': expected after between"),
        ({"after": "2024-01-03"}, r"'s0' has 3 values up to 2024-01-03: expected at least 8"),
        ({"after": "2024-02-01", "until": "2024-01-20"}, r"expected until later than after, got 2024-01-20"),
        ({"after": "2024-02-01", "until": "2025-01-20"}, r"'s0' ends at 2024-02-29, before until 2025"),
        ({"after": ["2024-02-10", "2024-02-01"]}, r"expected until later than after"),
        ({"after": ["2024-02-01", "2024-02-10"], "until": ["2024-02-12", "2024-02-20"]}, r"interventions overlap"),
        ({"after": "soon"}, r"expected a date such as 2024-03-01 as after, got 'soon'"),
    ],
)
def test_dates_that_do_not_fit_are_refused(dates, message):
    with pytest.raises(ValueError, match=message):
        impact(series(count=1), **dates)


def test_values_that_a_transformation_does_not_take_are_refused(tmp_path):
    frame = series(count=1)
    with pytest.raises(ValueError, match="series 's0': log1p needs values above -1"):
        impact(frame.assign(y=-frame["y"] - 100), "2024-02-10", options=Options(transformation="log1p"))
    (tmp_path / "dates.csv").touch()
    with pytest.raises(ValueError, match=r"dates\.csv: expected a table of dates"):
        impact(frame, dates=tmp_path / "dates.csv")


def test_controls_that_do_not_fit_are_refused():
    frame = series(count=1)
    missing = frame.assign(x=frame["x"].where(frame["timestamp"] < "2024-02-20"))
    with pytest.raises(ValueError, match="'x'"):
        impact(missing, "2024-02-10", covariates=["x"])
    still = frame.assign(x=(frame["timestamp"] > "2024-02-10") * 1.0)
    with pytest.raises(ValueError, match="the control 'x' is constant up to"):
        impact(still, "2024-02-10", covariates=["x"])
    with pytest.raises(ValueError, match="between 0 and 1, got 95"):
        Options(level=95)


def test_numbers_of_a_sentence_are_written_out():
    found = [in_full(value) for value in (290_212.4, -0.0123456, 12.0, 1.5e9, 999_960.0)]
    assert found == ["290,200", "-0.01235", "12", "1,500,000,000", "1,000,000"]


@pytest.mark.parametrize(("count", "end"), [(5, []), (6, ["and 1 other, see summary.csv"])])
def test_sentences_say_how_many_series_they_leave_out(count, end):
    numbers = dict.fromkeys(["actual", "predicted", "effect", "effect_lower", "effect_upper", "relative", "tail"], 1.0)
    rows = [{"item_id": k, "intervention": 1, "measure": "average", **numbers} for k in range(count)]
    lines = _told(Impact(*map(pd.DataFrame, ([], rows, [], []))), 0.95)
    assert [line for line in lines if not line.startswith("series ")] == end
    assert len(lines) == count


def test_the_command_writes_tables_and_a_picture(tmp_path, capsys):
    series(count=2).to_csv(tmp_path / "data.csv", index=False)
    command = ["impact", str(tmp_path / "data.csv"), "--output", str(tmp_path / "out"), "--covariates", "x"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".impact.part-0123456789abcdef.png").touch()  # of a call that was killed
    threads = torch.get_num_threads()
    assert main([*command, "--after", "2024-02-10", "--num-samples", "50", "--threads", str(threads)]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "effects.csv",
        "page.html",
        "summary.csv",
        "overall.csv",
        "impact.png",
    }
    assert len(pd.read_csv(tmp_path / "out" / "effects.csv")) == 2 * 19
    quick = ["--num-samples", "20", "--plot-series", "0", "--seasons", "none"]
    assert main([*command, "--after", "2024-02-10", "2024-02-20", *quick]) == 0
    overall = pd.read_csv(tmp_path / "out" / "overall.csv")
    assert overall["interventions"].tolist() == [2, 2, 2, 2, 4, 4]
    (tmp_path / "dates.csv").write_text("shop;after\ns1;2024-02-15\n")
    assert main([*command, "--dates", str(tmp_path / "dates.csv"), *quick]) == 0
    assert pd.read_csv(tmp_path / "out" / "summary.csv")["item_id"].tolist() == ["s1", "s1"]
    assert not (tmp_path / "out" / "overall.csv").exists()  # of one intervention nothing is overall
    assert main([*command, "--after", "2026-02-10"]) == 2
    assert "expected --after between 2024-01-01" in capsys.readouterr().err


def test_the_page_shows_the_table_of_the_results():
    root = Path(__file__).parents[2]
    script = importlib.import_module("experiments.impact.page")
    rows = pd.read_csv(root / "experiments" / "impact" / "results" / "impact.csv")
    page = script.PAGE.read_text()
    assert script.page(rows) == page
    assert all(f"| {name} |" in page for name in rows["set"])
    assert script.page(rows.assign(average=0.5)) != page
