"""What a model must know of its training data: sizes, identities, units, and what "auto" stands for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gluonts.torch.model.predictor import PyTorchPredictor

from tsforecast.data.transform import Prepare
from tsforecast.models import AbstractForecaster


@dataclass(frozen=True)
class Survey:
    """What training data decide.

    Attributes:
        count: Number of series.
        lowest: Lowest value of all targets.
        num_targets: Components of the target.
        num_time_features: Number of time features.
        items: Identifiers of the series, each once.
        cardinality: Number of values of each static category.
        static_units: (mean, standard deviation) of each static number.
        dynamic_units: Likewise of each covariate known in advance.
        auto: What "auto" stands for, by hyperparameter.
    """

    count: int
    lowest: float
    num_targets: int
    num_time_features: int
    items: list[str]
    cardinality: list[int]
    static_units: list[list[float]]
    dynamic_units: list[list[float]]
    auto: dict[str, str]

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments of a model's constructor."""
        return {
            "num_series": len(self.items),
            "num_targets": self.num_targets,
            "cardinality": self.cardinality,
            "num_static_real": len(self.static_units),
            "num_dynamic_real": len(self.dynamic_units),
            "num_time_features": self.num_time_features,
        }


def survey(data: Iterable[dict[str, Any]]) -> Survey:
    """Walks once through data entries which `check_entries` has found sound."""
    items: dict[str, None] = {}
    lowest, whole, codes = np.inf, True, np.zeros(0)
    count, num_targets, start = 0, 1, None
    static, dynamic = _Moments(), _Moments()
    for entry in data:
        count += 1
        static.add(np.asarray(entry.get("feat_static_real", ())).reshape(-1, 1))
        dynamic.add(np.asarray(entry.get("feat_dynamic_real", np.zeros((0, 1)))))
        if entry.get("item_id") is not None:
            items[str(entry["item_id"])] = None
        target = np.asarray(entry["target"])
        lowest = min(lowest, np.nanmin(target))
        whole = whole and bool((np.nan_to_num(target) % 1 == 0).all())
        if "feat_static_cat" in entry:
            codes = np.maximum(codes if codes.size else 0, np.asarray(entry["feat_static_cat"], float).reshape(-1))
        num_targets, start = len(np.atleast_2d(target)), entry["start"]
    features = Prepare(1, [], [], []).map_transform({"start": start, "target": np.zeros(1)}, True)
    return Survey(
        count=count,
        lowest=float(lowest),
        num_targets=num_targets,
        num_time_features=features["time_feat"].shape[-1],
        items=list(items),
        cardinality=[int(code) + 1 for code in codes],
        static_units=static.units(),
        dynamic_units=dynamic.units(),
        auto={
            "clip": "nonnegative" if lowest >= 0 else "none",
            "transformation": "log1p" if whole and lowest >= 0 else "none",
        },
    )


def adopt(found: Survey, predictor: PyTorchPredictor) -> Survey:
    """The survey of new data for a model that starts from the weights of a predictor.

    The predictor's series and categories keep their places and its units stay; series which it does not know have the
    parameters of the population.

    Raises:
        ValueError: If the predictor is not one of tsforecast.
    """
    known, net = predictor.input_transform, predictor.network
    if not (isinstance(known, Prepare) and isinstance(net, AbstractForecaster)):
        raise ValueError(f"expected a predictor of tsforecast to start from, got {type(predictor).__name__}")
    return replace(
        found,
        items=list(known.index),
        cardinality=known.cardinality.tolist(),
        static_units=known.static_units.tolist(),
        dynamic_units=known.dynamic_units.tolist(),
        auto={name: net.hparams.get(name, "auto") for name in found.auto},
    )


class _Moments:
    """Mean and standard deviation of each row of arrays that come one by one."""

    def __init__(self) -> None:
        self.count, self.sums = 0, np.zeros((0, 2))

    def add(self, rows: np.ndarray) -> None:
        rows = rows.astype(np.float64)
        sums = np.stack([rows.sum(1), np.square(rows).sum(1)], 1)
        self.sums = sums if self.count == 0 else self.sums + sums
        self.count += rows.shape[1]

    def units(self) -> list[list[float]]:
        mean, square = self.sums.T / max(self.count, 1)
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        constant = deviation <= 1e-6 * np.abs(mean)
        return np.stack([mean, np.where(constant, 1.0, deviation)], 1).tolist()
