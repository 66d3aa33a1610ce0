"""Pictures and the page of a report of `evaluate`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.model import Forecast
from numpy.typing import NDArray

from tsforecast.cli.answers import heading
from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import steps_in_words
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.windows import collate, cut
from tsforecast.evaluation import Evaluation
from tsforecast.evaluation.metrics import flat
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import AbstractForecaster, ExactInference
from tsforecast.models.parts.regimes import AbstractRegimeInference
from tsforecast.models.words import in_words
from tsforecast.plots import (
    colour_of,
    measured,
    plot_calibration,
    plot_decomposition,
    plot_forecasts,
    plot_regimes,
    plot_scores_by_horizon,
    save_figure,
)
from tsforecast.plots.pages import Page, Section, forecast_charts
from tsforecast.plots.pages.comparison import Contender
from tsforecast.plots.pages.comparison import page as comparison
from tsforecast.plots.pages.scores import score_sections
from tsforecast.wording import counted, shortened

ON_PAGE = 24  # series whose forecasts are on the page, at least
_HISTORY = 2000  # steps that are smoothed before a picture of the components, at most
_REGIMES_SHOWN = 4000  # steps of a picture of the regimes, at most: they are seen from afar


def page(
    task: ForecastTask,
    evaluation: Evaluation,
    entries: Sequence[dict[str, Any]],
    forecasts: Sequence[Forecast],
    record: Mapping[str, Any],
    net: AbstractForecaster,
) -> Page:
    """Return the page of a report: scores, their charts, and rolling forecasts of some series."""
    charts = forecast_charts(entries, forecasts, targets=task.targets, unit=task.unit)
    contenders = [
        Contender(name, {p: flat(s.overall) for p, s in scores.items()}, {}, name in evaluation.deviations)
        for name, scores in evaluation.scores.items()
    ]
    horizon = steps_in_words(task.prediction_length, task.freq)
    facts = [f"{len(task.entries)} series, {counted(task.windows, 'window')} of {horizon}."]
    sections = [
        Section("Forecasts", charts, "From the best to the worst series.", shown=("80 %",)),
        *score_sections(evaluation.per_horizon(), evaluation.calibration()),
    ]
    title = heading(task, f"forecasts of {horizon} by {in_words(net)}")
    return comparison(title, facts, contenders, {}, [], [(evaluation.model, record["command"])], sections)


def spread(task: ForecastTask, evaluation: Evaluation, count: int) -> list[dict[str, Any]]:
    """Series from the best to the worst rolling score of the model, evenly between: a picture must not choose."""
    scores = evaluation.scores[evaluation.model]["rolling"].per_series["crps"]
    order = np.argsort(scores.to_numpy(), kind="stable")  # NaN, where nothing was observed, comes last
    by_item = {str(entry["item_id"]): entry for entry in task.entries}
    return [by_item[str(scores.index[place])] for place in evenly(order, count)]


def evenly(rows: Sequence[Any] | NDArray[Any], count: int) -> list[Any]:
    """Return so many rows, with the first and the last and evenly between."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int))
    return [rows[place] for place in places]


def draw(folder: Path, task: ForecastTask, forecasts: dict[str, list[Any]], evaluation: Evaluation) -> list[Path]:
    """Pictures of forecasts and scores."""
    written = []
    for protocol in forecasts:  # the rolling ones alone where there is one window
        label = f"{evaluation.model} on {evaluation.dataset}, {protocol.replace('_', '-')}"
        spread = " (from the best to the worst CRPS)" if len(task.entries) > 1 else ""
        figure = plot_forecasts(
            task.entries,
            forecasts[protocol],
            targets=task.targets,
            unit=task.unit,
            colour=colour_of(evaluation.model),
            title=f"{label} forecasts{spread}",
        )
        written.append(save_figure(figure, folder / f"forecasts_{protocol}.png"))
        tables = {name: s[protocol].calibration for name, s in evaluation.scores.items() if protocol in s}
        figure = plot_calibration(tables, title=f"Calibration: {label}")
        written.append(save_figure(figure, folder / f"calibration_{protocol}.png"))
    figure = plot_scores_by_horizon(evaluation.per_horizon(), title=f"CRPS by horizon, {evaluation.dataset}")
    written.append(save_figure(figure, folder / "scores_by_horizon.png"))
    return written


def draw_insights(
    folder: Path, predictor: StateSpacePredictor, task: ForecastTask, model: str, marks: dict[str, pd.Timestamp]
) -> list[Path]:
    """Pictures of what the model sees in the first series, where it can tell: its components, its regimes."""
    net = predictor.prediction_net
    structure, inference = net.dynamics.structure, net.inference
    if structure is None and not isinstance(inference, AbstractRegimeInference):
        return []
    entry = task.train[0]
    prepared = next(iter(predictor.input_transform(iter([entry]), is_train=True)))
    length = len(prepared["target"])
    written = []

    def past_of(shown: int, burn_in: int) -> tuple[dict[str, Any], pd.Series]:
        past = min(length, shown + burn_in)
        shown = min(past, shown)
        batch = collate([cut(prepared, length, past, predictor.prediction_length)], predictor.device)
        values = net.units.transform(batch["past_target"][0].reshape(past, -1)[:, 0])
        values = torch.where(batch["past_observed"][0].reshape(past, -1)[:, 0], values, torch.nan)
        times = pd.DatetimeIndex(stamps_of(entry["start"], length, entry.get("info"))[-shown:])
        return batch, pd.Series(values[-shown:].cpu().numpy(), index=times, name=shortened(entry["item_id"]))

    scale = "" if net.units.transformation == "none" else f", {net.units.transformation} of the data"
    scale += ", less effects of covariates" if "effect" in prepared else ""
    target = next(iter(task.targets), "")
    label = (
        f"{net.units.transformation} of {target or 'the data'}"
        if net.units.transformation != "none"
        else measured(target, task.unit)
    )
    components: dict[str, Any] = {}
    with torch.no_grad():
        if structure is not None:
            shown = max(200, 20 * task.season)
            # Smoothing of particles takes many paths: no more of the history than helps what is shown.
            batch, observed = past_of(shown, _HISTORY if isinstance(inference, ExactInference) else shown)
            components = {
                name.replace("_", " "): (mean[0, -len(observed) :].cpu().numpy(), sd[0, -len(observed) :].cpu().numpy())
                for name, (mean, sd) in inference.decompose(batch).items()
            }
            title = f"{shortened(entry['item_id'])}: components{scale}, mean ± 2 standard deviations"
            figure = plot_decomposition(observed, components, label=label, colour=colour_of(model), title=title)
            written.append(save_figure(figure, folder / "decomposition.png"))
        if isinstance(inference, AbstractRegimeInference):
            batch, observed = past_of(_REGIMES_SHOWN, 0)
            weights = inference.regimes(batch, num_samples=20).probabilities[:, 0]
            scales = inference.regime_scales()
            figure = plot_regimes(
                observed,
                weights.cpu().numpy(),
                scales=None if scales is None else scales.cpu().numpy(),
                # Where there is a dense part beside the components, regimes differ in more than their noise.
                ordered=bool(components) and "rest" not in components and scales is not None,
                marks=marks,
                label=label,
                title=f"{shortened(entry['item_id'])}: inferred regimes{scale}",
            )
            written.append(save_figure(figure, folder / "regimes.png"))
    return written
