"""JSON of the service; long answers in parts, between which other requests have their turns."""

import asyncio
from typing import Any

import numpy as np
import orjson
from fastapi import Response

_PART = 1 << 16  # bytes of an answer after which other requests have their turns


def answered(content: Any, status: int = 200) -> Response:
    """Return an answer."""
    return Response(
        orjson.dumps(content, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json"
    )


async def listed(answers: list[dict[str, Any]]) -> orjson.Fragment:
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
