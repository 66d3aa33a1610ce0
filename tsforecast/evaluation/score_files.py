"""Scores as a table for people, and as files."""

from pathlib import Path

from tsforecast.evaluation import metrics
from tsforecast.evaluation.report import BASELINES_NOTE, CRPS_NOTE, Evaluation
from tsforecast.io.files import replace_file, write_json


def format_scores(evaluation: Evaluation) -> str:
    """A table to read: one block per protocol, one line per model, with notes on the measurement."""
    header = ["", *(metric.title for metric in metrics.printed())]
    lines: list[str] = []
    shown = evaluation.scores[evaluation.model]["rolling"]
    for protocol, first in evaluation.scores[evaluation.model].items():
        if protocol == "long_term" and len(first.per_horizon) == len(shown.per_horizon):
            lines += ["With one window, the long-term forecast is the rolling one.", ""]
            continue
        count, length = first.overall["num_forecasts"], evaluation.horizon or f"{len(first.per_horizon)} steps"
        series = f"{first.totals.num_series} series, {count} forecasts of {length}"
        rows = [header]
        for name, scores in evaluation.scores.items():
            if protocol not in scores:
                continue
            values = metrics.flat(scores[protocol].overall)
            rows.append([name, *(metric.text(values[metric.name]) for metric in metrics.printed())])
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        lines += [f"{evaluation.dataset}, {protocol.replace('_', '-')}: {series}", *text, ""]
    lines.append(CRPS_NOTE)
    lines.append(f"Forecasts: {_kinds_of_forecasts(evaluation)}.")
    if evaluation.deviations:
        lines.append(BASELINES_NOTE)
    for name, deviations in evaluation.deviations.items():
        lines += [f"{name}: {count} {deviation}." for deviation, count in deviations.items()]
    return "\n".join(lines)


def _kinds_of_forecasts(evaluation: Evaluation) -> str:
    """The kinds of forecasts, sample paths or quantiles, with the models of each."""
    kinds: dict[str, list[str]] = {}
    for name, scores in evaluation.scores.items():
        overall = scores["rolling"].overall
        parts = ["exact quantiles"] if overall["num_exact"] else []
        parts += [f"{overall['num_samples']} sample paths"] if overall["num_samples"] else []
        kinds.setdefault(" and ".join(parts), []).append(name)
    return "; ".join(f"{kind} of {', '.join(names)}" for kind, names in kinds.items())


def save_scores(evaluation: Evaluation, folder: str | Path, *, of_series: bool = True) -> list[Path]:
    """Writes scores.json, and scores, per_series, per_horizon, per_forecast and calibration as CSV, each whole or not.

    Args:
        evaluation: What to write.
        folder: Where; it is made.
        of_series: Whether to write those of single series and forecasts, too.

    Returns:
        The paths written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "scores.json"]
    write_json(paths[0], evaluation.to_dict(), allow_nan=False)
    tables = {"scores": evaluation.table(), "calibration": evaluation.calibration()}
    if evaluation.horizon is None:
        tables["per_horizon"] = evaluation.per_horizon()
    if of_series:
        tables |= {"per_series": evaluation.per_series(), "per_forecast": evaluation.per_forecast()}
    for name, table in tables.items():
        paths.append(folder / f"{name}.csv")
        with replace_file(paths[-1]) as temporary:
            table.to_csv(temporary, index=False)
    return paths
