"""The rows of one target of a series: each step with its tail probability, its event and its kind."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats

from tsforecast.analysis.accounts import Account
from tsforecast.analysis.counts import Counts
from tsforecast.analysis.kinds import MISSING, kind_of, missing_tails
from tsforecast.analysis.rarity import rarity
from tsforecast.data.calendar.stamps import stamps_of

_LEAST_SQUARE = 1e-6  # of errors in the first part, by which kinds are told
_ROWS = 17  # scores of a side, between which the interval of each step is interpolated
_ROUNDING = 4 * float(np.finfo(np.float32).eps)  # of a value that never changes, as models compute
MODELS, COUNTS = "model", "negative binomial"  # distributions by which a series is judged


def judged(
    account: Account,
    target: int,
    learn: int,
    rate: float,
    given_all: bool,
    lengths: tuple[int, int],
    targets: Sequence[str],
) -> pd.DataFrame:
    """Return the rows of a target of a series; `lengths` are the steps of a stretch and of a season."""
    length, season = lengths
    (errors, counts), (ahead, _) = (_errors(account, target, learn, every) for every in (given_all, False))
    floor = _floor(account, target, learn, given_all) if counts is None else np.zeros(len(errors))
    try:
        judged = rarity(errors, ahead, floor, learn, length, rate, season)
    except ValueError as error:
        raise ValueError(f"series {account.item_id!r}: {error}") from error
    missing = np.isnan(account.values[:, target])
    gone = missing_tails(missing, learn)
    tails = np.where(missing & (np.arange(len(errors)) >= max(learn, account.begin)), gone, judged.tails)
    lower, expected, upper = (
        _interval(account, target, judged.reach, given_all)
        if counts is None
        else counts.quantiles(np.stack([-judged.reach, np.zeros_like(judged.reach), judged.reach]))
    )
    flagged = tails <= rate
    events = _events(flagged, length)
    return pd.DataFrame(
        {
            "item_id": account.item_id,
            "timestamp": stamps_of(account.start, len(errors), account.info),
            "target": targets[target],
            "value": account.values[:, target],
            "expected": expected,
            "lower": lower,
            "upper": upper,
            "error": errors,
            "tail": tails,
            "score": 0.0 - np.log10(tails),  # a tail of 1 has the score 0, and not -0
            "flagged": flagged,
            "event": events,
            "kind": _kinds(account, target, events, missing, learn, length),
            "distribution": MODELS if counts is None else COUNTS,
        }
    )


def _errors(account: Account, target: int, learn: int, given_all: bool) -> tuple[NDArray[np.float64], Counts | None]:
    """Return standardised errors, and the distributions behind them where they are counts rather than the model's."""
    values = account.values[:, target]
    low, high = (stats.norm.cdf(account.errors(given_all, more)[:, target]) for more in (-0.5, 0.5))
    median = account.quantiles((0.0,), given_all)[0, :, target]
    steps = np.arange(len(values))
    counts = Counts.likelier(values, median, high - low, (steps >= learn // 4) & (steps < learn))
    return (account.errors(given_all)[:, target], None) if counts is None else (counts.scores(values), counts)


def _floor(account: Account, target: int, learn: int, given_all: bool) -> Float[np.ndarray, " time"]:
    """Return the errors that the resolution of the data makes.

    That is half of the least difference of two values of the first part; if these are equal, the rounding of the model.
    """
    values = account.values[:learn, target]
    kept = np.unique(values[~np.isnan(values)])
    least = float(np.diff(kept).min()) if len(kept) > 1 else _ROUNDING * float(np.abs(kept).max(initial=0.0))
    low, high = account.quantiles((-1.0, 1.0), given_all)[..., target]
    width = np.maximum((high - low) / 2, np.finfo(np.float64).tiny)
    return np.nan_to_num(0.5 * least / width, nan=0.0, posinf=1e12)


def _interval(
    account: Account, target: int, reach: Float[np.ndarray, " time"], given_all: bool
) -> Float[np.ndarray, "bound time"]:
    """Return the values at errors of -reach, 0 and reach, each step with its own."""
    scores = np.unique(np.quantile(reach, np.linspace(0, 1, _ROWS)))
    scores = np.concatenate([-scores[::-1], [0.0], scores])
    table = account.quantiles(list(scores), given_all)[..., target]
    wanted = np.stack([-reach, np.zeros_like(reach), reach])
    right = np.searchsorted(scores, wanted).clip(1, len(scores) - 1)
    time = np.arange(len(reach))
    low, high = table[right - 1, time], table[right, time]
    share = (wanted - scores[right - 1]) / (scores[right] - scores[right - 1])
    return low + share.clip(0, 1) * (high - low)


def _events(flagged: NDArray[np.bool_], length: int) -> NDArray[np.int64]:
    """Return numbers of stretches of flagged steps less than a stretch apart; 0 where none is flagged."""
    places = np.flatnonzero(flagged)
    numbers = np.zeros(len(flagged), np.int64)
    numbers[places] = np.cumsum(np.diff(places, prepend=-length - 1) > length)
    return numbers


def _kinds(
    account: Account, target: int, events: NDArray[np.int64], missing: NDArray[np.bool_], learn: int, length: int
) -> list[str]:
    """Return the kind of each step's event."""
    kinds = [""] * len(events)
    errors = account.residuals(target)
    usual = 1.0 if errors is None else max(float(np.nanmean(errors[:learn] ** 2)), _LEAST_SQUARE)
    shocks = {name: np.append(np.zeros(account.begin), values) for name, values in account.shocks.items()}
    for number in range(1, int(events.max(initial=0)) + 1):
        places = np.flatnonzero(events == number)
        first, last = int(places[0]), int(places[-1])
        gone = missing[places]
        if gone.any() and gone.mean() >= 0.5:
            kind = MISSING
        else:
            kind = kind_of(first, last, errors, shocks, usual, 3 * length, account.changed)
        for place in places:
            kinds[place] = kind
    return kinds
