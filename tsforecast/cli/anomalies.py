"""`tsforecast anomalies RUN | --data FILE`: steps and stretches that are rare, into a table and pictures."""

import logging
import re
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tsforecast.analysis import anomalies
from tsforecast.cli import options
from tsforecast.cli.answers import PAGE, heading, write_tables
from tsforecast.cli.commands import Anomalies
from tsforecast.cli.opened import Opened
from tsforecast.data import ForecastTask, read_task
from tsforecast.data.calendar.stamps import shown
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models.words import in_words
from tsforecast.plots import measured, plot_anomalies, save_figure
from tsforecast.plots.pages import anomalies_page

log = logging.getLogger(__name__)

_NAMED = 10  # events that are said


def run(chosen: Anomalies) -> int:
    """Writes every step of all series with its tail probability, and pictures of the most striking series."""
    task, predictor = _read(chosen)
    torch.manual_seed(chosen.seed)
    frame = anomalies(
        task.entries,
        predictor,
        rate=chosen.rate,
        since=chosen.since,
        given=chosen.given,
        stretch=chosen.stretch,
        freq=task.freq,
        seed=chosen.seed,
    )
    out = Path(chosen.output) if chosen.output else Path(chosen.run or ".") / "anomalies"
    write_tables(out, task.columns, task.entries, anomalies=frame)
    _tell(frame, chosen.rate)
    label = measured("", task.unit)
    _draw(frame, out, chosen.plot_series, chosen.rate, label)
    if chosen.plot_series:
        model = "" if predictor is None else f" by {in_words(predictor.prediction_net)}"
        title = heading(task, f"anomalies{model}, at {chosen.rate:g} false alarms a step")
        anomalies_page(frame, rate=chosen.rate, label=label, title=title).save(out / PAGE)
    log.info("%s: %d series, %d of %d judged steps flagged", out / "anomalies.csv", len(task.entries), *_counts(frame))
    return 0


def _read(chosen: Anomalies) -> tuple[ForecastTask, StateSpacePredictor | None]:
    """Return the data, and the predictor of a run."""
    if chosen.run is None:
        if chosen.data is None:
            raise ValueError(
                "expected a run, or data: `tsforecast anomalies RUN` or `tsforecast anomalies --data FILE`"
            )
        columns = options.columns(vars(chosen))
        task = read_task(chosen.data, chosen.freq, 1, 0, columns=columns)
        return task, None
    if chosen.freq is not None:
        raise ValueError(f"--freq goes with --data FILE alone: the model of {chosen.run} has its own")
    opened = Opened.of(chosen, chosen.run)
    return opened.whole(), opened.predictor()


def _series(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each series and target by name, those with the rarest steps first."""
    names = frame["item_id"].astype(str)
    names = names + " " + frame["target"] if "target" in frame else names
    groups = [(str(name), rows) for name, rows in frame.groupby(names, sort=False)]
    return sorted(groups, key=lambda pair: -float(np.nan_to_num(pair[1]["score"].to_numpy()).max()))


def _tell(frame: pd.DataFrame, rate: float) -> None:
    """Says when the rarest events were."""
    events = []
    for name, rows in _series(frame.loc[frame["flagged"]]):
        for _, event in rows.groupby("event"):
            stamps, score = event["timestamp"].to_numpy(), event["score"].to_numpy()
            first, last = shown(stamps[0]), shown(stamps[-1])
            until = "" if first == last else f" to {last}"
            kind, tail = event["kind"].iloc[0], 10.0 ** -score.max()
            events.append(
                (tail, f"{name}: {kind} {'from' if until else 'at'} {first}{until}, tail probability {tail:.1g}")
            )
    for _, said in sorted(events)[:_NAMED]:
        log.info("%s", said)
    if len(events) > _NAMED:
        log.info("and %d events more", len(events) - _NAMED)
    if not events:
        log.info("no step is as rare as %g", rate)


def _counts(frame: pd.DataFrame) -> tuple[int, int]:
    return int(frame["flagged"].sum()), int((frame["tail"].notna()).sum())


def _draw(frame: pd.DataFrame, out: Path, count: int, rate: float, label: str) -> None:
    """Draws the series with the rarest steps."""
    for number, (name, rows) in enumerate(_series(frame)[:count]):
        figure = plot_anomalies(rows, rate=rate, label=label, title=f"{name}: anomalies")
        save_figure(figure, out / f"{number + 1}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:80]}.png")
