"""Selection of a model by the data: candidates are compared on windows before the end of the training part."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gluonts.model import Predictor
from numpy.typing import NDArray
from scipy.optimize import minimize

from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings
from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.data.task import ForecastTask, instances, last_steps
from tsforecast.forecasting.candidates import WINDOWS, Candidate, candidates
from tsforecast.forecasting.presets import EPOCHS
from tsforecast.progress import follow, silent_trainings

log = logging.getLogger(__name__)

ROUNDS = (8, 20)  # epochs of the short trainings; after a round, half of the candidates are left
_FEW = 3  # candidates that are all trained the longer time at once, not counting those that cost a tenth of others
_CHEAP = frozenset({"issm", "gls"})
_SERIES = 128  # that candidates are compared on, at most
_STEPS = 10_000  # at the end of each, likewise
_MOST_WINDOWS, _SHARE = 10, 0.1  # of long series, which can spare this share of them
_APART = 3  # horizons from one window to the next, at most: neighbours have the same weather
_MARGIN = 0.01  # relative difference of scores below which the candidate that is named first is taken
_POOLED = 0.02  # by how much a pool has to be better than its members, whose costs add up
_LEAST = 0.1  # weight of a member of a pool
# Quantiles in the middle of equal shares: as a sample of equal weights they have the CRPS that is their quantile loss.
_LEVELS = tuple(((np.arange(20) + 0.5) / 20).tolist())


@dataclass(frozen=True)
class Trial:
    """A short training of a candidate.

    Attributes:
        candidate: The candidate.
        epochs: Length of the training, at most: see `trained`.
        losses: CRPS of every series on the windows, by twenty quantiles; infinite where the training diverged.
        size: Sum of the absolute labels.
        seconds: What training and scoring took.
        quantiles: Of every value of the windows, (value, level); None of a pool, or where the training diverged.
    """

    candidate: Candidate
    epochs: int
    losses: NDArray[np.float64]
    size: float
    seconds: float
    quantiles: NDArray[np.float64] | None = None

    @property
    def trained(self) -> int:
        """Return the epochs of the training: a model that begins with learnt parameters has fewer."""
        return min(self.epochs, EPOCHS.get(self.candidate.model, self.epochs))

    @property
    def crps(self) -> float:
        """Return the weighted quantile loss: the CRPS by the sum of absolute labels."""
        return float(self.losses.sum() / self.size) if self.size else 0.0


def relative_scores(trials: Sequence[Trial]) -> list[float]:
    """Return the score of each trial: its losses relative to their mean over the trials, averaged over series.

    All series count alike, whatever their size. A series that all forecast without a loss counts 1 for each.
    """
    losses = np.stack([trial.losses for trial in trials])
    usable = np.isfinite(losses).all(1)
    mean = losses[usable].mean(0) if usable.any() else np.ones(losses.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mean > 0, losses / mean, 1.0).mean(1).tolist()


@dataclass(frozen=True)
class Selection:
    """What was compared, and what was chosen.

    Attributes:
        chosen: The candidate that was chosen.
        trials: All short trainings, those of longer rounds last.
        reason: Why it was chosen.
    """

    chosen: Candidate
    trials: tuple[Trial, ...]
    reason: str

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each candidate, the best first; the last round of each counts."""
        last = {str(trial.candidate): trial for trial in self.trials}
        rows = []
        for epochs in sorted({trial.epochs for trial in self.trials}, reverse=True):
            same = [trial for trial in self.trials if trial.epochs == epochs]
            for score, trial in sorted(zip(relative_scores(same), same, strict=True), key=lambda pair: pair[0]):
                if last[str(trial.candidate)] is trial:
                    rows.append(
                        {
                            "model": trial.candidate.model,
                            "options": dict(trial.candidate.options),
                            "relative": score if np.isfinite(score) else None,  # JSON has no infinity
                            "crps": trial.crps if np.isfinite(score) else None,
                            "epochs": trial.trained,
                            "seconds": round(trial.seconds, 1),
                        }
                    )
        return rows

    def table(self) -> str:
        """Return the rows as text: the score relative to the candidates of the same round, and the CRPS."""
        cells: list[tuple[str, ...]] = [("candidate", "relative", "CRPS", "epochs")]
        for row in self.rows():
            name = str(Candidate(row["model"], row["options"]))
            numbers = ("-", "-") if row["crps"] is None else (f"{row['relative']:.3f}", f"{row['crps']:.4g}")
            cells.append((name, *numbers, str(row["epochs"])))
        widths = [max(len(row[k]) for row in cells) for k in range(4)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        )


def select(
    task: ForecastTask,
    train: Callable[[Candidate, int, Sequence[dict[str, Any]]], Predictor],
    seed: int | None = 0,
    time_budget: float | None = None,
    compared: Sequence[Candidate] | None = None,
) -> Selection:
    """Returns the candidate with the best forecasts of windows before the end, by short trainings; the log shows all.

    Every round trains what is left on a sample of the series without their last windows, and scores these. The better
    half goes on to a longer round (successive halving; Jamieson and Talwalkar 2016), and so does the candidate that is
    named first: what many parameters share is learnt late. Few are all trained that long at once. A mixture of those in
    the last round is taken where it is better than each of them (`pooled`).

    Args:
        task: Series without a test part: all of their values may be looked at.
        train: Trains a candidate for so many epochs on such entries.
        seed: Of the sample of series.
        time_budget: Seconds after which no further training begins; None for no bound.
        compared: The candidates, the most likely first; None for those of `candidates`.
    """
    left = candidates(task) if compared is None else list(compared)
    held_out = comparison(task, seed)
    if held_out is None or len(left) == 1:
        return _told(Selection(left[0], (), _too_short(task) if held_out is None else "there is no other"))
    trials: list[Trial] = []
    labels = labels_of(held_out)
    began = time.monotonic()
    costly = [candidate for candidate in left if candidate.model not in _CHEAP] or left
    for epochs in ROUNDS[-1:] if len(costly) <= _FEW else ROUNDS:
        done = []
        for candidate in follow(left, f"selection, {epochs} epochs", len(left), "candidates"):
            if trials and time_budget is not None and time.monotonic() - began > time_budget:
                break
            done.append(_trial(candidate, epochs, held_out, labels, train, trials))
            trials.append(done[-1])
        if len(done) < len(left):
            break
        order = np.argsort(relative_scores(done), kind="stable")[: (len(done) + 1) // 2]
        first = {0} if done[0].quantiles is not None else set()
        left = [done[place].candidate for place in sorted(first | set(order.tolist()))]
    last = [trial for trial in trials if trial.epochs == trials[-1].epochs]
    if (mixed := pooled(last, *labels)) is not None:
        trials.append(mixed)
        last.append(mixed)
    scores = relative_scores(last)
    alone = [score for trial, score in zip(last, scores, strict=True) if trial is not mixed]
    chosen = next(trial for trial, score in zip(last, scores, strict=True) if score <= min(alone) * (1 + _MARGIN))
    if mixed is not None and scores[-1] <= min(alone) * (1 - _POOLED):
        chosen = mixed
    best = last[int(np.argmin(scores))]
    count = len(windows_of(held_out)[0]) // len(held_out.entries)
    windows = f"{count} windows of {held_out.prediction_length} steps before the end"
    reason = f"CRPS {chosen.crps:.4g} on {windows}, {len(held_out.entries)} series"
    if best is mixed is not chosen:
        reason += f"; the {best.candidate} is not {_POOLED:.0%} better than its best member, which costs less"
    elif best is not chosen:
        reason += f"; {best.candidate} is not {_MARGIN:.0%} better, and of such the one that was named first is taken"
    return _told(Selection(chosen.candidate, tuple(trials), reason))


def _too_short(task: ForecastTask) -> str:
    """Return why series are not compared."""
    season, steps = default_season(task.freq), task.prediction_length
    least, length = steps + max(steps + 1, 2 * season), np.median([e["target"].shape[-1] for e in task.entries])
    seasons = f"two seasons of {season}" if 2 * season > steps else "as many and one"
    return (
        f"not compared with others: half of the series would need {least} steps, a window of {steps} behind {seasons}; "
        f"the median has {length:.0f}"
    )


def _told(selection: Selection) -> Selection:
    """Return a selection, once the log has its table."""
    for line in selection.table().splitlines() if selection.trials else ():
        log.info("%s", line)
    log.info("chosen: %s, %s", selection.chosen, selection.reason)
    return selection


def comparison(task: ForecastTask, seed: int | None) -> ForecastTask | None:
    """Return a sample of the series whose last windows are for comparison; None where all series are too short."""
    steps = task.prediction_length
    season = default_season(task.freq)
    length = float(np.median([entry["target"].shape[-1] for entry in task.entries]))
    for windows in range(_span(int(_SHARE * length / steps)), 0, -1):
        least = windows * steps + max(steps + 1, 2 * season)
        long = [entry for entry in task.entries if entry["target"].shape[-1] >= least]
        if len(long) >= max(1, len(task.entries) // 2):
            order = np.random.default_rng(seed).permutation(len(long))[:_SERIES]
            entries = [last_steps(long[number], _STEPS) for number in sorted(order)]
            return ForecastTask(task.name, task.freq, steps, windows, entries)
    return None


def _span(spare: int) -> int:
    """Return the number of horizons that windows span, where a series can spare so many."""
    apart = min(_APART, (spare - 1) // (_MOST_WINDOWS - 1))
    return (_MOST_WINDOWS - 1) * apart + 1 if apart > 1 else max(WINDOWS, min(_MOST_WINDOWS, spare))


def windows_of(task: ForecastTask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return pasts and labels of a task's windows, series by series; of more than ten, ten at equal distances."""
    apart = -(-task.windows // _MOST_WINDOWS)
    kept = [number for number in range(task.windows * len(task.entries)) if number % task.windows % apart == 0]
    pasts, labels = instances(task.test())
    return [pasts[number] for number in kept], [labels[number] for number in kept]


def _trial(
    candidate: Candidate,
    epochs: int,
    task: ForecastTask,
    labels: tuple[NDArray[np.float64], NDArray[np.int64]],
    train: Callable[[Candidate, int, Sequence[dict[str, Any]]], Predictor],
    before: Sequence[Trial],
) -> Trial:
    """Return the scores of a short training, infinite where it diverges; none is longer than the model is trained."""
    longest = EPOCHS.get(candidate.model, epochs)
    if longest <= epochs:
        for trial in before:
            if trial.candidate is candidate and trial.trained == longest:
                return replace(trial, epochs=epochs, seconds=0.0)
    began = time.monotonic()
    values, owner = labels
    try:
        with silent_trainings():
            quantiles = quantiles_of(train(candidate, min(epochs, longest), task.train), task)
        losses = np.bincount(owner, _crps(quantiles, values), len(task.entries)).astype(np.float64)
    except ArithmeticError as error:
        log.info("%s diverged: %s", candidate, error)
        quantiles, losses = None, np.full(len(task.entries), np.inf)
    size = float(np.abs(np.nan_to_num(values)).sum())
    return Trial(candidate, epochs, losses, size, time.monotonic() - began, quantiles)


def labels_of(task: ForecastTask) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return all values of `windows_of`, NaN where one is missing, and the number of the series of each."""
    _, labels = windows_of(task)
    each = [np.asarray(label["target"], np.float64).ravel() for label in labels]
    windows = len(each) // len(task.entries)
    sizes = [len(one) for one in each]
    return np.concatenate(each), np.repeat(np.repeat(np.arange(len(task.entries)), windows), sizes)


def quantiles_of(predictor: Predictor, task: ForecastTask) -> NDArray[np.float64]:
    """Return twenty quantiles of every value, in the order of `labels_of`."""
    pasts, _ = windows_of(task)
    found = []
    with expected_alias_warnings():
        for forecast in predictor.predict(pasts):
            quantiles = forecast_quantiles(forecast, _LEVELS)
            found.append(np.moveaxis(quantiles, 0, -1).swapaxes(0, -2).reshape(-1, len(_LEVELS)))
    return np.concatenate(found)


def _crps(quantiles: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return twice the mean quantile loss of each value, 0 where it is missing."""
    error = values[:, None] - quantiles
    levels = np.asarray(_LEVELS)
    return np.nan_to_num(2 * np.maximum(levels * error, (levels - 1) * error).mean(1))


def pooled(trials: Sequence[Trial], values: NDArray[np.float64], owner: NDArray[np.int64]) -> Trial | None:
    """Return the mixture of candidates with the lowest CRPS, its weights found on the same windows; None of one alone.

    Members are those that differ in options of the model: how windows are cut is the same for all of a pool.

    With F = sum_k w_k F_k and X_k ~ F_k, the CRPS is sum_k w_k E|X_k - y| - sum_kl w_k w_l E|X_k - X_l| / 2 (Gneiting
    and Raftery 2007, eq. 21): it is quadratic in the weights. All series count alike, see `relative_scores`.

    Args:
        trials: Trainings of one round.
        values: Labels, see `labels_of`.
        owner: Their series.
    """
    usable = [trial for trial in trials if trial.quantiles is not None and trial.candidate.is_of_model]
    samples = [trial.quantiles for trial in usable if trial.quantiles is not None]
    seen, count = np.isfinite(values), len(usable)
    if count < 2:
        return None
    series = int(owner.max()) + 1
    away = np.stack([np.bincount(owner[seen], np.abs(x - values[:, None]).mean(1)[seen], series) for x in samples], 1)
    apart = np.zeros((series, count, count))
    for k in range(count):
        for other in range(k + 1):
            # Level by level: all pairs at once would be twenty times as many numbers as the forecasts.
            pairs = [np.abs(samples[k][:, level, None] - samples[other]).mean(1) for level in range(len(_LEVELS))]
            apart[:, k, other] = apart[:, other, k] = np.bincount(owner[seen], np.mean(pairs, 0)[seen], series)
    unit = np.stack([trial.losses for trial in usable]).mean(0)
    share = np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0) / series
    weights = _best_weights(share @ away, np.einsum("s,skl->kl", share, apart))
    members = np.flatnonzero(weights)
    if len(members) < 2:
        return None
    losses = away @ weights - 0.5 * np.einsum("skl,k,l->s", apart, weights, weights)
    options = {
        "members": "; ".join(str(usable[k].candidate) for k in members),
        "weights": ",".join(f"{weights[k]:.2f}" for k in members),
    }
    return Trial(Candidate("pool", options), usable[0].epochs, losses, usable[0].size, 0.0)


def _best_weights(away: NDArray[np.float64], apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights that minimise away . w - w' apart w / 2; small ones are 0."""
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
