import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tsforecast.core.kernels import building

# A compiler of nothing: what it makes can be loaded, and takes no time.
EMPTY = """
while [ "$1" != -o ]; do shift; done
exec c++ -shared -fPIC -x c++ /dev/null -o "$2"
"""


@pytest.fixture
def unbuilt(monkeypatch, tmp_path):
    """A process that has built nothing, with an empty cache."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(building.SWITCH, raising=False)
    monkeypatch.setattr(building, "_FAILED", [])
    monkeypatch.setattr(building, "_WARNED", set())
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


@pytest.fixture
def built(unbuilt, monkeypatch):
    """The file of a program that does nothing, built by a process that may build again."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    (unbuilt / "compiler.sh").write_text(EMPTY)
    monkeypatch.setenv("CXX", f"sh {unbuilt / 'compiler.sh'}")
    assert building.build()
    building.loaded.cache_clear()
    program = only(unbuilt / "cache" / "tsforecast")
    shutil.copy2(program, unbuilt)  # this process has loaded the other one: to change it would end the tests
    return Path(shutil.move(unbuilt / program.name, program))


def only(folder: Path) -> Path:
    """Return the only thing in a folder, a program."""
    (found,) = folder.iterdir()
    assert found.suffix == ".so"
    return found


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


def test_a_truncated_program_is_built_again(built):
    """To load it would end the process."""
    whole = built.read_bytes()
    os.truncate(built, 4096)
    shutil.copy2(built, built.with_name(f"filters-{building._key()}-{'f' * 32}.so"))  # another compiler made it
    with pytest.warns(RuntimeWarning, match=r"filters-.* is not loaded: it is damaged"):
        assert not building.is_ready()
    assert building.build()
    assert only(built.parent).read_bytes() == whole


def test_a_file_that_is_no_program_is_named_and_built_again(built):
    built.write_bytes(b"no program")
    built.rename(built.with_name(f"filters-{building._key()}-{building._digest(built)}.so"))
    with pytest.warns(RuntimeWarning, match="cannot be loaded"):
        assert not building.is_ready()
    assert building.can_build()
    assert building.build()


def test_what_is_built_and_cannot_be_loaded_is_not_built_for_ever(built, monkeypatch):
    (built.parents[2] / "compiler.sh").write_text(EMPTY.replace("exec c++", "echo no program > $2; exit #"))
    built.unlink()
    with pytest.warns(RuntimeWarning, match="cannot be loaded"):
        assert not building.build()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it compiled"))
    assert not building.can_build()
    assert not building.build()


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("of", ["file", "folder"])
def test_what_others_can_write_is_not_loaded(built, mode, of):
    path = built if of == "file" else built.parent
    path.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not loaded: others than its owner"):
        assert not building.is_ready()
    assert building.build()
    assert (built.stat().st_mode | built.parent.stat().st_mode) & 0o777 == 0o700


def test_the_file_of_another_user_is_not_loaded(built, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: built.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="is not loaded: others than its owner, who must be you"):
        assert not building.is_ready()


@pytest.mark.parametrize("of", ["file", "folder"])
def test_links_are_not_followed(built, of):
    """One could lead into an archive that somebody has unpacked."""
    path = built if of == "file" else built.parent
    path.rename(built.parents[2] / "elsewhere")
    path.symlink_to(built.parents[2] / "elsewhere")
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not loaded"):
        assert not building.is_ready()


@pytest.mark.parametrize("variable", ["TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"])
def test_nothing_is_loaded_from_the_working_directory(built, variable, monkeypatch):
    home = built.parents[2] / "home"
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, "")
    for name in ("torch_extensions", "cache"):
        shutil.copytree(built.parent, built.parents[2] / "working" / name / "tsforecast")
    monkeypatch.chdir(built.parents[2] / "working")
    assert not building.is_ready()
    assert building.build()
    assert only(home / ".cache" / "torch_extensions" / "tsforecast").name == built.name
    monkeypatch.setenv(variable, "cache" if variable == "TORCH_EXTENSIONS_DIR" else ".")
    building.loaded.cache_clear()
    with pytest.warns(RuntimeWarning, match="expected TORCH_EXTENSIONS_DIR and XDG_CACHE_HOME to be absolute paths"):
        assert not building.is_ready()
    assert not building.build()  # a second warning would be an error


def test_a_build_replaces_a_program_in_use(built):
    """Were it written into, processes that have loaded it would read the other one."""
    with open(built, "rb") as used:
        building._compile(building.compiler())
        assert os.fstat(used.fileno()).st_nlink == 0
    assert only(built.parent) == built


def test_the_next_build_removes_what_a_killed_one_left(built):
    """Its program is a new one, as after a change of the source."""
    (built.parents[2] / "slow.sh").write_text("mktemp > /dev/null; sleep 60")
    os.truncate(built, 0)
    code = "from tsforecast.core.kernels import building; building._compile(building.compiler())"
    variables = {**os.environ, "CXX": f"sh {built.parents[2] / 'slow.sh'}"}
    with subprocess.Popen([sys.executable, "-c", code], env=variables, start_new_session=True) as process:
        try:
            while not list(built.parent.glob("building-*/tmp.*")):
                assert process.poll() is None
                time.sleep(0.01)
            building._compile(building.compiler())  # beside it: what it has is left alone
            assert list(built.parent.glob("building-*/tmp.*"))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert len(list(built.parent.iterdir())) == 2
    building._compile(building.compiler())
    only(built.parent)


@pytest.mark.parametrize("name", building._SOURCES)
def test_a_change_of_the_source_is_another_program(name, tmp_path, monkeypatch):
    before = building._key()
    for source in building._SOURCES:
        shutil.copy(building._HERE / source, tmp_path)
    monkeypatch.setattr(building, "_HERE", tmp_path)
    assert building._key() == before
    with open(tmp_path / name, "a") as file:
        file.write(" ")
    assert building._key() != before


@pytest.mark.parametrize("name", ["_FLAGS", "_MATHS"])
def test_a_change_of_options_is_another_program(name, monkeypatch):
    before = building._key()
    monkeypatch.setattr(building, name, (*getattr(building, name), "-Dother"))
    assert building._key() != before


def test_a_program_of_another_processor_is_another_one(monkeypatch):
    before = building._key()
    monkeypatch.setattr(building, "_vectors", lambda: ("-mother",))
    assert building._key() != before
