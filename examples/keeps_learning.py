# %% [markdown]
# # A forecaster that keeps learning
#
# A trained model is frozen: when the world changes, its parameters stay as they were. `AdaptivePredictor` puts a
# Gaussian belief over these parameters, and every new day moves it.
#
# The data are the hourly electricity demand of six regions of the USA. The model is trained on the winter and then
# forecasts every day, once frozen and once learning on. On 16 March 2020 schools and offices closed.

# %%
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tsforecast import StateSpaceEstimator, load_task
from tsforecast.evaluation import score
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.rolling import rolling
from tsforecast.plots import plot_adaptation, save_figure

QUICK = "--quick" in sys.argv  # a training that is too short and a few days, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# The test windows are the last days of the data, one forecast a day.

# %%
task = load_task("eia-2020")
days = 4 if QUICK else 77
task = replace(task, windows=days, entries=task.entries[::2])
estimator = StateSpaceEstimator(
    model="issm",
    freq=task.freq,
    prediction_length=task.prediction_length,
    components="damped_level+hour_of_day+day_of_week",
    train_length=0,
    seed=0,
    trainer_kwargs={"max_epochs": 1 if QUICK else 6, "accelerator": "cpu", "enable_progress_bar": False},
)
predictor = estimator.train(task.train)

# %% [markdown]
# `rolling` forecasts each day, scores it, and then lets the learner see what came. The settings are the defaults of
# `tsforecast evaluate --adapt lofi`.

# %%
courses, scores = {}, {}
for name, frozen in (("issm", True), ("issm+lofi", False)):
    adaptive = AdaptivePredictor(predictor, Adaptation(learner="lofi", drift="wiener", rate=0.02))
    courses[name] = rolling(adaptive, task, seed=0, frozen=frozen)
    table = score(courses[name].forecasts, task.test("rolling")).per_forecast.reset_index()
    sums = table.assign(crps=table["crps"] * table["size"]).groupby("start")[["crps", "size"]].sum()
    scores[name] = sums["crps"] / sums["size"]
    print(f"{name}: CRPS {sums['crps'].sum() / sums['size'].sum():.4f} over {days} days")

# %% [markdown]
# The upper panel has the CRPS of each day, where lower is better. The middle one has the difference of both models,
# and the last one how far the parameters have moved.

# %%
windows = pd.DataFrame(scores)
windows["moved"] = courses["issm+lofi"].windows["moved"].to_numpy()
marks = {} if QUICK else {"closures": pd.Timestamp("2020-03-16")}
figure = plot_adaptation(windows, ("issm", "issm+lofi"), marks=marks, title="Demand of six regions, day by day")
save_figure(figure, FOLDER / "keeps_learning.png")
