"""Regimes beside statsmodels on its own published examples, and beside all paths enumerated."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels
import torch
from statsmodels.tools import add_constant
from statsmodels.tsa.api import MarkovAutoregression, MarkovRegression

from tsforecast.core.regimes import chain, em
from tsforecast.core.regimes.autoregression import SwitchingAutoregression, known_lags, regimes_of
from tsforecast.core.regimes.changes import find_changes
from tsforecast.core.regimes.em import SwitchingRegression, em_step

EXACT = {"rtol": 1e-8, "atol": 1e-8}


@pytest.fixture(scope="module")
def examples():
    """Name -> the data of statsmodels' own examples, which are literals in its tests."""
    folder = Path(statsmodels.__file__).parent / "tsa" / "regime_switching" / "tests"
    found = {"filardo": pd.read_csv(folder / "results" / "mar_filardo.csv")}
    for name in ("autoregression", "regression"):
        for node in ast.parse((folder / f"test_markov_{name}.py").read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
                found[ast.unparse(node.targets[0])] = np.array(eval(ast.unparse(node.value), {"np": np}))
    return found


def f64(values):
    return torch.as_tensor(np.asarray(values, np.float64))


def transition_of(model, parameters):
    """log p(s_t = j | s_{t-1} = i), of each step that has a density or of all, and that of the first step."""
    matrix = model.regime_transition_matrix(parameters)
    log = f64(matrix).permute(2, 1, 0).clamp_min(1e-20).log().unsqueeze(1)
    return (log[model.order :] if len(log) > 1 else log), log[:1, 0]


def agree(result, transition, first, density, memory):
    """Log-likelihoods and probabilities are those of statsmodels."""
    belief = chain.begin(chain.stationary(first), first, memory)
    filtered, smoothed = chain.filter(transition, density, belief), chain.smooth(transition, density, belief)
    np.testing.assert_allclose(filtered.log_likelihood[:, 0], result.llf_obs, **EXACT)
    np.testing.assert_allclose(filtered.probabilities[:, 0], result.filtered_marginal_probabilities, **EXACT)
    np.testing.assert_allclose(smoothed.probabilities[:, 0], result.smoothed_marginal_probabilities, **EXACT)


def test_hamiltons_output_of_the_united_states(examples):
    """Hamilton (1989): a switching mean with four lags, whose likelihood needs the regimes of all of them."""

    true = (0.754673, 0.095915, -0.358811, 1.163516, np.exp(-0.262658) ** 2, 0.013486, -0.057521, -0.246983, -0.212923)
    values = examples["rgnp"]
    model = MarkovAutoregression(values, k_regimes=2, order=4, switching_ar=False)
    result = model.smooth(np.array(true))
    np.testing.assert_allclose(result.llf, -181.26339, rtol=1e-7)  # Hamilton's, as Stata has it
    means = SwitchingAutoregression(
        f64(true[2:4])[None, None], f64(true[5:]).expand(1, 2, 4), f64([-0.262658] * 2)[None], of_mean=True
    )
    assert means.memory == 4
    agree(result, *transition_of(model, true), means.log_density(f64(values)[:, None]), 4)


def test_filardos_transitions_follow_a_leading_indicator(examples):
    true = np.r_[4.35941747, -1.6493936, 1.7702123, 0.9945672, 0.517298, -0.865888, np.exp(-0.362469) ** 2,
                 0.189474, 0.079344, 0.110944, 0.122251]  # fmt: skip
    values = examples["filardo"]["dlip"].iloc[1:].to_numpy()
    leading = add_constant(examples["filardo"]["dmdlleading"].iloc[:-1].to_numpy())
    model = MarkovAutoregression(values, k_regimes=2, order=4, switching_ar=False, exog_tvtp=leading)
    means = SwitchingAutoregression(
        f64(true[4:6])[None, None], f64(true[7:]).expand(1, 2, 4), f64([-0.362469] * 2)[None], of_mean=True
    )
    transition, first = transition_of(model, true)
    assert len(transition) == len(values) - 4
    result = model.smooth(true)
    np.testing.assert_allclose(result.llf, -586.5718, rtol=1e-7)
    # statsmodels begins four steps earlier, each with transitions of its own.
    every = f64(model.regime_transition_matrix(true)).permute(2, 1, 0).log()
    belief = chain.stationary(first)
    for step in range(4):
        belief = (every[step].mT.unsqueeze(-1) + belief.unflatten(-1, (1, 2, -1))).flatten(1)
    belief = torch.logsumexp(belief.unflatten(-1, (16, 2)), -1)
    density = means.log_density(f64(values)[:, None])
    smoothed = chain.smooth(transition, density, belief)
    np.testing.assert_allclose(smoothed.log_likelihood[:, 0], result.llf_obs, **EXACT)
    np.testing.assert_allclose(smoothed.probabilities[:, 0], result.smoothed_marginal_probabilities, **EXACT)


@pytest.mark.parametrize(("regimes", "name"), [(2, "areturns"), (3, "fedfunds")])
def test_regressions_with_several_regimes_and_variances(examples, regimes, name):
    """Returns, and interest rates with the output gap and inflation."""

    data = examples[name]
    exog = data[:-1, None]
    if name == "fedfunds":
        exog = np.c_[data[3:-1], examples["ogap"][4:], examples["inf"][4:]]
    values = data[-len(exog) :]
    model = MarkovRegression(values, k_regimes=regimes, exog=exog, switching_variance=True)
    parameters = model.start_params + 0.01 * np.arange(len(model.start_params))
    chosen = {part: parameters[model.parameters[part]] for part in ("exog", "variance")}
    coefficient = f64(chosen["exog"]).reshape(-1, regimes).T
    location = f64(np.c_[np.ones(len(exog)), exog]) @ coefficient.mT
    regression = SwitchingAutoregression(
        location.unsqueeze(1), coefficient.new_zeros(1, regimes, 0), 0.5 * f64(chosen["variance"]).log()[None]
    )
    agree(model.smooth(parameters), *transition_of(model, parameters), regression.log_density(f64(values)[:, None]), 1)


@pytest.mark.parametrize(("shared", "products"), [(False, em._NUMBERS), (True, em._NUMBERS), (False, 50)])
def test_a_step_of_em_is_that_of_statsmodels(examples, shared, products, monkeypatch):
    """Also where a few values at a time have their products."""
    monkeypatch.setattr(em, "_NUMBERS", products)
    values = examples["areturns"][1:]
    exog = examples["areturns"][:-1, None]
    model = MarkovRegression(values, k_regimes=2, exog=exog, switching_variance=not shared)
    start = model.start_params + 0.01 * np.arange(len(model.start_params))
    _, expected = model._em_iteration(start)
    transition, _ = transition_of(model, start)
    design = f64(np.c_[np.ones(len(exog)), exog]).unsqueeze(1)
    old = SwitchingRegression(
        f64(start[model.parameters["exog"]]).reshape(2, 2).T.unsqueeze(-1),
        f64(start[model.parameters["variance"]]).expand(2)[:, None, None],
        transition[0, 0],
    )
    new, terms = em_step(old, design, f64(values)[:, None, None], shared_cov=shared)
    np.testing.assert_allclose(float(terms), model.loglike(start), rtol=1e-10)
    np.testing.assert_allclose(new.coefficient[..., 0].T.flatten(), expected[model.parameters["exog"]], **EXACT)
    found = new.cov[: 1 if shared else 2].flatten()
    np.testing.assert_allclose(found, expected[model.parameters["variance"]], **EXACT)
    # statsmodels divides by the smoothed regimes of the steps themselves; EM does by those before them.
    smoothed = chain.smooth(
        transition, old.log_density(design, f64(values)[:, None, None]), chain.stationary(transition[0])
    )
    pairs = smoothed.pairs.sum((0, 1))
    torch.testing.assert_close(new.log_transition.exp(), pairs / pairs.sum(1, keepdim=True), **EXACT)


def made(regimes=2, steps=5, memory=1, series=2, seed=0):
    """Transitions that change, densities, and a belief, of random numbers."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    transition = torch.log_softmax(draw(steps, series, regimes, regimes), -1)
    density = draw(steps, series, regimes ** (memory + 1))
    belief = torch.log_softmax(draw(series, regimes**memory), -1)
    return transition, density, belief


def enumerated(transition, density, belief, series, active=None):
    """log p(path, y) of every path of regimes, those before the first step in front, as {path: value}."""
    steps, _, regimes, _ = transition.shape
    memory = round(np.log(belief.shape[-1]) / np.log(regimes))
    number = lambda regimes_: int(np.ravel_multi_index(regimes_, [regimes] * len(regimes_)))  # noqa: E731
    found = {}
    for path in itertools.product(range(regimes), repeat=memory + steps):
        value = belief[series, number(path[:memory][::-1])]
        for time in range(steps):
            history = path[time : time + memory + 1][::-1]
            value = value + transition[time, series, history[1], history[0]] + density[time, series, number(history)]
        found[path] = float(value)
    return found


@pytest.mark.parametrize(("regimes", "memory"), [(2, 1), (3, 1), (2, 3)])
def test_filter_smoother_and_path_by_all_paths(regimes, memory):
    transition, density, belief = made(regimes, 4, memory)
    smoothed = chain.smooth(transition, density, belief)
    filtered = chain.filter(transition, density, belief)
    path, best = chain.most_likely(transition, density, belief)
    for series in range(2):
        every = enumerated(transition, density, belief, series)
        total = np.logaddexp.reduce(list(every.values()))
        np.testing.assert_allclose(smoothed.log_likelihood[:, series].sum(), total, **EXACT)
        pairs, last = np.zeros((4, regimes, regimes)), np.zeros(regimes)
        for states, value in every.items():
            last[states[-1]] += np.exp(value - total)
            for time in range(4):
                pairs[time, states[memory + time - 1], states[memory + time]] += np.exp(value - total)
        np.testing.assert_allclose(smoothed.pairs[:, series], pairs, **EXACT)
        np.testing.assert_allclose(filtered.probabilities[-1, series], last, **EXACT)
        top = max(every, key=every.get)
        assert tuple(path[:, series].tolist()) == top[memory:]
        np.testing.assert_allclose(best[series], every[top], **EXACT)


def test_filtering_on_equals_filtering_at_once_and_a_series_begins_when_it_does():
    transition, density, belief = made(3, 7, 2)
    whole = chain.filter(transition, density, belief)
    first = chain.filter(transition[:3], density[:3], belief)
    second = chain.filter(transition[3:], density[3:], first.belief)
    torch.testing.assert_close(second.belief, whole.belief, **EXACT)
    active = torch.ones(7, 2, dtype=torch.bool)
    active[:3, 0] = False
    late = chain.smooth(transition, density, belief, active)
    alone = chain.smooth(transition[3:, :1], density[3:, :1], belief[:1])
    torch.testing.assert_close(late.histories[3:, :1], alone.histories, **EXACT)
    torch.testing.assert_close(late.histories[:, 1], chain.smooth(transition, density, belief).histories[:, 1], **EXACT)
    assert (late.log_likelihood[:3, 0] == 0).all()
    path, value = chain.most_likely(transition, density, belief, active)
    its, own = chain.most_likely(transition[3:, :1], density[3:, :1], belief[:1])
    assert torch.equal(path[3:, :1], its)
    torch.testing.assert_close(value[:1], own, **EXACT)


def test_gradients_are_those_of_finite_differences():
    transition, density, belief = (x.requires_grad_() for x in made(2, 3, 2))
    assert torch.autograd.gradcheck(
        lambda *x: chain.filter(*x).log_likelihood.sum(0), (transition, density, belief), eps=1e-6, atol=1e-7
    )


def test_probabilities_ahead_are_those_of_steps_without_observations():
    transition, density, belief = made(3, 4, 2)
    filtered = chain.filter(transition, torch.zeros_like(density), belief)
    torch.testing.assert_close(chain.ahead(transition, belief), filtered.probabilities, **EXACT)


def test_the_stationary_distribution():
    log = torch.log_softmax(torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0)).double(), -1)
    share = chain.stationary(log).exp()
    torch.testing.assert_close((share.unsqueeze(-2) @ log.exp()).squeeze(-2), share, **EXACT)
    with pytest.raises(ValueError, match="do not all meet"):
        chain.stationary(torch.eye(2, dtype=torch.float64).log())


def test_sizes_that_do_not_fit_are_refused():
    transition, density, belief = made(2, 3, 2)
    with pytest.raises(ValueError, match=r"for K = 2 regimes, got 4 and 4"):
        chain.filter(transition, density[..., :4], belief)
    with pytest.raises(ValueError, match="transitions of 3 steps or of all, got 2"):
        chain.filter(transition[:2], density, belief)


def test_histories_of_a_mean_are_by_the_formula():
    """y_t - m(s_t) - sum_l a_l(s_t) (y_{t-l} - m(s_{t-l})), for two series with means of their own that change."""
    rng = torch.Generator().manual_seed(1)
    values, location = torch.randn(6, 2, generator=rng).double(), torch.randn(6, 2, 3, generator=rng).double()
    coefficient, log_scale = torch.randn(2, 3, 2, generator=rng).double(), torch.randn(2, 3, generator=rng).double()
    found = SwitchingAutoregression(location, coefficient, log_scale, of_mean=True).log_density(values)
    for number, (a, b, c) in enumerate(regimes_of(3, 3).tolist()):
        for series in range(2):
            m, y, k = location[:, series], values[:, series], coefficient[series, a]
            mean = m[2:, a] + k[0] * (y[1:-1] - m[1:-1, b]) + k[1] * (y[:-2] - m[:-2, c])
            expected = torch.distributions.Normal(mean, log_scale[series, a].exp()).log_prob(y[2:])
            torch.testing.assert_close(found[:, series, number], expected, **EXACT)


def test_lags_are_known_where_all_are_observed():
    observed = torch.tensor([1, 1, 1, 0, 1, 1, 1], dtype=torch.bool).unsqueeze(1)
    assert known_lags(observed, 2).squeeze(1).tolist() == [False, False, True, True, False, False, True]
    assert known_lags(observed, 0).all()


@pytest.mark.parametrize("targets", [1, 2])
def test_em_never_lowers_the_likelihood_and_ends_where_its_gradient_is_zero(targets):
    """Of three series, with missing values, one coefficient that regimes share, and a free initial distribution."""
    rng = torch.Generator().manual_seed(3)
    regime = (torch.rand(40, 3, generator=rng) < 0.1).int().cumsum(0) % 2
    design = torch.stack([torch.ones(40, 3), torch.randn(40, 3, generator=rng)], -1).double()
    noise = torch.randn(40, 3, generator=rng).double()
    values = 2.0 * regime + 0.5 * design[..., 1] + (0.2 + 0.2 * regime) * noise
    other = 0.3 * design[..., 1] + noise - (0.3 + regime) * torch.randn(40, 3, generator=rng).double()
    values = torch.stack([values, other][:targets], -1)
    observed = torch.rand(40, 3, generator=rng) < 0.9
    half = f64([0.5, 0.5]).log()
    start = f64([[0.5, 0.0], [1.5, 0.0]])[..., None].repeat(1, 1, targets)
    cov = torch.eye(targets, dtype=torch.float64).repeat(2, 1, 1)
    model = SwitchingRegression(start, cov, f64([[0.8, 0.2], [0.3, 0.7]]).log(), half)
    total = -torch.inf
    for _ in range(90):
        model, terms = em_step(model, design, values, observed, shared=(1,))
        assert float(terms.sum()) >= total - 1e-9
        total = float(terms.sum())
    assert torch.equal(model.coefficient[0, 1], model.coefficient[1, 1])
    assert model.coefficient[:, 0, 0].sub(f64([0.0, 2.0])).abs().max() < 0.2  # each within some standard errors
    free = [model.coefficient[:, 0].clone(), model.coefficient[:1, 1].clone(), torch.linalg.cholesky(model.cov)]
    free = [x.requires_grad_() for x in free]
    cov = free[2].tril() @ free[2].tril().mT
    at = SwitchingRegression(torch.stack([free[0], free[1].expand(2, -1)], 1), cov, model.log_transition, half)
    density = torch.where(observed.unsqueeze(-1), at.log_density(design, values), 0.0)
    assert model.initial is not None
    chain.filter(at.log_transition[None, None], density, model.initial.expand(3, -1)).log_likelihood.sum().backward()
    for x in free:
        assert x.grad.abs().max() < 1e-4
    with pytest.raises(ValueError, match="at least one value"):
        em_step(model, design, values, torch.zeros_like(observed))


def test_the_interval_of_a_change_is_that_of_this_change_alone():
    """Oracle: all paths that stay in a regime, change once between the middles, and stay in the next."""
    path = torch.tensor([0] * 5 + [1] * 9 + [0] * 4)
    rng = np.random.default_rng(0)
    density = np.where(path.numpy() == 0, 1.0, -1.0)[:, None] * [0.9, -0.9] + 0.5 * rng.normal(size=(len(path), 2))
    density[11] += [4.0, 0.0]  # within the segment of regime 1 a step that is likely 0: two changes more, perhaps
    stay = torch.tensor([[0.8, 0.2], [0.2, 0.8]], dtype=torch.float64).log()
    values, start = f64(density), torch.full((1, 2), 0.5, dtype=torch.float64).log()
    smoothed = chain.smooth(stay[None, None], (values[:, None, :, None] + torch.zeros(2)).flatten(2), start)
    first, second = find_changes(path, smoothed.pairs[:, 0], 0.75)
    steps = np.arange(1, 10)  # until the middle of the segment behind
    log = [density[:t, 0].sum() + density[t:10, 1].sum() + 0 * t for t in steps]
    expected = np.exp(log - np.logaddexp.reduce(log))
    widths = [(e - s, -expected[s : e + 1].sum(), s) for s in range(9) for e in range(s, 9)
              if expected[s : e + 1].sum() >= 0.75]  # fmt: skip
    length, _, low = min(widths)
    assert (first.time, first.lower, first.upper) == (5, steps[low], steps[low] + length)
    assert (second.time, second.before, second.after) == (14, 1, 0)
    assert second.lower > 11  # a return to regime 0 at step 11 is another change
    assert second.expected > 1  # and the number of such changes has both


def test_changes_of_certain_paths_are_certain():
    path = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0])
    before = torch.cat([path[:1], path[:-1]])
    one = torch.nn.functional.one_hot
    pairs = (one(before, 2).unsqueeze(-1) * one(path, 2).unsqueeze(-2)).double()
    first, second = find_changes(path, pairs, 0.75)
    assert (first.time, first.before, first.after, first.lower, first.upper) == (4, 0, 1, 4, 4)
    assert (second.time, second.lower, second.upper, second.expected) == (9, 9, 9, 1.0)
    assert find_changes(path[:4], pairs[:4]) == []
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.0"):
        find_changes(path, pairs, 1.0)
