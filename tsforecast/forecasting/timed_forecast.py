"""Forecasts at times of any distance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.forecasting.exact import BatchMarginals


@dataclass(frozen=True)
class TimedForecast:
    """What an observation of a series will be, or would have been, at some times.

    Attributes:
        item_id: Identifier of the series.
        times: In nanoseconds since 1970.
        batch: Distributions of the batch of series to which it belongs: exact, or mixtures over paths of a switch.
        row: Its place in the batch.
        paths: Joint sample paths (sample, time, target); None if none were drawn.
    """

    item_id: str
    times: NDArray[np.int64]
    batch: BatchMarginals
    row: int
    paths: NDArray[Any] | None = None

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
        width = values.shape[-1]
        frame = pd.DataFrame(
            values.swapaxes(1, 2).reshape(len(values), -1).T, columns=np.array(["mean", *map(str, levels)])
        )
        names = targets if len(targets) == width else [str(number) for number in range(width)]
        if width > 1:
            frame.insert(0, "target", np.repeat(list(names), len(self.times)))
        frame.insert(0, "timestamp", np.tile(self.timestamps.to_numpy(), width))
        frame.insert(0, "item_id", self.item_id)
        return frame

    def path_frame(self) -> pd.DataFrame:
        """Return the joint sample paths of one target: `item_id`, `timestamp`, `path`, `value`.

        Raises:
            ValueError: If none were drawn.
        """
        if self.paths is None:
            raise ValueError("expected sample paths, but none were drawn: give num_samples of at least 1")
        count = len(self.paths)
        stamps = np.tile(self.timestamps.to_numpy(), count)
        numbers = np.repeat(np.arange(count), len(self.times))
        return pd.DataFrame(
            {"item_id": self.item_id, "timestamp": stamps, "path": numbers, "value": self.paths[..., 0].ravel()}
        )
