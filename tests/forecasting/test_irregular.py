"""The estimator and predictor of series with clocks of their own."""

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast import StateSpaceEstimator, StateSpacePredictor, load_predictor
from tsforecast.core import Gaussian, kalman
from tsforecast.core.continuous import OrnsteinUhlenbeck, SumSDE, over_gaps
from tsforecast.data.task import ForecastTask
from tsforecast.data.timed_entries import after, before
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.clock_training import strongest_frequency
from tsforecast.forecasting.predictor import save_predictor, with_prediction_length

HOUR = 3600 * 10**9
_HALVES = (slice(20), slice(20, None))  # the second begins at the moment at which the first ends
QUIET = {"max_epochs": 1, "enable_progress_bar": False, "logger": False}


def entries(count: int = 3, targets: int = 1) -> list[dict]:
    rng = np.random.default_rng(0)
    found = []
    for k in range(count):
        times = np.sort(rng.integers(0, 200 * HOUR, 32 + k))
        times[20] = times[19]  # two observations of one moment
        target = 10 * (k + 1) + np.sin(times / HOUR / 24 * 2 * np.pi) + 0.1 * rng.standard_normal((targets, len(times)))
        found.append({"item_id": f"s{k}", "times": times, "target": target if targets > 1 else target[0]})
    return found


def train(model: str = "issm", data=None, **options) -> StateSpacePredictor:
    few = {"context_length": 20, "num_batches_per_epoch": 1, "seed": 0, "trainer_kwargs": QUIET}
    return StateSpaceEstimator(model, horizon="1D", **few, **options).train(entries() if data is None else data)


@pytest.fixture(scope="module")
def predictor():
    return train(components="level+damped_level+day_with_1_harmonic", scaling="none")


def times_of(entry: dict, *hours: float) -> dict:
    return {entry["item_id"]: entry["times"][-1] + np.array([int(h * HOUR) for h in hours])}


def test_the_data_choose_components():
    assert train().prediction_net.hyperparameters["components"] == "level+damped_level+day"


def test_forecasts_are_those_of_the_filter_by_hand():
    """Oracle: `kalman` over the gaps, with the parameters of the series read from the model."""
    predictor = train(components="level+damped_level")
    entry = entries()[1]
    asked = times_of(entry, 0.5, 0.5, 30)
    (forecast,) = predictor.on_clock.forecast([entry], asked)
    parameters = predictor.prediction_net.dynamics.parameters_of_series
    own = parameters(torch.tensor([2]), torch.zeros(1, 0, dtype=torch.long))[0]
    change, prior, deviation, rate, noise = own.detach().exp()
    values = torch.as_tensor(entry["target"])
    location, scale = values.mean(), values.diff().abs().mean()
    sde = SumSDE([OrnsteinUhlenbeck(0 * rate, change**2), OrnsteinUhlenbeck(rate, 2 * rate * deviation**2)])
    every = np.concatenate([entry["times"], asked["s1"]])
    gaps = torch.as_tensor(np.diff(every, prepend=every[:1]) / predictor.on_clock.clock.unit)
    start = Gaussian(torch.zeros(2, dtype=torch.float64), torch.diag(torch.stack([prior, deviation]) ** 2))
    count, emitted = len(values), noise[None, None] ** 2
    belief = kalman.filter(over_gaps(sde, gaps[:count], emitted), start, ((values - location) / scale)[:, None]).belief
    _, expected = kalman.forecast(over_gaps(sde, gaps[count:], emitted), belief, 3)
    mean, deviation = expected.mean[:, 0] * scale + location, expected.cov[:, 0, 0].sqrt() * scale
    np.testing.assert_allclose(forecast.mean[:, 0], mean, rtol=1e-9)
    spread = forecast.quantiles([0.975])[0, :, 0] - forecast.mean[:, 0]
    np.testing.assert_allclose(spread, 1.959963984540054 * deviation, rtol=1e-9)


@pytest.mark.parametrize("model", ["issm", "gls"])
def test_beliefs_that_are_updated_forecast_like_the_whole_past(model, tmp_path):
    """Also through a file, one observation at a time, from between two of one moment. Scales would differ."""
    predictor = train(model, scaling="none")
    past = entries()
    early, late = ([{**e, "times": e["times"][part], "target": e["target"][part]} for e in past] for part in _HALVES)
    save_beliefs(tmp_path / "beliefs.pt", predictor.filter(early).values(), predictor.prediction_net)
    moved = load_beliefs(tmp_path / "beliefs.pt", predictor.prediction_net)
    for k in range(len(late[0]["times"])):
        one = {**late[0], "times": late[0]["times"][k : k + 1], "target": late[0]["target"][k : k + 1]}
        moved = predictor.update(moved, [one])
    moved = predictor.update(moved, late[1:])
    asked = {entry["item_id"]: entry["times"][-1] + np.arange(1, 4) * HOUR for entry in past}
    expected = {f.item_id: f.quantiles([0.1, 0.9]) for f in predictor.on_clock.forecast(past, asked)}
    for found in predictor.on_clock.forecast_from(moved, asked):
        np.testing.assert_allclose(found.quantiles([0.1, 0.9]), expected[found.item_id], rtol=1e-9)


def test_noise_has_the_rhythm_of_the_day():
    """By hand: far ahead what fades has its stationary variance, and with the noise the size that the hour says."""
    predictor = train(components="damped_level+day_with_1_harmonic", scaling="none")
    dynamics, entry = predictor.prediction_net.dynamics, entries()[1]
    with torch.no_grad():
        dynamics.rhythm[0, 0] = torch.tensor([0.6, -0.3])
        dynamics.parameters_of_series.population[2:4] = torch.tensor([-20.0, -20.0])  # of the cycle, which is known
        dynamics.parameters_of_series.series.zero_()
    deviation, _, _, _, noise = dynamics.parameters_of_series.population.detach().exp().tolist()
    times = entry["times"][-1] // (24 * HOUR) * 24 * HOUR + np.array([1000 * 24, 1000 * 24 + 6, 1000 * 24 + 15]) * HOUR
    (together,) = predictor.on_clock.forecast([entry], {"s1": times})
    (alone,) = predictor.on_clock.forecast([entry], {"s1": times[2:]})
    np.testing.assert_allclose(alone.quantiles([0.9])[:, 0], together.quantiles([0.9])[:, 2], rtol=1e-9)
    angle = 2 * np.pi * np.array([0, 6, 15]) / 24
    size = np.exp(
        sum(
            dynamics.rhythm[0, k].detach().numpy() @ [np.cos((k + 1) * angle), np.sin((k + 1) * angle)]
            for k in range(3)
        )
    )
    cycle = np.exp(-8.0) + 1010 * np.exp(-14.0)  # at most: the least prior variance, and least changes of all days
    least = size**2 * (deviation**2 + noise**2)
    one, two = together.quantiles([0.8413447460685429, 0.9772498680518208])[..., 0]  # above 0, where they are cut
    spread = two - one
    assert (spread**2 > least * (1 - 1e-6)).all()
    assert (spread**2 < (least + cycle) * (1 + 1e-6)).all()


def test_interpolation_is_a_forecast_where_nothing_comes_after(predictor):
    entry = entries()[0]
    asked = times_of(entry, 1, 5.5)
    (ahead,), (inside,) = predictor.on_clock.forecast([entry], asked), predictor.on_clock.interpolate([entry], asked)
    np.testing.assert_allclose(inside.quantiles([0.1, 0.9]), ahead.quantiles([0.1, 0.9]), rtol=1e-8)


def test_interpolation_does_not_depend_on_what_else_is_asked():
    """Also not by the scale of a series, which is that of its observations."""
    predictor, entry = train(components="level+damped_level"), entries()[1]
    times = entry["times"][5:25] + 7 * 60 * 10**9
    (together,) = predictor.on_clock.interpolate([entry], {"s1": times})
    (alone,) = predictor.on_clock.interpolate([entry], {"s1": times[4:5]})
    np.testing.assert_allclose(alone.quantiles([0.1, 0.9])[:, 0], together.quantiles([0.1, 0.9])[:, 4], rtol=1e-9)


def test_interpolation_knows_both_sides(predictor):
    """It is surer between its neighbours than the forecast from the left, and least sure before the beginning."""
    entry = entries()[0]
    time = int(entry["times"][25])
    left = before(entry, time - 1)
    right = after(entry, time)
    gap = {
        **entry,
        "times": np.append(left["times"], right["times"]),
        "target": np.append(left["target"], right["target"]),
    }
    asked = {"s0": np.array([entry["times"][0] - HOUR, left["times"][-1], time])}
    (inside,) = predictor.on_clock.interpolate([gap], asked)
    (ahead,) = predictor.on_clock.forecast([left], {"s0": asked["s0"][2:]})
    wide = lambda f: (f.quantiles([0.9]) - f.quantiles([0.1]))[0, :, 0]  # noqa: E731
    assert wide(inside)[2] < wide(ahead)[0]
    assert wide(inside)[0] > wide(inside)[1]


@pytest.mark.parametrize(("model", "targets"), [("issm", 1), ("gls", 2)])
def test_effects_of_covariates_are_added_to_what_is_left_without_them(model, targets):
    """Oracle: the model without covariates, of the same other parameters, given observations minus the effects."""
    rng, past = np.random.default_rng(1), entries(targets=targets)
    for entry in past:
        entry["feat_dynamic_real"] = 5 + 2 * rng.standard_normal((2, len(entry["times"])))
    options = {"scaling": "none"} | ({"components": "level+damped_level"} if model == "issm" else {})
    with_effects, without = train(model, past, **options), train(model, entries(targets=targets), **options)
    weights = {name: value.clone() for name, value in with_effects.prediction_net.state_dict().items()}
    assert sum(int((value[..., -2:] != 0).any()) for name, value in weights.items() if _has_effects(name))  # learnt
    effects = torch.tensor([[0.7, -1.5], [0.3, 0.4]], dtype=torch.float64)[:targets]
    for name in list(weights):
        if name.endswith("target_inputs"):
            weights[name] = effects
        elif _has_effects(name):
            weights[name][..., -2:] = effects[0] if "population" in name else 0.0
    with_effects.prediction_net.load_state_dict(weights)
    names = without.prediction_net.state_dict()
    without.prediction_net.load_state_dict({n: weights[n][..., : names[n].shape[-1]] for n in names})
    mean, deviation = np.array(with_effects.on_clock.clock.dynamic_units).T
    explained = lambda u: np.squeeze(effects.numpy() @ ((u - mean[:, None]) / deviation[:, None]))  # noqa: E731
    left = [
        {"item_id": e["item_id"], "times": e["times"], "target": e["target"] - explained(e["feat_dynamic_real"])}
        for e in past
    ]
    covariates = {entry["item_id"]: rng.standard_normal((2, 3)) for entry in past}
    for answer, times in (
        ("forecast", {e["item_id"]: e["times"][-1] + np.array([1, 2, 50]) * HOUR for e in past}),
        ("interpolate", {e["item_id"]: e["times"][[2, 5, 9]] + HOUR for e in past}),
    ):
        found = getattr(with_effects.on_clock, answer)(past, times, covariates=covariates)
        for one, other in zip(found, getattr(without.on_clock, answer)(left, times), strict=True):
            moved = other.quantiles([0.1, 0.9]) + explained(covariates[one.item_id]).reshape(targets, 3).T
            np.testing.assert_allclose(one.quantiles([0.1, 0.9]), moved, rtol=1e-8)


def _has_effects(name: str) -> bool:
    return "parameters_of_series" in name or name.endswith("target_inputs")


def test_covariates_are_asked_for_by_rows_without_a_value_or_a_table():
    frames = []
    for entry in entries(2):
        stamps = np.append(entry["times"], entry["times"][[3, -1]] + HOUR).astype("datetime64[ns]")
        values = np.append(entry["target"], [np.nan, np.nan])
        price = np.arange(len(stamps), dtype=float)
        frames.append(
            pd.DataFrame({"item_id": entry["item_id"], "timestamp": stamps, "target": values, "price": price})
        )
    table, columns = pd.concat(frames), {"target": "target", "covariates": ["price"]}
    few = {"context_length": 20, "num_batches_per_epoch": 1, "seed": 0, "trainer_kwargs": QUIET}
    predictor = StateSpaceEstimator("issm", horizon="1D", components="level", **few).train(table, columns=columns)
    ahead, inside = predictor.predict_frame(table), predictor.on_clock.interpolate_frame(table)
    assert [len(ahead), len(inside)] == [2, 2]
    assert (ahead["timestamp"].to_numpy() > inside["timestamp"].to_numpy()).all()
    rows = table.groupby("item_id").tail(1).drop(columns="target")
    pd.testing.assert_frame_equal(predictor.predict_frame(table.dropna(), at=rows), ahead)
    parts = predictor.on_clock.components_frame(table.dropna())
    assert set(parts["component"]) == {"level", "covariates"}
    with pytest.raises(ValueError, match=r"expected a table of times and covariates by at"):
        predictor.predict_frame(table, every="1h")
    with pytest.raises(ValueError, match="the data have none behind the observations"):
        predictor.predict_frame(table.dropna())
    with pytest.raises(ValueError, match="the table of at needs the covariates of the data: there is no 'price'"):
        predictor.predict_frame(table, at=rows.drop(columns="price"))
    asked = times_of(predictor.on_clock.read_named(table)[0][0], 1)
    with pytest.raises(ValueError, match="series 's0': expected 1 covariates at each of 1 times, as in training"):
        list(predictor.on_clock.forecast(predictor.on_clock.read_named(table)[0], asked))


def test_paths_have_the_exact_distribution(predictor):
    entry, count = entries()[0], 4000
    (forecast,) = predictor.on_clock.forecast([entry], times_of(entry, 3, 9), num_samples=count)
    frame = forecast.path_frame()
    assert len(frame) == 2 * count
    mean = frame.groupby("timestamp")["value"].mean().to_numpy()
    error = frame.groupby("timestamp")["value"].std().to_numpy() / np.sqrt(count)
    assert (np.abs(mean - forecast.mean[:, 0]) < 4 * error).all()


def test_paths_of_several_targets_are_all_in_the_table():
    past = entries(targets=2)
    (forecast,) = train("gls", past).on_clock.forecast(past, times_of(past[1], 1, 2, 3), num_samples=4)
    table = forecast.path_frame(["wind", "sun"])
    assert list(table) == ["item_id", "timestamp", "target", "path", "value"]
    values = table.set_index(["path", "target", "timestamp"])["value"].unstack(["target"])[["wind", "sun"]]
    np.testing.assert_array_equal(values.to_numpy().reshape(4, 3, 2), forecast.paths)


def test_components_add_up_to_the_level_of_observations(predictor):
    frame = predictor.on_clock.components_frame(entries())
    assert set(frame["component"]) == {"level", "damped_level", "day_with_1_harmonic"}
    fit = frame[frame["item_id"] == "s2"].groupby("timestamp")["mean"].sum()
    assert abs(fit.median() - 30) < 1


@pytest.mark.parametrize(("model", "targets"), [("issm", 1), ("gls", 2)])
def test_frames_come_from_tables_and_saved_predictors(model, targets, tmp_path):
    names = [f"y{k}" for k in range(targets)]
    parts = [
        pd.DataFrame({"item_id": e["item_id"], "timestamp": e["times"].astype("datetime64[ns]"), "kind": "x"}).assign(
            **dict(zip(names, np.atleast_2d(e["target"]), strict=True))
        )
        for e in entries(targets=targets)
    ]
    table = pd.concat(parts).assign(site=7).rename(columns={"item_id": "probe", "timestamp": "at"})
    columns = {"item": ["site", "probe"], "timestamp": "at", "target": names, "static_categories": "kind"}
    few = {"context_length": 20, "num_batches_per_epoch": 1, "seed": 0, "trainer_kwargs": QUIET}
    predictor = StateSpaceEstimator(model, horizon="6h", **few).train(table, columns=columns)
    frame = predictor.predict_frame(table, every="2h")
    assert list(frame) == [
        "site",
        "probe",
        "at",
        *(["target"] if targets > 1 else []),
        "mean",
        *map(str, [k / 10 for k in range(1, 10)]),
    ]
    assert (frame["at"].dt.hour % 2 == 0).all()
    assert frame["site"].unique().tolist() == [7]
    assert len(frame) == 3 * 3 * targets
    save_predictor(predictor, tmp_path / "saved")
    again = load_predictor(tmp_path / "saved")
    pd.testing.assert_frame_equal(again.predict_frame(table, every="2h"), frame)
    pd.testing.assert_frame_equal(
        again.on_clock.interpolate_frame(table, at=frame["at"][:2]).drop_duplicates(),
        predictor.on_clock.interpolate_frame(table, at=frame["at"][:2]).drop_duplicates(),
    )


def test_what_cannot_be_answered_is_said(predictor, tmp_path):
    past = entries()
    inside = {"s0": past[0]["times"][-1:]}
    with pytest.raises(ValueError, match=r"series 's0': expected times behind its last observation.*interpolate"):
        list(predictor.on_clock.forecast(past, inside))
    beliefs = predictor.filter(past)
    with pytest.raises(ValueError, match=r"series 's0'.*time goes back"):
        predictor.update(beliefs, [{"item_id": "s0", "times": past[0]["times"][:1], "target": [1.0]}])
    with pytest.raises(ValueError, match="there is no series 'x' in the data"):
        predictor.on_clock.asked_of(past, pd.DataFrame({"item_id": ["x"], "timestamp": ["2024-01-01"]}))
    with pytest.raises(ValueError, match="expected at or every, got both"):
        predictor.on_clock.asked_of(past, ["2024-01-01"], "1h")
    with pytest.raises(ValueError, match="there is no multiple of 2 D within the horizon of 1 D"):
        predictor.on_clock.asked_of([past[0] | {"times": past[0]["times"] - past[0]["times"][-1] + 1}], every="2D")
    with pytest.raises(ValueError, match="unknown component 'hours': in continuous time there are level"):
        StateSpaceEstimator(horizon="1D", components="hours")
    with pytest.raises(ValueError, match="expected model to be one of issm, gls, rsgls-issm, sgls, got 'rsgls'"):
        StateSpaceEstimator("rsgls", horizon="1D")
    moment = {"item_id": "a", "times": np.array([3, 3]), "target": np.array([1.0, 2.0])}
    alone = ForecastTask("x", "ns", 1, 0, [moment], gap=1)
    with pytest.raises(
        ValueError, match="expected a series with observations at two times before its test part, got 'a'"
    ):
        StateSpaceEstimator(horizon=1).train(alone)
    for grid in ({"freq": "h"}, {"prediction_length": 3}, {"preset": "fast"}, {"train_length": 9}):
        with pytest.raises(ValueError, match=f"with a horizon .* no grid: leave out '{next(iter(grid))}'"):
            StateSpaceEstimator("issm", horizon="1D", **grid)
    with pytest.raises(ValueError, match="leave out 'validation_data'"):
        StateSpaceEstimator("issm", horizon="1D").train(past, past)
    save_beliefs(tmp_path / "b.pt", beliefs.values(), predictor.prediction_net)
    with pytest.raises(ValueError, match="beliefs of another model"):
        load_beliefs(tmp_path / "b.pt", train("gls").prediction_net)


def test_a_saved_predictor_that_is_damaged_is_refused(predictor, tmp_path):
    save_predictor(predictor, tmp_path / "p")
    record = tmp_path / "p" / "predictor.json"
    text = record.read_text()
    record.write_text(text.replace('"prediction_length": 86400000000000', '"prediction_length": "long"'))
    with pytest.raises(ValueError, match="expected prediction_length of type <class 'int'>, got 'long'"):
        load_predictor(tmp_path / "p")
    record.write_text(text.replace("day_with_1_harmonic", "day_with_2_harmonics"))
    with pytest.raises(ValueError, match=r"holds no readable predictor.*do not fit"):
        load_predictor(tmp_path / "p")
    with pytest.raises(FileNotFoundError, match="expected a saved predictor"):
        load_predictor(tmp_path / "none")
    record.write_text(text)
    found = load_predictor(tmp_path / "p")
    with pytest.raises(ValueError, match="expected a predictor of series on a grid, got one of series with clocks"):
        next(found.predict(entries()))
    with pytest.raises(ValueError, match="expected a predictor of series on a grid, got one of series with clocks"):
        with_prediction_length(found, 3)
    with pytest.raises(ValueError, match="start and num_samples go with series on a grid"):
        found.predict_frame(entries(), num_samples=3)


def test_oscillations_begin_at_the_peak_of_the_periodogram():
    rng = np.random.default_rng(0)
    past = [{"item_id": str(k), "times": np.sort(rng.integers(0, 100 * HOUR, 80))} for k in range(3)]
    for entry in past:
        entry["target"] = 5 + np.cos(2.0 * entry["times"] / HOUR + rng.uniform(0, 6))
    assert strongest_frequency(past, HOUR) == pytest.approx(2.0, abs=2 * np.pi / 95)
    predictor = train(data=past, components="oscillation+damped_level", learning_rate=0.0)
    begun = predictor.prediction_net.dynamics.parameters_of_series.population[2].detach().exp()
    assert float(begun) / predictor.on_clock.clock.unit * HOUR == pytest.approx(2.0, abs=0.1)


def test_constant_and_new_series_are_forecast():
    """By a model of others: a constant one near its value, and one of a single observation, also alone."""
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=40, freq="3h") + pd.to_timedelta(rng.integers(0, 3600, 40), unit="s")
    other = pd.DataFrame({"item_id": "other", "timestamp": times, "target": rng.normal(5, 1, 40)})
    constant, new = other.assign(item_id="constant", target=5.0), other.head(1).assign(item_id="new", target=7.0)
    options = {"max_epochs": 3, "enable_progress_bar": False}
    predictor = StateSpaceEstimator("issm", horizon="6h", seed=0, trainer_kwargs=options).train(other)
    ahead = predictor.predict_frame(pd.concat([constant, new]), every="2h", quantiles=[0.1, 0.9])
    steady = ahead[ahead["item_id"] == "constant"]
    assert steady[["mean", "0.1", "0.9"]].sub(5).abs().max().max() < 0.25
    alone = predictor.predict_frame(new, every="2h", quantiles=[0.1, 0.9])
    assert (alone["0.1"] < 7).all()
    assert (alone["0.9"] > 7).all()
