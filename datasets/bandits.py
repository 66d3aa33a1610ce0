"""Labelled sets as tables for `tsforecast bandit`, out of the raw files that their owners publish.

    python datasets/bandits.py adult adult.data adult.test
    python datasets/bandits.py covertype covtype.data
    python datasets/bandits.py shuttle shuttle.trn shuttle.tst
    python datasets/bandits.py mushroom agaricus-lepiota.data
    python datasets/bandits.py movielens u.data

Each writes NAME.csv, which `tsforecast bandit AGENT --data NAME` then finds: a row for each context. The label, a
word, is the column `target`; of films there is a column with the rewards of each. Raw files may be gzipped. Digits are
made by `python datasets/streams.py mnist`. README.md says where the files come from, and what the sets are not.
"""

import argparse
import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from streams import _bytes, _table

from tsforecast.data.folder import data_home
from tsforecast.io.files import replace_file

ADULT = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country",
]  # fmt: skip
COVER = ("spruce", "lodgepole", "ponderosa", "cottonwood", "aspen", "douglas", "krummholz")
# Rows of each kind of wood in the whole set of 581 012.
COVER_ROWS = (211840, 283301, 35754, 2747, 9493, 17367, 20510)
SHUTTLE = ("radiator", "fpv_close", "fpv_open", "high", "bypass", "bpv_close", "bpv_open")

log = logging.getLogger(__name__)


def _texts(path: Path, names: list[str], skip: int = 0) -> pd.DataFrame:
    """Rows of words and numbers between commas; "?" is missing.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no row, or not as many columns.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        text = _bytes(path).decode()
        frame = pd.read_csv(
            io.StringIO(text), header=None, skipinitialspace=True, na_values="?", skiprows=skip, index_col=False
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path}: expected a table ({error})") from error
    if frame.empty or frame.shape[1] != len(names):
        raise ValueError(f"{path}: expected rows of {len(names)} columns, got {frame.shape[0]} of {frame.shape[1]}")
    return frame.set_axis(names, axis=1)


def read_adult(train: Path, test: Path) -> pd.DataFrame:
    """Adults of the census of 1994 without missing values; the target is an income above 50 000 dollars, or below.

    Args:
        train: adult.data.
        test: adult.test, whose first line is no row and whose labels end with a full stop.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    names = [*ADULT, "income"]
    frame = pd.concat([_texts(train, names), _texts(test, names, skip=1)]).dropna()
    income = frame.pop("income").astype(str).str.rstrip(".")
    if wrong := sorted({*income} - {"<=50K", ">50K"}):
        raise ValueError(f"{train}, {test}: expected the labels <=50K and >50K, got {wrong[0]!r}")
    return frame.assign(target=np.where(income == ">50K", "above", "below"))


def read_covertype(path: Path, balanced: bool = False, seed: int = 0) -> pd.DataFrame:
    """Ground in Colorado by maps; the target is one of seven kinds of wood.

    A sample may have as many rows of each kind. Then 40 000 rows are drawn from it, with replacement, in which kinds
    are as frequent as in the whole set: what agents earn can then be compared with publications.

    Args:
        path: covtype.data, 54 numbers and the kind from 1 to 7; or an npz file with `values` and `label`.
        balanced: Whether the rows are written as they are.
        seed: Of the drawing.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix == ".npz":
        with np.load(path) as parts:
            table = np.column_stack([parts["values"], parts["label"]])
    else:
        table = _table(path, 55)
    kinds = table[:, -1].astype(int) - 1
    if table.shape[1] != 55 or kinds.min() < 0 or kinds.max() > 6:
        raise ValueError(f"{path}: expected 54 numbers and a kind from 1 to 7")
    rows = np.arange(len(kinds))
    if not balanced and len(kinds) < sum(COVER_ROWS):
        shares = np.array(COVER_ROWS)[kinds] / np.bincount(kinds, minlength=7)[kinds]
        rows = np.random.default_rng(seed).choice(rows, 40_000, p=shares / shares.sum())
    features = pd.DataFrame(table[rows, :-1].astype(int), columns=pd.Index([f"x{k}" for k in range(1, 55)]))
    return features.assign(target=np.array(COVER)[kinds[rows]])


def read_shuttle(train: Path, test: Path) -> pd.DataFrame:
    """Sensors of a shuttle's radiators; the target is one of seven states.

    Args:
        train: shuttle.trn: nine numbers and the state from 1 to 7.
        test: shuttle.tst.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    table = np.concatenate([_table(path, 10) for path in (train, test)]).astype(int)
    states = table[:, -1] - 1
    if states.min() < 0 or states.max() > 6:
        raise ValueError(f"{train}, {test}: expected states from 1 to 7, got {states.min() + 1} to {states.max() + 1}")
    features = pd.DataFrame(table[:, :-1], columns=pd.Index([f"x{k}" for k in range(1, 10)]))
    return features.assign(target=np.array(SHUTTLE)[states])


def read_mushroom(path: Path) -> pd.DataFrame:
    """Mushrooms by 22 letters; the target is edible or poisonous.

    Args:
        path: agaricus-lepiota.data, the class e or p first; a row of names may stand before.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    frame = _texts(path, ["target", *(f"x{k}" for k in range(1, 23))]).fillna("missing")
    if len(str(frame["target"].iloc[0])) > 1:
        frame = frame.iloc[1:]
    if wrong := sorted({*frame["target"]} - {"e", "p"}):
        raise ValueError(f"{path}: expected the class e or p, got {wrong[0]!r}")
    target = frame.pop("target").map({"e": "edible", "p": "poisonous"})
    # Letters are words in the table, so that nobody takes "f" or "t" for a truth value.
    return frame.apply(lambda column: f"{column.name}_" + column.astype(str)).assign(target=target)


def read_movielens(path: Path, films: int = 20, factors: int = 20) -> pd.DataFrame:
    """Users who rate films: latent factors of the users, and the rating of each of the films that most have rated.

    Ratings that are missing are those of a singular value decomposition of the centred table, by `factors` factors.

    Args:
        path: u.data of MovieLens-100k: user, film, rating and time, with tabulators between.
        films: Number of arms.
        factors: Number of features.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form, or too few users or films.
    """
    table = _table(path, 4).astype(int)
    ratings = pd.DataFrame(table[:, :3], columns=pd.Index(["user", "film", "rating"]))
    if not ratings["rating"].between(1, 5).all():
        raise ValueError(f"{path}: expected ratings from 1 to 5, got {ratings['rating'].min()} and others")
    wide = ratings.pivot_table(index="user", columns="film", values="rating")
    if min(wide.shape) < max(films, factors):
        raise ValueError(f"{path}: expected at least {max(films, factors)} users and films, got {wide.shape}")
    means = wide.mean()
    left, scales, right = np.linalg.svd((wide - means).fillna(0.0).to_numpy(), full_matrices=False)
    features = left[:, :factors] * scales[:factors]
    estimates = pd.DataFrame(features @ right[:factors], wide.index, wide.columns) + means
    most = np.argsort(-wide.notna().sum().to_numpy(), kind="stable")[:films]
    chosen = [wide.columns[place] for place in most]
    found = pd.DataFrame(features, wide.index, pd.Index([f"factor{k}" for k in range(1, factors + 1)]))
    rewards = wide.fillna(estimates)[chosen].clip(1, 5)
    return found.join(rewards.set_axis([f"reward {film}" for film in chosen], axis=1)).reset_index(drop=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="SET")

    def command(name: str, read: Callable[..., pd.DataFrame], **sources: str) -> argparse.ArgumentParser:
        text = (read.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, description=text, help=text)
        for source, what in sources.items():
            sub.add_argument(source, type=Path, help=what)
        sub.add_argument("--out", type=Path, default=data_home(), help="folder (TSFORECAST_DATA; default: %(default)s)")
        sub.add_argument("--name", default=name, help="of the set (default: %(default)s)")
        sub.set_defaults(read=read)
        return sub

    command("adult", read_adult, train="adult.data", test="adult.test")
    cover = command("covertype", read_covertype, path="covtype.data, or an npz file with values and label")
    cover.add_argument("--balanced", action="store_true", help="rows of a sample as they are")
    cover.add_argument("--seed", type=int, default=0, help="of the drawing (default: %(default)s)")
    command("shuttle", read_shuttle, train="shuttle.trn", test="shuttle.tst")
    command("mushroom", read_mushroom, path="agaricus-lepiota.data")
    films = command("movielens", read_movielens, path="u.data")
    films.add_argument("--films", type=int, default=20, help="number of arms (default: %(default)s)")
    films.add_argument("--factors", type=int, default=20, help="number of features (default: %(default)s)")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Writes the table of a set."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options: dict[str, Any] = vars(_parser().parse_args(argv))
    out, name, read = options.pop("out"), options.pop("name"), options.pop("read")
    try:
        frame = read(**options)
        out.mkdir(parents=True, exist_ok=True)
        with replace_file(out / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    log.info("%s: %d rows, %d columns", out / f"{name}.csv", *frame.shape)


if __name__ == "__main__":
    main()
