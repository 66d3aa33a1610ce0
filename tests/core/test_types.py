"""Shapes that do not agree are refused in tests."""

import jaxtyping
import pytest
import torch

from tests import first_calls
from tsforecast.core.linalg import matvec


def test_shapes_are_looked_at_anew_in_each_test():
    for _ in range(5):
        matvec(torch.ones(2, 3), torch.ones(3))
    first_calls.another_test()
    with pytest.raises(jaxtyping.TypeCheckError, match="matrix"):
        matvec(torch.ones(3), torch.ones(3))
