"""Summaries of training data: what a model must know of sizes, identities and units, and what "auto" stands for."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gluonts.dataset.field_names import FieldName
from gluonts.torch.model.predictor import PyTorchPredictor

from tsforecast.data.checks import as_numbers
from tsforecast.data.transform import Prepare
from tsforecast.models import AbstractForecaster

log = logging.getLogger(__name__)

_BROKEN = 0.01  # share of values that are not whole, up to which the others count as counts
_CATEGORIES = 10_000  # values of a static category, at most, unless there are more series
# Features that GluonTS has names for and no model here reads.
_UNREAD = (
    FieldName.PAST_FEAT_DYNAMIC_REAL,
    FieldName.PAST_FEAT_DYNAMIC_CAT,
    FieldName.PAST_FEAT_DYNAMIC,
    FieldName.FEAT_DYNAMIC_CAT,
    FieldName.FEAT_DYNAMIC,
    FieldName.FEAT_DYNAMIC_REAL_LEGACY,
)


@dataclass(frozen=True)
class DataSummary:
    """A summary of training data, which decides what a model is made for.

    Attributes:
        count: Number of series.
        lowest: Lowest value of all targets.
        highest: Highest value of all targets.
        num_targets: Components of the target.
        num_time_features: Number of time features.
        items: Identifiers of the series, each once.
        cardinality: Number of values of each static category.
        static_units: (mean, standard deviation) of each static number.
        dynamic_units: The same for each covariate known in advance.
        auto: What "auto" stands for, by hyperparameter.
    """

    count: int
    lowest: float
    highest: float
    num_targets: int
    num_time_features: int
    items: list[str]
    cardinality: list[int]
    static_units: list[list[float]]
    dynamic_units: list[list[float]]
    auto: dict[str, str]

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the sizes that a model's constructor takes, by name."""
        return {
            "num_series": len(self.items),
            "num_targets": self.num_targets,
            "cardinality": self.cardinality,
            "num_static_real": len(self.static_units),
            "num_dynamic_real": len(self.dynamic_units),
            "num_time_features": self.num_time_features,
        }


def summarise(data: Iterable[dict[str, Any]], use_categories: bool = True) -> DataSummary:
    """Return the summary of data entries that `check_entries` has found sound, by one walk through them.

    Fields of GluonTS which no model reads are named in a warning.

    Args:
        data: GluonTS data entries.
        use_categories: Whether static categories count.

    Raises:
        ValueError: If static categories are not numbered one by one.
    """
    items: dict[str, None] = {}
    unread: dict[str, None] = {}
    lowest, highest, codes = np.inf, -np.inf, np.zeros(0)
    count, values, broken, num_targets, start = 0, 0, 0, 1, None
    static, dynamic = _Moments(), _Moments()
    for entry in data:
        count += 1
        static.add(as_numbers(entry.get("feat_static_real", ())).reshape(-1, 1))
        dynamic.add(as_numbers(entry.get("feat_dynamic_real", np.zeros((0, 1)))))
        if entry.get("item_id") is not None:
            items[str(entry["item_id"])] = None
        target = as_numbers(entry["target"])
        lowest, highest = min(lowest, np.nanmin(target)), max(highest, np.nanmax(target))
        numbers = target[np.isfinite(target)]
        values += numbers.size
        broken += int(((numbers % 1 != 0) | (numbers >= 2.0**53)).sum())  # larger floats are all whole
        unread.update(dict.fromkeys(name for name in _UNREAD if name in entry))
        if use_categories and "feat_static_cat" in entry:
            codes = np.maximum(codes if codes.size else 0, as_numbers(entry["feat_static_cat"]).reshape(-1))
        num_targets, start = len(np.atleast_2d(target)), entry["start"]
    if unread:
        log.warning(
            "the data have %s, which no model reads: these fields are ignored; what is known of the future, too, goes "
            "into feat_dynamic_real",
            ", ".join(unread),
        )
    _check_codes(codes, count)
    features = Prepare(1, [], [], []).map_transform({"start": start, "target": np.zeros(1)}, True)
    return DataSummary(
        count=count,
        lowest=float(lowest),
        highest=float(highest),
        num_targets=num_targets,
        num_time_features=features["time_feat"].shape[-1],
        items=list(items),
        cardinality=[int(code) + 1 for code in codes],
        static_units=static.units(),
        dynamic_units=dynamic.units(),
        auto={
            "clip": "nonnegative" if lowest >= 0 else "none",
            "transformation": "log1p" if broken <= _BROKEN * values and lowest >= 0 else "none",
        },
    )


def varies_only_before(data: Iterable[dict[str, Any]], recent: int) -> bool:
    """Return whether a covariate is constant in the last steps of every series, but not before.

    A model that is trained on these steps alone does not learn what it does, and may forecast anything where it varies.

    Args:
        data: GluonTS data entries.
        recent: Number of the last steps of their targets.
    """
    whole, late = np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
    for entry in data:
        if FieldName.FEAT_DYNAMIC_REAL in entry:
            rows = as_numbers(entry[FieldName.FEAT_DYNAMIC_REAL])[:, : np.shape(entry[FieldName.TARGET])[-1]]
            found = np.ptp(rows, axis=1) > 0, np.ptp(rows[:, -recent:], axis=1) > 0
            whole, late = found if whole.size == 0 else (whole | found[0], late | found[1])
    return bool((whole & ~late).any())


def _check_codes(highest: np.ndarray, count: int) -> None:
    """Refuses codes of static categories that are larger than there can be categories."""
    most = max(_CATEGORIES, count)
    if (highest >= most).any():
        raise ValueError(
            f"expected feat_static_cat to number categories from 0 on, below {most}, got {highest.max():.0f}: number "
            "them one by one (pandas.factorize does), or leave them out (use_feat_static_cat=False); series are told "
            "apart by item_id anyway"
        )


def adopt(found: DataSummary, predictor: PyTorchPredictor) -> DataSummary:
    """Return the summary of new data for a model that starts from the weights of a predictor.

    The predictor's series and categories keep their places, and its units stay. Series that it does not know have the
    parameters of the population.

    Args:
        found: Summary of the new data.
        predictor: The predictor to start from.

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
        auto={name: net.hyperparameters.get(name, value) for name, value in found.auto.items()},
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
