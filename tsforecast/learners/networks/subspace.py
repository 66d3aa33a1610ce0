"""Networks with weights in a subspace of all weights."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.shapes import Inputs, Outputs, Places, Weights


@dataclasses.dataclass(frozen=True)
class Subspace(AbstractNetwork):
    """A network whose weights are `origin + basis z`; a belief over z is one over a subspace of the weights.

    Attributes:
        network: Of which the weights are.
        origin: A point in the space of its weights.
        basis: Directions in it, as columns.
    """

    network: AbstractNetwork
    origin: Weights
    basis: Float[Tensor, "weight coordinate"]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return one number: all coordinates are one layer."""
        return (self.basis.shape[-1],)

    def weights(self, coordinates: Float[Tensor, " coordinate"]) -> Weights:
        """Return the point in the space of the network's weights."""
        return self.origin + self.basis @ coordinates

    def __call__(self, weights: Float[Tensor, " coordinate"], inputs: Inputs) -> Outputs:
        """Return the outputs at the point that the coordinates name."""
        return self.network(self.weights(weights), inputs)

    def linearise(
        self, weights: Float[Tensor, " coordinate"], inputs: Inputs
    ) -> tuple[Outputs, Float[Tensor, "point output coordinate"]]:
        """Return the network's Jacobian along the directions."""
        outputs, jacobian = self.network.linearise(self.weights(weights), inputs)
        return outputs, jacobian @ self.basis

    def adopt(self, smaller: AbstractNetwork) -> tuple["Subspace", Places]:
        """Coordinates stay; directions are those of the smaller network, and in weights that are new those of this."""
        if not isinstance(smaller, Subspace) or smaller.basis.shape[-1] != self.basis.shape[-1]:
            raise ValueError(f"expected a subspace of {self.basis.shape[-1]} dimensions, got {smaller}")
        network, places = self.network.adopt(smaller.network)
        places = places.to(self.origin.device)
        origin = self.origin.index_copy(0, places, smaller.origin)
        basis = self.basis.index_copy(0, places, smaller.basis)
        return Subspace(network, origin, basis), torch.arange(basis.shape[-1], device=basis.device)


def random_basis(
    size: int,
    dim: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Float[Tensor, "weight coordinate"]:
    """Return random Gaussian directions of length one."""
    # Nearly orthogonal, since weights are many.
    basis = torch.randn(size, dim, generator=generator, dtype=dtype, device=device)
    return basis / basis.norm(dim=0)


def basis_of_iterates(iterates: Float[Tensor, "iterate weight"], dim: int) -> Float[Tensor, "weight coordinate"]:
    """Return the directions of most difference between iterates of a warm-up: leading right singular vectors, centred.

    Raises:
        ValueError: If there are fewer iterates than directions asked for.
    """
    if dim > min(iterates.shape):
        raise ValueError(f"expected at least {dim} iterates of {dim} weights or more, got {tuple(iterates.shape)}")
    # Iterates are far fewer than weights.
    _, _, right = torch.linalg.svd(iterates - iterates.mean(0), full_matrices=False)
    return right[:dim].T
