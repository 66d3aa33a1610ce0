"""Writes every page that is made of results/, and their pictures: `python runs/pages.py`.

With `--check` nothing is written: it fails if a page is not what the tables say. A figure in a page comes from a table.
"""

import argparse
import pathlib

import anomalies_page
import bandits_page
import leaderboard
import memory_page
import nab_page
import stein_page
import zeroshot_page

from tsforecast.data.files import replace_file

MODULES = (leaderboard, zeroshot_page, anomalies_page, bandits_page, memory_page, nab_page, stein_page)


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
            raise SystemExit(f"{', '.join(others)}: not what results/ says; run `python runs/pages.py`")
        return
    for page, text in found.items():
        with replace_file(page) as temporary:
            temporary.write_text(text, encoding="utf-8")
    bandits_page.draw_rewards()
    memory_page.draw()


if __name__ == "__main__":
    main()
