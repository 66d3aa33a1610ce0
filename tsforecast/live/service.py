"""The answers of the service, a method for each path. This module needs `pip install 'tsforecast[serve]'`."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from fastapi import HTTPException, Query, Response

from tsforecast.data.quantiles import check_levels
from tsforecast.live.answers import answered, answered_in_parts
from tsforecast.live.form import (
    MOST_LETTERS,
    MOST_SERIES,
    Checked,
    ForecastRequest,
    Known,
    ObservationBatch,
    RefusedError,
    check_count,
)
from tsforecast.live.metrics import CONTENT_TYPE, Metrics
from tsforecast.live.owner import Found, Owner, Wanted
from tsforecast.live.rows import NO_SEQUENCE
from tsforecast.live.rules import NEVER, REFUSED
from tsforecast.live.store import Store, counts
from tsforecast.live.wire import future_of, inputs_of, read_observations

_LEVELS = (0.1, 0.5, 0.9)
_DRAWN = 100  # sample paths behind quantiles that are not exact


@dataclass(frozen=True)
class Sizes:
    """The largest sizes that a request may ask for."""

    observations: int = 10_000  # observations of a request
    items: int = MOST_SERIES  # series of a request for forecasts
    cells: int = 2_000_000  # numbers of its answer


@dataclass(frozen=True)
class Service:
    """The answers of a service, a method each."""

    owner: Owner
    sizes: Sizes
    metrics: Metrics

    async def observe(self, batch: Annotated[ObservationBatch, Known]) -> Response:
        """Add new values, and return forecasts from behind them if wanted; answered once they are on the disk."""
        given = batch["observations"]
        try:
            if not isinstance(given, Checked):
                check_count(given, self.sizes.observations)
            if not given:
                return answered({"counts": {}, "refused": []})
            observations = await read_observations(self.owner.store.engine, given)
        except RefusedError as error:
            return answered({"detail": error.detail}, error.status)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        wanted = None
        if "forecast" in batch:
            wanted = self.wanted_of({"items": list(dict.fromkeys(observations.items)), **batch["forecast"]})
        waiting = self.owner.observe(observations)
        ahead = None if wanted is None else self.owner.forecast(wanted, waiting)  # the owner takes both at once
        forecasts: list[Found] = []
        if ahead is not None:  # the later one: to be woken between the two takes from the owner's time
            with contextlib.suppress(KeyError):  # observations of some items are refused
                forecasts = await asyncio.wrap_future(ahead)
        outcomes = await asyncio.wrap_future(waiting)
        refused = [{"place": k, "reason": REFUSED[name]} for k, name in enumerate(outcomes) if name in REFUSED]
        answer: dict[str, Any] = {"counts": counts(outcomes), "refused": refused}
        if wanted is not None:
            if not forecasts:
                known = {item for item, name in zip(observations.items, outcomes, strict=True) if name not in NEVER}
                wanted = replace(wanted, items=[item for item in wanted.items if item in known])
                forecasts = await asyncio.wrap_future(self.owner.forecast(wanted)) if known else []
            return await answered_in_parts(answer, self.shown(wanted, forecasts))
        return answered(answer)

    async def forecast_some(
        self,
        item: Annotated[list[str], Query(min_length=1)],
        quantile: Annotated[list[float], Query()] = list(_LEVELS),  # noqa: B006
        steps: Annotated[int | None, Query(ge=1)] = None,
    ) -> Response:
        """Return forecasts of some series from where they end."""
        request: ForecastRequest = {"items": item, "quantiles": quantile}
        return await self.forecasts(request if steps is None else {**request, "steps": steps})

    async def forecast(self, wanted: Annotated[ForecastRequest, Known]) -> Response:
        """Return forecasts of some series from where they end, with what-if values, covariates or sample paths."""
        return await self.forecasts(wanted)

    async def look(self, item: str) -> Response:
        """Return where a series stands."""
        state = await asyncio.wrap_future(self.owner.ask(lambda store: _item(store, item)))
        if state is None:
            raise HTTPException(404, f"there is no series {item!r}")
        return answered(state)

    async def health(self) -> Response:
        """Return whether the service takes observations."""
        store = self.owner.store
        state = {
            "status": "ok" if self.owner.is_alive else "failed",
            "series": len(store.rows),
            "micro_batches": store.number,
        }
        return answered(state, 200 if self.owner.is_alive else 503)

    async def measure(self) -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def forecasts(self, request: ForecastRequest) -> Response:
        """Return the forecasts that a request asks for."""
        wanted = self.wanted_of(request)
        try:
            forecasts = await asyncio.wrap_future(self.owner.forecast(wanted))
            shown = self.shown(wanted, forecasts, request.get("paths", 0))
        except KeyError as error:
            raise HTTPException(404, f"there is no series {error}") from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return await answered_in_parts({"freq": self.owner.store.engine.calendar.freq}, shown)

    def wanted_of(self, request: ForecastRequest) -> Wanted:
        """Return the forecasts that a request asks for; an HTTPException says the fault in it."""
        engine, items = self.owner.store.engine, request["items"]
        steps = request.get("steps", engine.horizon)
        if len(items) > self.sizes.items:
            raise HTTPException(413, f"expected at most {self.sizes.items} items, got {len(items)}")
        try:
            levels = _checked(tuple(request.get("quantiles", _LEVELS)))
            if steps > engine.horizon:
                raise ValueError(f"steps: expected at most {engine.horizon}, got {steps}")
            paths = request.get("paths", 0)
            drawn = paths if engine.net.inference.has_marginals else max(paths, _DRAWN)
            cells = len(items) * steps * engine.data.num_targets * (1 + len(levels) + drawn)
            if cells > self.sizes.cells:
                raise HTTPException(413, f"expected an answer of at most {self.sizes.cells} numbers, got {cells}")
            future = future_of(engine, items, steps, request["known"]) if "known" in request else None
            inputs = inputs_of(engine, items, steps, request.get("covariates", {}))
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return Wanted(items, steps, levels, drawn, future, inputs)

    def shown(self, wanted: Wanted, forecasts: list[Found], paths: int = 0) -> Iterator[dict[str, Any]]:
        """Return forecasts as they are answered, each made when asked for; a ValueError beyond the year 2261."""
        calendar, names = self.owner.store.engine.calendar, [f"{level:g}" for level in wanted.levels]
        times = {start: calendar.stamps(start, wanted.steps) for start in {one.start for one in forecasts}}
        return (
            {"item": item, "times": times[one.start], "mean": one.mean}
            | {"quantiles": dict(zip(names, one.quantiles, strict=True))}
            | ({} if one.paths is None or not paths else {"paths": one.paths[:paths]})
            for item, one in zip(wanted.items, forecasts, strict=True)
        )


@lru_cache(maxsize=1000)
def _checked(levels: tuple[float, ...]) -> tuple[float, ...]:
    return check_levels(levels, "quantiles")


def _item(store: Store, item: str) -> dict[str, Any] | None:
    if len(item) > MOST_LETTERS or item not in store.rows.index:
        return None
    rows, row = store.rows, store.rows.index[item]
    belief = store.engine.layout.belief(rows.gather(np.array([row])))
    powers = rows.exponents[row]
    sequence = int(rows.sequence[row])
    return {
        "item": item,
        "next_time": store.engine.calendar.stamp(int(rows.end[row])),
        "sequence": None if sequence == NO_SEQUENCE else sequence,
        "warming_up": row in rows.young,
        "location": np.ldexp(belief.location[0].double().numpy(), powers).tolist(),
        "scale": np.ldexp(belief.scale[0].double().numpy(), powers).tolist(),
    }
