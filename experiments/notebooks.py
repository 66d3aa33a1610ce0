"""The examples as notebooks, in examples/notebooks; `experiments/pages.py` writes them from the scripts."""

import json
import pathlib
import re
from typing import Any

from experiments.tables import ROOT

EXAMPLES = ROOT / "examples"
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def pages() -> dict[pathlib.Path, str]:
    """Return every notebook."""
    return {EXAMPLES / "notebooks" / f"{path.stem}.ipynb": notebook(path.read_text("utf-8")) for path in scripts()}


def scripts() -> list[pathlib.Path]:
    """Return the examples."""
    return sorted(EXAMPLES.glob("*.py"))


def notebook(script: str) -> str:
    """Return a script in cells as a notebook, which shows its figure at the end."""
    _, *parts = _CELL.split(script)
    cells = [cell(kind is not None, text.strip()) for kind, text in zip(parts[::2], parts[1::2], strict=True)]
    code = [one for one in cells if one["cell_type"] == "code"]
    code[0]["source"] = "%matplotlib inline\n" + code[0]["source"]
    code[-1]["source"] += "\nfigure"
    for number, one in enumerate(cells):
        one |= {"id": f"cell-{number}", "source": one["source"].splitlines(keepends=True)}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    contents = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(contents, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def cell(is_markdown: bool, text: str) -> dict[str, Any]:
    """Return a cell."""
    if is_markdown:
        return {"cell_type": "markdown", "metadata": {}, "source": re.sub(r"^# ?", "", text, flags=re.MULTILINE)}
    source = re.sub(r"  # noqa.*$", "", text, flags=re.MULTILINE)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
