import numpy as np
import pandas as pd
import pytest
from gluonts.model import QuantileForecast, SampleForecast
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tsforecast.evaluation import INTERVALS, LEVELS
from tsforecast.plots import (
    COLOURS,
    plot_calibration,
    plot_decomposition,
    plot_forecasts,
    plot_learning_curve,
    plot_regimes,
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


@pytest.mark.parametrize(("count", "ordered"), [(3, False), (12, False), (12, True)])
def test_regimes_are_layers_that_fill_the_panel(rng, count, ordered):
    weights = rng.dirichlet(np.ones(count), 50)
    weights[:, 0] = np.linspace(0, 0.9, 50)
    weights /= weights.sum(1, keepdims=True)
    observed = pd.Series(rng.normal(size=50), pd.period_range("2020-01-01", periods=50, freq="h"), name="a")
    above, below = plot_regimes(observed, weights, ordered=ordered).axes
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
