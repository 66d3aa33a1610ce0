import pytest

from tsforecast.core import kernels
from tsforecast.core.kernels import building


@pytest.fixture(scope="package")
def program():
    """The compiled program; it is built once, and kept in torch's cache."""
    if not kernels.build():
        pytest.skip("no C++ compiler, or the program is switched off")


@pytest.fixture
def by_torch(monkeypatch):
    """A function that calls another without the program."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setenv(building.SWITCH, "0")
            building.loaded.cache_clear()
            try:
                return function(*args)
            finally:
                patch.undo()
                building.loaded.cache_clear()

    return call
