"""The notebooks of the examples run in a kernel with their smallest setting, and show their picture."""

import pytest

from experiments.notebooks import EXAMPLES, notebook, scripts

SMALL = ('"--quick" in sys.argv', "True")


def test_cells_are_those_of_the_script():
    nbformat = pytest.importorskip("nbformat")
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nimport os  # noqa: E402\n\n# %%\nfigure = 1\n"
    made = nbformat.reads(notebook(text), as_version=4)
    nbformat.validate(made)
    kinds = ["markdown", "code", "code"]
    texts = ["# Title\n\nWords.", "%matplotlib inline\nimport os", "figure = 1\nfigure"]
    assert [(one.cell_type, one.source) for one in made.cells] == [*zip(kinds, texts, strict=True)]


@pytest.mark.parametrize("name", [path.stem for path in scripts()])
def test_notebook_shows_its_picture(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    made = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    for one in made.cells:
        one.source = one.source.replace(*SMALL)
    nbclient.NotebookClient(made, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = [output for output in made.cells[-1].outputs if output.output_type == "execute_result"]
    assert "image/png" in shown.data
