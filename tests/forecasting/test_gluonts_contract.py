"""What GluonTS' estimators take and promise, beyond training and prediction."""

import json
import logging
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.core import serde
from gluonts.core.component import equals, from_hyperparameters
from gluonts.dataset.common import ListDataset
from gluonts.itertools import Cyclic
from gluonts.model.predictor import Predictor
from gluonts.shell.env import TrainEnv
from gluonts.shell.train import run_train_and_test
from gluonts.shell.util import forecaster_type_by_name
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.loggers import CSVLogger

import tsforecast
from tests.forecasting.test_estimator import HORIZON, SMALL, make_entries, make_estimator, same_forecasts, seeded
from tsforecast import StateSpaceEstimator
from tsforecast.cli import main
from tsforecast.models import MODELS


def warnings_of(caplog):
    """What the package has warned of since the last call."""
    found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and r.name.startswith("tsforecast")]
    caplog.clear()
    return found


def hidden(target):
    """A masked array that hides numbers where the target has NaN."""
    return np.ma.array(np.nan_to_num(target, nan=1e6), mask=np.isnan(target))


@pytest.mark.parametrize("written", [hidden, lambda target: [None if np.isnan(x) else float(x) for x in target]])
def test_masked_values_and_none_are_missing_values(written):
    entries = make_entries()
    others = [{**e, "target": written(e["target"])} for e in entries]
    expected = seeded(make_estimator().train(entries), entries)
    predictor = make_estimator().train(others)
    same_forecasts(seeded(predictor, others), expected)
    beliefs = predictor.update(predictor.filter(others[:1]), [{**others[0], "start": entries[0]["start"] + 40}])
    assert beliefs["s0"].end == entries[0]["start"] + 80


@pytest.mark.parametrize("freq", ["ms", "10ms", "us", "ns"])
def test_steps_below_a_second(freq):
    entries = make_entries(2, freq=freq)
    estimator = make_estimator("deepstate", freq=freq, epochs=1, components="level+cycle_of_10")
    (forecast, _) = estimator.train(entries).predict(entries)
    assert forecast.start_date == entries[0]["start"] + 40
    assert np.isfinite(forecast.samples).all()


def test_data_that_never_end_are_refused():
    entries = make_entries(2)
    with pytest.raises(ValueError, match="expected data that end, got GluonTS' Cyclic"):
        make_estimator().train(Cyclic(entries))
    with pytest.raises(ValueError, match="expected data that end, got GluonTS' Cyclic"):
        make_estimator().train(entries, Cyclic(entries))


def test_fields_that_no_model_reads_are_named_once(caplog):
    entries = [{**e, "past_feat_dynamic_cat": np.ones((1, len(e["target"])))} for e in make_entries()]
    make_estimator(epochs=1).train(entries)
    (message,) = warnings_of(caplog)
    assert message.startswith("the data have past_feat_dynamic_cat, which no model reads")


def with_categories(entries):
    return [{**e, "feat_static_cat": [k % 2]} for k, e in enumerate(entries)]


@pytest.mark.parametrize("model", ["issm", "deepstate", "rsgls-issm"])
def test_a_series_without_its_category_is_of_an_unknown_one(model, caplog):
    entries = make_entries(missing=False)
    predictor = make_estimator(model, epochs=3).train(with_categories(entries))
    assert warnings_of(caplog) == []
    unknown = seeded(predictor, entries)
    (message,) = warnings_of(caplog)
    assert message.startswith("series 's0' has no feat_static_cat, with which the model was trained")
    for category in (0, 1):
        known = seeded(predictor, [{**e, "feat_static_cat": [category]} for e in entries])
        assert not np.array_equal(known[0].samples, unknown[0].samples)
    if model == "issm":  # an unknown category deviates in nothing
        for table in predictor.network.dynamics.parameters_of_series.categories:
            table.data.zero_()
        same_forecasts(seeded(predictor, with_categories(entries)), unknown)


def test_static_categories_can_be_left_out(caplog):
    entries = make_entries()
    predictor = make_estimator(use_feat_static_cat=False).train(with_categories(entries))
    expected = seeded(make_estimator().train(entries), entries)
    same_forecasts(seeded(predictor, entries), expected)
    same_forecasts(seeded(predictor, with_categories(entries)), expected)
    assert warnings_of(caplog) == []


def test_huge_codes_of_categories_are_refused():
    huge = [{**e, "feat_static_cat": [10**9 + k]} for k, e in enumerate(make_entries())]
    with pytest.raises(ValueError, match=r"below 10000, got 1000000004: number them one by one .*use_feat_static_cat"):
        make_estimator().train(huge)
    make_estimator(epochs=1, use_feat_static_cat=False).train(huge)
    predictor = make_estimator(epochs=1).train(with_categories(make_entries()))
    with pytest.raises(ValueError, match=r"'s0': expected static categories below \[2\]"):
        list(predictor.predict([{**make_entries()[0], "feat_static_cat": [1e300]}]))


def test_data_sets_of_gluonts_with_none():
    rows = [{"start": "2024-01-02", "target": [1.0, None, *range(30)], "item_id": "a"}]
    data = ListDataset(rows, freq="D")
    (forecast,) = make_estimator(epochs=1).train(data).predict([{**rows[0], "start": pd.Period("2024-01-02", "D")}])
    assert forecast.samples.shape == (10, HORIZON)


# Arguments, as `validated` keeps and reads them.


@pytest.mark.parametrize("model", MODELS)
def test_an_estimator_can_be_printed_compared_and_rebuilt(model):
    estimator = make_estimator(model)
    for name in ("model", "freq", "prediction_length", "trainer_kwargs", *SMALL[model]):
        assert f"{name}=" in repr(estimator)
    copies = [
        serde.load_json(serde.dump_json(estimator)),
        serde.flat.clone(estimator),
        eval(repr(estimator), {"tsforecast": tsforecast}),
    ]
    for copy in copies:
        assert type(copy) is StateSpaceEstimator
        assert equals(copy, estimator)
        assert vars(copy) == vars(estimator)


def test_a_rebuilt_estimator_trains_the_same_predictor():
    estimator = make_estimator()
    copy = serde.load_json(serde.dump_json(estimator))
    same_forecasts(*(seeded(e.train(make_entries()), make_entries()) for e in (estimator, copy)))


@pytest.mark.parametrize(
    "changes",
    [{"model": "gls"}, {"freq": "h"}, {"prediction_length": 3}, {"learning_rate": 0.2}, {"trainer_kwargs": {}}],
)
def test_estimators_that_differ_are_not_equal(changes):
    common = {"model": "issm", "freq": "D", "prediction_length": 4, "trainer_kwargs": {"max_epochs": 2}}
    assert equals(StateSpaceEstimator(**common), StateSpaceEstimator(**common))
    assert not equals(StateSpaceEstimator(**common), StateSpaceEstimator(**common | changes))


def test_text_and_numbers_of_numpy_become_what_is_declared():
    written = StateSpaceEstimator(
        "rsgls",
        "D",
        "4",
        context_length="null",
        num_samples=np.int64(20),
        use_feat_static_cat="false",
        trainer_kwargs='{"max_epochs": 2}',
        state_dim="3",
        learning_rate="1e-3",
        network_learning_rate=1,
        matrix_learning_rate=np.float32(0.5),
        stable="true",
    )
    options = {"state_dim": 3, "learning_rate": 0.001, "network_learning_rate": 1.0, "matrix_learning_rate": 0.5}
    trainer = {"max_epochs": 2}
    meant = StateSpaceEstimator(
        "rsgls", "D", 4, num_samples=20, use_feat_static_cat=False, trainer_kwargs=trainer, stable=True, **options
    )
    assert equals(written, meant)
    assert vars(written) == vars(meant)
    for name, value in {**options, "stable": True}.items():
        assert type(written.hyperparameters[name]) is type(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prediction_length": "a day"}, "expected prediction_length to be a whole number, got 'a day'"),
        ({"prediction_length": 2.5}, "expected prediction_length to be a whole number, got 2.5"),
        ({"prediction_length": True}, "expected prediction_length to be a whole number, got True"),
        ({"history_length": "all"}, "expected history_length to be a whole number or None, got 'all'"),
        ({"learning_rate": "fast"}, "expected learning_rate to be a number, got 'fast'"),
        ({"components": 3}, "expected components to be text, got 3"),
        ({"use_feat_static_cat": "perhaps"}, "expected use_feat_static_cat to be true or false, got 'perhaps'"),
        ({"trainer_kwargs": "fast"}, "expected trainer_kwargs to be a mapping, or an object in JSON, got 'fast'"),
        ({"trainer_kwargs": [1]}, r"expected trainer_kwargs to be a mapping, got \[1\]"),
        ({"prediction_length": 0}, "expected prediction_length to be at least 1, got 0"),
        ({"history_length": -3}, "expected history_length to be at least 1, got -3"),
        ({"context_length": -1}, "expected context_length to be at least 0, got -1"),
        ({"train_length": -1}, "expected train_length to be at least 0, got -1"),
        ({"train_horizon": 0}, "expected train_horizon to be at least 1, got 0"),
        ({"batch_size": 0}, "expected batch_size to be at least 1, got 0"),
        ({"num_batches_per_epoch": 0}, "expected num_batches_per_epoch to be at least 1, got 0"),
        ({"num_samples": 0}, "expected num_samples to be at least 1, got 0"),
        ({"learning_rate": -1.0}, "expected learning_rate to be at least 0, got -1.0"),
        ({"learning_rate": float("nan")}, "expected learning_rate to be at least 0, got nan"),
        ({"network_learning_rate": float("inf")}, "expected network_learning_rate to be at least 0, got inf"),
        ({"embedding_dim": 0}, "expected embedding_dim to be at least 1, got 0"),
        ({"components": "moon"}, "unknown component 'moon'"),
        ({"model": "gls", "state_dim": 0}, "expected state_dim to be at least 1, got 0"),
        ({"model": "gls", "matrix_learning_rate": -1}, "expected matrix_learning_rate to be at least 0, got -1"),
        ({"model": "rsgls", "matrix_learning_rate": -1}, "expected matrix_learning_rate to be at least 0, got -1"),
        ({"model": "rsgls", "embedding_dim": 0}, "expected embedding_dim to be at least 1, got 0"),
        ({"model": "kvae-rb", "memory_dim": 0}, "expected memory_dim to be at least 1, got 0"),
        ({"model": "kvae-rb", "switch_dim": 3}, "model 'kvae-rb' has no hyperparameter 'switch_dim'"),
        (
            {"model": "issm", "max_epochs": 2},
            ".* 'max_epochs'; it is one of Lightning's trainer: give it as trainer_kwargs=",
        ),
        ({"model": "auto", "max_epochs": 2}, ".* got max_epochs: it is one of Lightning's trainer"),
        ({"model": "gls", "state_dims": 2}, "model 'gls' has no hyperparameter 'state_dims'; did you mean 'state_dim'"),
        ({"model": 3}, "expected model to be text, got 3"),
    ],
)
def test_bad_arguments_are_refused_before_there_are_data(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        StateSpaceEstimator(**options)
    with pytest.raises(ValueError, match=f"^{message}"):
        StateSpaceEstimator.from_hyperparameters(**options)


def test_building_an_estimator_draws_and_makes_nothing():
    state = torch.get_rng_state()
    StateSpaceEstimator("sgls", "D", 4, hidden=10**7, num_bases=1000)  # weights of some hundred terabytes
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("model", ["issm", "sgls"])
def test_the_shell_of_gluonts_trains_it(model, tmp_path):
    """As SageMaker does: all hyperparameters are text, of which some are the shell's own."""
    entries = make_entries(missing=False)
    rows = [{**e, "start": str(e["start"]), "target": e["target"].tolist()} for e in entries]
    for channel in ("train", "test"):
        folder = tmp_path / "input" / "data" / channel
        folder.mkdir(parents=True)
        (folder / "data.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {**SMALL[model], "batch_size": 3, "num_batches_per_epoch": 1, "learning_rate": 0.05, "seed": 7}
    written = {name: str(value) for name, value in options.items()} | {
        "model": model,
        "freq": "D",
        "prediction_length": str(HORIZON),
        "trainer_kwargs": '{"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": false}',
        "forecaster_name": "tsforecast.StateSpaceEstimator",
        "num_workers": "2",
        "listify_dataset": "yes",
        "test_quantiles": "[0.1, 0.5, 0.9]",
        "sagemaker_region": "somewhere",
    }
    (tmp_path / "input" / "config").mkdir()
    (tmp_path / "input" / "config" / "hyperparameters.json").write_text(json.dumps(written))
    run_train_and_test(TrainEnv(tmp_path), forecaster_type_by_name("tsforecast.StateSpaceEstimator"))
    assert np.isfinite(json.loads((tmp_path / "model" / "agg_metrics.json").read_text())["mean_wQuantileLoss"])
    predictor = Predictor.deserialize(tmp_path / "model")
    options["trainer_kwargs"] = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    meant = StateSpaceEstimator(model, "D", HORIZON, **options).train(entries)
    same_forecasts(seeded(predictor, entries), seeded(meant, entries))


def test_hyperparameters_of_gluonts():
    given = {"model": "gls", "freq": "D", "prediction_length": "4", "state_dim": "3"}
    meant = StateSpaceEstimator("gls", "D", 4, state_dim=3)
    assert equals(StateSpaceEstimator.from_hyperparameters(**given), meant)
    assert equals(from_hyperparameters(StateSpaceEstimator, **given), meant)
    assert equals(StateSpaceEstimator.from_inputs(make_entries(), **{**given, "freq": "D"}), meant)
    with pytest.raises(ValueError, match="no hyperparameter 'num_cells'"):
        StateSpaceEstimator.from_hyperparameters(**given, num_cells="40")


def test_workers_are_passed_on(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "tsforecast")
    expected = seeded(make_estimator(epochs=1).train(make_entries()), make_entries())
    predictor = make_estimator(epochs=1).train(make_entries(), num_workers=2, num_prefetch=None)
    same_forecasts(seeded(predictor, make_entries()), expected)
    assert "num_workers=2 changes nothing: windows are made in the process that trains" in caplog.messages
    passed = []
    make = StateSpaceEstimator.create_training_data_loader

    def remember(*args, **kwargs):
        passed.append(kwargs)
        return make(*args)

    monkeypatch.setattr(StateSpaceEstimator, "create_training_data_loader", remember)
    make_estimator(epochs=1).train(make_entries(), num_workers=2)
    assert passed == [{"num_workers": 2, "num_prefetch": None}]


@pytest.mark.parametrize("hook", ["create_lightning_module", "create_transformation"])
def test_hooks_that_need_the_sizes_of_the_data_say_so(hook):
    estimator = make_estimator(epochs=1)
    with pytest.raises(ValueError, match="expected training data first, which decide the sizes of the model"):
        getattr(estimator, hook)()
    trained = estimator.train_model(make_entries()).trained_net
    again = estimator.create_lightning_module()
    assert [p.shape for p in again.parameters()] == [p.shape for p in trained.parameters()]


def test_one_device_is_the_default(monkeypatch):
    monkeypatch.setattr(CPUAccelerator, "auto_device_count", staticmethod(lambda: 2))  # as a machine with two GPUs
    assert make_estimator(epochs=1).train_model(make_entries()).trainer.num_devices == 1


@pytest.mark.parametrize("model", ["issm", "rsgls-issm", "deepstate", "gls"])
def test_training_warns_of_nothing(model, tmp_path):
    """Series without names, calendar or covariates, fewer batches than Lightning logs after, with a logger."""
    entries = [{**e, "start": pd.Period("2000", "Y")} for e in make_entries()]
    entries = [{k: v for k, v in e.items() if k != "item_id"} for e in entries]
    options = {"freq": "Y", "trainer_kwargs": {"logger": CSVLogger(tmp_path)}}
    options |= {"components": "level"} if "components" in SMALL[model] else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r".*LeafSpec", FutureWarning)  # within Lightning
        make_estimator(model, **options).train(entries)
        make_estimator(model, **options).train(entries, entries)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--devices=0", "--devices: expected at least 1, got 0"),
        ("--prediction_length=0", "--prediction_length: expected at least 1, got 0"),
        ("--learning_rate=-1", "expected learning_rate to be at least 0, got -1.0"),
        ("--history_length=-3", "expected history_length to be at least 1, got -3"),
        ("--context_length=-1", "expected context_length to be at least 0, got -1"),
    ],
)
def test_the_command_line_refuses_them_too(option, message, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "issm", "--dataset", "exchange", "--accelerator", "cpu", "--output", str(run), option]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"error: {message}")
    assert not run.exists()
