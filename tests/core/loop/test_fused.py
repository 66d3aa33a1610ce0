"""Small linear algebra in elementwise operations against torch's own."""

import pytest
import torch

from tests.oracles import generator, random_covariance
from tsforecast.core.loop import fused

pytestmark = pytest.mark.usefixtures("float64")


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed))


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 50, 30), (30, 50, 1), (40, 1, 30), (2, 3, 4), (1, 1, 1)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products(rows, inner, columns, batch):
    a, b, total = randn(*batch, rows, inner), randn(*batch, inner, columns, seed=1), randn(columns, seed=2)
    same(fused.product(a, b), a @ b)
    same(fused.added_product(total, a, b, beta=0.5, alpha=2.0), 0.5 * total + 2 * a @ b)


def test_products_with_vectors():
    matrix, vector, total = randn(5, 7), randn(7, seed=1), randn(5, seed=2)
    same(fused.product_of_vector(matrix, vector), matrix @ vector)
    same(fused.added_product_of_vector(total, matrix, vector, alpha=3.0), total + 3 * matrix @ vector)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_parts_side_by_side(dim):
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    for k, shape in enumerate(shapes):
        shape[dim] = k + 1
    parts = [randn(*shape, seed=k) for k, shape in enumerate(shapes)]
    parts[0].view(-1)[0] = torch.inf
    same(fused.joined(parts, dim), torch.cat(parts, dim))
    same(fused.stacked([parts[0], 2 * parts[0]], dim), torch.stack([parts[0], 2 * parts[0]], dim))
    assert torch.equal(fused.joined([parts[0] > 0, parts[0] < 0], dim), torch.cat([parts[0] > 0, parts[0] < 0], dim))
    assert fused.joined([randn(600), randn(600)]) is NotImplemented
    assert fused.joined([randn(0), randn(2, 3)]) is NotImplemented


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_factors_and_what_is_solved_by_them(size, batch):
    matrix, rhs = random_covariance(batch, size, generator(0)), randn(*batch, size, 4, seed=1)
    factor, info = fused.cholesky(matrix)
    same(factor, torch.linalg.cholesky(matrix))
    assert info.shape == batch
    assert not info.any()
    same(fused.cholesky_solve(rhs, factor), torch.linalg.solve(matrix, rhs))
    for left in (True, False):
        side = rhs if left else rhs.mT
        same(
            fused.triangular(factor, side, upper=False, left=left),
            torch.linalg.solve_triangular(factor, side, upper=False, left=left),
        )
        same(
            fused.triangular(factor.mT, side, upper=True, left=left),
            torch.linalg.solve_triangular(factor.mT, side, upper=True, left=left),
        )


def test_a_factor_that_does_not_exist_is_nan():
    matrix = torch.eye(3)
    matrix[2, 2] = -1.0
    assert fused.cholesky(matrix)[0].isnan().any()


def test_what_is_large_is_left_to_calls():
    large = torch.eye(13)
    assert fused.product(large, large) is NotImplemented
    assert fused.added_product(large, large, large) is NotImplemented
    assert fused.cholesky(large) is NotImplemented
    assert fused.triangular(large, large, upper=False) is NotImplemented
    assert fused.cholesky_solve(large, large) is NotImplemented
