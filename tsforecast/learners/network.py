"""Networks as functions of one flat vector of weights, and their Jacobians."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tsforecast.core.linalg import is_transformed

# Activations whose slope is a function of what they return.
_SLOPES: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    nn.Tanh: (torch.tanh, lambda a: 1 - a * a),
    nn.ReLU: (torch.relu, torch.sign),
    nn.Sigmoid: (torch.sigmoid, lambda a: a * (1 - a)),
}

# Weights from which on a Jacobian is written into one piece of memory.
_MANY = 1 << 15


class AbstractNetwork(abc.ABC):
    """f(x; theta): inputs of a number of points to outputs, given all weights as one vector."""

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each layer, in the order of the vector."""

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return sum(self.sizes)

    @abc.abstractmethod
    def __call__(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> Float[Tensor, "point output"]:
        """Outputs: means, log-rates or logits."""

    @abc.abstractmethod
    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> tuple[Float[Tensor, "point output"], Float[Tensor, "point output weight"]]:
        """Outputs, and their Jacobian with respect to the weights."""

    def adopt(self, smaller: "AbstractNetwork") -> tuple["AbstractNetwork", Int[Tensor, " weight"]]:
        """Where the weights of a smaller network belong in this one, which has more inputs, outputs or units.

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

    def __call__(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> Float[Tensor, "point output"]:
        """By `torch.func.functional_call`."""
        named = dict(self.module.named_parameters())
        parts = weights.split([p.numel() for p in named.values()])
        values = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
        outputs = torch.func.functional_call(self.module, values, (inputs,))
        return outputs if outputs.ndim > 1 else outputs.unsqueeze(-1)

    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> tuple[Float[Tensor, "point output"], Float[Tensor, "point output weight"]]:
        """By reverse-mode differentiation, one pass for each output."""

        def one(theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self(theta, x.unsqueeze(0)).squeeze(0)
            return outputs, outputs

        jacobian, outputs = torch.func.vmap(torch.func.jacrev(one, has_aux=True), (None, 0))(weights, inputs)
        return outputs, jacobian

    def adopt(self, smaller: AbstractNetwork) -> tuple["ModuleNetwork", Int[Tensor, " weight"]]:
        """By the names of the parameters; buffers are those of this module."""
        mine = {name: tuple(p.shape) for name, p in self.module.named_parameters()}
        its = {}
        if isinstance(smaller, ModuleNetwork):
            its = {name: tuple(p.shape) for name, p in smaller.module.named_parameters()}
        if list(mine) != list(its):
            raise ValueError(f"expected a module with parameters {', '.join(mine)}, got {', '.join(its) or smaller}")
        return self, _places(list(its.values()), list(mine.values()))


@dataclasses.dataclass(frozen=True)
class LayerChain(AbstractNetwork):
    """Linear layers with an activation after each: the Jacobian in closed form, far faster than differentiating.

    Attributes:
        widths: Of the input, the hidden layers, the output.
        activations: One for each layer; `nn.Identity` for none.
        biases: Whether each layer has one.
    """

    widths: tuple[int, ...]
    activations: tuple[type[nn.Module], ...]
    biases: tuple[bool, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each layer."""
        pairs = zip(self.widths, self.widths[1:], self.biases, strict=False)
        return tuple((fan_in + bias) * fan_out for fan_in, fan_out, bias in pairs)

    @functools.cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of all matrices and biases."""
        triples = zip(self.widths, self.widths[1:], self.biases, strict=False)
        return [shape for i, o, bias in triples for shape in (((o, i), (o,)) if bias else ((o, i),))]

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return [math.prod(shape) for shape in self._shapes]

    def _layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Matrix and bias of each layer."""
        flat = zip(weights.split_with_sizes(self._lengths), self._shapes, strict=True)
        parts = iter([part.view(shape) if len(shape) > 1 else part for part, shape in flat])
        return [(next(parts), next(parts) if bias else None) for bias in self.biases]

    def __call__(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> Float[Tensor, "point output"]:
        """Return the outputs, computed layer by layer."""
        return self._forward(self._layers(weights), inputs)[-1]

    def _forward(self, layers: list[tuple[Tensor, Tensor | None]], inputs: Tensor) -> list[Tensor]:
        """The inputs, and what every layer makes of them."""
        values = [inputs]
        for (matrix, bias), activation in zip(layers, self.activations, strict=True):
            x = nn.functional.linear(values[-1], matrix, bias)
            values.append(_SLOPES[activation][0](x) if activation in _SLOPES else x)
        return values

    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point *feature"]
    ) -> tuple[Float[Tensor, "point output"], Float[Tensor, "point output weight"]]:
        """From the last layer to the first, all outputs at once."""
        layers = self._layers(weights)
        values = self._forward(layers, inputs)
        count, outputs = values[-1].shape
        last = len(layers) - 1
        delta = torch.eye(outputs, dtype=weights.dtype, device=weights.device).expand(count, outputs, outputs)
        factors: list[tuple[Tensor, Tensor | None]] = []  # of a bias one, of a matrix that and what enters there
        for k in range(last, -1, -1):
            matrix, bias = layers[k]
            slope = _SLOPES[self.activations[k]][1] if self.activations[k] in _SLOPES else None
            if slope is not None:
                delta = delta * slope(values[k + 1]).unsqueeze(1)
            if bias is not None:
                factors.append((delta, None))
            factors.append((delta, values[k]))
            if k == last and slope is None:  # delta is the identity: a product with it costs as much as any other
                delta = matrix.expand(count, *matrix.shape)
            elif k:
                delta = delta @ matrix
        return values[-1], _jacobian(factors[::-1], weights)

    def adopt(self, smaller: AbstractNetwork) -> tuple["LayerChain", Int[Tensor, " weight"]]:
        """Find the places of the weights, layer by layer."""
        if not isinstance(smaller, LayerChain) or smaller.biases != self.biases:
            raise ValueError(f"expected a chain of {len(self.biases)} layers with the same biases, got {smaller}")
        return self, _places(smaller._shapes, self._shapes)


def _jacobian(factors: list[tuple[Tensor, Tensor | None]], weights: Tensor) -> Tensor:
    """(point, output, weight): of a bias a factor (point, output, fan-out), of a matrix its product with what enters.

    Of many weights each is written where it belongs, since new memory takes longer than the products.
    """
    tensors = (x for pair in factors for x in pair if x is not None)
    if len(weights) < _MANY or any(x.requires_grad or is_transformed(x) for x in tensors):
        return torch.cat([delta if value is None else _outer(delta, value) for delta, value in factors], -1)
    count, outputs = factors[0][0].shape[:2]
    jacobian = weights.new_empty(count, outputs, len(weights))
    widths = [delta.shape[-1] * (1 if value is None else value.shape[-1]) for delta, value in factors]
    for (delta, value), place in zip(factors, jacobian.split(widths, -1), strict=True):
        if value is None:
            place.copy_(delta)
        else:
            torch.mul(delta.unsqueeze(-1), value[:, None, None], out=place.unflatten(-1, (-1, value.shape[-1])))
    return jacobian


def _outer(delta: Tensor, value: Tensor) -> Tensor:
    """Their products for each point, in the order of a matrix."""
    count, outputs = delta.shape[:2]
    return torch.bmm(delta.reshape(count, -1, 1), value.reshape(count, 1, -1)).view(count, outputs, -1)


@dataclasses.dataclass(frozen=True)
class Subspace(AbstractNetwork):
    """A network whose weights are `origin + basis z`; a belief over z is one over a subspace of the weights.

    Attributes:
        network: Of which the weights are.
        origin: A point in the space of its weights.
        basis: Directions in it, as columns.
    """

    network: AbstractNetwork
    origin: Float[Tensor, " weight"]
    basis: Float[Tensor, "weight coordinate"]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All coordinates are one layer."""
        return (self.basis.shape[-1],)

    def weights(self, coordinates: Float[Tensor, " coordinate"]) -> Float[Tensor, " weight"]:
        """The point in the space of the network's weights."""
        return self.origin + self.basis @ coordinates

    def __call__(
        self, weights: Float[Tensor, " coordinate"], inputs: Float[Tensor, "point *feature"]
    ) -> Float[Tensor, "point output"]:
        """The network at the point that the coordinates name."""
        return self.network(self.weights(weights), inputs)

    def linearise(
        self, weights: Float[Tensor, " coordinate"], inputs: Float[Tensor, "point *feature"]
    ) -> tuple[Float[Tensor, "point output"], Float[Tensor, "point output coordinate"]]:
        """The network's Jacobian, along the directions."""
        outputs, jacobian = self.network.linearise(self.weights(weights), inputs)
        return outputs, jacobian @ self.basis

    def adopt(self, smaller: AbstractNetwork) -> tuple["Subspace", Int[Tensor, " weight"]]:
        """Coordinates stay; directions are those of the smaller network, and in weights that are new those of this."""
        if not isinstance(smaller, Subspace) or smaller.basis.shape[-1] != self.basis.shape[-1]:
            raise ValueError(f"expected a subspace of {self.basis.shape[-1]} dimensions, got {smaller}")
        network, places = self.network.adopt(smaller.network)
        places = places.to(self.origin.device)
        origin = self.origin.index_copy(0, places, smaller.origin)
        basis = self.basis.index_copy(0, places, smaller.basis)
        return Subspace(network, origin, basis), torch.arange(basis.shape[-1], device=basis.device)


def _places(smaller: list[tuple[int, ...]], larger: list[tuple[int, ...]]) -> Tensor:
    """Of arrays in others of the same number of dimensions, one after the other: all begin in the same corner."""
    places, start = [], 0
    for its, mine in zip(smaller, larger, strict=True):
        if len(its) != len(mine) or any(a > b for a, b in zip(its, mine, strict=True)):
            raise ValueError(f"expected layers that have grown, got {tuple(mine)} after {tuple(its)}")
        grid = torch.arange(start, start + math.prod(mine)).view(mine)
        places.append(grid[tuple(map(slice, its))].flatten())
        start += math.prod(mine)
    return torch.cat(places)


def as_network(module: nn.Module) -> AbstractNetwork:
    """The module as a function of its weights, with the closed-form Jacobian where it is a chain of layers."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    widths: list[int] = []
    activations: list[type[nn.Module]] = []
    biases: list[bool] = []
    for layer in layers:
        if type(layer) is nn.Linear and (not widths or widths[-1] == layer.in_features):
            widths += [layer.in_features, layer.out_features] if not widths else [layer.out_features]
            activations.append(nn.Identity)
            biases.append(layer.bias is not None)
        elif type(layer) in _SLOPES and activations and activations[-1] is nn.Identity:
            activations[-1] = type(layer)
        elif type(layer) is not nn.Identity:
            return ModuleNetwork(module)
    if not widths:
        return ModuleNetwork(module)
    chain = LayerChain(tuple(widths), tuple(activations), tuple(biases))
    shared = chain.size != sum(p.numel() for p in module.parameters())
    return ModuleNetwork(module) if shared else chain


def weights_of(module: nn.Module) -> Float[Tensor, " weight"]:
    """The parameters of a module as one vector, in the order of `as_network`."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def random_basis(
    size: int,
    dim: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Float[Tensor, "weight coordinate"]:
    """Random Gaussian directions of length one."""
    basis = torch.randn(size, dim, generator=generator, dtype=dtype, device=device)
    return basis / basis.norm(dim=0)


def basis_of_iterates(iterates: Float[Tensor, "iterate weight"], dim: int) -> Float[Tensor, "weight coordinate"]:
    """The directions in which iterates of a warm-up differ most: leading right singular vectors, centred.

    Raises:
        ValueError: If there are fewer iterates than directions asked for.
    """
    if dim > min(iterates.shape):
        raise ValueError(f"expected at least {dim} iterates of {dim} weights or more, got {tuple(iterates.shape)}")
    _, _, right = torch.linalg.svd(iterates - iterates.mean(0), full_matrices=False)
    return right[:dim].T


def uniform_prior(sizes: tuple[int, ...], variance: float | tuple[float, ...]) -> Float[Tensor, " weight"]:
    """Prior variances of all weights, the same for all or one for each layer."""
    each = variance if isinstance(variance, tuple) else (variance,) * len(sizes)
    if len(each) != len(sizes) or min(each) <= 0 or not all(map(math.isfinite, each)):
        raise ValueError(f"expected a positive variance, or one for each of {len(sizes)} layers, got {variance}")
    return torch.cat(
        [torch.full((size,), float(value), dtype=torch.float64) for size, value in zip(sizes, each, strict=True)]
    )
