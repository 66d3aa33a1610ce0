import json
import signal
import warnings

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
from gluonts.model import evaluate_model
from gluonts.model.predictor import ParallelizedPredictor, Predictor
from gluonts.torch.model.estimator import PyTorchLightningEstimator
from lightning.pytorch.callbacks import ModelCheckpoint

from tsforecast import StateSpaceEstimator, StateSpacePredictor
from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.models import MODELS
from tsforecast.predictor import load_predictor, save_predictor, with_prediction_length

QUIET = {"accelerator": "cpu", "enable_progress_bar": False}
HORIZON = 4
SMALL = {"issm": {"components": "level+day_of_week"}, "gls": {"state_dim": 3}}

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


def make_estimator(model="issm", epochs=2, freq="D", **options):
    trainer = {**QUIET, "max_epochs": epochs, **options.pop("trainer_kwargs", {})}
    small = {"num_batches_per_epoch": 2, "batch_size": 3, "num_samples": 10, "seed": 0, "context_length": 21}
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


# What GluonTS' own estimators are tested for.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("validate", [False, True])
def test_constant_dataset(model, validate, tmp_path, monkeypatch):
    monkeypatch.setenv("GLUONTS_DATA", str(tmp_path))
    constant = get_dataset("constant", path=tmp_path, regenerate=False)
    estimator = make_estimator(model, freq=constant.metadata.freq, num_batches_per_epoch=3, context_length=None)
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


@pytest.mark.parametrize(("model", "targets"), [("issm", None), ("gls", None), ("gls", 2)])
def test_features(model, targets, tmp_path):
    data = ListDataset(feature_entries(targets), freq="1h", one_dim_target=targets is None)
    training = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-HORIZON]} for e in data]
    estimator = make_estimator(
        model, freq="1h", **({"components": "level", "scales": "network"} if model == "issm" else {})
    )
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


def test_grouped_targets():
    entries = make_entries(length=40, missing=False)
    grouped = MultivariateGrouper(max_target_dim=2)([{**e, "target": e["target"][:40]} for e in entries[:2]])
    predictor = make_estimator("gls").train(grouped)
    (forecast,) = predictor.predict(grouped)
    assert forecast.samples.shape == (10, HORIZON, 2)
    assert np.isfinite(forecast.samples).all()


def test_item_id_and_info_come_back_in_order(trained):
    entries = make_entries(7)
    for data in (entries, entries[::-1]):
        forecasts = list(trained.predict(data))
        assert [f.item_id for f in forecasts] == [e["item_id"] for e in data]
        assert [f.info for f in forecasts] == [e["info"] for e in data]
    mixed = [{k: v for k, v in e.items() if k != "item_id" or i != 0} for i, e in enumerate(entries[:3])]
    assert [f.item_id for f in trained.predict(mixed)] == [None, "s1", "s2"]


def test_training_from_a_predictor():
    entries = make_entries()
    estimator = make_estimator(trainer_kwargs={"limit_train_batches": 0})
    first = make_estimator().train(entries)
    same = estimator.train_from(first, entries[::-1])  # in another order: series keep their own parameters
    assert torch.equal(weights(first), weights(same))
    same_forecasts(seeded(first, entries), seeded(same, entries))
    more = make_estimator().train_from(first, [*entries, {**entries[0], "item_id": "new"}])
    assert not torch.equal(weights(first), weights(more))
    assert more.input_transform.index == first.input_transform.index
    with pytest.raises(ValueError, match="same model"):
        make_estimator(components="level").train_from(first, entries)


def test_parallel_prediction():
    entries = make_entries()
    predictor = make_estimator(forecast="distribution").train(entries)
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
    assert not torch.equal(weights(trained), weights(make_estimator(model, seed=1).train(entries)))
    state = torch.get_rng_state()
    make_estimator(model, epochs=1).train(entries)
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


@pytest.mark.parametrize("damage", ["version", "state", "json", "state is code"])
def test_damaged_predictors_are_refused(trained, tmp_path, damage):
    folder = tmp_path / "predictor"
    save_predictor(trained, folder)
    state = folder / "prediction-net-state.pt"
    if damage == "version":
        (folder / "format.json").write_text(json.dumps({"tsforecast_format": 99}))
    elif damage == "state":
        state.write_bytes(state.read_bytes()[:100])
    elif damage == "json":
        (folder / "predictor.json").write_text("{")
    else:
        torch.save({"weight": pd.Period("2024")}, state)
    with pytest.raises(ValueError, match="format 99" if damage == "version" else "no readable predictor"):
        load_predictor(folder, "cpu")
    with pytest.raises(FileNotFoundError, match="expected a saved predictor"):
        load_predictor(tmp_path, "cpu")


def test_a_series_alone_is_forecast_as_in_a_batch():
    entries = make_entries()
    predictor = make_estimator(forecast="distribution").train(entries)
    together = list(predictor.predict(entries))
    for entry, forecast in zip(entries, together, strict=True):
        (alone,) = predictor.predict([entry])
        np.testing.assert_allclose(alone.mean, forecast.mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(alone.quantile(0.9), forecast.quantile(0.9), rtol=1e-3, atol=1e-3)


def test_exact_marginals_agree_with_samples():
    entries = make_entries()
    for transformation in ("none", "log1p"):
        positive = [{**e, "target": np.abs(e["target"])} for e in entries]
        predictor = make_estimator(forecast="distribution", transformation=transformation).train(positive)
        exact = list(predictor.predict(positive))
        predictor.forecast = "samples"
        count = 4000
        for mine, its in zip(exact, seeded(predictor, positive, num_samples=count), strict=True):
            assert mine.start_date == its.start_date
            assert mine.mean.shape == (HORIZON,)
            below = (its.samples < mine.quantile(0.9)).mean(0)
            assert (abs(below - 0.9) < 4.5 * (0.9 * 0.1 / count) ** 0.5).all()


def test_known_future_values():
    entries = make_entries()
    predictor = make_estimator().train(entries)
    known = np.array([np.nan, np.nan, 2.5, np.nan])
    (free,), (given,) = (
        seeded(predictor, [{**entries[0], **extra}], num_samples=500) for extra in ({}, {"known_future": known})
    )
    assert (given.samples[:, 2] == 2.5).all()
    assert given.samples[:, 1].std() < free.samples[:, 1].std()
    for wrong, message in ((np.zeros((2, HORIZON)), "known_future"), ([np.inf] * HORIZON, "infinite")):
        with pytest.raises(ValueError, match=message):
            list(predictor.predict([{**entries[0], "known_future": wrong}]))


def test_another_horizon():
    entries = make_entries()
    predictor = make_estimator(forecast="distribution").train(entries)
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


def test_training_lowers_the_loss():
    entries = make_entries(missing=False)
    losses = []
    watch = pl.callbacks.LambdaCallback(
        on_train_epoch_end=lambda trainer, _: losses.append(float(trainer.callback_metrics["train_loss"]))
    )
    make_estimator(epochs=8, trainer_kwargs={"callbacks": [watch]}, objective="likelihood").train(entries)
    assert losses[-1] < losses[0]


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
                module.parameters_of_series.population += 4.0

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


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_resuming_gives_the_uninterrupted_result(model, validate, tmp_path):
    entries = make_entries()

    def run(folder, *callbacks, checkpoint=None):
        keep = ModelCheckpoint(tmp_path / folder, save_last=True, enable_version_counter=False)
        estimator = make_estimator(model, epochs=4, trainer_kwargs={"callbacks": [keep, *callbacks]})
        return estimator.train(entries, entries if validate else None, ckpt_path=checkpoint)

    whole = run("whole")
    with pytest.raises(RuntimeError, match="disk is full"):
        run("broken", Failing(2))
    resumed = run("broken", checkpoint=tmp_path / "broken" / "last.ckpt")
    assert torch.equal(weights(whole), weights(resumed))


def test_foreign_checkpoints_are_refused(tmp_path):
    entries = make_entries()
    keep = ModelCheckpoint(tmp_path, save_last=True)
    make_estimator(trainer_kwargs={"callbacks": [keep]}).train(entries)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    for name, content, message in (
        ("other", {**checkpoint, "tsforecast_format": 99}, "format 99"),
        ("weights", {k: v for k, v in checkpoint.items() if k != "optimizer_states"}, "weights only"),
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
    assert most < 50


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
        predictor = make_estimator(forecast="distribution").train(training)
        means.append([f.mean for f in predictor.predict(data)])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-3)


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
    ],
)
def test_bad_training_data(change, message):
    with pytest.raises(ValueError, match=message):
        make_estimator().train(change(make_entries(missing=False)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_field(start=pd.Period("2024-01-01", "h")), "frequency 'D'"),
        (with_field(feat_static_cat=[7]), "'s0'.*below .2., the values seen in training, got .7."),
        (with_field(feat_static_cat=[0, 0]), "feat_static_cat of 1 rows.*got 2"),
        (lambda entries: [{k: v for k, v in e.items() if k != "feat_static_cat"} for e in entries], "feat_static_cat"),
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
        ({"model": "prophet"}, "one of issm, gls"),
        ({"forecast": "quantiles"}, "samples, distribution"),
        ({"freq": "fortnight"}, "frequency"),
        ({"prediction_length": 0}, "prediction_length to be positive"),
        ({"num_series": 3}, "no hyperparameter 'num_series'"),
        ({"state_dim": 3}, "no hyperparameter 'state_dim'"),
        ({"forecast": "distribution", "transformation": "asinh"}, "take forecast='samples'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        StateSpaceEstimator(**options)


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
