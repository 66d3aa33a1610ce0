"""Networks fitted to rewards by gradient descent."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.network import AbstractNetwork


@dataclasses.dataclass(frozen=True)
class Descent:
    """Adam on the mean squared error, with weight decay towards an anchor (Kingma and Ba 2015).

    Attributes:
        steps: Number of steps.
        rate: Learning rate.
        batch: Rows of a step, drawn with replacement; all where there are fewer.
        decay: Of the penalty decay |w - anchor|^2 / 2, beside the mean of squares / 2.
    """

    steps: int = 100
    rate: float = 0.01
    batch: int = 512
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch < 1 or not self.rate > 0 or self.decay < 0:
            raise ValueError(f"expected steps of at least 0, rows and a positive rate, got {self}")

    def fit(
        self,
        network: AbstractNetwork,
        weights: Float[Tensor, " weight"],
        inputs: Float[Tensor, "row input"],
        targets: Float[Tensor, " row"],
        generator: torch.Generator,
        anchor: Float[Tensor, " weight"] | None = None,
        importance: Float[Tensor, " row"] | None = None,
        perturb: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, " weight"]:
        """Return the weights after all steps.

        Args:
            network: With one output.
            weights: To begin with.
            inputs: Of the network.
            targets: Rewards.
            generator: Of the rows of each step.
            anchor: Of the decay; None for zeros.
            importance: How much each row counts; None for once.
            perturb: What is done to the weights before each step takes its gradient, such as dropout.
        """
        return self.iterates(network, weights, inputs, targets, generator, anchor, importance, perturb)[-1]

    def iterates(
        self,
        network: AbstractNetwork,
        weights: Float[Tensor, " weight"],
        inputs: Float[Tensor, "row input"],
        targets: Float[Tensor, " row"],
        generator: torch.Generator,
        anchor: Float[Tensor, " weight"] | None = None,
        importance: Float[Tensor, " row"] | None = None,
        perturb: Callable[[Tensor], Tensor] | None = None,
        every: int = 0,
    ) -> Float[Tensor, "iterate weight"]:
        """Return the weights after every so many steps, and in the end.

        Args:
            network: As for `fit`.
            weights: As for `fit`.
            inputs: As for `fit`.
            targets: As for `fit`.
            generator: As for `fit`.
            anchor: As for `fit`.
            importance: As for `fit`.
            perturb: As for `fit`.
            every: Steps between two iterates; 0 for the last alone.
        """
        theta = weights.detach().clone().requires_grad_()
        optimiser = torch.optim.Adam([theta], lr=self.rate)
        kept: list[Tensor] = []
        for step in range(self.steps):
            rows: Tensor | slice = slice(None)
            if len(targets) > self.batch:
                rows = torch.randint(len(targets), (self.batch,), generator=generator)
            with torch.enable_grad():
                used = theta if perturb is None else perturb(theta)
                squares = (network(used, inputs[rows])[:, 0] - targets[rows]).square()
                if importance is not None:
                    squares = squares * importance[rows]
                loss = 0.5 * squares.mean()
                if self.decay:
                    loss = loss + 0.5 * self.decay * (theta if anchor is None else theta - anchor).square().sum()
                (theta.grad,) = torch.autograd.grad(loss, theta)
            optimiser.step()
            if every and step % every == every - 1 and step < self.steps - 1:
                kept.append(theta.detach().clone())
        return torch.stack([*kept, theta.detach()])


def gradient_step(
    network: AbstractNetwork,
    weights: Float[Tensor, " weight"],
    inputs: Float[Tensor, "row input"],
    targets: Float[Tensor, " row"],
    rate: float,
    longest: float = 5.0,
) -> Float[Tensor, " weight"]:
    """Return the weights after one plain step down the mean of squared errors.

    Args:
        network: With one output.
        weights: To begin with.
        inputs: Of the network.
        targets: Rewards.
        rate: Times the gradient is the step.
        longest: Gradient that counts at most.
    """
    theta = weights.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = (network(theta, inputs)[:, 0] - targets).square().mean()
        (gradient,) = torch.autograd.grad(loss, theta)
    shorter = (longest / gradient.norm().clamp_min(longest)).clamp_max(1.0)
    return weights.detach() - rate * shorter * gradient
