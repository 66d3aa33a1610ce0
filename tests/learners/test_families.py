"""Families of beliefs against dense matrices: exact operations, projections, and which family is which special case."""

import pytest
import torch
from torch import nn

from tests.learners.dense import (
    FAMILIES,
    SIZE,
    assert_belief,
    assert_moments,
    assert_same,
    bayes,
    drifted,
    jacobian_of,
    kalman,
    leading,
    mlp,
    moments,
    off_blocks,
    outputs_of,
    randn,
    random_belief,
    vector_of,
)
from tests.oracles import generator
from tsforecast.learners import (
    LOFI,
    LRKF,
    BayesianForgetting,
    BlockDiagonal,
    Diagonal,
    ExponentialForgetting,
    Full,
    GaussianLikelihood,
    Independent,
    Linear,
    LowRankCovariance,
    LowRankPrecision,
    NoDrift,
    OrnsteinUhlenbeck,
    Wiener,
    basis_of_iterates,
    decoupled_ekf,
    ekf,
    lofi,
    lrkf,
    random_basis,
    subspace_ekf,
    vd_ekf,
)
from tsforecast.learners.beliefs import low_rank_precision

pytestmark = pytest.mark.usefixtures("float64")

STEPS = 8
EVERY = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(params=[False, True], ids=["at-once", "in-chunks"])
def chunks(request, monkeypatch):
    """Many weights are taken in chunks: few must come to the same."""
    if request.param:
        monkeypatch.setattr(low_rank_precision, "_CHUNK", 4)


def stream(features: int, seed: int = 0, points: int = 1, targets: int = 1):
    inputs = randn(STEPS, points, features, seed=seed)
    return inputs, randn(STEPS, points, targets, seed=seed + 1)


def learn(learner, inputs, target):
    """Drift and update, step after step."""
    belief = learner.init()
    for x, y in zip(inputs, target, strict=True):
        belief = learner.update(learner.drift(belief, torch.tensor(0.7)), x, y)
    return belief


def dense_learn(module, inputs, target, noise, mean, cov, drift=lambda m, s: (m, s), keep=lambda s: s):
    """The extended Kalman filter by matrices; `keep` is what is kept of a covariance."""
    for x, y in zip(inputs, target, strict=True):
        mean, cov = drift(mean, cov)
        rows = jacobian_of(module, mean, x).flatten(0, 1)
        residual = (y - outputs_of(module, mean, x)).flatten()
        mean, cov = kalman(mean, cov, rows, noise * torch.eye(len(rows)), residual)
        cov = keep(cov)
    return mean, cov


# One operation at a time, of every family.


@EVERY
@pytest.mark.parametrize("rows", [1, 4])
def test_a_belief_is_conditioned_like_dense_matrices_and_then_projected(name, rows, chunks):
    """The mean is exact; of the covariance or precision that is kept which defines the family."""
    family, belief = FAMILIES[name], random_belief(name)
    matrix, residual = randn(rows, SIZE, seed=1), randn(rows, seed=2)
    mean, cov = moments(belief)
    exact_mean, exact = bayes(mean, cov, matrix, torch.eye(rows), residual)
    after = family.condition(belief, matrix, residual)
    got_mean, got = moments(after)
    assert_same(got_mean, exact_mean)
    precision = torch.linalg.inv(cov) + matrix.T @ matrix
    if name == "full":
        assert_same(got, exact)
    elif name in ("precision", "lofi-0"):
        assert_same(got, torch.diag(1 / precision.diagonal()))
    elif name == "covariance":
        assert_same(got, torch.diag(exact.diagonal()))
    elif name == "blocks":
        assert_same(got, off_blocks(exact))
    elif name == "lofi":
        columns = leading(belief.factor @ belief.factor.T + matrix.T @ matrix, 3)
        assert_same(torch.linalg.inv(got), columns + torch.diag(precision.diagonal() - columns.diagonal()))
        assert_same(after.diagonal + after.factor.square().sum(1), precision.diagonal())
    else:
        gain = torch.linalg.solve(matrix @ cov @ matrix.T + torch.eye(rows), matrix @ cov).T
        left = torch.eye(SIZE) - gain @ matrix
        assert_same(got, leading(left @ belief.factor.T @ belief.factor @ left.T + gain @ gain.T, 3))


@EVERY
def test_rows_of_zeros_change_nothing(name):
    """So are missing observations left out; also beside others."""
    family, belief = FAMILIES[name], random_belief(name)
    assert_belief(family.condition(belief, torch.zeros(2, SIZE), torch.zeros(2)), *moments(belief))
    matrix, residual = randn(2, SIZE, seed=1), randn(2, seed=2)
    padded = torch.cat([matrix, torch.zeros(2, SIZE)]), torch.cat([residual, torch.zeros(2)])
    assert_belief(family.condition(belief, *padded), *moments(family.condition(belief, matrix, residual)))


@EVERY
def test_covariances_of_outputs_and_marginal_variances_are_those_of_the_dense_belief(name, chunks):
    family, belief, matrix = FAMILIES[name], random_belief(name), randn(2, 5, 3, SIZE)
    mean, cov = moments(belief)
    assert_same(family.covariance(belief, matrix), matrix @ cov @ matrix.mT)
    assert_same(family.covariance(belief, matrix[0, 0]), matrix[0, 0] @ cov @ matrix[0, 0].T)
    assert_same(family.variance(belief), cov.diagonal())
    assert_same(family.mean(belief), mean)
    assert_same(family.spread(belief), cov if name == "full" else cov.diagonal())


@EVERY
@pytest.mark.parametrize("kind", ["numbers", "vectors", "tensors without dimensions", "no noise"])
def test_a_belief_is_pushed_like_a_linear_gaussian(name, kind, chunks):
    family, belief = FAMILIES[name], random_belief(name)
    positive = 0.5 + torch.rand(2, SIZE, generator=generator(3))
    decay, offset, noise = {
        "numbers": (0.8, 0.3, 0.4),
        "vectors": (positive[0], randn(SIZE, seed=4), positive[1]),
        "tensors without dimensions": (torch.tensor(0.8), 0.3, torch.tensor(0.4)),
        "no noise": (0.8, 0.0, 0.0),
    }[kind]
    mean, cov = moments(belief)
    by = torch.diag(decay * torch.ones(SIZE))
    expected = by @ cov @ by.T + torch.diag(noise * torch.ones(SIZE))
    assert_belief(family.push(belief, decay, offset, noise), by @ mean + offset, expected)


def test_a_full_belief_is_pushed_by_matrices():
    belief, matrix = random_belief("full"), randn(SIZE, SIZE, seed=1)
    noise = matrix @ matrix.T / SIZE
    expected = matrix @ belief.mean + 0.2, matrix @ belief.cov @ matrix.T + noise
    assert_belief(Full().push(belief, matrix, 0.2, noise), *expected)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "lrkf"])
@pytest.mark.parametrize("keep", [0.3, 1.0, 0.0])
def test_tempering_mixes_natural_parameters_with_those_of_the_prior(name, keep, chunks):
    """LOFI's prior has no columns: exact there, too."""
    family, belief = FAMILIES[name], random_belief(name)
    prior = family.prior(randn(SIZE, seed=5), 0.5 + torch.rand(SIZE, generator=generator(6)))
    (mean, cov), (prior_mean, prior_cov) = moments(belief), moments(prior)
    mine, its = keep * torch.linalg.inv(cov), (1 - keep) * torch.linalg.inv(prior_cov)
    expected = torch.linalg.solve(mine + its, mine @ mean + its @ prior_mean), torch.linalg.inv(mine + its)
    assert_belief(family.temper(belief, keep, prior), *expected)
    assert_belief(family.temper(belief, torch.tensor(keep), prior), *expected)


@pytest.mark.parametrize("rank", [3, 6])
def test_tempering_lofi_towards_columns_keeps_the_mean_the_diagonal_and_the_longest_columns(rank):
    """Exact where all columns of both have room."""
    belief, other = random_belief("lofi"), random_belief("lofi", 1)
    mine, its = 0.3 * torch.linalg.inv(moments(belief)[1]), 0.7 * torch.linalg.inv(moments(other)[1])
    mean = torch.linalg.solve(mine + its, mine @ belief.mean + its @ other.mean)
    columns = leading(0.3 * belief.factor @ belief.factor.T + 0.7 * other.factor @ other.factor.T, rank)
    precision = columns + torch.diag((mine + its - columns).diagonal())
    assert_belief(LOFI(rank).temper(belief, 0.3, other), mean, torch.linalg.inv(precision))
    assert rank < 6 or torch.allclose(precision, mine + its)


def test_a_low_rank_covariance_does_not_mix_precisions():
    belief = random_belief("lrkf")
    with pytest.raises(TypeError, match="cannot mix precisions"):
        LRKF(3).temper(belief, 0.5, belief)


@EVERY
def test_inflation_multiplies_the_covariance(name):
    belief = random_belief(name)
    mean, cov = moments(belief)
    assert_belief(FAMILIES[name].inflate(belief, 1.7), mean, 1.7 * cov)
    assert_belief(FAMILIES[name].inflate(belief, torch.tensor(1.7)), mean, 1.7 * cov)


@EVERY
def test_a_belief_begins_with_independent_weights_and_so_does_its_prior(name):
    mean, variance = randn(SIZE), 0.5 + torch.rand(SIZE, generator=generator(1))
    family = LRKF(SIZE) if name == "lrkf" else FAMILIES[name]
    if name != "lrkf":
        assert_belief(family.init(mean, variance), mean, torch.diag(variance))
    assert_belief(family.prior(mean, variance), mean, torch.diag(variance))


@EVERY
def test_samples_are_a_linear_map_of_noise_whose_square_is_the_covariance(name, monkeypatch):
    """Exact: draws whose noise is one unit vector after the other are the columns of that map."""
    belief = random_belief(name)
    mean, cov = moments(belief)
    count = SIZE + (3 if name in ("lofi", "lrkf") else 0)
    used = []

    def unit(*shape, **_):
        shape = shape[0] if isinstance(shape[0], tuple | torch.Size) else shape
        first = sum(used)
        used.append(shape[-1])
        return torch.eye(count)[:, first : first + shape[-1]]

    monkeypatch.setattr(torch, "randn", unit)
    draws = FAMILIES[name].sample(belief, count) - mean
    assert sum(used) == count
    assert_same(draws.T @ draws, cov)


@EVERY
def test_samples_have_the_moments_of_the_belief(name):
    belief = random_belief(name)
    draws = FAMILIES[name].sample(belief, 20_000, generator(0))
    assert_moments(draws, *moments(belief))
    assert torch.equal(FAMILIES[name].sample(belief, 20_000, generator(0)), draws)


def test_curvature_that_would_take_precision_away_is_left_out():
    hessian = randn(SIZE, SIZE)
    hessian = hessian + hessian.T
    values, vectors = torch.linalg.eigh(-hessian)
    assert values.min() < -1
    assert_same(Full().curvature(hessian), vectors @ torch.diag(values.clamp_min(0)) @ vectors.T)
    assert_same(Diagonal().curvature(hessian.diagonal()), (-hessian).diagonal().clamp_min(0))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "full"])
def test_a_push_by_numbers_stays_on_the_device_of_the_belief(name):
    """The meta device stands for any that is not the default one."""
    belief = torch.utils._pytree.tree_map(lambda x: x.to("meta"), random_belief(name))
    if name == "lofi":  # factorises, which meta tensors cannot
        belief = LowRankPrecision(belief.mean, belief.diagonal, belief.factor[:, :0])
    assert FAMILIES[name].push(belief, 0.9, 0.1, 0.2).mean.device.type == "meta"


def test_a_full_push_by_numbers_stays_on_the_device_of_the_belief():
    belief = torch.utils._pytree.tree_map(lambda x: x.to("meta"), random_belief("full"))
    assert Full().push(belief, 0.9, 0.1, 0.2).cov.device.type == "meta"


# Diagonal plus low-rank precision.


DRIFTS = {
    "none": (NoDrift(), lambda m, s, m0, s0: (m, s)),
    "linear": (Linear(0.9, 0.05, 0.03), lambda m, s, m0, s0: (0.9 * m + 0.05, 0.81 * s + 0.03 * torch.eye(len(m)))),
    "wiener": (Wiener(0.2), lambda *x: drifted("wiener", *x, 0.7, rate=0.2)),
    "ornstein-uhlenbeck": (
        OrnsteinUhlenbeck(0.3, 2.0),
        lambda *x: drifted("ornstein-uhlenbeck", *x, 0.7, rate=0.3, typical=2.0),
    ),
    "bayesian": (BayesianForgetting(0.2, 2.0), lambda *x: drifted("bayesian", *x, 0.7, rate=0.2, typical=2.0)),
    "exponential": (ExponentialForgetting(0.9), lambda *x: drifted("exponential", *x, 0.7, factor=0.9)),
}


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("rank", [9, 12, "full"])
def test_as_many_columns_as_weights_are_the_full_filter_under_any_drift(drift, rank, chunks):
    """A bent network of two outputs: prior, linearisation, update and drift all by dense matrices."""
    module, (inputs, target) = mlp(2, 1, 3), stream(2, targets=3)
    first = vector_of(module)
    prior = 0.4 * torch.eye(len(first))
    assert len(first) == 9
    ours, formula = DRIFTS[drift]
    mean, cov = dense_learn(module, inputs, target, 0.3, first, prior, drift=lambda m, s: formula(m, s, first, prior))
    make, settings = (ekf, {}) if rank == "full" else (lofi, {"rank": rank})
    assert_belief(learn(make(module, GaussianLikelihood(0.3), 0.4, drift=ours, **settings), inputs, target), mean, cov)


def test_no_columns_are_the_diagonal_family_that_keeps_precisions():
    """Oracle: the variational diagonal filter written out; LOFI of rank 0 and VD-EKF are both it."""
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    mean, variance = vector_of(module), torch.full((13,), 0.4)
    for x, y in zip(inputs, target, strict=True):
        variance = variance + 0.1 * 0.7 * 0.4
        rows, residual = jacobian_of(module, mean, x)[:, 0], (y - outputs_of(module, mean, x))[:, 0]
        mean, _ = kalman(mean, torch.diag(variance), rows, 0.3 * torch.eye(2), residual)
        variance = 1 / (1 / variance + (rows.square() / 0.3).sum(0))
    for make, settings in ((lofi, {"rank": 0}), (vd_ekf, {})):
        belief = learn(make(module, GaussianLikelihood(0.3), 0.4, drift=Wiener(0.1), **settings), inputs, target)
        assert_belief(belief, mean, torch.diag(variance))


@pytest.mark.parametrize("rank", [0, 1, 2, 5, 9])
def test_a_first_update_moves_the_mean_like_the_full_filter_at_every_rank(rank):
    module, (inputs, target) = mlp(2, 1, 3), stream(2, points=2, targets=3)
    belief = learn(lofi(module, GaussianLikelihood(0.3), 0.4, rank=rank), inputs[:1], target[:1])
    mean, cov = dense_learn(module, inputs[:1], target[:1], 0.3, vector_of(module), 0.4 * torch.eye(9))
    assert_same(belief.mean, mean)
    assert_same(torch.linalg.inv(moments(belief)[1]).diagonal(), torch.linalg.inv(cov).diagonal())


def test_the_factor_of_a_precision_may_be_rotated():
    belief, family = random_belief("lofi"), FAMILIES["lofi"]
    rotation, _ = torch.linalg.qr(randn(3, 3, seed=1))
    rotated = LowRankPrecision(belief.mean, belief.diagonal, belief.factor @ rotation)
    prior = family.prior(torch.zeros(SIZE), torch.ones(SIZE))
    for change in (
        lambda b: family.condition(b, randn(2, SIZE, seed=2), randn(2, seed=3)),
        lambda b: family.push(b, 0.9, 0.1, 0.2),
        lambda b: family.temper(b, 0.6, prior),
        lambda b: family.inflate(b, 1.3),
    ):
        assert_belief(change(rotated), *moments(change(belief)))
    assert_same(family.variance(rotated), family.variance(belief))
    assert_same(family.covariance(rotated, randn(2, SIZE)), family.covariance(belief, randn(2, SIZE)))


def test_the_spherical_form_drops_what_it_does_not_keep():
    family = LOFI(3, spherical=True)
    belief, matrix = random_belief("lofi"), randn(2, SIZE, seed=1)
    after = family.condition(belief, matrix, randn(2, seed=2))
    assert torch.equal(after.diagonal, belief.diagonal)
    expected = leading(belief.factor @ belief.factor.T + matrix.T @ matrix, 3)
    assert_same(after.factor @ after.factor.T, expected)
    exact_mean, _ = bayes(*moments(belief), matrix, torch.eye(2), randn(2, seed=2))
    assert_same(after.mean, exact_mean)
    none = LOFI(0, spherical=True)
    assert torch.equal(none.condition(random_belief("lofi-0"), matrix, randn(2)).diagonal, belief.diagonal)


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_no_column_is_dropped_while_there_is_room(columns):
    """A factor of fewer columns than the rank, as `prior` has it: the update is exact."""
    belief = random_belief("lofi")
    belief = LowRankPrecision(belief.mean, belief.diagonal, belief.factor[:, :columns])
    matrix, residual = randn(2, SIZE, seed=1), randn(2, seed=2)
    after = LOFI(5).condition(belief, matrix, residual)
    assert_belief(after, *bayes(*moments(belief), matrix, torch.eye(2), residual))


def test_gradients_through_an_update_in_chunks_are_those_at_once(monkeypatch):
    belief, matrix, residual = random_belief("lofi"), randn(2, SIZE, seed=1), randn(2, seed=2)
    parts = [x.requires_grad_() for x in (belief.mean, belief.diagonal, belief.factor, matrix, residual)]

    def gradients():
        after = LOFI(3).condition(LowRankPrecision(*parts[:3]), *parts[3:])
        mean, cov = moments(after)
        return torch.autograd.grad(mean.sin().sum() + cov.cos().sum(), parts)

    expected = gradients()
    monkeypatch.setattr(low_rank_precision, "_CHUNK", 4)
    for got, exact in zip(gradients(), expected, strict=True):
        assert_same(got, exact)


# Subspaces and low-rank covariances.


def test_a_subspace_of_all_weights_is_the_filter_over_the_weights():
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    learner = subspace_ekf(module, GaussianLikelihood(0.3), 0.4, basis=torch.eye(13), drift=Wiener(0.2))
    first, prior = vector_of(module), 0.4 * torch.eye(13)
    expected = dense_learn(module, inputs, target, 0.3, first, prior, drift=lambda m, s: (m, s + 0.2 * 0.7 * prior))
    belief = learn(learner, inputs, target)
    assert_belief(belief, expected[0] - first, expected[1])
    assert_same(learner.network.weights(belief.mean), expected[0])


@pytest.mark.parametrize("basis", ["random", "iterates"])
def test_a_subspace_is_the_full_filter_from_a_degenerate_prior(basis):
    """N(origin, A S A'), with noise A Q A'."""
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    chosen = random_basis(13, 4, generator(1)) if basis == "random" else basis_of_iterates(randn(7, 13), 4)
    learner = subspace_ekf(module, GaussianLikelihood(0.3), 0.4, basis=chosen, drift=Wiener(0.2))
    prior = 0.4 * chosen @ chosen.T
    mean, cov = dense_learn(
        module, inputs, target, 0.3, vector_of(module), prior, drift=lambda m, s: (m, s + 0.2 * 0.7 * prior)
    )
    belief = learn(learner, inputs, target)
    assert_same(learner.network.weights(belief.mean), mean)
    assert_same(chosen @ belief.cov @ chosen.T, cov)


def test_a_low_rank_covariance_without_noise_is_a_subspace():
    """The subspace of the rows to begin with, of which the update never leaves; oracle: a degenerate prior."""
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    directions = torch.linalg.qr(randn(13, 4))[0].T
    prior = 0.4 * directions.T @ directions
    mean, cov = dense_learn(module, inputs, target, 0.3, vector_of(module), prior)
    learner = lrkf(module, GaussianLikelihood(0.3), 0.4, family=LRKF(4, directions), drift=NoDrift())
    assert_belief(learn(learner, inputs, target), mean, cov)
    outside = torch.linalg.svd(directions)[2][4:]
    assert (outside @ learn(learner, inputs, target).factor.T).abs().max() < 1e-12


def test_a_covariance_of_full_rank_is_the_full_filter():
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    expected = dense_learn(module, inputs, target, 0.3, vector_of(module), 0.4 * torch.eye(13))
    learner = lrkf(module, GaussianLikelihood(0.3), 0.4, rank=13, drift=NoDrift())
    assert_belief(learner.init(), vector_of(module), 0.4 * torch.eye(13))
    assert_belief(learn(learner, inputs, target), *expected)


def test_random_directions_are_orthonormal_and_of_their_seed():
    variance = torch.full((SIZE,), 0.25)
    one, two = (LRKF(3, seed=seed).init(torch.zeros(SIZE), variance) for seed in (0, 1))
    assert_same(one.factor @ one.factor.T, 0.25 * torch.eye(3))
    assert not torch.allclose(one.factor, two.factor)
    assert torch.equal(LRKF(3, seed=1).init(torch.zeros(SIZE), variance).factor, two.factor)
    assert (one.noise == 0).all()


def test_noise_that_is_dropped_raises_singular_values_on_request():
    """The rows of [W - Cw G'; G'] as without it, each of length sqrt(lambda + q)."""
    belief = random_belief("lrkf")
    belief = LowRankCovariance(belief.mean, belief.factor, torch.full((SIZE,), 0.3))
    matrix, residual = randn(2, SIZE, seed=1), randn(2, seed=2)
    plain, raised = (LRKF(3, restore=restore).condition(belief, matrix, residual) for restore in (False, True))
    values, vectors = torch.linalg.eigh(plain.factor.T @ plain.factor)
    values, vectors = values[-3:], vectors[:, -3:]
    assert_belief(raised, plain.mean, vectors @ torch.diag(values + 0.3) @ vectors.T)


def test_noise_makes_a_low_rank_covariance_leave_its_rows():
    """A weight along which the belief had no variance is learnt from the second step on."""
    module, inputs = nn.Linear(2, 1, bias=False), torch.eye(2)[1].expand(30, 1, 2)
    family = LRKF(1, torch.eye(2)[:1])
    still = learn(
        lrkf(module, GaussianLikelihood(0.1), 1.0, family=family, drift=NoDrift()), inputs, torch.ones(30, 1, 1)
    )
    moving = learn(lrkf(module, GaussianLikelihood(0.1), 1.0, family=family, rate=0.1), inputs, torch.ones(30, 1, 1))
    assert still.mean[1] == vector_of(module)[1]
    assert (moving.mean[1] - 1).abs() < 1e-3


@pytest.mark.parametrize("restore", [False, True])
def test_directions_fewer_than_the_rank_leave_no_trace_of_rounding(restore):
    """With room to spare an update of a belief that has noise is finite, and a later one too."""
    family = LRKF(5, torch.eye(SIZE)[:2], restore=restore)
    belief = family.init(torch.zeros(SIZE), torch.ones(SIZE))
    for k in range(4):
        belief = family.push(belief, 1.0, 0.0, 0.1)
        belief = family.condition(belief, torch.eye(SIZE)[k : k + 1], torch.ones(1))
        assert family.variance(belief).max() < 2


# Diagonal and block-diagonal covariances.


@pytest.mark.parametrize("projection", ["precision", "covariance"])
@pytest.mark.parametrize("together", [False, True])
def test_independent_weights_are_exact_where_inputs_are_orthogonal(projection, together):
    """One-hot inputs one by one, and at once any whose square is diagonal."""
    family = Diagonal(projection)
    scale = 0.5 + torch.rand(SIZE, generator=generator(1))
    rows = torch.eye(SIZE)[[0, 3, 3, 5, 1, 0]] if not together else torch.linalg.qr(randn(SIZE, SIZE))[0] * scale
    residual = randn(SIZE, seed=2)
    belief = Independent(torch.zeros(SIZE), 0.5 + torch.rand(SIZE, generator=generator(3)))
    start = moments(belief)
    if together:
        belief = family.condition(belief, rows, residual)
    else:
        for row, e in zip(rows, residual, strict=True):
            belief = family.condition(belief, row[None], (e - row @ belief.mean)[None])
    assert_belief(belief, *bayes(*start, rows, torch.eye(SIZE), residual))


def test_one_block_is_the_full_filter():
    module, (inputs, target) = mlp(2, 3, 1), stream(2, points=2)
    expected = dense_learn(
        module,
        inputs,
        target,
        0.3,
        vector_of(module),
        0.4 * torch.eye(13),
        drift=lambda m, s: (m, s + 0.2 * 0.7 * 0.4 * torch.eye(13)),
    )
    learner = ekf(module, GaussianLikelihood(0.3), 0.4, family=BlockDiagonal((13,)), drift=Wiener(0.2))
    assert_belief(learn(learner, inputs, target), *expected)


@pytest.mark.parametrize("layers", [False, True])
def test_the_decoupled_filter_keeps_the_blocks_of_the_exact_covariance(layers):
    """Layers of 9 and 8 weights, or every weight alone; oracle: all entries outside of the blocks set to zero."""
    module, (inputs, target) = mlp(2, 3, 2), stream(2, points=2, targets=2)
    sizes = (9, 8) if layers else (1,) * 17
    mean, cov = dense_learn(
        module,
        inputs,
        target,
        0.3,
        vector_of(module),
        torch.diag(torch.tensor([0.4] * 9 + [0.2] * 8)),
        drift=lambda m, s: (m, s + 0.1 * 0.7 * torch.diag(torch.tensor([0.4] * 9 + [0.2] * 8))),
        keep=lambda s: off_blocks(s, sizes),
    )
    learner = decoupled_ekf(module, GaussianLikelihood(0.3), (0.4, 0.2), layers=layers, drift=Wiener(0.1))
    assert_belief(learn(learner, inputs, target), mean, cov)


def test_the_published_gain_of_a_diagonal_family_is_that_of_its_new_precision():
    """Lambda+ = Lambda + diag(H' H), m+ = m + diag(Lambda+)^{-1} H' e; and no other name is known."""
    prior = FAMILIES["precision"].init(randn(SIZE), torch.linspace(0.5, 2.0, SIZE))
    matrix, residual = randn(3, SIZE, seed=1), randn(3, seed=2)
    found = Diagonal(gain="projected").condition(prior, matrix, residual)
    precision = 1 / prior.variance + matrix.square().sum(0)
    assert_same(found.variance, 1 / precision)
    assert_same(found.mean, prior.mean + matrix.T @ residual / precision)
    assert not torch.allclose(found.mean, Diagonal().condition(prior, matrix, residual).mean)
    with pytest.raises(ValueError, match="gain to be one of unprojected, projected, got 'own'"):
        Diagonal(gain="own")


def test_plain_steps_without_evidence_lead_to_their_anchor():
    """The gradient of the divergence alone, by mean and by standard deviation."""
    anchor = Independent(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    belief, none = Independent(torch.zeros(2), torch.tensor([2.0, 0.1])), torch.zeros(2)
    for _ in range(400):
        belief = Diagonal().descend(belief, none, none, 0.1, anchor, None)
    torch.testing.assert_close(belief.mean, anchor.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(belief.variance, anchor.variance, rtol=1e-4, atol=1e-4)
