# %% [markdown]
# # What another policy would have earned
#
# A log has what somebody chose, what it paid, and the probability of the choice (its propensity). It never says what
# the other choices would have paid. Still it can judge a policy that has never acted.
#
# The log is made from scikit-learn's images of digits. A policy names the digit of an image; the reward is 1 where the
# name is right. Here all labels are known, so each estimate stands beside the truth.

# %%
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import one_hot

from tsforecast.decisions import LoggedRounds, evaluate_policy
from tsforecast.plots import COLOURS, save_figure

QUICK = "--quick" in sys.argv  # fewer rounds, to try the script
FOLDER = Path("outputs/examples")

# %% [markdown]
# The old policy is a classifier that has seen 40 labels. In half of the rounds it names any digit by chance: a log can
# only judge what was tried.

# %%
images, labels = load_digits(return_X_y=True)
old = LogisticRegression(max_iter=1000).fit(images[:40], labels[:40])
images, labels = (torch.from_numpy(one[40 : 640 if QUICK else None]) for one in (images, labels))
beliefs = torch.from_numpy(old.predict_proba(images))
chances = 0.5 * beliefs + 0.5 / 10
arms = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(0))[:, 0]
propensities = chances.gather(1, arms[:, None])[:, 0]
log = LoggedRounds(images, arms, (arms == labels).double(), propensities, allowed=chances > 0)

# %% [markdown]
# A new policy learns from the first half of the log: which names paid? A round of a small propensity stands for others
# like it, and counts for more. The second half judges three policies.

# %%
half = len(log) // 2
paid = log.rewards[:half] > 0
new = LogisticRegression(max_iter=1000).fit(images[:half][paid], arms[:half][paid], 1 / propensities[:half][paid])
judged = log[half:]
policies = {
    "any digit by chance": torch.full((len(judged), 10), 0.1),
    "old, without chance": one_hot(beliefs[half:].argmax(1), 10),
    "new, learnt from the log": one_hot(torch.from_numpy(new.predict(images[half:])), 10),
}

# %% [markdown]
# - `ips` weighs each reward by the policy's probability over the propensity.
# - `snips` divides by the sum of these weights, which takes out much of their noise.
# - `dm`, the direct method, trusts a linear model of rewards. Its interval does not know that the model is wrong.
# - `dr` is doubly robust: it corrects the model where the log shows it wrong.

# %%
names = {"ips": "IPS", "snips": "SNIPS", "dm": "direct", "dr": "doubly\nrobust"}
figure = Figure(figsize=(9.0, 4.5), layout="constrained")
axes = figure.subplots(1, len(policies), sharex=True, sharey=True)
for axis, (policy, probabilities) in zip(axes, policies.items(), strict=True):
    found = evaluate_policy(judged, probabilities)
    truth = float(probabilities.gather(1, labels[half:, None]).double().mean())
    print(f"{policy}: the truth is {truth:.3f}")
    for place, (one, colour) in enumerate(zip(found.estimates, COLOURS, strict=False)):
        print(f"  {one.name}: {one.value:.3f}, 95 % interval from {one.low:.3f} to {one.high:.3f}")
        axis.plot([place] * 3, [one.low, one.value, one.high], color=colour, linewidth=2, marker="o", markevery=[1])
    axis.axhline(truth, color="black", linewidth=1, label="truth")
    axis.axhline(found.logged.value, color="black", linewidth=1, linestyle=":", label="what the log itself earned")
    axis.set_xticks(range(len(names)), names.values())
    axis.set_title(policy, loc="left")
axes[0].set(ylabel="mean reward, 95 % interval", xlim=(-0.5, 3.5), ylim=(0, 1))
axes[0].legend(frameon=False, loc="upper left")
figure.suptitle(f"Three policies, judged by {len(judged)} rounds in which none of them acted")
save_figure(figure, FOLDER / "off_policy.png")
