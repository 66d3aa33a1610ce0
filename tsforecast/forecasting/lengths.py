"""How much of the past is trained on where nobody says: by the frequency, and by the cycle of a smooth season."""

from tsforecast.data.frequency import calendar_unit, default_season

# A batch of 64 windows with the seasons of hours then takes about a gigabyte to train on.
_LONGEST_CONTEXT = 2000


def context_by_frequency(freq: str, cycle: int) -> int:
    """Return the number of steps of the past in a training window, by frequency and the cycle of a smooth season."""
    unit, season = calendar_unit(freq)[1], default_season(freq)
    cycle = min(cycle, _LONGEST_CONTEXT)
    if unit in ("h", "min") and season > 1:
        return max(28 * season, cycle)
    return max({"D": 120, "B": 250}.get(unit, max(10 * season, 100)), cycle)


def recent_by_frequency(freq: str, cycle: int) -> int:
    """Return the number of steps of eight weeks where a day is the main season, else or for longer cycles 0."""
    per_day = default_season(freq) if calendar_unit(freq)[1] in ("h", "min") else 0
    return 56 * per_day if 2 * cycle <= 56 * per_day else 0
