"""The reference of the documentation has every module, and no other."""

from pathlib import Path

import tsforecast

PACKAGE = Path(tsforecast.__file__).parent


def test_every_module_is_in_the_reference():
    files = PACKAGE.rglob("*.py")
    modules = {".".join(("tsforecast", *p.relative_to(PACKAGE).with_suffix("").parts)) for p in files}
    pages = (PACKAGE.parent / "docs" / "api").glob("*.md")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    listed = [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]
    assert sorted(listed) == sorted(m for m in modules if not m.endswith("__init__"))
