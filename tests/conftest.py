import functools
import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _pytest.logging
import jaxtyping
import pytest

from tests import first_calls

jaxtyping.jaxtyped = first_calls.decorate_first(jaxtyping.jaxtyped)
# Tests start a hundred processes, each of which would translate the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Imports what takes seconds where tests run, and not in the process that hands tests to others.

    Lightning's log keeps the stderr of its import, which must not be that of a test.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    gc.disable()  # while modules are imported: what they make stays
    import torch

    from tsforecast.core import kernels  # types are looked at from here on

    building = threading.Thread(target=_built_once, args=(kernels.build, getattr(config, "workerinput", {})))
    building.start()
    config.stash[_BUILDING] = building
    import lightning.pytorch  # noqa: F401
    from lightning.fabric.utilities import registry

    # Every trainer would look through all installed packages for plugins.
    registry.entry_points = functools.cache(registry.entry_points)
    for backend in (torch.cuda, torch.mtia, torch.xpu):  # a seed would wait for a device, with the stack of its call
        if not backend.is_available():
            backend.manual_seed_all = lambda seed: None


_BUILDING = pytest.StashKey[threading.Thread]()


def _built_once(build: Any, worker: dict[str, Any]) -> None:
    """Compiles the steps of filters while tests are collected, in one process for all."""
    if not worker:
        return build()
    from torch.utils.file_baton import FileBaton

    baton = FileBaton(str(Path(tempfile.gettempdir(), f"tsforecast-kernels-{worker['testrunuid']}")))
    if not baton.try_acquire():
        baton.wait()
        build()
        return
    try:
        build()
    finally:
        baton.release()


class _CatchingRoot(_pytest.logging.catching_logs):
    """Takes the records of a test from the root alone.

    pytest would look for loggers that do not propagate among all, six times a test: that takes longer than many a test.
    """

    def __enter__(self) -> Any:
        if self.level is not None:
            return super().__enter__()
        self.attached_loggers = [logging.getLogger()]
        self.attached_loggers[0].addHandler(self.handler)
        return self.handler


_pytest.logging.catching_logs = _CatchingRoot


# To wait for the disk takes a twentieth of all time, and makes a difference where power fails alone.
os.fsync = os.fdatasync = lambda handle: None


def pytest_runtest_setup() -> None:
    """Looks at types anew in every test."""
    first_calls.another_test()


@pytest.fixture
def float64():
    """Tensors are made in double precision."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def traced_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops are traced and run without kernels, which take seconds: one loop of a kind has them."""
    import torch

    compiler = functools.partial(torch.compile, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda loop, **settings: compiler(loop))


def _unchecked() -> Iterator[None]:
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session", autouse=True)
def _compiled_steps(pytestconfig: pytest.Config) -> None:
    """Waits until they are compiled: bytes and bits of two runs would differ if one was without them."""
    pytestconfig.stash[_BUILDING].join()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)
    gc.freeze()  # half a million objects of the libraries stay: to look through them takes a third of a second


# To look at types takes time even where `first_calls` looks no longer. For tests with tens of thousands of steps, and
# for modules which run whole programs.
unchecked_types = pytest.fixture(_unchecked, name="unchecked_types")
unchecked_module = pytest.fixture(_unchecked, scope="module", name="unchecked_module")

# Tests here run commands and whole models, whose parts other tests call with types looked at.
WHOLE_PROGRAMS = [Path(__file__).parent / folder for folder in ("", "cli", "online", "forecasting")]


@pytest.fixture(scope="module", autouse=True)
def _unchecked_programs(request: pytest.FixtureRequest) -> None:
    """Looks at no type in modules that run whole programs."""
    if request.path.parent in WHOLE_PROGRAMS:
        request.getfixturevalue("unchecked_module")


_OF_FULL_SIZE = ("test_examples", "test_films")  # modules that look at the size of pictures


@pytest.fixture(scope="module", autouse=True)
def _pictures_drawn_once(request: pytest.FixtureRequest) -> Iterator[None]:
    from tests.pictures import draw_once

    with pytest.MonkeyPatch.context() as patch:
        if "plots" not in request.path.stem:
            draw_once(patch, 1.0 if request.path.stem in _OF_FULL_SIZE else 0.5)
        yield
