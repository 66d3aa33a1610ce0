import pytest
import torch

from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian, NotPositiveDefiniteError
from tsforecast.core.linalg import cholesky, log_det, mask_rows, matvec, solve_lower

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("shared", [True, False])
def test_solves_and_determinants_equal_the_dense_formulas(shared):
    rng = generator(0)
    cov = random_covariance(() if shared else (2, 5), 3, rng)
    vector = torch.randn(2, 5, 3, generator=rng).double()
    factor = cholesky(cov)
    torch.testing.assert_close(factor @ factor.mT, cov, **EXACT)
    solved = (torch.linalg.inv(factor) @ vector[..., None])[..., 0]
    torch.testing.assert_close(solve_lower(factor, vector), solved, **EXACT)
    torch.testing.assert_close(matvec(cov, vector), torch.einsum("...ij,...j->...i", cov, vector), **EXACT)
    torch.testing.assert_close(log_det(factor), torch.logdet(cov), **EXACT)


@pytest.mark.parametrize("bad", [float("nan"), -1.0, 0.0, float("inf")])
@pytest.mark.parametrize("size", [1, 3])
def test_a_failure_names_the_series_and_what_was_factorised(bad, size):
    matrix = torch.eye(size).repeat(4, 1, 1)
    matrix[2, 0, 0] = bad
    with pytest.raises(NotPositiveDefiniteError, match=r"the thing is not .* series 2 \(1 of 4 failed\). Try float64"):
        cholesky(matrix, "the thing")
    with pytest.raises(NotPositiveDefiniteError, match=r"the thing is not .* batch 1, series 2 \(1 of 8 failed\)"):
        cholesky(torch.stack([torch.eye(size).repeat(4, 1, 1), matrix]), "the thing")


def test_no_jitter_but_where_it_is_asked_for():
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(torch.ones(2, 2))
    factor = cholesky(torch.ones(2, 2), jitter=True)
    torch.testing.assert_close(factor @ factor.mT, torch.ones(2, 2), rtol=0, atol=1e-4)


def test_jitter_leaves_the_well_conditioned_of_a_batch_as_they_are():
    good = random_covariance((), 2, generator(1))
    batch = torch.stack([good, torch.ones(2, 2).double()])
    assert torch.equal(cholesky(batch, jitter=True)[0], cholesky(good))


def test_an_indefinite_matrix_is_not_jittered_away():
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), jitter=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("known", [[1], [0, 2], [0, 1, 2]])
def test_what_is_known_is_sampled_exactly(dtype, known):
    """Coordinates of zero variance keep their mean to the last bit; the others have their own covariance's factor."""
    cov = random_covariance((), 3, generator(2)).to(dtype)
    cov[known], cov[:, known] = 0, 0
    rest = [i for i in range(3) if i not in known]
    factor = cholesky(cov, jitter=True)
    assert (factor[known] == 0).all()
    assert (factor[:, known] == 0).all()
    expected = cholesky(cov[rest][:, rest]) if rest else cov[rest][:, rest]
    torch.testing.assert_close(factor[rest][:, rest], expected)
    samples = Gaussian(torch.full((3,), 0.1, dtype=dtype), cov).sample((5,), generator(0))
    assert (samples[:, known] == torch.tensor(0.1, dtype=dtype)).all()


@pytest.mark.parametrize("singular", ["collinear", "zero"])
def test_sampling_from_a_singular_covariance_has_finite_gradients(singular):
    root = torch.tensor([[1.0, 2.0, 0.5]] if singular == "collinear" else [[1.0, 0.0, 0.0]]).double().requires_grad_()
    Gaussian(torch.zeros(3).double(), root.mT @ root).sample((4,), generator(0)).square().sum().backward()
    assert root.grad is not None
    assert root.grad.isfinite().all()
    assert root.grad.abs().sum() > 0


def test_a_masked_system_is_that_of_the_observed_components():
    rng = generator(0)
    cov, matrix = random_covariance((), 3, rng), torch.randn(3, 3, generator=rng).double()
    observed = torch.tensor([[True, False, True], [False, False, False]])
    rows, masked = mask_rows(matrix, cov, observed)
    kept = [0, 2]
    assert torch.equal(masked[0][kept][:, kept], cov[kept][:, kept])
    assert torch.equal(masked[0][1], torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    assert torch.equal(masked[1], torch.eye(3, dtype=torch.float64))
    expected = torch.linalg.solve(cov[kept][:, kept], matrix[kept])
    torch.testing.assert_close(torch.linalg.solve(masked, rows)[0][kept], expected, **EXACT)
    assert not rows[1].any()
