"""Sums over periods, by paths of steps, by models of the sums, and by both: results/periods.csv.

    python experiments/hierarchies/periods.py                                            # tourism: years
    python experiments/hierarchies/periods.py --data wiki --horizon 28 --aggregate week
    python experiments/hierarchies/periods.py --data FILE --horizon 18 --aggregate quarter year

FILE is a table; a name is of the catalogue. Models are those of `tsforecast forecast`, fitted before the first of three
windows. `paths` are sums of the steps' sample paths, `models` forecasts of the sums alone, which do not add up, and
`together` is what `--aggregate` gives. CRPS and coverage are those of run.py. Of many series, two hundred count.
"""

import argparse
import pathlib
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from gluonts.model.forecast import SampleForecast
from scipy import sparse

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.hierarchies.run import ROOT, ended
from experiments.tables import append_rows
from tsforecast.cli.provenance import check_rows, provenance
from tsforecast.data import Columns, ForecastTask, load_task, read_task
from tsforecast.data.calendar.frequency import ordinals, period_alias, to_period
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.catalog import CATALOG
from tsforecast.data.periods import UNITS, Periods, find_periods, step_name
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.tables.naming import PERIOD
from tsforecast.forecasting.coherent import Marginals, even_scores
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.reconciliation import Correlation, SumConditioning
from tsforecast.forecasting.sum_models import joint_forecasts, with_sums

COLUMNS = ["dataset", "method", "period", "series", "sums", "crps", "coverage_80", "cpu_s", "commit", "command"]
WINDOWS, SERIES, PATHS = 3, 200, 1000


def sums_before(past: ForecastTask, level: Periods, unit: str) -> ForecastTask:
    """Return the task of sums over the whole periods of a history; its horizon ends with the last whole one ahead."""
    entries, horizon = [], past.prediction_length
    for entry in past.entries:
        stamps = stamps_of(entry["start"] - 1, len(entry["target"]) + 2, entry.get("info"))
        edges = np.flatnonzero(np.diff(ordinals(stamps, unit)))
        sums = np.add.reduceat(entry["target"][: edges[-1]].astype(float), edges[:-1])
        begin: Any = stamps[1 + edges[0]]
        start = to_period(pd.Timestamp(begin), unit)
        entries.append({"item_id": entry["item_id"], "start": start, "target": sums})
    last = entries[-1]["start"] + len(entries[-1]["target"])
    ahead = level.start.ordinal - last.ordinal + len(level.weights)
    assert ahead <= horizon
    return replace(past, freq=period_alias(unit), prediction_length=ahead, entries=entries)


def conditioned(values: np.ndarray, own: Marginals, sums: np.ndarray, of_sums: Marginals) -> np.ndarray:
    """Return paths (sample, step) given forecasts of sums at equal ranks, weighed by variances as if independent.

    Args:
        values: Paths of the steps, (step, sample).
        own: Forecasts of the steps, as nodes of one step.
        sums: Weights of the steps in the sums.
        of_sums: Forecasts of these, likewise.
    """
    others = of_sums.values(0, even_scores(sums @ values))
    deviations = np.concatenate([of_sums.deviations[:, 0], own.deviations[:, 0]])
    independent = Correlation(np.ones(len(deviations)), np.zeros((len(deviations), 1)))
    conditioning = SumConditioning(sparse.csr_array(sums), deviations, independent)
    found = conditioning.series(np.concatenate([others, values]))
    return (found if (values < 0).any() else np.maximum(found, 0.0)).T


def nodes(marginals: Marginals, row: int, last: int) -> Marginals:
    """Return the last steps of a series as nodes of one step."""
    return Marginals(marginals.mean[row, -last:, None], marginals.quantiles[row, -last:, None])


def forecasts_of(
    predictor: StateSpacePredictor, models: dict[Any, StateSpacePredictor], past: ForecastTask, levels: list[Periods]
) -> dict[tuple[str, str], np.ndarray]:
    """Return quantiles (level, series, period) by method and period, of one window."""
    step, found = step_name(past.freq), {}
    paths = list(joint_forecasts(predictor, past, PATHS))
    own, of_sums = Marginals.of(list(predictor.predict(past.latest, 0))), []
    for level in levels:
        sums = sums_before(past, level, period_alias(UNITS.get(level.name, level.name)))
        key = sums.freq, sums.prediction_length
        models[key] = models[key] if key in models else fitted(sums)
        made = list(models[key].predict(sums.latest, 0))
        of_sums.append(Marginals.of(made))
        parts = [forecast_quantiles(one, TENTHS)[:, -len(level.weights) :] for one in made]
        found["models", level.name] = np.stack(parts, 1)
    weights = np.concatenate([level.weights for level in levels])
    together = []
    for row, one in enumerate(paths):
        parts = [nodes(marginals, row, len(level.weights)) for marginals, level in zip(of_sums, levels, strict=True)]
        joined = Marginals(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("mean", "quantiles")))
        samples = conditioned(one.samples.T, nodes(own, row, past.prediction_length), weights, joined)
        together.append(SampleForecast(samples, one.start_date, one.item_id, one.info))
    for method, given in (("paths", paths), ("together", together)):
        made = list(with_sums(given, levels, past.freq))
        for name in (step, *(level.name for level in levels)):
            parts = [forecast_quantiles(one, TENTHS) for one in made if (one.info or {})[PERIOD] == name]
            found[method, name] = np.stack(parts, 1)
    return found


def main() -> None:
    """Appends rows of one data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT / "datasets" / "tourism.csv"))
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--aggregate", nargs="+", default=["year"])
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments/hierarchies/results/periods.csv")
    chosen = parser.parse_args()
    facts = provenance(chosen.output)
    if chosen.data in CATALOG:
        task = replace(load_task(chosen.data), prediction_length=chosen.horizon, windows=0)
    else:
        frame = pd.read_csv(chosen.data)
        names = [str(name) for name in frame.columns]
        columns = Columns(item=names[:-2], timestamp=names[-2], target=names[-1])
        task = read_task(frame, None, chosen.horizon, columns=columns, beyond=True)
    whole = [entry for entry in task.ending_together().entries if not np.isnan(entry["target"]).any()]
    most = max(len(entry["target"]) for entry in whole)
    whole = [entry for entry in whole if len(entry["target"]) == most]
    task = replace(task, entries=whole[:: -(-len(whole) // SERIES)])
    begin, horizon = time.process_time(), task.prediction_length
    predictor, models = fitted(ended(task, WINDOWS * horizon)), {}
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for window in range(WINDOWS, 0, -1):
        past = ended(task, window * horizon)
        levels = find_periods(chosen.aggregate, past)
        lengths = [len(entry["target"]) for entry in past.entries]
        actual = np.stack(
            [entry["target"][n : n + horizon] for entry, n in zip(task.entries, lengths, strict=True)]
        ).astype(float)
        weights = {step_name(task.freq): np.eye(horizon)} | {level.name: level.weights for level in levels}
        for key, quantiles in forecasts_of(predictor, models, past, levels).items():
            found.setdefault(key, []).append((quantiles, actual @ weights[key[1]].T))
    seconds, rows = time.process_time() - begin, []
    share = np.asarray(TENTHS)[:, None, None]
    for (method, name), parts in found.items():
        quantiles, actual = (np.concatenate(part, -1) for part in zip(*parts, strict=True))
        difference = actual - quantiles
        loss = 2 * np.where(difference >= 0, share * difference, (share - 1) * difference).mean(0)
        inside = (actual >= quantiles[0]) & (actual <= quantiles[-1])
        cells = {"dataset": pathlib.Path(chosen.data).name.split(".")[0], "method": method, "period": name}
        cells |= {"series": len(actual), "sums": actual.size, "crps": f"{loss.sum() / np.abs(actual).sum():.5f}"}
        rows.append(cells | {"coverage_80": f"{100 * inside.mean():.1f}", "cpu_s": f"{seconds:.1f}"} | facts)
    check_rows(chosen.output, rows)
    append_rows(chosen.output, COLUMNS, rows)
    print(pd.DataFrame(rows).pivot(index="method", columns="period", values="crps").to_string())


if __name__ == "__main__":
    main()
