"""The tables of docs/howto/anomalies.md, of results/anomalies.csv; `experiments/pages.py` writes them."""

import csv
import pathlib
import re

from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "anomalies" / "results" / "anomalies.csv", ROOT / "docs" / "howto" / "anomalies.md"
BETWEEN = re.compile(r"(<!-- experiments/anomalies/run.py -->\n).*?(<!-- end -->)", re.DOTALL)
RATES = (0.001, 0.01, 0.05)
METHODS = ("anomalies", "rolling z-score", "STL residual")
KINDS = ("spike", "variance", "shift")


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    text = lines(TABLE)
    return {PAGE: BETWEEN.sub(lambda match: f"{match[1]}{text}{match[2]}", PAGE.read_text(encoding="utf-8"))}


def lines(table: pathlib.Path) -> str:
    """Return the lines of the guide that a table fills."""
    with table.open(newline="") as stream:
        cells = {
            (r["set"], r["method"], r["measure"]): (float(r["value"]), float(r["se"])) for r in csv.DictReader(stream)
        }
    sets = list(dict.fromkeys(name for name, _, _ in cells))
    text = ["| recall of | " + " | ".join(f"{kind}, {method}" for kind in KINDS for method in METHODS) + " |"]
    text.append("| --- " * (1 + len(KINDS) * len(METHODS)) + "|")
    for name in sets:
        found = [cells[name, method, f"recall {kind}"] for kind in KINDS for method in METHODS]
        text.append(f"| {name} | " + " | ".join(f"{value:.2f} ± {error:.2f}" for value, error in found) + " |")
    text += ["", "| flagged at | " + " | ".join(f"{rate}, {m}" for rate in RATES for m in METHODS) + " |"]
    text.append("| --- " * (1 + len(RATES) * len(METHODS)) + "|")
    for name in sets:
        found = [cells[name, method, f"share {rate}"] for rate in RATES for method in METHODS]
        text.append(f"| {name} | " + " | ".join(f"{value:.4f} ± {error:.4f}" for value, error in found) + " |")
    return "\n".join([*text, ""])
