import numpy as np
import pytest
import torch

from tests.oracles import generator, joint, plain, random_data, random_gaussian, random_system
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, em_step, expected_log_joint, kalman, map_tensors

EXACT = {"rtol": 1e-8, "atol": 1e-8}


def with_inputs(system: LinearSystem, steps: int, rng: torch.Generator) -> LinearSystem:
    """Offsets that vary with time."""
    vary = lambda x: x + torch.randn(steps, *x.shape[1:], generator=rng).double()  # noqa: E731
    return LinearSystem(
        LinearGaussian(system.transition.matrix, vary(system.transition.offset), system.transition.noise),
        LinearGaussian(system.emission.matrix, vary(system.emission.offset), system.emission.noise),
    )


@pytest.mark.parametrize("missing", [False, True])
def test_one_step_equals_the_regressions_on_completed_data(missing):
    """Oracle: first and second moments of all states *and missing observations* from the joint Gaussian conditioned
    directly, then the textbook's regressions in NumPy. Steps without any observation take no part in the emission's.
    """
    rng, steps, series = generator(0), 7, 3
    system, prior = with_inputs(random_system((1,), 2, 3, rng), steps, rng), random_gaussian((), 2, rng)
    values, observed = random_data((steps, series), 3, rng)
    observed = observed if missing else torch.ones_like(observed)
    new, new_prior, _ = em_step(system, prior, values, observed if missing else None)
    model = plain(system, prior, steps)
    dense = joint(model)
    moments = []  # E[z z'] of z = (x_{t-1}, x_t, y_t) without offsets, for every step
    starts = []
    for s in range(series):
        y, seen = values[:, s].numpy(), observed[:, s].numpy()
        rows = dense.observations()[seen.ravel()]
        gain = np.linalg.solve(dense.cov[np.ix_(rows, rows)], dense.cov[rows]).T
        mean = dense.mean + gain @ (y.ravel()[seen.ravel()] - dense.mean[rows])
        cov = dense.cov - gain @ dense.cov[rows]
        starts.append((mean[:2], cov[:2, :2]))
        for t in range(1, steps + 1):
            index = np.r_[dense.state(t - 1), dense.state(t), dense.observations()[(t - 1) * 3 : t * 3]]
            centred = mean[index] - np.concatenate([np.zeros(2), model.b[t - 1], model.d[t - 1]])
            centred_state = mean[dense.state(t)]
            second = cov[np.ix_(index, index)] + np.outer(centred, centred)
            state_and_target = cov[np.ix_(index[4:], index[2:4])] + np.outer(centred[4:], centred_state)
            state_state = cov[np.ix_(index[2:4], index[2:4])] + np.outer(centred_state, centred_state)
            moments.append((second, state_and_target, state_state, seen[t - 1].any()))
    second = sum(m[0] for m in moments)
    a = second[2:4, :2] @ np.linalg.inv(second[:2, :2])
    r = (second[2:4, 2:4] - a @ second[2:4, :2].T) / (steps * series)
    used = [m for m in moments if m[3]]
    cross, states = sum(m[1] for m in used), sum(m[2] for m in used)
    c = cross @ np.linalg.inv(states)
    q = (sum(m[0][4:, 4:] for m in used) - c @ cross.T) / len(used)
    m0 = sum(m for m, _ in starts) / series
    v0 = sum(v + np.outer(m - m0, m - m0) for m, v in starts) / series
    for ours, expected in (
        *((new.transition.matrix[0], a), (new.transition.noise[0], r)),
        *((new.emission.matrix[0], c), (new.emission.noise[0], q)),
        *((new_prior.mean, m0), (new_prior.cov, v0)),
    ):
        torch.testing.assert_close(ours, torch.as_tensor(expected), **EXACT)
    assert torch.equal(new.transition.offset, system.transition.offset)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("missing", [True, False])
def test_the_likelihood_never_falls(shared, missing):
    rng, steps, series = generator(1), 12, 4
    batch = () if shared else (series,)
    system, prior = random_system((1, *batch), 2, 2, rng), random_gaussian(batch, 2, rng)
    values, observed = random_data((steps, series), 2, rng)
    totals = []
    for _ in range(12):
        system, prior, terms = em_step(system, prior, values, observed if missing else None)
        totals.append(terms.sum() if shared else terms.sum(0))
    gains = torch.stack(totals).diff(dim=0)
    assert (gains > -1e-9).all()
    assert (gains[0] > 1e-3).all()  # and it does something


def test_parameters_of_each_series_are_those_of_the_series_alone():
    rng = generator(2)
    system, prior = random_system((1, 3), 2, 2, rng), random_gaussian((3,), 2, rng)
    values, observed = random_data((12, 3), 2, rng)
    together = em_step(system, prior, values, observed)
    for s in range(3):
        one = map_tensors(lambda x, s=s: x[:, s : s + 1], system), map_tensors(lambda x, s=s: x[s : s + 1], prior)
        alone = em_step(*one, values[:, s : s + 1], observed[:, s : s + 1])
        torch.testing.assert_close(together[0].transition.matrix[:, s], alone[0].transition.matrix[:, 0], **EXACT)
        torch.testing.assert_close(together[0].emission.noise[:, s], alone[0].emission.noise[:, 0], **EXACT)
        torch.testing.assert_close(together[1].cov[s], alone[1].cov[0], **EXACT)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_no_parameter_can_raise_the_expected_log_joint_further(batch):
    """Its gradient at the new parameters, by autograd, is zero: for all of them, shared or of each series."""
    rng = generator(3)
    system, prior = with_inputs(random_system((1, *batch), 2, 2, rng), 6, rng), random_gaussian(batch, 2, rng)
    values, _ = random_data((6, 3), 2, rng)
    smoothed = kalman.smooth(system, prior, values)
    (system, prior, _) = em_step(system, prior, values)
    leaves = [system.transition.matrix, system.transition.noise, system.emission.matrix, system.emission.noise]
    leaves = [x.requires_grad_() for x in (*leaves, prior.mean, prior.cov)]
    total = expected_log_joint(system, prior, smoothed, values).sum()
    for slope in torch.autograd.grad(total, leaves):
        torch.testing.assert_close(slope, torch.zeros_like(slope), **EXACT)


def test_recovers_the_law_of_simulated_data():
    """The state's basis is free, so what is compared is the stationary autocovariance of the observations.

    Bound: standard errors of the same statistic over the series, computed here.
    """
    rng, steps, series = generator(4), 10, 300
    rotation, eye = torch.tensor([[[0.8, 0.3], [-0.3, 0.8]]]).double(), torch.eye(2).double()[None]
    nothing, matrix = torch.zeros(1, 2).double(), torch.tensor([[[1.0, 0.0], [0.5, 1.0]]]).double()
    truth = LinearSystem(LinearGaussian(rotation, nothing, 0.3 * eye), LinearGaussian(matrix, nothing, 0.2 * eye))
    belief = Gaussian(nothing[0], 0.3 / 0.27 * eye[0])  # stationary
    _, values = kalman.simulate(truth, belief, steps, series, rng)
    observed = torch.rand(values.shape, generator=rng) > 0.15
    start = random_system((1,), 2, 2, rng)
    fitted = LinearSystem(
        LinearGaussian(start.transition.matrix, nothing, eye), LinearGaussian(start.emission.matrix, nothing, eye)
    )
    for _ in range(25):
        fitted, belief, _ = em_step(fitted, belief, values, observed)

    def autocovariance(system, lag):
        a, r = system.transition.matrix[0], system.transition.noise[0]
        c, q = system.emission.matrix[0], system.emission.noise[0]
        cov = torch.linalg.solve(torch.eye(4).double() - torch.kron(a, a), r.reshape(-1)).reshape(2, 2)
        moved = c @ torch.linalg.matrix_power(a, lag) @ cov @ c.mT
        return moved + q if lag == 0 else moved

    for lag in (0, 1, 3):
        products = (values[lag:, ..., :, None] * values[: steps - lag, ..., None, :]).mean(0)
        error = products.std(0) / series**0.5
        assert ((autocovariance(fitted, lag) - autocovariance(truth, lag)).abs() < 4 * error).all()


def test_refuses_parameters_that_vary_or_differ_in_their_batch():
    rng = generator(5)
    values, _ = random_data((4, 2), 2, rng)
    prior = random_gaussian((), 2, rng)
    with pytest.raises(ValueError, match="transition to be constant over time"):
        em_step(random_system((4,), 2, 2, rng), prior, values)
    shared, own = random_system((1,), 2, 2, rng), random_system((1, 2), 2, 2, rng)
    mixed = LinearGaussian(shared.emission.matrix, shared.emission.offset, own.emission.noise)
    with pytest.raises(ValueError, match=r"emission .* same batch dimensions; got \(1,\) and \(1, 2\)"):
        em_step(LinearSystem(shared.transition, mixed), prior, values)
