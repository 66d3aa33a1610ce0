"""Pictures of video: film strips, GIFs, switches and collisions, scores by horizon.

Frames are black and white or grey, between 0 and 1. Figures belong to no window and to no global state, as those of
`tsforecast.plots`, whose `save_figure` writes them. Blue is what a model has seen, orange what it forecasts.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from tsforecast.data.files import replace_file
from tsforecast.plots import COLOURS, MODEL, OBSERVED

SEEN = MODEL
FORECAST = COLOURS[1]

_BLANK = 235  # where a row has no frame: a grey near the white of the page
_STRIPES = (95, 150)  # the ground of frames that were not observed
_STRIPE_PERIOD = 8  # pixels
_COLUMNS = 12  # of a film strip, about
_GAP = 2  # pixels of a frame between two frames of a strip
_ZOOM = 4  # dots for a pixel of a strip, so that its edges stay sharp when the figure is scaled
_BORDER = 4  # dots around a panel of a GIF
_MARGIN = 6  # dots around its border
_CAPTION = 18  # dots
_GREYS = 33  # levels of a GIF's palette; Pillow takes those which are nearer to each other for one another
_DASHES = (0, (4, 3))

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class _Film:
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
        return len(self.filtered)

    def paint_truth(self, step: int) -> Picture:
        """The true frame, on stripes where it was not observed."""
        return _paint(self.truth[step], observed=bool(self.observed[step]))

    def paint_filtered(self, step: int) -> Picture:
        """What the model makes of the frames up to this one; blank in the forecast."""
        return _paint(self.filtered[step]) if step < self.seen else _blank(self.truth[step])

    def paint_sample(self, index: int, step: int) -> Picture:
        """A sampled future; blank before it begins."""
        return _paint(self.samples[index, step - self.seen]) if step >= self.seen else _blank(self.truth[step])

    def paint_mean(self, step: int) -> Picture:
        """The mean of all sampled futures; blank before they begin."""
        return _paint(self.samples[:, step - self.seen].mean(0)) if step >= self.seen else _blank(self.truth[step])


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
        samples: Sampled futures (sample, time - seen, height, width).
        seen: Steps before the forecast; by default as many as there are filtered frames.
        observed: Which of the steps seen were given to the model, (seen or more,); by default all.
        every: Steps from one column to the next; by default such that there are about 12 columns.
        shown: Most samples to draw.
        title: Title above all rows.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    film = _film(truth, filtered, samples, seen, observed)
    steps, height, width = film.truth.shape
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
    axis.imshow(_zoom(canvas, _ZOOM), extent=extent, interpolation="nearest")
    axis.set_yticks([y + height / 2 for y in top], [label for label, _ in rows], fontsize=9)
    axis.set_xticks([x + width / 2 for x in left], [str(step + 1) for step in columns], fontsize=8)
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=2)
    axis.spines[:].set_visible(False)
    _mark_parts(axis, left, width, before)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def gif(
    truth: ArrayLike,
    filtered: ArrayLike,
    samples: ArrayLike,
    path: str | Path,
    *,
    seen: int | None = None,
    observed: ArrayLike | None = None,
    shown: int = 4,
    scale: int = 4,
    frames_per_second: float = 8.0,
) -> Path:
    """Writes a GIF of truth, filtered frames and sampled futures beside each other, whole or not at all.

    Borders are blue while the model sees frames, and orange in its forecast, where the mean of all samples takes the
    place of the filtered frame. It loops, and rests for a second at its end.

    Args:
        truth: Frames (time, height, width) between 0 and 1; NaN where they are not known.
        filtered: The model's picture of the frames that it has seen, (seen or more, height, width).
        samples: Sampled futures (sample, time - seen, height, width).
        path: File to write, ending in `.gif`.
        seen: Steps before the forecast; by default as many as there are filtered frames.
        observed: Which of the steps seen were given to the model, (seen or more,); by default all.
        shown: Most samples to draw.
        scale: Dots for a pixel.
        frames_per_second: Of the film; at most 50, as viewers slow down faster ones.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    film = _film(truth, filtered, samples, seen, observed)
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"expected a path that ends in .gif, got {path}")
    if scale < 1 or shown < 1 or not 0 < frames_per_second <= 50:
        raise ValueError(
            "expected scale and shown of at least 1 and at most 50 frames per second, got "
            f"{scale}, {shown} and {frames_per_second}"
        )
    palette = _palette()
    images = [
        _screen(film, step, min(shown, len(film.samples)), scale).quantize(palette=palette, dither=Image.Dither.NONE)
        for step in range(len(film.truth))
    ]
    pause = round(100 / frames_per_second) * 10  # milliseconds; the format counts hundredths of a second
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        images[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=[pause] * (len(images) - 1) + [max(pause, 1000)],
            loop=0,
        )
    return path


def switch_plot(
    weights: ArrayLike, collision: ArrayLike, *, seen: int | None = None, title: str | None = None
) -> Figure:
    """Draws the inferred weights of the base matrices as stacked areas, and the steps with a collision as lines.

    A model that has found the physics changes its weights at the lines.

    Args:
        weights: (time, basis), nonnegative and summing to 1. The seven that change most are in colour, the others
            together in grey.
        collision: Whether the body hit something in the step, (time,).
        seen: Steps before a forecast, which is marked; by default there is none.
        title: Title above the panel.

    Raises:
        ValueError: If shapes do not fit or weights are no weights.
    """
    layers, hits = np.asarray(weights, np.float64), np.asarray(collision, np.bool_)
    if layers.ndim != 2 or layers.size == 0 or hits.shape != layers.shape[:1]:
        raise ValueError(f"expected weights (time, basis) and collisions (time,), got {layers.shape} and {hits.shape}")
    if not (layers >= 0).all() or not np.allclose(layers.sum(1), 1, atol=1e-4):
        raise ValueError("expected nonnegative weights that sum to 1 over the basis")
    steps = len(layers)
    _check_seen(seen, steps)
    order = np.argsort(-layers.var(0), kind="stable")
    chosen, rest = np.sort(order[: len(COLOURS)]), order[len(COLOURS) :]
    labels, colours = [f"base {index + 1}" for index in chosen], list(COLOURS[: len(chosen)])
    areas = layers[:, chosen].T
    if len(rest):
        areas = np.vstack([areas, layers[:, rest].sum(1)])
        labels, colours = [*labels, f"other {len(rest)}"], [*colours, "0.85"]
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    axis = figure.subplots()
    # A step is as wide as a bar: weights belong to steps, and between two of them there is nothing to interpolate.
    edges = np.arange(steps + 1) + 0.5
    axis.stackplot(
        edges, np.hstack([areas, areas[:, -1:]]), labels=labels, colors=colours, step="post", edgecolor="white", lw=0.3
    )
    for number, step in enumerate((np.flatnonzero(hits) + 1).tolist()):
        label = "collision" if number == 0 else None
        axis.axvline(step, color=OBSERVED, linewidth=1.2, label=label)
        axis.plot(step, 1.03, marker="v", markersize=5, color=OBSERVED, clip_on=False)
    if seen is not None:
        axis.axvline(seen + 0.5, color=OBSERVED, linewidth=1.2, linestyle=_DASHES, label="forecast start")
    axis.set(xlabel="step", ylabel="weight", xlim=(edges[0], edges[-1]), ylim=(0, 1))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    if title:
        axis.set_title(title, loc="left", fontsize=11, pad=12)
    return figure


def horizon_plot(
    table: pd.DataFrame,
    *,
    metric: str = "wasserstein",
    floors: Collection[str] = (),
    panel: str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws a score of video forecasts by horizon, a line with a band of its standard error for every model.

    Args:
        table: `FrameScores.by_horizon()` of several models one under another: columns `model`, `horizon`, the metric
            and its error, such as `wasserstein_se` (NaN where unknown).
        metric: `wasserstein`, `accuracy` or `iou`.
        floors: Those of the models that only bound the others, drawn broken and without colour.
        panel: Column to draw a panel for each value of, such as a data set's name.
        title: Title above all panels.

    Raises:
        ValueError: If a column or a floor is not in the table.
    """
    needed = ["model", "horizon", metric, f"{metric}_se", *([panel] if panel else [])]
    missing = [name for name in needed if name not in table]
    if missing or table.empty:
        raise ValueError(f"expected rows with columns {needed}, got {len(table)} rows of {list(table.columns)}")
    names = list(dict.fromkeys(table["model"]))
    unknown = [name for name in floors if name not in names]
    if unknown:
        raise ValueError(f"expected floors among the models {names}, got {unknown}")
    parts = [(None, table)] if panel is None else list(table.groupby(panel, sort=False))
    columns = min(len(parts), 2)
    rows = -(-len(parts) // columns)
    figure = Figure(figsize=(1.4 + 4.3 * columns, 0.9 + 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    styles = _line_styles(names, floors)
    for axis, (heading, part) in zip(axes, parts, strict=False):
        for name, line in part.groupby("model", sort=False):
            _draw_score(axis, line.sort_values("horizon"), metric, styles[name])
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
        axis.set_xlim(part["horizon"].min(), part["horizon"].max())
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("steps ahead", fontsize=9)
        axis.set_ylabel(_METRICS.get(metric, metric), fontsize=9)
        if metric == "wasserstein":
            axis.set_ylim(bottom=0)
        if heading is not None:
            axis.set_title(str(heading), loc="left", fontsize=9)
    for axis in axes[len(parts) :]:
        axis.remove()
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        [entries[name] for name in names], names, loc="outside lower center", ncols=min(len(names), 5), frameon=False,
        fontsize=8,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


_METRICS = {
    "wasserstein": "Wasserstein distance (pixels)",
    "accuracy": "pixels that agree",
    "iou": "intersection over union",
}


def _line_styles(names: Iterable[str], floors: Collection[str]) -> dict[Any, dict[str, Any]]:
    styles: dict[Any, dict[str, Any]] = {}
    colours, dashes = iter(COLOURS * 3), iter([_DASHES, ":", "-."] * 3)
    for name in names:
        if name in floors:
            styles[name] = {"color": OBSERVED, "linestyle": next(dashes), "linewidth": 1.2}
        else:
            styles[name] = {"color": next(colours), "linestyle": "-", "linewidth": 1.8}
    return styles


def _draw_score(axis: Axes, line: pd.DataFrame, metric: str, style: dict[str, Any]) -> None:
    horizon, mean = line["horizon"].to_numpy(), line[metric].to_numpy(np.float64)
    error = line[f"{metric}_se"].to_numpy(np.float64)
    axis.fill_between(horizon, mean - error, mean + error, color=style["color"], alpha=0.2, linewidth=0)
    axis.plot(horizon, mean, label=str(line["model"].iloc[0]), **style)


def _film(
    truth: ArrayLike, filtered: ArrayLike, samples: ArrayLike, seen: int | None, observed: ArrayLike | None
) -> _Film:
    real = _frames(truth, "true", "(time, height, width)", 3)
    known = _frames(filtered, "filtered", "(seen, height, width)", 3)
    futures = _frames(samples, "sampled", "(sample, time - seen, height, width)", 4)
    seen = len(known) if seen is None else seen
    steps, height, width = real.shape
    _check_seen(seen, steps)
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
    return _Film(real, known[:seen], futures, mask)


def _check_seen(seen: int | None, steps: int) -> None:
    if seen is not None and not 1 <= seen < steps:
        raise ValueError(f"expected at least one step seen and one to forecast, got {seen} of {steps} seen")


def _frames(frames: ArrayLike, name: str, shape: str, dimensions: int) -> NDArray[np.float64]:
    values = np.asarray(frames, np.float64)
    if values.ndim != dimensions or values.size == 0:
        raise ValueError(f"expected {name} frames {shape}, got shape {values.shape}")
    if np.nanmin(values, initial=0.0) < 0 or np.nanmax(values, initial=0.0) > 1:
        raise ValueError(
            f"expected {name} frames between 0 and 1, got {np.nanmin(values)} to {np.nanmax(values)}: divide by 255?"
        )
    return values


def _paint(frame: NDArray[np.float64], *, observed: bool = True) -> Picture:
    """Grey levels (height, width, 3); on stripes if the frame is unknown or was not observed."""
    known = np.isfinite(frame)
    light = np.where(known, frame, 0.0) * 255
    if not observed or not known.all():
        row, column = np.indices(frame.shape)
        stripes = np.where((row + column) % _STRIPE_PERIOD < _STRIPE_PERIOD // 2, *_STRIPES)
        light = np.where(known & observed, light, np.maximum(light, stripes))
    return np.repeat(np.round(light).astype(np.uint8)[..., None], 3, axis=-1)


def _blank(frame: NDArray[np.float64]) -> Picture:
    return np.full((*frame.shape, 3), _BLANK, np.uint8)


def _zoom(picture: Picture, scale: int) -> Picture:
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def _mark_parts(axis: Axes, left: list[int], width: int, before: int) -> None:
    """Names what was seen and what is forecast above a strip, and draws the line between them."""
    transform = axis.get_xaxis_transform()
    parts = (("seen", SEEN, 0, before - 1), ("forecast", FORECAST, before, len(left) - 1))
    for name, colour, first, last in parts:
        if first > last:  # columns so far apart that none falls into the forecast
            continue
        start, end = left[first], left[last] + width
        axis.annotate(
            name,
            ((start + end) / 2, 1.0),
            xycoords=transform,
            xytext=(0, 16),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=colour,
            fontweight="bold",
        )
        axis.plot([start, end], [-1.5, -1.5], color=colour, linewidth=2.5, clip_on=False, solid_capstyle="butt")
    if 0 < before < len(left):
        axis.axvline(left[before] - 1.5 * _GAP, color=FORECAST, linewidth=2.0, label="forecast start")
    axis.set_ylim(axis.get_ylim()[0], -2.5)


def _screen(film: _Film, step: int, shown: int, scale: int) -> Image.Image:
    """One image of a GIF."""
    ahead = step >= film.seen
    colour = FORECAST if ahead else SEEN
    panels = [
        ("truth", film.paint_truth(step)),
        (f"mean of {len(film.samples)}", film.paint_mean(step)) if ahead else ("filtered", film.paint_filtered(step)),
        *((f"sample {index + 1}", film.paint_sample(index, step)) for index in range(shown)),
    ]
    steps, height, width = film.truth.shape
    tall, wide = height * scale + 2 * _BORDER, width * scale + 2 * _BORDER
    image = Image.new(
        "RGB", (len(panels) * (wide + _MARGIN) + _MARGIN, tall + 2 * _CAPTION + 2 * _MARGIN), (255, 255, 255)
    )
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(13)
    for index, (label, picture) in enumerate(panels):
        x = _MARGIN + index * (wide + _MARGIN)
        y = _CAPTION + _MARGIN
        draw.text((x + wide / 2, y - 3), label, fill=(0, 0, 0), font=font, anchor="ms")
        draw.rectangle((x, y, x + wide - 1, y + tall - 1), fill=colour)
        image.paste(Image.fromarray(_zoom(picture, scale)), (x + _BORDER, y + _BORDER))
    _draw_progress(draw, image.size, step + 1, film.seen, steps, font)
    return image


def _draw_progress(
    draw: ImageDraw.ImageDraw, size: tuple[int, int], step: int, seen: int, steps: int, font: Any
) -> None:
    """The number of the step, and a bar that fills: blue while frames are seen, then orange."""
    right, bottom = size[0] - _MARGIN, size[1] - _MARGIN
    text = f"step {step}: {'forecast' if step > seen else 'seen'}"
    draw.text((_MARGIN, bottom), text, fill=FORECAST if step > seen else SEEN, font=font, anchor="ls")
    left = _MARGIN + 130
    if left + 20 > right:  # too narrow a picture
        return
    dots = (right - left) / steps
    draw.rectangle((left, bottom - 9, right, bottom - 2), fill=(_BLANK, _BLANK, _BLANK))
    draw.rectangle((left, bottom - 9, left + dots * min(step, seen), bottom - 2), fill=SEEN)
    if step > seen:
        draw.rectangle((left + dots * seen, bottom - 9, left + dots * step, bottom - 2), fill=FORECAST)


def _palette() -> Image.Image:
    """One palette for all images of a GIF: files stay small, and black, white and the accents are what they are."""
    greys = [level for grey in np.linspace(0, 255, _GREYS).round().astype(int).tolist() for level in [grey] * 3]
    accents = [int(colour[i : i + 2], 16) for colour in (SEEN, FORECAST) for i in (1, 3, 5)]
    image = Image.new("P", (1, 1))
    image.putpalette(greys + accents)
    return image
