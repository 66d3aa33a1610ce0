"""Series without enough values: they are left out with a warning."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tsforecast.wording import counted, listed, option

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most
_VOID = "no value"


class Unusable(NamedTuple):
    """A series that can not be used.

    Attributes:
        place: Its number among the series.
        name: Of the series.
        end: Where its rows end, for the message.
        fault: What is wrong with it.
    """

    place: int
    name: str
    end: str
    fault: str


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
    """Warns of the series that are left out.

    Args:
        path: Where the series come from.
        left_out: Those that can not be used.
        total: Number of all series; None where these are a part of them, of which none needs to be left.

    Raises:
        ValueError: If more than half can not be used.
    """
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
