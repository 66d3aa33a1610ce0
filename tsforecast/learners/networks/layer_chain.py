"""Chains of linear layers, with their Jacobians in closed form."""

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.core.torch_internals import is_transformed, normal
from tsforecast.learners.networks.network import AbstractNetwork, ModuleNetwork, places_within, weights_of
from tsforecast.learners.shapes import Inputs, Jacobian, OutputCov, Outputs, Places, Weights

# Activations whose slope is a function of what they return.
_SLOPES: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    nn.Tanh: (torch.tanh, lambda a: 1 - a * a),
    nn.ReLU: (torch.relu, torch.sign),
    nn.Sigmoid: (torch.sigmoid, lambda a: a * (1 - a)),
}

# Numbers from which on a Jacobian is written into one piece of memory.
_MANY = 1 << 15


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
        """Return the number of weights of each layer."""
        pairs = zip(self.widths, self.widths[1:], self.biases, strict=False)
        return tuple((fan_in + bias) * fan_out for fan_in, fan_out, bias in pairs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all matrices and biases."""
        return self._shapes

    @functools.cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        triples = zip(self.widths, self.widths[1:], self.biases, strict=False)
        return tuple(shape for i, o, bias in triples for shape in (((o, i), (o,)) if bias else ((o, i),)))

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return [math.prod(shape) for shape in self._shapes]

    def _layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Return matrix and bias of each layer."""
        flat = zip(weights.split_with_sizes(self._lengths), self._shapes, strict=True)
        parts = iter([part.view(shape) if len(shape) > 1 else part for part, shape in flat])
        return [(next(parts), next(parts) if bias else None) for bias in self.biases]

    def __call__(self, weights: Weights, inputs: Inputs) -> Outputs:
        """Return the outputs, computed layer by layer."""
        return self._forward(self._layers(weights), inputs)[-1]

    def _forward(self, layers: list[tuple[Tensor, Tensor | None]], inputs: Tensor) -> list[Tensor]:
        """Return the inputs, and the values of every layer."""
        values = [inputs]
        for (matrix, bias), activation in zip(layers, self.activations, strict=True):
            x = nn.functional.linear(values[-1], matrix, bias)
            values.append(_SLOPES[activation][0](x) if activation in _SLOPES else x)
        return values

    def linearise(self, weights: Weights, inputs: Inputs) -> tuple[Outputs, Jacobian]:
        """Go from the last layer to the first, with all outputs at once."""
        layers = self._layers(weights)
        values = self._forward(layers, inputs)
        return values[-1], _jacobian(self._factors(layers, values), weights)

    def squares(self, weights: Weights, inputs: Inputs, rows: Float[Tensor, "point row output"]) -> Weights:
        """Multiply squares of the inputs of each layer by those of its gradients: there is no Jacobian."""
        layers = self._layers(weights)
        factors = self._factors(layers, self._forward(layers, inputs), rows)
        pairs = [(delta.square().sum(1), None if value is None else value.square()) for delta, value in factors]
        return torch.cat([delta.sum(0) if value is None else (delta.mT @ value).flatten() for delta, value in pairs])

    def terms(
        self,
        weights: Weights,
        inputs: Inputs,
        rows: Float[Tensor, "point row output"],
        residual: Float[Tensor, "point row"],
    ) -> tuple[Float[Tensor, "point weight"], Float[Tensor, "point weight"]]:
        """Add up the rows, by the residual or as squares, before they meet the inputs of a layer."""
        layers = self._layers(weights)
        factors = self._factors(layers, self._forward(layers, inputs), rows)
        pulled = [(residual.unsqueeze(1) @ delta, value) for delta, value in factors]
        squared = [(delta.square().sum(1, True), None if value is None else value.square()) for delta, value in factors]
        return _jacobian(pulled, weights).squeeze(1), _jacobian(squared, weights).squeeze(1)

    def spread(self, weights: Weights, variance: Weights, inputs: Inputs) -> tuple[Outputs, OutputCov]:
        """Add up the variance of each layer, from that of the inputs of its units: there is no Jacobian."""
        layers = self._layers(weights)
        values = self._forward(layers, inputs)
        parts = [part for pair in self._layers(variance) for part in pair if part is not None]
        cov = torch.zeros((), dtype=weights.dtype, device=weights.device)
        for (delta, value), part in zip(self._factors(layers, values), parts, strict=True):
            # The variance that a layer's weights give each unit.
            entering = part if value is None else (value.square() @ part.mT).unsqueeze(1)
            cov = cov + (delta * entering) @ delta.mT
        return values[-1], cov

    def _factors(
        self, layers: list[tuple[Tensor, Tensor | None]], values: list[Tensor], rows: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Return the factors of products with a Jacobian, in the order of the weights.

        Args:
            layers: Matrices and biases.
            values: Inputs and outputs of all layers.
            rows: What the Jacobian of each point is multiplied with; None for the Jacobian itself.

        Returns:
            Of a bias one factor (point, row, fan-out), of a matrix that and what enters there (point, fan-in).
        """
        count, outputs = values[-1].shape
        last = len(layers) - 1
        eye = torch.eye(outputs, dtype=values[-1].dtype, device=values[-1].device)
        delta = eye.expand(count, outputs, outputs) if rows is None else rows
        factors: list[tuple[Tensor, Tensor | None]] = []
        for k in range(last, -1, -1):
            matrix, bias = layers[k]
            slope = _SLOPES[self.activations[k]][1] if self.activations[k] in _SLOPES else None
            if slope is not None:
                delta = delta * slope(values[k + 1]).unsqueeze(1)
            if bias is not None:
                factors.append((delta, None))
            factors.append((delta, values[k]))
            if k == last and slope is None and rows is None:  # the identity: a product with it costs as much as any
                delta = matrix.expand(count, *matrix.shape)
            elif k:
                delta = delta @ matrix
        return factors[::-1]

    def draw(
        self,
        mean: Float[Tensor, "group weight"],
        variance: Float[Tensor, "group weight"],
        inputs: Float[Tensor, "group row feature"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "group row output"]:
        """Draw inputs of units instead of weights (Kingma, Salimans and Welling 2015): far fewer numbers."""
        x = inputs
        for parts in zip(self._layers_of(mean), self._layers_of(variance), self.activations, strict=True):
            (matrix, bias), (spread, bias_spread), activation = parts
            centre, square = x @ matrix.mT, x.square() @ spread.mT
            if bias is not None and bias_spread is not None:
                centre, square = centre + bias.unsqueeze(-2), square + bias_spread.unsqueeze(-2)
            noise = normal(centre.shape, mean, generator)
            # A root at 0 has an infinite derivative.
            x = centre + square.clamp_min(torch.finfo(square.dtype).tiny).sqrt() * noise
            x = _SLOPES[activation][0](x) if activation in _SLOPES else x
        return x

    def _layers_of(self, weights: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Return matrix and bias of each layer, for each group."""
        flat = zip(weights.split(self._lengths, -1), self._shapes, strict=True)
        parts = iter([part.unflatten(-1, shape) for part, shape in flat])
        return [(next(parts), next(parts) if bias else None) for bias in self.biases]

    def adopt(self, smaller: AbstractNetwork) -> tuple["LayerChain", Places]:
        """Find the places of the weights, layer by layer."""
        if not isinstance(smaller, LayerChain) or smaller.biases != self.biases:
            raise ValueError(f"expected a chain of {len(self.biases)} layers with the same biases, got {smaller}")
        return self, places_within(list(smaller.shapes), list(self.shapes))


def _jacobian(factors: list[tuple[Tensor, Tensor | None]], weights: Tensor) -> Tensor:
    """(point, output, weight): of a bias a factor (point, output, fan-out), of a matrix its product with what enters.

    Of many numbers each is written where it belongs, since new memory takes longer than the products.
    """
    count, outputs = factors[0][0].shape[:2]
    tensors = (x for pair in factors for x in pair if x is not None)
    is_small = count * outputs * len(weights) < _MANY
    if is_small or torch.compiler.is_compiling() or any(x.requires_grad or is_transformed(x) for x in tensors):
        return torch.cat([delta if value is None else _outer(delta, value) for delta, value in factors], -1)
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
    products = torch.bmm(delta.flatten(1).unsqueeze(-1), value.flatten(1).unsqueeze(1))
    return products.view(*delta.shape[:2], delta.shape[2] * value.shape[-1])  # there may be no point


def as_network(module: nn.Module) -> AbstractNetwork:
    """The module as a function of its weights, with the closed-form Jacobian where it is a chain of layers."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    widths: list[int] = []
    activations: list[type[nn.Module]] = []
    biases: list[bool] = []
    for layer in layers:
        # Not `isinstance`: a subclass may compute something else.
        if type(layer) is nn.Linear and (not widths or widths[-1] == layer.in_features):
            widths += [layer.in_features, layer.out_features] if not widths else [layer.out_features]
            activations.append(nn.Identity)
            biases.append(layer.bias is not None)
        # A layer has room for one activation.
        elif type(layer) in _SLOPES and activations and activations[-1] is nn.Identity:
            activations[-1] = type(layer)
        elif type(layer) is not nn.Identity:
            return ModuleNetwork(module)
    if not widths:
        return ModuleNetwork(module)
    chain = LayerChain(tuple(widths), tuple(activations), tuple(biases))
    # A layer that is used twice has one set of weights.
    shared = chain.size != sum(p.numel() for p in module.parameters())
    return ModuleNetwork(module) if shared else chain


def network_and_weights(model: nn.Module | AbstractNetwork, mean: Tensor | None) -> tuple[AbstractNetwork, Tensor]:
    """Return the network, and its weights to begin with.

    Args:
        model: A module, or a network as a function of its weights.
        mean: Weights to begin with; None for those of the module.

    Raises:
        ValueError: If a network is given without weights to begin with.
    """
    if isinstance(model, nn.Module):
        return as_network(model), weights_of(model) if mean is None else mean
    if mean is None:
        raise ValueError("expected weights to begin with, as mean=..., for a network that is not a module")
    return model, mean
