import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import (
    generator,
    joint,
    plain,
    plain_log_likelihood,
    random_conditional,
    random_data,
    random_gaussian,
    random_system,
    rts_smoother,
    statsmodels_smoother,
)
from tsforecast.core import (
    AbstractLinearSystem,
    Gaussian,
    LinearGaussian,
    LinearSystem,
    NotPositiveDefiniteError,
    kalman,
    map_tensors,
)

EXACT = {"rtol": 1e-8, "atol": 1e-8}
STEPS = 9


def assert_same(actual, expected):
    torch.testing.assert_close(torch.as_tensor(np.asarray(actual)), torch.as_tensor(np.asarray(expected)), **EXACT)


def problem(seed: int, time: int, states: int = 3, targets: int = 2):
    rng = generator(seed)
    system, prior = random_system((time,), states, targets, rng), random_gaussian((), states, rng)
    values, observed = random_data((STEPS,), targets, rng)
    return system, prior, values, observed


@pytest.mark.parametrize("time", [1, STEPS])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("states", "targets"), [(3, 2), (2, 3), (1, 1)])
def test_filter_and_smoother_equal_the_joint_gaussian_conditioned_directly(time, missing, states, targets):
    """Oracle: the joint density of all states and observations, without recursion."""
    system, prior, values, observed = problem(time, time, states, targets)
    observed = observed if missing else torch.ones_like(observed)
    filtered = kalman.filter(system, prior, values, observed)
    smoothed = kalman.smooth(system, prior, values, observed)
    dense, y, seen = joint(plain(system, prior, STEPS)), values.numpy(), observed.numpy()
    before = 0.0
    for t in range(1, STEPS + 1):
        at = dense.state(t)
        for belief, until in ((filtered.predicted, t - 1), (filtered.filtered, t), (smoothed.states, STEPS)):
            mean, cov = dense.given(y, seen, until)
            assert_same(belief.mean[t - 1], mean[at])
            assert_same(belief.cov[t - 1], cov[at, at])
        assert_same(smoothed.cross[t - 1], cov[at, dense.state(t - 1)])
        now = dense.log_density(y, seen, t)
        assert_same(filtered.log_likelihood[t - 1], now - before)
        before = now
    assert_same(smoothed.initial.mean, mean[dense.state(0)])
    assert_same(smoothed.initial.cov, cov[dense.state(0), dense.state(0)])
    torch.testing.assert_close(smoothed.log_likelihood, filtered.log_likelihood, rtol=0, atol=0)


@pytest.mark.parametrize("time", [1, 40])
@pytest.mark.parametrize("targets", [1, 3])
def test_filter_and_smoother_equal_statsmodels(time, targets):
    """Oracle: statsmodels' KalmanSmoother, with whole and partial missing observations."""
    rng = generator(targets)
    system, prior = random_system((time,), 4, targets, rng), random_gaussian((), 4, rng)
    values, observed = random_data((40,), targets, rng)
    theirs = statsmodels_smoother(plain(system, prior, 40), values.numpy(), observed.numpy())
    ours = kalman.smooth(system, prior, values, observed)
    forward = kalman.filter(system, prior, values, observed)
    assert_same(ours.log_likelihood, theirs.llf_obs)
    assert_same(forward.predicted.mean, theirs.predicted_state[:, :-1].T)
    assert_same(forward.predicted.cov, np.moveaxis(theirs.predicted_state_cov[:, :, :-1], -1, 0))
    assert_same(forward.filtered.mean, theirs.filtered_state.T)
    assert_same(forward.filtered.cov, np.moveaxis(theirs.filtered_state_cov, -1, 0))
    assert_same(ours.states.mean, theirs.smoothed_state.T)
    assert_same(ours.states.cov, np.moveaxis(theirs.smoothed_state_cov, -1, 0))
    assert_same(ours.cross[1:], np.moveaxis(theirs.smoothed_state_autocovariance(lag=1), -1, 0)[1:])


def test_smoother_equals_the_form_of_rauch_tung_and_striebel():
    """Oracle: the recursion with the gain V A' (V^-)^{-1}, written in NumPy."""
    system, prior, values, observed = problem(3, STEPS)
    forward = kalman.filter(system, prior, values, observed).filtered
    pairs = [(prior.mean.numpy(), prior.cov.numpy()), *zip(forward.mean.numpy(), forward.cov.numpy(), strict=True)]
    means, covs, crosses = rts_smoother(plain(system, prior, STEPS), pairs)
    ours = kalman.smooth(system, prior, values, observed)
    assert_same(torch.cat([ours.initial.mean[None], ours.states.mean]), np.stack(means))
    assert_same(torch.cat([ours.initial.cov[None], ours.states.cov]), np.stack(covs))
    assert_same(ours.cross, np.stack(crosses))


def test_smoother_stands_a_singular_state():
    """A state known exactly, and a copy of another: the joint Gaussian conditioned directly is the oracle."""
    system, prior, values, observed = problem(4, 1)
    pad = lambda x: torch.nn.functional.pad(x, (0, 2, 0, 2))  # noqa: E731
    a = pad(system.transition.matrix)
    a[:, 3, 3] = 1
    a[:, 4] = a[:, 0]
    r = pad(system.transition.noise)
    r[:, 4], r[:, :, 4] = r[:, 0].clone(), r[:, :, 0].clone()
    r[:, 4, 4] = r[:, 0, 0]
    transition = LinearGaussian(a, torch.nn.functional.pad(system.transition.offset, (0, 2)), r)
    transition.offset[:, 4] = transition.offset[:, 0]
    matrix = torch.nn.functional.pad(system.emission.matrix, (0, 2), value=0.5)
    emission = LinearGaussian(matrix, system.emission.offset, system.emission.noise)
    system = LinearSystem(transition, emission)
    prior = Gaussian(torch.nn.functional.pad(prior.mean, (0, 2), value=0.7), pad(prior.cov))
    ours = kalman.smooth(system, prior, values, observed)
    dense = joint(plain(system, prior, STEPS))
    mean, cov = dense.given(values.numpy(), observed.numpy(), STEPS)
    for t in range(1, STEPS + 1):
        assert_same(ours.states.mean[t - 1], mean[dense.state(t)])
        assert_same(ours.states.cov[t - 1], cov[dense.state(t), dense.state(t)])
        assert_same(ours.cross[t - 1], cov[dense.state(t), dense.state(t - 1)])
    assert ours.states.cov[:, 3, 3].abs().max() < 1e-12


@pytest.mark.parametrize("cut", [1, 5, 8])
@pytest.mark.parametrize("time", [1, STEPS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
def test_filtering_on_equals_filtering_at_once_bit_for_bit(cut, time, dtype, shared):
    rng = generator(cut)
    to = lambda x: x.to(dtype) if x.is_floating_point() else x  # noqa: E731
    batch = () if shared else (5,)
    system = map_tensors(to, random_system((time, *batch), 3, 2, rng))
    prior = map_tensors(to, random_gaussian(batch, 3, rng))
    values, observed = map_tensors(to, random_data((STEPS, 5), 2, rng))
    early, late = (None, None) if shared else (observed[:cut], observed[cut:])
    whole = kalman.filter(system, prior, values, None if shared else observed)
    one = kalman.filter(system, prior, values[:cut], early)
    two = kalman.filter(system, one.belief, values[cut:], late, first=cut)
    assert torch.equal(torch.cat([one.log_likelihood, two.log_likelihood]), whole.log_likelihood)
    assert torch.equal(two.filtered.mean, whole.filtered.mean[cut:])
    assert torch.equal(two.predicted.cov, whole.predicted.cov[cut:])
    assert torch.equal(two.belief.cov, whole.belief.cov)


@pytest.mark.parametrize("time", [1, STEPS])
def test_batch_dimensions_broadcast_and_each_index_equals_itself_alone(time):
    """Particles and series: parameters of particles, data and masks of series, a prior of both."""
    rng = generator(0)
    particles, series = 2, 3
    transition = random_conditional((time, particles, 1), 3, 3, rng)
    emission = random_conditional((time, series), 2, 3, rng)
    system, prior = LinearSystem(transition, emission), random_gaussian((particles, series), 3, rng)
    values, observed = random_data((STEPS, series), 2, rng)
    smoothed = kalman.smooth(system, prior, values, observed)
    terms = kalman.filter(system, prior, values, observed).log_likelihood
    in_blocks = system.log_likelihood(prior, values, observed)
    assert terms.shape == (STEPS, particles, series)
    for p in range(particles):
        for s in range(series):
            dense = joint(plain(system, prior, STEPS, (p, s)))
            y, seen = values[:, s].numpy(), observed[:, s].numpy()
            mean, cov = dense.given(y, seen, STEPS)
            assert_same(smoothed.states.mean[-3, p, s], mean[dense.state(STEPS - 2)])
            assert_same(smoothed.cross[0, p, s], cov[dense.state(1), dense.state(0)])
            assert_same(terms[:, p, s].sum(), dense.log_density(y, seen, STEPS))
            assert_same(in_blocks[:, p, s].sum(), dense.log_density(y, seen, STEPS))


@pytest.mark.parametrize("time", [1, STEPS])
def test_a_covariance_shared_by_all_series_is_computed_once(time):
    """Shared parameters and no missing values: one covariance; the batched route, forced by copies, is the oracle."""
    rng = generator(1)
    system, prior = random_system((time,), 3, 2, rng), random_gaussian((), 3, rng)
    values, _ = random_data((STEPS, 6), 2, rng)
    shared = kalman.smooth(system, prior, values)
    assert shared.states.cov.shape == (STEPS, 1, 3, 3)
    assert shared.states.batch_shape == (STEPS, 6)
    assert shared.cross.shape == (STEPS, 1, 3, 3)
    assert kalman.filter(system, prior, values).belief.cov.shape == (3, 3)
    assert kalman.forecast(system, system.posterior(prior, values)[0], 4)[1].batch_shape == (4, 6)
    copied = Gaussian(prior.mean.expand(6, 3), prior.cov.expand(6, 3, 3).contiguous())
    batched = kalman.smooth(system, copied, values, torch.ones_like(values, dtype=torch.bool))
    assert batched.states.cov.shape == (STEPS, 6, 3, 3)
    torch.testing.assert_close(shared.states.mean, batched.states.mean, **EXACT)
    torch.testing.assert_close(shared.states.cov.expand(-1, 6, -1, -1), batched.states.cov, **EXACT)
    torch.testing.assert_close(shared.log_likelihood, batched.log_likelihood, **EXACT)
    belief, terms = system.posterior(prior, values)
    assert belief.cov.shape == (3, 3)
    torch.testing.assert_close(terms, batched.log_likelihood, **EXACT)
    belief_copied, terms_copied = system.posterior(copied, values, torch.ones_like(values, dtype=torch.bool))
    torch.testing.assert_close(terms_copied, terms, **EXACT)
    torch.testing.assert_close(belief_copied.mean, belief.mean, **EXACT)
    torch.testing.assert_close(belief_copied.cov, belief.cov.expand(6, 3, 3), **EXACT)


def test_inputs_enter_through_the_offsets():
    """Oracle: x_t = A x_{t-1} + B u_t, y_t = C x_t + D u_t without noise, written out; the filter expects just that."""
    rng = generator(2)
    b, d = torch.randn(3, 2, generator=rng).double(), torch.randn(1, 2, generator=rng).double()
    inputs = torch.randn(STEPS, 2, generator=rng).double()
    constant = random_system((1,), 3, 1, rng)
    prior = random_gaussian((), 3, rng)
    system = LinearSystem(
        LinearGaussian(constant.transition.matrix, inputs @ b.T, constant.transition.noise),
        LinearGaussian(constant.emission.matrix, inputs @ d.T, constant.emission.noise),
    )
    state, expected = prior.mean, []
    for u in inputs:
        state = constant.transition.matrix[0] @ state + b @ u
        expected.append(constant.emission.matrix[0] @ state + d @ u)
    _, observations = kalman.forecast(system, prior, STEPS)
    torch.testing.assert_close(observations.mean, torch.stack(expected), **EXACT)
    terms = kalman.filter(system, prior, torch.stack(expected)).log_likelihood
    centred = LinearSystem(
        LinearGaussian(constant.transition.matrix, torch.zeros(1, 3).double(), constant.transition.noise),
        LinearGaussian(constant.emission.matrix, torch.zeros(1, 1).double(), constant.emission.noise),
    )
    at_zero = kalman.filter(centred, Gaussian(torch.zeros(3).double(), prior.cov), torch.zeros(STEPS, 1).double())
    torch.testing.assert_close(terms, at_zero.log_likelihood, **EXACT)


@pytest.mark.parametrize("missing", [False, True])
def test_gradients_of_filter_and_smoother_against_finite_differences(missing):
    rng = generator(7)
    system, prior = random_system((1, 2), 2, 2, rng), random_gaussian((2,), 2, rng)
    values, observed = random_data((3, 2), 2, rng)

    def run(a, b, r, c, d, q, m, v, y):
        r, q, v = (0.5 * (x + x.mT) for x in (r, q, v))
        model = LinearSystem(LinearGaussian(a, b, r), LinearGaussian(c, d, q))
        out = kalman.smooth(model, Gaussian(m, v), y, observed if missing else None)
        return out.log_likelihood, out.states.mean, out.states.cov, out.cross, out.initial.cov

    transition, emission = system.transition, system.emission
    leaves = [transition.matrix, transition.offset, transition.noise, emission.matrix, emission.offset, emission.noise]
    leaves = [x.requires_grad_() for x in (*leaves, prior.mean, prior.cov, values)]
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize("time", [1, STEPS])
def test_forecast_equals_the_joint_predictive(time):
    """Moments of each step by recursion against the diagonal of the joint, and the joint against the direct form."""
    system, prior, *_ = problem(8, time)
    _, observations = kalman.forecast(system, prior, STEPS)
    together = system.predictive(prior, STEPS)
    for alone in (system.marginals(prior, STEPS), AbstractLinearSystem.marginals(system, prior, STEPS)):
        assert_same(alone.mean, observations.mean)
        assert_same(alone.cov, observations.cov)
    dense = joint(plain(system, prior, STEPS))
    rows = dense.observations()
    assert_same(together.mean, dense.mean[rows])
    assert_same(together.cov, dense.cov[np.ix_(rows, rows)])
    assert_same(observations.mean.ravel(), together.mean)
    for t in range(STEPS):
        here = slice(2 * t, 2 * t + 2)
        assert_same(observations.cov[t], together.cov[here, here])


def assert_moments(samples: torch.Tensor, mean: torch.Tensor, cov: torch.Tensor, errors: float = 5.0):
    """Samples (sample, dim) have the given mean and covariance within some standard errors, computed here.

    Var(sample mean_i) = V_ii / n, and Var(sample cov_ij) = (V_ij^2 + V_ii V_jj) / n.
    """
    count = len(samples)
    variance = cov.diagonal()
    error = samples.mean(0) - mean
    assert (error.abs() <= errors * (variance / count).sqrt() + 1e-9).all()
    spread = (samples - mean).mT @ (samples - mean) / count - cov
    bound = ((cov.square() + variance[:, None] * variance[None, :]) / count).sqrt()
    assert (spread.abs() <= errors * bound + 1e-9).all()


def test_simulated_paths_have_the_moments_of_the_joint():
    system, prior, *_ = problem(9, STEPS)
    states, values = kalman.simulate(system, prior, STEPS, 20_000, generator(0))
    dense = joint(plain(system, prior, STEPS))
    paths = torch.cat([states.movedim(0, 1).flatten(1), values.movedim(0, 1).flatten(1)], -1)
    assert_moments(paths, torch.as_tensor(dense.mean[3:]), torch.as_tensor(dense.cov[3:, 3:]))


def test_posterior_paths_have_the_moments_of_the_joint_posterior():
    """Joint over all steps: two-slice covariances and longer ones."""
    system, prior, values, observed = problem(10, STEPS)
    paths = kalman.sample_posterior(system, prior, values, observed, 20_000, generator(0))
    mean, cov = joint(plain(system, prior, STEPS)).given(values.numpy(), observed.numpy(), STEPS)
    assert_moments(paths.movedim(0, 1).flatten(1), torch.as_tensor(mean[3:]), torch.as_tensor(cov[3:, 3:]))


def test_sampled_paths_of_a_batch_are_independent_and_end_where_observations_are_exact():
    """One prior and one system for all series: their paths differ still. One seen without noise has no spread."""
    rng = generator(11)
    transition = random_conditional((1,), 2, 2, rng)
    emission = LinearGaussian(torch.eye(2)[None].double(), torch.zeros(1, 2).double(), torch.zeros(1, 2, 2).double())
    system, prior = LinearSystem(transition, emission), random_gaussian((), 2, rng)
    values = torch.randn(3, 4, 2, generator=rng).double()
    observed = torch.ones(3, 4, 2, dtype=torch.bool)
    observed[1] = False
    paths = kalman.sample_posterior(system, prior, values, observed, 5, generator(1))
    assert paths.shape == (3, 5, 4, 2)
    torch.testing.assert_close(paths[0], values[0].expand(5, 4, 2), **EXACT)
    assert len({round(float(x), 9) for x in (paths[1] - paths[1].mean(0))[..., 0].ravel()}) == 20
    states, _ = kalman.simulate(
        LinearSystem(transition, random_conditional((1, 4), 2, 2, rng)), prior, 3, 5, generator(1)
    )
    assert states.shape == (3, 5, 4, 2)
    assert len({round(float(x), 9) for x in states[0, ..., 0].ravel()}) == 20


def test_the_same_generator_gives_the_same_paths():
    system, prior, values, observed = problem(12, 1)
    for draw in (
        lambda seed: kalman.simulate(system, prior, 4, 3, generator(seed))[1],
        lambda seed: kalman.sample_posterior(system, prior, values, observed, 3, generator(seed)),
    ):
        assert torch.equal(draw(1), draw(1))
        assert not torch.equal(draw(1), draw(2))


def test_what_stands_in_missing_positions_has_no_influence():
    system, prior, values, observed = problem(13, STEPS)
    leaves = [x.requires_grad_() for x in (system.transition.noise, system.emission.matrix, prior.mean)]
    results = []
    for filler in (0.0, 1e6, float("nan")):
        filled = torch.where(observed, values, filler)
        smoothed = kalman.smooth(system, prior, filled, observed)
        total = smoothed.log_likelihood.sum() + smoothed.states.mean.sum()
        results.append([smoothed.log_likelihood, smoothed.states.mean, *torch.autograd.grad(total, leaves)])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert torch.equal(one, two)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_the_textbook_filter_has_the_same_likelihood(seed, steps, states, targets, varying):
    """Oracle: predict, invert, update, Joseph's form, in plain torch; the missing left out by a selection."""
    rng = generator(seed)
    system, prior = random_system((steps if varying else 1,), states, targets, rng), random_gaussian((), states, rng)
    values, observed = random_data((steps,), targets, rng)
    expected = plain_log_likelihood(system, prior, values, observed)
    torch.testing.assert_close(kalman.filter(system, prior, values, observed).log_likelihood, expected, **EXACT)
    torch.testing.assert_close(system.log_likelihood(prior, values, observed), expected, **EXACT)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_splitting_a_step_in_two_changes_nothing(seed, states):
    """A transition made of two, the first with nothing observed after it, is one transition: A2 A1, A2 R1 A2' + R2."""
    rng = generator(seed)
    one, two = random_conditional((), states, states, rng), random_conditional((), states, states, rng)
    emission, prior = random_conditional((1,), 2, states, rng), random_gaussian((), states, rng)
    value = torch.randn(1, 2, generator=rng).double()
    pairs = (one.matrix, two.matrix), (one.offset, two.offset), (one.noise, two.noise)
    halves = LinearSystem(LinearGaussian(*(torch.stack(x) for x in pairs)), emission)
    whole = LinearGaussian(
        (two.matrix @ one.matrix)[None],
        (two.matrix @ one.offset + two.offset)[None],
        (two.matrix @ one.noise @ two.matrix.T + two.noise)[None],
    )
    observed = torch.tensor([[False, False], [True, True]])
    split = kalman.filter(halves, prior, torch.cat([value, value]), observed)
    at_once = kalman.filter(LinearSystem(whole, emission), prior, value)
    torch.testing.assert_close(split.belief.mean, at_once.belief.mean, **EXACT)
    torch.testing.assert_close(split.belief.cov, at_once.belief.cov, **EXACT)
    torch.testing.assert_close(split.log_likelihood.sum(), at_once.log_likelihood.sum(), **EXACT)
    assert split.log_likelihood[0] == 0


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3), st.permutations(range(4)))
def test_missing_equals_absent_and_the_order_of_components_does_not_matter(seed, states, order):
    """Four components of which two are missing against a system which never had those two, in any order."""
    rng = generator(seed)
    system, prior = random_system((1,), states, 4, rng), random_gaussian((), states, rng)
    values = torch.randn(5, 4, generator=rng).double()
    kept, order = list(order)[:2], list(order)
    observed = torch.zeros(5, 4, dtype=torch.bool)
    observed[:, kept] = True

    def select(index):
        e = system.emission
        return LinearSystem(
            system.transition, LinearGaussian(e.matrix[:, index], e.offset[:, index], e.noise[:, index][:, :, index])
        )

    expected = kalman.smooth(system, prior, values, observed)
    absent = kalman.smooth(select(kept), prior, values[:, kept])
    permuted = kalman.smooth(select(order), prior, values[:, order], observed[:, order])
    for other in (absent, permuted):
        torch.testing.assert_close(other.log_likelihood, expected.log_likelihood, **EXACT)
        torch.testing.assert_close(other.states.mean, expected.states.mean, **EXACT)
        torch.testing.assert_close(other.cross, expected.cross, **EXACT)


@pytest.mark.parametrize("route", [kalman.filter, lambda *args: args[0].posterior(*args[1:])])
@pytest.mark.parametrize(
    ("spoil", "step", "series"),
    [
        (lambda s: s.emission.noise[3, 1].mul_(-9), 3, 1),
        (lambda s: s.transition.noise[2, 2].fill_(float("nan")), 2, 2),
        (lambda s: s.transition.matrix[4, 0, 0].fill_(float("nan")), 4, 0),
        (lambda s: s.emission.offset[1, 2].fill_(float("nan")), 1, 2),
        (lambda s: s.emission.matrix[1, 1].fill_(float("inf")), 1, 1),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_a_failure_names_step_and_series_with_advice(route, spoil, step, series, grad):
    rng = generator(14)
    system, prior = random_system((6, 3), 2, 2, rng), random_gaussian((3,), 2, rng)
    values, _ = random_data((6, 3), 2, rng)
    spoil(system)
    prior.mean.requires_grad_(grad)
    with pytest.raises(NotPositiveDefiniteError) as caught:
        route(system, prior, values)
    message = str(caught.value).lower()
    assert f"step {step}" in message
    assert f"series {series}" in message
    assert "try float64" in message


@pytest.mark.parametrize("route", [kalman.filter, lambda *args: args[0].posterior(*args[1:])])
@pytest.mark.parametrize("time", [1, STEPS])
def test_a_nan_in_the_data_is_found_also_where_series_share_a_covariance(route, time):
    system, prior, *_ = problem(19, time)
    values, _ = random_data((STEPS, 4), 2, generator(0))
    values[5, 2, 1] = float("nan")
    with pytest.raises(NotPositiveDefiniteError, match=r"(?i)step 5, series 2"):
        route(system, prior, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_live_where_the_inputs_do(dtype):
    """Every default is set to something else, so that a tensor made without the inputs' device and dtype shows."""
    rng = generator(15)
    system, prior = random_system((1, 2), 3, 2, rng), random_gaussian((2,), 3, rng)
    values, observed = random_data((4, 2), 2, rng)
    to = lambda x: x.to(dtype) if x.is_floating_point() else x  # noqa: E731
    system, prior, values = (map_tensors(to, x) for x in (system, prior, values))
    torch.set_default_dtype(torch.float32 if dtype == torch.float64 else torch.float64)
    try:
        with torch.device("meta"):
            smoothed = kalman.smooth(system, prior, values, observed)
            tensors = [
                *(smoothed.states.mean, smoothed.states.cov, smoothed.cross, smoothed.log_likelihood),
                *kalman.simulate(system, prior, 3, 2, rng),
                kalman.sample_posterior(system, prior, values, observed, 2, rng),
                kalman.forecast(system, prior, 3)[1].cov,
                system.posterior(prior, values, observed)[0].cov,
                system.predictive(prior, 3).cov,
            ]
    finally:
        torch.set_default_dtype(torch.float32)
    assert {x.dtype for x in tensors} == {dtype}
    assert {x.device.type for x in tensors} == {"cpu"}


def test_float32_is_close_to_float64():
    """A hundred steps, well scaled: log-likelihood and moments to the level of rounding."""
    rng = generator(16)
    system, prior = random_system((1, 3), 4, 2, rng), random_gaussian((3,), 4, rng)
    values, observed = random_data((100, 3), 2, rng)
    single = map_tensors(lambda x: x.float(), (system, prior, values))
    exact = kalman.smooth(system, prior, values, observed)
    close = kalman.smooth(*single, observed)
    torch.testing.assert_close(close.log_likelihood.sum(0).double(), exact.log_likelihood.sum(0), rtol=1e-5, atol=0)
    torch.testing.assert_close(close.states.mean.double(), exact.states.mean, rtol=1e-4, atol=1e-4)
    assert torch.linalg.eigvalsh(close.states.cov).min() > 0


def test_no_step_is_refused():
    system, prior, values, _ = problem(17, 1)
    with pytest.raises(ValueError, match="at least 1"):
        kalman.filter(system, prior, values[:0])


def test_second_derivatives_are_available_in_the_step_form():
    """Oracle: finite differences of the gradient."""
    system, prior, values, observed = problem(18, 1)
    noise = system.emission.noise.clone().requires_grad_()

    def value(noise):
        model = LinearSystem(system.transition, LinearGaussian(*_replace(system.emission, 0.5 * (noise + noise.mT))))
        return kalman.filter(model, prior, values, observed).log_likelihood.sum()

    assert torch.autograd.gradgradcheck(value, (noise,), fast_mode=True)


def _replace(emission, noise):
    return emission.matrix, emission.offset, noise
