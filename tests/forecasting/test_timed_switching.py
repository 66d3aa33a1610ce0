"""Forecasts, interpolation and beliefs of the model with a switch in continuous time."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasting.test_irregular import HOUR, QUIET, entries, train
from tsforecast import StateSpaceEstimator, StateSpacePredictor, load_predictor
from tsforecast.analysis.timed_regimes import timed_regimes
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.predictor import save_predictor

LEVELS = [0.1, 0.5, 0.9]
COMPONENTS = "level+damped_level+day_with_1_harmonic"
FEW = {"context_length": 20, "num_batches_per_epoch": 1, "seed": 0, "num_particles": 4, "forecast_particles": 16}


def priced() -> list[dict]:
    """Entries with a covariate."""
    rng = np.random.default_rng(1)
    return [{**entry, "feat_dynamic_real": rng.standard_normal((1, len(entry["times"])))} for entry in entries()]


@pytest.fixture(scope="module")
def predictor() -> StateSpacePredictor:
    """Two epochs, of which the second has particles."""
    trainer = {**QUIET, "max_epochs": 2}
    estimator = StateSpaceEstimator(
        "rsgls-issm", horizon="1D", components=COMPONENTS, scaling="none", trainer_kwargs=trainer, **FEW
    )
    found = estimator.train(priced())
    assert found.prediction_net.hyperparameters["linear_epochs"] == 1
    return found


@pytest.fixture(scope="module")
def calm(predictor) -> StateSpacePredictor:
    """The same without any spread of its factors."""
    found = copy.deepcopy(predictor)
    torch.nn.init.zeros_(found.prediction_net.dynamics.mixture.bases["factor"])
    return found


@pytest.fixture(scope="module")
def issm(predictor) -> StateSpacePredictor:
    """The model inside, under its own name."""
    found = train("issm", priced(), components=COMPONENTS, scaling="none")
    inside = predictor.prediction_net.dynamics.inside.state_dict()
    found.prediction_net.dynamics.load_state_dict(inside)
    return found


def asked(*hours: float) -> tuple[dict, dict]:
    """Times behind each series, and covariates at them."""
    times = {e["item_id"]: e["times"][-1] + np.array([int(h * HOUR) for h in hours]) for e in entries()}
    return times, {item: np.linspace(-1, 1, len(hours))[None] for item in times}


def test_without_spread_of_the_factors_it_is_the_issm(calm, issm):
    """In forecasts, also from beliefs that were saved and moved on, in interpolation and in components."""
    past, (times, covariates) = priced()[:2], asked(0.5, 0.5, 9, 40)
    inside = {e["item_id"]: e["times"][[3, 8, 20]] + HOUR for e in past[1:2]}, {"s1": np.ones((1, 3))}
    for answer, (at, given) in (("forecast", (times, covariates)), ("interpolate", inside)):
        pairs = zip(*(getattr(one.on_clock, answer)(past, at, covariates=given) for one in (calm, issm)), strict=True)
        for found, expected in pairs:
            np.testing.assert_allclose(found.quantiles(LEVELS), expected.quantiles(LEVELS), rtol=1e-8)
            np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
    frames = [one.on_clock.components_frame(past[1:2]) for one in (calm, issm)]
    pd.testing.assert_frame_equal(*frames, rtol=1e-7, atol=1e-9)


def test_beliefs_move_on_as_if_all_had_been_filtered_at_once(calm, tmp_path):
    """Through a file, one observation at a time, within a cell and over many; without spread, as switches are drawn."""
    past, (times, covariates) = priced(), asked(1, 30)
    names = ("times", "target", "feat_dynamic_real")
    begun = calm.filter([{**e, **{name: e[name][..., :20] for name in names}} for e in past])
    save_beliefs(tmp_path / "beliefs.pt", begun.values(), calm.prediction_net)
    moved = load_beliefs(tmp_path / "beliefs.pt", calm.prediction_net)
    for k in range(20, 32):
        moved = calm.update(moved, [{**e, **{name: e[name][..., k : k + 1] for name in names}} for e in past])
    moved = calm.update(moved, [{**past[2], **{name: past[2][name][..., 32:] for name in names}}])
    moved = calm.update(moved, [{**past[1], **{name: past[1][name][..., 32:] for name in names}}])
    found = calm.on_clock.forecast_from(moved, times, covariates=covariates)
    for one, other in zip(found, calm.on_clock.forecast(past, times, covariates=covariates), strict=True):
        np.testing.assert_allclose(one.quantiles(LEVELS), other.quantiles(LEVELS), rtol=1e-8)


def test_an_observation_in_the_same_cell_keeps_the_switches(predictor):
    """They are those of some of the particles; behind the end of the cell they have moved."""
    entry = priced()[0]
    before = predictor.filter([entry])
    last, cell = int(entry["times"][-1]), predictor.on_clock.clock.cell
    end = -(-last // cell) * cell
    known = before["s0"].belief.particles.switch[:, 0]
    for time, moves in ((end, False), (end + 1, True)):
        one = {"item_id": "s0", "times": np.array([time]), "target": [10.0], "feat_dynamic_real": np.zeros((1, 1))}
        after = predictor.update(before, [one])["s0"].belief.particles.switch[:, 0]
        nearest = (after[:, None] - known).abs().amax(-1).amin(1)
        assert bool((nearest < 1e-4).all()) != moves
        assert bool((nearest > 1e-3).any()) == moves


def test_paths_have_the_distribution_of_the_mixture(predictor):
    """Means and squares of 2000 paths, and quantiles of a mixture of 100: both within their standard errors."""
    past, (times, covariates) = priced(), asked(2, 30)
    count = 2000
    found = next(predictor.on_clock.forecast(past, times, num_samples=count, covariates=covariates))
    paths = found.paths[..., 0]
    error = paths.std(0) / np.sqrt(count)
    spread = found.batch.marginals.mean[0, :, :, 0].std(0).numpy() / 10  # of the means of the mixture's components
    assert (np.abs(paths.mean(0) - found.mean[:, 0]) < 4 * np.hypot(error, spread)).all()
    parts = (found.batch.marginals.deviation[0, :, :, 0] ** 2).numpy()
    squares = (paths - paths.mean(0)) ** 2
    error = np.hypot(squares.std(0) / np.sqrt(count), parts.std(0) / 10)
    mixed = parts.mean(0) + found.batch.marginals.mean[0, :, :, 0].var(0).numpy()
    assert (np.abs(squares.mean(0) - mixed) < 4 * error).all()
    again = next(predictor.on_clock.forecast(past, times, num_samples=count, covariates=covariates))
    np.testing.assert_array_equal(found.paths, again.paths)


def test_a_saved_predictor_answers_alike(predictor, tmp_path):
    past, (times, covariates) = priced()[:1], asked(2, 30)
    save_predictor(predictor, tmp_path / "saved")
    again = load_predictor(tmp_path / "saved")
    assert again.on_clock.clock == predictor.on_clock.clock
    state = torch.random.get_rng_state()
    answers = (p.on_clock.forecast(past, times, covariates=covariates) for p in (again, predictor))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_array_equal(one.quantiles(LEVELS), other.quantiles(LEVELS))
    assert torch.equal(torch.random.get_rng_state(), state)  # numbers of others are left alone


def test_regimes_of_a_dense_system_of_two_targets_are_filtered_saved_and_forecast(tmp_path):
    """Beliefs that were saved and moved on keep one-hot regimes; a seed repeats forecasts, paths and mixtures agree."""
    trainer, rng = {**QUIET, "max_epochs": 2}, np.random.default_rng(3)
    past = [
        {**entry, "feat_dynamic_real": rng.standard_normal((1, len(entry["times"])))} for entry in entries(2, targets=2)
    ]
    found = StateSpaceEstimator("sgls", horizon="1D", state_dim=3, trainer_kwargs=trainer, **FEW).train(past)
    times, covariates = asked(2, 30)
    save_predictor(found, tmp_path / "saved")
    again = load_predictor(tmp_path / "saved")
    forecasts = [list(p.on_clock.forecast(past[1:], times, 300, covariates=covariates)) for p in (found, again)]
    for one, other in zip(*forecasts, strict=True):
        np.testing.assert_array_equal(one.quantiles(LEVELS), other.quantiles(LEVELS))
        error = one.paths.std(0) / np.sqrt(len(one.paths))
        spread = one.batch.marginals.mean[one.row].std(0).numpy() / 10
        assert (np.abs(one.paths.mean(0) - one.mean) < 4.5 * np.hypot(error, spread)).all()
    save_beliefs(tmp_path / "beliefs.pt", found.filter(past).values(), found.prediction_net)
    beliefs = load_beliefs(tmp_path / "beliefs.pt", again.prediction_net)
    new = {"item_id": "s1", "times": times["s1"][:1], "target": [[1.0], [np.nan]], "feat_dynamic_real": [[0.5]]}
    beliefs = again.update(beliefs, [new])
    switch = beliefs["s1"].belief.particles.switch
    assert bool(((switch == 0) | (switch == 1)).all() & (switch.sum(-1) == 1).all())
    later, price = {"s1": times["s1"][1:]}, {"s1": np.ones((1, 1))}
    (ahead,) = again.on_clock.forecast_from({"s1": beliefs["s1"]}, later, covariates=price)
    assert ahead.quantiles(LEVELS).shape == (3, 1, 2)
    (inside,) = again.on_clock.interpolate(past[:1], {"s0": past[0]["times"][[4, 9]] + 1}, {"s0": np.zeros((1, 2))})
    assert (np.diff(inside.quantiles(LEVELS), axis=0) > 0).all()
    with pytest.raises(ValueError, match="a dense state has no components with names"):
        again.on_clock.components_frame(past)


def test_regimes_come_as_a_table(predictor):
    """Of every observation; moments of one cell have the same, and weights sum to one."""
    past = priced()[:2]
    report = timed_regimes(predictor.on_clock, past, num_samples=4)
    table, changes = report.regimes, report.changes
    assert table["item_id"].tolist() == ["s0"] * len(past[0]["times"]) + ["s1"] * len(past[1]["times"])
    weights = table.filter(regex=r"^p_\d+$").to_numpy()
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-9)
    assert (table["most_likely"].to_numpy() == weights.argmax(1) + 1).all()
    scales = predictor.prediction_net.inference.regime_scales().detach().numpy()
    assert table["scale"].between(scales.min(), scales.max()).all()
    cell = (table["timestamp"].astype("int64") - 1) // predictor.on_clock.clock.cell
    for _, own in table.groupby(["item_id", cell]):
        assert np.ptp(own["scale"]) < 1e-4
    assert (changes["before"] != changes["after"]).all()


def test_a_change_is_expected_as_often_as_paths_make_it(predictor, monkeypatch):
    """Oracle: counts over paths that each change once, and the shortest interval with 3 of 4 of their times."""
    times = [10, 11, 11, 12, 12, 12, 12, 13, 20, 25]

    def paths(net, batch, most):
        after = torch.arange(len(batch["past_target"][0]))[:, None] >= torch.tensor(times)
        count = len(net.inference.regime_scales())
        return torch.nn.functional.one_hot(after.long(), count)[:, :, None].to(torch.float64)

    monkeypatch.setattr("tsforecast.analysis.timed_regimes.smoothed_regimes", paths)
    entry = priced()[0]
    stamps = predictor.on_clock.clock.ticked(entry)[0]["times"].astype("datetime64[ns]")
    report = timed_regimes(predictor.on_clock, [entry], level=0.75)
    table, changes = report.regimes, report.changes
    assert table["p_2"].is_monotonic_increasing
    (change,) = changes.to_dict("records")
    assert (change["before"], change["after"]) == (1, 2)
    assert [change[name] for name in ("timestamp", "lower", "upper")] == [*stamps[[12, 10, 13]]]
    assert change["expected"] == pytest.approx(1)  # of ten paths ten
    times[:2] = [999, 999]  # two never change
    assert timed_regimes(predictor.on_clock, [entry]).changes["expected"].tolist() == pytest.approx([0.8])


def test_options_that_make_no_switch_are_refused():
    with pytest.raises(ValueError, match="expected persistence to be above 0 and below 1, got 1"):
        StateSpaceEstimator("rsgls-issm", horizon="1D", persistence=1)
    with pytest.raises(ValueError, match="cell"):
        StateSpaceEstimator("rsgls-issm", horizon="1D", cell=0)
    with pytest.raises(ValueError, match="has no hyperparameter 'recurrence'"):
        StateSpaceEstimator("rsgls-issm", horizon="1D", recurrence="exact")
    with pytest.raises(ValueError, match="expected switch to be one of categorical, got 'gaussian'"):
        StateSpaceEstimator("sgls", horizon="1D", switch="gaussian")
    with pytest.raises(ValueError, match="the CRPS of paths teaches nothing about categorical switches"):
        StateSpaceEstimator("sgls", horizon="1D", objective="crps")
