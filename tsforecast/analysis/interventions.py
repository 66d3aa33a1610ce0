"""Series around interventions: the beginning and the end of each, and the known values before."""

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import shown, stamps_of, step_of
from tsforecast.data.tables.dataframes import as_pandas
from tsforecast.data.tables.dates import readings
from tsforecast.wording import counted, option

_LEAST = 8  # observed steps before an intervention
Dates = str | pd.Timestamp | Sequence[str | pd.Timestamp]
Pair = tuple[pd.Timestamp, pd.Timestamp | None]


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
        info: Of its entry, see `tsforecast.data.calendar.stamps`.
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


def pairs_of(after: Dates, until: Dates | None) -> list[Pair]:
    """Return pairs of last steps without and with each intervention.

    Args:
        after: Last time stamp without it, or one for each of several.
        until: Last time stamp with it, or one for each; None for the end, and of several for the next one's `after`.

    Raises:
        ValueError: If they go back, overlap, or are no dates.
    """
    starts, ends = _listed(after), [] if until is None else _listed(until)
    if ends and len(ends) != len(starts):
        raise ValueError(f"expected {option('until')} for each {option('after')}, got {len(ends)} for {len(starts)}")
    return _paired(read_dates(starts, "after"), [*read_dates(ends, "until")] if ends else [None] * len(starts))


def _paired(starts: Sequence[pd.Timestamp], ends: Sequence[pd.Timestamp | None]) -> list[Pair]:
    """Return the pairs, where an end that is None is the next start."""
    pairs: list[Pair] = []
    for start, end, following in zip(starts, ends, [*starts[1:], None], strict=True):
        end = following if end is None else end
        if end is not None and end <= start:
            raise ValueError(
                f"expected {option('until')} later than {option('after')}, got {shown(end)} and {shown(start)}"
            )
        if end is not None and following is not None and following < end:
            raise ValueError(
                f"interventions overlap: one ends at {shown(end)}, the next begins after {shown(following)}"
            )
        pairs.append((start, end))
    return pairs


def _listed(dates: Dates) -> list[Any]:
    return [*dates] if isinstance(dates, list | tuple | np.ndarray | pd.Index | pd.Series) else [dates]


def read_dates(values: Sequence[Any], name: str) -> list[pd.Timestamp]:
    """Return dates as time stamps, in UTC where they have a zone.

    ISO 8601 is read as such. All other text is read in the one way that fits every date, as in files of data.

    Args:
        values: Text or time stamps.
        name: Of the option that has them, for messages.

    Raises:
        ValueError: If one is no date, or day and month can not be told apart.
    """
    parsed: dict[int, Any] = {k: _iso(value) for k, value in enumerate(values)}
    rest = pd.Series({k: str(values[k]).strip() for k, stamp in parsed.items() if stamp is None}, dtype=object)
    if len(rest):
        complete = [reading.stamps for reading in readings(rest) if reading.stamps.notna().all()]
        if not complete:
            raise ValueError(f"expected a date such as 2024-03-01 as {option(name)}, got {', '.join(map(repr, rest))}")
        others = [stamps for stamps in complete[1:] if not stamps.equals(complete[0])]
        if others:
            first, second = (f"{stamps.iloc[0]:%Y-%m-%d}" for stamps in (complete[0], others[0]))
            raise ValueError(
                f"in {rest.iloc[0]!r} day and month can not be told apart; give {option(name, first)}, or {second!r}"
            )
        parsed |= complete[0].to_dict()
    stamps: list[Any] = [pd.Timestamp(parsed[k]) for k in range(len(values))]
    return stamps


def _iso(value: Any) -> pd.Timestamp | None:
    """Return the time stamp of a date in ISO 8601 or of a type of its own; None of other text."""
    if isinstance(value, str):
        value = (
            pd.to_datetime(value.strip(), format="ISO8601", errors="coerce") if value.strip()[:1].isdigit() else pd.NaT
        )
    else:
        value = value.to_timestamp() if isinstance(value, pd.Period) else pd.Timestamp(value)
    if value is pd.NaT:
        return None
    return value.tz_convert(None) if value.tz is not None else value


def pairs_of_table(table: Any) -> dict[str, list[Pair]]:
    """Return the pairs of each series of a table: a row for each intervention, with `after` and, if need be, `until`.

    Args:
        table: A frame, or the path of its file. The first other column names the series. An empty cell of `until` is
            the end of the series, or the next intervention; a series whose `after` is empty has none.

    Raises:
        ValueError: If a column is missing, or dates are not as `pairs_of` expects.
        FileNotFoundError: If there is no such file.
    """
    found: Any = as_pandas(table)
    if not isinstance(found, pd.DataFrame | str | Path):
        raise ValueError(f"expected dates as a frame or the path of its file, got a {type(table).__name__}")
    frame: Any = found if isinstance(found, pd.DataFrame) else _read(Path(found))
    names = [name for name in map(str, frame.columns) if name not in ("after", "until")]
    if "after" not in frame or not names:
        raise ValueError(
            "expected a table with a column that names the series, 'after', and 'until' if need be, got the columns "
            + ", ".join(map(str, frame.columns))
        )
    frame = frame.reset_index(drop=True).replace("", None)
    frame = frame[frame["after"].notna()]
    starts = read_dates([*frame["after"]], "after")
    given = [*frame["until"]] if "until" in frame else [None] * len(frame)
    there = np.flatnonzero(pd.Series(given, dtype=object).notna()).tolist()
    ends = dict(zip(there, read_dates([given[k] for k in there], "until"), strict=True))
    rows: dict[str, list[int]] = {}
    for k in sorted(range(len(starts)), key=starts.__getitem__):
        rows.setdefault(str(frame[names[0]].iloc[k]), []).append(k)
    pairs = {}
    for item, own in rows.items():
        try:
            pairs[item] = _paired([starts[k] for k in own], [ends.get(k) for k in own])
        except ValueError as error:
            raise ValueError(f"series {item!r}: {error}") from error
    return pairs


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return pd.read_csv(path, dtype=str, sep=None, engine="python", keep_default_na=False)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}: expected a table of dates ({error})") from error


def cases_of(entry: Mapping[str, Any], dates: Sequence[Pair], names: Sequence[str]) -> list[Case]:
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
    first, last = (shown(stamp) for stamp in stamps_of(start, len(values), info)[[0, -1]])
    cases = []
    for number, (after, until) in enumerate(dates, 1):
        before, end = (_steps(entry, date, len(values)) for date in (after, until))
        told = shown(after)
        if not 0 < before < len(values):
            raise ValueError(
                f"series {item!r}: expected {option('after')} between {first} and the step before {last}, got {told}"
            )
        if until is not None and _steps(entry, until, None) > len(values):
            raise ValueError(f"series {item!r} ends at {last}, before {option('until')} {shown(until)}")
        seen = ~np.isnan(values[:before])
        if seen.sum() < _LEAST:
            raise ValueError(
                f"series {item!r} has {counted(int(seen.sum()), 'value')} up to {told}: expected at least {_LEAST}, "
                "by which it is known how the series moves without the intervention"
            )
        if np.isnan(values[before:end]).all():
            raise ValueError(f"series {item!r} has no value behind {told}: there is no effect to be seen")
        still = np.ptp(controls[:before][seen], axis=0) == 0
        if still.any():
            raise ValueError(
                f"series {item!r}: the control {names[int(np.argmax(still))]!r} is constant up to {told}, and tells "
                "nothing; leave it out"
            )
        cases.append(Case(item, number, start, values.copy(), controls, before, end - before, info))
        values[before:end] = np.nan
    return cases


def _steps(entry: Mapping[str, Any], date: pd.Timestamp | None, most: int | None) -> int:
    """Return the number of steps of a series up to a date, that of the date among them; of None, all."""
    if date is None:
        assert most is not None
        return most
    start: pd.Period = entry["start"]
    count = (step_of(date, start, entry.get("info")).ordinal - start.ordinal) // start.freq.n + 1
    return count if most is None else min(count, most)
