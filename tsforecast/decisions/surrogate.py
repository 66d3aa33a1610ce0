"""A network that stands for a costly function: its last layer is fitted to values by any learner, and drawn."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.config import LEARNERS, LearnerConfig
from tsforecast.learners.likelihoods.likelihood import GaussianLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain

# Variances of the noise of which `smooth` takes the likeliest.
_NOISES = tuple(10 ** (k / 2) for k in range(-8, 3))
_BIAS = 0.1  # standard deviation of biases behind the first layer
_WIDTH = 100  # of a last hidden layer whose units are not scaled; others are, so that the prior is the same


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """A network of tanh units with random hidden layers, whose last layer a learner knows by all values together.

    The function is then linear in what is learnt, so that a draw from the belief of `ekf` is one from the posterior.
    Were all layers drawn, the function would bend in ways that no value speaks for, at the values, too. With one wide
    layer it is a Gaussian process (Neal 1996), drawn as in Rahimi and Recht, *Random features* (2007).

    Attributes:
        learner: Settings of the learner.
        hidden: Widths of the hidden layers.
        scale: Of the first layer's weights: the larger, the more the function bends between -1 and 1.
        noise: Variance of standardised values around the function.

    Raises:
        ValueError: If the learner learns classes alone, or a number is outside of its range.
    """

    learner: LearnerConfig = dataclasses.field(default_factory=lambda: LearnerConfig("vd-ekf"))
    hidden: tuple[int, ...] = (300,)
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
        self, inputs: Float[Tensor, "point dim"], values: Float[Tensor, " point"], seed: int
    ) -> Callable[[Tensor], Tensor]:
        """Return one function from the belief given some values: w' phi(x) with weights w drawn from it.

        Args:
            inputs: Where the function is known, of the order of 1.
            values: There, standardised.
            seed: Of initial weights, of what the learner draws and of the draw.
        """
        features = self._features(inputs.shape[-1], seed)
        network = LayerChain((self.hidden[-1], 1), (nn.Identity,), (True,))
        zeros = torch.zeros(network.size, dtype=torch.float64)
        learner = self.learner.build(network, GaussianLikelihood(self.noise), zeros, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            belief = learner.update(learner.init(), features(inputs), values.unsqueeze(-1), generator=generator)
            weights = learner.sample(belief, 1, generator)[0]
        return lambda x: learner.network(weights, features(x))[:, 0]

    def smooth(
        self, inputs: Float[Tensor, "point dim"], values: Float[Tensor, " point"], seed: int
    ) -> tuple[Float[Tensor, " point"], Float[Tensor, " point"]]:
        """Return mean and standard deviation of the function where it was evaluated, given all values.

        It is the exact regression on the random features, whatever the learner: with K = v Phi Phi' the mean is
        K (K + noise I)^-1 y. The noise is that of a grid with the largest evidence.

        Args:
            inputs: Where the function was evaluated, of the order of 1.
            values: There, standardised.
            seed: Of the hidden layers.
        """
        layer = self._features(inputs.shape[-1], seed)(inputs)
        phi = torch.cat([layer, torch.ones_like(layer[:, :1])], -1)  # the bias of the last layer
        extent, vectors = torch.linalg.eigh(self.learner.variance * phi @ phi.mT)
        # One decomposition serves every noise.
        seen, noises = vectors.mT @ values, values.new_tensor(_NOISES).unsqueeze(-1)
        total = extent.clamp_min(0) + noises
        best = (seen.square() / total + total.log()).sum(-1).argmin()  # minus twice the log evidence, in the basis of K
        kept = 1 - noises[best] / total[best]
        # K - K (K + n I)^-1 K is n K (K + n I)^-1.
        return vectors @ (kept * seen), (vectors.square() @ (noises[best] * kept)).clamp_min(0).sqrt()

    def _features(self, dim: int, seed: int) -> Callable[[Tensor], Tensor]:
        """Return the last hidden layer of a network with random weights, as a function."""
        generator = torch.Generator().manual_seed(seed)
        widths = (dim, *self.hidden)
        parts = []
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            wide, shift = (self.scale, self.scale) if k == 0 else (1.0, _BIAS)
            draw = torch.randn(fan_out, fan_in + 1, generator=generator, dtype=torch.float64)
            # Sums of the same variance, whatever the width.
            parts += [(wide * fan_in**-0.5 * draw[:, :-1]).flatten(), shift * draw[:, -1]]
        layers = len(self.hidden)
        network, weights = LayerChain(widths, (nn.Tanh,) * layers, (True,) * layers), torch.cat(parts)
        return lambda x: network(weights, x) * (_WIDTH / self.hidden[-1]) ** 0.5
