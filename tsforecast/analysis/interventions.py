"""Series around interventions: where each begins and ends, and what is known before."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.data.stamps import stamps_of, step_of
from tsforecast.data.wording import counted, option

_LEAST = 8  # observed steps before an intervention
Dates = str | pd.Timestamp | Sequence[str | pd.Timestamp]


@dataclasses.dataclass(frozen=True)
class Case:
    """A series around one intervention.

    Attributes:
        item: Its name.
        number: Of the intervention.
        start: First step of the series.
        values: Of all steps; NaN where missing, and within interventions before.
        controls: Of all steps, (time, control).
        before: Steps without the intervention.
        horizon: Steps with it.
        info: Of its entry, see `tsforecast.data.stamps`.
    """

    item: str
    number: int
    start: pd.Period
    values: NDArray[np.float64]
    controls: NDArray[np.float64]
    before: int
    horizon: int
    info: Mapping[str, Any] | None

    def stamps(self, first: int, steps: int) -> NDArray[Any]:
        """Return the time stamps of steps from a step of the series on."""
        with expected_alias_warnings():
            return stamps_of(self.start + first, steps, self.info)


def pairs_of(after: Dates, until: Dates | None) -> list[tuple[pd.Timestamp, pd.Timestamp | None]]:
    """Return pairs of last steps without and with each intervention.

    Args:
        after: Last time stamp without it, or one for each of several.
        until: Last time stamp with it, or one for each; None for the end, and of several for the next one's `after`.

    Raises:
        ValueError: If they go back, overlap, or are no dates.
    """
    starts = [_date(x, "after") for x in ([after] if isinstance(after, str | pd.Timestamp) else after)]
    ends = [] if until is None else [until] if isinstance(until, str | pd.Timestamp) else [*until]
    if ends and len(ends) != len(starts):
        raise ValueError(f"expected {option('until')} for each {option('after')}, got {len(ends)} for {len(starts)}")
    later: list[pd.Timestamp | None] = [*starts[1:], None]
    last = [_date(x, "until") for x in ends] if ends else later
    for start, end, following in zip(starts, last, later, strict=True):
        if end is not None and end <= start:
            raise ValueError(f"expected {option('until')} later than {option('after')}, got {end} and {start}")
        if end is not None and following is not None and following < end:
            raise ValueError(f"interventions overlap: one ends at {end}, the next begins after {following}")
    return [*zip(starts, last, strict=True)]


def _date(value: str | pd.Timestamp, name: str) -> pd.Timestamp:
    try:
        found: Any = pd.Timestamp(value)
    except ValueError as error:
        raise ValueError(f"expected a date such as 2024-03-01 as {option(name)}, got {value!r}") from error
    if found is pd.NaT:
        raise ValueError(f"expected a date such as 2024-03-01 as {option(name)}, got {value!r}")
    return found.tz_convert(None) if found.tz is not None else found


def cases_of(
    entry: Mapping[str, Any], dates: Sequence[tuple[pd.Timestamp, pd.Timestamp | None]], names: Sequence[str]
) -> list[Case]:
    """Return a series around each intervention.

    Args:
        entry: The series, of one target.
        dates: Last steps without and with each intervention.
        names: Of its controls.

    Raises:
        ValueError: If a date is outside of it, too little is known before, or a control tells nothing.
    """
    item, start, info = str(entry.get("item_id")), entry["start"], entry.get("info")
    values = np.asarray(entry["target"], np.float64).copy()
    controls = np.asarray(entry.get("feat_dynamic_real", np.zeros((0, len(values)))), np.float64)[:, : len(values)].T
    with expected_alias_warnings():
        last = start + (len(values) - 1)
    found = []
    for number, (after, until) in enumerate(dates, 1):
        before, end = (_steps(entry, date, len(values)) for date in (after, until))
        if not 0 < before < len(values):
            raise ValueError(
                f"series {item!r}: expected {option('after')} between {start} and the step before {last}, got {after}"
            )
        if until is not None and _steps(entry, until, None) > len(values):
            raise ValueError(f"series {item!r} ends at {last}, before {option('until')} {until}")
        seen = ~np.isnan(values[:before])
        if seen.sum() < _LEAST:
            raise ValueError(
                f"series {item!r} has {counted(int(seen.sum()), 'value')} up to {after}: expected at least {_LEAST}, "
                "by which it is known how the series moves without the intervention"
            )
        if np.isnan(values[before:end]).all():
            raise ValueError(f"series {item!r} has no value behind {after}: there is no effect to be seen")
        still = np.ptp(controls[:before][seen], axis=0) == 0
        if still.any():
            raise ValueError(
                f"series {item!r}: the control {names[int(np.argmax(still))]!r} is constant up to {after}, and tells "
                "nothing; leave it out"
            )
        found.append(Case(item, number, start, values.copy(), controls, before, end - before, info))
        values[before:end] = np.nan
    return found


def _steps(entry: Mapping[str, Any], date: pd.Timestamp | None, most: int | None) -> int:
    """Return the number of steps of a series up to a date, that of the date among them; of None, all."""
    if date is None:
        assert most is not None
        return most
    start: pd.Period = entry["start"]
    count = (step_of(date, start, entry.get("info")).ordinal - start.ordinal) // start.freq.n + 1
    return count if most is None else min(count, most)
