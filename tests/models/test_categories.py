"""Categorical switches that begin at autoregressions with regimes."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasting.test_regime_choice import CALM_WILD, simulated
from tests.models.cases import entries_of, make_batch, make_model
from tsforecast.analysis.explain import explain
from tsforecast.analysis.regime_names import describe
from tsforecast.analysis.regimes import regime_report
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.regimes import chain
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.forecasting.serialization import RECORD, WEIGHTS
from tsforecast.models.parts.categories import adopt

pytestmark = pytest.mark.usefixtures("unchecked_module")  # whole trainings

TRAINER = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}
CATEGORICAL: Any = {"switch": "categorical"}
SHORT: Any = {"context_length": 10, "batch_size": 4}  # what a step takes counts where it does not matter what is learnt
KIND: Any = {"dtype": torch.float64}


def test_categories_are_the_autoregressions_that_they_adopt():
    """Two lags of two regimes: transitions of the chain, means and variances of a step, and what is emitted."""
    model = make_model("sgls-categorical", switch_dim=2, state_dim=3)
    coefficient = torch.tensor([[0.3, 0.5, 0.2], [-1.0, 0.9, -0.4]], **KIND)
    cov, stay = torch.tensor([0.04, 1.0], **KIND)[:, None, None], torch.tensor([[0.9, 0.1], [0.2, 0.8]], **KIND)
    with torch.no_grad():
        adopt(model.dynamics, SwitchingRegression(coefficient.unsqueeze(-1), cov, stay.log()))
        batch = make_batch(model, entries_of("sgls-categorical"))
        inference = model.inference
        units, series = inference.scale_of(batch), model.filter(batch)[0].series
        system, _ = model.dynamics.switching(inference.slice_of(batch, "both"), series, *units, proposing=False)
        eye = torch.eye(2, **KIND)
        state = torch.tensor([1.5, -0.5, 0.25], **KIND)
        for k in range(2):
            switch = eye[k].expand(len(series.index), 2)
            torch.testing.assert_close(system.transition(switch, 3).exp(), stay[k].expand_as(switch))
            regime = system.regime(switch, 3)
            mean = regime.transition.matrix @ state + regime.transition.offset
            expected = torch.stack([coefficient[k] @ torch.tensor([1.0, 1.5, -0.5], **KIND), state[0]])
            torch.testing.assert_close(mean[..., :2], expected.expand_as(mean[..., :2]))
            torch.testing.assert_close(regime.transition.variance[..., 0], cov[k, 0].expand(len(mean)))
            assert float(regime.transition.variance[..., 1:].max()) < 1e-3
            torch.testing.assert_close(
                (regime.emission.matrix @ state + regime.emission.offset), state[:1].expand(len(mean), 1)
            )


def accuracy_of(table, truth):
    """The share of steps whose regime is right, under the better of both assignments."""
    right = (table["most_likely"].to_numpy() - 1 == truth.ravel()).mean()
    return max(right, 1 - right)


def oracle_of(entries, truth, rows, stay):
    """The accuracy of the smoother that knows the parameters."""
    values = np.stack([entry["target"] for entry in entries], 1)
    before, rows = np.concatenate([np.zeros_like(values[:1]), values[:-1]]), np.array(rows)
    mean = rows[:, 0] + rows[:, 1] * before[..., None]
    density = torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(rows[:, 3]))
    transition = torch.tensor([[stay, 1 - stay], [1 - stay, stay]], **KIND).log()[None, None]
    density = density.log_prob(torch.as_tensor(values)[..., None]).repeat_interleave(2, -1)
    start = torch.full((values.shape[1], 2), 0.5, **KIND).log()
    found = chain.smooth(transition, density, start).probabilities
    return (truth == found.argmax(-1).numpy().T).mean()


@pytest.fixture(scope="module")
def calm_and_wild():
    """Series of calm and wild times, their regimes, and an `sgls` by default, after a short training."""
    entries, truth = simulated(CALM_WILD, steps=100)
    estimator = StateSpaceEstimator("sgls", "D", 5, seed=0, num_batches_per_epoch=5, trainer_kwargs=TRAINER)
    return entries, truth, estimator.train(entries)


def test_sgls_finds_calm_and_wild_times_without_an_option(calm_and_wild):
    """It loses no more than a tenth of what the smoother that knows the parameters gains over chance."""
    entries, truth, predictor = calm_and_wild
    table = regime_report(predictor, entries).regimes
    chance, oracle = max(truth.mean(), 1 - truth.mean()), oracle_of(entries, truth, CALM_WILD, 0.97)
    assert oracle > 0.95
    assert accuracy_of(table, truth) > oracle - 0.1 * (oracle - chance)
    names: Any = describe(table, entries)["name"]
    assert names[0].startswith("calm")
    assert names[1].startswith("wild")


def test_arsgls_begins_at_the_same_regimes(calm_and_wild):
    """Without an option, as `sgls` does; its mixing networks would need hundreds of iterations to find them."""
    entries, truth, sgls = calm_and_wild
    estimator = StateSpaceEstimator("arsgls", "D", 5, seed=0, num_batches_per_epoch=1, trainer_kwargs=TRAINER)
    predictor = estimator.train(entries)
    table, usual = (regime_report(one, entries).regimes for one in (predictor, sgls))
    assert accuracy_of(table, truth) > 0.95 * accuracy_of(usual, truth)
    assert (predictor.network.dynamics.switch_dim, predictor.network.dynamics.decoder) == (2, None)


def test_rsgls_issm_finds_them_beside_its_components(calm_and_wild):
    """As `sgls` does, where its categories are asked for; a level and a season are still parts of its fit."""
    entries, truth, _ = calm_and_wild
    options: Any = {**CATEGORICAL, "switch_dim": 2, "state_dim": 1, "scaling": "training", "trainer_kwargs": TRAINER}
    predictor = StateSpaceEstimator("rsgls-issm", "D", 5, seed=0, num_batches_per_epoch=1, **options).train(entries)
    chance, oracle = max(truth.mean(), 1 - truth.mean()), oracle_of(entries, truth, CALM_WILD, 0.97)
    assert accuracy_of(regime_report(predictor, entries).regimes, truth) > oracle - 0.1 * (oracle - chance)
    short = [entries[0] | {"target": entries[0]["target"][:30]}]
    assert {"level", "day_of_week", "rest"} <= {*explain(predictor, short)["part"]}


def test_float32_holds_the_first_update_of_a_wide_prior():
    """Series far from each other, each with small changes: the observation has a share of the prior's scale."""
    model = make_model("rsgls-issm-categorical", scaling="none")
    entries = entries_of("rsgls-issm-categorical")
    for k, entry in enumerate(entries):
        entry["target"] = 1e4 * k + 0.01 * entry["target"]
    model.begin(model.inference, make_batch(model, entries))
    observed = model.dynamics.issm.parameters_of_series.population[len(model.dynamics.issm.structure.noise_names) - 1]
    prior = -model.dynamics.prior_log_inverse_scale[0]
    torch.testing.assert_close((observed - prior).exp(), torch.tensor(1e-3, **KIND))


def test_rsgls_issm_of_hours_has_no_categories_unless_asked_for():
    """Its seasons have so many states that they would take too long."""
    entries, _ = simulated(CALM_WILD, steps=100, series=2)
    hours = [{**entry, "start": pd.Period("2024-01-01", "h")} for entry in entries]
    found = [StateSpaceEstimator("rsgls-issm", "h", 5, seed=0, **one).settled(hours) for one in ({}, CATEGORICAL)]
    assert [one.hyperparameters.get("switch", "gaussian") for one in found] == ["gaussian", "categorical"]


def test_a_training_goes_on_with_the_regimes_of_its_predictor(calm_and_wild):
    _, _, predictor = calm_and_wild
    other, _ = simulated(((0.0, 0.9, 0.0, 1.0),), steps=80, stay=1.0)
    still: Any = {"learning_rate": 0, "network_learning_rate": 0, "matrix_learning_rate": 0, "num_batches_per_epoch": 1}
    estimator = StateSpaceEstimator("sgls", "D", 5, seed=1, trainer_kwargs=TRAINER, **still)
    again = estimator.train_model(other, from_predictor=predictor).predictor
    for name, value in predictor.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], value, rtol=0, atol=0)


def test_categories_that_are_asked_for_are_two_at_least():
    """Where the data show one regime alone; how many there are may be given."""
    entries, _ = simulated(((0.0, 0.6, 0.0, 1.0),), steps=80, series=2, stay=1.0)
    more_options: Any = ({}, {"switch_dim": 3})
    found = [
        StateSpaceEstimator("sgls", "D", 5, seed=0, switch="categorical", **more).settled(entries).hyperparameters
        for more in more_options
    ]
    assert [one["switch_dim"] for one in found] == [2, 3]
    assert {one["objective"] for one in found} == {"likelihood"}


@pytest.mark.parametrize("model", ["sgls", "markov"])
def test_a_training_that_fails_later_leaves_what_em_has_found(model, monkeypatch, caplog):
    """Its first step begins there: where that fails nothing else would do."""
    entries, _ = simulated(CALM_WILD, 90, 2, seed=4)
    own = {"regimes": 2, "order": 1, "seasonal": False, "stages": 1}
    own = CATEGORICAL | {"switch_dim": 2, "preset": "none"} if model == "sgls" else own
    options = {"seed": 0, "num_batches_per_epoch": 3, "trainer_kwargs": TRAINER, **SHORT, **own}
    kept = StateSpaceEstimator(model, "D", 5, learning_rate=1e-12, network_learning_rate=1e-12, **options).train(
        entries
    )
    loss = type(kept.prediction_net).loss
    after = 1

    def failing(self, batch):
        if failing.steps == after:
            raise NotPositiveDefiniteError("as with far parameters")
        failing.steps += 1
        return loss(self, batch)

    failing.steps = 0
    monkeypatch.setattr(type(kept.prediction_net), "loss", failing)
    found = StateSpaceEstimator(model, "D", 5, **options).train(entries)
    assert (
        "the training failed at step 1 (as with far parameters): the model is the one that EM has found" in caplog.text
    )
    for name, weights in found.prediction_net.state_dict().items():
        torch.testing.assert_close(weights, kept.prediction_net.state_dict()[name], rtol=1e-6, atol=1e-6)
    after = failing.steps = 0
    with pytest.raises(NotPositiveDefiniteError, match=r"as with far parameters; .* starts=0 leaves it out"):
        StateSpaceEstimator(model, "D", 5, **options).train(entries)
    with pytest.raises(NotPositiveDefiniteError, match=r"as with far parameters$"):
        StateSpaceEstimator(model, "D", 5, **options, starts=0).train(entries)


def test_categories_of_the_version_before_are_refused_by_name(tmp_path):
    """Version 0.3.0 wrote categories without offsets, chances to stay and a beginning, in the format of today."""
    entries, _ = simulated(CALM_WILD, 60, 1, seed=0)
    options = {"seed": 0, "num_batches_per_epoch": 1, "preset": "none", "starts": 0, "trainer_kwargs": TRAINER, **SHORT}
    StateSpaceEstimator("sgls", "D", 5, **CATEGORICAL, **options).train(entries).serialize(tmp_path)
    path = tmp_path / WEIGHTS
    new = ("dynamics.mixture.bases.offset", "dynamics.dynamics.stay", "dynamics.is_begun")
    weights = torch.load(path, weights_only=True)
    assert {*new} < {*weights}
    torch.save({name: values for name, values in weights.items() if name not in new}, path)
    record = json.loads((tmp_path / RECORD).read_text(encoding="utf-8"))
    del record["hyperparameters"]["starts"]
    (tmp_path / RECORD).write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"lack 'dynamics.dynamics.stay'.*another version of tsforecast\): train again"
    ):
        load_predictor(tmp_path)
