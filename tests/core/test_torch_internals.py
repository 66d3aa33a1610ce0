"""Private parts of torch: where they are touched."""

import ast
import re
from pathlib import Path

import tsforecast

PACKAGE = Path(tsforecast.__file__).parent
MAY = {PACKAGE / "core" / "torch_internals.py", PACKAGE / "core" / "loop" / "compiled.py"}


def private_parts(path: Path) -> set[str]:
    """Attributes and modules of torch whose names begin with an underscore, but not with two."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        names = [text] if re.fullmatch(r"[\w.]+", text) else []  # and no attribute of a call
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        parts = [name.split(".") for name in names]
        found |= {".".join(p) for p in parts if p[0] == "torch" and any(x[:1] == "_" and x[:2] != "__" for x in p)}
    return found


def test_they_are_touched_in_two_files_alone():
    assert {path for path in PACKAGE.rglob("*.py") if private_parts(path)} == MAY
