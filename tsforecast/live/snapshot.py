"""Folders of arrays with the state of all series of a service; no code of them is run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.io.binary import load_array
from tsforecast.io.files import checksum, replace_folder
from tsforecast.io.reading import has_fields, read_json
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.live.rows import Rows

MANIFEST = "manifest.json"
LEARNT = "learnt.pt"
FORMAT = 2
_PER_ROW = ("end", "sequence", "exponents", "recent", "seen", "memory")
_PLAIN = {"format": int, "number": int, "series": int, "files": dict[str, str]}


def write_rows(folder: Path, known: Rows, number: int, learnt: dict[str, Any] | None = None) -> None:
    """Writes rows into a folder, whole or not at all: an array a file, and a manifest with their checksums."""
    arrays = _arrays(known)
    with replace_folder(folder) as scratch:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", array, allow_pickle=False)
        files = {f"{name}.npy": checksum(scratch / f"{name}.npy") for name in arrays}
        if learnt is not None:
            save_tensors(learnt, scratch / LEARNT)
            files[LEARNT] = checksum(scratch / LEARNT)
        manifest = {"format": FORMAT, "number": number, "series": len(known), "files": files}
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_rows(folder: Path, empty: Rows) -> tuple[Rows, int]:
    """Return the rows that `write_rows` wrote, and the number of the next micro-batch."""
    manifest = read_json(folder / MANIFEST)
    if not has_fields(manifest, _PLAIN):
        raise ValueError(f"{folder / MANIFEST} is damaged: expected {', '.join(_PLAIN)}; restore the folder")
    if manifest["format"] != FORMAT:
        raise ValueError(f"{folder}: expected format {FORMAT}, got {manifest['format']}")
    expected = _arrays(empty)
    if manifest["files"].keys() - {LEARNT} != {f"{name}.npy" for name in expected}:
        raise ValueError(f"{folder} holds beliefs of another model")
    arrays = {name: _array(folder / f"{name}.npy", manifest["files"][f"{name}.npy"]) for name in expected}
    count, number = manifest["series"], manifest["number"]
    for name, array in arrays.items():
        like = expected[name]
        is_row = name.startswith("part") or name in (*_PER_ROW, "name_sizes")
        if array.dtype != like.dtype or array.shape[1:] != like.shape[1:] or (is_row and len(array) != count):
            raise ValueError(f"{folder}: {name} is of another model, or damaged")
    known = Rows(
        [torch.from_numpy(arrays[f"part_{k:02d}"]).to(part.device) for k, part in enumerate(empty.parts)],
        arrays["exponents"],
        arrays["end"],
        arrays["sequence"],
        arrays["recent"],
        arrays["seen"],
        arrays.get("memory", np.zeros((count, 0))),
        empty.num_covariates,
    )
    text, ends = arrays["names"].tobytes(), np.cumsum(arrays["name_sizes"]).tolist()
    known.names = [text[first:last].decode() for first, last in zip([0, *ends], ends, strict=False)]
    known.index = {name: row for row, name in enumerate(known.names)}
    stops = np.cumsum(arrays["young_sizes"])
    if len(known.index) != count or not _agrees(arrays, ends, stops):
        raise ValueError(f"{folder}: names or histories do not agree with the rows: it is damaged")
    pieces = np.split(arrays["young"], stops[:-1]) if len(stops) else []
    known.young = dict(zip(arrays["young_rows"].tolist(), pieces, strict=True))
    return known, number


def read_learnt(folder: Path, like: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a learner that `write_rows` wrote."""
    path = folder / LEARNT
    files = read_json(folder / MANIFEST)["files"]
    if not path.is_file() or checksum(path) != files.get(LEARNT):
        raise ValueError(f"{path} is missing or damaged: it has not the checksum of {MANIFEST}; restore the folder")
    tensors = load_tensors(path)
    expect_like(tensors, like, str(path))
    return tensors


def _arrays(known: Rows) -> dict[str, NDArray[Any]]:
    """Return rows as arrays, without the room for more."""
    count = len(known)
    parts = {f"part_{k:02d}": part[:count].cpu().numpy() for k, part in enumerate(known.parts)}
    names = [name.encode() for name in known.names]
    young = sorted(known.young)
    histories = [known.young[row] for row in young]
    memory = {"memory": known.memory[:count]} if known.memory.shape[1] else {}  # older stores have none
    return (
        parts
        | memory
        | {
            "end": known.end[:count],
            "sequence": known.sequence[:count],
            "recent": known.recent[:count],
            "seen": known.seen[:count],
            "exponents": known.exponents[:count],
            "names": np.frombuffer(b"".join(names), np.uint8),
            "name_sizes": np.array([len(name) for name in names], np.int64),
            "young_rows": np.array(young, np.int64),
            "young_sizes": np.array([len(history) for history in histories], np.int64),
            "young": np.concatenate([*histories, np.zeros((0, known.width))]),
        }
    )


def _array(path: Path, check: str) -> NDArray[Any]:
    if not path.is_file():
        raise ValueError(f"there is no file {path}; restore the folder")
    if checksum(path) != check:
        raise ValueError(f"{path} is damaged: it has not the checksum of {MANIFEST}; restore the folder")
    return load_array(path)


def _agrees(arrays: dict[str, NDArray[Any]], ends: list[int], stops: NDArray[np.int64]) -> bool:
    rows = arrays["young_rows"]
    return (
        (ends[-1] if ends else 0) == len(arrays["names"])
        and (int(stops[-1]) if len(stops) else 0) == len(arrays["young"])
        and len(rows) == len(stops)
        and bool(((rows >= 0) & (rows < len(arrays["end"]))).all())
    )
