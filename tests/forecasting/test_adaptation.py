"""Forecasters that go on learning: right gradients, nothing changed before there is something to learn, and better
forecasts after a break."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tests.learners.particles import make_particles
from tsforecast.data import ForecastTask
from tsforecast.data.windows import collate, cut
from tsforecast.evaluation import paired_difference, score
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor, load_adaptive
from tsforecast.forecasting.period_network import PeriodNetwork
from tsforecast.forecasting.rolling import rolling
from tsforecast.learners import LEARNERS, LogDensity, NamedLearner
from tsforecast.models import MODELS, Series

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    return make_estimator(request.param, epochs=1).train(make_entries())


@pytest.fixture(scope="module")
def issm():
    return make_estimator("issm", epochs=1).train(make_entries())


def windows_of(predictor, entries, adaptation=None):
    """Network, rows and batch, as `AdaptivePredictor.learn` makes them."""
    adaptive = AdaptivePredictor(predictor, adaptation)
    prepared = predictor.input_transform(iter(entries), is_train=True)
    length, past = predictor.prediction_length, adaptive.module.data.scaling_length or None
    batch = collate([cut(e, len(e["target"]) - length, past, length) for e in prepared])
    rows = adaptive.network.rows.pack(batch, batch["forecast_start"], torch.zeros(1))
    return adaptive, rows, batch


@pytest.mark.parametrize("evidence", ["likelihood", "objective"])
def test_the_gradient_of_each_series_is_that_of_its_evidence(issm, evidence):
    adaptive, rows, _ = windows_of(issm, make_entries(), Adaptation(evidence=evidence))
    adaptive.module.double()
    network, rows = adaptive.network, rows.double()
    weights = network.weights()
    outputs, jacobian = network.linearise(weights, rows)
    torch.testing.assert_close(outputs, network(weights, rows))
    for column in (0, len(weights) // 2, len(weights) - 1):
        step = torch.zeros_like(weights)
        step[column] = 1e-5
        slope = (network(weights + step, rows) - network(weights - step, rows)) / 2e-5
        torch.testing.assert_close(jacobian[:, 0, column], slope[:, 0], rtol=1e-5, atol=1e-5)


def test_the_evidence_of_a_period_is_what_is_left_of_that_of_everything(issm):
    """log p(future | past) = log p(past, future) - log p(past), with the scales of the past."""
    adaptive, _, batch = windows_of(issm, make_entries())
    net = adaptive.module
    location, scale = net.inference.scale_of(batch)
    time_slice = net.inference.slice_of(batch, "both")
    model = net.dynamics.linear(time_slice, Series.of(batch))
    system, prior = model.system, model.prior
    values = torch.where(time_slice.observed, (time_slice.values - location) / scale, 0.0).to(scale.dtype)
    terms = system.log_likelihood(prior, values, time_slice.observed)
    torch.testing.assert_close(net.log_likelihood(batch), terms[-HORIZON:].sum(0), rtol=1e-4, atol=1e-3)


def test_log_densities_are_learnt_from_by_the_fisher_matrix_of_single_points():
    jacobian = torch.randn(5, 1, 3, generator=torch.Generator().manual_seed(0))
    outputs = torch.randn(5, 1, generator=torch.Generator().manual_seed(1))
    matrix, residual = LogDensity().whiten(outputs, jacobian, torch.zeros(5, 1), None)
    torch.testing.assert_close(matrix.flatten(0, 1).T @ residual.flatten(), jacobian.sum((0, 1)))
    torch.testing.assert_close(matrix.flatten(0, 1).T @ matrix.flatten(0, 1), jacobian[:, 0].T @ jacobian[:, 0])
    torch.testing.assert_close(LogDensity().predict(outputs, outputs[..., None], outputs, None).log_prob, outputs[:, 0])
    with pytest.raises(TypeError, match="no predictive distribution"):
        LogDensity().predictive(outputs, outputs[..., None])


@pytest.mark.parametrize(
    "adaptation",
    [
        Adaptation("lofi", drift="ou"),
        Adaptation("ogd", drift="none", settings={"rate": 1e-6}),
        Adaptation("vb", drift="ou", memory="grs", memory_size=3, settings={"passes": 1}),
    ],
    ids=lambda adaptation: adaptation.learner,
)
def test_every_model_learns(trained, adaptation):
    adaptive = AdaptivePredictor(trained, adaptation)
    before = {name: p.clone() for name, p in trained.prediction_net.named_parameters()}
    samples = []
    for predictor in (trained, adaptive):  # nothing has been learnt yet
        torch.manual_seed(0)
        samples.append(np.stack([f.samples for f in predictor.predict(make_entries(), num_samples=5)]))
    np.testing.assert_array_equal(*samples)
    torch.manual_seed(0)
    evidence = adaptive.learn(make_entries())
    assert np.isfinite(evidence)
    assert torch.isfinite(adaptive.weights).all()
    assert not torch.equal(adaptive.weights, adaptive.learner.mean)
    assert len(adaptive.remembered()) == (3 if adaptation.memory == "grs" else 0)
    torch.testing.assert_close(adaptive.learner.network.weights(), adaptive.weights)
    for name, p in trained.prediction_net.named_parameters():  # what was trained stays
        torch.testing.assert_close(p, before[name], rtol=0, atol=0)


def test_a_period_without_observations_teaches_nothing(issm):
    entries = [
        {**e, "target": np.concatenate([e["target"][:-HORIZON], np.full(HORIZON, np.nan)])} for e in make_entries()
    ]
    adaptive = AdaptivePredictor(issm, Adaptation(drift="none"))
    adaptive.learn(entries)
    torch.testing.assert_close(adaptive.weights, adaptive.learner.mean)


def test_only_the_named_part_is_learnt(issm):
    names = [name for name, _ in issm.prediction_net.named_parameters()]
    adaptive = AdaptivePredictor(issm, Adaptation(part=f"^{names[0]}$"))
    adaptive.learn(make_entries())
    for (name, p), (_, old) in zip(
        adaptive.module.named_parameters(), issm.prediction_net.named_parameters(), strict=True
    ):
        assert torch.equal(p, old) == (name != names[0]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learner": "sgd"}, "expected learner to be one of"),
        ({"learner": "adf"}, "expected a learner of numbers, such as 'lofi', got 'adf'"),
        ({"drift": "levy"}, "expected drift to be one of"),
        ({"evidence": "hearsay"}, "expected evidence to be one of"),
        ({"part": "no such name"}, "expected part to match parameters of the model"),
        ({"learner": "ogd"}, "expected what learner 'ogd' takes"),
        ({"variance": -1.0}, "expected variance to be positive and finite, got -1.0"),
    ],
)
def test_bad_settings_are_refused(issm, settings, message):
    with pytest.raises(ValueError, match=message):
        AdaptivePredictor(issm, Adaptation(**settings))


def test_what_has_been_learnt_is_kept(issm, tmp_path):
    adaptive = AdaptivePredictor(issm)
    adaptive.learn(make_entries())
    adaptive.save(tmp_path / "kept")
    again = load_adaptive(tmp_path / "kept")
    for predictor in (adaptive, again):
        predictor.learn(make_entries())
    torch.testing.assert_close(adaptive.weights, again.weights, rtol=0, atol=0)
    torch.testing.assert_close(adaptive.learner.mean, again.learner.mean, rtol=0, atol=0)
    with pytest.raises(FileNotFoundError, match="expected a predictor that learns"):
        load_adaptive(tmp_path)
    (tmp_path / "kept" / "belief.pt").write_bytes(b"no belief")
    with pytest.raises(ValueError, match="holds no readable belief"):
        load_adaptive(tmp_path / "kept")


def test_a_belief_that_is_no_gaussian_learns_is_saved_and_goes_on(issm, tmp_path, monkeypatch):
    monkeypatch.setitem(LEARNERS, "particles", NamedLearner(make_particles))
    adaptive = AdaptivePredictor(issm, Adaptation("particles", drift="none", variance=1e-4, settings={"count": 4}))
    first = adaptive.weights
    adaptive.learn(make_entries())
    adaptive.save(tmp_path / "kept")
    again = load_adaptive(tmp_path / "kept")
    assert again.learner.network is again.network
    for predictor in (adaptive, again):
        torch.testing.assert_close(predictor.network.weights(), adaptive.weights)
        assert not torch.equal(predictor.weights, first)
    assert torch.equal(again.trained, adaptive.trained)
    assert again.learn(make_entries()) == pytest.approx(adaptive.learn(make_entries()), rel=1e-4)
    result = rolling(adaptive, broken(windows=2), num_samples=4)
    assert result.windows["moved"].gt(0).all()


def test_a_subspace_of_the_parameters_learns_is_saved_and_goes_on(issm, tmp_path):
    """Parameters move along its directions alone, and the forecasts are those of the moved ones."""
    adaptive = AdaptivePredictor(issm, Adaptation("subspace-ekf", settings={"dim": 3}))
    subspace = adaptive.learner.network
    assert torch.equal(adaptive.weights, adaptive.trained)
    adaptive.learn(make_entries())
    moved = adaptive.weights - adaptive.trained
    assert moved.norm() > 1e-3
    inside = subspace.basis @ torch.linalg.lstsq(subspace.basis, moved.unsqueeze(-1)).solution
    torch.testing.assert_close(inside.squeeze(-1), moved, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(adaptive.network.weights(), adaptive.weights)
    adaptive.save(tmp_path / "kept")
    again = load_adaptive(tmp_path / "kept")
    torch.testing.assert_close(again.network.weights(), adaptive.weights)
    assert again.learn(make_entries()) == pytest.approx(adaptive.learn(make_entries()), rel=1e-4)
    torch.testing.assert_close(again.weights, adaptive.weights)


def broken(windows=24, horizon=HORIZON):
    """Random walks whose steps are eight times larger in the second half of the test part."""
    rng = np.random.default_rng(0)
    length, test = 240, windows * horizon
    scale = np.where(np.arange(length + test) < length + test // 2, 1.0, 8.0)
    start = pd.Period("2024-01-01", "D")
    entries = [
        {"item_id": f"s{k}", "start": start, "target": np.cumsum(scale * rng.normal(size=length + test)) + 100.0}
        for k in range(20)
    ]
    return ForecastTask("broken", "D", horizon, windows, entries)


def test_learning_on_helps_after_a_break_and_does_no_harm_before():
    task = broken()
    predictor = make_estimator(
        "issm", epochs=10, components="level", context_length=120, scaling="none",
        transformation="none", clip="none", objective="likelihood",  # without a prior, as the learner is
    ).train(task.train)  # fmt: skip
    predictor.batch_size = len(task.entries)  # a period is one step of the learner
    result = rolling(AdaptivePredictor(predictor, Adaptation(variance=0.3)), task, num_samples=50)
    still = rolling(AdaptivePredictor(predictor), task, num_samples=50, frozen=True)
    assert still.windows["moved"].tolist() == [0.0] * task.windows
    for one, other in zip(result.forecasts[:: task.windows], still.forecasts[:: task.windows], strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)  # before anything was learnt, with the same draws
    frozen = score(still.forecasts, task.test("rolling")).per_forecast
    learnt = score(result.forecasts, task.test("rolling")).per_forecast
    starts = learnt.index.get_level_values("start")
    late = starts >= starts.unique()[task.windows // 2 + 3]
    after = paired_difference(learnt[late], frozen[late], block=1)  # steps of a random walk do not depend on others
    assert after.high < 0
    assert after.estimate < -0.01 * np.average(frozen["crps"][late], weights=frozen["size"][late])
    early = starts < starts.unique()[task.windows // 2]
    assert paired_difference(learnt[early], frozen[early], block=1).low < 0.01 * frozen["crps"][early].mean()
    assert list(result.windows["moved"][:1]) == [0.0]
    assert result.windows["moved"].iloc[-1] > result.windows["moved"].iloc[task.windows // 2 - 1]


def test_series_that_do_not_end_together_are_refused(issm):
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"s{k}", "start": start + k, "target": np.arange(60.0, dtype=np.float32)} for k in range(2)]
    with pytest.raises(ValueError, match="expected series that end together"):
        rolling(AdaptivePredictor(issm), ForecastTask("uneven", "D", HORIZON, 2, entries))


def test_period_networks_count_their_weights(issm):
    network = AdaptivePredictor(issm).learner.network
    assert isinstance(network, PeriodNetwork)
    assert network.size == sum(p.numel() for p in issm.prediction_net.parameters())


def test_the_table_has_no_interval_of_too_few_windows(tmp_path, monkeypatch, capsys):
    """Of one series and a phase of a single window, cells of both ends are empty, and are so when the table is read."""
    adapt = importlib.import_module("experiments.streams.adapt")
    rng = np.random.default_rng(0)
    starts = pd.date_range("2016-01-01", periods=24, freq="D")
    index = pd.MultiIndex.from_product([["a"], starts], names=["item_id", "start"])

    def measured(task, run, name, seed):
        return pd.DataFrame({"crps": rng.random(24), "size": 1.0, "seconds": 0.1}, index=index)

    monkeypatch.setattr(adapt, "measure", measured)
    monkeypatch.setattr(adapt, "train", lambda dataset, run: None)
    monkeypatch.setattr(adapt, "load_task", lambda name: None)
    monkeypatch.setattr(adapt, "with_windows", lambda task, windows: None)
    asked = ["--datasets", "taxi-blizzard", "--learners", "lofi", "sgd-1e-3", "--output", str(tmp_path / "adapt.csv")]
    monkeypatch.setattr(sys, "argv", ["adapt.py", *asked])
    for _ in range(2):  # the second time the table is there
        adapt.main()
        found = pd.read_csv(tmp_path / "adapt.csv", dtype=str, keep_default_na=False).set_index(["phase", "learner"])
        assert len(found) == 9
        assert not found.isin(["inf", "-inf", "nan"]).any(axis=None)
        ends = found[[f"minus_frozen_{end}" for end in ("low", "high")]]
        assert (ends.loc["break"] == "").all(axis=None)
        assert (found.loc["break", "minus_frozen"] != "").all()
    assert "inf" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def bounded():
    """A model whose windows have a bound that is longer than some series."""
    return make_estimator("issm", epochs=1, context_length=30).train(make_entries())


def told(entries, shift=0.0):
    return [{**e, "target": e["target"] + shift} for e in entries]


@pytest.mark.parametrize("evidence", ["likelihood", "objective"])
def test_a_row_of_numbers_is_the_window(bounded, evidence):
    adaptive, rows, batch = windows_of(bounded, make_entries(), Adaptation(evidence=evidence))
    network, weights = adaptive.network, adaptive.trained
    direct = network.evidence(batch).unsqueeze(-1)
    torch.testing.assert_close(network(weights, rows), direct)
    torch.testing.assert_close(network(weights, rows[[2, 0]]), direct[[2, 0]], rtol=1e-4, atol=1e-3)
    found = network.rows.unpack(rows)
    for name, value in found.items():
        if name != "start":
            expected = batch[name]
            if name.endswith("_target"):
                expected = torch.where(batch[name.replace("target", "observed")], expected, 0.0)
            assert value.dtype == expected.dtype
            assert torch.equal(value, expected), name
    assert network.rows.starts(rows, bounded.freq) == batch["forecast_start"]
    assert rows.shape[1] == network.rows.width(batch["past_target"].shape[1])


def test_rows_name_times_of_any_frequency(bounded):
    rows, net = AdaptivePredictor(bounded).network.rows, bounded.prediction_net
    for text, freq in (("1905-03-01", "D"), ("2024-02-29 23:30", "30min"), ("2255-01-01 00:00:00.000000001", "ns")):
        start = pd.Period(text, freq=freq)
        _, _, batch = windows_of(bounded, make_entries())
        packed = rows.pack(batch, [start] * len(batch["past_target"]), torch.zeros(1))
        assert rows.starts(packed, freq) == [start] * len(packed)
    assert net is bounded.prediction_net


@pytest.mark.parametrize("memory", ["random", "grs"])
def test_windows_are_remembered_with_names_and_dates_saved_and_scored_again(bounded, memory, tmp_path):
    size = 5
    adaptation = Adaptation("vb", drift="wiener", memory=memory, memory_size=size, settings={"passes": 2})
    adaptive = AdaptivePredictor(bounded, adaptation)
    assert adaptive.remembered().empty
    entries = make_entries()
    torch.manual_seed(0)
    adaptive.learn([{**e, "target": e["target"][..., :-HORIZON]} for e in entries])
    adaptive.learn(entries)
    kept = adaptive.remembered()
    assert len(kept) == size
    ends = {e["item_id"]: e["start"] + len(e["target"]) for e in entries}
    for row in kept.itertuples():
        assert row.start == ends[row.item_id] - HORIZON * (int(row.age) + 1)
        assert row.power == 1
    _, rows, batch = windows_of(bounded, entries)
    held = adaptive.belief.memory.inputs
    new = kept["age"].eq(0).sum()
    assert sum(bool((held == row).all(1).any()) for row in rows) == new  # as they came, bit for bit
    again = adaptive.network.rows.unpack(held)
    assert set(again["series_index"].tolist()) <= set(batch["series_index"].tolist())
    adaptive.save(tmp_path / "kept")
    loaded = load_adaptive(tmp_path / "kept")
    pd.testing.assert_frame_equal(loaded.remembered(), kept)
    for predictor in (adaptive, loaded):
        torch.manual_seed(1)
        predictor.learn(told(entries, 0.5))
    torch.testing.assert_close(adaptive.weights, loaded.weights, rtol=0, atol=0)


def test_what_is_remembered_outlasts_a_drift_that_makes_the_gaussian_forget(bounded):
    """After a very long drift the Gaussian is nearly flat, and the fit is pulled to the windows that were kept."""

    def pulled(memory):
        adaptation = Adaptation("vb", drift="ou", rate=20.0, memory=memory, settings={"passes": 1})
        adaptive = AdaptivePredictor(bounded, adaptation)
        adaptive.learn(make_entries())  # all of them fit into the memory
        missing = [
            {**e, "target": np.concatenate([e["target"][:-HORIZON], np.full(HORIZON, np.nan)])} for e in make_entries()
        ]
        adaptive.learn(missing)
        return (adaptive.weights - adaptive.trained).norm().item()

    assert pulled("none") < 1e-6
    assert pulled("random") > 1e-3


def test_a_period_is_learnt_from_in_one_step_where_nothing_else_is_said(bounded):
    assert AdaptivePredictor(bounded, Adaptation("vb")).learner.fit.passes == 1
    assert AdaptivePredictor(bounded, Adaptation("vb", settings={"passes": 3})).learner.fit.passes == 3
    assert AdaptivePredictor(bounded, Adaptation("vb", settings={"fit": "linearised"})).learner.fit.passes == 30


def test_a_memory_that_is_not_for_forecasters_is_refused(bounded, issm):
    with pytest.raises(ValueError, match="expected memory of a forecaster to be one of none, random, grs, got 'k-c"):
        Adaptation("vb", memory="k-center")
    with pytest.raises(ValueError, match="expected a memory beside the learner 'vb', got learner 'lofi'"):
        Adaptation("lofi", memory="grs")
    with pytest.raises(ValueError, match="expected memory_size of at least 1, got 0"):
        Adaptation("vb", memory="grs", memory_size=0)
    with pytest.raises(ValueError, match="expected memory outside of settings"):
        Adaptation("vb", settings={"memory": "grs"})
    unbounded = make_estimator("issm", epochs=1, context_length=0).train(make_entries())
    with pytest.raises(ValueError, match="expected a model with a context_length for a memory of windows"):
        AdaptivePredictor(unbounded, Adaptation("vb", memory="grs"))
    AdaptivePredictor(unbounded).learn(make_entries())  # without a memory it learns from the whole past
