import os
import pickle
import signal
import warnings
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.dataset.common import ListDataset
from gluonts.dataset.multivariate_grouper import MultivariateGrouper
from gluonts.dataset.pandas import PandasDataset
from gluonts.dataset.repository import get_dataset
from gluonts.dataset.split import split
from gluonts.ev.metrics import MASE, MeanWeightedSumQuantileLoss
from gluonts.evaluation import Evaluator, make_evaluation_predictions
from gluonts.model import SampleForecast, evaluate_model
from gluonts.model.predictor import ParallelizedPredictor, Predictor
from gluonts.torch.model.estimator import PyTorchLightningEstimator
from lightning.pytorch.callbacks import ModelCheckpoint

from tsforecast import StateSpaceEstimator, StateSpacePredictor
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.forecasting.data_summary import summarise
from tsforecast.forecasting.exact import ExactForecast
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.predictor import load_predictor, save_predictor, with_prediction_length
from tsforecast.models import MODELS, ExactInference, options_of

QUIET = {"accelerator": "cpu", "enable_progress_bar": False}
HORIZON = 4
PARTICLES = [name for name, kind in MODELS.items() if "num_particles" in options_of(kind)]
LINEAR = [name for name in MODELS if name not in PARTICLES]
_TINY = {
    "switch_dim": 2, "num_bases": 2, "hidden": 4, "embedding_dim": 2, "num_particles": 3, "context_length": 5,
    "history_length": 8, "num_batches_per_epoch": 1, "batch_size": 5,
}  # fmt: skip
_KVAE = {name: value for name, value in _TINY.items() if name != "switch_dim"}
_KVAE |= {"state_dim": 3, "auxiliary_dim": 2, "memory_dim": 2}
# Without validation data and with them; those with particles, which are slow, only with them.
TRAININGS = [(name, validate) for name in MODELS for validate in (False, True) if validate or name in LINEAR]
SMALL = {
    "bank": {"structures": "level+day_of_week,trend"},
    "issm": {"components": "level+day_of_week"},
    "gls": {"state_dim": 3},
    "deepstate": {"components": "level+day_of_week", "hidden": 4, "embedding_dim": 2},
    "markov": {"seasonal": False, "starts": 1},
    "sgls": {**_TINY, "state_dim": 3},
    "rsgls": {**_TINY, "state_dim": 3},
    "rsgls-issm": {**_TINY, "components": "level+day_of_week"},
    "pool": {
        "members": "bank structures=level+day_of_week,trend; issm components=level+day_of_week",
        "weights": "0.6,0.4",
    },
    "arsgls": {**_TINY, "state_dim": 3, "auxiliary_dim": 2},
    "kvae-rb": _KVAE,
    "kvae-mc": _KVAE,
}


@pytest.mark.parametrize(
    ("model", "freq", "lengths", "options", "expected"),
    [
        ("gls", "h", (480, 500), {}, 3 * HORIZON),
        ("gls", "h", (500, 400, 3 * HORIZON + 1, 600, 700), {}, 3 * HORIZON),  # a short one among long ones
        ("gls", "h", (500, 500, HORIZON), {}, 3 * HORIZON),
        ("gls", "h", (479, 479), {}, HORIZON),
        ("gls", "h", (500, 500), {"components": "level+hour_of_day"}, HORIZON),
        ("gls", "h", (500, 500), {"train_horizon": 7}, 7),
        ("gls", "D", (500, 500), {}, HORIZON),
        ("issm", "h", (500, 500), {}, HORIZON),
    ],
)
def test_a_model_without_a_calendar_is_trained_farther_ahead(model, freq, lengths, options, expected):
    estimator = make_estimator(model, 1, freq, **options)
    start = pd.Period("2024-01-01", freq)
    entries = [{"item_id": f"s{n}", "start": start, "target": np.arange(n) % 24.0} for n in lengths]
    if model == "gls" and not options:
        estimator.train([{**entry, "target": np.stack([entry["target"]] * 2)} for entry in entries])
        assert estimator.on_grid.train_horizon == HORIZON  # of several targets
    estimator.train(entries)
    assert estimator.on_grid.train_horizon == expected
    if "train_horizon" not in options:
        estimator.train([{**entry, "target": entry["target"][: HORIZON + 2]} for entry in entries])
        assert estimator.on_grid.train_horizon == HORIZON


def make_estimator(model="issm", epochs=2, freq="D", **options):
    trainer = {**QUIET, "max_epochs": epochs, **options.pop("trainer_kwargs", {})}
    small = {"num_batches_per_epoch": 2, "batch_size": 3, "num_samples": 10, "seed": 0, "context_length": 21}
    small["preset"] = "none"  # all options of the tests are their own
    return StateSpaceEstimator(
        model, freq, HORIZON, trainer_kwargs=trainer, **{**small, **SMALL.get(model, {}), **options}
    )


def make_entries(count=5, length=40, freq="D", missing=True):
    rng = np.random.default_rng(0)
    entries = []
    for k in range(count):
        target = 5 + rng.normal(size=length + k).cumsum().astype(np.float32)
        if missing:
            target[rng.integers(0, length, 5)] = np.nan
            target[:k] = np.nan
        with expected_alias_warnings():
            start = pd.Period("2024-01-02", freq)
        entries.append({"item_id": f"s{k}", "start": start, "target": target, "info": {"row": k}})
    return entries


def seeded(predictor, data, seed=0, **kwargs):
    torch.manual_seed(seed)
    return list(predictor.predict(data, **kwargs))


def weights(predictor):
    return torch.cat([p.detach().flatten() for p in predictor.network.parameters()])


def same_forecasts(some, others):
    assert len(some) == len(others)
    for mine, its in zip(some, others, strict=True):
        assert mine.item_id == its.item_id
        assert mine.start_date == its.start_date
        np.testing.assert_array_equal(mine.samples, its.samples)


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    return make_estimator(request.param).train(make_entries())


@pytest.mark.parametrize(
    ("members", "recent"), [("bank learning_rate=0; issm", 0), ("bank; issm", 1344), ("issm; gls", 1344)]
)
def test_members_of_a_pool_that_learn_decide_on_how_much(members, recent):
    assert StateSpaceEstimator("pool", "h", members=members).on_grid.train_length == recent


@pytest.mark.parametrize(
    ("freq", "components", "context", "recent"),
    [
        ("D", "level+day_of_week", 120, 0),
        ("D", "level+year", 366, 0),
        ("W", "level+year", 520, 0),
        ("h", "level+hour_of_day", 672, 1344),
        ("h", "level+week", 672, 1344),
        ("h", "level+month", 731, 0),
        ("h", "level+year", 2000, 0),
        ("15min", "level+year", 2000, 0),
        ("D", "level+cycle_of_500_with_2_harmonics", 500, 0),
    ],
)
def test_training_windows_hold_the_cycle_of_a_smooth_season(freq, components, context, recent):
    estimator = StateSpaceEstimator("gls", freq, components=components)
    assert (estimator.on_grid.context_length, estimator.on_grid.train_length) == (context, recent)
    assert StateSpaceEstimator("issm", freq, components=components).on_grid.train_length == 0
    given = StateSpaceEstimator("gls", freq, components=components, context_length=30, train_length=60)
    assert (given.on_grid.context_length, given.on_grid.train_length) == (30, 60)


def test_a_structure_of_a_bank_decides_on_training_windows_too():
    assert StateSpaceEstimator("bank", "D", structures="level,level+year").on_grid.context_length == 366


@pytest.mark.parametrize(
    ("model", "context", "windows"), [("bank", 600, 64), ("bank", 1400, 31), ("bank", 9000, 8), ("issm", 1400, 64)]
)
def test_long_windows_of_shared_parameters_are_fewer_in_a_batch(model, context, windows):
    rng = np.random.default_rng(0)
    entries = [
        {"item_id": str(k), "start": pd.Period("2024-01-01", "D"), "target": rng.standard_normal(40)} for k in range(3)
    ]
    estimator = make_estimator(model, context_length=context, batch_size=64, num_batches_per_epoch=1, epochs=1)
    trained = estimator.train_model(entries)
    (batch,) = estimator.create_training_data_loader(
        trained.predictor.input_transform.apply(entries, is_train=True), trained.trained_net
    )
    assert len(batch["past_target"]) == windows


@pytest.mark.parametrize(("broken", "transformation"), [(0, "log1p"), (3, "log1p"), (4, "none")])
def test_a_value_in_a_hundred_may_be_no_count(broken, transformation):
    values = np.arange(300.0)
    values[:broken] += 0.5
    values[-1] = np.nan
    entry = {"item_id": "a", "start": pd.Period("2020-01", "M"), "target": np.append(values, 7.0)}
    assert summarise([entry]).auto["transformation"] == transformation


# What GluonTS' own estimators are tested for.


@pytest.mark.parametrize(("model", "validate"), TRAININGS)
def test_constant_dataset(model, validate, tmp_path, monkeypatch):
    monkeypatch.setenv("GLUONTS_DATA", str(tmp_path))
    constant = get_dataset("constant", path=tmp_path, regenerate=False)
    options = {"context_length": None} if model in LINEAR else {}
    estimator = make_estimator(model, freq=constant.metadata.freq, num_batches_per_epoch=2, **options)
    predictor = estimator.train(constant.train, constant.train if validate else None)
    (tmp_path / "predictor").mkdir()
    predictor.serialize(tmp_path / "predictor")
    again = Predictor.deserialize(tmp_path / "predictor")
    assert again == predictor
    forecasts = seeded(predictor, constant.test)[:5]
    for forecast, entry in zip(forecasts, constant.test, strict=False):
        assert forecast.mean.shape == (HORIZON,)
        assert forecast.start_date == entry["start"] + len(entry["target"])
    same_forecasts(forecasts, seeded(again, constant.test)[:5])


def feature_entries(targets=None):
    """As in GluonTS: strings as starts, lengths 200 and 100, floats as categories, a field that nobody uses."""
    rng = np.random.default_rng(0)
    shape = () if targets is None else (targets,)
    return [
        {
            "start": start,
            "target": rng.normal(size=(*shape, length)).astype(np.float32),
            "feat_dynamic_real": rng.normal(size=(3, length + extra)),
            "feat_static_real": [1.0],
            "feat_static_cat": cat,
            "item_id": f"item {length}",
            "__unused__": [[1], [1, 2]],
        }
        for start, length, extra, cat in (
            ("2021-01-01 00", 200, HORIZON, [0.0, 1.0]),
            ("2021-01-01 00", 100, HORIZON, [1.0, 0.0]),
        )
    ]


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("issm", None),
        ("gls", None),
        ("bank", 2),
        ("issm", 2),
        ("pool", 2),
        ("gls", 2),
        ("deepstate", None),
        ("sgls", 2),
        ("rsgls-issm", None),
        ("arsgls", None),
    ],
)
def test_features(model, targets, tmp_path):
    data = ListDataset(feature_entries(targets), freq="1h", one_dim_target=targets is None)
    training = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-HORIZON]} for e in data]
    options = {"components": "level", "scales": "network"} if model == "issm" else {}
    estimator = make_estimator(model, freq="1h", effects="given", **options)
    predictor = estimator.train(training, training)
    predictor.serialize(tmp_path)
    forecasts = seeded(predictor, data)
    assert [f.item_id for f in forecasts] == ["item 200", "item 100"]
    assert forecasts[0].samples.shape == (10, HORIZON) if targets is None else (10, HORIZON, targets)
    assert forecasts[0].start_date == pd.Period("2021-01-09 08", "h")
    same_forecasts(forecasts, seeded(Predictor.deserialize(tmp_path), data))
    assert isinstance(predictor, StateSpacePredictor)
    units = predictor.input_transform.dynamic_units
    rows = np.concatenate([e["feat_dynamic_real"] for e in training], 1).astype(float)
    np.testing.assert_allclose(units, np.stack([rows.mean(1), rows.std(1)], 1))


@pytest.fixture(scope="module")
def constant(tmp_path_factory):
    return get_dataset("constant", path=tmp_path_factory.mktemp("constant"), regenerate=False)


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("model", ["bank", "issm", "pool", "gls", "sgls", "rsgls", "arsgls", "kvae-rb", "kvae-mc"])
def test_grouped_targets(model, validated, constant, tmp_path):
    """As GluonTS tests its estimators of several targets: constants, with and without validation, a round trip."""
    train = MultivariateGrouper(max_target_dim=10)(constant.train)
    test = MultivariateGrouper(max_target_dim=10, num_test_dates=1)(constant.test)
    targets = len(next(iter(train))["target"])
    predictor = make_estimator(model, freq=constant.metadata.freq).train(train, train if validated else None)
    predictor.serialize(tmp_path)
    forecasts = seeded(predictor, test)
    for forecast in forecasts[:5]:
        assert forecast.mean.shape == (HORIZON, targets)
        assert forecast.samples.shape == (10, HORIZON, targets)
        assert np.isfinite(forecast.samples).all()
    same_forecasts(forecasts, seeded(Predictor.deserialize(tmp_path), test))


def test_item_id_and_info_come_back_in_order(trained):
    entries = make_entries(7)
    for data in (entries, entries[::-1]):
        forecasts = list(trained.predict(data))
        assert [f.item_id for f in forecasts] == [e["item_id"] for e in data]
        assert [f.info for f in forecasts] == [e["info"] for e in data]
    mixed = [{k: v for k, v in e.items() if k != "item_id" or i != 0} for i, e in enumerate(entries[:3])]
    assert [f.item_id for f in trained.predict(mixed)] == [None, "s1", "s2"]


@pytest.mark.parametrize("model", ["issm", "rsgls-issm"])
def test_training_from_a_predictor(model):
    entries = make_entries()
    estimator = make_estimator(model, trainer_kwargs={"limit_train_batches": 0})
    first = make_estimator(model).train(entries)
    same = estimator.train_from(first, entries[::-1])  # in another order: series keep their own parameters
    assert torch.equal(weights(first), weights(same))
    same_forecasts(seeded(first, entries), seeded(same, entries))
    more = make_estimator(model).train_from(first, [*entries, {**entries[0], "item_id": "new"}])
    assert not torch.equal(weights(first), weights(more))
    assert more.input_transform.index == first.input_transform.index
    with pytest.raises(ValueError, match="same model"):
        make_estimator(model, components="level").train_from(first, entries)


def test_parallel_prediction():
    entries = make_entries()
    predictor = make_estimator().train(entries)
    parallel = ParallelizedPredictor(predictor, num_workers=1, chunk_size=2)
    for mine, its in zip(parallel.predict(entries), predictor.predict(entries), strict=True):
        np.testing.assert_allclose(mine.quantile(0.9), its.quantile(0.9), rtol=1e-5)


def test_gluonts_evaluation(trained):
    entries = make_entries(missing=False)
    forecasts, series = make_evaluation_predictions(entries, trained, num_samples=20)
    forecasts, series = list(forecasts), list(series)
    assert forecasts[0].samples.shape == (20, HORIZON)
    assert [f.start_date for f in forecasts] == [s.index[-HORIZON] for s in series]
    total, by_item = Evaluator(num_workers=0)(series, forecasts)
    assert np.isfinite(total["mean_wQuantileLoss"])
    assert len(by_item) == 5
    _, template = split(entries, offset=-2 * HORIZON)
    test = template.generate_instances(HORIZON, windows=2)
    table = evaluate_model(trained, test_data=test, metrics=[MeanWeightedSumQuantileLoss([0.1, 0.9]), MASE()])
    assert np.isfinite(table.to_numpy()).all()


def test_pandas_datasets():
    frame = pd.concat(
        pd.DataFrame(
            {"item": e["item_id"], "target": e["target"]},
            index=pd.date_range("2024-01-02", periods=len(e["target"]), freq="D"),
        )
        for e in make_entries()
    )
    data = PandasDataset.from_long_dataframe(frame, item_id="item", target="target")
    forecasts = list(make_estimator().train(data).predict(data))
    assert [f.item_id for f in forecasts] == [f"s{k}" for k in range(5)]
    assert forecasts[0].start_date == pd.Period("2024-02-11", "D")
    assert forecasts[0].mean_ts.index[0] == forecasts[0].start_date


def test_gluonts_builds_it_from_inputs():
    estimator = StateSpaceEstimator.from_inputs(make_entries(), prediction_length=3, model="gls")
    assert isinstance(estimator, PyTorchLightningEstimator)
    assert (estimator.freq, estimator.prediction_length, estimator.model) == ("D", 3, "gls")


# What they leave out.


def test_the_same_seed_gives_the_same_predictor(trained):
    entries = make_entries()
    model = next(name for name, kind in MODELS.items() if isinstance(trained.network, kind))
    torch.manual_seed(123)
    again = make_estimator(model).train(entries, cache_data=True)
    assert torch.equal(weights(trained), weights(again))
    same_forecasts(seeded(trained, entries), seeded(again, entries))
    state = torch.get_rng_state()
    assert not torch.equal(weights(trained), weights(make_estimator(model, seed=1).train(entries)))
    assert torch.equal(state, torch.get_rng_state())


def test_saved_and_loaded_again(trained, tmp_path):
    entries = make_entries()
    folder = tmp_path / "run" / "predictor"
    save_predictor(trained, folder)
    save_predictor(trained, folder)
    again = load_predictor(folder, "cpu")
    assert torch.equal(weights(trained), weights(again))
    same_forecasts(seeded(trained, entries), seeded(again, entries))
    assert [p.name for p in folder.parent.iterdir()] == ["predictor"]


def test_serialised_and_saved_predictors_are_one_format(trained, tmp_path):
    entries = make_entries()
    (tmp_path / "serialised").mkdir()
    trained.serialize(tmp_path / "serialised")
    save_predictor(trained, tmp_path / "saved")
    forecasts = seeded(trained, entries)
    for folder in (tmp_path / "serialised", tmp_path / "saved"):
        assert load_predictor(folder) == trained
        for again in (load_predictor(folder, "cpu"), Predictor.deserialize(folder)):
            assert isinstance(again, StateSpacePredictor)
            same_forecasts(forecasts, seeded(again, entries))


def test_a_series_alone_is_forecast_as_in_a_batch():
    entries = make_entries()
    predictor = make_estimator().train(entries)
    together = list(predictor.predict(entries))
    for entry, forecast in zip(entries, together, strict=True):
        (alone,) = predictor.predict([entry])
        np.testing.assert_allclose(alone.mean, forecast.mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(alone.quantile(0.9), forecast.quantile(0.9), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("transformation", ["none", "log1p", "asinh"])
def test_exact_quantiles_agree_with_sample_paths(transformation):
    positive = [{**e, "target": np.abs(e["target"])} for e in make_entries()]
    predictor = make_estimator(transformation=transformation).train(positive)
    count = 4000
    for forecast in seeded(predictor, positive, num_samples=count):
        assert isinstance(forecast, ExactForecast)
        assert forecast.mean.shape == forecast.quantile(0.9).shape == (HORIZON,)
        assert forecast.samples.shape == (count, HORIZON)
        below = (forecast.samples < forecast.quantile(0.9)).mean(0)
        assert (abs(below - 0.9) < 4.5 * (0.9 * 0.1 / count) ** 0.5).all()


def test_short_series_go_through_together_where_no_paths_are_drawn(monkeypatch):
    predictor = make_estimator("bank", epochs=1).train(make_entries(3, missing=False))
    entries = [{**entry, "item_id": str(k)} for k, entry in enumerate(make_entries(missing=False) * 60)]
    predictor.batch_size = 64
    sizes = []
    of_histories = Histories._of_histories
    monkeypatch.setattr(Histories, "_of_histories", lambda own, e, n: sizes.append(len(e)) or of_histories(own, e, n))
    few = list(predictor.predict(entries[:5], num_samples=0)) * 60
    for mine, its in zip(predictor.predict(entries, num_samples=0), few, strict=True):
        np.testing.assert_allclose(mine.quantile(0.9), its.quantile(0.9), rtol=1e-5, atol=1e-5)  # float32
    assert sizes == [5, 256, 44]
    long = [{**entry, "target": np.tile(entry["target"], 20)} for entry in entries[:100]]
    sizes.clear()
    list(predictor.predict(long, num_samples=0))
    list(predictor.predict(entries[:100], num_samples=1))
    assert sizes == [64, 36, 64, 36]


def test_forecasts_without_paths():
    """Quantiles need none; beliefs that are kept, and other processes, have the same forecast."""
    entries = make_entries()
    SampleForecast(np.zeros((1, 1)), entries[0]["start"])  # from the first on GluonTS' forecasts are pickled otherwise
    predictor = make_estimator().train(entries)
    drawn = seeded(predictor, entries)
    live = list(predictor.forecast_from(predictor.filter(entries), num_samples=0))
    for mine, its, kept in zip(predictor.predict(entries, num_samples=0), drawn, live, strict=True):
        np.testing.assert_array_equal(mine.quantiles((0.1, 0.9)), its.quantiles((0.1, 0.9)))
        np.testing.assert_allclose(kept.quantile(0.9), its.quantile(0.9), rtol=1e-3, atol=1e-3)
        assert (mine.num_samples, its.num_samples, kept.num_samples) == (0, 10, 0)
        with pytest.raises(ValueError, match="none were drawn: give num_samples of at least 1"):
            mine.samples  # noqa: B018
        sent = pickle.loads(pickle.dumps(its))
        np.testing.assert_array_equal(sent.quantile(0.9), its.quantile(0.9))
        np.testing.assert_array_equal(sent.samples, its.samples)
    with pytest.raises(ValueError, match="num_samples of at least 0, got -1"):
        list(predictor.predict(entries, num_samples=-1))
    heavy = make_estimator("arsgls", epochs=1, likelihood="student-t", objective="likelihood").train(entries)
    with pytest.raises(ValueError, match="at least 1, got 0: forecasts of ARSGLSForecaster are sample paths"):
        list(heavy.predict(entries, num_samples=0))


def test_known_future_values(trained):
    entries, predictor = make_entries(), trained
    linear = isinstance(trained.network.inference, ExactInference)
    known = np.array([np.nan, np.nan, 2.5, np.nan])
    (free,), (given,) = (
        seeded(predictor, [{**entries[0], **extra}], num_samples=500 if linear else 50)
        for extra in ({}, {"known_future": known})
    )
    assert (given.samples[:, 2] == 2.5).all()
    assert np.isfinite(given.samples).all()
    assert (given.samples[:, [0, 1, 3]].std(0) > 0).all()
    if linear:
        assert given.samples[:, 1].std() < free.samples[:, 1].std()
    some, other = seeded(predictor, [{**entries[0], "known_future": known}, entries[1]], num_samples=5)
    assert (some.samples[:, 2] == 2.5).all()
    assert (other.samples[:, 2] != 2.5).all()
    for wrong, message in ((np.zeros((2, HORIZON)), "known_future"), ([np.inf] * HORIZON, "infinite")):
        with pytest.raises(ValueError, match=message):
            list(predictor.predict([{**entries[0], "known_future": wrong}]))


@pytest.mark.parametrize("model", PARTICLES)
def test_another_horizon_of_particles(model):
    entries = make_entries(2)
    predictor = make_estimator(model, epochs=1).train(entries)
    for forecast in with_prediction_length(predictor, 3 * HORIZON).predict(entries, num_samples=5):
        assert forecast.samples.shape == (5, 3 * HORIZON)
        assert np.isfinite(forecast.samples).all()


def test_another_horizon():
    entries = make_entries()
    predictor = make_estimator().train(entries)
    longer = with_prediction_length(predictor, 3 * HORIZON)
    for mine, its in zip(predictor.predict(entries), longer.predict(entries), strict=True):
        assert its.mean.shape == (3 * HORIZON,)
        np.testing.assert_allclose(its.mean[:HORIZON], mine.mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("freq", "data_freq"), [("H", "h"), ("1h", "h"), ("60min", "h"), ("ME", "M"), ("MS", "M"), ("QE", "Q-DEC"), ("B",
"B"), ("A", "Y-DEC")] )  # fmt: skip
def test_frequency_aliases_without_warnings(freq, data_freq):
    entries = make_entries(2, 30, data_freq, missing=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r".*isinstance\(treespec", FutureWarning)
        estimator = make_estimator(freq=freq, components="auto", epochs=1, num_batches_per_epoch=1)
        predictor = estimator.train(entries)
        forecasts = list(predictor.predict(entries))
    with expected_alias_warnings():
        assert forecasts[1].start_date == entries[1]["start"] + 31


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entries = make_entries()
    make_estimator().train(entries)
    make_estimator().train(entries, entries)
    assert list(tmp_path.iterdir()) == []


def test_the_learning_rate_falls_over_the_training():
    rates = []
    watch = pl.callbacks.LambdaCallback(
        on_train_batch_start=lambda trainer, *_: rates.append(trainer.optimizers[0].param_groups[0]["lr"])
    )
    make_estimator(trainer_kwargs={"callbacks": [watch]}, learning_rate=0.5).train(make_entries())
    np.testing.assert_allclose(rates, 0.5 * 0.01 ** (np.arange(4) / 4))


def test_the_learning_rate_of_networks_rises_before_it_falls():
    """In the first fifth of their time, which begins after that of the linear model."""
    rates = []
    watch = pl.callbacks.LambdaCallback(
        on_train_batch_start=lambda trainer, *_: rates.append([g["lr"] for g in trainer.optimizers[0].param_groups])
    )
    options = {"learning_rate": 0.5, "network_learning_rate": 0.1, "linear_epochs": 1}
    make_estimator("rsgls-issm", epochs=11, trainer_kwargs={"callbacks": [watch]}, **options).train(make_entries())
    linear, networks = np.array(rates).T
    passed = np.arange(10)  # an epoch is one step here
    np.testing.assert_allclose(linear, [0.5, *[0.005] * 10])
    np.testing.assert_allclose(networks, [0, *(0.1 * np.minimum((passed + 1) / 2, 1) ** 2 * 0.01 ** (passed / 10))])


@pytest.mark.parametrize("share", [None, 0.0, 0.5])
def test_after_its_linear_epochs_a_dense_model_begins_again_at_a_share_of_its_rates(share):
    rates = []
    watch = pl.callbacks.LambdaCallback(
        on_train_batch_start=lambda trainer, *_: rates.append([g["lr"] for g in trainer.optimizers[0].param_groups])
    )
    options = {"learning_rate": 0.5, "matrix_learning_rate": 0.2, "network_learning_rate": 0.1, "linear_epochs": 5}
    options |= {} if share is None else {"linear_share": share}
    make_estimator("rsgls", epochs=11, trainer_kwargs={"callbacks": [watch]}, **options).train(make_entries())
    scales, matrices, networks = np.array(rates).T
    steps = np.arange(11)
    again = 0.3 if share is None else share
    result = np.where(steps < 5, 0.01 ** (steps / 5), again * 0.01 ** ((steps - 5) / 6)).clip(0.01)
    np.testing.assert_allclose(scales, 0.5 * result)
    np.testing.assert_allclose(matrices, 0.2 * result)
    assert (networks[:5] == 0).all()
    assert networks.max() > 0.3 * 0.1


@pytest.mark.parametrize("model", ["gls", "rsgls", "arsgls", "kvae-rb"])
def test_matrices_have_a_learning_rate_of_their_own(model):
    rates = []

    def look(trainer, module, *_):
        groups = trainer.optimizers[0].param_groups
        rates.append(
            {
                name: group["lr"]
                for name, own in module.forecaster.named_parameters()
                for group in groups
                for other in group["params"]
                if own is other
            }
        )

    options = {"learning_rate": 0.3, "matrix_learning_rate": 0.02}
    options |= {} if model == "gls" else {"network_learning_rate": 0.1}
    callback = pl.callbacks.LambdaCallback(on_train_batch_start=look)
    trained = make_estimator(model, epochs=1, trainer_kwargs={"callbacks": [callback]}, **options).train(make_entries())
    first = rates[0]
    assert {*first} == {name for name, _ in trained.network.named_parameters()}
    bases = "" if model == "gls" else "mixture.bases."
    for whole, rate in first.items():
        name = whole.removeprefix("dynamics.")
        if name in (f"{bases}transition", f"{bases}emission", "mixture.bases.recurrence", "emission_inputs"):
            assert rate == 0.02, name
        elif name in ("prior_mean", "log_inverse_noises") or name.endswith("_noise"):
            assert rate == 0.3, name
    assert 0.02 in first.values()
    assert 0.3 in first.values()


@pytest.mark.parametrize("model", ["issm", "rsgls-issm", "arsgls"])
def test_training_lowers_the_loss(model):
    """Of the validation data, for which particles draw the same numbers every time."""
    entries = make_entries(missing=False)
    losses = []
    watch = pl.callbacks.LambdaCallback(
        on_validation_end=lambda trainer, _: losses.append(float(trainer.callback_metrics["val_loss"]))
    )
    options = {"learning_rate": 0.03, "network_learning_rate": 0.03} if model == "arsgls" else {}
    options |= {"trainer_kwargs": {"callbacks": [watch]}, "objective": "likelihood"}
    make_estimator(model, epochs=6, **options).train(entries, entries)
    assert losses[-1] < losses[0]


def test_the_linear_model_inside_is_trained_first():
    entries = make_entries()
    untrained, alone, both = (
        make_estimator("rsgls-issm", epochs=epochs, linear_epochs=1, **options).train(entries)
        for epochs, options in ((1, {"trainer_kwargs": {"limit_train_batches": 0}}), (1, {}), (2, {}))
    )
    for name, start in untrained.network.named_parameters():
        moved = [not torch.equal(start, dict(p.network.named_parameters())[name]) for p in (alone, both)]
        assert moved == [name.startswith("dynamics.issm."), True], name


class Failing(pl.Callback):
    def __init__(self, epoch=1):
        self.epoch = epoch

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == self.epoch:
            raise RuntimeError("the disk is full")


def test_a_failure_raises():
    with pytest.raises(RuntimeError, match="disk is full"):
        make_estimator(trainer_kwargs={"callbacks": [Failing()]}).train(make_entries(), make_entries())


def test_an_interrupt_is_an_interrupt():
    def press(trainer, module):
        raise KeyboardInterrupt

    watch = pl.callbacks.LambdaCallback(on_train_epoch_end=press)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        make_estimator(trainer_kwargs={"callbacks": [watch]}).train(make_entries())
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_ends_a_training_within_its_step(monkeypatch):
    """A step of a large batch takes minutes, after which Lightning would look whether it should stop."""
    went_on = []

    def stopped(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        went_on.append(True)

    monkeypatch.setattr("tsforecast.forecasting.lightning_module.ForecasterInTraining.training_step", stopped)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # libraries of other tests have handlers of their own
    try:
        with pytest.raises(KeyboardInterrupt):
            make_estimator().train(make_entries())
        assert not went_on
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_callbacks_survive_a_second_training():
    epochs = []
    watch = pl.callbacks.LambdaCallback(on_train_epoch_end=lambda trainer, _: epochs.append(trainer.current_epoch))
    estimator = make_estimator(trainer_kwargs={"callbacks": [watch]})
    first, second = (estimator.train(make_entries()) for _ in range(2))
    assert epochs == [0, 1, 0, 1]
    assert torch.equal(weights(first), weights(second))


def test_validation_keeps_the_best_weights(tmp_path):
    entries = make_entries()
    seen = {}

    def flat(module):
        return torch.cat([p.detach().flatten().clone() for p in module.parameters()])

    def spoil(trainer, module):
        if trainer.current_epoch == 2:
            with torch.no_grad():
                module.forecaster.dynamics.parameters_of_series.population += 4.0

    def remember(trainer, module):
        seen[float(trainer.callback_metrics["val_loss"])] = flat(module)

    watch = pl.callbacks.LambdaCallback(on_validation_end=remember, on_train_epoch_start=spoil)
    output = make_estimator(epochs=3, trainer_kwargs={"callbacks": [watch]}).train_model(entries, entries)
    assert len(seen) == 3
    assert list(seen)[-1] != min(seen)
    assert torch.equal(flat(output.trained_net), seen[min(seen)])
    own = ModelCheckpoint(tmp_path, monitor="val_loss")
    make_estimator(trainer_kwargs={"callbacks": [own]}).train(entries, entries)
    assert own.best_model_path


@pytest.mark.parametrize(("model", "validate"), TRAININGS)
def test_resuming_gives_the_uninterrupted_result(model, validate, tmp_path):
    entries = make_entries()

    def run(folder, *callbacks, checkpoint=None):
        keep = ModelCheckpoint(tmp_path / folder, save_last=True, enable_version_counter=False)
        estimator = make_estimator(model, epochs=3, trainer_kwargs={"callbacks": [keep, *callbacks]})
        return estimator.train(entries, entries if validate else None, ckpt_path=checkpoint)

    whole = run("whole")
    with pytest.raises(RuntimeError, match="disk is full"):
        run("broken", Failing(2))
    resumed = run("broken", checkpoint=tmp_path / "broken" / "last.ckpt")
    assert torch.equal(weights(whole), weights(resumed))


def test_a_checkpoint_is_written_beside_its_place(tmp_path, monkeypatch):
    """Elsewhere may be another file system, from which nothing can be renamed."""
    for name in ("keep", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    places = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: places.append((self.parent, to)) or replace(self, to))
    monkeypatch.setattr("tempfile.mkstemp", lambda *arguments, **options: pytest.fail("a file elsewhere"))
    keep = ModelCheckpoint(tmp_path / "keep", "last", enable_version_counter=False)
    make_estimator(trainer_kwargs={"callbacks": [keep]}).train(make_entries())
    assert places == [(tmp_path / "keep", tmp_path / "keep" / "last.ckpt")] * 2
    assert [path.name for path in (tmp_path / "keep").iterdir()] == ["last.ckpt"]


def test_a_training_goes_on_in_the_middle_of_an_epoch(tmp_path):
    """To the bit: the loader leaves out the batches that were made."""
    entries = make_entries(5)

    def train(checkpoint=None):
        keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=3, save_top_k=-1, enable_version_counter=False)
        options = {"num_batches_per_epoch": 4, "trainer_kwargs": {"callbacks": [keep]}}
        return weights(make_estimator(epochs=3, **options).train(entries, ckpt_path=checkpoint))

    whole = train()
    assert {path.name for path in tmp_path.iterdir()} == {f"step={step}.ckpt" for step in (3, 6, 9, 12)}
    for step in (3, 6, 9):
        (tmp_path / "step=12.ckpt").unlink()
        assert torch.equal(train(tmp_path / f"step={step}.ckpt"), whole)


def test_foreign_checkpoints_are_refused(tmp_path):
    entries = make_entries()
    keep = ModelCheckpoint(tmp_path, save_last=True)
    make_estimator(trainer_kwargs={"callbacks": [keep]}).train(entries)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    for name, content, message in (
        ("other", {**checkpoint, "tsforecast_format": 99}, "format 99"),
        ("weights", {k: v for k, v in checkpoint.items() if k != "optimizer_states"}, "weights only"),
        ("order", {**checkpoint, "state_dict": dict(reversed(checkpoint["state_dict"].items()))}, "another order"),
        ("code", {"period": pd.Period("2024")}, "not a readable checkpoint"),
    ):
        torch.save(content, tmp_path / f"{name}.ckpt")
        with pytest.raises(ValueError, match=message):
            make_estimator().train(entries, ckpt_path=tmp_path / f"{name}.ckpt")
    with pytest.raises(ValueError, match="another model"):
        make_estimator(components="level").train(entries, ckpt_path=tmp_path / "last.ckpt")
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        make_estimator().train(entries, ckpt_path=tmp_path / "none.ckpt")


def test_prediction_is_lazy():
    predictor = make_estimator(batch_size=50).train(make_entries())
    (entry,) = make_entries(1, 12)
    drawn = 0

    def endless():
        nonlocal drawn
        while True:
            drawn += 1
            yield {**entry, "item_id": f"s{drawn}"}

    most = 0
    for count, forecast in enumerate(predictor.predict(endless(), num_samples=2), start=1):
        assert forecast.item_id == f"s{count}"
        most = max(most, drawn - count)
        if count == 2000:
            break
    assert most < 8 * 50  # a few batches, from which series of like length are put together


def test_prediction_leaves_the_callers_settings_alone(trained):
    entries = make_entries()
    filters = list(warnings.filters)
    for _ in trained.predict(entries):
        assert torch.is_grad_enabled()
        assert warnings.filters == filters


def test_an_unknown_series_is_the_population():
    entries = make_entries()
    predictor = make_estimator().train(entries)
    new, none = ({**entries[1], "item_id": "new"}, {k: v for k, v in entries[1].items() if k != "item_id"})
    (mine,), (its,) = (seeded(predictor, [e]) for e in (new, none))
    np.testing.assert_array_equal(mine.samples, its.samples)
    (known,) = seeded(predictor, entries[1:2])
    assert not np.array_equal(mine.samples, known.samples)


def test_series_without_identity():
    entries = [{k: v for k, v in e.items() if k != "item_id"} for e in make_entries()]
    forecasts = list(make_estimator().train(entries).predict(entries))
    assert len(forecasts) == 5
    assert all(np.isfinite(f.samples).all() for f in forecasts)


def test_shifted_and_scaled_covariates_do_not_matter():
    """They are standardised, so that what is measured in kelvins or euros does not upset the training."""
    rng = np.random.default_rng(0)
    entries = make_entries(missing=False)
    covariates = [rng.normal(size=(1, len(e["target"]) + HORIZON)) for e in entries]
    means = []
    for size, shift in ((1.0, 0.0), (1000.0, 290.0)):
        data = [{**e, "feat_dynamic_real": size * c + shift} for e, c in zip(entries, covariates, strict=True)]
        training = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-HORIZON]} for e in data]
        predictor = make_estimator().train(training)
        means.append([f.mean for f in predictor.predict(data)])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-3)


def without_a_value(entry, **changes):
    return {**entry, "target": np.full_like(entry["target"], np.nan), **changes}


def said(caplog):
    """What the predictor has logged since the last call."""
    messages = [
        f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "tsforecast.forecasting.histories"
    ]
    caplog.clear()
    return messages


@pytest.mark.parametrize("model", MODELS)
def test_series_without_a_value_stop_no_other(model, caplog):
    entries = make_entries()
    predictor = make_estimator(model, batch_size=len(entries)).train(entries)
    expected = seeded(predictor, entries)
    assert said(caplog) == []
    longest = entries[-1]  # batches are of like length: these come last
    blank = [without_a_value(longest), without_a_value(longest, item_id="new")]
    forecasts = seeded(predictor, [*entries, *blank])
    (message,) = said(caplog)
    assert message.startswith("WARNING no value in the history of 2 series ('s4', 'new')")
    same_forecasts(forecasts[:-2], expected)
    assert [f.item_id for f in forecasts[-2:]] == ["s4", "new"]
    assert all(np.isfinite(f.samples).all() for f in forecasts[-2:])


@pytest.mark.parametrize("model", ["issm", "gls"])
def test_series_without_a_value_in_a_batch_with_others(model):
    entries = make_entries()
    predictor = make_estimator(model, batch_size=10).train(entries)
    expected = list(predictor.predict(entries))
    blank = [without_a_value(entries[1]), without_a_value(entries[2], item_id="new")]
    forecasts = list(predictor.predict([blank[0], *entries, blank[1]]))
    for mine, its in zip(forecasts[1:-1], expected, strict=True):
        np.testing.assert_allclose(mine.mean, its.mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(mine.quantile(0.9), its.quantile(0.9), rtol=1e-3, atol=1e-3)
    samples = seeded(predictor, blank, num_samples=4000)
    for exact, drawn in zip((forecasts[0], forecasts[-1]), samples, strict=True):
        deviation = drawn.samples.std(0) / 4000**0.5
        assert (np.abs(drawn.samples.mean(0) - exact.mean) < 4.5 * deviation).all()


def test_the_forecast_without_a_value_does_not_know_the_units_of_the_training():
    """What the documentation says of it: location 0, scale 1, whatever the training data were measured in."""
    entries = make_entries()
    options = {"transformation": "none", "clip": "none"}
    small, large = (
        make_estimator(**options).train([{**e, "target": unit * e["target"]} for e in entries]) for unit in (1, 1024)
    )
    (mine,), (its,) = (list(p.predict([without_a_value(entries[1])])) for p in (small, large))
    np.testing.assert_allclose(mine.mean, its.mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(mine.quantile(0.9), its.quantile(0.9), rtol=1e-3, atol=1e-3)


def test_the_warning_of_missing_histories(caplog):
    entries = make_entries()
    predictor = make_estimator().train(entries)
    nameless = {k: v for k, v in without_a_value(entries[0]).items() if k != "item_id"}
    list(predictor.predict([entries[0], nameless]))
    (message,) = said(caplog)
    assert "of 1 series (number 1)" in message
    blank = [without_a_value(entries[0], item_id=f"b{k:02}") for k in range(13)]
    list(predictor.predict([*blank, *blank]))
    (message,) = said(caplog)
    assert "of 13 series ('b00', 'b01'" in message
    assert "'b09' and 3 more)" in message
    for _ in zip([1], predictor.predict(blank[:1]), strict=False):  # it is never asked for a second
        pass
    (message,) = said(caplog)
    assert "of 1 series ('b00')" in message
    with pytest.raises(ValueError, match="frequency"):
        list(predictor.predict([blank[0], {**entries[0], "start": pd.Period("2024-01-01", "h")}]))
    (message,) = said(caplog)
    assert "'b00'" in message


def test_only_the_history_that_is_filtered_counts(caplog):
    entries = make_entries(missing=False)
    predictor = make_estimator(history_length=6).train(entries)
    early = {**entries[0], "target": np.where(np.arange(len(entries[0]["target"])) < 30, entries[0]["target"], np.nan)}
    (mine,), (its,) = (seeded(predictor, [e]) for e in (early, without_a_value(entries[0])))
    np.testing.assert_array_equal(mine.samples, its.samples)
    assert ["'s0'" in message for message in said(caplog)] == [True, True]
    seen = {**early, "target": np.r_[early["target"][:-6], 1.0, early["target"][-5:]]}
    seeded(predictor, [seen])
    assert said(caplog) == []


def with_field(**fields):
    return lambda entries: [{**e, **fields} for e in entries]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entries: [], "empty"),
        (lambda entries: [{**e, "target": e["target"][:4]} for e in entries], "too short"),
        (lambda entries: iter(entries), "list of it"),
        (with_field(start=pd.Period("2024-01-01", "h")), "frequency 'D'"),
        (with_field(start=pd.Timestamp("2024-01-01")), "pandas.Period"),
        (with_field(feat_dynamic_real=np.zeros((1, 10))), "end too early"),
        (with_field(feat_static_cat=[-1]), "static categories"),
        (lambda entries: [*entries, without_a_value(entries[1], item_id="b")], "'b': all values .* leave this series"),
    ],
)
def test_bad_training_data(change, message):
    with pytest.raises(ValueError, match=message):
        make_estimator().train(change(make_entries(missing=False)))


@pytest.mark.parametrize("model", MODELS)
def test_series_of_any_length_are_trained_on(model):
    """Those that are too short for a window go on with missing values: in the loss there is what they have."""
    whole = make_entries(HORIZON, missing=False)
    entries = make_entries(2) + [
        {**e, "item_id": f"short {n}", "target": e["target"][:n]} for n, e in enumerate(whole, 1)
    ]
    predictor = make_estimator(model, 1, batch_size=len(entries)).train(entries, entries)
    for forecast in seeded(predictor, entries):
        assert np.isfinite(forecast.quantile(0.9)).all()
    assert "short 1" in predictor.input_transform.index


@pytest.mark.parametrize("model", ["bank", "issm"])
def test_forecasts_of_series_without_a_change_stay_near_it(model):
    """Of a single value, or of equal ones: they change by as much of their size as others do."""
    rng = np.random.default_rng(0)
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"s{k}", "start": start, "target": rng.poisson(40, 60).astype(np.float32)} for k in range(6)]
    options = {"structures": "trend,level"} if model == "bank" else {"components": "damped_trend"}
    trainer = {**QUIET, "max_epochs": 5}
    predictor = StateSpaceEstimator(model, "D", 30, seed=0, trainer_kwargs=trainer, **options).train(entries)
    assert 0.1 < predictor.network.data.typical_change < 0.3
    for values in ([30], [3000], [30, 30, 30]):
        (forecast,) = predictor.predict([{"start": start, "target": np.array(values, np.float32)}])
        for number in (forecast.quantile(0.5), forecast.mean):
            assert (abs(number / values[-1] - 1) < 0.3).all()
        assert (forecast.quantile(0.1)[:7] > 0.2 * values[-1]).all()
        assert (forecast.quantile(0.9)[:7] < 4 * values[-1]).all()
    if model == "bank":
        for values in ([0], [0, 0, 0], [np.nan]):
            (forecast,) = predictor.predict([{"start": start, "target": np.array(values, np.float32)}])
            assert (forecast.mean < 1).all()


def test_bad_validation_data():
    entries = make_entries(missing=False)
    with pytest.raises(ValueError, match="'s1': all values of the target are missing"):
        make_estimator().train(entries, [entries[0], without_a_value(entries[1])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_field(start=pd.Period("2024-01-01", "h")), "frequency 'D'"),
        (with_field(feat_static_cat=[7]), "'s0'.*below .2., the values seen in training, got .7."),
        (with_field(feat_static_cat=[0, 0]), "feat_static_cat of 1 rows.*got 2"),
        (
            lambda entries: [{k: v for k, v in e.items() if k != "feat_dynamic_real"} for e in entries],
            "feat_dynamic_real",
        ),
        (
            lambda entries: [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-1]} for e in entries],
            "end too early",
        ),
        (lambda entries: [{**e, "target": np.stack([e["target"]] * 2)} for e in entries], "target of 1 rows.*got 2"),
    ],
)
def test_bad_prediction_data(change, message, predictor_with_features):
    predictor, data = predictor_with_features
    with pytest.raises(ValueError, match=message):
        list(predictor.predict(change(data)))


@pytest.fixture(scope="module")
def predictor_with_features():
    entries = make_entries(missing=False)
    data = [
        {**e, "feat_static_cat": [k % 2], "feat_dynamic_real": np.ones((1, len(e["target"]) + HORIZON))}
        for k, e in enumerate(entries)
    ]
    training = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-HORIZON]} for e in data]
    predictor = make_estimator(epochs=1).train(training)
    assert len(list(predictor.predict(data))) == 5
    return predictor, data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "prophet"}, "one of auto, bank, issm, gls"),
        ({"forecast": "distribution"}, "no hyperparameter 'forecast'"),
        ({"freq": "fortnight"}, "frequency"),
        ({"prediction_length": 0}, "prediction_length to be at least 1"),
        ({"num_series": 3}, "no hyperparameter 'num_series'"),
        ({"state_dim": 3}, "no hyperparameter 'state_dim'"),
        ({"model": "rsgls", "switch": "categorical"}, "no hyperparameter 'switch'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        StateSpaceEstimator(**options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("sgls", {"proposal": "ladder"}, "one of encoder, bootstrap"),
        ("rsgls", {"resampling_gradient": "yes"}, "one of fivo, stop-gradient"),
        ("arsgls", {"likelihood": "negative-binomial", "transformation": "log1p"}, "take transformation 'none'"),
        ("arsgls", {"switch": "categorical", "skip": True, "auxiliary_dim": 0}, "without an auxiliary"),
        ("arsgls", {"switch": "categorical", "auxiliary_dim": 4}, "no auxiliary beside a categorical switch"),
        ("rsgls-issm", {"components": "moon"}, "unknown component 'moon'"),
    ],
)
def test_bad_hyperparameters(model, options, message):
    entries = [{**e, "target": np.abs(e["target"])} for e in make_entries()]
    with pytest.raises(ValueError, match=message):
        make_estimator(model, **options).train(entries)


@pytest.mark.parametrize(("likelihood", "highest"), [("negative-binomial", 1000), ("bernoulli", 1)])
def test_decoders_of_whole_numbers(likelihood, highest):
    """What is observed in whole numbers is forecast in them."""
    rng = np.random.default_rng(0)
    entries = [{**e, "target": rng.poisson(9, len(e["target"])).clip(0, highest)} for e in make_entries()]
    predictor = make_estimator("arsgls", likelihood=likelihood, transformation="none").train(entries)
    for forecast in predictor.predict(entries, num_samples=50):
        np.testing.assert_allclose(forecast.samples, forecast.samples.round(), atol=1e-4)
        assert forecast.samples.min() >= 0
        assert forecast.samples.max() <= highest + 1e-4
        assert len(np.unique(forecast.samples.round())) > 1


def test_log1p_needs_values_above_minus_one():
    with pytest.raises(ValueError, match="asinh"):
        make_estimator(transformation="log1p").train(
            [{**e, "target": -np.abs(e["target"]) - 2} for e in make_entries()]
        )


def test_forecasts_of_what_is_never_negative_are_not():
    entries = [{**e, "target": np.abs(e["target"] - 5)} for e in make_entries()]
    forecasts = seeded(make_estimator(num_samples=200, transformation="none").train(entries), entries)
    assert min(f.samples.min() for f in forecasts) == 0
    free = make_estimator(num_samples=200, transformation="none", clip="none").train(entries)
    assert min(f.samples.min() for f in seeded(free, entries)) < 0


def test_missing_values_are_imputed_in_the_place_where_they_are(trained):
    entries = make_entries()
    for entry, found in zip(entries[:2], trained.impute(entries[:2], num_samples=7), strict=True):
        assert found.item_id == entry["item_id"]
        assert found.start_date == entry["start"]
        assert found.samples.shape == (7, len(entry["target"]))
        seen = ~np.isnan(entry["target"])
        assert not seen.all()
        np.testing.assert_array_equal(found.samples[:, seen], np.tile(entry["target"][seen], (7, 1)))
        assert np.isfinite(found.samples).all()
        assert (found.samples[:, ~seen].std(0) > 0).all()


def test_all_steps_are_trained_on_where_a_covariate_varies_in_early_ones_alone():
    """What it does would not be learnt from the eight weeks of hours that are enough without it."""
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "h"), "target": np.arange(60 * 24) % 7 + 1.0}

    def trained(on, train_length=None):
        estimator = make_estimator("gls", freq="h", epochs=1, train_length=train_length, effects="given")
        promotion = np.arange(60 * 24 + HORIZON) == on
        estimator.train([{**entry, "feat_dynamic_real": promotion[None].astype(np.float32)}])
        return estimator.on_grid.train_length

    assert (trained(50), trained(1400), trained(50, 1000)) == (0, 56 * 24, 1000)


def test_a_training_prints_no_line_of_lightning(capfd):
    """It would tell of hardware, advertise, and draw bars where nobody looks at a terminal."""
    options = {"logger": False, "accelerator": "cpu", "max_epochs": 1}
    StateSpaceEstimator("issm", "D", HORIZON, trainer_kwargs=options, num_batches_per_epoch=1).train(make_entries())
    assert capfd.readouterr() == ("", "")
