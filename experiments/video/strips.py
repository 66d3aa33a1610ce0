"""Film strips: rows of frames, a column a step."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from experiments.video.paint import FORECAST, SEEN, Picture, blank, check_frames, make_film, paint, zoom

_COLUMNS = 12  # of a film strip, about
_GAP = 2  # pixels of a frame between two frames
_ZOOM = 4  # dots for a pixel, so that edges stay sharp when the figure is scaled
_HIDDEN = 0.55  # grey of a frame that a model has not seen

Rows = Sequence[tuple[str, Sequence[Picture]]]


def film_strip(
    truth: ArrayLike,
    filtered: ArrayLike,
    samples: ArrayLike,
    seen: int | None = None,
    *,
    observed: ArrayLike | None = None,
    every: int | None = None,
    shown: int = 4,
    title: str | None = None,
) -> Figure:
    """Draws rows of frames: truth, the filtered frames, sampled futures and the mean of all of them.

    A line parts what was seen from the forecast. Frames that were not observed have a striped ground.

    Args:
        truth: Frames (time, height, width) between 0 and 1; NaN where they are not known.
        filtered: The model's picture of the frames that it has seen, (seen or more, height, width).
        samples: Sampled futures (sample, time - seen, height, width). Frames drawn pixel by pixel speckle: the
            expected frames along sampled paths show what a model thinks happens.
        seen: Steps before the forecast; by default as many as there are filtered frames.
        observed: Which of the steps seen were given to the model, (seen or more,); by default all.
        every: Steps from one column to the next; by default such that there are about 12 columns.
        shown: Most samples to draw.
        title: Title above all rows.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    film = make_film(truth, filtered, samples, seen, observed)
    steps, _, width = film.truth.shape
    every = max(1, round(steps / _COLUMNS)) if every is None else every
    if every < 1 or shown < 1:
        raise ValueError(f"expected every and shown of at least 1, got {every} and {shown}")
    columns = list(range(0, steps, every))
    before = sum(step < film.seen for step in columns)
    count = min(shown, len(film.samples))
    rows = [
        ("truth", [film.paint_truth(step) for step in columns]),
        ("filtered", [film.paint_filtered(step) for step in columns]),
        *((f"sample {index + 1}", [film.paint_sample(index, step) for step in columns]) for index in range(count)),
    ]
    if len(film.samples) > 1:
        rows.append((f"mean of {len(film.samples)}", [film.paint_mean(step) for step in columns]))
    # The gap in which the line stands is wider than the others.
    left = [index * (width + _GAP) + 2 * _GAP * (index >= before) for index in range(len(columns))]
    figure, axis = _draw(rows, left, [str(step + 1) for step in columns], title)
    for name, colour, first, last in (
        ("seen", SEEN, 0, before - 1),
        ("forecast", FORECAST, before, len(columns) - 1),
    ):
        if first <= last:  # columns may be so far apart that none falls into the forecast
            _mark(axis, left[first], left[last] + width, colour, name)
    if 0 < before < len(left):
        axis.axvline(left[before] - 1.5 * _GAP, color=FORECAST, linewidth=2.0, label="forecast start")
    return figure


def imputation_strip(
    truth: ArrayLike,
    filled: ArrayLike,
    observed: ArrayLike,
    *,
    still: ArrayLike | None = None,
    shown: int = 2,
    title: str | None = None,
) -> Figure:
    """Draws rows of frames: truth, what the model saw, and what it fills in; hidden steps are marked in orange.

    Args:
        truth: Frames (time, height, width) between 0 and 1.
        filled: The model's frames (sample, time, height, width), of which those of hidden steps are drawn: their mean
            over samples, in the row of what was seen, and some of them.
        observed: Which steps the model was given, (time,).
        still: Frames (time, height, width) to compare with, such as the last one seen.
        shown: Most samples to draw, each in a row.
        title: Title above all rows.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    real = check_frames(truth, "true", "(time, height, width)", 3)
    made = check_frames(filled, "filled-in", "(sample, time, height, width)", 4)
    seen = np.asarray(observed, np.bool_)
    others = [] if still is None else [check_frames(still, "other", "(time, height, width)", 3)]
    if made.shape[1:] != real.shape or seen.shape != real.shape[:1] or any(x.shape != real.shape for x in others):
        raise ValueError(
            f"expected frames and an observation mask as the true frames {real.shape}, got {made.shape[1:]}, "
            f"{', '.join(str(x.shape) for x in [*others, seen])}"
        )
    grey = np.full(real.shape[1:], _HIDDEN)

    def hidden_only(frames: Iterable[np.ndarray]) -> list[Picture]:
        return [blank(grey) if known else paint(frame) for frame, known in zip(frames, seen, strict=True)]

    rows = [
        ("truth", [paint(frame) for frame in real]),
        ("seen", [paint(frame if known else grey) for frame, known in zip(real, seen, strict=True)]),
        ("filled in", [paint(f if known else m) for f, m, known in zip(real, made.mean(0), seen, strict=True)]),
        *((f"sample {index + 1}", hidden_only(made[index])) for index in range(min(shown, len(made)))),
        *(("last seen", hidden_only(frames)) for frames in others),
    ]
    width = real.shape[2]
    left = [index * (width + _GAP) for index in range(len(real))]
    figure, axis = _draw(rows, left, [str(step + 1) for step in range(len(real))], title)
    named = set()
    for known, group in groupby(range(len(real)), key=lambda step: bool(seen[step])):
        steps = list(group)
        name = "seen" if known else "hidden"
        _mark(axis, left[steps[0]], left[steps[-1]] + width, SEEN if known else FORECAST, "" if name in named else name)
        named.add(name)
    return figure


def _draw(rows: Rows, left: list[int], steps: list[str], title: str | None) -> tuple[Figure, Axes]:
    """All pictures on one canvas, in columns that begin at `left`, in pixels of a frame."""
    height, width = rows[0][1][0].shape[:2]
    top = [index * (height + _GAP) for index in range(len(rows))]
    canvas = np.full((top[-1] + height, left[-1] + width, 3), 255, np.uint8)
    for y, (_, pictures) in zip(top, rows, strict=True):
        for x, picture in zip(left, pictures, strict=True):
            canvas[y : y + height, x : x + width] = picture
    size = 0.5 / max(height, width)  # inches of a pixel
    figure = Figure(
        figsize=(1.0 + size * canvas.shape[1], (0.9 if title else 0.6) + size * canvas.shape[0]), layout="constrained"
    )
    axis = figure.subplots()
    extent = (0.0, float(canvas.shape[1]), float(canvas.shape[0]), 0.0)
    axis.imshow(zoom(canvas, _ZOOM), extent=extent, interpolation="nearest")
    axis.set_yticks([y + height / 2 for y in top], [label for label, _ in rows], fontsize=9)
    axis.set_xticks([x + width / 2 for x in left], steps, fontsize=8)
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=2)
    axis.spines[:].set_visible(False)
    axis.set_ylim(axis.get_ylim()[0], -2.5)  # room for the bars
    if title:
        figure.suptitle(title, fontsize=11)
    return figure, axis


def _mark(axis: Axes, start: int, end: int, colour: str, name: str) -> None:
    """A bar above some columns, and its name."""
    axis.plot([start, end], [-1.5, -1.5], color=colour, linewidth=2.5, clip_on=False, solid_capstyle="butt")
    if name:
        axis.annotate(
            name,
            ((start + end) / 2, 1.0),
            xycoords=axis.get_xaxis_transform(),
            xytext=(0, 16),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=colour,
            fontweight="bold",
        )
