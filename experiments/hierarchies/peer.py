"""Quantiles by hierarchicalforecast on AutoETS, in an environment that has both; run.py calls it."""

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

LEVELS = [20, 40, 60, 80]  # central intervals, whose ends are tenths


def main(data: str, out: str, levels: str, horizon: int, windows: int, season: int, freq: str) -> None:
    """Writes a row for each method, node, window and step."""
    from hierarchicalforecast.core import HierarchicalReconciliation  # pyright: ignore[reportMissingImports]
    from hierarchicalforecast.methods import BottomUp, MinTrace  # pyright: ignore[reportMissingImports]
    from hierarchicalforecast.utils import aggregate  # pyright: ignore[reportMissingImports]
    from statsforecast import StatsForecast
    from statsforecast.models import AutoETS

    frame: Any = pd.read_csv(data).assign(all="all")
    names = levels.split("/")
    frame = frame.rename(columns={frame.columns[-3]: "ds", frame.columns[-2]: "y"})
    frame["ds"] = pd.to_datetime(frame["ds"])
    frame[names] = frame[names].astype(str)
    nodes, sums, tags = aggregate(frame, [["all", *names[:depth]] for depth in range(len(names) + 1)])
    dates = np.sort(nodes["ds"].unique())
    methods = {
        "ets": (None, ""),
        "ets bottom-up": (BottomUp(), "normality"),
        "ets mint_shrink": (MinTrace("mint_shrink"), "normality"),
        "ets ols": (MinTrace("ols"), "normality"),
        "ets wls_var": (MinTrace("wls_var"), "normality"),
        "ets bottom-up bootstrap": (BottomUp(), "bootstrap"),
        "ets mint_shrink bootstrap": (MinTrace("mint_shrink"), "bootstrap"),
    }
    parts, begin = [], time.process_time()
    for window in range(windows):
        last = dates[len(dates) - (windows - window) * horizon - 1]
        model = StatsForecast([AutoETS(season_length=season)], freq=freq, n_jobs=1)
        base = model.forecast(df=nodes[nodes["ds"] <= last], h=horizon, fitted=True, level=LEVELS)
        inside = model.forecast_fitted_values()
        for name, (method, kind) in methods.items():
            made: Any = base
            column = "AutoETS"
            if method is not None:
                reconciler = HierarchicalReconciliation([method])
                made = reconciler.reconcile(Y_hat_df=base, Y_df=inside, S_df=sums, tags=tags, level=LEVELS,
                                            intervals_method=kind)  # fmt: skip
                column = next(c for c in made if c.startswith("AutoETS/") and "-lo-" not in c and "-hi-" not in c)
            made = made.sort_values(["unique_id", "ds"])
            steps = made.groupby("unique_id").cumcount()
            part = pd.DataFrame({"method": name, "unique_id": made["unique_id"], "window": window, "step": steps})
            part["0.5"] = made[column]
            for level in LEVELS:
                part[str(round(0.5 - level / 200, 1))] = made[f"{column}-lo-{level}"]
                part[str(round(0.5 + level / 200, 1))] = made[f"{column}-hi-{level}"]
            parts.append(part)
    pd.concat(parts).assign(cpu_s=time.process_time() - begin).to_csv(out, index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("data", str), ("out", str), ("levels", str), ("horizon", int), ("windows", int),
                       ("season", int), ("freq", str)):  # fmt: skip
        parser.add_argument(name, type=kind)
    main(**vars(parser.parse_args()))
