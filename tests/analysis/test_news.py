"""Why forecasts of trained models changed, and what they are made of."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tsforecast.analysis.explain import explain
from tsforecast.analysis.news import news
from tsforecast.plots.news import biggest, plot_news, plot_parts
from tsforecast.plots.pages import explain_page

pytestmark = [
    pytest.mark.usefixtures("unchecked_module"),
    pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers"),
]
LENGTH = 24


@pytest.fixture(scope="module")
def trained():
    found = {}

    def make(name, **options):
        key = name, *options.items()
        if key not in found:
            found[key] = make_estimator(name, epochs=1, **options).train(make_entries(2, LENGTH))
        return found[key]

    return make


def two_sets():
    """Series before and after, which end two steps later; one has a gap filled, a revision and a withdrawal."""
    entries = make_entries(2, LENGTH, missing=False)
    before = [{**e, "target": e["target"][:-2].copy()} for e in entries]
    after = [{**e, "target": e["target"].copy()} for e in entries]
    before[1]["target"][4] = np.nan
    after[1]["target"][10] += 3
    after[1]["target"][8] = np.nan
    return before, after


def assert_impacts_lead_from_forecast_to_forecast(predictor, before, after, found):
    """Shares add up, from the means that `predict` has of the data before to those of the data after."""
    steps = found.groupby(["item_id", "timestamp"])
    start, end = steps["before"].first(), steps["after"].first()
    np.testing.assert_allclose(start + steps["impact"].sum(), end, rtol=0, atol=1e-10)
    for mean, data, part in ((start, before, slice(2, None)), (end, after, slice(None, HORIZON - 2))):
        theirs = [forecast.mean[part] for forecast in predictor.predict(data, num_samples=0)]
        np.testing.assert_allclose(mean, np.concatenate(theirs), rtol=1e-4, atol=1e-5)  # float32


@pytest.mark.parametrize("name", ["issm", "gls"])
def test_impacts_lead_from_one_forecast_to_the_other(trained, name):
    predictor = trained(name)
    before, after = two_sets()
    found = news(predictor, before, after)
    assert found.groupby("item_id")["timestamp"].nunique().tolist() == [HORIZON - 2] * 2
    assert_impacts_lead_from_forecast_to_forecast(predictor, before, after, found)
    causes = found[(found["item_id"] == "s1") & (found["kind"] != "rescaled")].drop_duplicates(["kind", "source"])
    days = [(kind, (stamp - pd.Timestamp("2024-01-02")).days) for kind, stamp in zip(causes.kind, causes.source)]  # noqa: B905
    steps = len(after[1]["target"])
    assert days == [("revised", 10), ("withdrawn", 8), ("new", 4), ("new", steps - 2), ("new", steps - 1)]


def test_an_impact_is_its_weight_times_what_is_unexpected_in_units_of_each_target():
    rng, length = np.random.default_rng(2), 40
    before = {"item_id": "a", "start": pd.Period("2024-01-02", "D")}
    before["target"] = rng.normal(size=(2, length)).cumsum(1).astype(np.float32) * [[1.0], [100.0]]
    after = {**before, "target": before["target"] + np.where(np.arange(length) == length - 2, [[1.0], [50.0]], 0.0)}
    found = news(make_estimator("gls", epochs=1, state_dim=3).train([before]), [before], [after])
    seen = found[found["kind"] == "revised"]
    assert seen.groupby(["target", "source_target"]).ngroups == 4
    np.testing.assert_allclose(seen["impact"], seen["weight"] * (seen["value"] - seen["expected"]), rtol=1e-9)
    assert (seen["impact"].abs() > 1e-6).all()


MIXTURES = {
    "bank": {"clip": "nonnegative", "structures": "level,trend+day_of_week"},
    "pool": {
        "members": "gls state_dim=3 transformation=none; issm components=level transformation=none",
        "weights": "0.3,0.7",
    },
}


@pytest.mark.parametrize("name", list(MIXTURES))
def test_shares_in_a_mixture_lead_from_one_forecast_to_the_other(trained, name):
    """In the units of the data, of forecasts as `predict` makes them; models of a bank are transformed and clipped."""
    predictor = trained(name, **MIXTURES[name])
    before, after = two_sets()
    found = news(predictor, before, after)
    assert_impacts_lead_from_forecast_to_forecast(predictor, before, after, found)
    kinds = found.loc[found["item_id"] == "s1"].drop_duplicates(["kind", "source"])["kind"].tolist()
    weights = ["weights"] if name == "bank" else []
    assert kinds == ["new"] * 3 + ["revised", "withdrawn", *weights, "variances", "rescaled"]
    revised = found[found["kind"] == "revised"]
    np.testing.assert_allclose(revised["value"] - revised["expected"], 3, rtol=1e-5)
    if name == "bank":
        assert found.loc[found["kind"] == "weights", "impact"].abs().max() > 1e-3


def test_shares_in_a_pool_are_those_in_its_members_by_their_weights(trained):
    """Oracle: the news of each member alone, with the weights that it has in the pool."""
    pool, before, after = trained("pool", **MIXTURES["pool"]), *two_sets()
    alone = []
    own = {"gls": {"state_dim": 3}, "issm": {"components": "level"}}
    for (name, options), member in zip(own.items(), pool.prediction_net.dynamics.members, strict=True):
        one = trained(name, transformation="none", **options)
        one.prediction_net.dynamics.load_state_dict(member.state_dict())
        alone.append(news(one, before, after).set_index(KEYS)["impact"])
    found = news(pool, before, after).set_index(KEYS)["impact"]
    assert found.index.difference(alone[0].index).get_level_values("kind").unique().tolist() == ["variances"]
    assert found.xs("variances", level="kind").abs().max() < 1e-12  # means of Gaussians have no part in them
    found = found.drop("variances", level="kind")
    one, two = pool.prediction_net.dynamics.log_weight.double().softmax(0).tolist()  # 0.3 and 0.7 in float32
    np.testing.assert_allclose(found, one * alone[0][found.index] + two * alone[1][found.index], rtol=0, atol=1e-9)


KEYS = ["item_id", "timestamp", "kind", "source"]


def test_a_bank_of_one_model_that_is_linear_has_no_share_of_weights(trained):
    found = news(trained("bank", structures="level", transformations="none"), *two_sets())
    assert "weights" not in set(found["kind"])
    rest = found[found["kind"] == "variances"]
    assert len(rest) == 2 * (HORIZON - 2)
    assert rest["impact"].abs().max() < 1e-12


def test_series_of_one_of_both_data_are_named(trained, caplog):
    before, after = two_sets()
    found = news(trained("issm"), before, after[:1])
    assert found["item_id"].unique().tolist() == ["s0"]
    assert "1 series are in one of both data alone, and left out: 's1'" in caplog.text


def test_in_units_of_their_own_observations_explain_all(trained):
    predictor = trained("issm", scaling="none")
    found = news(predictor, *two_sets())
    assert found[found["kind"] == "rescaled"]["impact"].abs().max() < 1e-10
    assert found[found["kind"] == "new"]["impact"].abs().max() > 1e-3


def test_covariates_that_change_are_a_cause():
    """The issm's effect is linear, so that its share is known."""
    entries = [
        {**e, "feat_dynamic_real": np.random.default_rng(1).normal(size=(1, len(e["target"]) + HORIZON))}
        for e in make_entries(2, LENGTH, missing=False)
    ]
    train = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :-HORIZON]} for e in entries]
    predictor = make_estimator("issm", epochs=1, scaling="none", effects="given").train(train)
    later = [{**e, "feat_dynamic_real": e["feat_dynamic_real"].copy()} for e in entries]
    for entry in later:
        entry["feat_dynamic_real"][0, -1] += 2.0
    found = news(predictor, entries, later)
    assert set(found["kind"]) == {"covariates", "rescaled"}
    ((_, unit),) = predictor.input_transform.dynamic_units
    parameters = predictor.prediction_net.dynamics.parameters_of_series
    effect = parameters(torch.tensor([1, 2]), torch.zeros(2, 0, dtype=torch.long))[:, -1].tolist()
    last = found[
        (found["kind"] == "covariates") & (found["timestamp"] == found.groupby("item_id")["timestamp"].transform("max"))
    ]
    np.testing.assert_allclose(last["impact"], 2.0 / unit * np.array(effect), rtol=1e-3)
    assert np.abs(effect).min() > 1e-4


def test_what_is_wrong_is_said(trained, monkeypatch):
    before, after = two_sets()
    predictor = trained("issm")
    with pytest.raises(ValueError, match=r"'s0': expected the data after to end at .* files in the right order"):
        news(predictor, after, before)
    early = [{**e, "target": e["target"][: -HORIZON - 1]} for e in after]
    with pytest.raises(ValueError, match="have none in common; give a longer prediction_length"):
        news(predictor, early, after)
    with pytest.raises(ValueError, match="in the data before and after, got 's0'"):
        news(predictor, before[:1], after[1:])
    with pytest.raises(ValueError, match=r"linear in the observations .*a bank or pool .*, got RSGLSISSMForecaster"):
        news(trained("rsgls-issm"), before, after)
    with pytest.raises(ValueError, match="no components with names"):
        explain(trained("gls"), after)
    with pytest.raises(ValueError, match="recent to be at least 1, got 0"):
        explain(predictor, after, recent=0)
    with pytest.raises(ValueError, match="columns are those of a DataFrame, but the data are a list"):
        explain(predictor, after, {"target": "sales"})
    monkeypatch.setattr(predictor.prediction_net, "data", replace(predictor.prediction_net.data, num_targets=2))
    with pytest.raises(ValueError, match="parts are those of one target, got 2"):
        explain(predictor, after)


@pytest.mark.parametrize("name", ["issm", "rsgls-issm", *MIXTURES])
def test_parts_add_up_to_the_forecast(trained, name):
    predictor = trained(name, **MIXTURES.get(name, {}))
    entries = make_entries(2, LENGTH, missing=False)
    found = explain(predictor, entries, recent=4)
    parts = found[found["part"] != "fit"].groupby(["item_id", "timestamp"])[["mean", "recent"]].sum()
    fit = found[found["part"] == "fit"].set_index(["item_id", "timestamp"])[["mean", "recent"]]
    np.testing.assert_allclose(parts, fit, rtol=1e-5, atol=1e-5)
    if name == "rsgls-issm":
        return
    now = np.concatenate([x.mean for x in predictor.predict(entries, num_samples=0)])
    np.testing.assert_allclose(fit["mean"], now, rtol=1e-4, atol=1e-5)
    hidden = [{**e, "target": np.append(e["target"][:-4], np.full(4, np.nan))} for e in entries]
    was = np.concatenate([x.mean for x in predictor.predict(hidden, num_samples=0)])
    np.testing.assert_allclose(fit["mean"] - fit["recent"], was, rtol=1e-4, atol=1e-5)
    assert ("rest" in set(found["part"])) == (name == "pool")  # of a gls, which has no components


@pytest.mark.parametrize("name", ["issm", "bank"])
def test_parts_of_several_targets_add_up_to_the_forecast_of_each(name):
    """With a covariate of the model; of the second series one target has no value before the last steps."""
    rng, entries = np.random.default_rng(2), []
    for item in "ab":
        target = 5 + rng.normal(size=(2, LENGTH)).cumsum(1) * [[1.0], [100.0]]
        wave = rng.normal(size=(1, LENGTH + HORIZON))
        entries.append({"item_id": item, "start": pd.Period("2024-01-02"), "target": target, "feat_dynamic_real": wave})
    entries[1]["target"][0, :-4] = np.nan
    train = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, :LENGTH]} for e in entries]
    predictor = make_estimator(name, epochs=1, effects="given").train(train)
    predictor.columns = {"target": ["sales", "visits"]}
    found = explain(predictor, entries, recent=4)
    keys = ["item_id", "target", "timestamp"]
    assert found["target"].unique().tolist() == ["sales", "visits"]
    assert set(found["part"]) >= {"level", "day_of_week", "covariates", "fit"}
    parts = found[found["part"] != "fit"].groupby(keys)[["mean", "recent"]].sum(min_count=1)
    fit = found[found["part"] == "fit"].set_index(keys)[["mean", "recent"]]
    np.testing.assert_allclose(parts, fit, rtol=1e-5, atol=1e-4)  # float32
    now = np.concatenate([x.mean.T.ravel() for x in predictor.predict(entries, num_samples=0)])
    np.testing.assert_allclose(fit["mean"], now, rtol=1e-4, atol=1e-4)
    assert fit["recent"].isna().groupby(["item_id", "target"]).all().tolist() == [False, False, True, False]
    assert len(plot_parts(found).axes) == 4 * found["part"].nunique()
    (section,) = explain_page(found).sections
    assert [chart.name for chart in section.charts] == ["a, sales", "a, visits", "b, sales", "b, visits"]


def test_parts_where_a_target_ends_early_are_said_to_be_those_of_its_own_model(caplog):
    (entry,) = make_entries(1, LENGTH, missing=False)
    several = {**entry, "target": np.stack([entry["target"], entry["target"][::-1]])}
    several["target"][1, -2:] = np.nan
    predictor = make_estimator("issm", epochs=1).train([several])
    caplog.set_level("INFO")
    explain(predictor, [several])
    assert "'s0': targets end at different steps; parts leave out what one says of another" in caplog.text


def test_deviations_of_parts_in_a_mixture_follow_the_law_of_total_variance(trained):
    """Oracle: the parts of each member alone; E exp(z) - 1 rises by E exp(z) with the mean of z."""
    several = {"log1p": "level", "none": "trend+day_of_week"}
    members = "; ".join(f"issm components={one} transformation={name}" for name, one in several.items())
    pool, moments = trained("pool", members=members, weights="0.3,0.7"), []
    entries = make_entries(2, LENGTH, missing=False)
    for (name, components), member in zip(several.items(), pool.prediction_net.dynamics.members, strict=True):
        alone = trained("issm", components=components, transformation=name)
        alone.prediction_net.dynamics.load_state_dict(member.state_dict())
        parts = explain(alone, entries).set_index(["item_id", "timestamp", "part"])[["mean", "std"]]
        if name == "log1p":
            means = np.concatenate([np.tile(x.mean, 2) for x in alone.predict(entries, num_samples=0)])
            parts = parts.assign(mean=means, std=parts["std"] * (means + 1))  # level, then their sum
        moments.append(parts)
    found = explain(pool, entries).set_index(["item_id", "timestamp", "part"])
    weights = pool.prediction_net.dynamics.log_weight.double().softmax(0).tolist()
    one, two = (x.reindex(found.index).fillna(0.0) for x in moments)  # a part that a member lacks is 0
    mean = weights[0] * one["mean"] + weights[1] * two["mean"]
    square = weights[0] * (one["std"] ** 2 + one["mean"] ** 2) + weights[1] * (two["std"] ** 2 + two["mean"] ** 2)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["std"], (square - mean**2) ** 0.5, rtol=1e-3)


def test_parts_are_dated_as_forecasts_and_recent_steps_are_a_season(trained):
    predictor, entries = trained("issm"), make_entries(2, LENGTH, missing=False)
    found = explain(predictor, entries)
    pd.testing.assert_frame_equal(found, explain(predictor, entries, recent=7))
    begin = [forecast.start_date.to_timestamp() for forecast in predictor.predict(entries, num_samples=0)]
    assert found.groupby("item_id")["timestamp"].min().tolist() == begin
    assert found.groupby("item_id")["timestamp"].nunique().tolist() == [HORIZON] * 2


def test_pictures_show_causes_and_parts(trained):
    found = news(trained("issm"), *two_sets())
    causes = biggest(found[found["item_id"] == "s1"], 2)
    assert causes["cause"].tolist()[-1] == "others"
    own = found[found["item_id"] == "s1"]
    assert causes["impact"].sum() == pytest.approx((own["impact"].sum()) / own["timestamp"].nunique())
    assert len(plot_news(found).axes) == 4
    axis = plot_news(own.head(2).assign(impact=[-0.00076, 0.00107])).axes[1]
    low, high = axis.get_xlim()
    assert 2 <= sum(low <= tick <= high for tick in axis.get_xticks()) <= 5  # small impacts have long labels
    parts = explain(trained("issm"), make_entries(2, LENGTH, missing=False))
    assert len(plot_parts(parts).axes) == 2 * parts["part"].nunique()
