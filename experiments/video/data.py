"""Videos: one file per set, checks of users' own, and the batches that models read.

    video = load_video("my.npz")           # needs an array `frames`: (sequence, time, height, width)
    data = VideoDataset(video, past_length=20, future_length=40)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, collate_fn=data.collate)

A file is an npz archive. `frames` holds bool, uint8 or floats; which numbers are meant, `make_video` says. Optional
are `observed`, bool (sequence, time): False where a frame is missing; and what is known about each frame beside the
picture, see `TRUTHS`. Other arrays are not read. Files of `save_video` hold binary frames as bits, `frames_bits`,
and have `metadata`, JSON with the version of the format and a checksum. Nothing in a file can execute code.
"""

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.io.binary import check_archive
from tsforecast.io.files import replace_file
from tsforecast.io.reading import expect_file, first_line, parse_json

FORMAT = 1
DIVISOR = 8  # of height and width: networks for images halve them three times
# Ball's centre and velocity, paddles' heights, whether anything was hit since the frame before: (sequence, time, ...)
TRUTHS = ("position", "velocity", "paddles", "collision")
_SIZES = "(sequence, time, height, width)"


@dataclasses.dataclass(frozen=True)
class Video:
    """Sequences of frames of one size and length; `make_video` and `load_video` check what goes in.

    Attributes:
        frames: (sequence, time, row, column), rows from the top; bool where they are binary, else grey: uint8 from 0 to
            255, or float32 from 0 to 1.
        observed: False where a frame is missing, (sequence, time).
        truths: Some of `TRUTHS`, (sequence, time, ...).
        metadata: What is known about the set.
    """

    frames: NDArray[Any]
    observed: NDArray[np.bool_]
    truths: dict[str, NDArray[Any]]
    metadata: dict[str, Any]

    @property
    def is_binary(self) -> bool:
        """Whether pixels are black or white."""
        return self.frames.dtype == np.bool_

    @property
    def checksum(self) -> str:
        """SHA-256 of size and values of the frames; binary ones as bits, eight pixels of a row in a byte."""
        return _checksum(self.frames.shape, _stored(self.frames))


def make_video(
    frames: NDArray[Any],
    observed: NDArray[Any] | None = None,
    truths: Mapping[str, NDArray[Any]] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Video:
    """Checks frames and finds out what their numbers mean.

    Binary are bool, uint8 of 0 and 1 or of 0 and 255, and floats of 0 and 1. Other uint8 are grey from 0 to 255, other
    floats grey from 0 to 1.

    Args:
        frames: (sequence, time, height, width); missing frames may be NaN.
        observed: (sequence, time); None if none is missing.
        truths: Some of `TRUTHS`.
        metadata: Of values that JSON can hold.

    Raises:
        ValueError: If something is not as it should be; the message says what was expected and what came.
    """
    _check_size(frames)
    seen = _check_observed(frames, observed)
    for name, values in (truths or {}).items():
        if name not in TRUTHS:
            raise ValueError(f"expected truths among {', '.join(TRUTHS)}, got {name!r}")
        if values.shape[:2] != frames.shape[:2]:
            raise ValueError(f"expected {name} of shape {frames.shape[:2]} and more, as the frames, got {values.shape}")
        if values.dtype.kind not in "biuf":
            raise ValueError(f"expected numbers in {name}, got values of type {values.dtype}")
    return Video(_pixels(frames, seen), seen, dict(truths or {}), dict(metadata or {}))


def save_video(path: str | Path, video: Video) -> None:
    """Writes a video, whole or not at all.

    Args:
        path: File to write, ending in `.npz`; its folder is made.
        video: As `make_video` or `load_video` give it.
    """
    path = Path(path)
    if path.suffix != ".npz":  # numpy would add it to any other name
        raise ValueError(f"expected a file name that ends in .npz, got {str(path)!r}")
    stored = _stored(video.frames)
    arrays = {"frames_bits" if video.is_binary else "frames": stored, **video.truths}
    if not video.observed.all():
        arrays["observed"] = video.observed
    ours = {"format": FORMAT, "size": list(video.frames.shape), "sha256": _checksum(video.frames.shape, stored)}
    arrays["metadata"] = np.array(json.dumps(video.metadata | ours))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def load_video(path: str | Path) -> Video:
    """Reads a file of `save_video`, or a user's own with an array `frames`.

    Args:
        path: Of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged or not as expected; the message says what was expected and what came.
    """
    path = Path(path)
    if not path.is_file():  # nor a device, which may never end
        raise FileNotFoundError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: expected a whole npz file, as numpy.savez_compressed(path, frames=...) writes it")
    try:
        arrays, others = _load_arrays(path, {"frames", "frames_bits", "observed", "metadata", *TRUTHS})
        return _from_arrays(arrays, others)
    except (ValueError, TypeError) as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def make_batch(frames: NDArray[Any], observed: NDArray[np.bool_], past_length: int | None = None) -> dict[str, Tensor]:
    """A batch as `tsforecast.data.windows.collate` makes it: pixels are targets, of a series without covariates.

    Args:
        frames: (series, time, row, column) of bool, uint8 or float32, as in a `Video`.
        observed: (series, time); pixels of missing frames become 0.
        past_length: Frames of the past, the rest is the future; None: all.
    """
    count, length = observed.shape
    split = length if past_length is None else past_length
    target = torch.from_numpy(np.ascontiguousarray(frames)).reshape(count, length, -1).float()
    if frames.dtype == np.uint8:
        target = target / 255
    mask = torch.from_numpy(observed).unsqueeze(-1).repeat(1, 1, target.shape[-1])
    target = torch.where(mask, target, 0.0)
    batch = {
        "series_index": torch.zeros(count, dtype=torch.long),
        "static_cat": torch.zeros(count, 0, dtype=torch.long),
        "static_real": torch.zeros(count, 0),
        "past_is_pad": torch.zeros(count, split, dtype=torch.bool),
        "known_future": torch.full((count, length - split, target.shape[-1]), torch.nan),
    }
    for part, steps in (("past", slice(0, split)), ("future", slice(split, length))):
        batch[f"{part}_target"], batch[f"{part}_observed"] = target[:, steps], mask[:, steps]
        nothing = torch.zeros(count, target[:, steps].shape[1], 0)
        # One constant as time feature: layers without inputs cannot be initialised.
        batch[f"{part}_time_feat"] = nothing.new_zeros(*nothing.shape[:2], 1)
        batch[f"{part}_dynamic_real"] = nothing
        batch[f"{part}_season_index"] = nothing.long()
    return batch


class VideoDataset(torch.utils.data.Dataset):
    """The sequences of a video, cut into past and future; `collate` makes batches of them.

    Args:
        video: The set.
        past_length: Frames of the past; None: all that the future leaves.
        future_length: Frames of the future. What lies behind it is not used.

    Raises:
        ValueError: If sequences are too short.
    """

    def __init__(self, video: Video, past_length: int | None = None, future_length: int = 0) -> None:
        length = video.frames.shape[1]
        self.past_length = length - future_length if past_length is None else past_length
        if self.past_length < 1 or future_length < 0 or self.past_length + future_length > length:
            raise ValueError(
                f"expected a past of at least 1 frame and a future of at least 0, together at most {length}, which is "
                f"what sequences have; got {self.past_length} and {future_length}"
            )
        self.frames = video.frames[:, : self.past_length + future_length]
        self.observed = video.observed[:, : self.past_length + future_length]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        return self.frames[index], self.observed[index]

    def collate(self, items: list[tuple[NDArray[Any], NDArray[np.bool_]]]) -> dict[str, Tensor]:
        """The batch of some sequences, see `make_batch`: `collate_fn` of a DataLoader."""
        frames, observed = (np.stack(parts) for parts in zip(*items, strict=True))
        return make_batch(frames, observed, self.past_length)


def _checksum(size: tuple[int, ...], stored: NDArray[Any]) -> str:
    header = f"{stored.dtype.str} {' '.join(map(str, size))}\n".encode()
    return hashlib.sha256(header + np.ascontiguousarray(stored).tobytes()).hexdigest()


def _stored(frames: NDArray[Any]) -> NDArray[Any]:
    return np.packbits(frames, axis=-1) if frames.dtype == np.bool_ else frames


def _from_arrays(arrays: dict[str, NDArray[Any]], others: list[str]) -> Video:
    """The video of a file's arrays; names of the others are for the message."""
    metadata = parse_json(str(arrays["metadata"])) if "metadata" in arrays else {}
    if not isinstance(metadata, dict):
        raise ValueError(f"expected metadata to be a JSON object, got {type(metadata).__name__}")
    if metadata.get("format", FORMAT) != FORMAT:
        raise ValueError(
            f"expected version {FORMAT} of the format, got {metadata['format']}; a newer tsforecast reads it"
        )
    if "frames_bits" in arrays:
        frames = np.unpackbits(arrays["frames_bits"], axis=-1).view(np.bool_)  # the width is a multiple of 8
    elif "frames" in arrays:
        frames = arrays["frames"]
    else:
        found = ", ".join(sorted([*arrays, *others])) or "nothing"
        raise ValueError(f"expected an array named 'frames' of shape {_SIZES}, found {found}")
    if "sha256" in metadata and metadata["sha256"] != _checksum(frames.shape, _stored(frames)):
        raise ValueError("the frames do not have the checksum that was written with them: make the file again")
    truths = {name: arrays[name] for name in TRUTHS if name in arrays}
    return make_video(frames, arrays.get("observed"), truths, metadata)


def _check_size(frames: NDArray[Any]) -> None:
    if frames.ndim != 4:
        hint = {3: "; one sequence is frames[None]", 5: "; colours are not modelled: take one channel"}
        raise ValueError(f"expected frames of shape {_SIZES}, got {frames.shape}{hint.get(frames.ndim, '')}")
    if 0 in frames.shape:
        raise ValueError(f"expected frames of shape {_SIZES}, got none: {frames.shape}")
    if frames.shape[1] < 2:
        raise ValueError(f"expected at least 2 frames in a sequence, got {frames.shape[1]}")
    height, width = frames.shape[2:]
    if height % DIVISOR or width % DIVISOR:
        raise ValueError(
            f"expected height and width to be multiples of {DIVISOR}, which the networks halve three times, got "
            f"{height} x {width}; crop the frames or add a border"
        )


def _check_observed(frames: NDArray[Any], observed: NDArray[Any] | None) -> NDArray[np.bool_]:
    if observed is None:
        return np.ones(frames.shape[:2], dtype=np.bool_)
    if observed.shape != frames.shape[:2]:
        raise ValueError(f"expected observed of shape {frames.shape[:2]}, (sequence, time), got {observed.shape}")
    if observed.dtype != np.bool_:
        raise ValueError(f"expected observed of type bool, got {observed.dtype}")
    empty = np.flatnonzero(~observed.any(1))
    if len(empty):
        raise ValueError(f"no frame of sequence {empty[0]} is observed; leave this sequence out")
    return observed


def _pixels(frames: NDArray[Any], observed: NDArray[np.bool_]) -> NDArray[Any]:
    """Frames as bool, uint8 or float32."""
    if frames.dtype == np.bool_:
        return frames
    if frames.dtype == np.uint8:
        top = 255 if frames.max() > 1 else 1
        return frames == top if ((frames == 0) | (frames == top)).all() else frames
    if frames.dtype.kind != "f":
        raise ValueError(
            f"expected frames of bool, uint8 (0 and 1, or 0 to 255) or floats (0 to 1), got {frames.dtype}; convert "
            "them by frames.astype(np.uint8)"
        )
    values = np.where(observed[..., None, None], frames, np.nan_to_num(frames)).astype(np.float32)
    bad = np.argwhere(~np.isfinite(values).all((2, 3)))
    if len(bad):
        raise ValueError(
            f"expected finite pixels, got NaN or infinite ones in sequence {bad[0, 0]}, frame {bad[0, 1]}; mark "
            "missing frames by False in observed"
        )
    lowest, highest = float(values.min()), float(values.max())
    if lowest < 0 or highest > 1:
        raise ValueError(
            f"expected floats from 0 to 1, got {lowest:g} to {highest:g}; divide by the largest possible value, or "
            "convert 0 to 255 by frames.astype(np.uint8)"
        )
    return values == 1 if ((values == 0) | (values == 1)).all() else values


def _load_arrays(path: str | Path, wanted: Collection[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Arrays of an npz file; those of Python objects are refused, since they run code.

    Args:
        path: Of the file.
        wanted: Names of the arrays to read; some may not be there.

    Returns:
        The arrays by name, and the names of all others, which were not read.

    Raises:
        ValueError: If the file is damaged, no npz file, or a bomb.
    """
    path = expect_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in wanted}
            others = sorted(set(file.files) - set(wanted))
    except OSError:
        raise
    except Exception as error:  # a file can be damaged in any way
        message = first_line(error)[:200]
        known = str(path) in message
        raise ValueError(message if known else f"{path}: damaged, or no npz file ({message})") from error
    for name, values in arrays.items():
        if not isinstance(values, np.ndarray):  # what lies in the archive under its name is given as it is
            raise ValueError(f"{path}: expected an array {name!r}, got something else")
    return arrays, others
