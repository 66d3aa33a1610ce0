"""Forecasts at times of any distance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.quantiles import long_columns
from tsforecast.forecasting.exact import BatchMarginals


@dataclass(frozen=True)
class TimedForecast:
    """What an observation of a series will be, or would have been, at some times."""

    item_id: str  # identifier of the series
    times: NDArray[np.int64]  # in nanoseconds since 1970
    # Distributions of the batch of series to which it belongs: exact, or mixtures over paths of a switch.
    batch: BatchMarginals
    row: int  # its place in the batch
    paths: NDArray[Any] | None = None  # joint sample paths (sample, time, target); None if none were drawn

    @property
    def timestamps(self) -> pd.DatetimeIndex:
        """Return the times as time stamps."""
        return pd.DatetimeIndex(self.times.astype("datetime64[ns]"))

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return means (time, target)."""
        return self.batch.mean[self.row, : len(self.times)]

    def quantiles(self, levels: Sequence[float]) -> NDArray[np.float64]:
        """Return quantiles (level, time, target)."""
        return self.batch.quantiles(tuple(levels))[:, self.row, : len(self.times)]

    def frame(self, levels: Sequence[float], targets: Sequence[str] = ()) -> pd.DataFrame:
        """Return a row for each time and target: `item_id`, `timestamp`, `target` of several, `mean`, quantiles."""
        values = np.concatenate([self.mean[None], self.quantiles(levels)])  # (column, time, target)
        return self._table(values, ["mean", *map(str, levels)], targets)

    def path_frame(self, targets: Sequence[str] = ()) -> pd.DataFrame:
        """Return the joint sample paths: `item_id`, `timestamp`, `target` of several, `path`, `value`."""
        if self.paths is None:
            raise ValueError("expected sample paths, but none were drawn: give num_samples of at least 1")
        return self._table(self.paths, None, targets)

    def _table(self, values: NDArray[Any], keys: Sequence[str] | None, targets: Sequence[str]) -> pd.DataFrame:
        one = values[..., 0] if values.shape[-1] == 1 else values
        return pd.DataFrame(long_columns(self.item_id, self.timestamps.to_numpy(), one, keys, targets))
