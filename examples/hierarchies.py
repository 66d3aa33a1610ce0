# %% [markdown]
# # Forecasts that add up
#
# A city plans its taxis by strip, by cell and as a whole. Forecasts of each alone do not add up: nobody knows which of
# them to believe. With a hierarchy they do, path by path.
#
# The data are the daily taxi trips in sixteen cells of New York, counted in two directions, over eight weeks.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import tsforecast
from tsforecast import load_task
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # four cells of sixteen, to try the script
FOLDER = Path("outputs/examples")
HORIZON = 7

parts = []
for entry in load_task("taxi-blizzard").entries[: 8 if QUICK else None]:
    strip, cell, way = entry["item_id"].split("_")
    trips = entry["target"].reshape(-1, 48).sum(1)  # from half hours
    days = pd.date_range(entry["start"].to_timestamp(), periods=len(trips))
    parts.append(pd.DataFrame({"strip": strip, "cell": cell, "way": way, "day": days, "trips": trips}))
frame = pd.concat(parts, ignore_index=True)

# %% [markdown]
# Columns nest from the top: strips have cells, and cells have ways. `(all)` in the answer is a sum. The last week is
# kept back for the picture.

# %%
last = frame["day"].max() - pd.Timedelta(days=HORIZON)
known = frame[frame["day"] <= last]
table = tsforecast.forecast(known, HORIZON, quantiles=[0.1, 0.5, 0.9], hierarchy="strip/cell/way")
print(table.groupby(["strip", "cell", "way"]).head(1).head(8).round().to_string(index=False))

# %% [markdown]
# Means add up exactly. Quantiles do not, and should not: not every cell has its bad day at once. So the interval of
# the city is narrower than the sum of those of its cells.

# %%
levels = ["strip", "cell", "way"]
is_bottom = (table[levels] != "(all)").all(axis=1)
city = table[(table[levels] == "(all)").all(axis=1)].set_index("day")
sums = table[is_bottom].groupby("day")[["mean", "0.1", "0.9"]].sum()
print(f"largest gap of means: {(city['mean'] - sums['mean']).abs().max():.1g} trips")
widths = [float((one["0.9"] - one["0.1"]).mean()) for one in (city, sums)]
print(f"80 % interval of the city: {widths[0]:,.0f} trips wide; intervals of all series added up: {widths[1]:,.0f}")

# %%
picked = {"the city": city, **{f"strip {name}": table[table["strip"] == name] for name in ("r01", "r02")}}
figure = Figure(figsize=(10.0, 4.5), layout="constrained")
for axis, (name, rows), colour in zip(figure.subplots(1, 3), picked.items(), COLOURS, strict=False):
    own = rows if name == "the city" else rows[rows["cell"] == "(all)"].set_index("day")
    trips = frame if name == "the city" else frame[frame["strip"] == name.removeprefix("strip ")]
    actual = trips.groupby("day")["trips"].sum()
    axis.plot(actual.index, actual / 1000, color="black", linewidth=1, label="came")
    axis.plot(own.index, own["0.5"] / 1000, color=colour, linewidth=2, label="median")
    axis.fill_between(own.index, own["0.1"] / 1000, own["0.9"] / 1000, color=colour, alpha=0.25, label="80 %")
    axis.set(ylim=(0, None), xlim=(np.datetime64("2016-01-04"), frame["day"].max()))
    axis.set_title(name, loc="left")
    axis.legend(frameon=False, loc="lower left")
figure.axes[0].set_ylabel("thousands of taxi trips per day")
figure.autofmt_xdate(rotation=45)
save_figure(figure, FOLDER / "hierarchies.png")
