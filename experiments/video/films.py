"""GIFs of films."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from experiments.video.paint import BLANK, FORECAST, SEEN, Film, make_film, zoom
from tsforecast.io.files import replace_file

_BORDER = 4  # dots around a panel
_MARGIN = 6  # dots around its border
_CAPTION = 18  # dots
_GREYS = 33  # levels of the palette; Pillow takes those which are nearer to each other for one another


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

    Borders are blue while the model sees frames, and orange in its forecast. There the mean of all samples takes the
    place of the filtered frame. The GIF loops, and rests for a second at its end.

    Args:
        truth: Frames (time, height, width) between 0 and 1; NaN where they are not known.
        filtered: The model's picture of the frames that it has seen, (seen or more, height, width).
        samples: Sampled futures (sample, time - seen, height, width); see `film_strip`.
        path: File to write, ending in `.gif`.
        seen: Steps before the forecast; by default as many as there are filtered frames.
        observed: Which of the steps seen were given to the model, (seen or more,); by default all.
        shown: Most samples to draw.
        scale: Dots for a pixel.
        frames_per_second: Of the film; at most 50, as viewers slow down faster ones.

    Raises:
        ValueError: If shapes do not fit, or values are not between 0 and 1.
    """
    film = make_film(truth, filtered, samples, seen, observed)
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


def _screen(film: Film, step: int, shown: int, scale: int) -> Image.Image:
    """Return one image of a GIF."""
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
        image.paste(Image.fromarray(zoom(picture, scale)), (x + _BORDER, y + _BORDER))
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
    draw.rectangle((left, bottom - 9, right, bottom - 2), fill=(BLANK, BLANK, BLANK))
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
