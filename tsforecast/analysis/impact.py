"""The effect of an intervention by step, on average and in total, beside the counterfactual without it."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsforecast.analysis.counterfactual import paths
from tsforecast.analysis.impact_tables import Sums, labelled, summary_of, tables_of, together
from tsforecast.analysis.interventions import Case, Dates, Pair, cases_of, pairs_of, pairs_of_table
from tsforecast.analysis.structures import StructuralModel
from tsforecast.analysis.whitening import Past
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.data.transform import calendar_of
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.parts.component_names import component_names, parse_component, refuse_still, steps_in_cycle
from tsforecast.models.transformations import TRANSFORMATIONS, transformation_of
from tsforecast.wording import listed, option

log = logging.getLogger(__name__)

_SHOWN = 20  # steps of the past in pictures, beside three times those of the intervention
_TOGETHER = 10_000_000  # numbers of paths


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the estimation of effects.

    Attributes:
        seasons: Components of seasons joined by "+", see `component_names`; "auto" for those of the frequency, "none".
        transformation: Of the series, in which the model is linear: "none", "log1p", ..
        level_sd: See `StructuralModel`; 0.01 is the prior of the R package CausalImpact.
        dynamic: Whether the coefficients of controls move.
        level: Of the intervals.
        num_samples: Joint paths of each series.
        seed: Of the paths.

    Raises:
        ValueError: If a name is not known, or a number is out of its range.
    """

    seasons: str = "auto"
    transformation: str = "none"
    level_sd: float | None = None
    dynamic: bool = False
    level: float = 0.95
    num_samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        one_of(tuple(TRANSFORMATIONS), transformation=self.transformation)
        at_least(10, num_samples=self.num_samples)
        for name, value in (("level", self.level), ("level_sd", self.level_sd)):
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
            standard deviations `_sd`, and `relative`, the effect of the row in shares of the size of its `predicted`.
            `tail` is the posterior probability that the series would have been as far on that side without the
            intervention.
        past: The last steps before each intervention, with `actual`, for pictures.
        overall: The summary of all interventions of a series together, where there are several, and of those of all
            series (`item_id` is "(all)"); `interventions` counts them. Errors of different interventions and series
            are taken as independent.

    Series and time stamps are `item_id` and `timestamp`; of a table that was read, the columns that it has for them.
    """

    frame: pd.DataFrame
    summary: pd.DataFrame
    past: pd.DataFrame
    overall: pd.DataFrame


def impact(
    data: pd.DataFrame | str | Path,
    after: Dates | None = None,
    until: Dates | None = None,
    covariates: Sequence[str] = (),
    *,
    dates: Any = None,
    after_column: str | None = None,
    until_column: str | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    freq: str | None = None,
    options: Options = Options(),
) -> Impact:
    """Return the effects of interventions on series, measured against their counterfactuals.

    The model of a series and its controls is learnt from the time before; see `tsforecast.analysis.counterfactual`.
    Controls must not be touched by the intervention. Each of several interventions is compared with a continuation of
    the time before it, where steps of earlier ones count as missing.

    Args:
        data: A table with a row for each series and time stamp, as `read_task` takes it; missing values may be.
        after: Last time stamp without the intervention, or one for each of several.
        until: Last time stamp with it, or one for each; None for the end, and of several for the next one's `after`.
        covariates: Columns of controls.
        dates: In place of both, those of each series: a table (or its file) with a row for each intervention, a column
            that names the series, `after`, and if need be `until`. Series that it lacks are left out.
        after_column: In place of `after`, the column of the data with the date of each series; "none" for none.
        until_column: Likewise.
        columns: What the other columns are; None for what is found by names.
        freq: Frequency of the data; inferred where None.
        options: How effects are estimated.

    Raises:
        ValueError: If the data are not as expected, a date is outside them, dates go back, or a series has too few
            values before a date; the message names the series.
        FileNotFoundError: If there is no such file.
    """
    roles = columns_of(columns)
    roles = dataclasses.replace(roles, covariates=[*covariates]) if covariates else roles
    if sum(one is not None for one in (after, dates, after_column)) != 1:
        raise ValueError(f"expected one of {option('after')}, {option('dates')} and {option('after_column')}")
    if (until is not None and after is None) or (until_column is not None and after_column is None):
        raise ValueError(
            f"{option('until')} goes with {option('after')}, and {option('until_column')} with {option('after_column')}"
        )
    if options.dynamic and not roles.covariates:
        raise ValueError(f"{option('dynamic')} moves coefficients of controls: name some by {option('covariates')}")
    named = [name for name in (after_column, until_column) if name is not None]
    roles = dataclasses.replace(roles, static_categories=[*roles.static_categories, *named])
    task = read_task(data, freq, 1, 0, columns=roles)
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        raise ValueError("expected one target: give several targets as series of their own")
    for entry in task.entries:
        values = np.asarray(entry["target"], np.float64)
        try:
            transformation_of(options.transformation).check(float(np.nanmin(values)), float(np.nanmax(values)))
        except ValueError as error:
            raise ValueError(f"series {str(entry['item_id'])!r}: {error}") from error
    if after is not None:
        pairs: Any = pairs_of(after, until)
    else:
        pairs = pairs_of_table(_in_columns(task, named) if dates is None else dates)
    tables = effects(task.entries, task.freq, pairs, [*roles.covariates], options)
    cells = cells_of(task.entries)
    return Impact(*(as_read(getattr(tables, one.name), task.columns, cells) for one in dataclasses.fields(Impact)))


def _in_columns(task: ForecastTask, named: Sequence[str]) -> pd.DataFrame:
    """Return the table of the dates that static columns of the data have."""
    place = len(task.entries[0]["feat_static_cat"]) - len(named)
    of = [*task.categories.values()][place:]
    columns: dict[str, Any] = {"item": [entry["item_id"] for entry in task.entries]}
    for k, (name, values) in enumerate(zip(("after", "until"), of, strict=False)):
        columns[name] = [values[entry["feat_static_cat"][place + k]] for entry in task.entries]
    return pd.DataFrame(columns).replace("none", None)


def effects(
    entries: Sequence[Mapping[str, Any]],
    freq: str,
    dates: Sequence[Pair] | Mapping[str, Sequence[Pair]],
    names: Sequence[str],
    options: Options,
) -> Impact:
    """Return effects on the series of entries, see `impact`.

    Args:
        entries: Series of one target; controls are their `feat_dynamic_real`.
        freq: Their frequency.
        dates: Last steps without and with each intervention, of all series or of each by its name.
        names: Of the controls.
        options: How effects are estimated.

    Raises:
        ValueError: As `impact` does.
    """
    if isinstance(dates, Mapping):
        entries = _with_dates(entries, dates)
    own = lambda entry: dates[str(entry["item_id"])] if isinstance(dates, Mapping) else dates  # noqa: E731
    cases = [case for entry in entries for case in cases_of(entry, own(entry), names)]
    groups: dict[tuple[int, int, int], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.start.ordinal, case.before, case.horizon), []).append(case)
    generator = torch.Generator().manual_seed(options.seed)
    tables: list[tuple[pd.DataFrame, ...]] = []
    sums: dict[tuple[str, int], tuple[Any, ...]] = {}
    for group in groups.values():
        at_a_time = max(1, _TOGETHER // (options.num_samples * group[0].horizon))
        for first in range(0, len(group), at_a_time):
            part = group[first : first + at_a_time]
            *own_tables, added = _estimate(part, freq, options, generator)
            tables.append(tuple(own_tables))
            rows = zip(added.actual, added.without, added.count, strict=True)
            sums |= {(case.item, case.number): row for case, row in zip(part, rows, strict=True)}
    order: Any = {str(entry.get("item_id")): place for place, entry in enumerate(entries)}
    frames = []
    for parts in zip(*tables, strict=True):
        table = pd.concat(parts)
        table = table.assign(place=table["item_id"].map(order))
        table = table.sort_values(["place", "intervention"], kind="stable")
        frames.append(table.drop(columns="place").reset_index(drop=True))
    items = [case.item for case in cases]
    ordered = [sums[case.item, case.number] for case in cases]
    all_sums = Sums(*(np.stack(parts) for parts in zip(*ordered, strict=True)))
    summary = summary_of(items, [case.number for case in cases], all_sums, options.level)
    return Impact(frames[0], summary, frames[1], together(items, all_sums, options.level))


def _with_dates(entries: Sequence[Mapping[str, Any]], dates: Mapping[str, Sequence[Pair]]) -> list[Mapping[str, Any]]:
    """Return the series that have dates; the log counts the others."""
    names = [str(entry.get("item_id")) for entry in entries]
    if unknown := [name for name in dates if name not in names]:
        raise ValueError(f"dates name the series {unknown[0]!r}, which the data lack; they have {listed(names)}")
    if not (kept := [entry for entry, name in zip(entries, names, strict=True) if name in dates]):
        raise ValueError("expected a date of at least one series, got none")
    if len(kept) < len(entries):
        log.info("%d of %d series have no date and are left out", len(entries) - len(kept), len(entries))
    return kept


def _estimate(
    cases: Sequence[Case], freq: str, options: Options, generator: torch.Generator
) -> tuple[pd.DataFrame, pd.DataFrame, Sums]:
    """Return effects by step, the end of the past, and sums over steps, of cases with the same steps."""
    before, horizon, start = cases[0].before, cases[0].horizon, cases[0].start
    steps = before + horizon
    seasons, index = _seasons(options.seasons, freq, start.ordinal + start.freq.n * np.arange(steps), before)
    model = StructuralModel(tuple(parse_component(name) for name in seasons), options.level_sd, options.dynamic)
    actual = np.stack([case.values[:steps] for case in cases], 1)
    known = ~np.isnan(actual[:before])
    transformed = transformation_of(options.transformation).apply(torch.from_numpy(np.nan_to_num(actual))).numpy()
    centre, scale = _units(transformed[:before], known)
    controls = np.stack([case.controls[:steps] for case in cases], 1)
    middle, spread = _units(controls[:before], np.broadcast_to(known[..., None], controls[:before].shape))
    past = Past(
        torch.from_numpy(np.where(known, (transformed[:before] - centre) / scale, 0.0)),
        torch.from_numpy(known),
        torch.from_numpy((controls - middle) / spread),
        torch.from_numpy(index),
    )
    drawn = paths(model, past, horizon, options.num_samples, generator)
    unit, shift = (torch.from_numpy(x)[:, None, None] for x in (scale, centre))
    without = transformation_of(options.transformation).restore(drawn * unit + shift).numpy()
    shown = min(before, 3 * horizon + _SHOWN)
    last = labelled(cases, before - shown, shown) | {"actual": actual[before - shown : before].T.ravel()}
    frame, sums = tables_of(cases, actual[before:].T, without, options.level)
    return frame, pd.DataFrame(last), sums


def _seasons(seasons: str, freq: str, ordinals: NDArray[np.int64], before: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the seasons and the positions in their cycles, (step, season).

    Seasons of which less than two cycles are known are left out, as the log says.

    Args:
        seasons: See `Options`.
        freq: Frequency.
        ordinals: Of all steps.
        before: Steps before the intervention.
    """
    refuse_still(seasons, freq)
    names = [] if seasons == "none" else component_names("paper" if seasons == "auto" else seasons, freq)
    names = [name for name in names if parse_component(name).is_seasonal]
    index = calendar_of(ordinals, freq, tuple(names))[1]
    known = [_is_known(name, freq, index[:, k], before) for k, name in enumerate(names)]
    if not all(known):
        left = [name for name, there in zip(names, known, strict=True) if not there]
        log.warning("less than two cycles of %s are known before the date: left out", ", ".join(left))
    return [name for name, there in zip(names, known, strict=True) if there], index[:, known]


def _is_known(name: str, freq: str, index: NDArray[np.int64], before: int) -> bool:
    cycle = steps_in_cycle(name, freq)
    if cycle is not None:
        return before >= 2 * cycle
    counts = np.bincount(index[:before], minlength=int(index.max()) + 1)
    return bool((counts[index[before:]] >= 2).all())


def _units(values: NDArray[np.float64], known: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation over time of the known values; constants get max(|mean|, 1)."""
    count = np.maximum(known.sum(0), 1)
    centre = np.where(known, values, 0.0).sum(0) / count
    spread = np.sqrt(np.square(np.where(known, values - centre, 0.0)).sum(0) / np.maximum(count - 1, 1))
    return centre, np.where(spread > 1e-12 * np.abs(centre), spread, np.maximum(np.abs(centre), 1.0))
