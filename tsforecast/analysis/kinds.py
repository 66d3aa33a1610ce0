"""The kind of an anomaly: the component that moves, by the gain in likelihood of a model that lets it move."""

import math

import numpy as np
from jaxtyping import Bool, Float

from tsforecast.analysis.residuals import LEVEL, REST, SEASON, SLOPE
from tsforecast.core.outliers import MOST

SPIKE, SHIFT, VARIANCE, MISSING, UNKNOWN = "spike", "level shift", "variance", "missing", "unknown"
_OF_PART = {LEVEL: SHIFT, SLOPE: "slope change", SEASON: "season change", REST: "state change"}
KINDS = (SPIKE, *_OF_PART.values(), VARIANCE, MISSING, UNKNOWN)
_FEW = 4  # steps from which a variance is told


def kind_of(
    first: int,
    last: int,
    errors: Float[np.ndarray, " time"] | None,
    shocks: dict[str, Float[np.ndarray, " time"]],
    usual: float,
    length: int,
    changed: Bool[np.ndarray, " time"],
) -> str:
    """Return the kind of a stretch of anomalous steps.

    A shock to an observation or to a part of the state gains half the square of its auxiliary residual (Harvey and
    Koopman 1992); another variance of n steps gains n (s - 1 - log s) / 2, where s is the ratio to the usual one. The
    largest error is left out of s, since a spike is no variance.

    Args:
        first: First step of the stretch.
        last: Its last step.
        errors: Standardised errors of all steps, each given all others, NaN where missing; None where a model has none.
        shocks: Auxiliary residuals by part of the state.
        usual: Mean square of the errors in the ordinary part, by which all squares are divided.
        length: Steps from the end of the stretch among which another variance may end: few of its steps may be flagged.
        changed: Where the series had changed, see `gains_of_changes`. The filter has followed these changes, so that no
            shock is left; all that begin before the end of the variance are weighed against it.
    """
    if errors is None:
        return UNKNOWN
    here = errors[first : last + 1]
    here = here[~np.isnan(here)] / math.sqrt(usual)
    if not len(here):
        return UNKNOWN
    gains = {SPIKE: float((here**2).max()) / 2}
    for part, values in shocks.items():
        if part in _OF_PART:
            gains[_OF_PART[part]] = float((values[first : last + 1] ** 2).max()) / (2 * usual)
    ends = range(last + 1, last + 1 + length)
    variances = [_gain_of_variance(errors[first:end] ** 2 / usual) for end in ends]
    gains[VARIANCE] = max(variances)
    end = ends[variances.index(gains[VARIANCE])]
    for kind, gain in gains_of_changes(errors, changed, usual).items():
        gains[kind] = max(gains.get(kind, 0.0), float(gain[first:end].sum()))
    return max(gains, key=lambda kind: gains[kind])


def _gain_of_variance(squares: Float[np.ndarray, " step"]) -> float:
    """Return the gain in likelihood of another variance of standardised errors, given their squares."""
    rest = np.sort(squares[~np.isnan(squares)])[:-1]
    if len(rest) < _FEW:
        return 0.0
    ratio = max(float(rest.mean()), 1e-12)
    return len(rest) * (ratio - 1 - math.log(ratio)) / 2


def gains_of_changes(
    errors: Float[np.ndarray, " time"], changed: Bool[np.ndarray, " time"], usual: float
) -> dict[str, Float[np.ndarray, " time"]]:
    """Return the gain in likelihood of each change of level or slope that was taken for outliers, where it begins.

    The errors of these outliers, which moved no prediction, are a constant or rise evenly. The gain is half the
    reduction of their squares by this regression. It goes to the better of the two; all other gains are 0.

    Args:
        errors: Standardised errors of all steps, as for `kind_of`.
        changed: Where as many outliers in a row had come that the filter took the next one for a change.
        usual: Mean square of ordinary errors.
    """
    largest = {kind: np.zeros(len(errors)) for kind in (SHIFT, _OF_PART[SLOPE])}
    for time in np.flatnonzero(changed):
        run = np.flatnonzero(~np.isnan(errors[:time]))[-MOST:]
        shapes = np.ones(len(run)), run - run[0] + 1.0
        gains = [float(shape @ errors[run]) ** 2 / (shape @ shape) / (2 * usual) for shape in shapes]
        largest[list(largest)[int(np.argmax(gains))]][run[0]] = max(gains)
    return largest


def missing_tails(missing: Bool[np.ndarray, " time"], learn: int) -> Float[np.ndarray, " time"]:
    """Return the probability of each missing step as the n-th of its run: begun, and gone on so far. Others are NaN.

    Runs begin and go on with the probabilities of a Markov chain, which the first part teaches (half a count is added
    to each: Krichevsky and Trofimov 1981).

    Args:
        missing: Which steps have no value.
        learn: Steps of the first part.
    """
    before, after = missing[: learn - 1], missing[1:learn]
    begun = (float((~before & after).sum()) + 0.5) / (float((~before).sum()) + 1)
    goes_on = (float((before & after).sum()) + 0.5) / (float(before.sum()) + 1)
    tails, run = np.full(len(missing), np.nan), 0
    for time, gone in enumerate(missing):
        run = run + 1 if gone else 0
        if run:
            tails[time] = begun * goes_on ** (run - 1)
    return tails
