"""The service: a store behind HTTP, by FastAPI. This module needs `pip install 'tsforecast[serve]'`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from tsforecast.data.quantiles import check_levels
from tsforecast.live.metrics import CONTENT_TYPE, Metrics
from tsforecast.live.owner import BusyError, Found, Owner, Wanted
from tsforecast.live.rows import NO_SEQUENCE
from tsforecast.live.rules import NEVER, REFUSED
from tsforecast.live.store import FullError, Store, StoreError, counts
from tsforecast.live.wire import (
    MOST_LETTERS,
    MOST_SERIES,
    ForecastRequest,
    Forecasts,
    Item,
    ObservationBatch,
    Observed,
    future_of,
    inputs_of,
    observations_of,
)

_FAULTS = 10  # of a request that an answer names
_LEVELS = (0.1, 0.5, 0.9)
_PART = 1 << 16  # bytes of an answer after which other requests have their turns
_DRAWN = 100  # sample paths behind quantiles that are not exact


@dataclass(frozen=True)
class Sizes:
    """The largest sizes that a request may ask for.

    Attributes:
        observations: Observations of a request.
        items: Series of a request for forecasts.
        cells: Numbers of its answer.
    """

    observations: int = 10_000
    items: int = MOST_SERIES
    cells: int = 2_000_000


def make_app(owner: Owner, sizes: Sizes = Sizes(), metrics: Metrics | None = None) -> FastAPI:
    """Return the service of an owner, who is closed with it.

    Args:
        owner: Of the store.
        sizes: Limits of a request.
        metrics: What /metrics answers; None for what the owner counts alone.
    """
    engine = owner.store.engine
    service = _Service(owner, sizes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(owner.close)

    # The pages that FastAPI would serve at /docs load scripts from elsewhere.
    app = FastAPI(title="tsforecast live", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.route_class = _Route
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StoreError, _unavailable)
    app.add_exception_handler(BusyError, _unavailable)
    app.add_exception_handler(FullError, _full)

    @app.post("/observations", response_model=Observed)
    async def observe(batch: ObservationBatch) -> Response:
        """Add new values, and return forecasts from behind them if wanted; answered once they are on the disk."""
        given = batch["observations"]
        if len(given) > sizes.observations:
            raise HTTPException(413, f"expected at most {sizes.observations} observations, got {len(given)}")
        if not given:
            return _json({"counts": {}, "refused": []})
        try:
            observations = observations_of(engine, given)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        wanted = None
        if "forecast" in batch:
            wanted = service.wanted_of({"items": list(dict.fromkeys(observations.items)), **batch["forecast"]})
        waiting = owner.observe(observations)
        ahead = None if wanted is None else owner.forecast(wanted, waiting)  # the owner takes both at once
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
                forecasts = await asyncio.wrap_future(owner.forecast(wanted)) if known else []
            answer["forecasts"] = await _listed(service.shown(wanted, forecasts))
        return _json(answer)

    @app.get("/forecasts", response_model=Forecasts)
    async def forecast_some(
        item: Annotated[list[str], Query(min_length=1)],
        quantile: Annotated[list[float], Query()] = list(_LEVELS),  # noqa: B006
        steps: Annotated[int | None, Query(ge=1)] = None,
    ) -> Response:
        """Return forecasts of some series from where they end."""
        request: ForecastRequest = {"items": item, "quantiles": quantile}
        return await service.forecasts(request if steps is None else {**request, "steps": steps})

    @app.post("/forecasts", response_model=Forecasts)
    async def forecast(wanted: ForecastRequest) -> Response:
        """Return forecasts of some series from where they end, with what-if values, covariates or sample paths."""
        return await service.forecasts(wanted)

    @app.get("/items/{item:path}", response_model=Item)
    async def look(item: str) -> Response:
        """Return where a series stands."""
        state = await asyncio.wrap_future(owner.ask(lambda store: _item(store, item)))
        if state is None:
            raise HTTPException(404, "there is no such series")
        return _json(state)

    @app.get("/health")
    async def health() -> Response:
        """Return whether the service takes observations."""
        store = owner.store
        state = {
            "status": "ok" if owner.is_alive else "failed",
            "series": len(store.rows),
            "micro_batches": store.number,
        }
        return _json(state, 200 if owner.is_alive else 503)

    shown = Metrics(owner) if metrics is None else metrics

    @app.get("/metrics", response_class=PlainTextResponse)
    async def measure() -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(shown.text(), media_type=CONTENT_TYPE)

    return app


class _Request(Request):
    """A request with its body read by the faster parser: all other requests wait meanwhile."""

    async def json(self) -> Any:
        return orjson.loads(await self.body())


class _Route(APIRoute):
    """A route of such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await answer(_Request(request.scope, request.receive))

        return handle


@dataclass(frozen=True)
class _Service:
    """Answers requests for forecasts."""

    owner: Owner
    sizes: Sizes

    async def forecasts(self, request: ForecastRequest) -> Response:
        wanted = self.wanted_of(request)
        try:
            forecasts = await asyncio.wrap_future(self.owner.forecast(wanted))
            shown = self.shown(wanted, forecasts, request.get("paths", 0))
        except KeyError as error:
            raise HTTPException(404, "there is no such series among the items") from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return _json({"freq": self.owner.store.engine.calendar.freq, "forecasts": await _listed(shown)})

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

    def shown(self, wanted: Wanted, forecasts: list[Found], paths: int = 0) -> list[dict[str, Any]]:
        """Return forecasts as they are answered.

        Raises:
            ValueError: If they reach beyond the year 2261.
        """
        calendar, names = self.owner.store.engine.calendar, [f"{level:g}" for level in wanted.levels]
        times = {start: calendar.stamps(start, wanted.steps) for start in {one.start for one in forecasts}}
        answers = []
        for item, one in zip(wanted.items, forecasts, strict=True):
            quantiles = dict(zip(names, one.quantiles, strict=True))
            answer = {"item": item, "times": times[one.start], "mean": one.mean, "quantiles": quantiles}
            answers.append(answer | {"paths": one.paths[:paths]} if paths and one.paths is not None else answer)
        return answers


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


def _json(content: Any, status: int = 200) -> Response:
    return Response(
        orjson.dumps(content, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json"
    )


async def _listed(answers: list[dict[str, Any]]) -> orjson.Fragment:
    """Return answers as JSON; other requests have their turns in between."""
    parts, size = [], 0
    for one in answers:
        parts.append(orjson.dumps(one, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY))
        size += len(parts[-1])
        if size > _PART:
            await asyncio.sleep(0)
            size = 0
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")


def _plain(value: Any) -> Any:
    return np.ascontiguousarray(value).tolist()


async def _invalid(_: Request, error: Exception) -> Response:
    """Answers an invalid request with its faults, without repeating it."""
    assert isinstance(error, RequestValidationError)
    faults = [{"place": list(one["loc"])[1:], "fault": one["msg"]} for one in error.errors()[:_FAULTS]]
    return _json({"detail": faults}, 422)


async def _unavailable(_: Request, error: Exception) -> Response:
    return _json({"detail": str(error)}, 503)


async def _full(_: Request, error: Exception) -> Response:
    return _json({"detail": str(error)}, 507)
