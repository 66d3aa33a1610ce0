"""The reference of the documentation: it has every module and no other, and examples are code."""

import inspect
from pathlib import Path

import pytest

import tsforecast
from tsforecast import StateSpaceEstimator

PACKAGE = Path(tsforecast.__file__).parent


def test_every_module_is_in_the_reference():
    files = PACKAGE.rglob("*.py")
    modules = {".".join(("tsforecast", *p.relative_to(PACKAGE).with_suffix("").parts)) for p in files}
    pages = (PACKAGE.parent / "docs" / "api").glob("*.md")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    listed = [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]
    assert sorted(listed) == sorted(m for m in modules if not m.endswith("__init__"))


def test_the_example_of_the_estimator_is_shown_as_code():
    griffe = pytest.importorskip("griffe")
    text = griffe.Docstring(inspect.cleandoc(StateSpaceEstimator.__doc__), parser="google")
    sections = {section.kind.value: section for section in text.parsed}
    assert "admonition" not in sections  # as which `Example:` would be read, and its prompts as quotations
    ((kind, code),) = sections["examples"].value
    assert kind.value == "examples"
    assert code.startswith(">>> estimator = StateSpaceEstimator(")
