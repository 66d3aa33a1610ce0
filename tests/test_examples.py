"""Every example runs with its smallest setting, and draws its picture."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_draws_its_picture(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--quick"])
    runpy.run_path(str(script), run_name="__main__")
    with Image.open(tmp_path / "outputs" / "examples" / f"{script.stem}.png") as picture:
        width, height = picture.size
        assert width > 600
        assert height > 400
        assert len(picture.convert("RGB").getcolors(width * height)) > 50  # axes, lines and bands


def test_examples_are_a_course_in_the_documentation():
    """Six at least, each short, with a page, a picture and a place in the contents."""
    assert len(EXAMPLES) >= 6
    page, contents = ((ROOT / name).read_text() for name in ("docs/examples.md", "mkdocs.yml"))
    for script in EXAMPLES:
        assert len(script.read_text().splitlines()) < 80, script
        assert f"../examples/{script.name}" in page
        assert f"examples/{script.stem}.md" in contents
        assert (ROOT / "docs" / "images" / "examples" / f"{script.stem}.png").exists()
