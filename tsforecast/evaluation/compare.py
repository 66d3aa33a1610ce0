"""Whether one model is ahead of another on the same windows, or merely lucky."""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Difference:
    """Of the CRPS of two models: negative where the first is ahead.

    Attributes:
        estimate: CRPS of the first minus CRPS of the second, over the same cells.
        low: Lower end of the interval.
        high: Upper end.
        level: Of the interval.
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95


def crps_by_window(per_forecast: pd.DataFrame) -> pd.Series:
    """CRPS over all series of each window, indexed by `start`.

    Args:
        per_forecast: `Scores.per_forecast`.
    """
    loss = (per_forecast["crps"] * per_forecast["size"]).groupby("start").sum()
    return loss / per_forecast["size"].groupby("start").sum()


def paired_difference(
    first: pd.DataFrame, second: pd.DataFrame, *, block: int = 7, repeats: int = 2000, seed: int = 0
) -> Difference:
    """CRPS of the first minus that of the second, with an interval by a bootstrap over series and blocks of windows.

    Series and moving blocks of windows (Kuensch 1989) are drawn with replacement, independently of one another
    (the pigeonhole bootstrap, Owen 2007): neither series nor neighbouring windows are independent. With few of either
    the interval is too narrow: of simulated differences with normal effects of series and of windows, 84 % of the
    nominal 95 % intervals held the truth with 6 series and 3 blocks, 88 % with 12 and 6, 92 % with 30 and 10, 94 % with
    30 and 14.

    Args:
        first: `Scores.per_forecast`, or the rows of some windows of it.
        second: Likewise, with the same rows.
        block: Windows in a block.
        repeats: Draws.
        seed: Of the draws.

    Raises:
        ValueError: If the rows are not the same, or series have different numbers of windows.
    """
    if not first.index.equals(second.index):
        raise ValueError("expected scores of the same series and windows")
    items = first.index.get_level_values("item_id")
    series = len(pd.unique(items))
    if series == 0 or (first.groupby(items, sort=False).size() != len(first) // series).any():
        raise ValueError("expected as many windows of every series")
    size = first["size"].to_numpy().reshape(series, -1)
    change = np.nan_to_num((first["crps"] - second["crps"]).to_numpy()).reshape(series, -1) * size
    windows = size.shape[1]
    length = min(block, windows)
    rng = np.random.default_rng(seed)
    rows = rng.integers(series, size=(repeats, series))
    starts = rng.integers(windows - length + 1, size=(repeats, -(-windows // length)))
    columns = (starts[..., None] + np.arange(length)).reshape(repeats, -1)[:, :windows]
    draws = np.array(
        [change[np.ix_(r, c)].sum() / size[np.ix_(r, c)].sum() for r, c in zip(rows, columns, strict=True)]
    )
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Difference(float(change.sum() / size.sum()), float(low), float(high))
