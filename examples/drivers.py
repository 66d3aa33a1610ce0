# %% [markdown]
# # What drives it, and what if
#
# `Forecaster` is the short way: a frame goes in, and forecasts, what-if answers and reasons come out as frames.
#
# The series are the daily output of photovoltaic panels on two homes in California. The covariate `sun` is the mean
# output of the other homes there. It stands for a weather service, which here is always right. A second covariate,
# `weekend`, should not matter to panels. Does the model find out?

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsforecast import Forecaster, load_task
from tsforecast.analysis.drivers import effect_curves, importance
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # half a year, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# The frame has a row for each home and day. In the last week the output is empty, and the covariates are known.

# %%
daily = {entry["item_id"]: entry["target"].reshape(-1, 24).sum(1) / 1000 for entry in load_task("solar").entries}
days = pd.date_range("2016-08-01", periods=365)
homes = ["building1", "building2"]
sun = np.mean([daily[name] for name in daily if name not in homes], 0)
known = {"day": days, "sun": sun, "weekend": (days.dayofweek > 4).astype(float)}
frame = pd.concat([pd.DataFrame({"home": home, "output": daily[home], **known}) for home in homes])
frame = frame[frame["day"] >= days[180 if QUICK else 0]]
came = frame[(frame["home"] == homes[0]) & (frame["day"] >= "2017-07-01")]
frame["output"] = frame["output"].where(frame["day"] < "2017-07-25")

columns = {"item": "home", "target": "output", "covariates": ["sun", "weekend"]}
forecaster = Forecaster(horizon=7, columns=columns).fit(frame)
forecasts = {"as the weather service says": forecaster.predict()}
print(forecasts["as the weather service says"].head(7).round(2).to_string(index=False))

# %% [markdown]
# What if three days of the week are cloudy? A scenario is a frame of the cells that differ.

# %%
forecasts["three cloudy days"] = forecaster.scenario(pd.DataFrame({"home": homes[0], "day": days[-5:-2], "sun": 2.0}))

# %% [markdown]
# Three answers about the reasons: the parts of each forecast, the effect of a covariate at each of its values, and
# what forecasts of the last four weeks lose without it: nothing without `weekend`, which the model has dropped.

# %%
parts = forecaster.explain()
curves = effect_curves(forecaster.predictor_)
lost = importance(forecaster.predictor_, frame, windows=2 if QUICK else 4)
print(parts[parts["part"] == "covariates"].head(7).round(2).to_string(index=False))
print(lost.round(3).to_string(index=False))
forecaster.page().save(FOLDER / "drivers.html")  # to click; a notebook shows `forecaster` alone as this page

# %%
figure = Figure(figsize=(10.0, 4.5), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[3, 2])
left.plot(came["day"].dt.day, came["output"], color="black", marker=".", label="observed")
for (name, table), colour in zip(forecasts.items(), COLOURS, strict=False):
    one = table[table["home"] == homes[0]]
    left.plot(one["day"].dt.day, one["0.5"], color=colour, linewidth=2, label=name)
    left.fill_between(one["day"].dt.day, one["0.1"], one["0.9"], color=colour, alpha=0.2, linewidth=0)
left.axvline(24.5, color="black", linewidth=1, linestyle="--", label="end of what is known")
left.set(xlabel="day of July 2017", ylabel="kWh per kW of panels and day", ylim=(0, None))
left.legend(frameon=False, loc="lower left")
curve = curves[(curves["item_id"] == "") & (curves["covariate"] == "sun")]
right.plot(curve["value"], 100 * curve["effect"], color=COLOURS[2], linewidth=2)
right.fill_between(curve["value"], 100 * curve["lower"], 100 * curve["upper"], color=COLOURS[2], alpha=0.2)
left.set_title(f"Output of {homes[0]}, medians and 80 % intervals", loc="left")
right.set_title("Effect of the sun, with its 80 % interval", loc="left")
right.set(xlabel="sun (kWh per kW and day)", ylabel="change of the output (% of its mean)")
save_figure(figure, FOLDER / "drivers.png")
