"""Components of an ISSM by name."""

from tsforecast.core.components import Component, Level, Season, Trend
from tsforecast.seasons import SEASONS, num_factors

_OTHERS = {
    "level": Level(),
    "damped_level": Level(damped=True),
    "trend": Trend(),
    "damped_trend": Trend(damped=True),
}

# Components by unit of the frequency: the default, and those of the paper.
_PRESETS = {
    "min": ("damped_level+hour_of_day+hour_by_kind_of_day+day_of_week", "level+hour_of_day+day_of_week"),
    "h": ("damped_level+hour_of_day+hour_by_kind_of_day+day_of_week", "level+hour_of_day+day_of_week"),
    "D": ("level+damped_level+day_of_week", "level+day_of_week"),
    "B": ("level", "level+day_of_week"),
    "W": ("level", "level"),
    "M": ("damped_trend+month_of_year", "level+month_of_year"),
    "Q": ("damped_trend+quarter_of_year", "level+quarter_of_year"),
}


def component_names(components: str, freq: str) -> list[str]:
    """Return the names in a description such as "damped_level+hour_of_day+day_of_week".

    Args:
        components: Names joined by "+"; "auto" chooses by the frequency, "paper" takes those of the switching-model
            papers (daily: level + day of week, 8 states; hourly: level + hour of day + day of week, 32 states).
        freq: Alias of a period, for example "h" or "15min".

    Raises:
        ValueError: If a name is not known.
    """
    if components in ("auto", "paper"):
        unit = freq.lstrip("0123456789").split("-")[0]
        components = _PRESETS.get(unit, ("level", "level"))[components == "paper"]
    names = [name.strip() for name in components.split("+")]
    for name in names:
        parse_component(name)
    if len(set(names)) < len(names):
        raise ValueError(f"expected every component once, got {components!r}")
    return names


def parse_component(name: str) -> Component:
    """Return the component of a name.

    Raises:
        ValueError: If it is not known.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if factors := num_factors(name):
        return Season(factors, name)
    raise ValueError(
        f"unknown component {name!r}: expected one of {', '.join([*_OTHERS, *SEASONS])} or cycle_of_N, "
        "joined by '+', or 'auto' or 'paper'"
    )
