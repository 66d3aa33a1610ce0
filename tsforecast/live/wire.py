"""The way of requests into arrays, and the form of answers; that of requests is in `form.py`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from tsforecast.data.checks import check_values
from tsforecast.live.engine import Engine
from tsforecast.live.form import MOST_SERIES, Checked, Observation, slices_of
from tsforecast.live.rows import NO_SEQUENCE
from tsforecast.live.rules import Observations, joined


class Forecast(TypedDict):
    """A forecast of a series; lists have one entry for each step, and where there are several targets these inside."""

    item: str
    times: list[str]
    mean: list[Any]
    quantiles: dict[str, list[Any]]
    paths: NotRequired[list[Any]]


class Forecasts(TypedDict):
    """Forecasts in the order of the request."""

    freq: str
    forecasts: list[Forecast]


class Observed(TypedDict):
    """The outcomes of observations."""

    counts: Annotated[dict[str, int], Field(description="observations by outcome: applied, repeated, late, ..")]
    refused: Annotated[list[dict[str, Any]], Field(description="place in the batch, and reason")]
    forecasts: NotRequired[Annotated[list[Forecast], Field(description="of the series that are known")]]


class Item(TypedDict):
    """Where a series stands."""

    item: str
    next_time: Annotated[str, Field(description="first period that has not been seen")]
    sequence: Annotated[int | None, Field(description="last sequence number")]
    warming_up: Annotated[bool, Field(description="whether it has too few values to keep its scale")]
    location: list[float]
    scale: list[float]


def most_values(engine: Engine, observations: int) -> int:
    """Return the most values of a body: room for so many observations, or for forecasts of all series."""
    width = engine.data.num_targets + engine.num_covariates
    return max(observations * (12 + width), MOST_SERIES * (4 + engine.horizon * (2 + width))) + 1000


async def read_observations(engine: Engine, given: list[Observation] | Checked) -> Observations:
    """Return observations as arrays, up to the first fault; other requests have their turns in between.

    Args:
        engine: Of the model.
        given: As they came, or checked by another process.

    Raises:
        RefusedError: If they do not have the form of observations.
        ValueError: If a time or a value is not as the model expects.
    """
    parts = []
    for some in slices_of(given):
        parts.append(_observations_of(engine, some))
        await asyncio.sleep(0)
    return parts[0] if len(parts) == 1 else joined(parts)


def _observations_of(engine: Engine, given: Sequence[Observation]) -> Observations:
    data = engine.data
    values = rows_of([one["value"] for one in given], data.num_targets, "value")
    units = engine.net.units
    check_values(values.T, units.support, units.largest_value, "value")
    inputs = _covariates([one.get("covariates") for one in given], engine)
    return Observations(
        [one["item"] for one in given],
        engine.calendar.ordinals_of([one["time"] for one in given]),
        np.array([one.get("sequence", NO_SEQUENCE) for one in given], np.int64),
        values,
        inputs,
    )


def future_of(engine: Engine, items: Sequence[str], steps: int, given: Mapping[str, list[Any]]) -> NDArray[np.float64]:
    """Return what-if values (series, step, target), NaN where free; a ValueError if the model expects others."""
    targets, units = engine.data.num_targets, engine.net.units
    future = np.full((len(items), steps, targets), np.nan)
    if strange := given.keys() - set(items):
        raise ValueError(f"known: expected series that are among the items, got {len(strange)} others")
    for place, item in enumerate(items):
        if item in given:
            values = rows_of(given[item], targets, "known")
            if len(values) > steps:
                raise ValueError(f"known: expected at most {steps} steps, got {len(values)}")
            check_values(values.T, units.support, units.largest_value, "known")
            future[place, : len(values)] = values
    return future


def inputs_of(
    engine: Engine, items: Sequence[str], steps: int, given: Mapping[str, list[list[float]]]
) -> NDArray[np.float64] | None:
    """Return future covariates (series, step, covariate), all of them; None in a model without."""
    count = engine.num_covariates
    if not count:
        if given:
            raise ValueError("covariates: the model has none")
        return None
    standard = []
    for item in items:
        rows = given.get(item, [])
        if len(rows) < steps or any(len(row) != count for row in rows):
            raise ValueError(f"covariates: expected {steps} steps of {count} numbers each for every item")
        standard.append(engine.covariates_of(np.array(rows[:steps], np.float64)))
    return np.stack(standard)


def rows_of(values: Sequence[Any], targets: int, name: str) -> NDArray[np.float64]:
    """Return values (observation, target), NaN where None; a ValueError for another number of targets."""
    if targets == 1:
        if not any(isinstance(value, list) for value in values):
            return np.array(values, np.float64)[:, None]
        values = [value if isinstance(value, list) else [value] for value in values]
    if any(not isinstance(value, list) or len(value) != targets for value in values):
        raise ValueError(f"{name}: expected {'a number' if targets == 1 else f'{targets} numbers in a list'} each")
    return np.array(values, np.float64).reshape(-1, targets)


def _covariates(given: Sequence[list[float] | None], engine: Engine) -> NDArray[np.float64]:
    count = engine.num_covariates
    if any((0 if one is None else len(one)) != count for one in given):
        raise ValueError(f"covariates: expected {count or 'no'} numbers with each observation, as in the training data")
    if not count:
        return np.zeros((len(given), 0))
    return engine.covariates_of(np.array(given, np.float64))
