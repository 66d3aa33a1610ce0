"""The words of docstrings: a first line names a thing or an act, and does not hang on a subordinate clause."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tsforecast

PACKAGE = Path(tsforecast.__file__).parent
HIGHEST_SHARE = 0.07

_HANGS = re.compile(r"\b(what(?!-if)|which|whose|how)\b|\A(As|Likewise)\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _first_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the first line of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.partition("\n")[0]


def test_the_lint_finds_clauses_and_nothing_else():
    source = "\n".join(
        [
            '"""What a module does."""',
            'def f():\n    """Return the sum.\n\n    It says what is added.\n    """',
            'class A:\n    """As in `B`."""\n    async def g(self):\n        """Likewise, and whatever."""',
            'def h():\n    """Return somewhat shown assets, likewise sorted."""',
            "def undocumented(): ...",
        ]
    )
    assert [line for line, text in _first_lines(source) if _HANGS.search(text)] == [1, 8, 10]


def test_first_lines_of_docstrings_name_a_thing_or_an_act():
    lines = [
        (f"{path.relative_to(PACKAGE)}:{number}", text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, text in _first_lines(path.read_text(encoding="utf-8"))
    ]
    hanging = [f"{place}: {text}" for place, text in lines if _HANGS.search(text)]
    shown = "\n".join(hanging)
    assert len(hanging) <= HIGHEST_SHARE * len(lines), f"{len(hanging)} of {len(lines)} first lines:\n{shown}"
