"""The reference of the documentation: it has every module and no other, and examples are code."""

import argparse
import inspect
from pathlib import Path

import pytest

import tsforecast
from docs.options import with_options
from tsforecast import StateSpaceEstimator
from tsforecast.cli import command_lines, commands, records
from tsforecast.cli.records import texts_of
from tsforecast.cli.train_parser import Train

PACKAGE = Path(tsforecast.__file__).parent


def test_every_module_is_in_the_reference():
    files = PACKAGE.rglob("*.py")
    modules = {".".join(("tsforecast", *p.relative_to(PACKAGE).with_suffix("").parts)) for p in files}
    pages = (PACKAGE.parent / "docs" / "api").glob("*.md")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    listed = [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]
    assert sorted(listed) == sorted(m for m in modules if not m.endswith("__"))


def test_the_example_of_the_estimator_is_shown_as_code():
    griffe = pytest.importorskip("griffe")
    text = griffe.Docstring(inspect.cleandoc(StateSpaceEstimator.__doc__), parser="google")
    sections = {section.kind.value: section for section in text.parsed}
    assert "admonition" not in sections  # as which `Example:` would be read, and its prompts as quotations
    ((kind, code),) = sections["examples"].value
    assert kind.value == "examples"
    assert code.startswith(">>> estimator = StateSpaceEstimator(")


def test_every_command_has_its_options_in_the_page_of_commands():
    """Tables come from the records: an option that is added, renamed or described anew is so on the page."""
    text = (PACKAGE.parent / "docs" / "commands.md").read_text(encoding="utf-8")
    marked = {name for name in commands.RECORDS if f"<!-- options: {name} -->" in text}
    assert marked == commands.RECORDS.keys() - {"impute"}  # which has those of `predict`
    shown = with_options(text)
    assert "<!-- options" not in shown
    for record in (*commands.RECORDS.values(), Train, command_lines.Tune):
        for option in records.options_of(record):
            name = option.metadata.get("place") or f"--{option.name}"
            assert f"`{name}" in shown or option.metadata.get("text") == argparse.SUPPRESS, (record, name)
    assert f"| `--rate X` | {texts_of(commands.Anomalies)['rate']}; default 0.001 |" in shown
