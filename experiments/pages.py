"""Writes every page that is made of tables of results, and their pictures: `python experiments/pages.py`.

With `--check` nothing is written: it fails if a page is not what the tables say. A figure in a page comes from a table.
"""

import argparse
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from experiments import notebooks, sizes
from experiments.anomalies import page as anomalies
from experiments.bandits import page as bandits
from experiments.bayesopt import page as optimisation
from experiments.fev import page as fev
from experiments.fusion import page as fusion
from experiments.hierarchies import page as hierarchies
from experiments.impact import page as impact
from experiments.irregular import page as irregular
from experiments.memory import page as memory
from experiments.nab import page as nab
from experiments.priors import page as priors
from experiments.regimes import page as regimes
from experiments.stein import page as stein
from experiments.streams import page as streams
from experiments.table1 import page as table1
from experiments.video import page as video
from experiments.zeroshot import page as zeroshot
from tsforecast.io.files import replace_file

MODULES = (
    anomalies, bandits, fev, fusion, hierarchies, impact, irregular, memory, nab, notebooks, optimisation, priors,
    regimes, sizes, stein, streams, table1, video, zeroshot,
)  # fmt: skip


def pages() -> dict[pathlib.Path, str]:
    """Return what every page should be."""
    return {page: text for module in MODULES for page, text in module.pages().items()}


def stale(found: dict[pathlib.Path, str]) -> list[str]:
    """Return the pages that are not what they should be."""
    return [str(page) for page, text in found.items() if page.read_text(encoding="utf-8") != text]


def main() -> None:
    """Writes the pages and pictures, or compares the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found = pages()
    if options.check:
        if others := stale(found):
            raise SystemExit(f"{', '.join(others)}: not what the tables say; run `python experiments/pages.py`")
        return
    for page, text in found.items():
        with replace_file(page) as temporary:
            temporary.write_text(text, encoding="utf-8")
    bandits.draw_rewards()
    memory.draw()


if __name__ == "__main__":
    main()
