"""The toy of classes that drift: the boundary turns, or its sides are jumped."""

import dataclasses
import math
from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import tqdm

from experiments.streams.toys_shared import TUNING, Result, Row, band, choose, learn, rows_of, style, trace
from tsforecast import learners
from tsforecast.learners.likelihoods.predictions import Prediction
from tsforecast.plots import COLOURS, OBSERVED


@dataclasses.dataclass(frozen=True)
class Labels:
    """Streams of two classes.

    Attributes:
        inputs: (stream, time, point, 2).
        target: (stream, time, point, 1).
        probability: Of the label 1, (stream, time, point).
        weights: What it depends on, (time, 2).
    """

    inputs: Tensor
    target: Tensor
    probability: Tensor
    weights: Tensor

    @property
    def log_loss(self) -> Tensor:
        """Of the true probabilities, (stream, time)."""
        right = torch.where(self.target.squeeze(-1) > 0, self.probability, 1 - self.probability)
        return -right.log().mean(-1)


Grids = dict[str, list[learners.AbstractDrift]]
Score = Callable[[Prediction, Labels], tuple[dict[str, Tensor], Tensor]]
TURN: Grids = {
    "none": [learners.NoDrift()],
    "wiener": [learners.Wiener(rate) for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)],
    "ou": [learners.OrnsteinUhlenbeck(rate) for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)],
    "forgetting": [learners.BayesianForgetting(rate) for rate in (0.1, 0.2, 0.35, 0.5, 0.7)],
    "exponential": [learners.ExponentialForgetting(1 - rate, floor=0.0) for rate in (0.1, 0.2, 0.35, 0.5, 0.7)],
    "shrink": [learners.ShrinkAndPerturb(decay, sd) for decay in (0.9, 0.99) for sd in (0.3, 1.0, 3.0)],
}
JUMP: Grids = {
    "none": [learners.NoDrift()],
    "wiener": [learners.Wiener(rate) for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)],
    "ou": [learners.OrnsteinUhlenbeck(rate) for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)],
    "forgetting": [learners.BayesianForgetting(rate) for rate in (0.01, 0.03, 0.1, 0.2, 0.35)],
    "exponential": [learners.ExponentialForgetting(1 - rate, floor=0.0) for rate in (0.01, 0.03, 0.1, 0.2, 0.35)],
    "shrink": [learners.ShrinkAndPerturb(decay, sd) for decay in (0.99, 0.999) for sd in (0.1, 0.3, 1.0)],
}


def turning(steps: int = 721) -> Tensor:
    """Angles of a boundary that turns by five degrees a step."""
    return math.radians(5) * torch.arange(steps)


def jumping(steps: int = 400) -> Tensor:
    """Angles of a boundary that makes a quarter turn at once, halfway."""
    return 0.5 * math.pi * (torch.arange(steps) >= steps // 2)


def make_labels(angles: Tensor, streams: int, seed: int, points: int = 10) -> Labels:
    """Points uniform over [-3, 3]^2; the label is 1 with probability sigmoid(10 (x sin a + y cos a)).

    Args:
        angles: a of each step.
        streams: Number of streams.
        seed: Of random numbers.
        points: In each step.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = 10 * torch.stack([angles.sin(), angles.cos()], -1)
    inputs = 6 * torch.rand(streams, len(angles), points, 2, generator=generator) - 3
    probability = (inputs * weights[:, None]).sum(-1).sigmoid()
    label = torch.rand(probability.shape, generator=generator) < probability
    return Labels(inputs, label.to(inputs).unsqueeze(-1), probability, weights)


def make_classifier(drift: learners.AbstractDrift) -> learners.GaussianLearner:
    """Logistic regression with a prior standard deviation of 10, by assumed density filtering."""
    network = learners.LayerChain((2, 1), (nn.Identity,), (False,))
    return learners.adf(network, variance=100.0, mean=torch.zeros(2), drift=drift)


def score_turn(predicted: Prediction, data: Labels) -> tuple[dict[str, Tensor], Tensor]:
    """Log-loss one step ahead, over the last half as in the paper; and at each step."""
    loss = -predicted.log_prob.mean(-1)
    return {"log_loss": loss[:, loss.shape[1] // 2 :].mean(1)}, loss


def score_jump(predicted: Prediction, data: Labels) -> tuple[dict[str, Tensor], Tensor]:
    """Before and after the change halfway; and the error of the probability at each step.

    Recovery is the number of steps after the change until this error, over five steps, is below .1; all steps where it
    never is.
    """
    half = data.target.shape[1] // 2
    loss = -predicted.log_prob.mean(-1)
    error = (predicted.mean.squeeze(-1) - data.probability).abs().mean(-1)
    good = error[:, half:].unfold(1, 5, 1).mean(-1) < 0.1
    good = torch.cat([good, torch.ones_like(good[:, :1])], 1)
    scores = {
        "log_loss": loss.mean(1),
        "log_loss_before": loss[:, half // 2 : half].mean(1),
        "log_loss_20_after": loss[:, half : half + 20].mean(1),
        "log_loss_end": loss[:, half + half // 2 :].mean(1),
        "steps_to_recover": good.to(loss).argmax(1) + 4.0,
    }
    return scores, error


def compare_drifts(
    data: Labels, grids: Grids, score: Score, tuning: int
) -> tuple[list[Result], dict[str, list[Result]]]:
    """The best of each grid by the first `tuning` streams, and all; both without these streams."""
    chosen, everything = [], {}
    for name, grid in grids.items():
        found = []
        for drift in tqdm(grid, desc=name, disable=None):
            _, predicted = learn(make_classifier(drift), data.inputs, data.target)
            found.append(Result(name, repr(drift), *score(predicted, data)))
        place, everything[name] = choose(found, "log_loss", tuning)
        chosen.append(everything[name][place])
    return chosen, everything


def drift_toy(streams: int) -> tuple[list[Row], Figure]:
    """Rows, and the picture."""
    turn = make_labels(turning(), TUNING + streams, 0)
    jump = make_labels(jumping(), TUNING + streams, 1)
    turned, grids = compare_drifts(turn, TURN, score_turn, TUNING)
    jumped, _ = compare_drifts(jump, JUMP, score_jump, TUNING)
    rows = []
    for toy, data, results, first in (("drift-turn", turn, turned, 360), ("drift-jump", jump, jumped, 0)):
        loss = data.log_loss[TUNING:]
        truth = Result("true weights", "", {"log_loss": loss[:, first:].mean(1)}, loss)
        rows += rows_of(toy, [truth, *results], "none")
    settings = {result.learner: result.settings for result in turned}
    beliefs = {}
    for name in ("none", "ou", "forgetting"):
        drift = next(drift for drift in TURN[name] if repr(drift) == settings[name])
        belief = trace(make_classifier(drift), turn.inputs[TUNING, None], turn.target[TUNING, None])
        beliefs[name] = (belief.mean[0], belief.variance[0].sqrt())
    rates = {name: [_rate(drift) for drift in grid] for name, grid in TURN.items()}
    losses = {name: [result.scores["log_loss"] for result in found] for name, found in grids.items()}
    losses["truth"] = [turn.log_loss[TUNING:, 360:].mean(1)]
    errors = {result.learner: result.steps for result in jumped}
    return rows, draw_drift(turn.weights, beliefs, errors, rates, losses)


def _rate(drift: learners.AbstractDrift) -> float:
    """How much is forgotten in a step."""
    if isinstance(drift, learners.ExponentialForgetting):
        return 1 - drift.factor
    if isinstance(drift, learners.Wiener | learners.OrnsteinUhlenbeck | learners.BayesianForgetting):
        return drift.rate
    return 0.0


NAMES = {
    "none": "no drift",
    "wiener": "Wiener",
    "ou": "Ornstein-Uhlenbeck",
    "forgetting": "Bayesian forgetting",
    "exponential": "exponential forgetting",
    "shrink": "shrink and perturb",
}
HUES = dict(zip(NAMES, (COLOURS[6], *COLOURS[:5]), strict=True))
_DASHES = (0, (4, 3))


def draw_drift(
    weights: Tensor,
    beliefs: dict[str, tuple[Tensor, Tensor]],
    errors: dict[str, Tensor],
    rates: dict[str, list[float]],
    losses: dict[str, list[Tensor]],
) -> Figure:
    """Beliefs over the weights of one stream that turns; errors where classes jump; and what a rate does.

    Args:
        weights: The true ones, (time, 2).
        beliefs: Means and standard deviations (time, 2) by drift.
        errors: Of the probability by drift, (stream, time).
        rates: Of the grid, by drift.
        losses: Log-losses on streams that turn, (stream,) for each rate; and of the "truth".
    """
    figure = Figure(figsize=(11.0, 6.6), layout="constrained")
    grid = figure.add_gridspec(2, 3)
    first = None
    for place, (name, (mean, deviation)) in enumerate(beliefs.items()):
        axis = figure.add_subplot(grid[0, place], sharey=first)
        first = first or axis
        _draw_belief(axis, weights, mean, deviation)
        style(axis, f"Turning boundary, {NAMES[name]}")
        axis.set_xlabel("step", fontsize=9)
    assert first is not None
    first.set_ylabel("weights", fontsize=9)
    first.set_ylim(-32, 32)
    first.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    _draw_recovery(figure.add_subplot(grid[1, :2]), errors)
    _draw_rates(figure.add_subplot(grid[1, 2]), rates, losses)
    return figure


def _draw_belief(axis: Axes, weights: Tensor, mean: Tensor, deviation: Tensor, shown: int = 288) -> None:
    """Two weights over the first steps."""
    steps = torch.arange(shown)
    for k, label in enumerate(("first", "second")):
        low, high = mean[:shown, k] - 2 * deviation[:shown, k], mean[:shown, k] + 2 * deviation[:shown, k]
        axis.fill_between(steps, low, high, color=COLOURS[k], alpha=0.25, linewidth=0)
        axis.plot(steps, mean[:shown, k], color=COLOURS[k], linewidth=1.3, label=label)
        axis.plot(
            steps, weights[:shown, k], color=OBSERVED, linewidth=0.8, linestyle=_DASHES, label=None if k else "true"
        )
    axis.set_xlim(0, shown)


def _draw_recovery(axis: Axes, errors: dict[str, Tensor], before: int = 25, after: int = 150) -> None:
    """Errors around the change, means over five steps."""
    for name, values in errors.items():
        half = values.shape[1] // 2
        recent = values.unfold(1, 5, 1).mean(-1)[:, half - before - 4 : half + after - 4]
        band(axis, torch.arange(-before, after), recent, color=HUES[name], label=NAMES[name])
    axis.axvline(0, color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
    axis.set_xlim(-before, after - 1)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("steps after the change", fontsize=9)
    axis.set_ylabel("error of the probability, mean of five", fontsize=9)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    style(axis, "A quarter turn at once")


def _draw_rates(axis: Axes, rates: dict[str, list[float]], losses: dict[str, list[Tensor]]) -> None:
    """Log-losses against rates; lines for the extremes."""
    for name, text, colour in (("none", "no drift", HUES["none"]), ("truth", "true weights", OBSERVED)):
        level = losses[name][0].mean().item()
        axis.axhline(level, color=colour, linewidth=1.2, linestyle=_DASHES)
        axis.annotate(text, (1e-3, level), xytext=(0, 3), textcoords="offset points", fontsize=8, color=colour)
    for name in ("wiener", "ou", "forgetting", "exponential"):
        kept = [(x, y) for x, y in zip(rates[name], losses[name], strict=True) if bool(y.isfinite().all())]
        values = torch.stack([y for _, y in kept], 1)
        dashes = _DASHES if name == "exponential" else "-"  # it covers Bayesian forgetting
        look = {"color": HUES[name], "marker": "o", "markersize": 3, "linestyle": dashes}
        band(axis, torch.tensor([x for x, _ in kept]), values, **look)
    axis.set(xscale="log", yscale="log")
    axis.set_ylim(0.045, 1.0)
    axis.set_yticks([0.05, 0.1, 0.2, 0.5, 1.0], ["0.05", "0.1", "0.2", "0.5", "1"])
    axis.set_yticks([], minor=True)
    axis.set_xlabel("rate", fontsize=9)
    axis.set_ylabel("log-loss (nats)", fontsize=9)
    style(axis, "Turning boundary, all rates")
