"""Models of statsforecast as forecasts to compare with, guarded against quantiles that overflow."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from tsforecast.evaluation.metrics import LEVELS, Array

CLASSICS = ("auto_ets", "auto_theta", "mstl", "auto_arima")
INSTALL = "needs statsforecast: `pip install 'tsforecast[baselines]'`"
# The central interval, in percent, that each level bounds.
_WIDTHS = [round(abs(200 * level - 100)) for level in LEVELS]
_FAR = 100  # spreads of the training range, beyond which no quantile is a forecast
# The season beside the main one that a model of several takes: the week of hours and of half hours.
_LONGER = {24: 168, 48: 336}


@dataclass(frozen=True)
class Classical:
    """A model of statsforecast with its own intervals, filtered on with its fitted parameters."""

    model: Any  # fitted; of AutoETS without states and residuals, which are as long as the series
    additive: bool = False  # whether forms that multiply were left out of the search

    @classmethod
    def fit(cls, name: str, horizon: int, history: Array, season: int) -> "Classical":
        """Fits to a training range, over additive forms alone where the quantiles of all forms overflow.

        Raises:
            ValueError: If the quantiles of the fitted model are not finite, or absurd.
            Exception: Whatever statsforecast raises, for example on tiny series.
        """
        for additive, model in enumerate(_models(name, history, season)):
            fitted: Any = model.fit(history)
            if name == "auto_ets":
                fields: dict[str, Any] = fitted.model_
                fitted.model_ = {key: fields[key] for key in ("m", "components", "par", "fit", "n_params")}
            classical = cls(fitted, bool(additive))
            if plausible(classical.quantiles(history, horizon), history):
                return classical
        raise ValueError(f"the quantiles of {name} are not finite, or more than {_FAR} times as far as the data spread")

    def quantiles(self, history: Array, length: int) -> Array:
        """Quantiles (level, length) after `history`."""
        with np.errstate(all="ignore"):  # undamped models divide by 1 - phi and drop the result; others overflow
            forecast = self.model.forward(y=history, h=length, level=sorted({*_WIDTHS}))
        sides = ["lo" if level < 0.5 else "hi" for level in LEVELS]
        return np.stack([forecast[f"{side}-{width}"] for side, width in zip(sides, _WIDTHS, strict=True)])


def is_installed() -> bool:
    """Return whether statsforecast is here, an extra of the package."""
    return find_spec("statsforecast") is not None


def _models(name: str, history: Array, season: int) -> Iterator[Any]:
    """The method of a name as statsforecast has it; then over additive forms alone, where others are in its search."""
    from statsforecast import models  # takes seconds to import, and few need it

    if name == "auto_ets":
        yield models.AutoETS(season_length=season)
        yield models.AutoETS(season_length=season, model="AZZ")
    elif name == "auto_theta":
        yield models.AutoTheta(season_length=season)
        yield models.AutoTheta(season_length=season, decomposition_type="additive")
    elif name == "auto_arima":
        yield models.AutoARIMA(season_length=season)
    else:
        cycles = [lag for lag in (season, _LONGER.get(season, 0)) if 1 < lag <= len(history) // 2]
        trend: Any = models.AutoETS(season_length=1, model="ZZN")
        yield models.MSTL(season_length=cycles, trend_forecaster=trend) if cycles else trend


def plausible(quantiles: Array, training: Array) -> bool:
    """Return whether quantiles are finite, and none is farther from the training range than it spreads, many times."""
    low, high = training.min(), training.max()
    far = _FAR * (high - low if high > low else max(abs(high), 1.0))
    return bool(np.isfinite(quantiles).all() and quantiles.min() >= low - far and quantiles.max() <= high + far)
