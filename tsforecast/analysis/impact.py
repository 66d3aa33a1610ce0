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
from tsforecast.analysis.placebos import Placebos
from tsforecast.data.dataframes import columns_of
from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.data.roles import Columns
from tsforecast.data.table import read_task
from tsforecast.data.transform import calendar_of
from tsforecast.data.wording import option
from tsforecast.models.parts.bounds import at_least, one_of
from tsforecast.models.parts.component_names import component_names, parse_component
from tsforecast.models.parts.transformation import TRANSFORMATIONS, restored, transformed

LEAST = 8  # observed steps before an intervention
_SHOWN = 20  # steps of the past in pictures, beside three times those of the intervention
_TOGETHER = 10_000_000  # numbers of paths
Dates = str | pd.Timestamp | Sequence[str | pd.Timestamp]


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
    return effects(task.entries, task.freq, _dates(after, until), [*roles.covariates], options)


def _dates(after: Dates, until: Dates | None) -> list[tuple[pd.Timestamp, pd.Timestamp | None]]:
    """Return pairs of last steps without and with each intervention.

    Raises:
        ValueError: If they go back, overlap, or are no dates.
    """
    starts = [_date(x, "after") for x in ([after] if isinstance(after, str | pd.Timestamp) else after)]
    ends = [] if until is None else [until] if isinstance(until, str | pd.Timestamp) else [*until]
    if ends and len(ends) != len(starts):
        raise ValueError(f"expected {option('until')} for each {option('after')}, got {len(ends)} for {len(starts)}")
    later: list[pd.Timestamp | None] = [*starts[1:], None]
    last = [_date(x, "until") for x in ends] if ends else later
    for start, end, following in zip(starts, last, later, strict=True):
        if end is not None and end <= start:
            raise ValueError(f"expected {option('until')} later than {option('after')}, got {end} and {start}")
        if end is not None and following is not None and following < end:
            raise ValueError(f"interventions overlap: one ends at {end}, the next begins after {following}")
    return [*zip(starts, last, strict=True)]


def _date(value: str | pd.Timestamp, name: str) -> pd.Timestamp:
    try:
        found: Any = pd.Timestamp(value)
    except ValueError as error:
        raise ValueError(f"expected a date such as 2024-03-01 as {option(name)}, got {value!r}") from error
    if found is pd.NaT:
        raise ValueError(f"expected a date such as 2024-03-01 as {option(name)}, got {value!r}")
    return found.tz_convert(None) if found.tz is not None else found


@dataclasses.dataclass(frozen=True)
class _Case:
    """A series around one intervention.

    Attributes:
        item: Its name.
        number: Of the intervention.
        start: First step of the series.
        values: Of all steps; NaN where missing, and within interventions before.
        controls: Of all steps, (time, control).
        before: Steps without the intervention.
        horizon: Steps with it.
    """

    item: str
    number: int
    start: pd.Period
    values: NDArray[np.float64]
    controls: NDArray[np.float64]
    before: int
    horizon: int


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
    cases = [case for entry in entries for case in _cases(entry, dates, names)]
    groups: dict[tuple[int, int, int], list[_Case]] = {}
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


def _cases(
    entry: Mapping[str, Any], dates: Sequence[tuple[pd.Timestamp, pd.Timestamp | None]], names: Sequence[str]
) -> list[_Case]:
    """Return a series around each intervention.

    Raises:
        ValueError: If a date is outside of it, too little is known before, or a control tells nothing.
    """
    item, start = str(entry.get("item_id")), entry["start"]
    values = np.asarray(entry["target"], np.float64).copy()
    controls = np.asarray(entry.get("feat_dynamic_real", np.zeros((0, len(values)))), np.float64)[:, : len(values)].T
    with expected_alias_warnings():
        last = start + (len(values) - 1)
    found = []
    for number, (after, until) in enumerate(dates, 1):
        before, end = (_steps(start, date, len(values)) for date in (after, until))
        if not 0 < before < len(values):
            raise ValueError(
                f"series {item!r}: expected {option('after')} between {start} and the step before {last}, got {after}"
            )
        if until is not None and _steps(start, until, None) > len(values):
            raise ValueError(f"series {item!r} ends at {last}, before {option('until')} {until}")
        seen = ~np.isnan(values[:before])
        if seen.sum() < LEAST:
            raise ValueError(
                f"series {item!r} has {seen.sum()} values up to {after}: expected at least {LEAST}, by which it is "
                "known how the series moves without the intervention"
            )
        if np.isnan(values[before:end]).all():
            raise ValueError(f"series {item!r} has no value behind {after}: there is no effect to be seen")
        still = np.ptp(controls[:before][seen], axis=0) == 0
        if still.any():
            raise ValueError(
                f"series {item!r}: the control {names[int(np.argmax(still))]!r} is constant up to {after}, and tells "
                "nothing; leave it out"
            )
        found.append(_Case(item, number, start, values.copy(), controls, before, end - before))
        values[before:end] = np.nan
    return found


def _steps(start: pd.Period, date: pd.Timestamp | None, most: int | None) -> int:
    """Return the number of steps of a series up to a date, that of the date among them; of None, all."""
    if date is None:
        assert most is not None
        return most
    with expected_alias_warnings():
        last: Any = pd.Period(date, start.freq)
    count = (last.ordinal - start.ordinal) // start.freq.n + 1
    return count if most is None else min(count, most)


def _estimate(
    cases: Sequence[_Case], freq: str, options: Options, generator: torch.Generator
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
    with expected_alias_warnings():
        stamps = pd.period_range(start + (before - shown), periods=shown).to_timestamp()
    last = _labelled(cases, stamps) | {"actual": actual[before - shown : before].T.ravel()}
    frame, summary = _tables(cases, actual[before:].T, would, options.level)
    return frame, summary.assign(windows=np.repeat(windows, 2)), pd.DataFrame(last)


def _labelled(cases: Sequence[_Case], stamps: pd.DatetimeIndex) -> dict[str, Any]:
    """Return the columns that name a series, an intervention and a step."""
    return {
        "item_id": np.repeat([case.item for case in cases], len(stamps)),
        "intervention": np.repeat([case.number for case in cases], len(stamps)),
        "timestamp": np.tile(stamps.to_numpy(), len(cases)),
    }


def _described(seasons: str) -> str:
    return "paper" if seasons == "auto" else seasons


def _units(values: NDArray[np.float64], known: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation over time of what is known; a deviation of 1 of what does not change."""
    count = np.maximum(known.sum(0), 1)
    centre = np.where(known, values, 0.0).sum(0) / count
    spread = np.sqrt(np.square(np.where(known, values - centre, 0.0)).sum(0) / np.maximum(count - 1, 1))
    return centre, np.where(spread > 1e-9 * np.abs(centre), spread, np.maximum(np.abs(centre), 1.0))


def _tables(
    cases: Sequence[_Case],
    actual: NDArray[np.float64],
    would: NDArray[np.float64],
    level: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return effects by step, and their summary.

    Args:
        cases: Some, with the same steps.
        actual: What came, (series, step), NaN where missing.
        would: Paths of what would have been, (series, sample, step).
        level: Of intervals.
    """
    seen = ~np.isnan(actual)
    ends = ((1 - level) / 2, (1 + level) / 2)
    with expected_alias_warnings():
        stamps = pd.period_range(cases[0].start + cases[0].before, periods=cases[0].horizon).to_timestamp()
    rows = _labelled(cases, stamps) | {"actual": actual.ravel()}
    low, high = np.quantile(would, ends, axis=1)
    mean = would.mean(1)
    for name, draws in (("predicted", (mean, low, high)), ("effect", (actual - mean, actual - high, actual - low))):
        rows |= dict(zip((name, f"{name}_lower", f"{name}_upper"), (x.ravel() for x in draws), strict=True))
    held = would if seen.all() else np.where(seen[:, None], would, 0.0)
    sums, came = held.cumsum(2), np.nan_to_num(actual).cumsum(1)
    low, high = np.quantile(sums, ends, axis=1)
    for end, x in (("", sums.mean(1)), ("_lower", high), ("_upper", low)):
        rows[f"cumulative{end}"] = (came - x).ravel()
    return pd.DataFrame(rows), _summary(cases, actual, sums[:, :, -1], seen.sum(1), ends)


def _summary(
    cases: Sequence[_Case],
    actual: NDArray[np.float64],
    without: NDArray[np.float64],
    count: NDArray[np.int64],
    ends: tuple[float, float],
) -> pd.DataFrame:
    """Return averages and totals over the steps of each intervention that have a value.

    Args:
        cases: Some, with the same steps.
        actual: What came, (series, step), NaN where missing.
        without: Paths of its sum as it would have been, (series, sample).
        count: Steps that have a value.
        ends: Levels of intervals.
    """
    total = np.nansum(actual, axis=1)
    difference = total[:, None] - without
    with np.errstate(divide="ignore", invalid="ignore"):
        share = difference / np.abs(without)
    above = (1 + (without >= total[:, None]).sum(1)) / (1 + without.shape[1])
    below = (1 + (without <= total[:, None]).sum(1)) / (1 + without.shape[1])
    tables = []
    for measure, unit in (("average", count), ("cumulative", np.ones_like(count))):
        rows: dict[str, Any] = {
            "item_id": [case.item for case in cases],
            "intervention": [case.number for case in cases],
            "measure": measure,
            "actual": total / unit,
        }
        parts = {"predicted": without / unit[:, None], "effect": difference / unit[:, None], "relative": share}
        for name, draws in parts.items():
            low, high = np.quantile(draws, ends, axis=1)
            rows |= {name: draws.mean(1), f"{name}_sd": draws.std(1), f"{name}_lower": low, f"{name}_upper": high}
        tables.append(pd.DataFrame(rows | {"tail": np.minimum(above, below)}))
    both = pd.concat(tables, keys=range(2))
    return both.swaplevel().sort_index(kind="stable").reset_index(drop=True)
