"""Selection of a model by the data: candidates are compared on windows before the end of the training part."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gluonts.model import Predictor
from numpy.typing import NDArray
from scipy.optimize import minimize

from tsforecast.data.task import ForecastTask
from tsforecast.forecasting import grid_training
from tsforecast.forecasting.bursts import bursts
from tsforecast.forecasting.candidates import Candidate, bursting, candidates, has_several, without_comparison
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.trials import (
    LEVELS,
    WEIGHTS,
    Train,
    Trial,
    comparison,
    crps,
    gain,
    quantiles_of,
    shares_of,
    values_of,
)
from tsforecast.progress import follow, silent_trainings, warnings_only
from tsforecast.wording import counted

log = logging.getLogger(__name__)

_OF_SEVERAL = (
    "several targets (covariates known in the past alone count as such): bank and issm have a model for each, with "
    "correlated errors, gls one system of all; scores are in units of each target's seasonal error"
)

_LEAST = 0.1  # weight of a member
_SURE = 2.0  # standard errors of a gain


@dataclass(frozen=True)
class Selection:
    """What was compared, and what was chosen."""

    chosen: Candidate  # the candidate that was chosen
    trials: tuple[Trial, ...]  # all candidates that were compared
    reason: str  # why it was chosen
    share: NDArray[np.float64] | None = None  # weights of the series in the score; None where they are 1
    # What else is to be known: whether switching models were tried, what few large series decide.
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each candidate, the best first: model, options, score and CPU seconds."""
        share = self.share
        scored = [(one.score(np.ones(len(one.losses)) if share is None else share), one) for one in self.trials]
        return [
            {
                "model": trial.candidate.model,
                "options": dict(trial.candidate.options),
                "score": score if np.isfinite(score) else None,  # JSON has no infinity
                "seconds": round(trial.seconds, 1),
            }
            for score, trial in sorted(scored, key=lambda pair: pair[0])
        ]

    def table(self) -> str:
        """Return the rows as text."""
        cells: list[tuple[str, ...]] = [("candidate", "score", "CPU s")]
        for row in self.rows():
            score = "-" if row["score"] is None else f"{row['score']:.4g}"
            cells.append((str(Candidate(row["model"], row["options"])), score, f"{row['seconds']:.1f}"))
        widths = [max(len(row[k]) for row in cells) for k in range(3)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        )


def select(
    task: ForecastTask,
    train: Train,
    seed: int | None = 0,
    time_budget: float | None = None,
    compared: Sequence[Candidate] | None = None,
    weights: str = "sum",
) -> Selection:
    """Return the candidate whose forecasts of windows before the end are best, and worth its cost; the log has all.

    Each is trained once, on a sample of the series without their last windows, as it will be trained in the end. Then
    its forecasts begin at each window. A mixture in equal parts of the first two joins behind them. Switching models
    join where errors of the bank come in bursts (`bursts`), and the best mixture joins at the end (`pooled`). A
    candidate takes the place of those before it where its score is lower by more than twice the standard error of the
    difference (`gain`). The first is like what `forecast` takes.

    Args:
        task: Series without a test part: all of their values may be looked at.
        train: Trains a candidate on such entries.
        seed: Of the sample of series.
        time_budget: Seconds after which no further training begins; None for no bound.
        compared: The candidates, the cheapest first; None for those of `candidates`.
        weights: Of series in the score, see `tsforecast.forecasting.trials.shares_of`.
    """
    left, several = candidates(task) if compared is None else list(compared), has_several(task)
    held_out = comparison(task, seed)
    if held_out is None or len(left) == 1:
        first = without_comparison(task) if compared is None else left[0]
        return _told(Selection(first, (), _too_short(task) if held_out is None else "there is no other"))
    trials, values = [], values_of(held_out)
    notes = [_OF_SEVERAL] * several
    share, began = shares_of(held_out, values, weights), time.monotonic()
    for candidate in follow(left, "selection", len(left), "candidates"):  # which some may join meanwhile
        if trials and time_budget is not None and time.monotonic() - began > time_budget:
            notes.append(f"the time was over after {len(trials)} of {len(left)} candidates")
            break
        trial, predictor = _trial(candidate, held_out, values, train)
        trials.append(trial)
        has_second = len({one.candidate.member for one in trials}) == 2 and not any(
            one.quantiles is None for one in trials
        )
        if compared is None and has_second and (halves := pooled(trials, values, share, equal=True)) is not None:
            trials.append(halves)  # weights that windows find suit the weather of these windows
        if compared is None and not several and len(trials) == 1 and isinstance(predictor, StateSpacePredictor):
            come, said = bursts(predictor, held_out.entries)
            left += bursting(task) if come else []
            notes.append(f"switching models are {'' if come else 'not '}tried: {said}")
    if (mixed := pooled(trials, values, share)) is not None:
        trials.append(mixed)
    chosen, reason = _best(trials, share)
    other = next(one for one in WEIGHTS if one != weights)
    notes += _of_few(chosen, share, other, _best(trials, shares_of(held_out, values, other))[0])
    where = f"{counted(values.shape[1], 'window')} of {counted(task.prediction_length, 'step')} before the end of "
    where += f"{len(held_out.entries)} of {len(task.entries)} series"
    return _told(Selection(chosen.candidate, tuple(trials), f"{reason} on {where}", share, tuple(notes)))


def _best(trials: Sequence[Trial], share: NDArray[np.float64]) -> tuple[Trial, str]:
    """Return the trial that is chosen, and why: each has to be surely better than those before it."""
    chosen = trials[0]
    for trial in trials[1:]:
        fails = not np.isfinite(chosen.losses).all()
        if np.isfinite(trial.losses).all() and (fails or _is_better(*gain(chosen, trial, share))):
            chosen = trial
    reason = f"score {chosen.score(share):.4g}"
    best = min(trials, key=lambda trial: trial.score(share))
    if best.score(share) < chosen.score(share):
        lower, error = gain(chosen, best, share)
        reason += f"; that of {best.candidate} is lower by {lower:.2g}, with a standard error of {error:.2g};"
    return chosen, reason


def _is_better(lower: float, error: float) -> bool:
    return lower > _SURE * error


def _of_few(chosen: Trial, share: NDArray[np.float64], other: str, otherwise: Trial) -> list[str]:
    """Return a sentence on the series that have half of the score, and what other weights would choose."""
    parts = np.sort(share * chosen.losses.sum(1))[::-1]
    if len(parts) < 2 or not np.isfinite(parts).all():
        return []
    few = int(np.searchsorted(parts.cumsum(), parts.sum() / 2)) + 1
    what = "the same" if otherwise is chosen else str(otherwise.candidate)
    return [f"half of the score comes from {few} of {len(parts)} series; weights {other!r} would choose {what}"]


def _too_short(task: ForecastTask) -> str:
    """Return why series are not compared."""
    steps, length = task.prediction_length, np.median([e["target"].shape[-1] for e in task.entries])
    return (
        f"not compared with others: the median series has {length:.0f} steps, and a comparison needs "
        f"{2 * steps + 1}: a window of {steps} behind {steps + 1}"
    )


def _told(selection: Selection) -> Selection:
    """Return a selection, once the log has its table."""
    for line in selection.table().splitlines() if selection.trials else ():
        log.info("%s", line)
    for line in (*selection.notes, f"chosen: {selection.chosen}, {selection.reason}"):
        log.info("%s", line)
    return selection


def _trial(
    candidate: Candidate, task: ForecastTask, values: NDArray[np.float64], train: Train
) -> tuple[Trial, Predictor | None]:
    """Return the losses of a candidate, infinite where its training fails, and its predictor."""
    began = time.process_time()
    predictor, quantiles, losses = None, None, np.full(values.shape[:2], np.inf)
    try:
        with silent_trainings(), warnings_only(grid_training.__name__):  # effects are told of the last training
            predictor = train(candidate, task.train)
            quantiles = quantiles_of(predictor, task)
        losses = crps(quantiles, values).sum(2)
    except (ArithmeticError, ValueError) as error:
        log.info("%s failed: %s", candidate, error)
    return Trial(candidate, losses, time.process_time() - began, quantiles), predictor


def pooled(
    trials: Sequence[Trial], values: NDArray[np.float64], share: NDArray[np.float64], *, equal: bool = False
) -> Trial | None:
    """Return the mixture of candidates with the lowest score, its weights found on the same windows; None of one alone.

    With F = sum_k w_k F_k and X_k ~ F_k, the CRPS is sum_k w_k E|X_k - y| - sum_kl w_k w_l E|X_k - X_l| / 2 (Gneiting
    and Raftery 2007, eq. 21): it is quadratic in the weights.

    Args:
        trials: Of all candidates.
        values: By series and window, see `tsforecast.forecasting.trials.values_of`.
        share: Weights of series in the score.
        equal: Whether all have the same weight, which needs no windows to be found.
    """
    usable = [trial for trial in trials if trial.candidate.member is not None]
    samples = [trial.quantiles for trial in usable if trial.quantiles is not None]
    usable, count = [trial for trial in usable if trial.quantiles is not None], len(samples)
    if count < 2:
        return None
    seen = np.isfinite(values)
    by_window = lambda x: np.where(seen, x, 0.0).sum(2)  # noqa: E731
    away = np.stack([by_window(np.abs(x - values[..., None]).mean(-1)) for x in samples], -1)
    apart = np.zeros((*away.shape, count))
    for k in range(count):
        for other in range(k + 1):
            # Level by level: all pairs at once would be twenty times as many numbers as the forecasts.
            pairs = [np.abs(samples[k][..., level, None] - samples[other]).mean(-1) for level in range(len(LEVELS))]
            apart[..., k, other] = apart[..., other, k] = by_window(np.mean(pairs, 0))
    weights = np.full(count, 1 / count)
    if not equal:
        weights = _best_weights(np.einsum("s,swk->k", share, away), np.einsum("s,swkl->kl", share, apart))
    members = np.flatnonzero(weights)
    shares: dict[str, float] = {}
    for k in members:  # direct forecasts, which a bank may have a share of, are then of the whole
        own = usable[k].candidate
        shares[str(own.member)] = shares.get(str(own.member), 0.0) + weights[k] * (1 - own.options.get("direct", 0.0))
    if len(shares) < 2:
        return None
    losses = away @ weights - 0.5 * np.einsum("swkl,k,l->sw", apart, weights, weights)
    options = {
        "members": "; ".join(shares),
        "weights": ",".join(f"{share / sum(shares.values()):.2f}" for share in shares.values()),
        **({"direct": round(1 - float(sum(shares.values())), 2)} if sum(shares.values()) < 0.995 else {}),
        "max_epochs": max(usable[k].candidate.options.get("max_epochs", 0) for k in members),
    }
    return Trial(Candidate("pool", options), losses, sum(usable[k].seconds for k in members))


def _best_weights(away: NDArray[np.float64], apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights that minimise away . w - w' apart w / 2; small ones are 0."""
    away, apart = away / (unit := max(away.min(), 1e-300)), apart / unit
    weights = np.full(len(away), 1 / len(away), np.float64)
    for _ in range(2):
        left = np.flatnonzero(weights >= min(_LEAST, weights.max()))  # many that are alike have little each
        linear, square = away[left], apart[np.ix_(left, left)]
        found = minimize(
            lambda w, a=linear, b=square: (a @ w - 0.5 * w @ b @ w, a - b @ w),
            np.full(len(left), 1 / len(left)),
            jac=True,
            bounds=[(0, 1)] * len(left),
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        )
        weights = np.zeros(len(away))
        weights[left] = found.x
    weights = np.where(weights >= min(_LEAST, weights.max()), np.round(weights, 2), 0.0)
    return weights / weights.sum()
