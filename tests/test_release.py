"""What a release says of itself in several places is the same in all of them."""

import importlib.util
import re
import shlex
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


def test_links_of_the_index_lead_to_the_repository():
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    text = "![a](docs/a.png) [b](docs/b.md), [`c`, `d`](LICENSE), [e](https://e.org) [f](#f)"
    assert release.absolute(text, "https://host/us/it", "1.2.3") == (
        "![a](https://host/us/it/raw/v1.2.3/docs/a.png) [b](https://host/us/it/blob/v1.2.3/docs/b.md), "
        "[`c`, `d`](https://host/us/it/blob/v1.2.3/LICENSE), [e](https://e.org) [f](#f)"
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"/(?:raw|blob)/v0/([^)#]+)", release.absolute(readme, "https://host/us/it", "0")):
        assert (ROOT / path).exists(), path


def test_the_image_runs_the_service_as_a_plain_user_with_the_torch_of_the_package():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    last = {word: rest for word, rest in steps}
    torch = next(text for text in PROJECT["dependencies"] if text.startswith("torch"))
    assert any(word == "RUN" and f'"{torch}" --index-url' in rest for word, rest in steps)
    users = [rest for word, rest in steps if word == "USER"]
    assert users == ["forecaster"]
    assert "/health" in last["HEALTHCHECK"]
    words = [*yaml.safe_load(last["ENTRYPOINT"]), *yaml.safe_load(last["CMD"])]
    assert shlex.join(words) == "tsforecast live serve /store --host 0.0.0.0 --token_file /run/secrets/token"
