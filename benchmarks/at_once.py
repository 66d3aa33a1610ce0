"""CPU seconds from a file to forecasts, start-up included, beside statsforecast: benchmarks/results/at_once.csv.

    python benchmarks/at_once.py --cases month daily --models forecast AutoETS

Each is one fresh process with one thread, and bytecode as pip leaves it: `tsforecast forecast FILE`, with table and
picture; or pandas and a method of statsforecast with a season, its defaults and 80 % intervals, with a table. The ratio
is of our seconds to the method's, of the same run.
"""

import argparse
import compileall
import os
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import pandas as pd
from rows import aligned, write

import tsforecast
from tsforecast.cli.provenance import provenance

TABLE = pathlib.Path(__file__).resolve().parent / "results" / "at_once.csv"
OURS, METHODS = "forecast", ("AutoETS", "AutoTheta", "AutoARIMA")
# Series, steps, frequency of pandas, season and horizon.
CASES = {
    "month": (1, 36, "MS", 12, 12),
    "daily": (1000, 100, "D", 7, 30),
    "hours": (14, 17_420, "h", 24, 24),
    "fleet": (100_000, 100, "D", 7, 30),
}
COMMAND = "import sys; from tsforecast.cli import main; sys.exit(main())"


def table(case: str) -> pd.DataFrame:
    """Return series that walk at random around a season, in the columns of statsforecast."""
    count, steps, freq, season, _ = CASES[case]
    random, time = np.random.default_rng(0), np.arange(steps)
    wave = np.sin(2 * np.pi * (time / season + random.random((count, 1))))
    values = 50 + random.normal(0, 1, (count, steps)).cumsum(1) + 8 * random.random((count, 1)) * wave
    values += random.normal(0, 2, (count, steps))
    dates = pd.date_range("2022-01-01", periods=steps, freq=freq)
    names = np.char.add("s", np.arange(count).astype(str)).repeat(steps)
    return pd.DataFrame({"unique_id": names, "ds": np.tile(dates, count), "y": values.ravel().round(3)})


def by_method(name: str, case: str, file: str) -> None:
    """Forecasts a file by a method of statsforecast; "table" writes it."""
    _, _, freq, season, horizon = CASES[case]
    if name == "table":
        return table(case).to_csv(file, index=False)
    from statsforecast import StatsForecast, models

    frame = pd.read_csv(file, parse_dates=["ds"])
    fitted = StatsForecast(models=[getattr(models, name)(season_length=season)], freq=freq, n_jobs=1)
    found = fitted.forecast(df=frame, h=horizon, level=[80])
    assert isinstance(found, pd.DataFrame)
    found.to_csv(f"{file}-{name}.csv")


def measured(words: list[str], folder: str) -> dict[str, float]:
    """Return the CPU seconds of a process and its largest memory.

    Raises:
        RuntimeError: If it fails.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NIXTLA_ID_AS_COL": "1"}
    log = (os.POSIX_SPAWN_OPEN, 1, f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    words = [sys.executable, *words]
    process = os.posix_spawn(words[0], words, environment, file_actions=[log, (os.POSIX_SPAWN_DUP2, 1, 2)])
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{words} failed: {pathlib.Path(folder, 'log').read_text()[-1000:]}")
    return {"cpu_s": round(used.ru_utime + used.ru_stime, 2), "peak_mib": round(used.ru_maxrss / 1024)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["month", "daily"], choices=list(CASES))
    parser.add_argument("--models", nargs="+", default=[OURS, *METHODS], choices=[OURS, *METHODS])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS, metavar=("METHOD", "CASE", "FILE"))
    options = parser.parse_args()
    if options.one:
        by_method(*options.one)
        return
    provenance(TABLE)
    compileall.compile_dir(next(iter(tsforecast.__path__)), quiet=1)
    for case in options.cases:
        rows: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/series.csv"
            # By a process of its own: a new one counts the memory of the one that starts it as its own.
            measured([__file__, "--one", "table", case, file], folder)
            for model in options.models:
                words = [__file__, "--one", model, case, file]
                if model == OURS:
                    wanted = ["--horizon", str(CASES[case][-1]), "--output", f"{folder}/out.csv"]
                    words = ["-c", COMMAND, "forecast", file, *wanted]
                rows.append({"case": case, "model": model, **measured(words, folder)})
        ours = next((row["cpu_s"] for row in rows if row["model"] == OURS), None)
        for row in rows:
            row |= {} if ours is None else {"ratio": round(ours / row["cpu_s"], 2)}
            row["load"] = round(os.getloadavg()[0], 1)
        write(TABLE, rows, ("case", "model"), ("cpu_s", "peak_mib", "ratio", "load"))
        shown = [[str(row[name]) for name in ("case", "model", "cpu_s", "peak_mib")] for row in rows]
        print(aligned([["case", "model", "cpu_s", "peak_mib"], *shown], {2, 3}))


if __name__ == "__main__":
    main()
