# %% [markdown]
# # Covariates and what-if questions
#
# A covariate is a number that you know ahead of time, such as a price or a holiday. Here the public holidays of the
# USA go into a forecast of hourly electricity demand. Then you ask two questions: what if the day were no holiday,
# and what if demand began the day lower than expected?

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from pandas.tseries.holiday import USFederalHolidayCalendar

from tsforecast import StateSpaceEstimator, load_task
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # a training that is too short, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# The covariate is 1 in the hours of a holiday and 0 elsewhere. It must reach over the horizon of the forecast.

# %%
days = USFederalHolidayCalendar().holidays("2019-12-01", "2020-06-01")
first, horizon = pd.Timestamp("2020-02-17 05:00"), 24  # Presidents' Day, which begins at 5:00 UTC in New York


def with_holidays(entry: dict, on_the_day: bool = True) -> dict:
    """The entry up to the day, with holidays until its end."""
    start = entry["start"].to_timestamp()
    past = int((first - start) / pd.Timedelta("1h"))
    local = pd.date_range(start - pd.Timedelta("5h"), periods=past + horizon, freq="h")
    holiday = local.normalize().isin(days).astype(np.float32)
    holiday[past:] *= on_the_day
    return entry | {"target": entry["target"][:past], "feat_dynamic_real": holiday[None]}


series = load_task("eia-2020").entries
train = [e | {"feat_dynamic_real": e["feat_dynamic_real"][:, :-horizon]} for e in map(with_holidays, series)]
estimator = StateSpaceEstimator(
    model="issm",
    freq="h",
    prediction_length=horizon,
    components="damped_level+hour_of_day+day_of_week",
    train_length=0,  # all holidays since December
    seed=0,
    trainer_kwargs={"max_epochs": 1 if QUICK else 15, "accelerator": "cpu", "enable_progress_bar": False},
)
predictor = estimator.train(train)

# %% [markdown]
# The three forecasts differ in one thing each. `known_future` has the known values of the horizon, and NaN where the
# forecast is free: here the first six hours lie 10 % below the median of the first forecast.

# %%
torch.manual_seed(0)
city = next(entry for entry in series if entry["item_id"] == "NYIS-ZONJ")
questions = {"holiday": with_holidays(city), "no holiday": with_holidays(city, on_the_day=False)}
(usual,) = predictor.predict([questions["holiday"]])
known = np.full(horizon, np.nan, np.float32)
known[:6] = 0.9 * usual.quantile(0.5)[:6]
questions["holiday, night 10 % lower"] = questions["holiday"] | {"known_future": known}

# %%
came = city["target"][len(questions["holiday"]["target"]) :][:horizon]
axis = (figure := Figure(figsize=(9.0, 4.5), layout="constrained")).subplots()
for (name, entry), colour in zip(questions.items(), COLOURS[:3], strict=True):
    (forecast,) = predictor.predict([entry])
    axis.plot(forecast.quantile(0.5), color=colour, linewidth=2, label=name)
    axis.fill_between(range(horizon), forecast.quantile(0.1), forecast.quantile(0.9), color=colour, alpha=0.15)
axis.plot(came, color="black", marker=".", label="what came")
axis.set_title("Medians and 80 % intervals of three forecasts", loc="left")
axis.set(xlabel="hour of Presidents' Day 2020 in New York", ylabel="demand of New York City (MW)")
axis.legend(frameon=False)
save_figure(figure, FOLDER / "what_if.png")
