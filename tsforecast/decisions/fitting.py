"""Networks fitted to rewards by gradient descent."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.networks.network import AbstractNetwork


@dataclasses.dataclass(frozen=True)
class Fit:
    """Loss of a network: L(w) = mean_i c_i (f(x_i; w) - r_i)^2 / 2.

    Attributes:
        network: With one output.
        inputs: Of the network.
        targets: Rewards r.
        importance: How much each row counts, c, perhaps for each of several networks; None for once.
        anchor: Weights towards which others decay; None for zeros.
        perturb: What is done to the weights before each step takes its gradient, such as dropout.
    """

    network: AbstractNetwork
    inputs: Float[Tensor, "row input"]
    targets: Float[Tensor, " row"]
    importance: Float[Tensor, "*member row"] | None = None
    anchor: Float[Tensor, " weight"] | None = None
    perturb: Callable[[Tensor], Tensor] | None = None

    def loss(self, weights: Float[Tensor, "*member weight"], rows: Tensor | slice) -> Float[Tensor, ""]:
        """Return L over some of the rows; of several networks the sum."""
        used = weights if self.perturb is None else self.perturb(weights)
        network = self.network if used.ndim == 1 else torch.func.vmap(self.network, (0, None))
        squares = (network(used, self.inputs[rows])[..., 0] - self.targets[rows]).square()
        if self.importance is not None:
            squares = squares * self.importance[..., rows]
        return 0.5 * squares.mean(-1).sum()  # members do not touch each other: the sum has the slope of each


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
        self, fit: Fit, weights: Float[Tensor, "*member weight"], generator: torch.Generator
    ) -> Float[Tensor, "*member weight"]:
        """Return the weights after all steps.

        Args:
            fit: What is minimised.
            weights: To begin with, perhaps of several networks. These share the rows of each step.
            generator: Of the rows of each step.
        """
        return self.iterates(fit, weights, generator)[-1]

    def iterates(
        self, fit: Fit, weights: Float[Tensor, "*member weight"], generator: torch.Generator, every: int = 0
    ) -> Float[Tensor, "iterate *member weight"]:
        """Return the weights after every so many steps, and in the end.

        Args:
            fit: As for `fit`.
            weights: As for `fit`.
            generator: As for `fit`.
            every: Steps between two iterates; 0 for the last alone.
        """
        theta = weights.detach().clone().requires_grad_()
        optimiser = torch.optim.Adam([theta], lr=self.rate)
        kept: list[Tensor] = []
        for step in range(self.steps):
            rows: Tensor | slice = slice(None)
            if len(fit.targets) > self.batch:
                rows = torch.randint(len(fit.targets), (self.batch,), generator=generator)
            with torch.enable_grad():
                loss = fit.loss(theta, rows)
                if self.decay:
                    away = theta if fit.anchor is None else theta - fit.anchor
                    loss = loss + 0.5 * self.decay * away.square().sum()
                (theta.grad,) = torch.autograd.grad(loss, theta)
            optimiser.step()
            if every and step % every == every - 1 and step < self.steps - 1:
                kept.append(theta.detach().clone())
        return torch.stack([*kept, theta.detach()])


def gradient_step(
    fit: Fit, weights: Float[Tensor, " weight"], rate: float, longest: float = 5.0
) -> Float[Tensor, " weight"]:
    """Return the weights after one plain step down the mean of squared errors.

    Args:
        fit: A network with one output, and its data; all rows count once.
        weights: To begin with.
        rate: Times the gradient is the step.
        longest: Gradient that counts at most.
    """
    theta = weights.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = (fit.network(theta, fit.inputs)[:, 0] - fit.targets).square().mean()
        (gradient,) = torch.autograd.grad(loss, theta)
    shorter = (longest / gradient.norm().clamp_min(longest)).clamp_max(1.0)
    return weights.detach() - rate * shorter * gradient
