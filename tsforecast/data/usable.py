"""Series without enough values, and values that can only be errors: they are left out with a warning."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.wording import counted, listed, option

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most
_VOID = "no value"
_FEW = 100  # values, among which a single one may be an error; of more, one in so many
_LEAST = 10  # values of a series with errors
_FAR = 100.0  # ranges of the other values, beyond which one is an error


class Unusable(NamedTuple):
    """A series that can not be used."""

    place: int  # its number among the series
    name: str  # of the series
    end: str  # where its rows end, for the message
    fault: str  # what is wrong with it


def unusable(entries: Iterable[tuple[Any, dict[str, Any]]], test_length: int, beyond: bool) -> list[Unusable]:
    """The series without a value before their test part.

    Args:
        entries: Data entries, each behind where its rows end.
        test_length: Steps of the test part.
        beyond: Whether forecasts behind the end are wanted: a trained model can answer with its prior, so a series
            without a value can be used. One without a step can not, since nothing tells where its forecast begins.
    """
    found = []
    for place, (end, entry) in enumerate(entries):
        target, fault = entry["target"], None
        if np.isnan(target).all():
            fault = None if beyond and target.shape[-1] else _VOID
        elif target.shape[-1] <= test_length:
            fault = f"no more than the {counted(test_length, 'step')} of the test windows"
        elif np.isnan(target[..., : target.shape[-1] - test_length]).all():
            fault = f"no value before the {counted(test_length, 'step')} of the test windows"
        if fault is not None:
            found.append(Unusable(place, str(entry["item_id"]), str(end), fault))
    return found


def tell(path: Path, left_out: Sequence[Unusable], total: int | None) -> None:
    """Warns of series left out; a ValueError if more than half of `total` (None for a part) can not be used."""
    if total is not None and len(left_out) > total / 2:
        first = left_out[0]
        split = f"give a shorter {option('prediction_length')} or fewer {option('windows')}, or "
        raise ValueError(
            f"{first.end}: {len(left_out)} of {total} series can not be used: {first.name!r}, which ends here, has "
            f"{first.fault}; {'' if first.fault == _VOID else split}delete such series"
        )
    for fault in dict.fromkeys(one.fault for one in left_out):
        names = [one.name for one in left_out if one.fault == fault]
        log.warning("%s: %d series with %s are left out: %s", path, len(names), fault, listed(names, _NAMED))


def without(entries: Sequence[Any], left_out: Sequence[Unusable]) -> list[Any]:
    """The other entries."""
    places = {one.place for one in left_out}
    return [entry for place, entry in enumerate(entries) if place not in places]


def without_errors(path: Path, series: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Series without values that can only be errors, such as -9999; a warning names them.

    They are a hundredth of a series at most, a hundred times as far from its other values as these from each other, and
    others follow. A model that learns from one, however rare, is far less sure of all.
    """
    entries, found = [], []
    for entry in series:
        target = np.asarray(entry["target"])
        wrong = np.array([_errors(row) for row in np.atleast_2d(target)]).reshape(target.shape)
        if wrong.any():
            entry = {**entry, "target": np.where(wrong, np.nan, target)}
            with expected_alias_warnings():
                step = entry["start"] + int(np.argwhere(wrong)[0, -1])
            found.append(f"{target[wrong][0]:g} of {entry['item_id']} at {step}")
        entries.append(entry)
    if found:
        log.warning(
            "%s: values of %d series are more than %g times as far from all others as these are from each other, and "
            "count as missing, first %s",
            *(path, len(found), _FAR, listed(found, _NAMED)),
        )
    return entries


def _errors(values: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return which values of a series can only be errors; none where all others are the same."""
    seen = values[np.isfinite(values)]
    if len(seen) < _LEAST:
        return np.zeros(len(values), np.bool_)
    few = -(-len(seen) // _FEW)
    low, high = np.partition(seen, [few, len(seen) - 1 - few])[[few, len(seen) - 1 - few]].astype(np.float64)
    span = _FAR * (high - low)
    wrong = (values < low - span) | (values > high + span) if span > 0 else np.zeros(len(values), np.bool_)
    if wrong.any():
        wrong[np.flatnonzero(np.isfinite(values) & ~wrong)[-1] :] = False
    return wrong
