import pytest

from tsforecast.core.components import Level, Season, Trend
from tsforecast.models.parts.component_names import component_names, parse_component


def test_names():
    assert component_names("level + hour_of_day+cycle_of_12", "h") == ["level", "hour_of_day", "cycle_of_12"]
    assert parse_component("level") == Level()
    assert parse_component("damped_trend") == Trend(damped=True)
    assert parse_component("cycle_of_12") == Season(12, "cycle_of_12")
    assert parse_component("hour_of_week").size == 168


@pytest.mark.parametrize(("freq", "states"), [("D", 8), ("h", 32)])
def test_the_paper_has_these_many_states(freq, states):
    assert sum(parse_component(name).size for name in component_names("paper", freq)) == states


@pytest.mark.parametrize("freq", ["s", "15min", "30min", "h", "2h", "D", "B", "W-SUN", "M", "3M", "Q-DEC", "Y-DEC"])
@pytest.mark.parametrize("preset", ["auto", "paper"])
def test_there_is_a_preset_for_every_frequency(freq, preset):
    names = component_names(preset, freq)
    assert any(isinstance(parse_component(name), Level | Trend) for name in names)


@pytest.mark.parametrize("name", ["", "moon", "cycle_of_1", "cycle_of_x", "cycle_of_"])
def test_unknown_names(name):
    with pytest.raises(ValueError, match="unknown component"):
        component_names(name, "h")
