"""Where results come from: the commit of the source tree, and the command. A table of results has both in every row."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tsforecast

ROOT = Path(tsforecast.__file__).resolve().parent.parent
RESULTS = ("experiments/*/results", "benchmarks/results")  # folders of tables
_COMMIT = re.compile("[0-9a-f]{40}")


def commit() -> str | None:
    """The commit of the source tree, "+" behind it if other files than results were changed; None without a tree."""
    if not (ROOT / ".git").exists():
        return None
    try:
        return _git("rev-parse", "HEAD").strip() + ("+" if changes() else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or a tree without a commit
        return None


def changes() -> list[str]:
    """Return the files that differ from the commit, other than results: tracked ones, and new ones in Python."""
    others = [f":(exclude,glob){folder}/**" for folder in RESULTS]
    lines = _git("status", "--porcelain", "--untracked-files=all", "--", ".", *others).splitlines()
    return [line[3:] for line in lines if not line.startswith("??") or line.endswith(".py")]


def provenance(output: Path) -> dict[str, str]:
    """Return the cells `commit` and `command` of rows that this script is about to write.

    Folders of this machine, which say nothing elsewhere, are `FOLDER`.

    Raises:
        SystemExit: If the table is in a folder of results and the tree has other changes: no commit has what makes
            the rows.
    """
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    arguments = ["FOLDER" if Path(one).is_absolute() else one for one in sys.argv[1:]]
    facts = {"commit": commit() or "", "command": shlex.join(["python", str(name), *arguments])}
    if is_result(output) and not is_clean(facts["commit"]):
        changed = ", ".join(changes()[:5]) if facts["commit"] else "there is no git"
        raise SystemExit(
            f"error: rows of {output} need a commit that has all that makes them, but the tree has changes "
            f"({changed}); commit them, or write elsewhere by --output"
        )
    return facts


def check_rows(output: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuses rows for a table in a folder of results that do not name the commit and the command that made them."""
    for row in rows if is_result(output) else ():
        if not is_clean(str(row.get("commit"))) or not row.get("command"):
            raise RuntimeError(
                f"{output}: expected rows with a commit without changes and a command, got {row.get('commit')!r} and "
                f"{row.get('command')!r}; make the run again"
            )


def is_clean(name: str) -> bool:
    """Return whether a text is a commit, without a mark of changes."""
    return _COMMIT.fullmatch(name) is not None


def is_result(output: Path) -> bool:
    """Return whether a table is in a folder of results."""
    path = output.resolve()
    return path.is_relative_to(ROOT) and any(path.relative_to(ROOT).parent.match(folder) for folder in RESULTS)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
