"""Files of tensors by torch: written whole, and read without running code."""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch

from tsforecast.io.files import replace_file
from tsforecast.io.reading import expect_file, first_line


def save_tensors(payload: Any, path: str | Path) -> None:
    """Writes a file of tensors for `torch.load`, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(payload, buffer)  # to a path it raises a RuntimeError on a full disk, which does not say why
    with replace_file(path) as temporary:
        temporary.write_bytes(buffer.getvalue())  # not a view, which a failure would keep of a buffer that is gone


def load_tensors(path: str | Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """A dictionary of tensors and plain values from `torch.save`; a ValueError for anything else, such as code."""
    path = expect_file(path)
    try:
        with zipfile.ZipFile(path) as archive:  # torch packs nothing, so that files are as large as what they hold
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("it is packed, as torch does not write it")
        payload = torch.load(path, map_location=device, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a file can be damaged in any way
        raise ValueError(f"{path} is damaged or not of tsforecast ({first_line(error)})") from error
    if not isinstance(payload, dict):
        raise ValueError(f"{path} is not of tsforecast: expected a dictionary, got {type(payload).__name__}")
    return payload


def expect_like(given: Any, like: Any, place: str) -> None:
    """Raise a ValueError for a value without the names, kinds and shapes of `like`, which begins with the place."""
    if isinstance(like, dict):
        if not isinstance(given, dict) or given.keys() != like.keys():
            raise ValueError(f"{place}: expected {', '.join(like)}")
        for name, member in like.items():
            expect_like(given[name], member, f"{place}, {name}")
    elif isinstance(like, list):
        if not isinstance(given, list) or len(given) != len(like):
            raise ValueError(f"{place}: expected a list of {len(like)}")
        for number, (member, other) in enumerate(zip(given, like, strict=True)):
            expect_like(member, other, f"{place}, {number}")
    elif isinstance(like, torch.Tensor):
        if not isinstance(given, torch.Tensor) or (given.shape, given.dtype) != (like.shape, like.dtype):
            raise ValueError(f"{place}: expected a tensor of {like.dtype} and shape {tuple(like.shape)}")
    elif type(given) is not type(like):
        raise ValueError(f"{place}: expected a value of type {type(like).__name__}, got {given!r:.80}")
