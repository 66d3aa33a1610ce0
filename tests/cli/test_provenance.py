import shutil
import subprocess
from pathlib import Path

import pytest

from tsforecast.cli import provenance

TABLE = Path("experiments/topic/results/table.csv")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with a script and a table, as the package's own."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / TABLE).parent.mkdir(parents=True)
    for name in (TABLE, "runs.py"):
        (tmp_path / name).write_text("1\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "All"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "runs.py"), "--seed", "1 2"])
    return tmp_path


def head(tree):
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_rows_of_a_clean_tree_have_its_commit_and_the_command(tree):
    (tree / TABLE).write_text("1\n2\n")  # tables themselves may change, and more of them come
    (tree / TABLE).with_name("other.csv").write_text("1\n")
    facts = provenance.provenance(tree / TABLE)
    assert facts == {"commit": head(tree), "command": "python runs.py --seed '1 2'"}
    provenance.check_rows(tree / TABLE, [facts])


@pytest.mark.parametrize("name", ["runs.py", "new.py"])
def test_a_tree_with_changes_gives_no_rows_to_results(tree, name):
    (tree / name).write_text("2\n")
    with pytest.raises(SystemExit, match=rf"need a commit .*\({name}\); commit them, or write elsewhere"):
        provenance.provenance(tree / TABLE)
    elsewhere = provenance.provenance(tree / "table.csv")
    assert elsewhere["commit"] == head(tree) + "+"
    with pytest.raises(RuntimeError, match="expected rows with a commit without changes"):
        provenance.check_rows(tree / TABLE, [elsewhere])
    provenance.check_rows(tree / "table.csv", [elsewhere])


def test_without_git_there_are_no_rows_for_results(tree):
    shutil.rmtree(tree / ".git")
    assert provenance.commit() is None
    with pytest.raises(SystemExit, match="there is no git"):
        provenance.provenance(tree / TABLE)
