from collections.abc import Iterator

import jaxtyping
import lightning.pytorch  # noqa: F401 its log keeps the stderr of its import, which must not be that of a test
import pytest
import torch


@pytest.fixture
def float64():
    """Tensors are made in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _unchecked() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# To look at every type takes as long as the work. For tests with tens of thousands of steps, and for modules which run
# whole programs, whose functions other tests call with every type looked at.
unchecked_types = pytest.fixture(_unchecked, name="unchecked_types")
unchecked_module = pytest.fixture(_unchecked, scope="module", name="unchecked_module")
