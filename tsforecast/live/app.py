"""The service: a store behind HTTP, by FastAPI. This module needs `pip install 'tsforecast[serve]'`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from tsforecast.live.answers import answered, invalid
from tsforecast.live.form import MOST_FAULTS, RefusedError
from tsforecast.live.metrics import Metrics
from tsforecast.live.owner import BusyError, Owner
from tsforecast.live.reader import LARGE, Reader
from tsforecast.live.service import Service, Sizes
from tsforecast.live.store import FullError, StoreError
from tsforecast.live.wire import Forecasts, Item, Observed


def make_app(owner: Owner, sizes: Sizes = Sizes(), metrics: Metrics | None = None) -> FastAPI:
    """Return the service of an owner, who is closed with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(reader.close)
        await asyncio.to_thread(owner.close)

    reader = Reader(sizes.observations)
    # The pages that FastAPI would serve at /docs load scripts from elsewhere.
    app = FastAPI(title="tsforecast live", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.route_class = _Route
    app.state.reader = reader
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StoreError, _unavailable)
    app.add_exception_handler(BusyError, _unavailable)
    app.add_exception_handler(FullError, _full)
    service = Service(owner, sizes, Metrics(owner) if metrics is None else metrics)
    app.post("/observations", response_model=Observed)(service.observe)
    app.get("/forecasts", response_model=Forecasts)(service.forecast_some)
    app.post("/forecasts", response_model=Forecasts)(service.forecast)
    app.get("/items/{item:path}", response_model=Item)(service.look)
    app.get("/health")(service.health)
    app.get("/metrics", response_class=PlainTextResponse)(service.measure)
    return app


class _Request(Request):
    """A request with its body read by the faster parser, and a large one by another process: others would wait."""

    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= LARGE:
            return orjson.loads(body)
        try:
            return await self.app.state.reader.read(self.url.path, body)
        except RefusedError as error:
            raise HTTPException(error.status, error.detail) from error


class _Route(APIRoute):
    """A route of such requests; what takes arguments refuses unknown ones in the address, as in a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer, taken = super().get_route_handler(), self.dependant
        known = {field.alias for field in taken.query_params}
        is_strict = bool(taken.query_params or taken.path_params or taken.body_params)

        async def handle(request: Request) -> Response:
            if is_strict and (strange := [name for name in request.query_params if name not in known]):
                faults = [{"loc": ("query", name), "msg": "Extra inputs are not permitted"} for name in strange]
                raise RequestValidationError(faults)
            return await answer(_Request(request.scope, request.receive))

        return handle


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid([{"place": list(one["loc"])[1:], "fault": one["msg"]} for one in error.errors()[:MOST_FAULTS]])


async def _unavailable(_: Request, error: Exception) -> Response:
    return answered({"detail": str(error)}, 503)


async def _full(_: Request, error: Exception) -> Response:
    return answered({"detail": str(error)}, 507)
