"""JSON of the service; long answers in parts, between which other requests have their turns."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse
from numpy.typing import NDArray

_PART = 1 << 16  # bytes of an answer after which other requests have their turns
_NUMBERS = 1 << 12  # of sample paths that become text at once, or one path


def answered(content: Any, status: int = 200) -> Response:
    """Return an answer."""
    return Response(_text(content), status, media_type="application/json")


def invalid(faults: Sequence[Mapping[str, Any]]) -> Response:
    """Return the answer to an invalid request: its faults, without repeating it."""
    return answered({"detail": faults}, 422)


async def answered_in_parts(content: Mapping[str, Any], forecasts: Iterable[Mapping[str, Any]]) -> Response:
    """Return an answer with forecasts; other requests have their turns while it becomes text, and while it is sent."""
    joined, pieces, size = [], [], 0
    for piece in _pieces(content, forecasts):
        pieces.append(piece)
        size += len(piece)
        if size > _PART:
            joined.append(b"".join(pieces))
            pieces, size = [], 0
            await asyncio.sleep(0)
    joined.append(b"".join(pieces))
    if len(joined) == 1:
        return Response(joined[0], media_type="application/json")
    length = {"content-length": str(sum(map(len, joined)))}
    return StreamingResponse(_in_turns(joined), headers=length, media_type="application/json")


async def _in_turns(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await asyncio.sleep(0)


def _pieces(content: Mapping[str, Any], forecasts: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Gives the text of an answer."""
    yield _text({**content, "forecasts": []})[:-2]
    between = b""
    for one in forecasts:
        yield between
        paths = one.get("paths")
        if paths is None:
            yield _text(one)
        else:
            yield from _with_paths({name: value for name, value in one.items() if name != "paths"}, paths)
        between = b","
    yield b"]}"


def _with_paths(forecast: Mapping[str, Any], paths: NDArray[np.floating[Any]]) -> Iterator[bytes]:
    """Gives the text of a forecast with sample paths (sample, step[, target])."""
    yield _text({**forecast, "paths": []})[:-2]
    count = max(1, _NUMBERS // max(paths[:1].size, 1))
    for first in range(0, len(paths), count):
        yield b"," * (first > 0) + _text(paths[first : first + count])[1:-1]
    yield b"]}"


def _text(content: Any) -> bytes:
    return orjson.dumps(content, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    return np.ascontiguousarray(value).tolist()
