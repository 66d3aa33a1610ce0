import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import generator, joint, plain, random_data, random_gaussian
from tsforecast.core import (
    ISSM,
    Gaussian,
    Harmonics,
    Level,
    LinearGaussian,
    LinearSystem,
    NotPositiveDefiniteError,
    Season,
    Trend,
    kalman,
    map_tensors,
)
from tsforecast.core.disturbances import disturbances
from tsforecast.core.seasonal import DECAY

EXACT = {"rtol": 1e-8, "atol": 1e-8}
STEPS = 26  # two blocks of twelve and a rest
PARTS = (
    *(Level(), Level(damped=True), Trend(), Trend(damped=True)),
    *(Season(3, "third"), Season(5, "fifth"), Harmonics(9, 1), Harmonics(60, 3)),
)
SUMS = [
    *((part,) for part in PARTS),
    (Level(), Season(7, "day")),
    (Level(damped=True), Season(4), Season(3)),
    (Season(3), Trend(), Season(2)),
    (Trend(damped=True), Level(damped=True), Season(3)),
    (Trend(), Trend(damped=True), Level()),
    (Season(3), Harmonics(30, 2), Level(damped=True)),
    (Trend(), Harmonics(17, 1), Harmonics(50, 2)),
]
CASES = ["one of everything", "own of each series", "varying with time", "begun at different times"]


@pytest.fixture(autouse=True, scope="module")
def blocks():
    """Whole series by blocks of steps; tests/core/kernels has the compiled program beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ISSM, "whole", lambda *_: None)
        yield


def same(one: Gaussian, two: Gaussian):
    torch.testing.assert_close(*torch.broadcast_tensors(one.mean, two.mean), **EXACT)
    torch.testing.assert_close(*torch.broadcast_tensors(one.cov, two.cov), **EXACT)


def random_issm(components, case: str, series: int, rng: torch.Generator, steps: int = STEPS) -> ISSM:
    """Parameters the same for all series; or a set, and phases, for each; or for each step; or not all begun."""
    batch = () if case == CASES[0] else (series,)
    time = steps if case == CASES[2] else 1
    uniform = lambda *shape: 0.1 + torch.rand(*shape, generator=rng).double()  # noqa: E731
    phases = torch.randint(0, 100, (*batch, 1), generator=rng)
    clock = torch.arange(steps).reshape(-1, *[1] * len(batch)) + phases[..., 0]
    cycles = [c.factors if isinstance(c, Season) else c.cycle for c in components if isinstance(c, Season | Harmonics)]
    seasons = [(clock // (2 * i + 1)) % cycle for i, cycle in enumerate(cycles)]
    empty = torch.zeros(steps, *batch, 0, dtype=torch.long)
    starts = torch.randint(0, 2 * steps // 3, batch, generator=rng)
    return ISSM(
        components=components,
        index=torch.stack(seasons, -1) if seasons else empty,
        state_noise=uniform(time, *batch, sum(len(c.noises) for c in components)),
        emission_noise=uniform(time, *batch),
        damping=0.9 * uniform(*batch, sum(c.is_damped for c in components)) / 1.1,
        offset=uniform(time, *batch),
        active=torch.arange(steps)[:, None] >= starts if case == CASES[3] else None,
    )


def textbook(system: ISSM) -> LinearSystem:
    """The same system by the literature's matrices, filled entry by entry; all have a leading dimension of steps."""
    steps, batch, size = len(system.index), system.emission_noise.shape[1:], sum(c.size for c in system.components)
    a, r = torch.zeros(steps, *batch, size, size).double(), torch.zeros(steps, *batch, size, size).double()
    c = torch.zeros(steps, *batch, 1, size).double()
    for t in range(steps):
        for place in np.ndindex(*batch):
            at = (t, *place)
            noises = list(system.state_noise[(t if len(system.state_noise) > 1 else 0, *place)])
            dampings, factors = list(system.damping[place]), list(system.index[at])
            first = 0
            for part in system.components:
                phi = dampings.pop(0) if part.is_damped else 1.0
                if isinstance(part, Level):
                    a[(*at, first, first)], r[(*at, first, first)], c[(*at, 0, first)] = phi, noises.pop(0), 1
                elif isinstance(part, Trend):
                    a[(*at, first, first)] = a[(*at, first, first + 1)] = 1
                    a[(*at, first + 1, first + 1)] = phi
                    r[(*at, first, first)], r[(*at, first + 1, first + 1)] = noises.pop(0), noises.pop(0)
                    c[(*at, 0, first)] = 1
                elif isinstance(part, Harmonics):
                    phase, noise = int(factors.pop(0)) / part.cycle, noises.pop(0)
                    weights = np.arange(1, part.harmonics + 1) ** -DECAY
                    weights /= np.sqrt((weights**2).sum())
                    for j, weight in enumerate(weights):
                        for now, wave in ((first + j, np.cos), (first + part.harmonics + j, np.sin)):
                            a[(*at, now, now)], r[(*at, now, now)] = 1, noise
                            c[(*at, 0, now)] = weight * wave(2 * np.pi * (j + 1) * phase)
                else:
                    for j in range(part.factors):
                        a[(*at, first + j, first + j)] = 1
                    now = first + int(factors.pop(0))
                    r[(*at, now, now)], c[(*at, 0, now)] = noises.pop(0), 1
                first += part.size
            if system.active is not None and not system.active[at]:
                a[at], r[at] = torch.eye(size), 0
    return LinearSystem(
        LinearGaussian(a, torch.zeros(1, *batch, size).double(), r),
        LinearGaussian(c, system.offset.unsqueeze(-1), system.emission_noise[..., None, None]),
    )


def problem(components, case: str, seed: int = 0, series: int = 3):
    rng = generator(seed)
    system = random_issm(components, case, series, rng)
    prior = random_gaussian(() if case == CASES[0] else (series,), system.num_states, rng)
    values, observed = random_data((STEPS, series), 1, rng)
    return system, prior, values, observed


@pytest.mark.parametrize("components", SUMS, ids=lambda c: "+".join(type(x).__name__ for x in c))
@pytest.mark.parametrize("case", CASES)
def test_step_form_and_block_form_equal_the_dense_system(components, case):
    """Oracle: the textbook's matrices in the dense system (which has oracles of its own)."""
    system, prior, values, observed = problem(components, case)
    dense = textbook(system)
    for t in (0, STEPS - 1):
        for ours, theirs in zip(system.at(t), dense.at(t), strict=True):
            for name in ("matrix", "offset", "noise"):
                one, two = getattr(ours.dense(), name), getattr(theirs, name)
                torch.testing.assert_close(*torch.broadcast_tensors(one, two), **EXACT)
            same(ours.marginal(prior), theirs.marginal(prior))
    for mask in (None, observed):
        expected, expected_terms = dense.posterior(prior, values, mask)
        belief, terms = system.posterior(prior, values, mask)
        torch.testing.assert_close(terms, expected_terms, **EXACT)
        same(belief, expected)
    by_step = kalman.filter(system, prior, values, observed)
    torch.testing.assert_close(by_step.log_likelihood, expected_terms, **EXACT)
    same(by_step.belief, expected)
    same(system.predictive(prior, STEPS), dense.predictive(prior, STEPS))


@pytest.mark.parametrize("components", SUMS, ids=lambda c: "+".join(type(x).__name__ for x in c))
def test_all_steps_at_once_are_those_one_by_one(components):
    """Also where only some parameters are those of each series."""
    systems = [problem(components, case)[0] for case in CASES]
    systems.append(dataclasses.replace(systems[2], index=systems[0].index, damping=systems[0].damping))
    for system in systems:
        steps = system.by_step()
        for t in (0, 9, STEPS - 1):
            for found, expected in zip(steps(t), system.at(t), strict=True):
                for name in ("matrix", "noise", "offset"):
                    one, two = (getattr(x.dense(), name) for x in (found, expected))
                    assert torch.equal(*torch.broadcast_tensors(one, two))
            noise = system.state_noise[t if len(system.state_noise) > 1 else 0] @ system.sources()
            moved = steps(t)[0].noise
            assert torch.equal(*torch.broadcast_tensors(moved, torch.where(moved > 0, noise, 0.0)))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), st.sampled_from(CASES), st.integers(0, 2**31))
def test_any_sum_of_components_equals_the_dense_system(components, case, seed):
    system, prior, values, observed = problem(tuple(components), case, seed, series=2)
    expected, expected_terms = textbook(system).posterior(prior, values, observed)
    belief, terms = system.posterior(prior, values, observed)
    torch.testing.assert_close(terms, expected_terms, **EXACT)
    same(belief, expected)


def test_likelihood_and_predictive_equal_the_joint_gaussian_of_one_series():
    """Oracle: the joint density of all states and observations, conditioned directly."""
    system, prior, values, observed = problem((Trend(damped=True), Season(4)), CASES[1])
    s = 2
    dense = joint(plain(textbook(system), prior, STEPS, (s,)))
    y, seen = values[:, s].numpy(), observed[:, s].numpy()
    total = system.log_likelihood(prior, values, observed)[:, s].sum()
    torch.testing.assert_close(total, torch.tensor(dense.log_density(y, seen, STEPS)), **EXACT)
    rows = dense.observations()
    together = system.predictive(prior, STEPS)
    torch.testing.assert_close(together.mean[s], torch.tensor(dense.mean[rows]), **EXACT)
    torch.testing.assert_close(together.cov[s], torch.tensor(dense.cov[np.ix_(rows, rows)]), **EXACT)
    mean, cov = dense.given(y, seen, STEPS)
    smoothed = kalman.smooth(system, prior, values, observed)
    torch.testing.assert_close(smoothed.states.mean[4, s], torch.tensor(mean[dense.state(5)]), **EXACT)
    torch.testing.assert_close(smoothed.cross[4, s], torch.tensor(cov[dense.state(5), dense.state(4)]), **EXACT)


@pytest.mark.parametrize("case", CASES)
def test_smoother_and_forecast_equal_those_of_the_dense_system(case):
    """Season noise is singular: there is no inverse of a noise, and few of a state's covariance in float32."""
    system, prior, values, observed = problem((Level(damped=True), Trend(), Season(4)), case)
    dense = textbook(system)
    ours, theirs = (kalman.smooth(s, prior, values, observed) for s in (system, dense))
    same(ours.states, theirs.states)
    same(ours.initial, theirs.initial)
    torch.testing.assert_close(ours.cross, theirs.cross, **EXACT)
    for one, two in zip(kalman.forecast(system, prior, 9, 5), kalman.forecast(dense, prior, 9, 5), strict=True):
        same(one, two)
    same(system.marginals(prior, STEPS), kalman.forecast(dense, prior, STEPS)[1])


def test_the_earlier_state_given_the_later_one_equals_the_dense_form():
    system, prior, *_ = problem((Trend(damped=True), Level()), CASES[1])
    transition, theirs = system.at(3)[0], textbook(system).at(3)[0]
    state = torch.randn(3, 3, generator=generator(1)).double()
    (one, log_prob), (two, expected) = transition.posterior(prior, state), theirs.posterior(prior, state)
    same(one, two)
    torch.testing.assert_close(log_prob, expected, **EXACT)


def leaves_of(system: ISSM, prior: Gaussian, values: torch.Tensor) -> list[torch.Tensor]:
    leaves = (system.state_noise, system.emission_noise, system.damping, system.offset, prior.mean, prior.cov, values)
    return [x.clone().requires_grad_() for x in leaves]


def rebuild(system: ISSM, leaves, index: torch.Tensor | None = None) -> tuple[ISSM, Gaussian, torch.Tensor]:
    noise, observation, damping, offset, mean, cov, values = leaves
    index = system.index if index is None else index
    model = dataclasses.replace(
        system, index=index, state_noise=noise, emission_noise=observation, damping=damping, offset=offset
    )
    return model, Gaussian(mean, 0.5 * (cov + cov.mT)), values


GRADIENT_SUMS = [SUMS[8], SUMS[9], SUMS[10], SUMS[11], SUMS[13]]


@pytest.mark.parametrize("components", GRADIENT_SUMS, ids=lambda c: "+".join(type(x).__name__ for x in c))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("missing", [True, False])
def test_gradients_of_the_block_form_equal_autograd_of_the_dense_loop(components, case, missing):
    """Every parameter, prior and values; every step has a weight of its own, and the last belief weighs too."""
    system, prior, values, observed = problem(components, case)
    mask = observed if missing else None
    rng = generator(3)
    weights, push = torch.randn(STEPS, 3, generator=rng).double(), torch.randn(3, 1, generator=rng).double()
    leaves, gradients = leaves_of(system, prior, values), []
    for dense in (False, True):
        model, start, y = rebuild(system, leaves)
        if dense:
            filtered = kalman.filter(textbook(model), start, y, mask)
            belief, terms = filtered.belief, filtered.log_likelihood
        else:
            belief, terms = model.posterior(start, y, mask)
        total = (terms * weights).sum() + (belief.mean * push).sum() + (belief.cov.sum(-1) * push).sum()
        gradients.append(torch.autograd.grad(total, leaves, allow_unused=True))
    for leaf, ours, expected in zip(leaves, *gradients, strict=True):
        if leaf.numel() == 0:  # no component is damped
            continue
        assert expected.abs().sum() > 0
        torch.testing.assert_close(ours, expected, **EXACT)


@pytest.mark.parametrize("form", ["block", "step"])
def test_gradients_against_finite_differences(form):
    system, prior, values, observed = problem((Trend(damped=True), Level(damped=True), Season(3)), CASES[1])

    def run(*leaves):
        model, start, y = rebuild(system, leaves)
        if form == "step":
            filtered = kalman.filter(model, start, y[:8], observed[:8])
            return filtered.log_likelihood, filtered.belief.mean, filtered.belief.cov
        belief, terms = model.posterior(start, y, observed)
        return terms, belief.mean, belief.cov

    assert torch.autograd.gradcheck(run, leaves_of(system, prior, values), fast_mode=True)


@pytest.mark.parametrize(
    "components", [SUMS[8], SUMS[9], SUMS[11], SUMS[13]], ids=lambda c: "+".join(type(x).__name__ for x in c)
)
@pytest.mark.parametrize("case", [CASES[1], CASES[3]])
def test_vmap_of_grad_equals_a_loop(components, case):
    """Each series is a function of its own parameters, phase, mask, start and data; and with the data shared by all."""
    system, prior, values, observed = problem(components, case)
    axes = [1, 1, 0, 1, 0, 0, 1]
    leaves = [x.detach().movedim(axis, 0) for x, axis in zip(leaves_of(system, prior, values), axes, strict=True)]
    begun = torch.ones(3, STEPS, dtype=torch.bool) if system.active is None else system.active.mT
    arguments = leaves, observed.movedim(1, 0), system.index.movedim(1, 0), begun

    def loss(leaves, mask, index, active):
        model, start, y = rebuild(system, leaves, index)
        model = dataclasses.replace(model, active=None if system.active is None else active)
        return model.log_likelihood(start, y, None if system.active is None else mask).square().sum()

    together = torch.func.vmap(torch.func.grad(loss))(*arguments)
    data, mask, index = values[:, 0], observed[:, 0], system.index[:, 0]
    on_one_series = torch.func.vmap(torch.func.grad(loss), in_dims=([0] * 6 + [None], None, None, None))
    shared = on_one_series([*leaves[:6], data], mask, index, begun[0])
    for i in range(3):
        alone = torch.func.grad(loss)([x[i] for x in leaves], *(x[i] for x in arguments[1:]))
        on_shared = torch.func.grad(loss)([*(x[i] for x in leaves[:6]), data], mask, index, begun[0])
        for ours, expected in zip([x[i] for x in (*together, *shared)], (*alone, *on_shared), strict=True):
            torch.testing.assert_close(ours, expected, **EXACT)


def test_a_covariance_shared_by_all_series_equals_one_of_each():
    """Shared phases, parameters and no missing values, against copies of everything."""
    system, prior, values, _ = problem((Level(), Harmonics(20, 2), Season(3)), CASES[0])
    shared, terms = system.posterior(prior, values)
    assert shared.cov.shape == (8, 8)
    wide = lambda x, n: x.unsqueeze(1).expand(x.shape[0], 3, *x.shape[1:]).clone() if n else x.expand(3, *x.shape)  # noqa: E731
    names = ("index", "state_noise", "emission_noise", "damping", "offset")
    copies = dataclasses.replace(system, **{n: wide(getattr(system, n), n != "damping") for n in names})
    own, own_terms = copies.posterior(map_tensors(lambda x: x.expand(3, *x.shape).clone(), prior), values)
    assert own.cov.shape == (3, 8, 8)
    torch.testing.assert_close(own_terms, terms, **EXACT)
    same(own, shared)


def test_particles_and_series_broadcast():
    """A prior of particles and series, parameters of series: each pair equals itself alone."""
    system, prior, values, observed = problem((Trend(), Season(3), Harmonics(30, 2)), CASES[1])
    rng = generator(5)
    prior = random_gaussian((2, 3), system.num_states, rng)
    expected = kalman.filter(textbook(system), prior, values, observed)
    for terms in (
        system.log_likelihood(prior, values, observed),
        kalman.filter(system, prior, values, observed).log_likelihood,
    ):
        assert terms.shape == (STEPS, 2, 3)
        torch.testing.assert_close(terms, expected.log_likelihood, **EXACT)
        one = map_tensors(lambda x: x[1], prior)
        torch.testing.assert_close(terms[:, 1], system.log_likelihood(one, values, observed), **EXACT)


def test_simulated_paths_have_the_moments_of_the_joint_predictive():
    """Within five standard errors, computed from the closed form; noises are singular."""
    rng, count, steps = generator(6), 20_000, 8
    system, prior, *_ = problem((Level(damped=True), Season(3), Harmonics(9, 1)), CASES[1])
    states, values = kalman.simulate(system, prior, steps, count, rng, first=4)
    later = dataclasses.replace(system, index=system.index[4:])
    for samples, expected in (
        (values[..., 0].movedim(0, -1), later.predictive(prior, steps)),
        (states[-1], map_tensors(lambda x: x[-1], kalman.forecast(system, prior, steps, first=4)[0])),
    ):
        centred, variance = samples - expected.mean, expected.variance
        assert (centred.mean(0).abs() < 5 * (variance / count).sqrt()).all()
        spread = torch.einsum("nsi,nsj->sij", centred, centred) / count
        bound = ((expected.cov.square() + variance[..., :, None] * variance[..., None, :]) / count).sqrt()
        assert ((spread - expected.cov).abs() < 5 * bound).all()


def test_posterior_paths_have_the_moments_of_the_smoother():
    rng, count = generator(7), 20_000
    system, prior, values, observed = problem((Level(), Season(3)), CASES[1])
    system, values, observed = map_tensors(lambda x: x[:9] if x.shape[0] == STEPS else x, (system, values, observed))
    paths = kalman.sample_posterior(system, prior, values, observed, count, rng)
    smoothed = kalman.smooth(system, prior, values, observed)
    centred, variance = paths.movedim(1, 0) - smoothed.states.mean, smoothed.states.variance
    assert (centred.mean(0).abs() <= 5 * (variance / count).sqrt() + 1e-9).all()
    across = torch.einsum("ntsi,ntsj->tsij", centred[:, 1:], centred[:, :-1]) / count
    cross = smoothed.cross[1:]
    bound = ((cross.square() + variance[1:, ..., :, None] * variance[:-1, ..., None, :]) / count).sqrt()
    assert ((across - cross).abs() <= 5 * bound + 1e-9).all()


@pytest.mark.parametrize("form", ["block", "step"])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("spoilt", ["emission_noise", "state_noise", "offset", "values"])
def test_a_failure_names_step_and_series_with_advice(form, grad, spoilt):
    """A NaN noise spoils its whole block of twelve steps, and the block form says so."""
    system, prior, values, _ = problem((Level(), Season(3)), CASES[2])
    tensor = values if spoilt == "values" else getattr(system, spoilt)
    tensor[17, 1] = -50.0 if spoilt == "emission_noise" else float("nan")
    system.damping.requires_grad_(grad)
    prior.mean.requires_grad_(grad)
    run = kalman.filter if form == "step" else ISSM.posterior
    with pytest.raises(NotPositiveDefiniteError) as caught:
        run(system, prior, values)
    message = str(caught.value).lower()
    if (form, spoilt) == ("block", "state_noise"):
        assert "step 12" in message
        assert "12 steps are taken at once" in message
    else:
        assert "step 17" in message
    assert "series 1" in message
    assert "try float64" in message


def test_what_stands_in_missing_positions_has_no_influence():
    system, prior, values, observed = problem((Trend(), Season(3)), CASES[1])
    leaves, results = leaves_of(system, prior, values)[:6], []
    for filler in (0.0, 1e8):
        for form in (ISSM.log_likelihood, lambda *x: kalman.filter(*x).log_likelihood):
            terms = form(*rebuild(system, [*leaves, torch.where(observed, values, filler)]), observed)
            results.append([terms, *torch.autograd.grad(terms.sum(), leaves, allow_unused=True)])
    for one, two in zip(results[:2], results[2:], strict=True):
        for x, y in zip(one, two, strict=True):
            assert (x is None and y is None) or torch.equal(x, y)


@pytest.mark.parametrize("cut", [12, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filtering_on_equals_filtering_at_once(cut, dtype):
    """Step form at any cut; the block form where the cut is between blocks (elsewhere its blocks differ).

    The latter to rounding: on some processors a product of many matrices depends on how many there are.
    """
    to = lambda x: x.to(dtype) if x.is_floating_point() else x  # noqa: E731
    system, prior, values, observed = map_tensors(
        to, problem((Trend(damped=True), Season(3), Harmonics(30, 2)), CASES[1])
    )
    whole = kalman.filter(system, prior, values, observed)
    one = kalman.filter(system, prior, values[:cut], observed[:cut])
    two = kalman.filter(system, one.belief, values[cut:], observed[cut:], first=cut)
    assert torch.equal(torch.cat([one.log_likelihood, two.log_likelihood]), whole.log_likelihood)
    assert torch.equal(two.filtered.cov, whole.filtered.cov[cut:])
    if cut == system.block_shape(STEPS)[0]:
        later = map_tensors(lambda x: x[cut:] if x.shape[0] == STEPS else x, system)
        belief, terms = system.posterior(prior, values[:cut], observed[:cut])
        belief, more = later.posterior(belief, values[cut:], observed[cut:])
        end, all_terms = system.posterior(prior, values, observed)
        rounding = 500 * torch.finfo(dtype).eps  # of sums over the hundreds of products of a block
        tolerance = {"rtol": rounding, "atol": rounding}
        torch.testing.assert_close(torch.cat([terms, more]), all_terms, **tolerance)
        torch.testing.assert_close(belief.cov, end.cov, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_live_where_the_inputs_do(dtype):
    """Every default is set to something else, so that a tensor made without the inputs' device and dtype shows."""
    to = lambda x: x.to(dtype) if x.is_floating_point() else x  # noqa: E731
    system, prior, values, observed = map_tensors(
        to, problem((Trend(damped=True), Harmonics(9, 1), Season(3)), CASES[1])
    )
    rng = generator(8)
    torch.set_default_dtype(torch.float32 if dtype == torch.float64 else torch.float64)
    try:
        with torch.device("meta"):
            tensors = [
                *system.posterior(prior, values, observed)[:1],
                kalman.smooth(system, prior, values, observed).states,
                kalman.simulate(system, prior, 3, 2, rng),
                system.predictive(prior, 5),
            ]
    finally:
        torch.set_default_dtype(torch.float32)
    leaves = torch.utils._pytree.tree_leaves(tensors)
    assert {x.dtype for x in leaves} == {dtype}
    assert {x.device.type for x in leaves} == {"cpu"}


def test_slices_name_the_states_of_each_component():
    system, *_ = problem((Trend(), Season(3), Level()), CASES[0])
    assert system.slices() == [slice(0, 2), slice(2, 5), slice(5, 6)]
    assert system.num_states == 6
    assert [c.noises for c in system.components] == [("level", "slope"), ("season",), ("level",)]


@pytest.mark.parametrize("case", CASES[1:3])
@pytest.mark.parametrize("components", SUMS[-3:])
def test_disturbances_by_structure_are_those_of_the_matrices(components, case):
    rng = generator(3)
    system = random_issm(components, case, 2, rng)
    prior = random_gaussian((2,), sum(c.size for c in components), rng)
    values, observed = random_data((STEPS, 2), 1, rng)
    ours, dense = (disturbances(one, prior, values, observed) for one in (system, textbook(system)))
    for name in ("predicted", "others"):
        for mine, its in zip(getattr(ours, name), getattr(dense, name), strict=True):
            torch.testing.assert_close(mine, its, **EXACT)
    torch.testing.assert_close(ours.shocks, dense.shocks, **EXACT)


@pytest.mark.parametrize("case", CASES)
def test_no_steps_leave_the_prior(case):
    rng = generator(0)
    system = random_issm((Level(), Season(3)), case, 4, rng)
    prior = random_gaussian((4,), system.num_states, rng)
    for values in (torch.zeros(0, 4, 1, dtype=torch.float64), torch.zeros(0, 1, 1, dtype=torch.float64)):
        for observed in (None, values.bool()):
            belief, terms = system.posterior(prior, values, observed)
            same(belief, prior)
            assert terms.shape == (0, 4)
            assert system.log_likelihood(prior, values, observed).shape == (0, 4)
            assert all(x.shape == (0, 4) for x in system.innovations(prior, values, observed)[1:])
