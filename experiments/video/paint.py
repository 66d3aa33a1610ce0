"""Frames as dots: what strips and GIFs are made of.

Frames are black and white or grey, between 0 and 1. Blue is what a model has seen, orange what it makes up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsforecast.plots import COLOURS, MODEL

SEEN = MODEL
FORECAST = COLOURS[1]
BLANK = 235  # where a row has no frame: a grey near the white of the page

_STRIPES = (95, 150)  # the ground of frames that were not observed
_STRIPE_PERIOD = 8  # pixels

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Film:
    """What a strip and a GIF show.

    Attributes:
        truth: (time, height, width); NaN where it is not known.
        filtered: (seen, height, width).
        samples: (sample, time - seen, height, width).
        observed: Which steps a model has been given, (time,); those of the forecast count as observed here.
    """

    truth: NDArray[np.float64]
    filtered: NDArray[np.float64]
    samples: NDArray[np.float64]
    observed: NDArray[np.bool_]

    @property
    def seen(self) -> int:
        """Steps before the forecast."""
        return len(self.filtered)

    def paint_truth(self, step: int) -> Picture:
        """The true frame, on stripes where it was not observed."""
        return paint(self.truth[step], observed=bool(self.observed[step]))

    def paint_filtered(self, step: int) -> Picture:
        """What the model makes of the frames up to this one; blank in the forecast."""
        return paint(self.filtered[step]) if step < self.seen else blank(self.truth[step])

    def paint_sample(self, index: int, step: int) -> Picture:
        """A sampled future; blank before it begins."""
        return paint(self.samples[index, step - self.seen]) if step >= self.seen else blank(self.truth[step])

    def paint_mean(self, step: int) -> Picture:
        """The mean of all sampled futures; blank before they begin."""
        return paint(self.samples[:, step - self.seen].mean(0)) if step >= self.seen else blank(self.truth[step])


def make_film(
    truth: ArrayLike, filtered: ArrayLike, samples: ArrayLike, seen: int | None, observed: ArrayLike | None
) -> Film:
    """A film of frames that fit together; see `film_strip` for the arguments.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    real = check_frames(truth, "true", "(time, height, width)", 3)
    known = check_frames(filtered, "filtered", "(seen, height, width)", 3)
    futures = check_frames(samples, "sampled", "(sample, time - seen, height, width)", 4)
    seen = len(known) if seen is None else seen
    steps, height, width = real.shape
    check_seen(seen, steps)
    if len(known) < seen or known.shape[1:] != (height, width):
        raise ValueError(f"expected {seen} filtered frames {(height, width)} at least, got {known.shape}")
    expected = (steps - seen, height, width)
    if futures.shape[1:] != expected:
        raise ValueError(f"expected samples (sample, {', '.join(map(str, expected))}), got {futures.shape}")
    mask = np.ones(steps, np.bool_)
    if observed is not None:
        given = np.asarray(observed, np.bool_)
        if given.ndim != 1 or not seen <= len(given) <= steps:
            raise ValueError(f"expected an observation mask of {seen} to {steps} steps, got shape {given.shape}")
        mask[:seen] = given[:seen]
    return Film(real, known[:seen], futures, mask)


def check_seen(seen: int | None, steps: int) -> None:
    """Raises a ValueError unless something is seen and something is left to forecast."""
    if seen is not None and not 1 <= seen < steps:
        raise ValueError(f"expected at least one step seen and one to forecast, got {seen} of {steps} seen")


def check_frames(frames: ArrayLike, name: str, shape: str, dimensions: int) -> NDArray[np.float64]:
    """Frames as numbers, of which a ValueError says what is wrong with them."""
    values = np.asarray(frames, np.float64)
    if values.ndim != dimensions or values.size == 0:
        raise ValueError(f"expected {name} frames {shape}, got shape {values.shape}")
    if np.nanmin(values, initial=0.0) < 0 or np.nanmax(values, initial=0.0) > 1:
        raise ValueError(
            f"expected {name} frames between 0 and 1, got {np.nanmin(values)} to {np.nanmax(values)}: divide by 255?"
        )
    return values


def paint(frame: NDArray[np.float64], *, observed: bool = True) -> Picture:
    """Grey levels (height, width, 3); on stripes if the frame is unknown or was not observed."""
    known = np.isfinite(frame)
    light = np.where(known, frame, 0.0) * 255
    if not observed or not known.all():
        row, column = np.indices(frame.shape)
        stripes = np.where((row + column) % _STRIPE_PERIOD < _STRIPE_PERIOD // 2, *_STRIPES)
        light = np.where(known & observed, light, np.maximum(light, stripes))
    return np.repeat(np.round(light).astype(np.uint8)[..., None], 3, axis=-1)


def blank(frame: NDArray[np.float64]) -> Picture:
    """Return the picture that stands where a row has no frame."""
    return np.full((*frame.shape, 3), BLANK, np.uint8)


def zoom(picture: Picture, scale: int) -> Picture:
    """Every pixel as a square of dots."""
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)
