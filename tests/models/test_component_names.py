import pytest

from tsforecast.core.components import Level, Trend
from tsforecast.core.seasonal import Harmonics, Season
from tsforecast.models.parts.component_names import component_names, parse_component, refuse_still


def test_names():
    assert component_names("level + hour_of_day+cycle_of_12", "h") == ["level", "hour_of_day", "cycle_of_12"]
    assert parse_component("level") == Level()
    assert parse_component("damped_trend") == Trend(damped=True)
    assert parse_component("cycle_of_12") == Season(12, "cycle_of_12")
    assert parse_component("hour_of_week").size == 168


@pytest.mark.parametrize(
    ("name", "freq", "cycle", "states"),
    [
        ("year", "D", 527_040, 6),
        ("year_with_5_harmonics", "M", 527_040, 10),
        ("year_with_1_harmonic", "Q-DEC", 527_040, 2),
        ("month", "B", 44_640, 6),
        ("week", "D", 10_080, 6),
        ("day_with_11_harmonics", "h", 1440, 22),
        ("cycle_of_365_with_2_harmonics", "Y-DEC", 365, 4),
    ],
)
def test_names_of_smooth_seasons(name, freq, cycle, states):
    """The finest of them have as many harmonics as the steps tell apart."""
    assert component_names(f"level+{name}", freq) == ["level", name]
    assert parse_component(name) == Harmonics(cycle, states // 2, name)
    assert parse_component(name).size == states


@pytest.mark.parametrize(
    ("name", "freq", "remedy"),
    [
        ("year", "Q-DEC", "at most 1 .* year_with_1_harmonics"),
        ("year_with_6_harmonics", "M", "at most 5 .* year_with_5_harmonics"),
        ("year", "Y-DEC", "leave it out"),
        ("week", "B", "week_with_2_harmonics"),
        ("week", "W-SUN", "leave it out"),
        ("day", "D", "leave it out"),
        ("cycle_of_6_with_3_harmonics", "D", "cycle_of_6_with_2_harmonics"),
    ],
)
def test_harmonics_that_steps_do_not_tell_apart(name, freq, remedy):
    with pytest.raises(ValueError, match=remedy):
        component_names(f"level+{name}", freq)


def test_seasons_that_are_the_same_at_every_step_are_refused():
    for name, freq in (("hour_of_day", "D"), ("day_of_week", "W-FRI"), ("minute_of_hour", "h"), ("day_of_month", "M")):
        with pytest.raises(ValueError, match=f"shorter than the cycle of '{name}'"):
            refuse_still(f"level, level+{name}", freq)
    for name, freq in (
        ("hour_by_kind_of_day", "D"),
        ("quarter_of_year", "M"),
        ("day_of_week", "7D"),
        ("day_of_week", "B"),
    ):
        refuse_still(f"level+{name}", freq)  # of 7 days it is in the usual sum


@pytest.mark.parametrize("names", ["year+year_with_2_harmonics", "cycle_of_9+cycle_of_9_with_2_harmonics"])
def test_a_cycle_stands_once(names):
    with pytest.raises(ValueError, match="every component once"):
        component_names(names, "D")


@pytest.mark.parametrize(("freq", "states"), [("D", 8), ("h", 32)])
def test_the_paper_has_these_many_states(freq, states):
    assert sum(parse_component(name).size for name in component_names("paper", freq)) == states


@pytest.mark.parametrize("freq", ["s", "15min", "30min", "h", "2h", "D", "B", "W-SUN", "M", "3M", "Q-DEC", "Y-DEC"])
@pytest.mark.parametrize("preset", ["auto", "paper"])
def test_there_is_a_preset_for_every_frequency(freq, preset):
    names = component_names(preset, freq)
    assert any(isinstance(parse_component(name), Level | Trend) for name in names)


@pytest.mark.parametrize(
    "name", ["", "moon", "cycle_of_1", "cycle_of_x", "cycle_of_", "year_with_0_harmonics", "years"]
)
def test_unknown_names(name):
    with pytest.raises(ValueError, match="unknown component"):
        component_names(name, "h")
