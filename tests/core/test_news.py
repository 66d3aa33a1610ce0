"""The shares of observations in the change of a forecast, against statsmodels and against the forecasts themselves."""

import numpy as np
import pandas as pd
import pytest
import torch
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.structural import UnobservedComponents

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.news import news

STEPS, HORIZON = 60, 6


def system_of(model, params):
    """Our system of statsmodels' matrices, and the prior over the state before the first step.

    Their first state is the step after our prior's: it stands still into that step.
    """
    model.update(params)
    there = {name: torch.as_tensor(model.ssm[name].copy()) for name in ("transition", "design", "obs_cov")}
    chosen, noise = model.ssm["selection"], model.ssm["state_cov"]
    states, size = len(chosen), STEPS + HORIZON
    matrix = there["transition"].repeat(size, 1, 1)
    matrix[0] = torch.eye(states)
    moves = torch.as_tensor(chosen @ noise @ chosen.T).repeat(size, 1, 1)
    moves[0] = 0.0
    transition = LinearGaussian(matrix, torch.zeros(1, states), moves)
    emission = LinearGaussian(there["design"][None], torch.zeros(1, 1), there["obs_cov"][None])
    start = model.smooth(params).filter_results.initial_state_cov
    return LinearSystem(transition, emission), Gaussian(torch.zeros(states), torch.as_tensor(start.copy()))


def samples():
    """Data before and after: a gap that is filled, revisions, and steps at the end."""
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=STEPS)) + rng.normal(size=STEPS)
    index = pd.period_range("2000-01", periods=STEPS, freq="M")
    before, after = (pd.Series(values.copy(), index) for _ in range(2))
    before.iloc[[10, 45]] = np.nan
    before.iloc[-3:] = np.nan  # statsmodels' weights are right only where nothing lies behind the data before
    after.iloc[10] = np.nan
    after.iloc[[30, 52]] += [1.3, -0.7]
    return before, after


SEASON = [{"period": 12, "harmonics": 2}]


@pytest.mark.parametrize(
    ("make", "params"),
    [
        (lambda y: UnobservedComponents(y, "lltrend", freq_seasonal=SEASON), [0.5, 0.3, 0.1, 0.05]),
        (lambda y: SARIMAX(y, order=(1, 0, 1), seasonal_order=(1, 0, 0, 4)), [0.7, 0.3, 0.4, 1.2]),
    ],
)
def test_shares_are_those_of_statsmodels(make, params):
    before, after = samples()
    model = make(before)
    first, second = model.smooth(params), model.clone(after).smooth(params)
    ahead = {"start": after.index[-1] + 1, "end": after.index[-1] + HORIZON}
    theirs = first.news(second, comparison_type="updated", **ahead)
    data = [torch.as_tensor(series.to_numpy(np.float64))[:, None] for series in (before, after)]
    ours = news(*system_of(model, params), *data, HORIZON)
    known = {"atol": 1e-8, "rtol": 1e-8}
    of = lambda changes: changes.impact[..., 0].sum(0).numpy()  # noqa: E731
    np.testing.assert_allclose(of(ours.revised), theirs.revision_impacts.to_numpy()[:, 0], **known)
    np.testing.assert_allclose(of(ours.new), theirs.update_impacts.to_numpy()[:, 0], **known)
    np.testing.assert_allclose(ours.new.weight[..., 0].numpy(), theirs.weights.to_numpy(), **known)
    surprise = theirs.news.to_numpy().ravel()
    np.testing.assert_allclose((ours.new.value - ours.new.expected).numpy(), surprise, **known)
    assert ours.new.time.tolist() == [45, 57, 58, 59]
    assert ours.revised.time.tolist() == [30, 52]


def test_impacts_add_up_to_the_change_also_where_values_are_withdrawn():
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    size = STEPS + HORIZON
    noise = torch.eye(3, dtype=torch.float64) * 0.3
    transition = LinearGaussian(0.5 * draw(size, 1, 3, 3).tanh(), draw(1, 1, 3), noise[None, None])
    emission = LinearGaussian(draw(size, 1, 2, 3), draw(1, 1, 2), torch.eye(2, dtype=torch.float64)[None, None])
    prior = Gaussian(draw(1, 3), torch.eye(3, dtype=torch.float64)[None])
    before = draw(STEPS, 2)
    after = before.clone()
    before[40:, 1] = torch.nan
    after[20, 0], after[30], after[50, 0] = torch.nan, after[30] + 1.0, torch.nan
    found = news(LinearSystem(transition, emission), prior, before, after, HORIZON)
    assert len(found.withdrawn.time) == 2
    assert len(found.revised.time) == 2
    total = sum(x.impact.sum(0) for x in (found.revised, found.withdrawn, found.new))
    torch.testing.assert_close(found.before + total, found.after, rtol=0, atol=1e-12)
    for data, mean in ((before, found.before), (after, found.after)):
        joint = LinearSystem(transition, emission).predictive(prior, size)
        seen = torch.nn.functional.pad(~data.isnan(), (0, 0, 0, HORIZON)).flatten()
        value = torch.nn.functional.pad(data.nan_to_num(), (0, 0, 0, HORIZON)).flatten()
        known = joint.condition(value[None], seen[None])
        torch.testing.assert_close(known.mean[0].unflatten(0, (-1, 2))[STEPS:], mean, rtol=0, atol=1e-10)


def test_the_same_data_are_no_news():
    data = torch.arange(5.0, dtype=torch.float64)[:, None]
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    part = LinearGaussian(one, one[0] * 0, one)
    found = news(LinearSystem(part, part), Gaussian(torch.zeros(1).double(), torch.eye(1).double()), data, data, 2)
    assert not len(found.new.time) + len(found.revised.time) + len(found.withdrawn.time)
    torch.testing.assert_close(found.before, found.after)
