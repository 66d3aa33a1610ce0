"""GluonTS predictor for every model: from a history to a forecast, to a file and back."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.core.component import validated
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast, SampleForecast
from gluonts.model.predictor import Predictor
from gluonts.torch.model.forecast import DistributionForecast
from gluonts.torch.model.predictor import PyTorchPredictor
from gluonts.transform import Transformation
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers, check_entries, refuse_frame
from tsforecast.data.dataframes import columns_of
from tsforecast.data.files import replace_folder
from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.data.magnitude import compact, find_exponents, in_units
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame
from tsforecast.data.roles import Columns
from tsforecast.data.table import read_task
from tsforecast.data.transform import Prepare, collate, cut, since_first_value
from tsforecast.forecasting.beliefs import LiveBelief, continued, join, split, static_features
from tsforecast.forecasting.serialization import NOT_SAVED, declared, read_parts, write_parts
from tsforecast.models import INPUT_NAMES, AbstractForecaster, Belief
from tsforecast.models.parts.exact import ExactInference, distribution_in_units
from tsforecast.models.parts.units import FARTHEST

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most
_BATCHES_HELD = 8


@dataclass(frozen=True)
class _Waiting:
    """New observations of a series on their way into its belief, which is None where it begins with them."""

    item_id: str
    window: dict[str, Any]
    static: dict[str, np.ndarray]
    belief: Belief | None
    exponents: tuple[int, ...]


class StateSpacePredictor(PyTorchPredictor):
    """Filters the history of each series and forecasts from its end.

    Entries are checked as they pass, and a few batches of them held at a time: histories of like length share a batch,
    since the shorter ones are padded, and memory does not grow with the number of series. A batch does not mix series
    of different fields.

    Args:
        prediction_net: A trained forecaster.
        input_transform: `Prepare`, with the horizon.
        prediction_length: Steps of a forecast.
        freq: Frequency which the data must have.
        batch_size: Series at a time.
        history_length: Steps of the history used at most; None for all.
        forecast: "samples" for sample paths, "distribution" for the exact marginal distributions (small; for fleets).
        device: "auto" for a GPU where there is one.
        columns: Roles of the columns of the data frame that it was trained with, as `as_lists` makes them; None where
            it was not.
        categories: Names behind the codes of static categories in that frame, by column.
    """

    @validated()
    def __init__(
        self,
        prediction_net: torch.nn.Module,
        input_transform: Transformation,
        prediction_length: int,
        freq: str,
        batch_size: int = 64,
        history_length: int | None = None,
        forecast: str = "samples",
        device: str | torch.device = "auto",
        columns: dict[str, list[str]] | None = None,
        categories: dict[str, list[str]] | None = None,
    ) -> None:
        super().__init__(
            input_names=INPUT_NAMES,
            prediction_net=prediction_net,
            batch_size=batch_size,
            prediction_length=prediction_length,
            input_transform=input_transform,
            device=device,
        )
        self.freq = freq
        self.history_length = history_length
        self.forecast = forecast
        self.columns = columns
        self.categories = categories

    def serialize(self, path: Path) -> None:
        """Writes the predictor into a folder that is there; `load_predictor` and `deserialize` read it.

        Raises:
            ValueError: If its model is none of `MODELS`.
        """
        path = Path(path)
        Predictor.serialize(self, path)
        names = [name for name in declared(type(self)) if name not in NOT_SAVED]
        write_parts(path, self.prediction_net, self.input_transform, {name: getattr(self, name) for name in names})

    @classmethod
    def deserialize(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, path: Path, device: str | torch.device | None = None
    ) -> "StateSpacePredictor":
        """Reads what `serialize` wrote; no code of the files is run.

        Args:
            path: Of the folder.
            device: Where the network goes; None as "auto".

        Raises:
            FileNotFoundError: If there is nothing.
            ValueError: If it is damaged, of another program or of another format; or there is no such device.
        """
        target = find_device("auto" if device is None else device)
        net, preparation, arguments = read_parts(Path(path), cls, target)
        return cls(net, preparation, **arguments).to(target)  # pyright: ignore[reportReturnType]

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        dataset: Iterable[dict[str, Any]] | pd.DataFrame,
        num_samples: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> Iterator[Forecast]:
        """A forecast for every entry, in order.

        A series begins at its first value: missing values before it make no difference. A series without a value in
        the history that is filtered stops none of the others: its forecast is the model's prior, with location 0 and
        scale 1 in the units of the transformation, since scales come from the history and those of the training are
        not kept. So does a value too far from the others for float32, which counts as missing. One warning each names
        such series when the data end.

        Args:
            dataset: GluonTS data entries. `feat_dynamic_real` must reach over the horizon; an entry may carry
                `known_future`, the known part of the horizon's targets with NaN where free. Or a DataFrame in long
                format, see `tsforecast.data.read_task`; the forecast begins behind its last targets.
            num_samples: Sample paths; None for the model's own number.
            columns: What the columns of a frame are, see `StateSpaceEstimator.train`; None for those of the training.

        Raises:
            ValueError: If an entry or a frame is not as expected; the message names the series or the row.
        """
        net, far = self._net(), dict[str, None]()
        try:
            for held in batcher(self._checked(self._entries(dataset, columns)), _BATCHES_HELD * self.batch_size):
                # Rolling windows of a series follow one another and differ in length: in order every batch would be
                # padded.
                order = [*range(len(held))]
                if len(held) > self.batch_size:
                    order.sort(key=lambda k: np.shape(held[k]["target"])[-1])
                found: dict[int, Forecast] = {}
                for places in batcher(order, self.batch_size):
                    forecasts = self._of_histories(net, [held[k] for k in places], num_samples, far)
                    found.update(zip(places, forecasts, strict=True))
                yield from (found[k] for k in range(len(held)))
        finally:  # also where nobody asks for the rest
            _warn_far(far)

    def _of_histories(
        self, net: AbstractForecaster, entries: list[dict[str, Any]], num_samples: int | None, far: dict[str, None]
    ) -> list[Forecast]:
        """Forecasts from the ends of entries; values too far from the others are named in `far`."""
        prepared = self.input_transform(iter(entries), is_train=False)
        windows = [
            since_first_value(cut(e, len(e["target"]), self.history_length, self.prediction_length)) for e in prepared
        ]
        exponents = self._exponents(net, windows)
        batch = collate(windows, self.device, exponents)
        with torch.no_grad():
            belief, _ = net.filter(batch)
            far.update(_far_values(net, batch, belief, windows))
            return self._forecasts(net, belief, batch, num_samples, exponents)

    def _exponents(self, net: AbstractForecaster, windows: list[dict[str, Any]]) -> NDArray[np.int64]:
        """Powers of two by which targets are divided, (series, target); none where the unit matters to the model."""
        if net.units.is_scale_free:
            return find_exponents(windows, net.data.scaling_length)
        return np.zeros((len(windows), net.data.num_targets), np.int64)

    def predict_frame(
        self,
        dataset: Iterable[dict[str, Any]] | pd.DataFrame,
        quantiles: Sequence[float] = TENTHS,
        num_samples: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Forecasts as a frame: a row for each series and step.

        Args:
            dataset: As `predict` takes it.
            quantiles: Levels between 0 and 1.
            num_samples: Sample paths that quantiles are taken from; None for the model's own number.
            columns: As `predict` takes it.

        Returns:
            `item_id`, `timestamp` (the beginning of each step), `target` where there are several, `mean`, and a column
            for each quantile, called by its level: "0.1".

        Raises:
            ValueError: As `predict` does, or if a level is not between 0 and 1.
        """
        levels = check_levels(quantiles)
        targets = columns_of(self.columns if columns is None else columns).targets
        forecasts = self.predict(dataset, num_samples, columns)
        frames = [forecast_frame(chunk, levels, targets) for chunk in batcher(forecasts, self.batch_size)]
        if not frames:
            raise ValueError("the data set is empty: expected at least one series")
        return pd.concat(frames, ignore_index=True)

    def _entries(
        self, dataset: Iterable[dict[str, Any]] | pd.DataFrame, columns: Columns | Mapping[str, Any] | None
    ) -> Iterable[dict[str, Any]]:
        """The entries of a data frame whose future is wanted; others as they are."""
        if not isinstance(dataset, pd.DataFrame):
            if columns is not None:
                raise ValueError(f"columns are those of a DataFrame, but the data are a {type(dataset).__name__}")
            return dataset
        roles = columns_of(self.columns if columns is None else columns)
        if roles.static_categories and self.categories is None:
            raise ValueError(
                f"expected no static_categories, got {', '.join(roles.static_categories)}: the model was not trained "
                "with a DataFrame, and the codes of its categories are not known; train with one, or give entries"
            )
        return read_task(
            dataset, self.freq, self.prediction_length, columns=roles, beyond=True, categories=self.categories
        ).latest

    def impute(self, dataset: Iterable[dict[str, Any]], num_samples: int | None = None) -> Iterator[SampleForecast]:
        """Joint samples of the missing values of every entry, given all that it has; in order.

        Args:
            dataset: GluonTS data entries; observed values come back as they are.
            num_samples: Samples; None for the model's own number.

        Returns:
            Samples of shape (sample, time), or (sample, time, target) of several targets, from the entry's start on.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        refuse_frame(dataset)
        net = self._net()
        for entry in dataset:  # one by one: a smoother keeps every step of every sample
            self._check(entry)
            (prepared,) = self.input_transform(iter([entry]), is_train=True)
            windows = [cut(prepared, len(prepared["target"]), None, 0)]
            exponents = self._exponents(net, windows)
            with torch.no_grad():
                batch = collate(windows, self.device, exponents)
                samples = net.impute(batch, num_samples or net.data.num_samples)[0].cpu().numpy()
            paths = in_units(samples[..., 0] if net.data.num_targets == 1 else samples, exponents[0])
            values = compact(prepared["target"])
            if values.dtype == np.float64:  # float32 has not kept them
                seen = prepared["observed"]
                paths = np.where(seen, values, paths) if paths.ndim == 3 else np.where(seen[:, 0], values[:, 0], paths)
            yield SampleForecast(samples=paths, start_date=entry["start"], item_id=entry.get("item_id"))

    def filter(self, dataset: Iterable[dict[str, Any]]) -> dict[str, LiveBelief]:
        """What is known of every series at the end of its history, to be kept and moved on.

        Args:
            dataset: GluonTS data entries, each with an `item_id` of its own. Covariates need not reach beyond the
                target.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        return self.update({}, dataset)

    def update(self, beliefs: Mapping[str, LiveBelief], dataset: Iterable[dict[str, Any]]) -> dict[str, LiveBelief]:
        """The beliefs after new observations, in time proportional to these and not to the history.

        Scales stay those of the history with which the filtering of a series began, which is at its first value. The
        beliefs given are not changed.

        Args:
            beliefs: Of `filter` or of an earlier update.
            dataset: Entries with what came since: each begins where its series ended, or later, and steps between are
                missing values. Static features need not be repeated. A series that is not known yet begins.

        Raises:
            ValueError: If an entry is not as expected or repeats what has been seen; the message names the series.
        """
        refuse_frame(dataset)
        net, far = self._net(), dict[str, None]()
        found = dict(beliefs)
        waiting: dict[tuple[bool, int], list[_Waiting]] = {}
        seen: dict[str, None] = {}
        for entry in dataset:
            item = str(entry.get("item_id"))
            if "item_id" not in entry or item in seen:
                raise ValueError(f"expected an item_id of its own for each series, got {entry.get('item_id')!r}")
            seen[item] = None
            self._check(entry)
            known = found.get(item)
            static = static_features(entry) if known is None else known.static
            begins = known is None or not known.begun
            whole = entry if known is None else continued(known, entry)
            (prepared,) = self.input_transform(iter([whole]), is_train=True)
            window = cut(prepared, len(prepared["target"]), self.history_length if begins else None, 0)
            window = since_first_value(window) if begins else window
            group = waiting.setdefault((begins, len(window["past_target"])), [])
            if known is None or begins:
                exponents = tuple(self._exponents(net, [window])[0].tolist())
                group.append(_Waiting(item, window, static, None, exponents))
            else:
                group.append(_Waiting(item, window, static, known.belief, known.exponents))
            if len(group) == self.batch_size:
                found.update(self._moved(net, group, far))
                group.clear()
        for group in waiting.values():
            if group:
                found.update(self._moved(net, group, far))
        _warn_far(far)
        return {item: found[item] for item in dict.fromkeys([*beliefs, *seen])}

    def _moved(self, net: AbstractForecaster, group: list[_Waiting], far: dict[str, None]) -> dict[str, LiveBelief]:
        """Beliefs after windows of equal length, of series that all have begun before or all begin now."""
        before = [one.belief for one in group if one.belief is not None]
        windows = [one.window for one in group]
        batch = collate(windows, self.device, np.array([one.exponents for one in group]))
        with torch.no_grad():
            after, _ = net.filter(batch, join(before) if before else None)
            far.update(_far_values(net, batch, after, windows))
        rows = zip(group, batch["forecast_start"], split(after), strict=True)
        return {
            one.item_id: LiveBelief(
                one.item_id,
                end,
                belief,
                one.static,
                begun=one.belief is not None or bool(one.window["past_observed"].any()),
                exponents=one.exponents,
            )
            for one, end, belief in rows
        }

    def forecast_from(
        self,
        beliefs: Mapping[str, LiveBelief],
        dataset: Iterable[dict[str, Any]] | None = None,
        num_samples: int | None = None,
    ) -> Iterator[Forecast]:
        """Forecasts from where the beliefs end.

        Args:
            beliefs: Of `filter` or `update`.
            dataset: Entries with `item_id` and, over the horizon, `feat_dynamic_real` (where the model has covariates)
                or `known_future`; they name the series and their order. None for all beliefs.
            num_samples: Sample paths; None for the model's own number.

        Raises:
            ValueError: If a series is not known, or covariates do not fit; the message names the series.
        """
        refuse_frame(dataset)
        net = self._net()
        entries = [{"item_id": item} for item in beliefs] if dataset is None else dataset
        for chunk in batcher(entries, self.batch_size):
            known, windows = [], []
            for entry in chunk:
                item = str(entry.get("item_id"))
                if item not in beliefs:
                    raise ValueError(f"series {item!r} is not among the beliefs; filter its history first")
                known.append(beliefs[item])
                empty = np.zeros((net.data.num_targets, 0), np.float32)
                whole = {**known[-1].static, **entry, "start": known[-1].end, "target": empty, "item_id": item}
                (prepared,) = self.input_transform(iter([whole]), is_train=False)
                if len(prepared["dynamic_real"]) < self.prediction_length:
                    raise ValueError(
                        f"series {item!r}: expected feat_dynamic_real over {self.prediction_length} steps from "
                        f"{known[-1].end} on, got {len(prepared['dynamic_real'])}"
                    )
                windows.append(cut(prepared, 0, None, self.prediction_length))
            exponents = np.array([k.exponents for k in known])
            with torch.no_grad():
                batch = collate(windows, self.device, exponents)
                forecasts = self._forecasts(net, join([k.belief for k in known]), batch, num_samples, exponents)
            yield from forecasts

    def _net(self) -> AbstractForecaster:
        net = self.prediction_net.eval()
        assert isinstance(net, AbstractForecaster)
        return net

    def _check(self, entry: dict[str, Any], future: int = 0) -> None:
        net = self._net()
        check_entries(
            [entry],
            self.freq,
            future=future,
            all_missing=True,
            support=net.units.support,
            largest=net.units.largest_value,
        )

    def _checked(self, dataset: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The entries, each checked when its turn comes; at the end a warning of those without a value."""
        names: dict[str, None] = {}
        try:
            for number, entry in enumerate(dataset):
                self._check(entry, self.prediction_length)
                if np.isnan(as_numbers(entry["target"])[..., -(self.history_length or 0) :]).all():
                    names[repr(entry["item_id"]) if "item_id" in entry else f"number {number}"] = None
                yield entry
        finally:  # also where nobody asks for the rest
            if names:
                log.warning(
                    "no value in the history of %d series (%s): the forecast is the model's prior, with location 0 and "
                    "scale 1, which may be far from what the series is like; give values, or leave it out",
                    len(names),
                    _some(list(names)),
                )

    def _forecasts(
        self,
        net: AbstractForecaster,
        belief: Belief,
        batch: dict[str, Any],
        num_samples: int | None,
        exponents: NDArray[np.int64],
    ) -> list[Forecast]:
        """Forecasts in the units of the data, whose targets were divided by powers of two."""
        count = len(batch["forecast_start"])
        names, infos = (batch.get(name, [None] * count) for name in ("item_id", "info"))
        common = [
            {"start_date": start, "item_id": item, "info": info}
            for start, item, info in zip(batch["forecast_start"], names, infos, strict=True)
        ]
        _refuse_far_future(net, batch, belief, names)
        if self.forecast == "distribution":
            assert isinstance(net.inference, ExactInference)
            marginals = zip(net.inference.marginals(belief, batch), exponents, strict=True)
            found = [distribution_in_units(marginal, powers) for marginal, powers in marginals]
            return [DistributionForecast(distribution=d, **c) for d, c in zip(found, common, strict=True)]
        samples = net.forecast(belief, batch, num_samples or net.data.num_samples)
        if net.data.num_targets == 1:
            samples = samples.squeeze(-1)
        paths = [in_units(one, powers) for one, powers in zip(samples.cpu().numpy(), exponents, strict=True)]
        return [SampleForecast(samples=one, **c) for one, c in zip(paths, common, strict=True)]


def _far_values(
    net: AbstractForecaster, batch: dict[str, Any], belief: Belief, windows: list[dict[str, Any]]
) -> dict[str, None]:
    """The first value of each series that is too far from the others, by name, value and time."""
    far = (net.units.too_far(batch, belief) & batch["past_observed"]).cpu().numpy()
    found = {}
    for series in np.flatnonzero(far.any((1, 2))):
        window = windows[series]
        time, target = np.argwhere(far[series])[0]
        back = far.shape[1] - time
        value = window["past_target"][len(window["past_target"]) - back, target]
        with expected_alias_warnings():
            period = window["forecast_start"] - int(back)
        found[f"series {window.get('item_id')!r}: {value:g} at {period}"] = None
    return found


def _warn_far(far: Mapping[str, None]) -> None:
    if far:
        log.warning(
            "values more than %g times the scale of their series away from its centre count as missing (%s): correct "
            "them, or filter the history anew if the series has grown so much",
            FARTHEST,
            _some(list(far)),
        )


def _refuse_far_future(net: AbstractForecaster, batch: dict[str, Any], belief: Belief, names: list[Any]) -> None:
    far = net.units.too_far(batch, belief, "known_future").any((1, 2))
    if bool(far.any()):
        raise ValueError(
            f"series {names[int(far.int().argmax())]!r}: a value of known_future is more than {FARTHEST:g} times the "
            "scale of the series away from its centre; correct it, or write NaN where it is free"
        )


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def with_module(predictor: StateSpacePredictor, module: AbstractForecaster) -> StateSpacePredictor:
    """A predictor of other weights for the same data."""
    return StateSpacePredictor(
        module,
        predictor.input_transform,
        predictor.prediction_length,
        predictor.freq,
        predictor.batch_size,
        predictor.history_length,
        predictor.forecast,
        predictor.device,
        predictor.columns,
        predictor.categories,
    )


def with_prediction_length(predictor: StateSpacePredictor, prediction_length: int) -> StateSpacePredictor:
    """A predictor of the same weights for another horizon."""
    old = predictor.input_transform
    assert isinstance(old, Prepare)
    transform = Prepare(
        prediction_length,
        list(old.seasons),
        list(old.index),
        old.cardinality.tolist(),
        old.static_units.tolist(),
        old.dynamic_units.tolist(),
        old.num_targets,
    )
    return StateSpacePredictor(
        predictor.prediction_net,
        transform,
        prediction_length,
        predictor.freq,
        predictor.batch_size,
        predictor.history_length,
        predictor.forecast,
        predictor.device,
        predictor.columns,
        predictor.categories,
    )


def save_predictor(predictor: StateSpacePredictor, folder: str | Path) -> None:
    """Writes a predictor by its `serialize`; an existing folder is replaced whole."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(folder) as scratch:
        predictor.serialize(scratch)


def load_predictor(folder: str | Path, device: str = "auto") -> StateSpacePredictor:
    """Reads what `save_predictor` or `StateSpacePredictor.serialize` wrote, onto any device; no code of it is run.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If it is damaged, of another program or of another format; or there is no such device.
    """
    return StateSpacePredictor.deserialize(Path(folder), find_device(device))


def find_device(name: str | torch.device) -> torch.device:
    """A device of this machine; "auto" is a GPU where there is one.

    Raises:
        ValueError: If it is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise ValueError(
            f"there is no device {str(name)!r} here; expected auto or one of {', '.join(there)}"
        ) from error
    return device
