"""Connections of the service that have an end: a client that is silent, or slow, locks nobody out.

This module needs `pip install 'tsforecast[serve]'`.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# An answer is handed over whole, in whatever parts: no request waits for a client that takes the last one slowly.
_MOST_WAITING = (1 << 31) - 1  # bytes, the most that uvloop knows
_ANSWER = (
    b'HTTP/1.1 %s\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n{"detail":"%s"}'
)


class Connection(HttpToolsProtocol):
    """A connection with requests that must arrive in time.

    If all places are taken, a new connection replaces the one that has waited longest for a request. Connections that
    never sent one are replaced first.
    """

    # Seconds for the head of a request to arrive, from the connection or its first byte on.
    seconds_of_head: ClassVar[float] = 10
    seconds_of_body: ClassVar[float] = 30  # seconds for its body to arrive, from the end of the head on
    seconds_of_answer: ClassVar[float] = 30  # seconds for an answer to be taken
    most_head: ClassVar[int] = 64 << 10  # bytes of a head

    _clock: asyncio.TimerHandle | None = None
    _head: int | None = 0  # bytes of a head that is not complete
    _served = False  # whether a request has come
    _waits = True  # for a request, or the rest of one

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(_MOST_WAITING)
        most, self.limit_concurrency = self.limit_concurrency, None  # else uvicorn counts those that had to go as well
        self._start(self.seconds_of_head)
        if most is not None and len(self.connections) > most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > self.most_head:
            self._refuse(b"431 Request Header Fields Too Large", b"expected a shorter head of the request")

    def on_message_begin(self) -> None:
        """Begin the time of the head, unless it has begun with the connection."""
        super().on_message_begin()
        self._waits = True
        if self._served:
            self._start(self.seconds_of_head)

    def on_headers_complete(self) -> None:
        """Begin the time of the body."""
        self._head, self._served = None, True
        self._start(self.seconds_of_body)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take note of a complete request; the next bytes are the head of the next one."""
        self._stop()
        self._head, self._waits = 0, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(self.seconds_of_answer, self.transport.abort)
        elif self._clock is None and self.timeout_keep_alive_task is not None:  # no further request is here already
            self._waits, self._since = True, self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection without requests, and drop the rest of its last answer."""
        self.transport.abort()

    def _make_room(self) -> None:
        """Ends the connection that has waited longest, or this one where all others are answered."""
        waiting = [one for one in self.connections if isinstance(one, Connection) and one._waits and one is not self]
        if not waiting:
            self._refuse(b"503 Service Unavailable", b"as many connections as there may be are answered")
            return
        other = min(waiting, key=lambda one: (one._served, one._since))
        self.connections.discard(other)
        other.transport.abort()

    def _start(self, seconds: float) -> None:
        self._stop()
        self._since = self.loop.time()
        self._clock = self.loop.call_later(seconds, self._refuse, b"408 Request Timeout", b"the request took too long")

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: bytes, text: bytes) -> None:
        """Ends the connection, and says why where no answer has begun."""
        self._stop()
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self.transport.write(_ANSWER % (status, len(text) + 13, text))
            self.transport.close()
            self.loop.call_later(1, self.transport.abort)
