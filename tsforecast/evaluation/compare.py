"""Whether one model is ahead of another on the same windows, or merely lucky."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

_LEAST_CELLS = 6  # series times blocks of windows from which an interval is made


@dataclass(frozen=True)
class Difference:
    """The difference of the scores of two models; less is better, so it is negative where the first is ahead.

    Attributes:
        estimate: Score of the first minus score of the second, over the same cells.
        low: Lower end of the interval.
        high: Upper end.
        level: Of the interval.
        basis: The data behind it, such as "8 series, 5 windows".
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95
    basis: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether there was enough data for an interval of the difference."""
        return bool(np.isfinite(self.high - self.low))

    @property
    def interval(self) -> str:
        """The interval to read, or why there is none."""
        if not self.has_interval:
            return f"too few for an interval ({self.basis})" if self.basis else "too few for an interval"
        return f"{self.low:+.3g} to {self.high:+.3g}"


def crps_by_window(per_forecast: pd.DataFrame) -> pd.Series:
    """CRPS over all series of each window, indexed by `start`.

    Args:
        per_forecast: `Scores.per_forecast`.
    """
    loss = (per_forecast["crps"] * per_forecast["size"]).groupby("start").sum()
    return loss / per_forecast["size"].groupby("start").sum()


def paired_difference(first: pd.DataFrame, second: pd.DataFrame, *, block: int = 7) -> Difference:
    """CRPS of the first minus that of the second, with an interval that knows of series and of blocks of windows.

    Neither series nor neighbouring windows are independent, so the variance is clustered in both directions (Cameron,
    Gelbach and Miller 2011). It is the variance of the sums over each series, plus that of the sums over each block,
    minus that of their common cells. It is not less than either of the first two. Degrees of freedom are
    Satterthwaite's (1946), as few series or blocks know little of their variance. In simulations with normal effects of
    series and of windows, 94 to 97 % of the nominal 95 % intervals held the truth. These had 6 series and 3 blocks, 12
    and 6, 30 and 10, and 30 and 14. It was 88 to 94 % where the effects of windows had an autocorrelation of .7 and a
    block was seven.

    Args:
        first: `Scores.per_forecast`, or the rows of some windows of it.
        second: Likewise, with the same rows.
        block: Windows in a block; windows of one block may depend on one another. A block has fewer windows if there
            would be less than three blocks, too few to estimate their variance.

    Returns:
        The difference; the interval is without end where series times blocks are less than six, as of one series with
        five windows or of two with two: so few can not show their variance.

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
    estimate = float(change.sum() / size.sum())
    shares = (change - estimate * size) / size.sum()
    windows = shares.shape[1]
    parts = np.array_split(shares, max(windows // block, min(windows, 3)), axis=1)
    cells = np.stack([part.sum(1) for part in parts], axis=1)
    sums = (cells.sum(1), cells.sum(0))
    within = [np.square(x).sum() * len(x) / (len(x) - 1) if len(x) > 1 else 0.0 for x in sums]
    both = np.square(cells).sum() * cells.size / max(cells.size - 1, 1)
    variance = max(*within, sum(within) - both)
    basis = f"{series} series, {windows} window{'s' if windows > 1 else ''}"
    if cells.size < _LEAST_CELLS:
        return Difference(estimate, -np.inf, np.inf, basis=basis)
    certain = sum(v**2 / (len(x) - 1) for v, x in zip(within, sums, strict=True) if len(x) > 1)
    from scipy import stats  # takes a second to import

    half = stats.t.ppf(0.975, variance**2 / certain) * np.sqrt(variance) if certain else 0.0
    return Difference(estimate, float(estimate - half), float(estimate + half), basis=basis)
