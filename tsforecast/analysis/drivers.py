"""Effects of covariates as curves with intervals, and the loss of forecasts without each of them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.effects.curves import curves_of
from tsforecast.data.effects.effects import COVARIATES, Effects
from tsforecast.data.effects.fitting import fit_effects, refit_without
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.predictor import StateSpacePredictor, with_effects

Entry = dict[str, Any]


def effect_curves(predictor: StateSpacePredictor) -> pd.DataFrame:
    """Return the effect of each covariate on a value of usual size, with a row for each value of the covariate.

    A covariate and its means over the past have the value; the others have their means. What is not linear in sums, by
    a logarithmic scale, is the effect on a value as large as its series is on average.

    Args:
        predictor: Of a model behind curves of covariates.

    Returns:
        `item_id`, empty for what all series share; `covariate`; `hour` of the day, NaN for their mean; `value`;
        `effect` with `lower` and `upper`, an interval of 80 % of the shared coefficients: in shares of the mean size.
        Covariates that were dropped have no rows.

    Raises:
        ValueError: If the model has no curves.
    """
    effects = curves_behind(predictor)
    return curves_of(effects, columns_of(predictor.columns).names_ahead(effects.num_covariates))


def importance(
    predictor: StateSpacePredictor,
    data: Iterable[Entry] | pd.DataFrame,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    windows: int = 4,
) -> pd.DataFrame:
    """Return the loss of forecasts without each covariate, measured on the last windows of the data.

    Curves are fitted to what lies before these windows, with all covariates and without each, which changes no other
    column. The same model forecasts what is left. A loss is the sum of quantile losses at tenths, by that of the
    absolute values.

    Args:
        predictor: Of a model behind curves of covariates.
        data: Entries, or a DataFrame in long format, as `StateSpacePredictor.predict` takes them.
        columns: What the columns of a frame are; None for those of the training.
        windows: Number of horizons at the end of each series.

    Returns:
        `covariate`, the most important first; `loss` with all, `without` the covariate, `lost`, the share by which it
        rises, and `std_error` of this share over series and windows, NaN where there is one.

    Raises:
        ValueError: If the model has no curves, no series is long enough, or no covariate varies before the windows.
    """
    effects = curves_behind(predictor)
    horizon = predictor.prediction_length
    entries, _ = predictor.read(data, columns)
    long = with_windows(predictor, entries, windows)
    names, rows = columns_of(predictor.columns).names_ahead(effects.num_covariates), []
    before = [_cut(entry, np.shape(entry["target"])[-1] - windows * horizon, 0) for entry in long]
    fitted = fit_effects(before, predictor.freq)
    if fitted is None:
        raise ValueError(f"expected covariates that vary before the last {windows} horizons, got none")
    base = _losses(with_effects(predictor, fitted), long, windows)
    for place, name in enumerate(names):
        other = _losses(with_effects(predictor, refit_without(before, fitted, place)), long, windows)
        rises = (other[:, 0] - base[:, 0]) / base[:, 0].mean()
        error = rises.std(ddof=1) / np.sqrt(len(rises)) if len(rises) > 1 else np.nan
        sizes = base[:, 1].sum()
        sums = {"loss": base[:, 0].sum() / sizes, "without": other[:, 0].sum() / sizes}
        rows.append({"covariate": name, **sums, "lost": rises.mean(), "std_error": error})
    table = pd.DataFrame(rows)
    return table.sort_values("lost", ascending=False, kind="stable", ignore_index=True)


def with_windows(predictor: StateSpacePredictor, entries: Iterable[Entry], windows: int) -> list[Entry]:
    """Return the series with room for the windows of `importance`.

    Raises:
        ValueError: If there is none.
    """
    horizon = predictor.prediction_length
    long = [entry for entry in entries if np.shape(entry["target"])[-1] > (windows + 1) * horizon]
    if not long or windows < 1:
        raise ValueError(
            f"expected at least one window, and a series of more than {windows + 1} horizons of {horizon} steps"
        )
    return long


def curves_behind(predictor: StateSpacePredictor) -> Effects:
    """Return the curves of covariates of a model.

    Raises:
        ValueError: If it has none.
    """
    effects = getattr(predictor.input_transform, "effects", None)
    if effects is None:
        raise ValueError("expected a model behind curves of covariates, which bank, issm, gls and pool have by default")
    return effects


def _losses(predictor: StateSpacePredictor, entries: list[Entry], windows: int) -> NDArray[np.float64]:
    """Return the quantile loss and the size of the values of each series and window, (window, 2)."""
    horizon, levels = predictor.prediction_length, np.array(TENTHS)[:, None]
    pasts, labels, found = [], [], []
    for entry in entries:
        target = np.asarray(entry["target"], np.float64)
        for split in range(len(target) - windows * horizon, len(target), horizon):
            pasts.append(_cut(entry, split, horizon))
            labels.append(target[split : split + horizon])
    forecasts = predictor.predict(pasts, num_samples=0 if predictor.has_marginals else None)
    for label, forecast in zip(labels, forecasts, strict=True):
        error, seen = label - forecast_quantiles(forecast, TENTHS), np.isfinite(label)
        loss = 2 * np.maximum(levels * error, (levels - 1) * error).mean(0)
        found.append((loss[seen].sum(), np.abs(label[seen]).sum()))
    return np.array(found)


def _cut(entry: Entry, length: int, ahead: int) -> Entry:
    """Return the first steps of an entry, with covariates of some more."""
    known = np.asarray(entry[COVARIATES])[:, : length + ahead]
    return {**entry, "target": entry["target"][:length], COVARIATES: known}
