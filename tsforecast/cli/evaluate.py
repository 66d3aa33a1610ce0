"""`tsforecast evaluate RUN`: scores beside baselines, tables and pictures."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gluonts.model import Forecast, Predictor

from tsforecast.cli import bulk_options, drawn, irregular, options, runs
from tsforecast.cli.answers import PAGE, write_table
from tsforecast.cli.commands import Evaluate
from tsforecast.cli.forecast_tables import SUFFIXES
from tsforecast.cli.opened import Opened
from tsforecast.cli.train import estimator_of
from tsforecast.data import ForecastTask
from tsforecast.data.quantiles import TENTHS
from tsforecast.data.task import instances
from tsforecast.evaluation import Evaluation, crps_by_window, evaluate, format_scores, paired_difference, save_scores
from tsforecast.evaluation.baselines import installed
from tsforecast.evaluation.buckets import TABLE, Scoring
from tsforecast.evaluation.cross_validation import Kept, validation_frame
from tsforecast.evaluation.report import PROTOCOLS, check_baselines
from tsforecast.forecasting.adaptation import AdaptivePredictor
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, with_prediction_length
from tsforecast.forecasting.refit import refitted
from tsforecast.forecasting.rolling import AdaptationResult, rolling
from tsforecast.io.files import make_folder, replace_together
from tsforecast.io.frame_files import write_frames
from tsforecast.plots import plot_adaptation, save_figure
from tsforecast.wording import counted, listed, shortened, suggestion

log = logging.getLogger(__name__)


def run(chosen: Evaluate) -> int:
    """Scores a run and completes its folder with tables and pictures."""
    opened = Opened.of(chosen, chosen.run, with_clocks=True)
    folder, record = opened.folder, opened.record
    if chosen.frame:  # before anything is computed
        if not str(chosen.frame).lower().endswith(SUFFIXES):
            raise ValueError(f"expected --frame to end with {', '.join(SUFFIXES)}, got {chosen.frame!r}")
        if chosen.output or opened.is_irregular:
            raise ValueError(
                "--frame goes with series on a grid, scored in one piece: without --output and --irregular"
            )
    if record["split"]["windows"] == 0:
        raise ValueError(f"the data of {folder} have no test windows; train with --windows of at least 1 to score it")
    if chosen.output and not opened.is_irregular:
        return _score_buckets(chosen, opened)
    for name in ("engine", "address"):
        if getattr(chosen, name) not in ("local", None):
            raise ValueError(f"--{name} goes with --output DIR, for data in buckets")
    with runs.hold(folder):
        return _run(chosen, opened)


def _score_buckets(chosen: Evaluate, opened: Opened) -> int:
    """Scores a run whose data are buckets into a folder, bucket after bucket."""
    for name in ("adapt", "inspect", "marks", "refit"):
        if getattr(chosen, name) not in (None, False):
            raise ValueError(f"--{name} goes without --output: buckets are scored one by one")
    split = opened.record["split"]
    request = Scoring(
        **bulk_options.buckets_of(opened, options.columns(opened.trained)),
        num_samples=chosen.num_samples,
        seed=chosen.seed,
        dataset=Path(opened.trained.data).name,
        model=opened.record["model"],
        prediction_length=split["prediction_length"],
        windows=split["windows"],
        baselines=_baselines(chosen),
    )
    bulk_options.process(opened, request)
    sys.stdout.write((Path(chosen.output) / TABLE).read_text(encoding="utf-8"))
    return 0


def _baselines(chosen: Evaluate) -> list[str]:
    if chosen.baselines == "none":
        return []
    names = [name.strip() for name in chosen.baselines.split(",")]
    return installed(names) if chosen.baselines == Evaluate.baselines else names  # asked for by name, one must be there


def _run(chosen: Evaluate, opened: Opened) -> int:
    """Scores a run whose folder is held."""
    folder, record, task = opened.folder, opened.record, options.task_of(opened.trained, opened.record)
    if runs.fingerprint(task) != record["fingerprint"]:
        log.warning("the data have changed since %s was trained", folder)
    if task.gap:
        return irregular.evaluate(chosen, folder, record, task)
    baselines = _baselines(chosen)
    check_baselines(baselines, task)
    inspected, marks = _inspected(task, chosen.inspect), _marks(chosen.marks or [])
    predictor = load_predictor(folder / runs.PREDICTOR, device=chosen.device)
    horizons = {"rolling": task.prediction_length, "long_term": task.test_length}

    def predictor_for(protocol: str) -> Predictor:
        torch.manual_seed(chosen.seed)
        return with_prediction_length(predictor, horizons[protocol])

    kept: list[Kept] = []

    def scored(protocol: str) -> Predictor:
        found = predictor_for(protocol)
        if not chosen.frame or protocol != "rolling":
            return found
        kept.append(Kept(found, TENTHS))
        return kept[-1]

    adapted, result = _beside(chosen, opened, task, predictor)
    evaluation = evaluate(
        scored,
        task,
        model=record["model"],
        baselines=baselines,
        num_samples=chosen.num_samples,
        workers=chosen.workers,
        adapted=adapted,
        seed=chosen.seed,
    )
    with replace_together(folder, runs.REPORT) as report:
        written = save_scores(evaluation, report)
        sys.stdout.write(format_scores(evaluation) + "\n\n")
        if adapted is not None:
            _report_difference(evaluation)
        if result is not None:
            written += _report_adaptation(report, evaluation, result, marks if chosen.plot_series > 0 else None)
        if chosen.plot_series > 0:
            shown = drawn.spread(task, evaluation, max(chosen.plot_series, drawn.ON_PAGE))
            part = replace(task, entries=drawn.evenly(shown, chosen.plot_series))
            items, forecasts = {str(entry["item_id"]) for entry in part.entries}, {}
            for protocol in PROTOCOLS if task.windows > 1 else PROTOCOLS[:1]:
                of_all = protocol == "rolling"  # the page has more series than pictures have
                pasts, _ = instances((replace(task, entries=shown) if of_all else part).test(protocol))
                forecasts[protocol] = list(predictor_for(protocol).predict(pasts, num_samples=chosen.num_samples))
            page = drawn.page(task, evaluation, shown, forecasts["rolling"], opened.record, predictor.prediction_net)
            forecasts["rolling"] = [one for one in forecasts["rolling"] if str(one.item_id) in items]
            written += drawn.draw(report / "plots", part, forecasts, evaluation)
            written.append(page.save(report / PAGE))
            inspection = replace(part, entries=inspected or part.entries)
            written += drawn.draw_insights(report / "plots", predictor, inspection, evaluation.model, marks)
    places = [folder / path.relative_to(report) for path in written]
    if chosen.frame:
        rows = validation_frame(kept[0].forecasts if adapted is None else adapted[1], task, TENTHS)
        make_folder(Path(chosen.frame).parent)
        write_frames([rows], Path(chosen.frame))
        log.info("%s: %s of %s", chosen.frame, counted(len(rows), "row"), adapted[0] if adapted else record["model"])
    sys.stdout.write("\n".join(["Written:", *(f"  {path}" for path in places)]) + "\n")
    return 0


def _beside(
    chosen: Evaluate, opened: Opened, task: ForecastTask, predictor: StateSpacePredictor
) -> tuple[tuple[str, list[Forecast]] | None, AdaptationResult | None]:
    """Return name and forecasts of the model that is trained again, or learns on; and what it learnt."""
    if chosen.refit:
        again = estimator_of(opened.record, opened.trained, {"enable_progress_bar": False, "logger": False})
        found = refitted(lambda part: again.train(part.train), task, chosen.num_samples, chosen.seed)
        return (f"{opened.record['model']}+refit", found), None
    if chosen.adapt is None:
        return None, None
    adaptive = AdaptivePredictor(predictor, options.adaptation(chosen))
    result = rolling(adaptive, task, chosen.num_samples, chosen.seed)
    return (f"{opened.record['model']}+{chosen.adapt}", result.forecasts), result


def _marks(given: Sequence[str]) -> dict[str, pd.Timestamp]:
    """Dates by name; a date without a name is named by itself."""
    marks = {}
    for text in given:
        date, _, name = text.partition("=")
        try:
            at = pd.Timestamp(date)
        except ValueError:
            at = pd.NaT
        if not isinstance(at, pd.Timestamp):
            raise ValueError(f"expected --marks to be dates with names, such as 2016-01-23=blizzard, got {text!r}")
        marks[name or date] = at.tz_convert(None) if at.tz else at
    return marks


def _inspected(task: ForecastTask, item: str | None) -> list[dict[str, Any]]:
    """The entry whose components are to be drawn, [] where none is named."""
    found = [entry for entry in task.entries if str(entry["item_id"]) == item]
    if item is not None and not found:
        items = [str(entry["item_id"]) for entry in task.entries]
        near = suggestion(item, items) or "there are"
        raise ValueError(f"--inspect: there is no series {shortened(item)!r}; {near} {listed(items[:5])}, ..")
    return found


def _report_difference(evaluation: Evaluation) -> None:
    """Says how the model that went on learning, or was trained again, did beside the one that was not."""
    assert evaluation.adapted is not None
    names = (evaluation.model, evaluation.adapted)
    frozen, learnt = (evaluation.scores[name]["rolling"].per_forecast for name in names)
    difference = paired_difference(learnt, frozen)
    sure = f"95 % interval {difference.interval} (clustered by series and by blocks of 7 windows)"
    sys.stdout.write(
        f"CRPS of {evaluation.adapted} minus that of {evaluation.model}: {difference.estimate:+.3g}, "
        f"{sure if difference.has_interval else difference.interval}\n\n"
    )


def _report_adaptation(
    folder: Path, evaluation: Evaluation, result: AdaptationResult, marks: dict[str, pd.Timestamp] | None
) -> list[Path]:
    """Writes how the model that went on learning did, window by window, beside the one that did not."""
    assert evaluation.adapted is not None
    names = (evaluation.model, evaluation.adapted)
    frozen, learnt = (evaluation.scores[name]["rolling"].per_forecast for name in names)
    table = result.windows.set_index("start")
    for name, scores in zip(names, (frozen, learnt), strict=True):
        table[name] = crps_by_window(scores)
    written = [write_table(table, folder / runs.ADAPTATION, index=True)]
    if len(result.remembered):
        written.append(write_table(result.remembered, folder / runs.REMEMBERED))
    if marks is None:
        return written
    title = f"{evaluation.adapted} on {evaluation.dataset}: rolling forecasts, each learnt from afterwards"
    figure = plot_adaptation(table, names, marks=marks, title=title)
    return [*written, save_figure(figure, folder / "plots" / "adaptation.png")]
