"""Regimes of series with clocks of their own, and their changes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tsforecast.analysis.regime_tables import changes_table, joined, refuse_one_regime, regimes_table
from tsforecast.analysis.regimes import RegimeReport
from tsforecast.core.regimes.changes import check_level, find_changes
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.timed_answers import rows_of, smoothed_regimes
from tsforecast.forecasting.timed_histories import TimedHistories
from tsforecast.models.parts.regimes import AbstractRegimeInference


def timed_regimes(
    predictor: TimedHistories,
    source: Any,
    *,
    level: float = 0.9,
    num_samples: int = 100,
    columns: Columns | Mapping[str, Any] | None = None,
) -> RegimeReport:
    """Return regimes at every observation of each series, given all of it, and when they changed.

    Args:
        predictor: Of `sgls` or `rsgls-issm` in continuous time.
        source: Table, file or data entries.
        level: Probability of the intervals of changes.
        num_samples: Paths of regimes that are drawn; of long series fewer.
        columns: Of the table; None for those of the training data.

    Returns:
        Regimes with a column more: `scale`, the expected scale of the noise as a multiple of what it usually is.
        `p_1`, `p_2`, .. are probabilities, or the expected weights of base factors. Changes are those of the regime
        that is most likely at each moment. None are ahead.

    Raises:
        ValueError: If the model has no two regimes, the level is not between 0 and 1, or data are not as expected.
    """
    check_level(level)
    net = predictor.net
    if not isinstance(net.inference, AbstractRegimeInference):
        raise ValueError(f"expected a model that has regimes, sgls or rsgls-issm; {type(net).__name__} has none")
    tables, changes = [], []
    entries, read = predictor.read_named(source, columns)
    for entry in entries:
        batch = predictor.clock.past([entry])
        with torch.no_grad():
            weights = smoothed_regimes(net, batch, num_samples)[:, :, 0]  # (moment, path, regime)
            refuse_one_regime(weights.shape[-1])
            scales = net.inference.regime_scales()
            assert scales is not None
            scale = (weights @ scales.log()).exp().mean(1).numpy()
        moments = predictor.clock.ticked(entry)[0]["times"].astype("datetime64[ns]")
        mean = weights.mean(1)
        path = mean.argmax(-1)
        pairs = torch.einsum("tni,tnj->tij", weights[:-1], weights[1:]) / weights.shape[1]
        moves = find_changes(path, torch.cat([torch.diag_embed(mean[:1]), pairs]), level)
        rows = rows_of(predictor.clock, [entry], [np.arange(len(entry["times"]))], len(mean))[0]
        stamps = entry["times"].astype("datetime64[ns]")
        table = regimes_table(entry["item_id"], stamps, mean.numpy()[rows], path.numpy()[rows] + 1)
        tables.append(table.assign(scale=scale[rows]))
        changes.append(changes_table(entry["item_id"], moments, moves))
    cells = cells_of(entries)
    regimes = as_read(joined(tables), read, cells)
    return RegimeReport(regimes, as_read(joined(changes), read, cells), regimes.iloc[:0])
