"""The choice of covariates: noise is dropped, and no rare event is lost."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tsforecast import load_task
from tsforecast.data.effects.curves import curves_of
from tsforecast.data.effects.effects import COVARIATES, Effects
from tsforecast.data.effects.fitting import fit_effects, no_effects
from tsforecast.data.effects.regression import fit
from tsforecast.data.effects.screening import Evidence, useless
from tsforecast.wording import listed

STEPS = 2500


@pytest.fixture(scope="module")
def roofs():
    """Return hourly production of a solar plant, and that of a neighbour, which tells of clouds."""
    first, second = load_task("solar").entries[:2]
    return first["start"], np.asarray(first["target"][:STEPS], float), np.asarray(second["target"][:STEPS], float)


def fitted(roofs, *covariates) -> tuple[Effects, dict[str, Any]]:
    start, target, _ = roofs
    given = {"start": start, "target": target, "item_id": "roof", COVARIATES: np.stack(covariates)}
    effects = fit_effects([given], "h")
    assert effects is not None
    return effects, given


def used(effects):
    return {one.column for one in effects.basis.signals}


def noise_of(kind):
    rng = np.random.default_rng(0)
    white = rng.normal(size=(10, STEPS))
    return {"white": white, "slow": pd.DataFrame(white.T).ewm(alpha=0.02).mean().to_numpy().T}[kind]


@pytest.mark.parametrize("kind", ["white", "slow"])
def test_ten_columns_of_noise_cost_nothing(roofs, kind):
    """What is taken from the target of real data, and so each forecast, is the same with noise and without."""
    alone, given = fitted(roofs, roofs[2])
    noisy, more = fitted(roofs, roofs[2], *noise_of(kind))
    assert used(noisy) == {0}
    names = ["neighbour", *(f"noise {number}" for number in range(10))]
    assert f"dropped, as they helped no forecast of later steps: {listed(names[1:])}" in noisy.told(names)
    assert "dropped" not in alone.told(names[:1])
    np.testing.assert_allclose(noisy.adjusted(more)["effect"], alone.adjusted(given)["effect"], atol=1e-12)


def test_a_twin_and_an_outlier_change_little(roofs):
    alone, given = fitted(roofs, roofs[2])
    twins, both = fitted(roofs, roofs[2], roofs[2])
    effect, usual = twins.adjusted(both)["effect"], alone.adjusted(given)["effect"]
    assert np.std(effect - usual) < 0.2 * np.std(usual)
    wild = roofs[2].copy()
    wild[700] = 1e7
    effect = fitted(roofs, wild)[0].adjusted(given)["effect"]
    assert np.std(effect - usual) < 0.2 * np.std(usual)


def test_noise_alone_has_no_effect(roofs):
    effects, given = fitted(roofs, *noise_of("white"))
    assert not used(effects)
    less = effects.adjusted(given)
    np.testing.assert_array_equal(less["effect"], 0)
    assert curves_of(effects, [str(k) for k in range(10)]).empty
    np.testing.assert_allclose(less["target"], roofs[1])
    assert Effects.of_record(effects.record).adjusted(given)["effect"].shape == (STEPS,)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_rare_events_stay(count):
    rng = np.random.default_rng(1)
    event = np.zeros(400)
    event[np.linspace(60, 350, count).astype(int)] = 1.0
    given = {
        "start": pd.Period("2020-01-06", "D"),
        "target": 10 - 6 * event + rng.normal(size=400),
        COVARIATES: event[None],
    }
    effects = fit_effects([given], "D")
    assert effects is not None
    assert used(effects) == {0}


def test_a_small_effect_stays_where_none_is_dropped():
    """Columns of noise errors: only the slope that is there stays."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(401, 3))
    groups, owners = np.arange(3), [frozenset([k]) for k in range(3)]
    for slope in (0.0, 0.4):
        y = x @ [1.0, slope, 0.0] + rng.normal(size=401)
        found = fit([x], [y], groups, (1,), 6)
        assert useless([Evidence.of([x], [y], (1,), found, [0])], groups, owners) == ({1, 2} if slope == 0 else {2})


def test_no_effects_of_several_targets_are_refused():
    entry = {"start": pd.Period("2020-01-01", "D"), "target": np.ones((2, 50)), "feat_dynamic_real": np.ones((1, 50))}
    with pytest.raises(ValueError, match="one target where covariates have effects, or none, got several"):
        no_effects([entry], "D")


def shops(covariate, seed=0, count=50, steps=150):
    """Return series that a shock moves together, beside a covariate."""
    rng = np.random.default_rng(seed)
    shock = np.cumsum(rng.normal(size=steps))
    return [
        {
            "start": pd.Period("2020-01-05", "W"),
            "item_id": str(k),
            "target": 100 + 5 * shock * rng.uniform(0.5, 1.5) + 3 * rng.normal(size=steps),
            COVARIATES: covariate(k)[None],
        }
        for k in range(count)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_what_wanders_like_a_shock_of_all_series_is_no_cause(seed):
    """The price of fuel is the same everywhere, and so is the shock: fifty series say no more than one."""
    fuel = np.cumsum(np.random.default_rng(100 + seed).normal(size=150))
    effects = fit_effects(shops(lambda _: fuel, seed), "W")
    assert effects is not None
    assert not used(effects)


def test_what_has_begun_with_the_last_weeks_has_no_effect():
    """Discounts that began with a season: what the season does is not theirs."""
    rng = np.random.default_rng(3)

    def discount(_):
        return np.where(np.arange(150) < 140, 0.0, rng.uniform(1, 5, 150))

    entries = shops(discount)
    for entry in entries:
        entry["target"][140:] += 40
    effects = fit_effects(entries, "W")
    assert effects is not None
    assert not used(effects)
