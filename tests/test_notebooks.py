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


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One for all: to import the package takes longer than a notebook."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    client = nbclient.NotebookClient(nbformat.v4.new_notebook())
    client.create_kernel_manager()
    client.start_new_kernel(cwd=str(tmp_path_factory.mktemp("kernel")))
    yield client.km
    client.start_new_kernel_client()
    client._cleanup_kernel()


@pytest.mark.parametrize("name", [path.stem for path in scripts()])
def test_notebook_shows_its_picture(name, request):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    made = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    for one in made.cells:
        one.source = one.source.replace(*SMALL)
    made.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # without the names of the notebook before
    nbclient.NotebookClient(made, km=request.getfixturevalue("kernel"), timeout=300).execute()
    (shown,) = [output for output in made.cells[-1].outputs if output.output_type == "execute_result"]
    assert "image/png" in shown.data
