# %% [markdown]
# # Decisions that keep up with drift
#
# A contextual bandit decides before it knows: it sees a context, pulls an arm, and learns what that arm paid. It never
# learns what the others would have paid. So it must try arms of which it is not sure, and a belief over the weights of
# a network says of which it is not.
#
# Here five arms pay by the sign and size of ten features. Half-way all weights are drawn anew, and no one tells the
# agents.

# %%
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from tsforecast.decisions import AgentConfig, Bandit, play
from tsforecast.decisions.environments import linear
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # a few rounds, to try the script
FOLDER = Path("outputs/examples")
STEPS = 300 if QUICK else 2400
rounds = linear(STEPS, torch.Generator().manual_seed(0), arms=5, features=10, noise=0.5, changes=True)

# %% [markdown]
# Two agents without a drift, and two that forget: their old evidence counts for less with every round. A window forgets
# all at once. All agents see the same rounds, and pull each arm twenty times before they choose.

# %%
agents = {
    "linear": AgentConfig("linear", rounds.arms, rounds.features),
    "linear, window of 500": AgentConfig("linear-window", rounds.arms, rounds.features),
    "linear, forgetting": AgentConfig("linear", rounds.arms, rounds.features, drift="forgetting", rate=3e-3),
    "lofi": AgentConfig("lofi", rounds.arms, rounds.features),
    "lofi, forgetting": AgentConfig("lofi", rounds.arms, rounds.features, drift="forgetting", rate=3e-3),
}
regrets = {}
for name, config in agents.items():
    arms = torch.tensor([arm for arm, _ in play(Bandit(config), rounds)])
    regrets[name] = rounds.regret(arms).cumsum(0)
    half = regrets[name][STEPS // 2]
    print(f"{name}: regret {half:.0f} before the change, {regrets[name][-1] - half:.0f} after it")

# %% [markdown]
# In a program of yours there is no environment: `arm = bandit.choose(context)`, then `bandit.learn(context, arm,
# reward)`, or `bandit.learn_later(id, reward)` where the reward takes its time.

# %%
figure = Figure(figsize=(9.0, 4.5), layout="constrained")
axis = figure.subplots()
for (name, regret), colour in zip(regrets.items(), COLOURS, strict=False):
    axis.plot(regret.numpy(), color=colour, linewidth=2, label=name)
axis.axvline(STEPS // 2, color="black", linestyle="--", linewidth=1, label="all weights change")
axis.set(xlabel="round", ylabel="cumulative regret", xlim=(0, STEPS), ylim=(0, None))
axis.set_title("What five agents lost against the best arms", loc="left")
axis.legend(frameon=False)
save_figure(figure, FOLDER / "decisions.png")
