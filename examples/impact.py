# %% [markdown]
# # What several campaigns did, each from a date of its own
#
# In spring 2020, states of the USA told their people to stay at home, each from another day on. What did that do to the
# demand for electricity? Campaigns in shops are the same question: a date for each series, and an effect of all.
#
# The data are the hourly demand of seven regions, which come with the package, as means of days.

# %%
import sys
from pathlib import Path

import pandas as pd

from tsforecast import load_task
from tsforecast.analysis.impact import Options, impact
from tsforecast.plots import save_figure
from tsforecast.plots.impact import plot_impact

QUICK = "--quick" in sys.argv  # fewer paths, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# A row for each intervention: the last day without it, and the last with it. In New York schools closed on 16 March;
# people were to stay at home from the evening of the 22nd on. So its zones have two interventions, and each is compared
# with a continuation of the time before it.

# %%
CLOSED, HOME = ("2020-03-15", "2020-03-22"), ("2020-03-22", "2020-04-19")
rows = [(zone, *dates) for zone in ("NYIS-ZONA", "NYIS-ZONJ", "NYIS-ZONK") for dates in (CLOSED, HOME)]
rows += [
    ("ISNE-4007", "2020-03-23", "2020-04-20"),  # Massachusetts
    ("PSEI", "2020-03-24", "2020-04-21"),  # Washington
    ("DUK", "2020-03-30", "2020-04-27"),  # the Carolinas
    ("ERCO", "2020-04-01", "2020-04-29"),  # Texas
]
dates = pd.DataFrame(rows, columns=["region", "after", "until"])

parts = []
for entry in load_task("eia-2020").entries:
    if entry["item_id"] in set(dates["region"]):
        demand = entry["target"].reshape(-1, 24).mean(1)
        days = pd.date_range(entry["start"].to_timestamp(), periods=len(demand))
        parts.append(pd.DataFrame({"region": entry["item_id"], "day": days, "demand": demand}))
frame = pd.concat(parts, ignore_index=True)

# %% [markdown]
# The model of each series learns from the days before its date: a level that may wander, and a week. A logarithmic
# scale makes effects of large and small regions alike.

# %%
options = Options(transformation="log1p", num_samples=100 if QUICK else 1000)
found = impact(frame, dates=dates, freq="D", options=options)
columns = ["region", "intervention", "actual", "predicted", "relative", "tail"]
print(found.summary.loc[found.summary["measure"] == "average", columns].round(3).to_string(index=False))

# %% [markdown]
# `overall` adds up the interventions of a series, and those of all series. Single effects are mostly uncertain: a mild
# spring lowers demand, too. All together say more than each.

# %%
overall = found.overall[found.overall["measure"] == "average"]
columns = ["region", "interventions", "effect", "effect_lower", "effect_upper", "relative", "tail"]
print(overall[columns].round(3).to_string(index=False))

# %%
figure = plot_impact(found, most=4, title="Electricity demand (MW), what was and what would have been")
save_figure(figure, FOLDER / "impact.png")
