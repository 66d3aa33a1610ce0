"""What a forecast does not depend on, and what a prediction refuses."""

import numpy as np
import pytest
import torch

from tests.forecasting.test_beliefs import same_beliefs
from tests.forecasting.test_beliefs import seeded as seeded_call
from tests.forecasting.test_estimator import make_entries, make_estimator, seeded
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    # One unit of all training data would be that of other data, too.
    options = {"scaling": "series"} if request.param == "markov" else {}
    return make_estimator(request.param, epochs=1, **options).train(make_entries())


def later(count=5):
    """Series whose first values are there."""
    return make_entries(count, missing=False)


def with_missing_before(entries, steps):
    """The same series, which begin with so many missing values; the first is left as it is."""
    prefixed = [
        {**e, "start": e["start"] - n, "target": np.concatenate([np.full(n, np.nan, np.float32), e["target"]])}
        for e, n in zip(entries, [0, *[steps + k for k in range(1, len(entries))]], strict=True)
    ]
    return prefixed


def test_missing_values_before_the_first_make_no_difference(trained):
    plain, prefixed = (seeded(trained, data) for data in (later(), with_missing_before(later(), 12)))
    for mine, its in zip(prefixed, plain, strict=True):
        assert mine.start_date == its.start_date
        np.testing.assert_array_equal(mine.samples, its.samples)


def test_a_belief_begins_at_the_first_value(trained, tmp_path):
    plain = seeded_call(trained.filter, later())
    same_beliefs(seeded_call(trained.filter, with_missing_before(later(), 12)), plain)
    nothing = [{**e, "start": e["start"] - 9, "target": np.full(6, np.nan)} for e in later()]
    waiting = trained.filter(nothing)
    save_beliefs(tmp_path / "beliefs.pt", waiting.values(), trained.prediction_net)
    waiting = load_beliefs(tmp_path / "beliefs.pt", trained.prediction_net)
    same_beliefs(seeded_call(trained.update, waiting, later()), plain)
    with pytest.raises(ValueError, match=r"'s0': expected observations from .* on"):
        trained.update(waiting, [{**later(1)[0], "start": nothing[0]["start"]}])


def test_of_several_targets_the_first_value_of_any_is_the_beginning():
    entries = [{**e, "target": np.stack([e["target"], e["target"] + 1])} for e in later(3)]
    for entry in entries:
        entry["target"][1, :6] = np.nan
    predictor = make_estimator("gls", epochs=1).train(entries)
    wide = [{**e, "start": e["start"] - 5, "target": np.pad(e["target"], [(0, 0), (5, 0)])} for e in entries]
    for entry in wide:
        entry["target"][:, :5] = np.nan
    for mine, its in zip(seeded(predictor, wide), seeded(predictor, entries), strict=True):
        np.testing.assert_allclose(mine.samples, its.samples, rtol=1e-5)


def test_a_model_learns_the_same_from_series_with_missing_values_before_the_first():
    trained = [
        make_estimator("rsgls-issm", epochs=1).train(data) for data in (later(), with_missing_before(later(), 30))
    ]
    states = [predictor.network.state_dict() for predictor in trained]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def in_unit(entries, unit):
    return [{**e, "target": e["target"].astype(np.float64) * unit} for e in entries]


@pytest.mark.parametrize("unit", [1e297, 1e-36])
def test_a_forecast_does_not_depend_on_the_unit_of_the_data(trained, unit):
    """Of a prediction, and of beliefs that are kept and moved on."""
    entries = make_entries(2)
    plain, other = (seeded(trained, in_unit(entries, u)) for u in (1.0, unit))
    for mine, its in zip(other, plain, strict=True):
        np.testing.assert_allclose(mine.samples / unit, its.samples, rtol=1e-3, atol=1e-3)

    def live(unit):
        first, news = ([{**e, "target": e["target"][part]} for e in in_unit(entries, unit)] for part in LIVE)
        news = [{**e, "start": e["start"] + 30} for e in news]
        torch.manual_seed(0)
        return list(trained.forecast_from(trained.update(trained.filter(first), news)))

    for mine, its in zip(live(unit), live(1.0), strict=True):
        np.testing.assert_allclose(mine.samples / unit, its.samples, rtol=1e-3, atol=1e-3)


LIVE = (slice(None, 30), slice(30, None))


@pytest.mark.parametrize("model", ["issm", "rsgls-issm"])
def test_weights_do_not_depend_on_the_unit_of_the_data(model):
    states = [
        make_estimator(model, epochs=1).train(in_unit(make_entries(), unit)).network.state_dict()
        for unit in (1.0, 2.0**120, 2.0**-900)
    ]
    for state in states[1:]:
        assert all(torch.equal(value, states[0][name]) for name, value in state.items())


def test_exact_distributions_and_imputations_are_in_the_unit_of_the_data():
    predictor = make_estimator("issm", epochs=1).train(make_entries())
    (plain,), (large,) = (list(predictor.predict(in_unit(make_entries(1), unit))) for unit in (1.0, 1e36))
    np.testing.assert_allclose(large.mean / 1e36, plain.mean, rtol=1e-5)
    np.testing.assert_allclose(large.quantile(0.9) / 1e36, plain.quantile(0.9), rtol=1e-5)
    entries = in_unit(make_entries(1), 1e36)
    seen = np.isfinite(entries[0]["target"])
    (imputed,) = predictor.impute(entries, num_samples=3)
    np.testing.assert_allclose(imputed.samples[:, seen], entries[0]["target"][None, seen].repeat(3, 0), rtol=1e-6)
    assert (np.abs(imputed.samples[:, ~seen] / 1e36) < 100).all()
    assert np.isfinite(imputed.samples).all()


def test_series_are_imputed_together_as_alone():
    """Of any length, in order: within five standard errors of the difference of two means."""
    predictor, count = make_estimator(epochs=1).train(make_entries()), 2000
    entries = [
        {**entry, "target": entry["target"][skip:].copy()}
        for entry, skip in zip(make_entries(3), (0, 9, 4), strict=True)
    ]
    for entry in entries:
        entry["target"][[5, 6, 7, 20]] = np.nan
    together = list(predictor.impute(entries, num_samples=count))
    for entry, found in zip(entries, together, strict=True):
        (alone,) = predictor.impute([entry], num_samples=count)
        seen = np.isfinite(entry["target"])
        assert found.samples.shape == alone.samples.shape == (count, len(entry["target"]))
        np.testing.assert_array_equal(found.samples[:, seen], alone.samples[:, seen])
        parts = [one.samples[:, ~seen].astype(np.float64) for one in (found, alone)]
        error = np.sqrt(sum(part.var(0) for part in parts) / count)
        assert (error > 0).all()
        assert (np.abs(parts[0].mean(0) - parts[1].mean(0)) < 5 * error).all()


@pytest.mark.parametrize("value", [1e30, -1e300])
def test_a_value_too_far_from_the_others_is_missing_and_named(trained, value, caplog):
    """It stops no other series, and is no news to its own."""
    entries = make_entries(2, missing=False)
    step = 34 if trained.history_length else 5  # before the values from which the scale is taken
    spoilt, without = (np.array(entries[0]["target"], np.float64) for _ in range(2))
    spoilt[step], without[step] = value, np.nan
    found = seeded(trained, [{**entries[0], "target": spoilt}, entries[1]])
    (warning,) = [r.getMessage() for r in caplog.records if "count as missing" in r.getMessage()]
    assert f"series 's0': {value:g} at {entries[0]['start'] + step}" in warning
    for mine, its in zip(found, seeded(trained, [{**entries[0], "target": without}, entries[1]]), strict=True):
        np.testing.assert_array_equal(mine.samples, its.samples)


def test_news_too_far_from_what_was_are_missing_and_named(trained, caplog):
    entries = make_entries(1, missing=False)
    known = seeded_call(trained.filter, entries)
    news = {"item_id": "s0", "start": known["s0"].end}
    after = seeded_call(trained.update, known, [{**news, "target": [5.0, 1e300]}])
    assert "series 's0': 1e+300 at" in caplog.text
    same_beliefs(after, seeded_call(trained.update, known, [{**news, "target": [5.0, np.nan]}]))
    with pytest.raises(ValueError, match="series 's0': a value of known_future is more than"):
        list(trained.forecast_from(known, [{"item_id": "s0", "known_future": [1e30]}]))


def test_counts_are_whole_numbers_from_zero_on():
    """Of a model whose likelihood is of counts."""
    counts = [{**e, "target": np.floor(np.abs(e["target"]))} for e in make_entries(3)]
    options = {"likelihood": "negative-binomial", "transformation": "none", "epochs": 1}
    predictor = make_estimator("arsgls", **options).train(counts)
    spoilt = [counts[0], {**counts[1], "target": np.array([3.0, np.nan, 2.5])}]
    message = "series 's1': the target is 2.5 at step 2, expected a count"
    halves = {**counts[1], "target": counts[1]["target"] + 0.5}
    with pytest.raises(ValueError, match=r"series 's1': the target is [\d.]+\.5 at step 1, expected a count"):
        make_estimator("arsgls", **options).train([counts[0], halves])
    with pytest.raises(ValueError, match=r"series 's1': the target is [\d.]+\.5 at step 1, expected a count"):
        make_estimator("markov", likelihood="poisson").train([counts[0], halves])
    for refusing in (predictor.predict, predictor.filter, predictor.impute):
        with pytest.raises(ValueError, match=message):
            list(refusing(spoilt))
    with pytest.raises(ValueError, match="known_future is -1 at step 0, expected a count"):
        list(predictor.predict([{**counts[0], "known_future": [-1.0]}]))
