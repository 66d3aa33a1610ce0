# %% [markdown]
# # How good is it? Cross-validation as a frame
#
# A single test says little: the week may have been an easy one. `cross_validate` forecasts many windows, each from what
# came before it, and returns rows. Every question about them is then one line of pandas.
#
# The data are the daily electricity demand of twelve regions of the USA. On 16 March 2020 schools and offices began to
# close, in the midst of the windows.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsforecast import cross_validate, load_task
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # a few regions and windows, to try the script
FOLDER = Path("outputs/examples")
LEVELS = [0.1, 0.25, 0.5, 0.75, 0.9]

parts = []
for entry in load_task("eia-2020").entries[: 3 if QUICK else None]:
    demand = entry["target"].reshape(-1, 24).sum(1) / 1000
    days = pd.date_range(entry["start"].to_timestamp(), periods=len(demand))
    parts.append(pd.DataFrame({"region": entry["item_id"], "day": days, "demand": demand}))
frame = pd.concat(parts, ignore_index=True)

# %% [markdown]
# Twelve windows of a week each. The model is trained before the first of them; `refit=True` would train it again
# before each. The last week, repeated, is what any model has to beat.

# %%
common = {"horizon": 7, "windows": 2 if QUICK else 12, "quantiles": LEVELS}
common["columns"] = {"item": "region", "target": "demand"}
found = {
    "last week again": cross_validate(frame, model="seasonal_naive", **common),
    "bank": cross_validate(frame, **common),
}
print(found["bank"].head().round(1).to_string(index=False))

# %% [markdown]
# The quantile loss asks whether intervals are narrow and hold. Coverage asks whether they hold: in how many of a
# hundred cases is the value within the interval of 80 %?

# %%
scores = {}
for name, rows in found.items():
    error = rows["demand"].to_numpy()[:, None] - rows[[str(level) for level in LEVELS]].to_numpy()
    loss = 2 * np.maximum(np.array(LEVELS) * error, (np.array(LEVELS) - 1) * error).mean(1)
    held = rows["demand"].between(rows["0.1"], rows["0.9"])
    size = rows["demand"].abs().mean()
    print(f"{name}: loss {100 * loss.mean() / size:.2f} % of the mean demand; 80 % interval holds {held.mean():.0%}")
    scores[name] = pd.DataFrame({"cutoff": rows["cutoff"], "loss": 100 * loss / size, "held": held})

# %%
figure = Figure(figsize=(9.0, 5.5), layout="constrained")
above, below = figure.subplots(2, sharex=True)
for (name, rows), colour in zip(scores.items(), COLOURS, strict=False):
    means = rows.groupby("cutoff").mean()
    above.plot(means.index, means["loss"], color=colour, marker="o", label=name)
    below.plot(means.index, 100 * means["held"], color=colour, marker="o")
below.axhline(80, color="black", linewidth=1, linestyle="--")
above.set(ylabel="quantile loss\n(% of mean demand)", ylim=(0, None))
below.set(ylabel="80 % interval holds (%)", ylim=(0, 105), xlabel="last day that the forecast knows")
above.set_title("Weekly forecasts of twelve regions, one window after the other", loc="left")
above.legend(frameon=False)
figure.autofmt_xdate()
save_figure(figure, FOLDER / "cross_validation.png")
