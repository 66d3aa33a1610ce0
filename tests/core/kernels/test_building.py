import subprocess

import pytest

from tsforecast.core.kernels import building


@pytest.fixture
def unbuilt(monkeypatch, tmp_path):
    """A process that has built nothing, with an empty cache."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.delenv(building.SWITCH, raising=False)
    monkeypatch.setattr(building, "_FAILED", [])
    building.loaded.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    building.loaded.cache_clear()


def test_without_a_compiler_all_is_left_to_torch(unbuilt, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert building.compiler() is None
    assert not building.can_build()
    assert not building.build()
    assert not building.is_ready()
    assert not list(unbuilt.iterdir())


def test_a_compiler_that_fails_is_named_once(unbuilt, monkeypatch):
    monkeypatch.setenv("CXX", "false --with option")
    with pytest.warns(RuntimeWarning, match=r"left to torch, .*/false --with option' returned|false --with option"):
        assert not building.build()
    assert not building.build()  # a second warning would be an error
    assert not [path for path in unbuilt.rglob("*") if path.is_file()]


def test_the_variable_switches_it_off(unbuilt, monkeypatch):
    monkeypatch.setenv(building.SWITCH, "0")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it compiled"))
    assert not building.build()


def test_a_file_that_is_no_program_is_named(unbuilt):
    program = building._program()
    program.parent.mkdir(parents=True)
    program.write_bytes(b"no program")
    with pytest.warns(RuntimeWarning, match="cannot be loaded"):
        assert not building.is_ready()
