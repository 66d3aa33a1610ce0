"""Whatever is in a folder of results can be made again: every row names the commit and the command that made it."""

import csv
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = sorted([*ROOT.glob("experiments/*/results/*.csv"), *ROOT.glob("benchmarks/results/*.csv")])
SCRIPTS = sorted([*ROOT.glob("experiments/**/*.py"), *ROOT.glob("benchmarks/*.py")])
WRITES = re.compile(r"append_rows\(|DictWriter\(|\.to_csv\(")


def rows_of(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_has_a_commit_without_changes_and_a_command(path):
    rows = rows_of(path)
    assert rows
    for row in rows:
        assert re.fullmatch("[0-9a-f]{40}", row["commit"]), row
        assert row["command"].strip(), row
        assert not re.search(r"(^|[\s=])/", row["command"]), "a folder of one machine"


def test_the_commits_of_all_rows_exist():
    git = ["git", "-C", str(ROOT)]
    shallow = subprocess.run(
        [*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("the history is not here")
    commits = sorted({row["commit"] for path in TABLES for row in rows_of(path)})
    found = subprocess.run(
        [*git, "cat-file", "--batch-check"], input="\n".join(commits), capture_output=True, text=True, check=True
    )
    assert [line for line in found.stdout.splitlines() if " commit " not in line] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scripts_that_write_tables_take_their_origin_from_one_place(path):
    text = path.read_text(encoding="utf-8")
    assert "rev-parse" not in text
    if WRITES.search(text) and "results" in text:
        assert "provenance" in text, "rows are written without provenance"


def test_scripts_run_by_their_paths():
    """A script that imports another one has the folder of both on its path."""
    scripts = [path for path in (ROOT / "experiments").rglob("*.py") if "__main__" in path.read_text(encoding="utf-8")]
    lost = [
        str(path.relative_to(ROOT))
        for path in scripts
        if re.search(r"^(from|import) experiments", text := path.read_text(encoding="utf-8"), re.MULTILINE)
        and "sys.path.append(" not in text
    ]
    assert len(scripts) > 20
    assert not lost
