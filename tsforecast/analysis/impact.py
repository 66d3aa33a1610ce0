"""What an intervention did: the effect by step, on average and in total, beside what would have been without it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsforecast.analysis.counterfactual import Past, StructuralModel, paths
from tsforecast.analysis.impact_tables import labelled, tables_of
from tsforecast.analysis.interventions import Case, Dates, cases_of, pairs_of
from tsforecast.analysis.placebos import Placebos
from tsforecast.data.dataframes import columns_of
from tsforecast.data.naming import as_read, cells_of
from tsforecast.data.roles import Columns
from tsforecast.data.table import read_task
from tsforecast.data.transform import calendar_of
from tsforecast.models.parts.bounds import at_least, one_of
from tsforecast.models.parts.component_names import component_names, parse_component
from tsforecast.models.parts.transformation import TRANSFORMATIONS, restored, transformed

_SHOWN = 20  # steps of the past in pictures, beside three times those of the intervention
_TOGETHER = 10_000_000  # numbers of paths


@dataclasses.dataclass(frozen=True)
class Options:
    """How effects are estimated.

    Attributes:
        seasons: Components of seasons joined by "+", see `component_names`; "auto" for those of the frequency, "none".
        transformation: Of the series, in which the model is linear: "none", "log1p", ..
        level_sd: See `StructuralModel`; 0.01 is the prior of the R package CausalImpact.
        model_size: Controls expected to matter; the others come with a coefficient of 0.
        dynamic: Whether the coefficients of controls move.
        calibrated: Whether errors of placebo interventions say how wide intervals are, see
            `tsforecast.analysis.placebos`; a past with no place for six keeps those of the model.
        level: Of the intervals.
        num_samples: Joint paths of each series.
        seed: Of the paths.

    Raises:
        ValueError: If a name is not known, or a number is out of its range.
    """

    seasons: str = "auto"
    transformation: str = "none"
    level_sd: float | None = None
    model_size: float = 3.0
    dynamic: bool = False
    calibrated: bool = True
    level: float = 0.95
    num_samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        one_of(tuple(TRANSFORMATIONS), transformation=self.transformation)
        at_least(10, num_samples=self.num_samples)
        for name, value in (("level", self.level), ("level_sd", self.level_sd), ("model_size", self.model_size)):
            largest = 1.0 if name == "level" else np.inf
            if value is not None and not 0 < value < largest:
                raise ValueError(f"expected {name} between 0 and {largest:g}, got {value}")


@dataclasses.dataclass(frozen=True)
class Impact:
    """Effects of interventions.

    Attributes:
        frame: A row for each series, intervention (counted from 1) and step behind its date: `actual`; `predicted`,
            what would have been without it; `effect`, actual less predicted; `cumulative`, its sum up to the step. All
            but the first have columns `_lower` and `_upper`.
        summary: A row for each series, intervention and `measure`, "average" over its steps or "cumulative": the same,
            standard deviations `_sd`, and `relative`, the effect in shares of what would have been. `tail` is the
            posterior probability that the series would have been as far on that side without the intervention;
            `windows` counts the placebo interventions by which intervals were calibrated.
        past: The last steps before each intervention, with `actual`, for pictures.

    Series and time stamps are `item_id` and `timestamp`; of a table that was read, the columns that it has for them.
    """

    frame: pd.DataFrame
    summary: pd.DataFrame
    past: pd.DataFrame


def impact(
    data: pd.DataFrame | str | Path,
    after: Dates,
    until: Dates | None = None,
    covariates: Sequence[str] = (),
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    freq: str | None = None,
    options: Options = Options(),
) -> Impact:
    """Return what interventions did to series, by what these would have been without.

    The time before says how a series moves by itself and with its controls; see `tsforecast.analysis.counterfactual`.
    Controls must not be touched by the intervention. Of several interventions, each is compared with a continuation of
    the time before it, in which the steps of those before it count as missing.

    Args:
        data: A table with a row for each series and time stamp, as `read_task` takes it; missing values may be.
        after: Last time stamp without the intervention, or one for each of several.
        until: Last time stamp with it, or one for each; None for the end, and of several for the next one's `after`.
        covariates: Columns of controls.
        columns: What the other columns are; None for what is found by names.
        freq: Frequency of the data; inferred where None.
        options: How effects are estimated.

    Raises:
        ValueError: If the data are not as expected, a date is outside them, dates go back, or a series has too few
            values before a date; the message names the series.
        FileNotFoundError: If there is no such file.
    """
    roles = columns_of(columns)
    if covariates:
        roles = dataclasses.replace(roles, covariates=[*covariates])
    task = read_task(data, freq, 1, 0, columns=roles)
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        raise ValueError("expected one target: give several targets as series of their own")
    found = effects(task.entries, task.freq, pairs_of(after, until), [*roles.covariates], options)
    cells = cells_of(task.entries)
    return Impact(*(as_read(table, task.columns, cells) for table in (found.frame, found.summary, found.past)))


def effects(
    entries: Sequence[Mapping[str, Any]],
    freq: str,
    dates: Sequence[tuple[pd.Timestamp, pd.Timestamp | None]],
    names: Sequence[str],
    options: Options,
) -> Impact:
    """Return effects on the series of entries, see `impact`.

    Args:
        entries: Series of one target; controls are their `feat_dynamic_real`.
        freq: Their frequency.
        dates: Last steps without and with each intervention.
        names: Of the controls.
        options: How effects are estimated.

    Raises:
        ValueError: As `impact` does.
    """
    cases = [case for entry in entries for case in cases_of(entry, dates, names)]
    groups: dict[tuple[int, int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.start.ordinal, case.before, case.horizon), []).append(case)
    generator = torch.Generator().manual_seed(options.seed)
    tables: list[tuple[pd.DataFrame, ...]] = []
    for group in groups.values():
        together = max(1, _TOGETHER // (options.num_samples * group[0].horizon))
        for first in range(0, len(group), together):
            tables.append(_estimate(group[first : first + together], freq, options, generator))
    order: Any = {str(entry.get("item_id")): place for place, entry in enumerate(entries)}
    found = []
    for parts in zip(*tables, strict=True):
        table = pd.concat(parts)
        table = table.assign(place=table["item_id"].map(order))
        table = table.sort_values(["place", "intervention"], kind="stable")
        found.append(table.drop(columns="place").reset_index(drop=True))
    return Impact(*found)


def _estimate(
    cases: Sequence[Case], freq: str, options: Options, generator: torch.Generator
) -> tuple[pd.DataFrame, ...]:
    """Return effects by step, their summary, and the end of the past, of cases with the same steps."""
    before, horizon, start = cases[0].before, cases[0].horizon, cases[0].start
    steps = before + horizon
    seasons = [] if options.seasons == "none" else component_names(_described(options.seasons), freq)
    seasons = [name for name in seasons if parse_component(name).is_seasonal]
    ordinals = start.ordinal + start.freq.n * np.arange(steps)
    index = torch.from_numpy(calendar_of(ordinals, freq, tuple(seasons))[1])
    model = StructuralModel(
        tuple(parse_component(name) for name in seasons),
        options.level_sd is None,
        options.level_sd,
        options.model_size,
        options.dynamic,
    )
    actual = np.stack([case.values[:steps] for case in cases], 1)
    known = ~np.isnan(actual[:before])
    bent = transformed(torch.from_numpy(np.nan_to_num(actual)), options.transformation).numpy()
    centre, scale = _units(bent[:before], known)
    controls = np.stack([case.controls[:steps] for case in cases], 1)
    middle, spread = _units(controls[:before], np.broadcast_to(known[..., None], controls[:before].shape))
    past = Past(
        torch.from_numpy(np.where(known, (bent[:before] - centre) / scale, 0.0)),
        torch.from_numpy(known),
        torch.from_numpy((controls - middle) / spread),
        index,
    )
    placebos = Placebos.of(past.observed, horizon) if options.calibrated else None
    windows = np.zeros(len(cases), int) if placebos is None else placebos.used.sum(0).numpy()
    drawn = paths(model, past, horizon, options.num_samples, generator, placebos)
    unit, shift = (torch.from_numpy(x).float()[:, None, None] for x in (scale, centre))
    would = restored(drawn * unit + shift, options.transformation).numpy().astype(np.float64)
    shown = min(before, 3 * horizon + _SHOWN)
    last = labelled(cases, before - shown, shown) | {"actual": actual[before - shown : before].T.ravel()}
    frame, summary = tables_of(cases, actual[before:].T, would, options.level)
    return frame, summary.assign(windows=np.repeat(windows, 2)), pd.DataFrame(last)


def _described(seasons: str) -> str:
    return "paper" if seasons == "auto" else seasons


def _units(values: NDArray[np.float64], known: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation over time of what is known; a deviation of 1 of what does not change."""
    count = np.maximum(known.sum(0), 1)
    centre = np.where(known, values, 0.0).sum(0) / count
    spread = np.sqrt(np.square(np.where(known, values - centre, 0.0)).sum(0) / np.maximum(count - 1, 1))
    return centre, np.where(spread > 1e-9 * np.abs(centre), spread, np.maximum(np.abs(centre), 1.0))
