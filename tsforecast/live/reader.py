"""Another process that reads large bodies: a parser holds all threads of its process until it is done."""

import asyncio
import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from tsforecast.live.form import RefusedError, read

LARGE = 1 << 17  # bytes of a body that this process does not read: to read fewer takes about a millisecond
_NICE = 10  # gives way to the service


class Reader:
    """Reads one large body at a time; its process begins with the first, and ends with the service."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._thread = ThreadPoolExecutor(1, "reader")  # waits for the process
        self._pipe: Connection | None = None

    async def read(self, path: str, body: bytes) -> Any:
        """Return the content of a body, see `form.read`, which says what it raises."""
        kind, found = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, path, body)
        if kind == "refused":
            raise RefusedError(*found)
        if kind == "no JSON":
            raise json.JSONDecodeError(found[0], "", found[1])
        return found

    def close(self) -> None:
        """End the process."""
        self._thread.shutdown()
        if self._pipe is not None:
            self._pipe.close()

    def _ask(self, path: str, body: bytes) -> tuple[str, Any]:
        for _ in range(2):  # a process that was killed begins anew
            pipe = self._pipe or self._begin()
            try:
                pipe.send((path, body, self._most))
                return pipe.recv()
            except (EOFError, OSError):
                pipe.close()
                self._pipe = None
        return "refused", (503, "the process that reads large requests has ended twice; send fewer values at a time")

    def _begin(self) -> Connection:
        """Begin the process; it does not fork, since this one has threads."""
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        context.Process(target=_work, args=(other,), name="reader", daemon=True).start()
        other.close()  # so that the pipe ends with the process
        return self._pipe


def _work(pipe: Connection) -> None:
    """Reads bodies until the service ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service
    if hasattr(os, "nice"):
        os.nice(_NICE)
    while True:
        try:
            path, body, most = pipe.recv()
        except EOFError:
            return
        try:
            answer = "content", read(path, body, most)
        except RefusedError as error:
            answer = "refused", (error.status, error.detail)
        except json.JSONDecodeError as error:
            answer = "no JSON", (error.msg, error.pos)
        pipe.send(answer)
