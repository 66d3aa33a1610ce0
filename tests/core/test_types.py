"""Shapes that do not agree are refused in tests."""

import jaxtyping
import pytest
import torch
from beartype import beartype
from jaxtyping import Float
from torch import Tensor

from tests import first_calls
from tsforecast.core import Gaussian
from tsforecast.core.linalg import matvec


def test_shapes_are_looked_at_anew_in_each_test():
    for _ in range(5):
        matvec(torch.ones(2, 3), torch.ones(3))
    first_calls.another_test()
    with pytest.raises(jaxtyping.TypeCheckError, match="matrix"):
        matvec(torch.ones(3), torch.ones(3))


def test_functions_within_functions_are_looked_at_in_the_first_of_them_in_each_test():
    def inner():
        @jaxtyping.jaxtyped(typechecker=beartype)
        def half(x: float) -> float:
            return x

        return half

    for _ in range(2):
        first_calls.another_test()
        for _ in range(first_calls._CALLS):
            with pytest.raises(jaxtyping.TypeCheckError):
                inner()("a")
        assert not hasattr(inner(), "__wrapped__")
    assert not hasattr(inner(), "__wrapped__")


def test_parameters_are_looked_at_where_a_result_has_no_type():
    @jaxtyping.jaxtyped(typechecker=beartype)
    def shown(x: Float[Tensor, " time"]):
        return x

    with pytest.raises(jaxtyping.TypeCheckError):
        shown(torch.ones(2, 2))


def test_fields_of_a_record_are_looked_at():
    with pytest.raises(jaxtyping.TypeCheckError, match="cov"):
        Gaussian(torch.ones(3), torch.ones(2, 2))
