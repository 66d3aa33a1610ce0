"""What the toys share: streams learnt together, scores over streams, and how pictures look."""

import dataclasses
import math
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from tsforecast import learners
from tsforecast.core import Gaussian
from tsforecast.core.loop.scan import scan
from tsforecast.learners.likelihoods.predictions import Prediction
from tsforecast.learners.loop import AbstractLearner, run

TUNING = 10  # streams that choose settings
# The first of each grid is the library's default.
Weights = dict[str, list[learners.AbstractWeight]]
WEIGHTS: Weights = {
    "ekf": [learners.Unweighted()],
    "wolf, power 1": [learners.InverseMultiquadric(threshold, power=1) for threshold in (3.0, 1.0, 2.0, 6.0, 12.0)],
    "wolf, power 2": [learners.InverseMultiquadric(threshold, power=2) for threshold in (3.0, 2.0, 6.0, 12.0, 24.0)],
    "gate": [learners.Gate(threshold) for threshold in (4.0, 2.0, 8.0, 16.0, 32.0)],
    "gate, predictive": [learners.Gate(threshold, norm="predictive") for threshold in (4.0, 2.0, 3.0, 6.0, 8.0)],
}
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """What one learner reached on all streams.

    Attributes:
        learner: Its name.
        settings: What was chosen, as Python writes it.
        scores: By metric, one number for each stream.
        steps: What the picture draws, (stream, time).
    """

    learner: str
    settings: str
    scores: dict[str, Tensor]
    steps: Tensor

    def without(self, count: int) -> "Result":
        """Without the first streams."""
        scores = {metric: values[count:] for metric, values in self.scores.items()}
        return Result(self.learner, self.settings, scores, self.steps[count:])


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean over streams, and its standard error."""
    return values.mean().item(), (values.std() / math.sqrt(len(values))).item()


def median_and_error(values: Tensor) -> tuple[float, float]:
    """Median over streams, and its standard error by a thousand bootstrap samples."""
    draws = torch.randint(len(values), (1000, len(values)), generator=torch.Generator().manual_seed(0))
    return values.quantile(0.5).item(), values[draws].quantile(0.5, 1).std().item()


def rows_of(toy: str, results: list[Result], reference: str, medians: bool = False) -> list[Row]:
    """Means and paired differences from a learner."""
    rows = []
    other = next(result for result in results if result.learner == reference)
    for result in results:
        for metric, values in result.scores.items():
            found = {metric: mean_and_error(values)}
            if medians:
                found[f"median {metric}"] = median_and_error(values)
            if result is not other and metric in other.scores:
                found[f"{metric} minus {reference}"] = mean_and_error(values - other.scores[metric])
            for name, (mean, error) in found.items():
                row = {"toy": toy, "learner": result.learner, "settings": result.settings, "metric": name}
                row |= {"mean": f"{mean:.5g}", "standard_error": f"{error:.2g}", "seeds": len(values)}
                rows.append(row)
    return rows


def choose(found: list[Result], metric: str, tuning: int) -> tuple[int, list[Result]]:
    """The place of the least by the first `tuning` streams; and all results without these streams."""
    means = [result.scores[metric][:tuning].mean().nan_to_num(math.inf).item() for result in found]
    return means.index(min(means)), [result.without(tuning) for result in found]


def with_default(place: int, kept: list[Result]) -> list[Result]:
    """The result that was chosen and, where it is another, that of the library's default."""
    default = dataclasses.replace(kept[0], learner=f"{kept[0].learner}, default")
    return [kept[place], default] if place else [kept[0]]


def learn(
    learner: AbstractLearner[Any], inputs: Tensor, target: Tensor, means: Tensor | None = None
) -> tuple[Any, Prediction]:
    """All streams as one program: beliefs after the last step, and predictions (stream, time, point, output).

    Args:
        learner: Settings.
        inputs: (stream, time, point, feature).
        target: (stream, time, point, target).
        means: Weights to begin with, (stream, weight); None for those of the learner.
    """

    def one(inputs: Tensor, target: Tensor, mean: Tensor | None) -> tuple[Any, Prediction]:
        belief = learner.init()
        belief = belief if mean is None else dataclasses.replace(belief, mean=mean)
        return run(learner, belief, inputs, target)

    with torch.no_grad():
        return torch.func.vmap(one, (0, 0, None if means is None else 0))(inputs, target, means)


def trace(learner: AbstractLearner[Any], inputs: Tensor, target: Tensor) -> Gaussian:
    """Beliefs after every step of all streams, (stream, time, weight); the arguments are those of `learn`."""

    def step(belief: Any, x: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
        belief, _ = learner.step(belief, *x)
        return belief, belief

    with torch.no_grad():
        return torch.func.vmap(lambda *xs: scan(step, learner.init(), xs)[1])(inputs, target)


def style(axis: Axes, title: str) -> None:
    """Plain axes with a title on the left."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)


def band(axis: Axes, x: Tensor, values: Tensor, log: bool = False, **look: Any) -> None:
    """Mean over streams (the first dimension), geometric if `log`, with two standard errors."""
    values = values.log() if log else values
    mean, error = values.mean(0), values.std(0) / math.sqrt(len(values))
    low, middle, high = (line.exp() if log else line for line in (mean - 2 * error, mean, mean + 2 * error))
    axis.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    axis.plot(x, middle, linewidth=1.5, **look)
