"""`tsforecast compare RUN RUN ...`: one page of scores, pictures and the significance of differences."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tsforecast.cli import parsing, run_records, runs
from tsforecast.cli.answers import write_table
from tsforecast.cli.commands import Compare
from tsforecast.cli.scored import TABLES, read_scores, read_table
from tsforecast.evaluation.compare import Difference
from tsforecast.evaluation.metrics import flat
from tsforecast.evaluation.report import CRPS_NOTE, PROTOCOLS
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.models.words import in_words
from tsforecast.plots import plot_differences
from tsforecast.plots.pages.comparison import Contender, differences, page
from tsforecast.plots.pages.scores import score_sections
from tsforecast.wording import counted

_FILES = ("scores.json", *TABLES)


@dataclass(frozen=True)
class ScoredRun:
    """A run folder that `evaluate` has completed."""

    folder: Path
    record: dict[str, Any]
    scores: dict[str, Any]
    tables: dict[str, pd.DataFrame]

    @classmethod
    def read(cls, folder: Path) -> "ScoredRun":
        """Reads a folder; a FileNotFoundError if there is none, a ValueError if it is no run that has been scored."""
        record = run_records.read_record(folder, "train")
        if run_records.is_irregular(record):
            raise ValueError(f"compare expects runs of series on a grid, and {folder} is one of `train --irregular`")
        runs.settle_report(folder)
        again = f"`{parsing.typed('evaluate')} {folder}`"
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise ValueError(f"expected scores in {folder}, but it has no {', '.join(missing)}: {again}")
        try:
            scores = read_scores(folder / "scores.json")
            models = [scores["model"], *scores["baselines"]]
            tables = {name: read_table(folder / name, models) for name in TABLES}
        except ValueError as error:
            raise ValueError(f"{error}: the file is damaged; write it again by {again}") from error
        return cls(folder, record, scores, tables)

    def contender(self, name: str, label: str, is_baseline: bool) -> Contender:
        """The model, or one of the baselines beside it."""
        found = self.scores["baselines"][name] if is_baseline else self.scores
        table = self.tables["per_forecast.csv"]
        mine = table.loc[table["model"] == name]
        overall, rows = {}, {}
        for protocol in PROTOCOLS:
            if protocol not in found:
                continue
            values = flat(found[protocol])
            overall[protocol] = {metric: math.nan if value is None else value for metric, value in values.items()}
            part = mine.loc[mine["protocol"] == protocol].set_index(["item_id", "start"])
            rows[protocol] = part[["crps", "size"]]
        return Contender(label, overall, rows, is_baseline)

    def rows(self, table: str, name: str, label: str) -> pd.DataFrame:
        """What a table has of the model, under its label."""
        found = self.tables[table]
        return found.loc[found["model"] == name].assign(model=label)


def run(chosen: Compare) -> int:
    """Writes the page, and beside it a CSV file of scores and differences."""
    scored = [ScoredRun.read(Path(folder)) for folder in chosen.runs]
    _check_same_data(scored)
    models = [run.scores["model"] for run in scored]
    labels = models if len({*models}) == len(models) else [run.folder.resolve().name for run in scored]
    if len({*labels}) != len(labels):
        labels = [str(run.folder) for run in scored]
    named: dict[str, tuple[ScoredRun, str, bool]] = {
        label: (run, model, False) for run, model, label in zip(scored, models, labels, strict=True)
    }
    for run_ in scored:
        for name in run_.scores["baselines"]:
            named.setdefault(name, (run_, name, True))
    contenders = [run_.contender(name, label, baseline) for label, (run_, name, baseline) in named.items()]
    _check_same_rows(named, contenders)
    output = Path(chosen.output)
    commands = [(label, run_.record["command"]) for run_, label in zip(scored, labels, strict=True)]
    first = scored[0].record
    windows = first["split"]["windows"]
    facts = [
        f"{first['series']} series at frequency {first['split']['freq']}; {counted(windows, 'window')} of "
        f"{counted(first['split']['prediction_length'], 'step')}, and one forecast over all of them.",
        CRPS_NOTE,
    ]
    if len({run_.record["fingerprint"] for run_ in scored}) > 1:
        facts.append("The targets are the same; covariates or static features of the runs differ.")
    title = f"{first['dataset']}: {'; '.join(map(_in_words, scored, labels))}"
    found = {protocol: differences(contenders, protocol) for protocol in PROTOCOLS}
    models = {label: name for label, (_, name, _) in named.items()}
    charts = score_sections(_rows(named, "per_horizon.csv"), _rows(named, "calibration.csv"), models)
    figures = [*_figures(scored, labels, models, found)]
    page(title, facts, contenders, found, figures, commands, charts).save(output)
    table = output.with_suffix(".csv")
    write_table(_table(contenders, found), table)
    sys.stdout.write(f"Written:\n  {output}\n  {table}\n")
    return 0


def _in_words(run: ScoredRun, label: str) -> str:
    words = in_words(load_predictor(run.folder / runs.PREDICTOR, "cpu").prediction_net)
    return words if label == run.scores["model"] else f"{label}, {words}"


def _check_same_data(scored: Sequence[ScoredRun]) -> None:
    first = scored[0]
    for other in scored[1:]:
        # Older runs have one fingerprint, of targets and covariates together.
        both = "targets_fingerprint" in first.record and "targets_fingerprint" in other.record
        for name in ("dataset", "split", "targets_fingerprint" if both else "fingerprint"):
            if other.record[name] != first.record[name]:
                what = {"targets_fingerprint": "target values", "fingerprint": "data"}.get(name, name)
                raise ValueError(
                    f"expected runs on the same data and windows, but their {what} differ: "
                    f"{_shown(first.record[name])} in {first.folder}, {_shown(other.record[name])} in {other.folder}"
                )


def _check_same_rows(named: Mapping[str, tuple[ScoredRun, str, bool]], contenders: Sequence[Contender]) -> None:
    first = contenders[0]
    for other in contenders:
        for protocol, rows in other.per_forecast.items():
            if not rows.index.equals(first.per_forecast[protocol].index):
                files = [named[label][0].folder / "per_forecast.csv" for label in (first.label, other.label)]
                raise ValueError(
                    f"expected the same series and windows of {first.label!r} in {files[0]} and {other.label!r} in "
                    f"{files[1]}, {protocol}: one is damaged, or evaluated by another version; evaluate it again"
                )


def _shown(value: Any) -> str:
    """A split, name or fingerprint in a message."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return repr(value)


def _rows(named: Mapping[str, tuple[ScoredRun, str, bool]], table: str) -> pd.DataFrame:
    """Return the rows of a table of all runs and baselines, by label."""
    return pd.concat([run.rows(table, name, label) for label, (run, name, _) in named.items()])


def _figures(
    scored: Sequence[ScoredRun],
    labels: Sequence[str],
    models: Mapping[str, str],
    found: Mapping[str, Mapping[str, Difference]],
) -> Iterator[tuple[str, str, Figure | bytes]]:
    """Section, caption and picture."""
    headings = {protocol: f"{protocol.replace('_', '-').capitalize()} forecasts" for protocol in PROTOCOLS}
    for protocol in PROTOCOLS:
        if found[protocol]:
            section = "CRPS minus that of the best run, 95 % intervals"
            yield section, headings[protocol], plot_differences(found[protocol], models=models)
    for protocol in PROTOCOLS:
        for run, label in zip(scored, labels, strict=True):
            picture = run.folder / "plots" / f"forecasts_{protocol}.png"
            if picture.is_file():
                yield f"{headings[protocol]}, drawn", label, picture.read_bytes()


def _table(contenders: Sequence[Contender], found: Mapping[str, Mapping[str, Difference]]) -> pd.DataFrame:
    """Scores and differences in long form."""
    rows = []
    for protocol in PROTOCOLS:
        for contender in contenders:
            if protocol in contender.overall:
                difference = found[protocol].get(contender.label)
                row = {"protocol": protocol, "label": contender.label, "is_baseline": contender.is_baseline}
                row |= contender.overall[protocol]
                if difference is not None:
                    row["minus_best"] = difference.estimate
                    if difference.has_interval:
                        row |= {"low": difference.low, "high": difference.high}
                rows.append(row)
    return pd.DataFrame(rows).sort_values(["protocol", "crps"], ascending=[False, True])
