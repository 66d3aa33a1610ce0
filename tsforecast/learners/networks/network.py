"""Networks as functions of one flat vector of weights, and their Jacobians."""

import abc
import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.core.torch_internals import normal
from tsforecast.learners.shapes import Inputs, Jacobian, OutputCov, Outputs, Places, Weights


class AbstractNetwork(abc.ABC):
    """f(x; theta): inputs of a number of points to outputs, given all weights as one vector."""

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each layer, in the order of the vector."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays that the weights are, output first; each layer is one vector where more is not known."""
        return tuple((size,) for size in self.sizes)

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return sum(self.sizes)

    @abc.abstractmethod
    def __call__(self, weights: Weights, inputs: Inputs) -> Outputs:
        """Return the outputs: means, log-rates or logits."""

    @abc.abstractmethod
    def linearise(self, weights: Weights, inputs: Inputs) -> tuple[Outputs, Jacobian]:
        """Return the outputs, and their Jacobian with respect to the weights."""

    def squares(self, weights: Weights, inputs: Inputs, rows: Float[Tensor, "point row output"]) -> Weights:
        """Return the diagonal of the sum of J' R' R J over points, for the rows R and the Jacobian J of each."""
        return torch.bmm(rows, self.linearise(weights, inputs)[1]).square().sum((0, 1))

    def terms(
        self,
        weights: Weights,
        inputs: Inputs,
        rows: Float[Tensor, "point row output"],
        residual: Float[Tensor, "point row"],
    ) -> tuple[Float[Tensor, "point weight"], Float[Tensor, "point weight"]]:
        """Return J' R' e and the diagonal of J' R' R J of each point, for its rows R and its residual e."""
        matrix = torch.bmm(rows, self.linearise(weights, inputs)[1])
        return torch.bmm(residual.unsqueeze(1), matrix).squeeze(1), matrix.square().sum(1)

    def spread(self, weights: Weights, variance: Weights, inputs: Inputs) -> tuple[Outputs, OutputCov]:
        """Return the outputs, and J diag(v) J' of each point: their covariance where weights are independent."""
        outputs, jacobian = self.linearise(weights, inputs)
        return outputs, (jacobian * variance) @ jacobian.mT

    def draw(
        self,
        mean: Float[Tensor, "group weight"],
        variance: Float[Tensor, "group weight"],
        inputs: Float[Tensor, "group row *feature"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "group row output"]:
        """Return the outputs of each row at weights of its own, drawn independently.

        Args:
            mean: Of the weights, for each group of rows.
            variance: Of the weights.
            inputs: Of the rows.
            generator: Of random numbers.
        """
        shape = (*inputs.shape[:2], mean.shape[-1])
        noise = normal(shape, mean, generator)
        weights = mean.unsqueeze(1) + variance.sqrt().unsqueeze(1) * noise

        def one(theta: Tensor, x: Tensor) -> Tensor:
            return self(theta, x.unsqueeze(0)).squeeze(0)  # modules expect a batch of points

        return torch.func.vmap(torch.func.vmap(one))(weights, inputs)

    def adopt(self, smaller: "AbstractNetwork") -> tuple["AbstractNetwork", Places]:
        """Return the places of a smaller network's weights in this one, with more inputs, outputs or units.

        Args:
            smaller: The same layers, of which none is larger.

        Returns:
            This network, with all that the smaller one holds beside its weights; and the place of each of its weights.

        Raises:
            ValueError: If the smaller network has no place in this one, as in any whose size is fixed.
        """
        raise ValueError(f"expected a network that can grow, got {type(self).__name__}")


@dataclasses.dataclass(frozen=True)
class ModuleNetwork(AbstractNetwork):
    """Any torch module that maps (point, *feature) to (point, output), or to (point,) for one output.

    Its parameters are the weights; its buffers stay as they are (put it into evaluation mode).
    """

    module: nn.Module

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each submodule that has some of its own."""
        own: dict[str, int] = {}
        for name, p in self.module.named_parameters():
            owner = name.rpartition(".")[0]
            own[owner] = own.get(owner, 0) + p.numel()
        return tuple(own.values())

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all parameters."""
        return tuple(tuple(p.shape) for p in self.module.parameters())

    def __call__(self, weights: Weights, inputs: Inputs) -> Outputs:
        """Return the outputs, by `torch.func.functional_call`."""
        named = dict(self.module.named_parameters())
        parts = weights.split([p.numel() for p in named.values()])
        values = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
        outputs = torch.func.functional_call(self.module, values, (inputs,))
        return outputs if outputs.ndim > 1 else outputs.unsqueeze(-1)

    def linearise(self, weights: Weights, inputs: Inputs) -> tuple[Outputs, Jacobian]:
        """Differentiate in reverse mode, with one pass for each output."""

        def one(theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self(theta, x.unsqueeze(0)).squeeze(0)
            return outputs, outputs

        # Outputs come with the Jacobian, from one pass.
        jacobian, outputs = torch.func.vmap(torch.func.jacrev(one, has_aux=True), (None, 0))(weights, inputs)
        return outputs, jacobian

    def adopt(self, smaller: AbstractNetwork) -> tuple["ModuleNetwork", Places]:
        """Match the names of the parameters; buffers are those of this module."""
        mine = {name: tuple(p.shape) for name, p in self.module.named_parameters()}
        its = {}
        if isinstance(smaller, ModuleNetwork):
            its = {name: tuple(p.shape) for name, p in smaller.module.named_parameters()}
        if list(mine) != list(its):
            raise ValueError(f"expected a module with parameters {', '.join(mine)}, got {', '.join(its) or smaller}")
        return self, places_within(list(its.values()), list(mine.values()))


def places_within(smaller: list[tuple[int, ...]], larger: list[tuple[int, ...]]) -> Tensor:
    """Return the places of arrays in larger ones, one after the other: all begin in the same corner."""
    places, start = [], 0
    for its, mine in zip(smaller, larger, strict=True):
        if len(its) != len(mine) or any(a > b for a, b in zip(its, mine, strict=True)):
            raise ValueError(f"expected layers that have grown, got {tuple(mine)} after {tuple(its)}")
        grid = torch.arange(start, start + math.prod(mine)).view(mine)
        places.append(grid[tuple(map(slice, its))].flatten())
        start += math.prod(mine)
    return torch.cat(places)


def weights_of(module: nn.Module) -> Weights:
    """The parameters of a module as one vector, in the order of `as_network`."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def uniform_prior(sizes: tuple[int, ...], variance: float | tuple[float, ...]) -> Weights:
    """Prior variances of all weights, the same for all or one for each layer."""
    each = variance if isinstance(variance, tuple) else (variance,) * len(sizes)
    if len(each) != len(sizes) or min(each) <= 0 or not all(map(math.isfinite, each)):
        raise ValueError(f"expected a positive variance, or one for each of {len(sizes)} layers, got {variance}")
    return torch.cat(
        [torch.full((size,), float(value), dtype=torch.float64) for size, value in zip(sizes, each, strict=True)]
    )
