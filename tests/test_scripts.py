"""Every script says at once what it does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHELL = sorted(ROOT.glob("experiments/*/*.sh"))
PYTHON = sorted(
    path
    for pattern in ("experiments/*.py", "experiments/*/*.py", "datasets/*.py", "benchmarks/*.py")
    for path in ROOT.glob(pattern)
    if '__name__ == "__main__"' in path.read_text()
)


# All in one process: what they import is imported once.
DRIVER = """
import contextlib, io, runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    sys.path.insert(0, path.rpartition("/")[0])
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(path, run_name="__main__")
            code = "none"
        except SystemExit as ended:
            code = ended.code or 0
    sys.path.pop(0)
    print(path, code, len(said.getvalue().split()), flush=True)
"""


def run(*command, **environment):
    """A command that ends at once, and what it says; one that starts its work instead runs into the time limit."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)


def test_every_python_script_answers_help():
    assert len(PYTHON) >= 20
    done = run(sys.executable, "-c", DRIVER, *map(str, PYTHON))
    answers = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert [*answers] == [str(path) for path in PYTHON], done.stderr[-2000:]
    for path, (code, words) in answers.items():
        assert code == "0", path
        assert int(words) > 10, path


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.parent.name)
def test_every_shell_script_answers_help_or_asks_a_python_script_that_does(path, tmp_path):
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\necho "asked: $*"\n')
    stand_in.chmod(0o755)
    done = run("bash", path, "--help", PYTHON=str(stand_in))
    assert done.returncode == 0, done.stderr
    script = path.with_suffix(".py")
    if script in PYTHON:
        assert done.stdout == f"asked: {script.relative_to(ROOT)} --help\n"
    else:
        assert len(done.stdout.split()) > 10


def test_a_script_without_options_refuses_them():
    done = run("bash", ROOT / "experiments" / "regimes" / "run.sh", "--epochs")
    assert done.returncode == 2
    assert "takes no options, got --epochs" in done.stderr
