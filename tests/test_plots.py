import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.model import QuantileForecast, SampleForecast
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tsforecast.evaluation import BASELINES, INTERVALS, LEVELS, Difference
from tsforecast.forecasting.exact import BatchMarginals, ExactForecast
from tsforecast.models import MODELS
from tsforecast.models.parts.marginals import Marginals
from tsforecast.plots import (
    COLOURS,
    LEARNING,
    MODEL,
    colour_of,
    plot_adaptation,
    plot_calibration,
    plot_decomposition,
    plot_differences,
    plot_forecasts,
    plot_learning_curve,
    plot_optimisation,
    plot_regimes,
    plot_regret,
    plot_scores_by_horizon,
    save_figure,
)

START = pd.Period("2024-01-01 00:00", "h")
LENGTH, HORIZON = 60, 6


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


def entry(rng, item, targets=1):
    shape = LENGTH if targets == 1 else (targets, LENGTH)
    return {"item_id": item, "start": START, "target": rng.normal(size=shape).cumsum(-1)}


def forecast(rng, item, at, targets=1):
    shape = (50, HORIZON) if targets == 1 else (50, HORIZON, targets)
    return SampleForecast(rng.normal(size=shape), start_date=START + at, item_id=item)


def line(axis, label):
    found = [artist for artist in axis.lines if artist.get_label() == label]
    assert len(found) == 1
    return found[0]


def bands(axis):
    return [artist for artist in axis.collections if isinstance(artist, PolyCollection)]


def test_a_panel_per_series_with_bands_medians_and_starts(rng):
    entries = [entry(rng, name) for name in ("a", "b", "c", "without forecast")]
    forecasts = [forecast(rng, name, at) for name in ("c", "a", "b", "unknown") for at in (54, 48)]
    figure = plot_forecasts(entries, forecasts, title="three")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b", "c"]
    for axis in figure.axes:
        assert len(bands(axis)) == 2 * len(INTERVALS)
        assert len(axis.lines) == 1 + 2 * 2  # observed; a median and a start line per forecast
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(legend) == ["50 % interval", "80 % interval", "95 % interval", "forecast start", "median", "observed"]
    assert figure.get_suptitle() == "three"


def test_bands_are_the_quantiles_and_open_at_the_last_observation(rng):
    series = entry(rng, "a")
    array = np.tile(np.array(LEVELS)[:, None], HORIZON) + 10
    made = QuantileForecast(array, START + 54, [str(level) for level in LEVELS], item_id="a")
    axis = plot_forecasts([series], [made], history=12).axes[0]
    for band, low in zip(bands(axis), (0.025, 0.1, 0.25), strict=True):  # widest first
        corners = band.get_paths()[0].vertices
        assert corners[:, 1].max() == pytest.approx(11 - low)
        at_end = corners[corners[:, 0] == corners[:, 0].max(), 1]
        assert at_end.min() == pytest.approx(10 + low)
        at_start = corners[corners[:, 0] == corners[:, 0].min(), 1]
        np.testing.assert_allclose(at_start, series["target"][53])
    observed = line(axis, "observed").get_ydata()
    np.testing.assert_array_equal(observed, series["target"][54 - 12 :])
    np.testing.assert_allclose(line(axis, "median").get_ydata()[1:], 10.5)


def test_bands_of_an_exact_forecast_are_smooth(rng):
    """The median is the line of the means, and bands widen as deviations do, whatever the paths are."""
    mean, deviation = 10 + 0.5 * torch.arange(HORIZON).double(), 1 + torch.arange(HORIZON).double()
    marginals = Marginals.single(mean[None, :, None], deviation[None, :, None], "none")
    batch = BatchMarginals(marginals, np.zeros((1, 1), np.int64))
    made = ExactForecast(batch, 0, rng.normal(size=(5, HORIZON)), START + 54, "a")
    axis = plot_forecasts([entry(rng, "a")], [made], history=12).axes[0]
    np.testing.assert_allclose(line(axis, "median").get_ydata()[1:], mean)
    corners = bands(axis)[0].get_paths()[0].vertices
    for low, time in zip(mean - 1.959963984540054 * deviation, np.unique(corners[:, 0])[1:], strict=True):
        assert corners[corners[:, 0] == time, 1].min() == pytest.approx(low.item())


def test_missing_values_stay_gaps_and_lone_values_are_marked(rng):
    series = entry(rng, "a")
    series["target"][[49, 51, 52, 53]] = np.nan
    axis = plot_forecasts([series], [forecast(rng, "a", 54)], history=10).axes[0]
    assert np.isnan(line(axis, "observed").get_ydata()[[5, 7, 8, 9]]).all()
    assert line(axis, "observed").get_marker() == "."
    assert len(line(axis, "median").get_ydata()) == HORIZON  # no observation to open at
    whole = plot_forecasts([entry(rng, "a")], [forecast(rng, "a", 54)], history=10).axes[0]
    assert line(whole, "observed").get_marker() == "None"


@pytest.mark.parametrize("length", [54, 57])
def test_the_future_may_be_unknown(rng, length):
    series = entry(rng, "a")
    series["target"] = series["target"][:length]
    axis = plot_forecasts([series], [forecast(rng, "a", 54)], history=10).axes[0]
    assert len(line(axis, "observed").get_ydata()) == length - 44
    assert len(line(axis, "median").get_ydata()) == HORIZON + 1


def test_a_panel_per_target(rng):
    series, made = entry(rng, "a", targets=3), forecast(rng, "a", 54, targets=3)
    figure = plot_forecasts([series], [made])
    assert [axis.get_title(loc="left") for axis in figure.axes] == [f"a, target {row}" for row in range(3)]
    for row, axis in enumerate(figure.axes):
        np.testing.assert_allclose(line(axis, "median").get_ydata()[1:], made.quantile(0.5)[:, row])
        np.testing.assert_array_equal(line(axis, "observed").get_ydata(), series["target"][row, 48:])


def test_axes_name_the_target_and_its_unit(rng):
    def labels(count, **names):
        figure = plot_forecasts([entry(rng, "a", count)], [forecast(rng, "a", 54, count)], **names)
        return [(axis.get_title(loc="left"), axis.get_ylabel()) for axis in figure.axes]

    assert labels(1) == [("a", "")]
    assert labels(1, targets=["demand"]) == [("a", "demand")]
    assert labels(1, targets=["demand"], unit="MW") == [("a", "demand (MW)")]
    assert labels(1, unit="MW") == [("a", "MW")]
    long = labels(1, targets=["photovoltaic output"], unit="W per kW of panels")
    assert long == [("a", "photovoltaic output (W per\nkW of panels)")]  # no higher than its panel
    assert labels(2, targets=["up", "down"], unit="m") == [("a, up", "up (m)"), ("a, down", "down (m)")]
    parts = {"level": (np.zeros(3), np.ones(3))}
    observed = pd.Series(np.ones(3), pd.period_range(START, periods=3))
    assert plot_decomposition(observed, parts, label="demand (MW)").axes[0].get_ylabel() == "demand (MW)"
    assert plot_regimes(observed, np.ones((3, 1)), label="demand (MW)").axes[0].get_ylabel() == "demand (MW)"


def test_forecasts_of_other_series_are_refused(rng):
    with pytest.raises(ValueError, match=r"some of the series \['b'\]"):
        plot_forecasts([entry(rng, "a")], [forecast(rng, "b", 54)])


def test_decomposition_has_a_panel_per_component(rng):
    observed = pd.Series(rng.normal(size=LENGTH), pd.period_range(START, periods=LENGTH), name="meter")
    parts = {name: (rng.normal(size=LENGTH), np.full(LENGTH, 0.5)) for name in ("level", "hour of day", "fit")}
    figure = plot_decomposition(observed, parts)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["observed (black) and fit", "level", "hour of day"]
    for axis, name in zip(figure.axes, ("fit", "level", "hour of day"), strict=True):
        mean = parts[name][0]
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), mean)
        corners = bands(axis)[0].get_paths()[0].vertices[:, 1]
        assert corners.max() == pytest.approx(mean.max() + 1)
        assert corners.min() == pytest.approx(mean.min() - 1)
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), observed)
    assert "meter" in figure.get_suptitle()
    with pytest.raises(ValueError, match="expected 60 steps of component 'level'"):
        plot_decomposition(observed, {"level": (np.zeros(59), np.zeros(59))})


def regimes(rng, count, **options):
    weights = rng.dirichlet(np.ones(count), 50)
    weights[:, 0] = np.linspace(0, 0.9, 50)
    weights /= weights.sum(1, keepdims=True)
    observed = pd.Series(rng.normal(size=50), pd.period_range("2020-01-01", periods=50, freq="h"), name="a")
    return weights, observed, plot_regimes(observed, weights, **options)


@pytest.mark.parametrize(("count", "ordered"), [(3, False), (12, False), (12, True)])
def test_regimes_are_layers_that_fill_the_panel(rng, count, ordered):
    scales = np.exp(np.linspace(-2, 2, count)) if ordered else None
    weights, observed, figure = regimes(rng, count, scales=scales, ordered=ordered)
    above, below = figure.axes[:2]
    np.testing.assert_array_equal(above.lines[0].get_ydata(), observed)
    layers = below.collections
    assert len(layers) == (count if ordered or count <= len(COLOURS) else len(COLOURS) + 1)
    tops = np.array([layer.get_paths()[0].get_extents().y1 for layer in layers])
    assert tops[-1] == pytest.approx(1)
    bright = [float(np.sum(layer.get_facecolor()[0][:3] * [0.3, 0.6, 0.1])) for layer in layers]
    assert (bright == sorted(bright)) == ordered
    if ordered:
        assert tops[0] == pytest.approx(weights[:, 0].max())
    with pytest.raises(ValueError, match=r"expected weights of 50 steps, got an array of shape \(49,"):
        plot_regimes(observed, weights[1:])
    with pytest.raises(ValueError, match=f"expected the scales of {count} regimes"):
        plot_regimes(observed, weights, scales=[1.0])
    with pytest.raises(ValueError, match=f"expected the scales of {count} regimes, got None"):
        plot_regimes(observed, weights, ordered=True)


def test_a_bar_tells_the_noise_of_ordered_regimes(rng):
    scales = np.array([3.0, 0.25, 1.0])
    _, _, figure = regimes(rng, 3, scales=scales, ordered=True)
    _, below, bar = figure.axes
    assert bar.get_ylabel() == "scale of the noise"
    assert [tick.get_text() for tick in bar.get_yticklabels()] == ["× 0.25", "× 1", "× 3"]
    (patches,) = [mesh for mesh in bar.collections if mesh.get_array() is not None]
    colours = [to_hex(colour) for colour in patches.to_rgba(patches.get_array()).reshape(-1, 4)]
    assert colours == [to_hex(layer.get_facecolor()[0]) for layer in below.collections]  # calm to wild, in both
    assert not figure.legends


def test_a_legend_names_regimes_without_an_order(rng):
    _, _, figure = regimes(rng, 9, scales=np.arange(1.0, 10.0))
    below, (legend,) = figure.axes[1], figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0] == "1: noise × 1"  # the one that varies most
    assert len(texts) == len(COLOURS) + 1
    assert texts[-1] == "2 others"
    patches = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert patches == [to_hex(layer.get_facecolor()[0]) for layer in below.collections]
    _, _, figure = regimes(rng, 2)
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == ["1", "2"]


def test_dates_are_marked_by_name(rng):
    marks = {"noon": "2020-01-01 12:00", "end": "2020-01-03 01:00", "later": "2021-01-01", "before": "2019-01-01"}
    _, observed, figure = regimes(rng, 3, marks={name: pd.Timestamp(date) for name, date in marks.items()})
    above, below = figure.axes[:2]
    assert [text.get_text() for text in above.texts] == ["noon", "end"]
    for axis in (above, below):
        at = [mark.get_xdata()[0] for mark in axis.lines if len(mark.get_xdata()) == 2]
        assert at == [np.datetime64("2020-01-01T12:00"), np.datetime64("2020-01-03T01:00")]
        assert axis.get_xlim() == figure.axes[0].get_xlim()
    assert len(observed) == 50


def test_calibration_draws_every_model_and_the_diagonal():
    grid = pd.Index(np.linspace(0, 1, 101).round(2), name="probability")
    cover = np.where(np.arange(101) % 2 == 0, grid, np.nan)
    perfect = pd.DataFrame({"pit": grid, "coverage": cover}, index=grid)
    skewed = pd.DataFrame({"pit": grid**2, "coverage": cover / 2}, index=grid)
    left, right = plot_calibration({"model": perfect, "naive": skewed}).axes
    histograms = [patch.get_data() for patch in left.patches]
    assert len(histograms) == 3  # two outlines, and the first model's filling
    np.testing.assert_allclose(histograms[0].values, 1)
    np.testing.assert_allclose(histograms[2].values, np.diff(np.linspace(0, 1, 11) ** 2) * 10)
    assert [artist.get_label() for artist in right.lines] == ["model", "naive", "calibrated"]
    np.testing.assert_allclose(right.lines[0].get_xdata(), right.lines[0].get_ydata())


def test_scores_by_horizon_has_a_panel_per_protocol():
    rows = [
        {"protocol": protocol, "model": model, "step": step, "crps": step * size}
        for protocol, steps in (("rolling", 4), ("long_term", 12))
        for size, model in enumerate(("issm", "naive"), start=1)
        for step in range(1, steps + 1)
    ]
    figure = plot_scores_by_horizon(pd.DataFrame(rows))
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["rolling", "long-term"]
    for axis, steps in zip(figure.axes, (4, 12), strict=True):
        assert len(axis.lines) == 2
        np.testing.assert_array_equal(axis.lines[1].get_ydata(), 2 * np.arange(1, steps + 1))
    with pytest.raises(ValueError, match="got 'mase'"):
        plot_scores_by_horizon(pd.DataFrame(rows), metric="mase")


def test_adaptation_tells_what_thin_and_thick_lines_are():
    times = pd.date_range("2020-03-01", periods=20, name="start")
    windows = pd.DataFrame({"moved": 0.0, "issm": np.arange(20.0), "issm+lofi": 1.0}, index=times)
    marks = {"closures": pd.Timestamp("2020-03-16")}
    figure = plot_adaptation(windows, ("issm", "issm+lofi"), marks=marks)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "issm", "issm+lofi", "thin, and bars: a single window", "thick: mean over the last 7 windows",
    ]  # fmt: skip
    thin, thick = (handle.get_linewidth() for handle in legend.legend_handles[2:])
    by_width = {artist.get_linewidth(): artist for artist in figure.axes[0].lines if artist.get_color() == MODEL}
    np.testing.assert_array_equal(by_width[thin].get_ydata(), windows["issm"])
    np.testing.assert_array_equal(by_width[thick].get_ydata()[6:], np.arange(3.0, 17.0))  # of the last seven
    assert [handle.get_color() for handle in legend.legend_handles[:2]] == [MODEL, LEARNING]
    assert [text.get_text() for text in figure.axes[0].texts] == ["closures"]


def test_every_model_has_a_colour_of_its_own():
    names = [*MODELS, *BASELINES]
    colours = [colour_of(name) for name in names]
    assert len({*colours, LEARNING}) == len(names) + 1
    assert colour_of("issm") == MODEL
    assert colour_of("auto_ets-168") == colour_of("auto_ets")
    assert colour_of("gls+lofi") == colour_of("issm+vd-ekf") == LEARNING
    assert colour_of("my own") == colour_of("my own") != LEARNING


def drawn_colours(names, models=None):
    """By figure, colour and dashes of the line of every name."""
    grid = pd.Index(np.linspace(0, 1, 101).round(2), name="probability")
    table = pd.DataFrame({"pit": grid, "coverage": grid}, index=grid)
    steps = [{"protocol": "rolling", "model": name, "step": step, "crps": 1.0} for name in names for step in (1, 2)]
    axes = {
        "calibration": plot_calibration({name: table for name in names}, models=models).axes[1],
        "horizon": plot_scores_by_horizon(pd.DataFrame(steps), models=models).axes[0],
    }
    found = {
        figure: {name: (line(axis, name).get_color(), line(axis, name).get_linestyle()) for name in names}
        for figure, axis in axes.items()
    }
    figure = plot_differences({name: Difference(1.0, 0.5, 1.5) for name in names}, models=models)
    places = {place: name for place, name in enumerate(names)}
    found["differences"] = {
        places[artist.get_ydata()[0]]: artist.get_color() for artist in figure.axes[0].lines[0:-1:2]
    }
    return found


def test_colours_do_not_depend_on_what_stands_beside():
    few, many = drawn_colours(["rsgls", "auto_ets"]), drawn_colours(["gls", "auto_ets", "rsgls", "mstl", "issm"])
    for figure, colours in few.items():
        assert {name: many[figure][name] for name in colours} == colours
    assert few["horizon"]["rsgls"][0] == few["differences"]["rsgls"] == colour_of("rsgls")


def test_runs_of_one_model_have_its_colour_and_other_dashes():
    found = drawn_colours(["first", "second", "mstl"], {"first": "gls", "second": "gls"})
    for figure in ("calibration", "horizon"):
        colours, dashes = zip(*found[figure].values(), strict=True)
        assert colours == (colour_of("gls"), colour_of("gls"), colour_of("mstl"))
        assert dashes[0] != dashes[1]


def test_forecasts_have_the_colour_of_their_model(rng):
    figure = plot_forecasts([entry(rng, "a")], [forecast(rng, "a", 54)], colour="#009E73")
    axis = figure.axes[0]
    assert line(axis, "median").get_color() == "#009E73"
    shades = [band.get_facecolor()[0] for band in bands(axis)]  # widest first
    assert all(shade[3] == 1 and shade[1] == max(shade[:3]) for shade in shades)
    assert sorted((shade[0] for shade in shades), reverse=True) == [shade[0] for shade in shades]


def test_learning_curve_from_a_logger_file(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(
        "epoch,step,train_loss,val_loss\n0,10,,3.0\n0,10,2.0,\n1,20,,2.5\n1,20,1.5,\n2,30,,2.75\n2,30,1.25,\n"
    )
    axis = plot_learning_curve(path).axes[0]
    np.testing.assert_array_equal(line(axis, "training").get_ydata(), [2.0, 1.5, 1.25])
    np.testing.assert_array_equal(line(axis, "validation").get_ydata(), [3.0, 2.5, 2.75])
    assert [text.get_text() for text in axis.texts] == ["best: 2.500"]
    alone = plot_learning_curve(pd.DataFrame({"epoch": [0, 1], "train_loss": [2.0, 1.0]})).axes[0]
    assert not alone.texts  # the last epoch is kept
    with pytest.raises(ValueError, match="expected columns epoch and train_loss"):
        plot_learning_curve(pd.DataFrame({"epoch": [0], "loss": [1.0]}))


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_figures_are_saved_by_suffix_and_leave_no_other_file(rng, tmp_path, name, magic):
    figure = plot_forecasts([entry(rng, "a")], [forecast(rng, "a", 54)])
    path = save_figure(figure, tmp_path / "plots" / name)
    assert path.read_bytes().startswith(magic)
    assert list(path.parent.iterdir()) == [path]


def test_a_figure_that_cannot_be_drawn_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = Figure()
    figure.text(0.5, 0.5, r"$\unknown$")
    with pytest.raises(ValueError, match="unknown"):
        save_figure(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_function_touches_the_state_of_pyplot(rng):
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()
    plot_forecasts([entry(rng, "a")], [forecast(rng, "a", 54)])
    assert plt.get_fignums() == before


def test_long_names_are_cut_in_pictures():
    start = pd.Period("2024-01-01", freq="D")
    entry = {"item_id": "x" * 100_000, "start": start, "target": np.arange(10.0)}
    forecast = SampleForecast(np.zeros((5, 3)), start + 10, item_id=entry["item_id"])
    figure = plot_forecasts([entry], [forecast])
    assert len(figure.axes[0].get_title(loc="left")) <= 60


def test_dashed_lines_of_regret_are_in_the_legend():
    evaluations = pd.DataFrame({"evaluation": [1, 2, 3], "value": [3.0, 1.0, 2.0], "regret": [2.5, 0.5, 0.5]})
    rounds = pd.DataFrame({"run": 0, "round": range(4), "regret": [0.0, 1.0, 1.5, 1.5]})
    for figure, said in (
        (plot_optimisation(evaluations, 2), "end of the initial points"),
        (plot_regret({"lofi": rounds}, change=2), "best arms change"),
    ):
        axis = figure.axes[0]
        (line,) = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert line.get_label() == said
        legend = axis.get_legend()
        assert legend is not None
        assert said in [text.get_text() for text in legend.get_texts()]
