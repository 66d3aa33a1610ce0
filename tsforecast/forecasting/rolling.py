"""Rolling forecasts of a model that learns from each window after it has forecast it."""

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.model.forecast import Forecast

from tsforecast.data import ForecastTask
from tsforecast.data.calendar.stamps import stamp_of
from tsforecast.data.task import instances
from tsforecast.forecasting.adaptation import AdaptivePredictor
from tsforecast.learners.loop import in_prior_units
from tsforecast.progress import follow


@dataclasses.dataclass(frozen=True)
class AdaptationResult:
    """Forecasts of a model that goes on learning, and a table of how it changed."""

    forecasts: list[Forecast]  # forecasts of every test window, series by series as in the task's test data
    # A row for every window: `start`, `evidence` (mean over the series, before it was learnt from) and `moved`. The
    # last is the distance of the parameters from those that were trained, in standard deviations of the prior.
    windows: pd.DataFrame
    remembered: pd.DataFrame  # the windows that are kept at the end, see `AdaptivePredictor.remembered`


def rolling(
    predictor: AdaptivePredictor, task: ForecastTask, num_samples: int = 100, seed: int = 0, *, frozen: bool = False
) -> AdaptationResult:
    """Return forecasts of the test windows of a task, each learnt from before the next is forecast.

    Args:
        predictor: A predictor, which goes on from what it has learnt.
        task: A task whose test windows are of the same periods for all series.
        num_samples: Number of sample paths.
        seed: Seed of what is drawn, window by window.
        frozen: Whether nothing is learnt, for comparison. The random numbers are the same, so differences are less
            noisy.

    Raises:
        ValueError: If the series do not end together.
    """
    pasts, labels = instances(task.test("rolling"))
    series, windows = len(task.entries), task.windows
    starts, info = [labels[k]["start"] for k in range(windows)], labels[0].get("info")
    for number, label in enumerate(labels):
        if label["start"] != starts[number % windows]:
            raise ValueError(
                f"expected series that end together, as they are learnt from period by period; the test windows of "
                f"{label['item_id']!r} and {labels[0]['item_id']!r} begin at different times"
            )
    predictor.predictor.histories().alone("what periods teach are parameters")
    found: list[Any] = [None] * len(pasts)
    rows = []
    for k in follow(range(windows), "learning", windows, "periods"):
        torch.manual_seed(int(np.random.SeedSequence([seed % 2**63, k]).generate_state(1)[0]))
        now = range(k, series * windows, windows)
        for place, forecast in zip(now, predictor.predict([pasts[i] for i in now], num_samples), strict=True):
            found[place] = forecast
        whole = [{**pasts[i], "target": np.concatenate([pasts[i]["target"], labels[i]["target"]], -1)} for i in now]
        moved = float(in_prior_units(predictor.learner, predictor.belief)[0].norm())
        rows.append((stamp_of(starts[k], info), math.nan if frozen else predictor.learn(whole), moved))
    table = pd.DataFrame(rows, columns=pd.Index(["start", "evidence", "moved"]))
    kept = predictor.remembered()
    kept["start"] = [stamp_of(start, info) for start in kept["start"]]
    return AdaptationResult(found, table, kept)
