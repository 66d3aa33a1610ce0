# %% [markdown]
# # Missing values and imputation
#
# Series with gaps need no preparation: a missing value is NaN, and the filter goes on through it. `impute` then draws
# what is missing, given all that was observed before and behind the gap.
#
# This script hides whole days of hourly photovoltaic output from a model, and looks whether it finds them.

# %%
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from tsforecast import StateSpaceEstimator, load_task
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # a training that is too short, to try the script
FOLDER = Path("outputs/examples")

# %%
task = load_task("solar")
rng = np.random.default_rng(0)
whole, gaps = [], []
for entry in task.entries:
    target = entry["target"][-672:]  # four weeks
    hidden = np.repeat(rng.permutation(28) < 6, 24)  # six days of them
    entry = entry | {"start": entry["start"] + len(entry["target"]) - 672}
    whole.append(entry | {"target": target})
    gaps.append(entry | {"target": np.where(hidden, np.nan, target)})

# %% [markdown]
# Training is as ever. Missing values are left out of the likelihood.

# %%
estimator = StateSpaceEstimator(
    model="issm",
    freq=task.freq,
    prediction_length=24,
    seed=0,
    trainer_kwargs={"max_epochs": 1 if QUICK else 8, "accelerator": "cpu", "enable_progress_bar": False},
)
predictor = estimator.train(gaps)

# %% [markdown]
# Every sample is a whole series: observed values come back as they are, and the gaps are filled jointly. So the sum
# over a hidden day has a distribution, too.

# %%
torch.manual_seed(0)
(filled,) = predictor.impute(gaps[:1], num_samples=10 if QUICK else 100)
low, middle, high = np.quantile(filled.samples, [0.1, 0.5, 0.9], axis=0)
hidden = np.isnan(gaps[0]["target"])
inside = (low <= whole[0]["target"]) & (whole[0]["target"] <= high)
print(f"{inside[hidden].mean():.0%} of the hidden hours lie in the interval of 80 %")

# %%
begin = max(int(np.flatnonzero(hidden)[0]) - 48, 0)
shown = slice(begin, begin + 240)
steps = np.arange(672)[shown] / 24
figure = Figure(figsize=(9.0, 4.0), layout="constrained")
axis = figure.subplots()
where = hidden[shown]
axis.fill_between(
    steps, low[shown], high[shown], where=where, color=COLOURS[0], alpha=0.3, linewidth=0, label="80 % interval"
)
axis.plot(steps, np.where(where, middle[shown], np.nan), color=COLOURS[0], label="median of what is filled in")
axis.plot(steps, np.where(where, np.nan, gaps[0]["target"][shown]), color="black", label="observed")
axis.plot(
    steps, np.where(where, whole[0]["target"][shown], np.nan), ".", color=COLOURS[1], label="hidden from the model"
)
axis.set(xlabel="day", ylabel="output (W per kW of panels)")
axis.set_title(f"{task.entries[0]['item_id']}: days hidden and filled", loc="left")
figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
save_figure(figure, FOLDER / "missing_values.png")
