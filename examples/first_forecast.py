# %% [markdown]
# # A first forecast of a CSV file
#
# You have a table with one row for each series and time stamp. You train a model on it and forecast two days.
#
# The first cell writes such a file from data that come with the package: the hourly electricity demand of three
# regions of the USA. With a file of your own, leave it out.

# %%
import sys
from pathlib import Path

import pandas as pd

from tsforecast import StateSpaceEstimator, cross_validate, load_task, read_task
from tsforecast.evaluation import evaluate, format_scores
from tsforecast.plots import plot_forecasts, save_figure

QUICK = "--quick" in sys.argv  # a training that is too short, to try the script
FOLDER = Path("outputs/examples")
FOLDER.mkdir(parents=True, exist_ok=True)

parts = []
for entry in load_task("eia-2020").entries[:3]:
    demand = entry["target"][: 8 * 168]
    hours = pd.date_range(entry["start"].to_timestamp(), periods=len(demand), freq="h")
    parts.append(pd.DataFrame({"region": entry["item_id"], "hour": hours, "demand": demand}))
pd.concat(parts).to_csv(FOLDER / "demand.csv", index=False)

# %% [markdown]
# `read_task` finds the frequency, and checks every row. You name the columns, because these names are your own. The
# last `windows * prediction_length` hours are kept for testing.

# %%
columns = {"item": "region", "timestamp": "hour", "target": "demand"}
frame = pd.read_csv(FOLDER / "demand.csv")
estimator = StateSpaceEstimator(
    model="issm",  # level and seasons: the model to begin with
    freq="h",
    prediction_length=48,
    components="damped_level+hour_of_day+day_of_week",
    num_batches_per_epoch=4,
    seed=0,
    trainer_kwargs={"max_epochs": 1 if QUICK else 15, "accelerator": "cpu", "enable_progress_bar": False},
)
known = frame[frame["hour"] < "2020-02-05"]  # the last days are for the comparison below
predictor = estimator.train(known, columns=columns)

# %% [markdown]
# A forecast is a distribution, and a table has its mean and quantiles.

# %%
table = predictor.predict_frame(known, quantiles=[0.1, 0.5, 0.9])
print(table.head())

# %% [markdown]
# Is it better than yesterday repeated? `evaluate` forecasts the last windows of the file, each from all data before
# it. `cross_validate` gives the same forecasts as rows, beside what came.

# %%
scores = evaluate(predictor, frame, windows=2, model="issm", baselines=["seasonal_naive"])
print(format_scores(scores))
rows = cross_validate(frame, windows=2, model=predictor, quantiles=[0.1, 0.5, 0.9])
print(rows.head())

# %% [markdown]
# The picture shows the past, what came, the median, and intervals of 50, 80 and 95 %.

# %%
from tsforecast.data import Columns  # noqa: E402

entries = read_task(frame, columns=Columns(**columns), prediction_length=48, windows=2).entries
past = read_task(known, columns=Columns(**columns), prediction_length=48, windows=0).entries
figure = plot_forecasts(entries, predictor.predict(past), history=168, columns=1, targets=["demand"], unit="MW")
save_figure(figure, FOLDER / "first_forecast.png")
