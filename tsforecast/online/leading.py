"""The first outputs of a network, where it has more than are in use."""

import dataclasses

import torch
from torch import Tensor

from tsforecast.learners import AbstractNetwork


@dataclasses.dataclass(frozen=True)
class Leading(AbstractNetwork):
    """The first outputs of a network: weights of the others have no influence and keep their prior.

    Attributes:
        network: The network with all outputs.
        outputs: Number of those in use.
    """

    network: AbstractNetwork
    outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of weights of each layer of the network."""
        return self.network.sizes

    def __call__(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """Return the first outputs."""
        return self.network(weights, inputs)[:, : self.outputs]

    def linearise(self, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first outputs, and their rows of the Jacobian."""
        outputs, jacobian = self.network.linearise(weights, inputs)
        return outputs[:, : self.outputs], jacobian[:, : self.outputs]

    def draw(self, mean: Tensor, variance: Tensor, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the first outputs, drawn."""
        return self.network.draw(mean, variance, inputs, generator)[..., : self.outputs]

    def adopt(self, smaller: AbstractNetwork) -> tuple["Leading", Tensor]:
        """Return the same outputs of the network that adopts, and the places of the smaller one's weights."""
        if not isinstance(smaller, Leading):
            raise ValueError(f"expected the first outputs of a network, got {smaller}")
        network, places = self.network.adopt(smaller.network)
        return Leading(network, self.outputs), places
