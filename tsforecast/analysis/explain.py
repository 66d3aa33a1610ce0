"""The parts of a forecast: level, trend, seasons and covariates, and the effect of the last steps on each."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsforecast.analysis.mixture_parts import mixture_parts
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.effects.link import restored
from tsforecast.data.magnitude import in_units
from tsforecast.data.past import with_past
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.windows import cut, since_first_value
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.inference import AbstractLinearMixture
from tsforecast.models.parts.joint_inference import JointInference
from tsforecast.wording import some

log = logging.getLogger(__name__)
Parts = dict[str, tuple[np.ndarray, np.ndarray]]


def explain(
    predictor: StateSpacePredictor,
    data: Iterable[dict[str, Any]] | pd.DataFrame,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    recent: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the parts of forecasts; they add up to the means of these.

    Parts are the components of the model, as the smoother sees them behind the end of the data; the location of the
    series belongs to the first. All is in transformed units: under a transformation such as log1p the parts add up on
    the scale of the logarithm. In models with particles parts are estimates. Of a bank or a pool of linear models they
    add up in the units of the data, see `tsforecast.analysis.mixture_parts`. Curves of covariates, see
    `tsforecast.data.effects`, are one part, in the units of the data: what they change when all else is there.

    Args:
        predictor: Of a model whose state has components with names, or of a bank or pool of linear models; of several
            targets an issm or a bank, whose parts are those of the model of each.
        data: Entries, or a DataFrame in long format, as `StateSpacePredictor.predict` takes them.
        columns: What the columns of a frame are; None for those of the training.
        recent: Number of last steps to show the effect of; None for a season, of at least 7 steps. Their effect is the
            part less the same part, forecast without them.
        seed: Of particles.

    Returns:
        `item_id` and `timestamp`, or the columns of a frame for them; `target` where there are several; `part` (a
        component; "covariates"; "rest" for a dense state beside components; "fit", the sum of all), `mean` and `std`,
        and `recent`, which is NaN where a target has no value before the last steps.

    Raises:
        ValueError: If the model has no components with names, `recent` is below 1, or an entry is not as expected.
    """
    net = predictor.prediction_net
    _mixture_of(net)  # which refuses models without parts
    steps = max(7, net.data.season) if recent is None else recent
    if steps < 1:
        raise ValueError(f"expected recent to be at least 1, got {steps}")
    histories = predictor.histories()
    histories.alone("parts are those")
    frames, cells, ragged = [], {}, {}
    entries, read = predictor.read(data, columns)
    targets = (read or columns_of(predictor.columns)).targets
    for entry in entries:
        histories.check(entry, predictor.prediction_length)
        if histories.num_shown < net.data.num_targets:  # covariates whose past alone is known are further targets
            entry = with_past(entry)
        if np.unique(_ends(entry)).size > 1:
            ragged[repr(entry.get("item_id"))] = None
        now, was = (
            histories.exactly(partial(_parts, entry=entry, hidden=hidden, seed=seed), 1, "part")
            for hidden in (0, steps)
        )
        frames.append(_frame(predictor, entry, targets, *(x[: histories.num_shown] for x in (now, was))))
        cells |= cells_of([entry])
    if not frames:
        raise ValueError("the data set is empty: expected at least one series")
    if ragged:
        log.info("%s: targets end at different steps; parts leave out what one says of another", some(list(ragged), 6))
    frame = pd.concat(frames, ignore_index=True)
    return frame if read is None else as_read(frame, read, cells)


def _mixture_of(net: AbstractForecaster[Any]) -> AbstractLinearMixture[Any] | None:
    """Return the mixture of linear models that forecasts a target; None for a model whose smoother has the parts."""
    if net.data.num_targets > 1 and not isinstance(net.inference, JointInference):
        raise ValueError(f"parts are those of one target, got {net.data.num_targets}: make each of them a series")
    linear = net.inference.inner if isinstance(net.inference, JointInference) else net.inference.linear
    if linear is not None and not linear.is_single:
        return linear
    if net.dynamics.structure is None:
        raise ValueError(
            f"the state of this {type(net).__name__} has no components with names: expected an issm or a deepstate, or "
            "another model trained with components, as in `train gls --components auto`"
        )
    return None


def _parts(histories: Histories, entry: Mapping[str, Any], hidden: int, seed: int) -> list[Parts | None]:
    """Return mean and standard deviation of each part over the horizon, of each target.

    Of mixtures of linear models they are those of the forecast. Of others the steps of the forecast are missing values
    behind the history, which the smoother fills.

    Args:
        histories: Of the model.
        entry: A series.
        hidden: Steps at its end that count as missing.
        seed: Of particles.

    Returns:
        None for a target of which no value is left.
    """
    known, horizon, mixture = _without_last(entry, hidden), histories.horizon, _mixture_of(histories.net)
    rows, length = np.atleast_2d(known), known.shape[-1]
    is_lost = [bool(hidden) and np.isnan(row).all() for row in rows]
    if all(is_lost):
        return [None] * len(rows)
    filled = 0 if mixture is not None else horizon
    longer = {**entry, "target": np.append(known, np.full((*known.shape[:-1], filled), np.nan), -1)}
    (prepared,) = histories.transform(iter([longer]), is_train=mixture is None)
    history = None if histories.history_length is None else histories.history_length + filled
    window = since_first_value(cut(prepared, length + filled, history, horizon - filled))
    exponents = histories.exponents([window])
    batch = histories.collated([window], exponents)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        if mixture is not None:
            several = mixture_parts(histories.net, mixture, batch)
        else:
            smoothed = histories.net.inference.decompose(batch)
            ahead = {name: [x[:, -horizon:] for x in pair] for name, pair in smoothed.items()}
            several = [{name: (mean[k], std[k]) for name, (mean, std) in ahead.items()} for k in range(len(rows))]
    return [
        None if lost else _with_covariates(_in_units(parts, powers), prepared, length)
        for parts, powers, lost in zip(several, exponents[0], is_lost, strict=True)
    ]


def _in_units(parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]], exponent: np.int64) -> Parts:
    """Return the parts of a target in the units of the data."""
    whole = lambda x: in_units(x.cpu().numpy()[None], np.atleast_1d(exponent))[0]  # noqa: E731
    return {name: (whole(mean), whole(std)) for name, (mean, std) in parts.items()}


def _with_covariates(parts: Parts, prepared: dict[str, Any], length: int) -> Parts:
    """Return the parts of a forecast behind some steps with the effect of covariates that was taken from the data.

    It is the part "covariates", the last one, and belongs to the sum; deviations are to the first order, and hold the
    uncertainty of its coefficients where covariates are given beyond the target.
    """
    if "effect" not in prepared:
        return parts
    mean, deviation = (x.astype(np.float64) for x in parts["fit"])
    effect, link = prepared["effect"][length : length + len(mean)], prepared["link"]
    step = np.maximum(deviation, 1e-9 * np.abs(mean)) + 1e-300
    slope = (restored(mean + step, effect, link) - restored(mean - step, effect, link)) / (2 * step)
    whole = restored(mean, effect, link)
    others = {name: pair for name, pair in parts.items() if name != "fit"}
    doubt = np.sqrt(np.square(prepared.get("doubt", np.zeros((len(mean), 1)))).sum(1))
    own = (restored(mean, effect + doubt, link) - restored(mean, effect - doubt, link)) / 2
    return others | {"covariates": (whole - mean, own), "fit": (whole, np.hypot(slope * deviation, own))}


def _without_last(entry: Mapping[str, Any], hidden: int) -> np.ndarray:
    """Return the target of a series without its last steps."""
    target = np.asarray(entry["target"], np.float64)
    return np.where(np.arange(target.shape[-1]) < target.shape[-1] - hidden, target, np.nan)


def _ends(entry: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the number of steps behind the last value of each target that has one."""
    seen = ~np.isnan(np.atleast_2d(np.asarray(entry["target"], np.float64)))
    return seen[seen.any(1), ::-1].argmax(1)


def _frame(
    predictor: StateSpacePredictor,
    entry: Mapping[str, Any],
    targets: Sequence[str],
    now: Sequence[Parts | None],
    was: Sequence[Parts | None],
) -> pd.DataFrame:
    """Return the rows of a series: of its targets, and of each its parts."""
    length, horizon = np.shape(entry["target"])[-1], predictor.prediction_length
    with expected_alias_warnings():
        stamps = stamps_of(entry["start"] + length, horizon, entry.get("info"))
    names = targets if len(targets) == len(now) else [str(number) for number in range(len(now))]
    rows = []
    for target, parts, before in zip(names, now, was, strict=True):
        assert parts is not None
        place = {"item_id": str(entry.get("item_id")), "timestamp": stamps}
        place |= {"target": target} if len(now) > 1 else {}
        for name, (mean, std) in parts.items():
            values = {"mean": mean.astype(np.float64), "std": std.astype(np.float64)}
            recent = np.nan if before is None else values["mean"] - before[name][0]
            rows.append(pd.DataFrame({**place, "part": name, **values, "recent": recent}))
    return pd.concat(rows)


def parts_of(frame: pd.DataFrame) -> Sequence[str]:
    """Return the names of the parts of a frame that `explain` made, without their sum."""
    return [name for name in frame["part"].unique() if name != "fit"]
