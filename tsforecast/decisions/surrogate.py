"""A network that stands for a costly function: fitted to its values by any learner, and drawn from its belief."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.config import LearnerConfig
from tsforecast.learners.layer_chain import LayerChain
from tsforecast.learners.likelihood import GaussianLikelihood
from tsforecast.learners.named import LEARNERS

_BIAS = 0.1  # standard deviation of biases behind the first layer


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """A network of tanh units, whose weights a learner knows by all values together.

    Attributes:
        learner: Settings of the learner.
        hidden: Widths of the hidden layers.
        scale: Of the first layer's weights: the larger, the more the function bends between -1 and 1.
        noise: Variance of standardised values around the function.

    Raises:
        ValueError: If the learner learns classes alone, or a number is outside of its range.
    """

    learner: LearnerConfig = dataclasses.field(default_factory=lambda: LearnerConfig("vd-ekf"))
    hidden: tuple[int, ...] = (100,)
    scale: float = 2.0
    noise: float = 1e-3

    def __post_init__(self) -> None:
        if not LEARNERS[self.learner.learner].numbers:
            raise ValueError(f"expected a learner of numbers, got {self.learner.learner!r}, which learns classes alone")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"expected at least one hidden layer of positive width, got {self.hidden}")
        for name, value in (("scale", self.scale), ("noise", self.noise)):
            if not 0 < value < math.inf:
                raise ValueError(f"expected {name} to be positive and finite, got {value!r}")

    def draw(
        self,
        inputs: Float[Tensor, "point dim"],
        values: Float[Tensor, " point"],
        seed: int,
    ) -> Callable[[Tensor], Tensor]:
        """Return one function from the belief given some values: f(x; theta) with theta drawn from it.

        Args:
            inputs: Where the function is known, of the order of 1.
            values: There, standardised.
            seed: Of initial weights, of what the learner draws and of the draw.
        """
        network, mean = self._network(inputs.shape[-1], seed)
        learner = self.learner.build(network, GaussianLikelihood(self.noise), mean, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            belief = learner.update(learner.init(), inputs, values.unsqueeze(-1), generator=generator)
            weights = learner.sample(belief, 1, generator)[0]
        return lambda x: learner.network(weights, x)[:, 0]

    def _network(self, dim: int, seed: int) -> tuple[LayerChain, Tensor]:
        """Return the network with random weights, but for the last layer: it begins as 0 everywhere."""
        generator = torch.Generator().manual_seed(seed)
        widths = (dim, *self.hidden, 1)
        parts = []
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            wide, shift = (self.scale, self.scale) if k == 0 else (1.0, _BIAS)
            if k == len(widths) - 2:
                wide = shift = 0.0
            draw = torch.randn(fan_out, fan_in + 1, generator=generator, dtype=torch.float64)
            parts += [(wide * fan_in**-0.5 * draw[:, :-1]).flatten(), shift * draw[:, -1]]
        activations = (*(nn.Tanh for _ in self.hidden), nn.Identity)
        return LayerChain(widths, activations, (True,) * len(activations)), torch.cat(parts)
