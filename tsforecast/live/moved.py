"""What a micro-batch changes, before anything has changed."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.live.rows import News
from tsforecast.live.steps import Steps


@dataclass
class Moved:
    """The changes by a micro-batch; nothing has changed yet.

    Attributes:
        steps: The micro-batch.
        rows: Of the series that it moves, each once.
        end: Their ends after it.
        news: Steps by which it moves them.
        memory: Of them behind these, see `tsforecast.live.curves`.
        old: Rows of those that go on from their beliefs, and their new parts.
        young: Likewise of those whose histories were filtered anew.
        exponents: Of the latter.
        histories: Of the latter, while they stay young.
        far: Number of values that were too far from the others, and count as missing.
    """

    steps: Steps
    rows: NDArray[np.int64]
    end: NDArray[np.int64]
    news: News
    memory: NDArray[np.float64]
    old: tuple[NDArray[np.int64], list[Tensor]]
    young: tuple[NDArray[np.int64], list[Tensor]]
    exponents: NDArray[np.int64]
    histories: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    far: int = 0


@dataclass
class Begun:
    """Series with filtered histories.

    Attributes:
        parts: Of their beliefs.
        exponents: Of the powers of two by which their targets are divided.
        sizes: Of the series behind curves of covariates; none without.
        histories: By row, of those which stay young.
        far: Number of values that were too far from the others.
    """

    parts: list[Tensor]
    exponents: NDArray[np.int64]
    sizes: NDArray[np.float64]
    histories: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    far: int = 0
