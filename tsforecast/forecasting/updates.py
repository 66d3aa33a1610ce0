"""Beliefs that move on with new observations, and forecasts from where they end."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast
from torch.utils import _pytree as pytree

from tsforecast.data.checks import refuse_frame
from tsforecast.data.effects.effects import MEMORY
from tsforecast.data.windows import cut, since_first_value
from tsforecast.forecasting.beliefs import any_belief
from tsforecast.forecasting.histories import Histories
from tsforecast.forecasting.live_beliefs import LiveBelief, continued, join, split, static_features
from tsforecast.models import Belief


@dataclass(frozen=True)
class _Waiting:
    """New observations of a series on their way into its belief, which is None where it begins with them."""

    item_id: str
    window: dict[str, Any]
    static: dict[str, np.ndarray]
    belief: Belief | None
    exponents: tuple[int, ...]
    info: dict[str, Any] | None


def updated(
    histories: Histories, beliefs: Mapping[str, LiveBelief], dataset: Iterable[dict[str, Any]]
) -> dict[str, LiveBelief]:
    """Return the beliefs after new observations; see `StateSpacePredictor.update`."""
    refuse_frame(dataset)
    found = dict(beliefs)
    waiting: dict[tuple[bool, int], list[_Waiting]] = {}
    seen: dict[str, None] = {}
    for entry in dataset:
        item = str(entry.get("item_id"))
        if "item_id" not in entry or item in seen:
            raise ValueError(f"expected an item_id of its own for each series, got {entry.get('item_id')!r}")
        seen[item] = None
        histories.check(entry)
        known = found.get(item)
        static = static_features(entry) if known is None else {**known.static}
        info = entry.get("info") if known is None else known.info
        begins = known is None or not known.begun
        whole = entry if known is None else continued(known, entry)
        (prepared,) = histories.transform(iter([whole]), is_train=True)
        static |= {MEMORY: prepared[MEMORY]} if MEMORY in prepared else {}
        window = cut(prepared, len(prepared["target"]), histories.history_length if begins else None, 0)
        window = since_first_value(window) if begins else window
        group = waiting.setdefault((begins, len(window["past_target"])), [])
        if known is None or begins:
            exponents = tuple(histories.exponents([window])[0].tolist())
            group.append(_Waiting(item, window, static, None, exponents, info))
        else:
            group.append(_Waiting(item, window, static, known.belief, known.exponents, info))
        if len(group) == histories.batch_size:
            found.update(_moved(histories, group))
            group.clear()
    for group in waiting.values():
        if group:
            found.update(_moved(histories, group))
    histories.warn()
    return {item: found[item] for item in dict.fromkeys([*beliefs, *seen])}


def _moved(histories: Histories, group: list[_Waiting]) -> dict[str, LiveBelief]:
    """Return beliefs after windows of equal length, of series that all have begun before or all begin now."""
    before = [one.belief for one in group if one.belief is not None]
    windows = [one.window for one in group]
    exponents = np.array([one.exponents for one in group])

    def moved(own: Histories) -> Belief:
        start = own.as_precise(join(before)) if before else None
        after = own.filtered(windows, own.collated(windows, exponents), start)
        if own is histories:
            return after
        narrow = lambda x, usual: x.to(usual.dtype) if isinstance(x, torch.Tensor) else x  # noqa: E731
        return pytree.tree_map(narrow, after, any_belief(histories.net))

    with torch.no_grad():
        after = histories.exactly(moved, len(group), "belief")
    rows = zip(group, (window["forecast_start"] for window in windows), split(after), strict=True)
    return {
        one.item_id: LiveBelief(
            one.item_id,
            end,
            belief,
            one.static,
            begun=one.belief is not None or bool(one.window["past_observed"].any()),
            exponents=one.exponents,
            info=one.info,
        )
        for one, end, belief in rows
    }


def forecasts_from(
    histories: Histories,
    beliefs: Mapping[str, LiveBelief],
    dataset: Iterable[dict[str, Any]] | None,
    num_samples: int | None,
) -> Iterator[Forecast]:
    """Return forecasts from where the beliefs end; see `StateSpacePredictor.forecast_from`."""
    refuse_frame(dataset)
    histories.alone("forecasts from beliefs are")
    entries = [{"item_id": item} for item in beliefs] if dataset is None else dataset
    for chunk in batcher(entries, histories.batch_size):
        known, windows = [], []
        for entry in chunk:
            item = str(entry.get("item_id"))
            if item not in beliefs:
                raise ValueError(f"series {item!r} is not among the beliefs; filter its history first")
            known.append(beliefs[item])
            empty = np.zeros((histories.net.data.num_targets, 0), np.float32)
            whole = {**known[-1].static, **entry, "start": known[-1].end, "target": empty, "item_id": item}
            whole |= {} if known[-1].info is None else {"info": known[-1].info}
            (prepared,) = histories.transform(iter([whole]), is_train=False)
            if len(prepared["dynamic_real"]) < histories.horizon:
                raise ValueError(
                    f"series {item!r}: expected feat_dynamic_real over {histories.horizon} steps from "
                    f"{known[-1].end} on, got {len(prepared['dynamic_real'])}"
                )
            windows.append(cut(prepared, 0, None, histories.horizon))
        exponents = np.array([k.exponents for k in known])
        belief = join([k.belief for k in known])

        def ahead(
            own: Histories, windows: Any = windows, exponents: Any = exponents, belief: Belief = belief
        ) -> list[Forecast]:
            return own.forecasts(own.as_precise(belief), own.collated(windows, exponents), num_samples, exponents)

        with torch.no_grad():
            forecasts = histories.exactly(ahead, len(known), "forecast")
        yield from forecasts
