"""The checks of a request before it reaches the service: host, token, rate and size."""

import asyncio
import contextlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsforecast.io.reading import read_text

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LEAST_TOKEN = 16  # letters
_CLIENTS = 10_000  # whose rates are remembered
_OPEN = "/health"  # needs no token
_OBJECT = 5  # values that an object costs as much as
_MANY = 20_000  # values of a body from which on it waits until none of its kind is answered
_TOGETHER = 16  # bodies of the greatest size that may be held
_REFUSALS = 20  # a second of a client that are answered at once
_PAUSE = 0.5  # seconds before each further one
_PAUSES = 16  # at once: they keep connections from others


@dataclass(frozen=True)
class Limits:
    """Limits of requests."""

    token: str | None = None  # what `Authorization: Bearer` must say; None for none
    # Names that the header Host may have, without a port; empty for all. A page of a browser can not reach a service on
    # this machine under a name of its own then.
    hosts: tuple[str, ...] = ()
    most_bytes: int = 8 << 20  # of a body
    # Values of a body, counted by commas and brackets. Values cost time and memory; bytes hardly do.
    most_values: int = 200_000
    rate: float = 0.0  # requests a second of a client, on average; 0 for any number
    burst: int = 100  # requests of a client at once


def read_token(path: str | Path) -> str:
    """Return the token of a file; a ValueError if it is short, or not one word of ASCII."""
    token = read_text(path, 1024).strip()
    if len(token) < _LEAST_TOKEN or not token.isascii() or len(token.split()) != 1:
        raise ValueError(
            f"{path}: expected a token, one word of at least {_LEAST_TOKEN} ASCII letters and digits, such as "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` prints"
        )
    return token


class Guard:
    """An ASGI application before another."""

    def __init__(self, app: App, limits: Limits, note: Callable[[str, int, float], None] | None = None) -> None:
        self.app, self.limits, self.note = app, limits, note
        self._rates = _Rates(limits.rate, limits.burst)
        self._held = _Held()
        self._refusals, self._pauses = _Rates(_REFUSALS, _REFUSALS), asyncio.Semaphore(_PAUSES)
        self._one_by_one = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets
            return
        if self.note is None:
            await self._answer(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, noting)
        finally:
            self.note(scope["path"], status, time.perf_counter() - start)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        fault = self._fault(scope, headers)
        if fault is not None:
            await self._refuse(scope, send, *fault)
            return
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            await self.app(scope, receive, send)
            return
        body = _Body(receive, self.limits, self._held)
        try:
            fault = await body.read(headers.get(b"content-length", b""))
            if fault is None:
                async with self._one_by_one if body.values > _MANY else contextlib.nullcontext():
                    await self.app(scope, body.replay, send)
        finally:
            body.drop()
        if fault is not None:
            await self._refuse(scope, send, *fault)

    def _fault(self, scope: Message, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        limits = self.limits
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if limits.hosts and name not in limits.hosts:
            return 421, "expected a Host of this machine"
        if not self._rates.allows(_client(scope)):
            return 429, f"expected at most {limits.rate:g} requests a second"
        if limits.token is not None and scope["path"] != _OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + limits.token.encode()):
                return 401, "expected Authorization: Bearer TOKEN"
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json":  # what a form of a strange page could send, too, is refused
                return 415, "expected Content-Type: application/json"
        return None

    async def _refuse(self, scope: Message, send: Send, status: int, text: str) -> None:
        """Answers a fault, late where a client has many: one that sends again at once would take the time of others."""
        if not self._refusals.allows(_client(scope)) and not self._pauses.locked():
            async with self._pauses:
                await asyncio.sleep(_PAUSE)
        headers = [(b"content-type", b"application/json")]
        extra = {
            401: (b"www-authenticate", b"Bearer"),
            429: (b"retry-after", b"1"),
            413: (b"connection", b"close"),
            503: (b"connection", b"close"),
        }
        if status in extra:
            headers.append(extra[status])
        body = b'{"detail":"' + text.encode() + b'"}'
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class _Held:
    """Bytes of all bodies that are read or answered now."""

    bytes: int = 0


@dataclass
class _Body:
    """The body of a request, read up to its limits before anything is done with it."""

    receive: Receive
    limits: Limits
    held: _Held
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    values: int = 1
    gone: Message | None = None

    async def read(self, announced: bytes) -> tuple[int, str] | None:
        """Returns the fault of the body; None if it has none."""
        limits = self.limits
        too_long = 413, f"expected a body of at most {limits.most_bytes} bytes"
        if announced.isdigit() and int(announced) > limits.most_bytes:
            return too_long
        more = True
        while more:
            message = await self.receive()
            if message["type"] != "http.request":
                self.gone = message
                return None
            part = message.get("body", b"")
            self.parts.append(part)
            self.size += len(part)
            self.held.bytes += len(part)
            self.values += part.count(b",") + part.count(b"[") + _OBJECT * part.count(b"{")
            if self.size > limits.most_bytes:
                return too_long
            if self.values > limits.most_values:
                return 413, f"expected a body of at most {limits.most_values} values; send fewer at a time"
            if self.held.bytes > _TOGETHER * limits.most_bytes:
                return 503, "too many requests are read; send again later"
            more = message.get("more_body", False)
        return None

    def drop(self) -> None:
        """Forgets it."""
        self.held.bytes -= self.size
        self.parts, self.size = [], 0

    async def replay(self) -> Message:
        """Gives the body as one message, then the messages of the server."""
        if self.gone is not None:
            return self.gone
        if self.parts:
            body, self.parts = b"".join(self.parts), []
            return {"type": "http.request", "body": body, "more_body": False}
        return await self.receive()


class _Rates:
    """A bucket of tokens for each client, of those that were heard last."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Returns whether a client may make a request now, and counts it."""
        if not self.rate:
            return True
        now = time.monotonic()
        left, before = self._known.pop(client, (float(self.burst), now))
        left = min(self.burst, left + (now - before) * self.rate)
        self._known[client] = (left - (left >= 1), now)
        if len(self._known) > _CLIENTS:
            self._known.popitem(last=False)
        return left >= 1


def _client(scope: Message) -> str:
    return scope["client"][0] if scope.get("client") else ""
