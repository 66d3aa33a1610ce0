"""Components of an ISSM by name."""

import math
from collections.abc import Iterable

from tsforecast.core.components import Component, Level, Trend
from tsforecast.core.seasonal import Harmonics, Season
from tsforecast.data.calendar.frequency import steps_per_day
from tsforecast.seasons import CYCLES, DEFAULT_HARMONICS, SEASONS, cycle_length, num_factors, smooth_season

_OTHERS = {"level": Level(), "damped_level": Level(damped=True), "trend": Trend(), "damped_trend": Trend(damped=True)}

# One level that forgets within hours has no error of days: intervals a week ahead are far too narrow. One that does not
# forget follows the weather of hours badly.
_HOURLY = "level+damped_level+hour_of_day+hour_by_kind_of_day+day_of_week"
# Components by unit of the frequency: the default, and those of the paper.
_PRESETS = {
    "s": ("level+damped_level+minute_of_hour", "level+minute_of_hour"),
    "min": (_HOURLY, "level+hour_of_day+day_of_week"),
    "h": (_HOURLY, "level+hour_of_day+day_of_week"),
    "D": ("level+damped_level+day_of_week", "level+day_of_week"),
    "B": ("level", "level+day_of_week"),
    "W": ("level", "level"),
    "M": ("damped_trend+month_of_year", "level+month_of_year"),
    "Q": ("damped_trend+quarter_of_year", "level+quarter_of_year"),
}

# Structures of a bank: all of these with the seasons of the frequency, and some without, for series whose seasons are
# noise. Days and weeks have a year beside these: its prior, not a threshold of length, says what a short history shows.
# 25 harmonics tell 52 weeks apart, such as those before Christmas.
# Below a day, where seasons have many factors, one structure has all of them and some have the day alone.
_KINDS = ("level", "damped_level", "trend", "damped_trend")
_PLAIN = ("level", "damped_trend")
_YEARLY = {
    "D": (("level+day_of_week", "damped_level+day_of_week"), (DEFAULT_HARMONICS,)),
    "W": (("level", "damped_level"), (DEFAULT_HARMONICS, 10, 25)),
}
_BELOW_A_DAY = (
    "damped_level+hour_of_day+hour_by_kind_of_day+day_of_week",
    "damped_level+hour_of_day+day_of_week",
    "damped_level+hour_of_day",
    "level+hour_of_day",
    "damped_level",
)
_BELOW_A_MINUTE = ("damped_level+minute_of_hour", "level+minute_of_hour", "damped_level", "level")


def structures_of(structures: str, freq: str) -> list[str]:
    """Return the descriptions of several structures.

    Args:
        structures: Descriptions joined by ",", each as `component_names` takes it; "auto" chooses by the frequency.
        freq: Alias of a period, for example "h" or "15min".

    Raises:
        ValueError: If a name is not known, or a structure occurs twice.
    """
    if structures == "auto":
        return kinds_of(freq)
    descriptions = ["+".join(component_names(description, freq)) for description in structures.split(",")]
    if len(set(descriptions)) < len(descriptions):
        raise ValueError(f"expected every structure once, got {structures!r}")
    return descriptions


def kinds_of(freq: str) -> list[str]:
    """Return the descriptions of the structures that a bank has for a frequency."""
    unit = freq.lstrip("0123456789").split("-")[0]
    if unit in ("h", "min"):
        return [*_BELOW_A_DAY]
    if unit == "s":
        return [*_BELOW_A_MINUTE]
    seasons = _PRESETS.get(unit, ("level", "level"))[0].split("+")[1:]
    seasons = [name for name in seasons if name not in _OTHERS]
    descriptions = ["+".join([kind, *seasons]) for kind in _KINDS]
    return descriptions + ([*_PLAIN] if seasons else []) + _yearly(unit, freq)


def _yearly(unit: str, freq: str) -> list[str]:
    """Return the structures with a year, of the harmonics that steps tell apart; of half a year or so, with factors."""
    others, harmonics = _YEARLY.get(unit, ((), ()))
    if not others:
        return []
    steps = CYCLES["year"].days * steps_per_day(freq)
    told_apart = [count for count in harmonics if count <= _most_harmonics(steps)]
    years = ["year" if count == DEFAULT_HARMONICS else f"year_with_{count}_harmonics" for count in told_apart]
    if not years and round(steps) > 1:
        years = [f"cycle_of_{round(steps)}"]
    return [f"{other}+{year}" for year in years for other in others]


def component_names(components: str, freq: str) -> list[str]:
    """Return the names in a description such as "damped_level+hour_of_day+day_of_week".

    Seasons such as `hour_of_day` have a factor for every value of an index. Smooth seasons are `day`, `week`, `month`
    and `year`: the position in the cycle to the minute, and three harmonics. `year_with_5_harmonics` has five, and
    `cycle_of_N_with_5_harmonics` is smooth over N steps.

    Args:
        components: Names joined by "+"; "auto" chooses by the frequency, "paper" takes those of the switching-model
            papers (daily: level + day of week, 8 states; hourly: level + hour of day + day of week, 32 states).
        freq: Alias of a period, for example "h" or "15min".

    Raises:
        ValueError: If a name is not known, stands twice, or is a smooth season whose harmonics the steps of the
            frequency do not tell apart.
    """
    if components in ("auto", "paper"):
        unit = freq.lstrip("0123456789").split("-")[0]
        components = _PRESETS.get(unit, ("level", "level"))[components == "paper"]
    names = [name.strip() for name in components.split("+")]
    for name in names:
        parse_component(name)
        _check_harmonics(name, freq)
    smooth = {name: season.cycle for name in names if (season := smooth_season(name))}
    if len({smooth.get(name, name) for name in names}) < len(names):
        raise ValueError(f"expected every component once, got {components!r}")
    return names


def refuse_still(components: str, freq: str) -> None:
    """Raise a ValueError for a season that is the same at every step, as the hour of the day is for days."""
    usual = component_names("auto", freq)
    for name in (one.strip() for one in components.replace(",", "+").split("+")):
        if name in SEASONS and name not in usual and SEASONS[name][2] * steps_per_day(freq) < 1.5:
            raise ValueError(
                f"expected steps shorter than the cycle of {name!r}, got the frequency {freq!r}: leave it out"
            )


def parse_component(name: str) -> Component:
    """Return the component of a name.

    Raises:
        ValueError: If it is not known.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if factors := num_factors(name):
        return Season(factors, name)
    if smooth := smooth_season(name):
        return Harmonics(smooth.positions, smooth.harmonics, name)
    raise ValueError(
        f"unknown component {name!r}: expected one of {', '.join([*_OTHERS, *SEASONS, *CYCLES])}, "
        "year_with_5_harmonics, cycle_of_N or cycle_of_N_with_5_harmonics, joined by '+', or 'auto' or 'paper'"
    )


def steps_in_cycle(name: str, freq: str) -> float | None:
    """Return the mean number of steps in the cycle of a smooth season, and None for other components."""
    smooth = smooth_season(name)
    if smooth is None:
        return None
    return float(cycle_length(smooth.cycle) or CYCLES[smooth.cycle].days * steps_per_day(freq))


def longest_cycle(names: Iterable[str], freq: str) -> int:
    """Return the number of steps in the longest cycle of the smooth seasons among components, 0 where there is none."""
    return max((math.ceil(steps_in_cycle(name, freq) or 0) for name in names), default=0)


def _check_harmonics(name: str, freq: str) -> None:
    """Refuses harmonics with as many coefficients as there are steps in the cycle."""
    smooth, steps = smooth_season(name), steps_in_cycle(name, freq)
    if smooth is None or steps is None or 2 * smooth.harmonics < steps:
        return
    most = _most_harmonics(steps)
    remedy = f"write {smooth.cycle}_with_{most}_harmonics" if most > 0 else "leave it out"
    raise ValueError(
        f"expected at most {most} harmonics of {smooth.cycle!r} at the frequency {freq!r} (steps in a cycle: "
        f"{steps:.3g}), got {name!r}: {remedy}, or take a season with factors"
    )


def _most_harmonics(steps: float) -> int:
    """Return the number of harmonics with fewer coefficients than there are steps in the cycle."""
    return max(math.ceil(steps / 2) - 1, 0)
