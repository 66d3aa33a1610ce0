"""CPU seconds until a command has printed its help, its version or what is wrong with its arguments.

    python benchmarks/startup.py

Each line is the least of some fresh processes. The last lines are what `python -X importtime` says of the package.
"""

import argparse
import os
import re
import subprocess
import sys

LINES = {
    "--help": ["--help"],
    "--version": ["--version"],
    "unknown command": ["nothing"],
    "unknown option": ["stream", "--nothing"],
    "train --help": ["train", "--help"],
    "train issm --help": ["train", "issm", "--help"],
}
COMMAND = "import sys; from tsforecast.cli import main; sys.exit(main())"
IMPORTS = ("tsforecast", "tsforecast.cli", "tsforecast.core", "tsforecast.forecasting.estimator")


def cpu_seconds(arguments: list[str]) -> float:
    """Return the CPU seconds of one process, those of the system included."""
    before = os.times()
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True)
    after = os.times()
    if done.returncode not in (0, 2):
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def import_seconds(module: str) -> float:
    """Return the time of an import in a fresh process, by `-X importtime`: the sum of all modules' own times."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"], capture_output=True, text=True, check=True
    )
    return sum(int(own) for own in re.findall(r"^import time:\s+(\d+) \|", done.stderr, re.MULTILINE)) / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each line")
    repeats = range(parser.parse_args().repeats)
    for name, arguments in LINES.items():
        print(f"{name:<42} {min(cpu_seconds(arguments) for _ in repeats):6.2f} s")
    for module in IMPORTS:
        print(f"{'import ' + module:<42} {min(import_seconds(module) for _ in repeats):6.2f} s")


if __name__ == "__main__":
    main()
