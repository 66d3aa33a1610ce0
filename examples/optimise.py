# %% [markdown]
# # Tuning with few evaluations
#
# A function is costly: each value takes a training, an experiment, a night. `Optimiser` looks for its least value with
# few evaluations. Inputs are numbers, whole numbers and choices. Here it tunes a regression of
# scikit-learn, which forecasts the electricity demand of the Carolinas a day ahead.

# %%
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.kernel_ridge import KernelRidge

from tsforecast import load_task
from tsforecast.decisions import Choice, Number, Optimiser, Space
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # fewer evaluations, to try the script
FOLDER = Path("outputs/examples")
EVALUATIONS, BLIND = (8, 30) if QUICK else (24, 240)

demand = load_task("eia-2020").entries[0]["target"].reshape(-1, 24).astype(float)  # (day, hour)
demand = demand / demand[:-60].mean() - 1  # in shares of what is usual


def error(row: dict[str, str]) -> float:
    """Mean absolute error of the last 60 days, which the training does not see, in percent of the demand."""
    days = int(row["days"])
    past = np.stack([demand[day - days : day].ravel() for day in range(days, len(demand))])
    alpha, gamma = float(row["penalty"]), float(row["width"]) ** -2 / past.shape[1]
    model = KernelRidge(alpha=alpha, kernel=row["kernel"], gamma=gamma).fit(past[:-60], demand[days:-60])
    return 100 * np.abs(model.predict(past[-60:]) - demand[-60:]).mean()


# %% [markdown]
# `Space` makes a box of the inputs, and `row` reads a point of it. The first five points are spread over the box.

# %%
penalty, width = Number("penalty", 1e-4, 10, log=True), Number("width", 0.02, 6, log=True)
space = Space((Number("days", 1, 14, whole=True), Choice("kernel", ("linear", "rbf")), penalty, width))
optimiser = Optimiser(space.low, space.high, snap=space.snap, seed=0)
known = optimiser.init()
for _ in range(EVALUATIONS):
    point = optimiser.ask(known)
    known = optimiser.tell(known, point, error(space.row(point)))
rows, found = [space.row(point) for point in known.points], known.values.numpy()
advised = optimiser.recommend(known).number
print(f"recommended: {rows[advised]}, with an error of {found[advised]:.2f} %")

# %% [markdown]
# This function is cheap enough for hundreds of blind evaluations, too. The regret is the distance to the least error of
# them all. How far is blind search after as few evaluations?

# %%
rng = np.random.default_rng(0)
places = space.snap(known.points.new_tensor(rng.uniform(space.low, space.high, size=(BLIND, len(space.low)))))
drawn = np.array([error(space.row(place)) for place in places])
orders = np.minimum.accumulate([rng.permutation(drawn)[:EVALUATIONS] for _ in range(1000)], axis=1)
least = min(drawn.min(), found.min())
low, middle, high = np.quantile(orders, [0.1, 0.5, 0.9], axis=0) - least
print(f"least error of {BLIND} blind evaluations: {drawn.min():.2f} %")

# %%
left, right = (figure := Figure(figsize=(10.0, 4.5), layout="constrained")).subplots(1, 2)
steps = range(1, EVALUATIONS + 1)
left.step(steps, np.minimum.accumulate(found) - least, where="post", color=COLOURS[0], linewidth=2, label="Optimiser")
left.step(steps, middle, where="post", color=COLOURS[1], linewidth=2, label="blind search: median, 80 % of 1000 runs")
left.fill_between(steps, low, high, step="post", color=COLOURS[1], alpha=0.2, linewidth=0)
left.set(xlabel="evaluations", ylabel="regret of the best so far (percentage points)", ylim=(-0.1, 5))
x, y = ([float(row[name]) for row in rows] for name in ("penalty", "days"))
colours = right.scatter(x, y, c=found, vmin=least, vmax=np.median(drawn), label="evaluated")
right.plot(x[advised], y[advised], "*", color=COLOURS[1], markersize=16, label="recommended")
figure.colorbar(colours, ax=right, label="error (% of the demand)", extend="max")
right.set(xlabel="penalty", ylabel="days that the regression sees", xscale="log", ylim=(0, 15))
left.legend()
right.legend()
save_figure(figure, FOLDER / "optimise.png")
