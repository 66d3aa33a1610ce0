"""What the package imports is what pyproject.toml declares, in both directions."""

import ast
import inspect
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import gluonts.json
import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = (
    "baselines",
    "mlflow",
    "completion",
    "excel",
    "holidays",
    "online",
    "ray",
    "serve",
    "tune",
)  # of users; others are for tests, tools, benchmarks

OF_EXPERIMENTS = ("rl", "video")

LARGE = {"ray"}  # imported if asked for, and not installed by `make test`: a module of the distribution's name


def name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")  # pyright: ignore[reportOptionalSubscript]


def imported(path: Path) -> set[str]:
    """First parts of all absolute imports of a file, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found


def distributions(folder: str) -> set[str]:
    """Distributions that the files of a folder import; a module that is not installed stands for its own."""
    modules = set().union(*(imported(path) for path in (ROOT / folder).rglob("*.py")))
    known = packages_distributions()
    foreign = modules - {*sys.stdlib_module_names, "tsforecast", "experiments"}
    return {known.get(module, [module])[0].lower().replace("_", "-") for module in foreign}


@pytest.fixture(scope="module")
def used() -> set[str]:
    """Distributions that the package imports."""
    found = distributions("tsforecast")
    missing = found - {name.lower().replace("_", "-") for names in packages_distributions().values() for name in names}
    assert missing <= LARGE, f"not installed: {missing}"
    return found


def test_every_declared_dependency_is_used_and_every_used_one_declared(used):
    required = {name(requirement) for requirement in PROJECT["dependencies"]}
    optional = {name(text) for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra]}
    assert not required & optional
    assert "import orjson" in inspect.getsource(gluonts.json)  # the only one that another package imports for us
    assert required | optional == used | {"orjson"}


def test_extras_of_experiments_are_imported_there():
    extras = {name(text) for extra in OF_EXPERIMENTS for text in PROJECT["optional-dependencies"][extra]}
    assert extras <= distributions("experiments")


def test_shapes_are_those_of_classes():
    """NumPy's `NDArray` is an alias from 2.5 on, of which jaxtyping makes no type: every import would fail."""
    given = re.compile(r"\b(?:Float|Int|Bool)\[(?!Tensor\b|np\.ndarray\b)[A-Z].*")
    sources = (path for folder in ("tsforecast", "experiments") for path in (ROOT / folder).rglob("*.py"))
    assert not [f"{path}: {found}" for path in sources for found in given.findall(path.read_text(encoding="utf-8"))]
