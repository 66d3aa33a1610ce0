"""From GluonTS data entries to arrays with calendar, masks and covariates."""

import copy
import logging
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from gluonts.core.component import validated
from gluonts.dataset.field_names import FieldName
from gluonts.time_feature import time_features_from_frequency_str
from gluonts.transform import MapTransformation
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import calendar_unit, expected_alias_warnings, offset_alias
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.effects import MEMORY, SIGNALS, Effects
from tsforecast.data.past import PAST, with_past
from tsforecast.seasons import season_index

log = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def _calendar(start: pd.Period, length: int, seasons: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Time features (time, feature) in [-0.5, 0.5], season indices (time, season); cached: series share starts."""
    return calendar_of(start.ordinal + start.freq.n * np.arange(length), start.freqstr, seasons)


def calendar_of(ordinals: NDArray[np.int64], freq: str, seasons: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Time features (time, feature) in [-0.5, 0.5], and season indices (time, season)."""
    with expected_alias_warnings():
        times = pd.PeriodIndex.from_ordinals(ordinals, freq=freq)
        known = "s" if calendar_unit(freq)[1] in ("ms", "us", "ns") else offset_alias(freq)  # GluonTS has none below
        functions = time_features_from_frequency_str(known)
        features = [np.asarray(function(times), dtype=np.float32) for function in functions]
        steps = ordinals // calendar_unit(freq)[0]
        indices = [np.asarray(season_index(name, times, steps), dtype=np.int64) for name in seasons]
    stack = lambda parts, dtype: np.stack(parts, -1).astype(dtype) if parts else np.zeros((len(ordinals), 0), dtype)  # noqa: E731
    return stack(features, np.float32), stack(indices, np.int64)


class Prepare(MapTransformation):
    """Turns a data entry into arrays with time first: target, observed, calendar, covariates, identity.

    Args:
        prediction_length: Steps by which calendar and covariates reach beyond the target, at prediction.
        seasons: Names of seasons, see `tsforecast.seasons`.
        items: Identifiers of the series seen in training; others get index 0, "unknown".
        cardinality: Number of values of each static category used.
        static_units: (location, scale) of each static number used: they are standardised.
        dynamic_units: Likewise of each covariate known in advance.
        num_targets: Components of the target.
        num_past: How many of these are covariates whose past alone is known, see `tsforecast.data.past`.
        effects: A record of the effects of covariates that are taken from targets, see `Effects`; None for none.

    Raises:
        ValueError: From its call, if an entry does not have what the model was trained with; the message names the
            series.
    """

    @validated()
    def __init__(
        self,
        prediction_length: int,
        seasons: list[str],
        items: list[str],
        cardinality: list[int],
        static_units: list[list[float]] | None = None,
        dynamic_units: list[list[float]] | None = None,
        num_targets: int = 1,
        effects: dict[str, object] | None = None,
        num_past: int = 0,
    ) -> None:
        self.prediction_length = prediction_length
        self.seasons = tuple(seasons)
        self.index = {item: position + 1 for position, item in enumerate(items)}
        self.cardinality = np.asarray(cardinality, dtype=np.int64)
        self.static_units = np.asarray(static_units or [], dtype=np.float64).reshape(-1, 2)
        self.dynamic_units = np.asarray(dynamic_units or [], dtype=np.float64).reshape(-1, 2)
        self.num_targets, self.num_past = num_targets, num_past
        self.effects = None if effects is None else Effects.of_record(effects)
        self._said_unknown = False
        self._scored = 0

    def for_windows(self, future: int) -> "Prepare":
        """A copy that lengthens training entries of at most as many steps as a window scores.

        They go on with missing values, and with the last of their covariates, so that two thirds of their steps are a
        past that a window can have.
        """
        found = copy.copy(self)
        found._scored = future
        return found

    def map_transform(self, data: dict[str, Any], is_train: bool) -> dict[str, Any]:
        """The prepared entry, its targets in float64; identity fields of the original are kept."""
        if self.effects is not None:
            data = self.effects.adjusted(self.effects.completed(data, self.prediction_length))
        if self.num_past:
            if np.atleast_2d(as_numbers(data[FieldName.TARGET])).shape[0] < self.num_targets:  # else they are in it
                rows = as_numbers(data[PAST]) if data.get(PAST) is not None else np.zeros((0, 0))
                self._expect(data, PAST, len(np.atleast_2d(rows)) if rows.size else 0, self.num_past)
            data = with_past(data)
        target = np.atleast_2d(as_numbers(data[FieldName.TARGET]).astype(np.float64)).T
        self._expect(data, "the target", target.shape[1], self.num_targets)
        if is_train and len(target) <= self._scored:
            beyond = max(2 * len(target) // 3, 1) + self._scored - len(target)
            target = np.pad(target, ((0, beyond), (0, 0)), constant_values=np.nan)
        length = len(target) + (0 if is_train else self.prediction_length)
        features, seasons = _calendar(data[FieldName.START], length, self.seasons)
        entry: dict[str, Any] = {
            "start": data[FieldName.START],
            "target": np.nan_to_num(target, posinf=0.0, neginf=0.0),
            "observed": np.isfinite(target),
            "time_feat": features,
            "season_index": seasons,
            "series_index": np.int64(self.index.get(str(data.get("item_id")), 0)),
            "static_cat": self._categories(data),
            "static_real": self._static(data, FieldName.FEAT_STATIC_REAL, self.static_units).astype(np.float32),
            "dynamic_real": np.zeros((length, 0), np.float32),
        }
        if len(self.dynamic_units):
            covariates = as_numbers(data.get(FieldName.FEAT_DYNAMIC_REAL, np.zeros((0, length)))).astype(np.float64)
            self._expect(data, FieldName.FEAT_DYNAMIC_REAL, len(covariates), len(self.dynamic_units))
            rows = covariates.T[:length]
            if is_train and 0 < len(rows) < length:
                rows = np.pad(rows, ((0, length - len(rows)), (0, 0)), mode="edge")
            entry["dynamic_real"] = standardised(rows, self.dynamic_units).astype(np.float32)
        known = np.full((self.prediction_length, target.shape[1]), np.nan)
        if not is_train and data.get("known_future") is not None:
            given = np.atleast_2d(as_numbers(data["known_future"]).astype(np.float64)).T[: self.prediction_length]
            self._expect(data, "known_future", given.shape[1], self.num_targets - self.num_past)
            if np.isinf(given).any():
                raise ValueError(
                    f"series {data.get('item_id')!r}: known_future is infinite; write NaN where it is free"
                )
            known[: len(given), : given.shape[1]] = given
        entry["known_future"] = known
        if "effect" in data:
            effect = data["effect"][:length]
            if len(effect) < length and not is_train:
                raise ValueError(
                    f"series {data.get('item_id')!r}: expected feat_dynamic_real over {length} steps from "
                    f"{data[FieldName.START]} on, got {len(effect)}"
                )
            if not is_train:
                entry["doubt"] = data["doubt"][: self.prediction_length]
                entry[SIGNALS] = data[SIGNALS][:length]
            entry["effect"] = np.pad(effect, (0, length - len(effect)), mode="edge" if len(effect) else "constant")
        return entry | {name: data[name] for name in ("item_id", "info", "link", MEMORY) if name in data}

    def _expect(self, data: dict[str, Any], name: str, size: int, expected: int) -> None:
        if size != expected:
            raise ValueError(
                f"series {data.get('item_id')!r}: expected {name} of {expected} rows, as in the training data, "
                f"got {size}"
            )

    def _static(self, data: dict[str, Any], name: str, units: np.ndarray) -> np.ndarray:
        """Standardised numbers, none if the model uses none."""
        if not len(units):
            return np.zeros(0)
        values = as_numbers(data.get(name, ())).astype(np.float64).reshape(-1)
        self._expect(data, name, len(values), len(units))
        return standardised(values, units)

    def _categories(self, data: dict[str, Any]) -> np.ndarray:
        """Codes of the static categories; -1 where the entry has none."""
        if len(self.cardinality) and FieldName.FEAT_STATIC_CAT not in data:
            if not self._said_unknown:
                self._said_unknown = True
                log.warning(
                    "series %r has no feat_static_cat, with which the model was trained: it counts as of an unknown "
                    "category, as do all others without; train with use_feat_static_cat=False to do without",
                    data.get("item_id"),
                )
            return np.full(len(self.cardinality), -1)
        units = np.broadcast_to([0.0, 1.0], (len(self.cardinality), 2))
        codes = self._static(data, FieldName.FEAT_STATIC_CAT, units)
        if not ((codes >= 0) & (codes < self.cardinality)).all():
            got = ", ".join(f"{code:.0f}" for code in codes)
            raise ValueError(
                f"series {data.get('item_id')!r}: expected static categories below {self.cardinality.tolist()}, the "
                f"values seen in training, got [{got}]; map what is new to a known category, leave the field out (an "
                "unknown category), or train again"
            )
        return codes.astype(np.int64)


def standardised(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Numbers (time, column) with their location taken away, divided by their scale; units (column, 2) have both."""
    return (values - units[:, 0]) / units[:, 1]
