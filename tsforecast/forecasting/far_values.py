"""Values that are too far from the others of their series: as missing in the past, refused in the future."""

from typing import Any

import numpy as np

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.models import AbstractForecaster, Belief
from tsforecast.models.parts.units import FARTHEST

NAMED = 10  # series that a warning names, at most


def far_values(
    net: AbstractForecaster, batch: dict[str, Any], belief: Belief, windows: list[dict[str, Any]]
) -> dict[str, None]:
    """Return the first value of each series that is too far from the others, by name, value and time."""
    far = (net.units.too_far(batch, belief) & batch["past_observed"]).cpu().numpy()
    found = {}
    for series in np.flatnonzero(far.any((1, 2))):
        window = windows[series]
        time, target = np.argwhere(far[series])[0]
        back = far.shape[1] - time
        value = window["past_target"][len(window["past_target"]) - back, target]
        with expected_alias_warnings():
            period = window["forecast_start"] - int(back)
        found[f"series {window.get('item_id')!r}: {value:g} at {period}"] = None
    return found


def refuse_far_future(net: AbstractForecaster, batch: dict[str, Any], belief: Belief, names: list[Any]) -> None:
    """Refuses known values of the future that are too far from their series."""
    far = net.units.too_far(batch, belief, "known_future").any((1, 2))
    if bool(far.any()):
        raise ValueError(
            f"series {names[int(far.int().argmax())]!r}: a value of known_future is more than {FARTHEST:g} times the "
            "scale of the series away from its centre; correct it, or write NaN where it is free"
        )
