"""What a release says of itself in several places is the same in all of them."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_LINES = 40  # of the changes of a version


def sections() -> dict[str, list[str]]:
    """Lines of the change log by version, headings and empty lines left out."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif line and found:
            found[[*found][-1]].append(line)
    return found


def test_version_and_date_are_the_same_everywhere():
    latest = next(title for title in sections() if title != "Unreleased")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert latest == f"{PROJECT['version']} ({citation['date-released']})"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_changes_of_a_version_are_short():
    for title, lines in sections().items():
        assert title == "Unreleased" or len(lines) <= MOST_LINES, title


def test_workflows_and_classifiers_have_every_python():
    tests = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    pythons = tests["jobs"]["tests"]["strategy"]["matrix"]["python"]
    marked = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    constrained = sorted(path.stem.removeprefix("python") for path in (ROOT / "constraints").glob("python*.txt"))
    assert pythons == marked == constrained
    assert PROJECT["requires-python"] == ">=3.11,<3.14"


def test_workflows_run_what_developers_run():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        commands = [step["run"].split() for job in jobs.values() for step in job["steps"] if "run" in step]
        assert commands, path
        for first, *rest in commands:
            assert first == ".ci/run" or (first == "make" and rest[0] in targets), (path, first, rest)
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
