"""Anomalies of series: steps and stretches that are rare under a model of the steps before them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats

from tsforecast.analysis.accounts import Account, accounts
from tsforecast.analysis.counts import Counts
from tsforecast.analysis.kinds import MISSING, kind_of, missing_tails
from tsforecast.analysis.rarity import SHORTEST, rarity
from tsforecast.data.calendar.frequency import default_horizon, default_season, expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of, step_of
from tsforecast.data.checks import as_numbers
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import StateSpacePredictor

log = logging.getLogger(__name__)

LEARNT = 0.3  # share of a series that teaches what is ordinary, where no date is given
_LONGEST = 24  # steps of a stretch
_LEAST_SQUARE = 1e-6  # of errors in the first part, by which kinds are told
_ROWS = 17  # scores of a side, between which the interval of each step is interpolated
_ROUNDING = 4 * float(np.finfo(np.float32).eps)  # of a value that never changes, as models compute
_LEARNT_FROM = 40  # values, at least
_EPOCHS = 20
_NAMED = 10  # series that a line names, at most
GIVEN = ("past", "all")
MODELS, COUNTS = "model", "negative binomial"  # distributions by which a series is judged


def anomalies(
    data: pd.DataFrame | Sequence[dict[str, Any]],
    predictor: StateSpacePredictor | None = None,
    *,
    rate: float = 0.001,
    since: str | pd.Timestamp | pd.Period | None = None,
    given: str = "past",
    stretch: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    freq: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return every step of some series with its tail probability, and whether it is an anomaly.

    A step has three statistics: the size of its standardised error under the model; the sum of the errors, given the
    past, of the stretch that ends with it; and the distance of their variance from its past. The steps before give the
    rarity of each statistic, see `tsforecast.analysis.rarity`. So the share of ordinary steps that are flagged is
    `rate`, also where the model's own tails are wrong, or the volatility changes.

    Args:
        data: A frame in long format, see `tsforecast.data.read_task`, or GluonTS data entries.
        predictor: Of a model that is trained. None trains an `issm` on the first part of the data, by likelihood.
        rate: Share of ordinary steps that are flagged.
        since: First time that is judged; the steps before it are examples of the ordinary. None for the first 30 % of
            each series.
        given: "past" judges each step given those before it; "all" given those after it as well, which only models that
            are one linear system can.
        stretch: Steps of a stretch; None for a season, as far as it is from 5 to 24.
        columns: What the columns of a frame are, see `StateSpaceEstimator.train`; None for those of the training.
        freq: Frequency of a frame; None to infer it, or for that of the predictor.
        seed: Of the training.

    Returns:
        `item_id` and `timestamp`, or the columns of a frame for them; `target` where there are several, `value`,
        `expected` (the median), `lower` and `upper` (a step alone is outside of these as often as `rate` says), `error`
        (standardised), `tail` (NaN before the judged part), `score` (-log10 of it), `flagged`, `event` (number of the
        stretch of flagged steps, else 0), `kind` of the event, see `tsforecast.analysis.kinds.KINDS`, empty where
        nothing is flagged, and `distribution`, by which the series is judged: that of the "model", or a "negative
        binomial" around its medians for counts that are likelier under it.

    Raises:
        ValueError: If the data or an option are not as expected, a date is outside of the data, or a series has too few
            steps before it.
    """
    _check_options(rate, given, stretch)
    entries, alias, targets, read = _entries(data, predictor, columns, freq)
    learn = [learning_steps(entry, since) for entry in entries]
    if predictor is None:
        predictor = trained(entries, learn, alias, seed)
    season = default_season(alias)
    lengths = stretch or min(max(season, SHORTEST), _LONGEST), season
    tables = []
    for account, first in zip(accounts(predictor, entries, learn), learn, strict=True):
        if given == "all" and account.others is None:
            raise ValueError(
                f"given='all' needs a model that is one linear system, as issm and gls are; of "
                f"{type(predictor.prediction_net).__name__} take given='past'"
            )
        tables += [_judged(account, k, first, rate, given == "all", lengths, targets) for k in range(len(targets))]
    frame = pd.concat(tables, ignore_index=True)
    _say_counts(frame, len(tables), several=len(targets) > 1)
    frame = frame.drop(columns=[] if len(targets) > 1 else "target")
    return frame if read is None else as_read(frame, read, cells_of(entries))


def _check_options(rate: float, given: str, stretch: int | None) -> None:
    if not 0 < rate < 0.5:
        raise ValueError(f"expected a false-alarm rate between 0 and 0.5, got {rate}")
    if given not in GIVEN:
        raise ValueError(f"expected given to be 'past' or 'all', got {given!r}")
    if stretch is not None and stretch < 2:
        raise ValueError(f"expected a stretch of at least 2 steps, got {stretch}")


def _say_counts(frame: pd.DataFrame, series: int, several: bool) -> None:
    """Says which series are judged as counts rather than by the model's own distribution."""
    rows = frame[frame["distribution"] == COUNTS]
    every = rows["item_id"].astype(str) + " " + rows["target"].astype(str) if several else rows["item_id"].astype(str)
    names = [*dict.fromkeys(every)]
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        log.info(
            "%d of %d series are counts: a negative binomial distribution around the model's medians judges %s%s",
            len(names), series, ", ".join(names[:_NAMED]), more,
        )  # fmt: skip


def learning_steps(entry: Mapping[str, Any], since: str | pd.Timestamp | pd.Period | None) -> int:
    """Return the number of steps of a series before the judged part.

    Raises:
        ValueError: If the date is outside of the series, or too few of the steps have a value.
    """
    target, start = as_numbers(entry["target"]), entry["start"]
    length, name = target.shape[-1], repr(entry.get("item_id"))
    places = np.flatnonzero(~np.isnan(target.reshape(-1, length)).all(0))
    if not len(places):
        raise ValueError(f"series {name}: expected values, but all are missing")
    begin = int(places[0])
    if since is None:
        learn = begin + int(LEARNT * (length - begin))
    else:
        with expected_alias_warnings():
            try:
                period: Any = since if isinstance(since, pd.Period) else step_of(since, start, entry.get("info"))
                learn = (period.ordinal - start.ordinal) // start.freq.n
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"expected since to be a date, got {since!r}") from error
            if not 0 < learn < length:
                raise ValueError(
                    f"series {name}: expected since to be within the data, which go from {start} to "
                    f"{start + (length - 1)}, got {since}"
                )
    known = int((places < learn).sum())
    if known < _LEARNT_FROM:
        raise ValueError(
            f"series {name}: expected at least {_LEARNT_FROM} values before the judged part, to learn what is "
            f"ordinary, got {known}; give more of the past, or a later since"
        )
    return learn


def _entries(
    data: pd.DataFrame | Sequence[dict[str, Any]],
    predictor: StateSpacePredictor | None,
    columns: Columns | Mapping[str, Any] | None,
    freq: str | None,
) -> tuple[list[dict[str, Any]], str, Sequence[str], Columns | None]:
    """Return entries, their frequency, the names of their targets, and the roles of the columns of a frame."""
    freq, read = predictor.freq if predictor is not None else freq, None
    if isinstance(data, pd.DataFrame):
        given = None if predictor is None else predictor.columns
        roles = columns_of(given if columns is None else columns)
        kept = None if predictor is None else predictor.categories
        task = read_task(data, freq, 1, 0, columns=roles, categories=kept)
        entries, freq, names, read = list(task.entries), task.freq, roles.targets, task.columns
    else:
        entries, names = list(data), ()
        if not entries:
            raise ValueError("the data set is empty: expected at least one series")
        freq = freq or str(entries[0]["start"].freqstr)
    wide = as_numbers(entries[0]["target"])
    count = len(wide) if wide.ndim > 1 else 1
    return entries, freq, names if len(names) == count else [str(k) for k in range(count)], read


def trained(entries: Sequence[dict[str, Any]], learn: Sequence[int], freq: str, seed: int) -> StateSpacePredictor:
    """Return an issm that is trained on the first parts, by likelihood: every step then counts as a next one."""
    first = []
    for entry, steps in zip(entries, learn, strict=True):
        per_step = {name: entry[name][..., :steps] for name in ("target", "feat_dynamic_real") if name in entry}
        first.append({**entry, **per_step})
    shortest = min(learn)
    horizon = max(1, min(default_horizon(freq), shortest // 5))
    trainer = {"max_epochs": _EPOCHS}
    estimator = StateSpaceEstimator("issm", freq, horizon, objective="likelihood", seed=seed, trainer_kwargs=trainer)
    predictor = estimator.train(first)
    assert isinstance(predictor, StateSpacePredictor)
    return predictor


def _judged(
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
            "score": -np.log10(tails),
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


def _floor(account: Account, target: int, learn: int, given_all: bool) -> Float[NDArray[np.float64], " time"]:
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
    account: Account, target: int, reach: Float[NDArray[np.float64], " time"], given_all: bool
) -> Float[NDArray[np.float64], "bound time"]:
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
    account: Account,
    target: int,
    events: NDArray[np.int64],
    missing: NDArray[np.bool_],
    learn: int,
    length: int,
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
