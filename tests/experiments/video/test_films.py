import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image, ImageColor

from experiments.video.charts import horizon_plot, switch_plot
from experiments.video.films import gif
from experiments.video.paint import FORECAST, SEEN
from experiments.video.strips import film_strip, imputation_strip
from tsforecast.plots import save_figure

SEEN_STEPS, STEPS, HEIGHT, WIDTH = 4, 10, 8, 12
BLANK, WHITE, BLACK = (235,) * 3, (255,) * 3, (0,) * 3


@pytest.fixture
def film():
    """A white pixel that moves right along the upper row; the model draws it in the lower row, its futures below."""
    truth = np.zeros((STEPS, HEIGHT, WIDTH))
    filtered = np.zeros((SEEN_STEPS, HEIGHT, WIDTH))
    samples = np.zeros((6, STEPS - SEEN_STEPS, HEIGHT, WIDTH))
    for step in range(STEPS):
        truth[step, 0, step] = 1
        if step < SEEN_STEPS:
            filtered[step, -1, step] = 1
        else:
            samples[np.arange(6), step - SEEN_STEPS, np.arange(6), step] = 1
    return truth, filtered, samples


def texts(axis):
    return [label.get_text() for label in axis.get_yticklabels()], [
        label.get_text() for label in axis.get_xticklabels()
    ]


def pictures(figure):
    """Drawn frames (row, column, height, width, 3), found by the ticks at their centres."""
    axis = figure.axes[0]
    image = axis.images[0]
    canvas, (_, right, bottom, _) = np.asarray(image.get_array()), image.get_extent()
    assert canvas.shape[0] / bottom == canvas.shape[1] / right  # dots for a pixel, across as along
    dots = round(canvas.shape[0] / bottom)
    canvas = canvas[dots // 2 :: dots, dots // 2 :: dots]
    return np.array(
        [
            [
                canvas[round(y - HEIGHT / 2) :, round(x - WIDTH / 2) :][:HEIGHT, :WIDTH]
                for x in axis.get_xticks()
            ]
            for y in axis.get_yticks()
        ]
    )  # fmt: skip


def test_strip_shows_every_frame_in_its_place(film):
    truth, filtered, samples = film
    figure = film_strip(truth, filtered, samples, SEEN_STEPS, every=1, title="box")
    assert isinstance(figure, Figure)
    assert figure.get_suptitle() == "box"
    rows, columns = texts(figure.axes[0])
    assert rows == ["truth", "filtered", "sample 1", "sample 2", "sample 3", "sample 4", "mean of 6"]
    assert columns == [str(step) for step in range(1, STEPS + 1)]
    drawn = pictures(figure)
    assert drawn.shape == (7, STEPS, HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(drawn[0, ..., 0], 255 * truth)
    np.testing.assert_array_equal(drawn[1, :SEEN_STEPS, ..., 0], 255 * filtered)
    np.testing.assert_array_equal(drawn[2:6, SEEN_STEPS:, ..., 0], 255 * samples[:4])
    np.testing.assert_array_equal(drawn[6, SEEN_STEPS:, ..., 0], np.round(255 * samples.mean(0)))
    assert (drawn[1, SEEN_STEPS:] == BLANK).all()
    assert (drawn[2:, :SEEN_STEPS] == BLANK).all()


@pytest.mark.parametrize("every", [1, 3, 4])
def test_the_line_stands_between_seen_and_forecast(film, every):
    axis = film_strip(*film, SEEN_STEPS, every=every).axes[0]
    centres = dict(zip(texts(axis)[1], axis.get_xticks(), strict=True))
    line = next(line for line in axis.lines if line.get_label() == "forecast start")
    assert to_hex(line.get_color()) == FORECAST.lower()
    last, first = (SEEN_STEPS - 1) // every * every, -(-SEEN_STEPS // every) * every
    assert centres[str(last + 1)] + WIDTH / 2 < line.get_xdata()[0] < centres[str(first + 1)] - WIDTH / 2
    assert {text.get_text() for text in axis.texts} == {"seen", "forecast"}


def test_strip_takes_about_twelve_columns_by_itself(film):
    truth, filtered, samples = (np.repeat(part, 6, axis=-3) for part in film)
    assert texts(film_strip(truth, filtered, samples).axes[0])[1] == [str(step) for step in range(1, 61, 5)]


def test_one_sample_has_no_mean_and_filtered_frames_may_go_on(film):
    truth, filtered, samples = film
    longer = np.concatenate([filtered, truth[SEEN_STEPS:]])
    figure = film_strip(truth, longer, samples[:1], SEEN_STEPS, every=1)
    assert texts(figure.axes[0])[0] == ["truth", "filtered", "sample 1"]
    assert (pictures(figure)[1, SEEN_STEPS:] == BLANK).all()


def test_missing_frames_are_striped(film):
    truth, filtered, samples = film
    observed = np.array([True, False, True, True])
    drawn = pictures(film_strip(truth, filtered, samples, observed=observed, every=1))[0, ..., 0]
    np.testing.assert_array_equal(drawn[[0, 2, 3]], 255 * truth[[0, 2, 3]])
    assert drawn[1, 0, 1] == 255  # what was there is still seen
    assert len(np.unique(drawn[1])) == 3
    assert drawn[1].min() > 0
    unknown = truth.copy()
    unknown[1] = np.nan
    drawn = pictures(film_strip(unknown, filtered, samples, every=1))[0, ..., 0]
    assert len(np.unique(drawn[1])) == 2
    np.testing.assert_array_equal(drawn[2:], 255 * truth[2:])


def test_strip_is_written_in_a_readable_size(film, tmp_path):
    path = save_figure(film_strip(*film, title="box"), tmp_path / "strip.png")
    with Image.open(path) as image:
        assert image.width == pytest.approx(150 * (1.0 + 0.5 * 10 * 14 / 12), abs=15)
        colours = {colour for _, colour in image.convert("RGB").getcolors(image.width * image.height)}
    assert {BLACK, WHITE, BLANK, ImageColor.getrgb(SEEN), ImageColor.getrgb(FORECAST)} <= colours


def test_gif_has_a_frame_for_every_step(film, tmp_path):
    path = gif(*film, tmp_path / "new" / "film.gif", scale=5, frames_per_second=10.0)
    assert [found.name for found in path.parent.iterdir()] == ["film.gif"]
    panels = 2 + 4
    with Image.open(path) as image:
        assert image.n_frames == STEPS
        assert image.info["loop"] == 0
        assert image.width == panels * (5 * WIDTH + 8 + 6) + 6
        durations = []
        for step in range(STEPS):
            image.seek(step)
            durations.append(image.info["duration"])
            dots = np.asarray(image.convert("RGB"))
            ahead = step >= SEEN_STEPS
            assert tuple(dots[24, 6]) == ImageColor.getrgb(FORECAST if ahead else SEEN)  # corner of the first border
            inside = dots[28:][: 5 * HEIGHT, 10:][:, : 5 * WIDTH]
            np.testing.assert_array_equal(inside[2::5, 2::5, 0], 255 * film[0][step])
            corner = dots[28:, 6 + 2 * (5 * WIDTH + 14) + 4 :][: 5 * HEIGHT, : 5 * WIDTH]  # of the first sample
            if ahead:
                np.testing.assert_array_equal(corner[2::5, 2::5, 0], 255 * film[2][0, step - SEEN_STEPS])
            else:
                assert (corner == corner[0, 0]).all()
                assert 220 < corner[0, 0, 0] < 250
    assert durations == [100] * (STEPS - 1) + [1000]


def test_gif_keeps_frames_that_do_not_change(tmp_path):
    still = np.zeros((STEPS, 16, 16))
    path = gif(still, still[:4], still[None, 4:], tmp_path / "still.gif", scale=8)
    with Image.open(path) as image:
        assert image.n_frames == STEPS


def test_gif_that_fails_leaves_what_was_there(film, tmp_path, monkeypatch):
    path = gif(*film, tmp_path / "film.gif")
    before = path.read_bytes()

    def fail(self, target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        gif(*film, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, f, s: (t[0], f, s), "true frames"),
        (lambda t, f, s: (t, f[..., 1:], s), "filtered frames"),
        (lambda t, f, s: (t, f, s[0]), "sampled frames"),
        (lambda t, f, s: (t, f, s[:, 1:]), r"expected samples \(sample, 6, 8, 12\)"),
        (lambda t, f, s: (t, t, s), "one to forecast"),
        (lambda t, f, s: (255 * t, f, s), "divide by 255"),
        (lambda t, f, s: (t, f, s - 1), "between 0 and 1"),
    ],
)
def test_frames_that_do_not_fit(film, tmp_path, change, message):
    frames = change(*film)
    with pytest.raises(ValueError, match=message):
        film_strip(*frames)
    with pytest.raises(ValueError, match=message):
        gif(*frames, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


def test_options_that_cannot_be(film, tmp_path):
    with pytest.raises(ValueError, match=r"\.gif"):
        gif(*film, tmp_path / "film.png")
    with pytest.raises(ValueError, match="50 frames per second"):
        gif(*film, tmp_path / "film.gif", frames_per_second=60.0)
    with pytest.raises(ValueError, match="every and shown"):
        film_strip(*film, every=0)
    with pytest.raises(ValueError, match="observation mask"):
        film_strip(*film, observed=[True, False])
    with pytest.raises(ValueError, match="filtered frames"):
        film_strip(*film, 5)


def test_imputation_shows_what_was_seen_and_what_is_filled_in(film):
    truth = film[0]
    filled = np.stack([np.roll(truth, shift, axis=1) for shift in (1, 2, 3)]) / 2
    still = np.repeat(truth[:1], STEPS, axis=0)
    observed = np.ones(STEPS, np.bool_)
    observed[[2, 3, 6]] = False
    hidden = ~observed
    figure = imputation_strip(truth, filled, observed, still=still, shown=2, title="box")
    rows, columns = texts(figure.axes[0])
    assert rows == ["truth", "seen", "filled in", "sample 1", "sample 2", "last seen"]
    assert columns == [str(step) for step in range(1, STEPS + 1)]
    drawn = pictures(figure)[..., 0]
    np.testing.assert_array_equal(drawn[0], 255 * truth)
    np.testing.assert_array_equal(drawn[1:3][:, observed], [255 * truth[observed]] * 2)
    grey = np.unique(drawn[1, hidden])
    assert len(grey) == 1
    assert 0 < grey[0] < 255
    np.testing.assert_array_equal(drawn[2, hidden], np.round(255 * filled.mean(0)[hidden]))
    np.testing.assert_array_equal(drawn[3:5][:, hidden], np.round(255 * filled[:2, hidden]))
    np.testing.assert_array_equal(drawn[5, hidden], 255 * still[hidden])
    assert (drawn[3:][:, observed] == BLANK[0]).all()
    bars = {
        (line.get_xdata()[0], line.get_xdata()[1]): to_hex(line.get_color()).upper() for line in figure.axes[0].lines
    }
    step = WIDTH + 2
    orange = {(2 * step, 3 * step + WIDTH), (6 * step, 6 * step + WIDTH)}
    blue = {(0, step + WIDTH), (4 * step, 5 * step + WIDTH), (7 * step, 9 * step + WIDTH)}
    assert bars == {**dict.fromkeys(orange, FORECAST.upper()), **dict.fromkeys(blue, SEEN.upper())}
    assert [text.get_text() for text in figure.axes[0].texts] == ["seen", "hidden"]


def test_imputations_that_do_not_fit(film):
    truth, observed = film[0], np.ones(STEPS, np.bool_)
    for filled, mask, still in (
        (truth[None, 1:], observed, None),
        (truth[None], observed[1:], None),
        (truth[None], observed, truth[1:]),
    ):
        with pytest.raises(ValueError, match="expected frames and an observation mask"):
            imputation_strip(truth, filled, mask, still=still)
    with pytest.raises(ValueError, match="filled-in frames"):
        imputation_strip(truth, truth, observed)


def layers(axis):
    return [artist for artist in axis.collections if isinstance(artist, PolyCollection)]


def test_switches_are_stacked_and_collisions_marked():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(10, 0.3), size=20)
    collision = np.zeros(20, np.bool_)
    collision[[3, 11]] = True
    figure = switch_plot(weights, collision, seen=8, title="box")
    axis = figure.axes[0]
    chosen = np.sort(np.argsort(-weights.var(0))[:7])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*(f"base {index + 1}" for index in chosen), "other 3", "collision", "forecast start"]
    assert len({to_hex(area.get_facecolor()[0]) for area in layers(axis)}) == 8
    upright = [
        line.get_xdata()[0] for line in axis.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    ]
    assert sorted(upright) == [4, 8.5, 12]  # steps from 1
    tops = np.cumsum(weights[:, chosen], axis=1)
    for area, top in zip(layers(axis), tops.T, strict=False):
        corners = area.get_paths()[0].vertices
        at = corners[np.isclose(corners[:, 0], 5.5)][:, 1]  # between steps 5 and 6 the area jumps
        assert np.isclose(at, top[4]).any()
        assert np.isclose(at, top[5]).any()


def test_few_switches_are_all_named():
    figure = switch_plot(np.full((5, 2), 0.5), np.zeros(5))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["base 1", "base 2"]


@pytest.mark.parametrize(
    ("weights", "collision", "message"),
    [
        (np.full((5, 2), 0.5), np.zeros(4), "collisions"),
        (np.full(5, 1.0), np.zeros(5), "weights"),
        (np.full((5, 2), 0.4), np.zeros(5), "sum to 1"),
        (np.tile([1.5, -0.5], (5, 1)), np.zeros(5), "nonnegative"),
        (np.full((5, 2), np.nan), np.zeros(5), "nonnegative"),
    ],
)
def test_weights_that_are_none(weights, collision, message):
    with pytest.raises(ValueError, match=message):
        switch_plot(weights, collision)


@pytest.fixture
def table():
    rows = [
        {"data": data, "model": model, "horizon": step, "wasserstein": base * step, "wasserstein_se": 0.1 * base}
        for data in ("box", "pong", "polygon")
        for model, base in (("arsgls", 1.0), ("kvae-rb", 2.0), ("last frame", 3.0))
        for step in range(1, 6)
    ]
    return pd.DataFrame(rows)


def test_horizon_draws_a_band_for_every_model(table):
    figure = horizon_plot(table, panel="data", floors=["last frame"], title="video")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["box", "pong", "polygon"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["arsgls", "kvae-rb", "last frame"]
    for axis in figure.axes:
        for base, line, band in zip((1.0, 2.0, 3.0), axis.lines, layers(axis), strict=True):
            np.testing.assert_allclose(line.get_ydata(), base * np.arange(1, 6))
            corners = band.get_paths()[0].vertices
            assert corners[corners[:, 0] == 5, 1].min() == pytest.approx(4.9 * base)
            assert corners[corners[:, 0] == 5, 1].max() == pytest.approx(5.1 * base)
        assert [line.get_linestyle() for line in axis.lines] == ["-", "-", "--"]
    assert len({to_hex(line.get_color()) for line in figure.axes[0].lines}) == 3


def test_horizon_without_panels_or_errors(table):
    box = table.loc[table["data"] == "box"].assign(wasserstein_se=np.nan)
    figure = horizon_plot(box)
    assert len(figure.axes) == 1
    assert figure.axes[0].get_ylabel() == "Wasserstein distance (pixels)"
    figure = horizon_plot(
        box.add_prefix("expected_").assign(model=box["model"], horizon=box["horizon"]), metric="expected_wasserstein"
    )
    assert figure.axes[0].get_ylabel() == "Wasserstein distance of expected frames (pixels)"
    assert figure.axes[0].get_ylim()[0] == 0


def test_tables_that_lack_something(table):
    with pytest.raises(ValueError, match="iou_se"):
        horizon_plot(table, metric="iou")
    with pytest.raises(ValueError, match="expected floors"):
        horizon_plot(table, floors=["nobody"])
    with pytest.raises(ValueError, match="0 rows"):
        horizon_plot(table.iloc[:0])
