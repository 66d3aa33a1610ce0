import lightning.pytorch  # noqa: F401 its log keeps the stderr of its import, which must not be that of a test
import pytest
import torch


@pytest.fixture
def float64():
    """Tensors are made in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
