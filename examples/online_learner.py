# %% [markdown]
# # An online learner on a stream
#
# An online learner never trains: it predicts an observation, sees it, and moves its belief over the weights of a
# network. Each step costs the same, so a stream may be as long as you like.
#
# The stream is the hourly electricity demand of New York City. The network predicts each hour from the demand of the
# day before and from the time of the week. In March 2020 the city changed.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from tsforecast import load_task
from tsforecast.learners import GaussianLikelihood, NoDrift, Wiener, lofi, ogd
from tsforecast.learners.loop import run
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # the first days of the stream, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# Features and target are scaled by the first two weeks, which are over before the stream begins.

# %%
entry = next(entry for entry in load_task("eia-2020").entries if entry["item_id"] == "NYIS-ZONJ")
demand = torch.from_numpy(np.asarray(entry["target"], np.float32))
demand = (demand - demand[:336].mean()) / demand[:336].std()
times = pd.date_range(entry["start"].to_timestamp(), periods=len(demand), freq="h")
first, last = 336, 600 if QUICK else len(demand)
hour = torch.arange(len(demand)) * 2 * torch.pi / 24
clock = torch.stack([f(k * hour / d) for d in (1, 7) for k in (1, 2) for f in (torch.sin, torch.cos)], -1)
lags = torch.stack([demand[first - lag : last - lag] for lag in (24, 25, 48, 168)], -1)
inputs = torch.cat([clock[first:last], lags], -1).unsqueeze(1)  # (time, point, feature)
target = demand[first:last, None, None]

# %% [markdown]
# `lofi` keeps a precision that is diagonal plus low rank. A drift makes old evidence count less, so that the belief
# stays open to changes. Gradient descent is what one would do without a belief.

# %%
learners = {
    "lofi, Wiener drift": lambda net: lofi(net, GaussianLikelihood(0.01), 0.1, rank=10, drift=Wiener(1e-3)),
    "lofi, no drift": lambda net: lofi(net, GaussianLikelihood(0.01), 0.1, rank=10, drift=NoDrift()),
    "gradient descent": lambda net: ogd(net, GaussianLikelihood(0.01), rate=1e-3),
}
errors = {}
for name, make in learners.items():
    torch.manual_seed(0)
    learner = make(nn.Sequential(nn.Linear(inputs.shape[-1], 20), nn.ReLU(), nn.Linear(20, 1)))
    with torch.no_grad():
        belief, predicted = run(learner, learner.init(), inputs, target)
    errors[name] = pd.Series((predicted.mean - target).flatten().abs().numpy(), times[first:last])
    print(f"{name}: mean absolute error {errors[name].mean():.3f} standard deviations")

# %% [markdown]
# Every prediction was made before the observation was seen, so this is an honest test: the mean error of the last
# week.

# %%
figure = Figure(figsize=(9.0, 4.5), layout="constrained")
axis = figure.subplots()
for (name, error), colour in zip(errors.items(), COLOURS[:3], strict=True):
    axis.plot(error.index, error.rolling(168, min_periods=48).mean(), color=colour, linewidth=2, label=name)
if not QUICK:
    axis.axvline(
        pd.Timestamp("2020-03-16"), color="black", linestyle="--", linewidth=1, label="schools and offices close"
    )
axis.set(ylabel="absolute error, mean over a week\n(standard deviations)", ylim=(0, None))
axis.set_title("Demand of New York City, predicted hour by hour", loc="left")
axis.legend(frameon=False)
figure.autofmt_xdate()
save_figure(figure, FOLDER / "online_learner.png")
