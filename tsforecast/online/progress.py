"""How a prequential evaluation is set up, and its state between two observations."""

import dataclasses
import math
from collections.abc import Hashable

import torch
from torch import Tensor

from tsforecast.data.quantiles import INTERVALS
from tsforecast.learners.statistics import Statistics
from tsforecast.online.config import OnlineConfig, Stream
from tsforecast.online.features import FeatureColumns

BINS = 10
NUM_SUMS = 3 + len(INTERVALS)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Options of a prequential evaluation: the learner, and the sizes and units that it begins with.

    Attributes:
        config: Configuration of the learner.
        classes: Number of classes that are expected; 0 for numbers. The network grows when there are more.
        features: Number of features that are expected; 0 for twice those of the first observation, at least 8. The
            network grows when there are more.
        noise: Variance of standardised numbers around the network's output; None to learn it.
        unit: Seconds in a unit of time of the drift; 0 for the first gap between two observations.
        block: Number of targets that are learnt from together; each is predicted before any of them is learnt from.

    Raises:
        ValueError: If a block is empty.
    """

    config: OnlineConfig
    classes: int
    features: int = 0
    noise: float | None = None
    unit: float = 0.0
    block: int = 1

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"expected a block of at least 1 observation, got {self.block}")


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of a prequential evaluation, which is all that the next observation needs.

    Attributes:
        stream: The learner in use; None before the first observation.
        columns: Columns of the features.
        labels: Columns of the classes.
        targets: Statistics of the numbers that are to be predicted.
        items: Number of observations so far.
        scored: Number of observations whose prediction was scored.
        seconds: Seconds of work.
        time: Time of the last observation, in seconds; NaN without.
        unit: Unit of time of the drift, in seconds; 0 where it is not known yet.
        sums: Sums of log-loss, of errors (wrong classes, or squares) and, for numbers, of targets within each interval;
            last the number of predictions without a spread, which have an error alone.
        bins: For classes: count, sum of the probabilities of the most probable class, number of times it was right.
        waiting: Observations whose target has not come yet, by key: values in the columns, and what was predicted. That
            is probabilities of the classes known by then, or mean and standard deviation; empty where nothing was
            predicted.
        pending: Values in the columns, and targets as they are learnt, of a block that is not full yet.
    """

    stream: Stream | None
    columns: FeatureColumns | None
    labels: FeatureColumns
    targets: Statistics
    items: int
    scored: int
    seconds: float
    time: float
    unit: float
    sums: Tensor
    bins: Tensor
    waiting: dict[Hashable, tuple[Tensor, Tensor]]
    pending: tuple[tuple[Tensor, Tensor], ...] = ()


def begin(setup: Setup) -> Progress:
    """Return the progress before any observation.

    Raises:
        ValueError: If the learner does not take what was chosen.
    """
    start(setup, FeatureColumns({}, 1))  # raises now, and not at the first observation
    return Progress(
        stream=None,
        columns=None,
        labels=FeatureColumns({}, setup.classes),
        targets=Statistics.empty(1),
        items=0,
        scored=0,
        seconds=0.0,
        time=math.nan,  # no gap before the first observation: comparisons with NaN are false
        unit=setup.unit,
        sums=torch.zeros(NUM_SUMS, dtype=torch.float64),
        bins=torch.zeros(BINS, 3, dtype=torch.float64),
        waiting={},
    )


def start(setup: Setup, columns: FeatureColumns) -> Stream:
    """Return the learner before any observation."""
    if setup.classes:
        return setup.config.begin(columns.capacity, setup.classes, setup.config.likelihood("plug-in"))
    return setup.config.begin_numbers(columns.capacity, setup.noise)
