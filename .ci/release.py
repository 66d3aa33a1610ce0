"""Builds sdist and wheel, checks them, and tries the wheel in bare environments: `make release OWNER=account`.

The package index shows README.md away from the repository, so that its links become absolute in what is built; and
`--owner` takes the place of OWNER in the addresses. Nothing is published. Sizes go to
benchmarks/results/sizes.csv.
"""

import argparse
import csv
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
SIZES = ROOT / "benchmarks/results/sizes.csv"
ANSWERS = (
    "import sys; print('%d.%d' % sys.version_info[:2]) if (3, 11) <= sys.version_info[:2] < (3, 14) else sys.exit(1)"
)
# What is installed in each bare environment: the least, then what a service needs.
EXTRAS = ("", "[baselines]", "[serve]")
SERIES = "day,sales\n" + "".join(f"2024-{1 + i // 28:02d}-{1 + i % 28:02d},{100 + i % 7}\n" for i in range(112))


def run(*words: str | pathlib.Path, cwd: pathlib.Path = BUILD) -> None:
    """Run a command, shown before it is; a failure ends the release."""
    print("+", *words, flush=True)
    subprocess.run([str(word) for word in words], cwd=cwd, check=True)


def environment(folder: pathlib.Path, python: str) -> pathlib.Path:
    """Return the Python of a new environment that holds pip alone."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def absolute(text: str, repository: str, version: str) -> str:
    """Return README.md with links and pictures that lead to the repository at the tag of the version."""
    pictures = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository}/raw/v{version}/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{repository}/blob/v{version}/", pictures)


def sources(owner: str) -> pathlib.Path:
    """Return a copy of what is committed, with addresses."""
    copy = BUILD / "source"
    copy.mkdir(parents=True)
    run("git", "-C", ROOT, "archive", "--output", BUILD / "source.tar", "HEAD")
    run("tar", "-xf", BUILD / "source.tar", "-C", copy)
    settings = copy / "pyproject.toml"
    settings.write_text(settings.read_text(encoding="utf-8").replace("OWNER/", f"{owner}/"), encoding="utf-8")
    project = tomllib.loads(settings.read_text(encoding="utf-8"))["project"]
    readme = copy / "README.md"
    text = absolute(readme.read_text(encoding="utf-8"), project["urls"]["Repository"], project["version"])
    readme.write_text(text, encoding="utf-8")
    return copy


def megabytes(folder: pathlib.Path) -> int:
    """Return what the files of an environment take."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20)


def tried(wheel: pathlib.Path, python: str, extra: str, version: str) -> dict[str, str | int]:
    """Install a wheel where nothing else is, ask it for a forecast, and return what it takes."""
    folder = BUILD / f"python{version}"
    bare = environment(folder, python)
    run(bare, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}")
    command = bare.parent / "tsforecast"
    run(command, "--version")
    answer = BUILD / "sales-forecasts.csv"
    answer.unlink(missing_ok=True)
    (BUILD / "sales.csv").write_text(SERIES, encoding="utf-8")
    run(command, "forecast", "sales.csv", "--output", answer)
    if "sales" not in answer.read_text(encoding="utf-8"):
        raise SystemExit(f"{answer} has no forecasts")
    if extra == "[serve]":
        run(command, "live", "serve", "--help")
    size = megabytes(folder)
    shutil.rmtree(folder)
    return {"python": version, "extra": extra.strip("[]"), "megabytes": size}


def git(*words: str) -> str:
    """Return what git answers."""
    return subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()


def write(rows: list[dict[str, str | int]], commit: str) -> None:
    """Write the table of sizes; not from a tree with changes, since no commit would have what makes the rows."""
    if git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results"):
        print(f"{SIZES.name} stays as it is: the tree has changes that are not committed")
        return
    facts = {"commit": commit, "command": "make release"}
    with SIZES.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*rows[0], *facts], lineterminator="\n")
        table.writeheader()
        table.writerows(row | facts for row in rows)


def main() -> None:
    """Builds, checks and tries; writes what environments take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owner", default="", help="account that the repository is published under")
    parser.add_argument("pythons", nargs="+", help="Pythons to try; those that are not there are left out")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    built = git("rev-parse", "HEAD")
    copy = sources(options.owner or "OWNER")
    tools = environment(BUILD / "tools", sys.executable)
    run(tools, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "build", "twine")
    run(tools, "-m", "build", "--outdir", BUILD / "dist", copy)
    run(tools, "-m", "twine", "check", "--strict", *sorted((BUILD / "dist").iterdir()))
    (wheel,) = (BUILD / "dist").glob("*.whl")
    rows, done = [], set[str]()
    for python in options.pythons:
        if shutil.which(python) is None:
            continue
        answer = subprocess.run([python, "-c", ANSWERS], capture_output=True, text=True)
        version = answer.stdout.strip()
        if answer.returncode or version in done:
            continue
        done.add(version)
        rows += [tried(wheel, python, extra, version) for extra in (EXTRAS if len(done) == 1 else EXTRAS[:1])]
    if not done:
        raise SystemExit(f"none of {', '.join(options.pythons)} is Python 3.11, 3.12 or 3.13")
    write(rows, built)
    print(f"build/release/dist holds the release; tried on Python {', '.join(sorted(done))}")
    if not options.owner:
        print("its addresses name OWNER: publish what `make release OWNER=account` builds")


if __name__ == "__main__":
    main()
