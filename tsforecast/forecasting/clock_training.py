"""The training of models in continuous time on series with clocks of their own."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.data.buckets.tally import Moments
from tsforecast.data.irregular import read_irregular
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.data_summary import common_units, largest_move, typical_change
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.presets import DEFAULT_EPOCHS
from tsforecast.forecasting.timed_batches import Clock, WindowLoader
from tsforecast.forecasting.timed_choice import cycles_shown, has_enough, rhythm_shown
from tsforecast.models import AbstractForecaster, make_model, options_of
from tsforecast.models.continuous import TIMED
from tsforecast.models.parts.continuous_structure import usual_components
from tsforecast.models.transformations import transformation_of
from tsforecast.wording import listed

log = logging.getLogger(__name__)

_LEAST_BATCHES, _MOST_BATCHES = 8, 250
_TOGETHER = 32  # series that are filtered at once
_FUTURE = 32  # observations of the future of a training window, at most
_AS_LONG = 10**9  # season of the scaling: the location of a series is the mean of all of its past
_FREQUENCIES, _SERIES, _VALUES = 2000, 50, 1000  # of a periodogram, at most
_HOURS = 3600 * 10**9


@dataclass(frozen=True)
class ClockTraining:
    """The training of a model in continuous time, as `StateSpaceEstimator` with a horizon says.

    Attributes:
        horizon: In nanoseconds; None for a share of the time of the median series.

    Raises:
        ValueError: If a hyperparameter is not known or out of its range.
    """

    model: str
    horizon: int | None
    context_length: int
    batch_size: int
    num_batches_per_epoch: int | None
    seed: int | None
    max_epochs: int
    hyperparameters: dict[str, Any]

    def __post_init__(self) -> None:
        own = {"components": "level"} if self._is_auto else {}
        with torch.device("meta"):  # refuses bad options before data are read
            make_model(TIMED[self.model], **{**self.hyperparameters, **own})

    @property
    def _is_auto(self) -> bool:
        """Whether the data choose the components."""
        return has_components(self.model) and self.hyperparameters.get("components", "auto") == "auto"

    def begun(
        self, data: ForecastTask | pd.DataFrame | Iterable[Mapping[str, Any]], columns: Columns | None
    ) -> tuple[AbstractForecaster, WindowLoader, StateSpacePredictor]:
        """Return the untrained model, windows of all of the data but the test windows of a task, and the predictor.

        Args:
            data: A table with a row for each observation; data entries with `times`, see `tsforecast.data.irregular`;
                or a task.
            columns: What the columns of a table are; None for what is found by usual names.
        """
        task = data if isinstance(data, ForecastTask) else read_irregular(data, self.horizon, 0, columns=columns)
        horizon = self.horizon or task.prediction_length
        entries = [one for one in task.train if len(one["times"]) > 1 and one["times"][-1] > one["times"][0]]
        if not entries:
            names = listed([str(entry["item_id"]) for entry in task.entries])
            raise ValueError(
                f"{task.name}: expected a series with observations at two times before its test part, got {names}"
            )
        net = self.untrained(task, entries)
        clock = Clock.of(net, [str(entry["item_id"]) for entry in task.entries], _units(entries))
        count = max(math.ceil(len(entries) / self.batch_size), _LEAST_BATCHES)
        loader = WindowLoader(
            entries,
            clock,
            self.context_length,
            _usual_count(entries, horizon),
            min(self.batch_size, len(entries)),
            self.num_batches_per_epoch or min(count, _MOST_BATCHES),
            int(np.random.SeedSequence().generate_state(1)[0]) if self.seed is None else self.seed,
        )
        columns_ = None if task.columns is None else as_lists(task.columns)
        named = {"columns": columns_, "categories": task.categories}
        predictor = StateSpacePredictor(net, clock, horizon, "ns", _TOGETHER, device="cpu", **named)
        return net, loader, predictor

    def untrained(self, task: ForecastTask, entries: list[dict[str, Any]]) -> AbstractForecaster:
        """Return the untrained model, in double precision."""
        own = {**default_linear_epochs(self.model, self.max_epochs), **self.hyperparameters}
        lowest = min(float(np.nanmin(entry["target"])) for entry in entries)
        highest = max(float(np.nanmax(entry["target"])) for entry in entries)
        transformation_of(own.get("transformation", "none")).check(lowest, highest)
        for name, chosen in (("clip", "nonnegative" if lowest >= 0 else "none"), ("transformation", "none")):
            if own.get(name, "auto") == "auto" and name in options_of(TIMED[self.model]):
                own[name] = chosen
        codes = [entry["feat_static_cat"] for entry in task.entries if "feat_static_cat" in entry]
        change, horizon = typical_change(entries, 1), self.horizon or task.prediction_length
        options = {
            "unit": task.gap,
            "season": _AS_LONG,
            "typical_change": change,
            "largest_move": largest_move(entries, _usual_count(entries, horizon), change),
            **common_units(entries, own.get("transformation", "none")),
            "num_series": len(task.entries),
            "num_targets": 1 if entries[0]["target"].ndim == 1 else len(entries[0]["target"]),
            "cardinality": [int(code) + 1 for code in np.max(codes, axis=0)] if codes else [],
            "num_dynamic_real": len(entries[0].get("feat_dynamic_real", ())),
            "seed": self.seed,
        }
        if self._is_auto:
            own["components"] = _components(task, entries, _untrained({**own, **options}))
            log.info("%s: components %s", task.name, own["components"])
        with torch.random.fork_rng(devices=[], enabled=self.seed is not None):
            if self.seed is not None:
                torch.manual_seed(self.seed)
            net = make_model(TIMED[self.model], **{**own, **options}).double()
        if has_components(self.model) and "oscillation" in own["components"].split("+"):
            net.dynamics.begin_at(strongest_frequency(entries, task.gap))  # pyright: ignore[reportCallIssue]
        if has_components(self.model) and not has_enough(own["components"], task.gap, entries):
            rhythm = rhythm_shown(own["components"], entries, _untrained({**own, **options}))
            net.dynamics.integrate_cycles(rhythm)  # pyright: ignore[reportCallIssue]
        return net


def has_components(model: str) -> bool:
    """Return whether the state of a model in continuous time has components with names."""
    return "components" in options_of(TIMED[model])


def default_epochs(model: str) -> int:
    """Return the epochs of a training: half as many more where a switch learns after the linear model."""
    return 3 * DEFAULT_EPOCHS // 2 if "linear_epochs" in options_of(TIMED[model]) else DEFAULT_EPOCHS


def default_linear_epochs(model: str, max_epochs: int) -> dict[str, int]:
    """Return the option `linear_epochs` of a training of some length, in models that have it."""
    known = options_of(TIMED[model])
    return (
        {"linear_epochs": min(known["linear_epochs"].default, 2 * max_epochs // 3)} if "linear_epochs" in known else {}
    )


def _units(entries: list[dict[str, Any]]) -> list[list[float]]:
    """Return mean and standard deviation of each covariate."""
    moments = Moments()
    for entry in entries:
        moments.add(entry.get("feat_dynamic_real", np.zeros((0, 1))))
    return moments.units()


def _components(
    task: ForecastTask, entries: list[dict[str, Any]], untrained: Callable[[str], AbstractForecaster]
) -> str:
    """Return the components that the data choose."""
    span = int(np.median([entry["times"][-1] - entry["times"][0] for entry in entries]))
    hours = np.concatenate([entry["times"] // _HOURS % 24 for entry in entries])
    usual = usual_components(span, task.gap, len(np.unique(hours)) / 24)
    return usual if has_enough(usual, task.gap, entries) else cycles_shown(usual, entries, untrained)


def _untrained(options: Mapping[str, Any]) -> Callable[[str], AbstractForecaster]:
    """Return what makes an `issm` of some components, by the options of an `issm` among those given."""
    known = {name: value for name, value in options.items() if name in options_of(TIMED["issm"])}
    return lambda components: make_model(TIMED["issm"], **{**known, "components": components}).double()


def strongest_frequency(entries: list[dict[str, Any]], unit: int) -> float:
    """Return where the periodogram of all series has its peak, in radians in a unit of time.

    Frequencies reach from a cycle in the median series to half a cycle in a unit.
    """
    span = float(np.median([entry["times"][-1] - entry["times"][0] for entry in entries])) / unit
    frequencies = 2 * np.pi * np.arange(1.0, min(max(span / 2, 2.0), _FREQUENCIES)) / span
    power = np.zeros(len(frequencies))
    for entry in entries[:_SERIES]:
        values = np.atleast_2d(entry["target"])[0][-_VALUES:]
        known = np.isfinite(values)
        times = (entry["times"][-_VALUES:][known] - entry["times"][-1]) / unit
        centred = values[known] - values[known].mean()
        waves = np.exp(1j * frequencies[:, None] * times) @ centred
        power += np.abs(waves) ** 2 / max(float((centred**2).sum()) * len(centred), 1e-300)
    return float(frequencies[np.argmax(power)])


def _usual_count(entries: list[dict[str, Any]], horizon: int) -> int:
    """Return how many observations the median series has within the horizon, within bounds."""
    rates = [len(entry["times"]) / float(entry["times"][-1] - entry["times"][0]) for entry in entries]
    return int(np.clip(round(float(np.median(rates)) * horizon), 1, _FUTURE))
