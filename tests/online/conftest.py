import jaxtyping
import pytest


@pytest.fixture
def unchecked_types():
    """For tests with tens of thousands of steps, which take three times as long with every type looked at."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
