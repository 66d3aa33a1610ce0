import pytest
import torch


@pytest.fixture
def float64():
    """Tensors are made in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
