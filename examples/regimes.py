# %% [markdown]
# # Regimes
#
# Some series are calm at times and wild at others. `rsgls-issm` has a level and seasons like the `issm`, and a hidden
# switch that sets the size of their noises. Given a whole series, a smoother says which regime it was in at each
# step.
#
# The series is the number of taxi trips in one cell of New York, hour by hour, over eight weeks. A blizzard stopped
# the traffic on 23 January 2016.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from tsforecast import StateSpaceEstimator, load_task
from tsforecast.analysis.regimes import regime_report
from tsforecast.plots import plot_regimes, save_figure

QUICK = "--quick" in sys.argv  # a training that is too short, to try the script
FOLDER = Path("outputs/examples")

# %%
series = []
for entry in load_task("taxi-blizzard").entries[:6]:
    hourly = entry["target"].reshape(-1, 2).sum(1)  # from half hours
    series.append(
        {"item_id": entry["item_id"], "start": pd.Period(entry["start"].to_timestamp(), "h"), "target": hourly}
    )

# %% [markdown]
# Training has two parts. In the first epochs the model has no switches, and its likelihood is exact: that is fast.
# The last epochs train the switches with a few particles.

# %%
switches = {"switch_dim": 2, "num_bases": 5, "persistence": 0.95, "proposal": "bootstrap", "recurrence": "none"}
particles = {"num_particles": 6, "resampling_gradient": "stop-gradient", "gradient_length": 24}
estimator = StateSpaceEstimator(
    model="rsgls-issm",
    freq="h",
    prediction_length=24,
    preset="none",  # all options are below
    context_length=72 if QUICK else 336,
    batch_size=4,
    num_batches_per_epoch=1 if QUICK else 3,
    seed=0,
    components="damped_level+hour_of_day+day_of_week",
    linear_epochs=1 if QUICK else 18,
    trainer_kwargs={"max_epochs": 2 if QUICK else 21, "accelerator": "cpu", "enable_progress_bar": False},
    network_learning_rate=1e-2,
    **(switches | particles),
)
predictor = estimator.train(series)

# %% [markdown]
# The weights of the regimes are means over paths of switches, drawn given the last six weeks.

# %%
entry, steps = series[2], 72 if QUICK else 1008
table = regime_report(predictor, [entry], last=steps, num_samples=10).regimes

# %%
times = pd.period_range(table["timestamp"].iloc[0], periods=len(table), freq="h")
scales = predictor.prediction_net.inference.regime_scales()
figure = plot_regimes(
    pd.Series(np.asarray(entry["target"])[-len(table) :], times, name=entry["item_id"]),
    table.filter(regex=r"^p_\d+$").to_numpy(),
    scales=scales.detach().numpy(),
    ordered=True,
    marks={"New Year": pd.Timestamp("2016-01-01"), "blizzard": pd.Timestamp("2016-01-23")},
    label="taxi trips per hour",
)
save_figure(figure, FOLDER / "regimes.png")
