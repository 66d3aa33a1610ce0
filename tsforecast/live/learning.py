"""A learner behind a service: the parameters of the model learn from every period that has ended.

Periods follow each other from where the store began, each as long as a forecast of the training. A period ends when
the first observation behind it comes, whatever its series. Before that observation is applied, the belief over the
parameters drifts, and learns from the period of every series that has a value in it, as `AdaptivePredictor.learn` does.
From then on beliefs about states are moved on, and forecasts made, by the new parameters; the present beliefs about
states stay as they are. A value that comes after the end of its period moves the belief about its series alone.

The end of a period is a record of the log of its own, so that a restart learns from the same periods in the same order.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gluonts.itertools import batcher
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.data.windows import collate, since_first_value
from tsforecast.forecasting.adaptation import AdaptivePredictor
from tsforecast.live.batches import past_window
from tsforecast.live.engine import Engine
from tsforecast.live.rows import Rows
from tsforecast.live.steps import Steps

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Learnt:
    """The changes at the end of a period; nothing has changed yet."""

    belief: Any  # of the learner
    weights: Tensor  # of the model
    begin: int  # ordinal of the first step of the next period
    evidence: float  # mean over the series of the log-density of the period before it was learnt from


class Learning:
    """The learner of a store, and the period that has not ended."""

    def __init__(self, adaptive: AdaptivePredictor, engine: Engine) -> None:
        self.adaptive, self.engine = adaptive, engine
        self.length = adaptive.prediction_length * engine.calendar.multiple
        self.begin = 0

    def pieces(self, steps: Steps, known: int) -> Iterator[Steps]:
        """Yield a micro-batch in parts; where a period ends between two, a micro-batch without observations."""
        parts = np.maximum((steps.ordinals - self.begin) // self.length, 0)
        end = steps.some(slice(0))
        for number, part in enumerate(steps.split(parts, known)):
            if number:
                yield end
            if len(part.rows):
                yield part

    def latest(self, max_gap: int) -> int:
        """Return the last ordinal for the beginning of a series: as many steps behind the period as others may skip."""
        return self.begin + self.length + max_gap * self.engine.calendar.multiple

    def learnt(self, known: Rows, number: int) -> Learnt:
        """Return the changes at the end of the period."""
        adaptive, belief, passed = self.adaptive, self.adaptive.belief, 1.0
        end = self.begin + self.length
        self.engine.seed_of(number)
        missing = (end - known.end[: len(known)]) // self.engine.calendar.multiple
        has_past = known.seen[: len(known)] + missing > adaptive.prediction_length
        rows = np.flatnonzero(has_past & (missing < adaptive.prediction_length))
        total, count = 0.0, 0
        for some in batcher(rows.tolist(), adaptive.predictor.batch_size):
            batch = self._batch(known, np.array(some), end)
            belief, evidence = adaptive.after(belief, batch, passed)
            total, count, passed = total + evidence, count + len(some), 0.0
        if passed:
            belief = adaptive.learner.drift(belief, passed)
        return Learnt(belief, adaptive.weights_of(belief), end, total / max(count, 1))

    def commit(self, learnt: Learnt) -> None:
        """Change the learner and the parameters of the model."""
        self.adaptive.belief, self.begin = learnt.belief, learnt.begin
        self.adaptive.network.load(learnt.weights)
        start = self.engine.calendar.period(learnt.begin - self.length)
        log.info("the period from %s on is learnt: mean log-density %.4g before", start, learnt.evidence)

    def state(self) -> dict[str, Any]:
        """Return the state for `restore`."""
        return {"begin": self.begin, "belief": pytree.tree_leaves(self.adaptive.belief)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state; the parameters are those of its belief."""
        adaptive = self.adaptive
        adaptive.belief = pytree.tree_unflatten(state["belief"], pytree.tree_structure(adaptive.belief))
        adaptive.network.load(adaptive.weights)
        self.begin = state["begin"]

    def _batch(self, known: Rows, rows: NDArray[np.int64], end: int) -> dict[str, Any]:
        """Return the windows of series around the beginning of the period, as `AdaptivePredictor.learn` makes them."""
        engine, horizon = self.engine, self.adaptive.prediction_length
        targets, windows = engine.data.num_targets, []
        for row in rows.tolist():
            tail = np.full(((end - int(known.end[row])) // engine.calendar.multiple, known.width), np.nan)
            kept = known.recent[row, known.recent.shape[1] - known.seen[row] :]
            history = np.concatenate([kept, tail])[-known.recent.shape[1] :]
            history = engine.without_effects(history, known.memory[row, :1])
            whole = past_window(engine.data, engine.calendar, history, ~np.isnan(history[:, :targets]), end)
            window = {name: values[:-horizon] for name, values in whole.items()}
            ahead = {name.replace("past", "future"): values[-horizon:] for name, values in whole.items()}
            windows.append(since_first_value(window | ahead))
        past = engine.data.scaling_length
        batch = collate(windows, engine.net.device, engine.histories.exponents(windows), past)
        batch["forecast_start"] = [engine.calendar.period(self.begin)] * len(rows)
        return batch | engine.series_of(known, [], rows)


def steps_kept(adaptive: AdaptivePredictor) -> int:
    """Return the number of steps of each series that a learner, of bounded windows, reads: a window and a period."""
    past = adaptive.module.data.scaling_length
    if not past:
        raise ValueError(
            "expected a model with a context_length, which bounds the past that a learner reads; this one reads the "
            "whole past: train it with a context_length"
        )
    return past + adaptive.prediction_length
