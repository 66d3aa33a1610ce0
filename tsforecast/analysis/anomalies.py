"""Anomalies of series: steps and stretches that are rare under a model of the steps before them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tsforecast.analysis.accounts import accounts, is_one_system
from tsforecast.analysis.judged import COUNTS, judged
from tsforecast.analysis.rarity import SHORTEST
from tsforecast.data.calendar.frequency import default_horizon, default_season, expected_alias_warnings
from tsforecast.data.calendar.stamps import shown, stamps_of, step_of
from tsforecast.data.checks import as_numbers
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import as_pandas, columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.wording import some

log = logging.getLogger(__name__)

LEARNT = 0.3  # share of a series that teaches what is ordinary, where no date is given
_LONGEST = 24  # steps of a stretch
_LEARNT_FROM = 40  # values, at least
_EPOCHS = 20
_NAMED = 10  # series that a line names, at most
GIVEN = ("past", "all")


def anomalies(
    data: Any,
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
        data: A frame of pandas, polars or the like in long format, see `tsforecast.data.read_task`; or GluonTS data
            entries.
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
    _check_options(rate, given, stretch, predictor)
    entries, alias, targets, read = _entries(as_pandas(data), predictor, columns, freq)
    learn = [learning_steps(entry, since) for entry in entries]
    if predictor is None:
        predictor = trained(entries, learn, alias, seed)
    season = default_season(alias)
    lengths = stretch or min(max(season, SHORTEST), _LONGEST), season
    tables = []
    for account, first in zip(accounts(predictor, entries, learn), learn, strict=True):
        tables += [judged(account, k, first, rate, given == "all", lengths, targets) for k in range(len(targets))]
    frame = pd.concat(tables, ignore_index=True)
    _say_counts(frame, len(tables), several=len(targets) > 1)
    frame = frame.drop(columns=[] if len(targets) > 1 else "target")
    return frame if read is None else as_read(frame, read, cells_of(entries))


def _check_options(rate: float, given: str, stretch: int | None, predictor: StateSpacePredictor | None) -> None:
    if not 0 < rate < 0.5:
        raise ValueError(f"expected a false-alarm rate between 0 and 0.5, got {rate}")
    if given not in GIVEN:
        raise ValueError(f"expected given to be 'past' or 'all', got {given!r}")
    if stretch is not None and stretch < 2:
        raise ValueError(f"expected a stretch of at least 2 steps, got {stretch}")
    if given == "all" and predictor is not None and not is_one_system(predictor):
        raise ValueError(
            f"given='all' needs a model that is one linear system, as issm and gls are; of "
            f"{type(predictor.prediction_net).__name__} take given='past'"
        )


def _say_counts(frame: pd.DataFrame, series: int, several: bool) -> None:
    """Logs the series judged as counts rather than by the model's own distribution."""
    rows = frame[frame["distribution"] == COUNTS]
    every = rows["item_id"].astype(str) + " " + rows["target"].astype(str) if several else rows["item_id"].astype(str)
    names = [*dict.fromkeys(every)]
    if names:
        said = "%d of %d series are counts: a negative binomial distribution around the model's medians judges %s"
        log.info(said, len(names), series, some(names, _NAMED))


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
        enough = int(places[_LEARNT_FROM]) if len(places) > _LEARNT_FROM else 0
        learn = max(begin + int(LEARNT * (length - begin)), enough)
    else:
        with expected_alias_warnings():
            try:
                period: Any = since if isinstance(since, pd.Period) else step_of(since, start, entry.get("info"))
                learn = (period.ordinal - start.ordinal) // start.freq.n
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"expected since to be a date, got {since!r}") from error
            if not 0 < learn < length:
                first, last = (shown(stamp) for stamp in stamps_of(start, length, entry.get("info"))[[0, -1]])
                raise ValueError(
                    f"series {name}: expected since to be within the data, which go from {first} to {last}, got {since}"
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
