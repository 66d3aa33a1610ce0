"""Encodings of a context and an arm as inputs of a network with one output, the reward."""

import abc
import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.networks.layer_chain import LayerChain
from tsforecast.learners.networks.network import AbstractNetwork


class AbstractEncoding(abc.ABC):
    """Rows of inputs, one for each arm."""

    @abc.abstractmethod
    def each(self, context: Float[Tensor, " feature"]) -> Float[Tensor, "arm input"]:
        """Return the inputs of all arms."""

    @abc.abstractmethod
    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return the inputs of one arm for each context."""

    @abc.abstractmethod
    def width(self, features: int) -> int:
        """Return the number of inputs of the network, given that of features."""


@dataclasses.dataclass(frozen=True)
class OutputPerArm(AbstractEncoding):
    """The context, and the number of the arm in the last column: `ArmOutput` picks the output of the arm.

    Attributes:
        arms: How many there are.
    """

    arms: int

    def each(self, context: Float[Tensor, " feature"]) -> Float[Tensor, "arm input"]:
        """Return the context for every arm."""
        numbers = torch.arange(self.arms, dtype=context.dtype).unsqueeze(-1)
        return torch.cat([context.expand(self.arms, -1), numbers], -1)

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return contexts and arms side by side."""
        return torch.cat([contexts, arms.to(contexts.dtype).unsqueeze(-1)], -1)

    def width(self, features: int) -> int:
        """Return the number of features: the arm is no input of the network inside."""
        return features


@dataclasses.dataclass(frozen=True)
class Concatenated(AbstractEncoding):
    """The context, then features of the arm.

    Attributes:
        arm_features: Of each arm; the unit matrix tells arms apart and no more.
    """

    arm_features: Float[Tensor, "arm part"]

    def each(self, context: Float[Tensor, " feature"]) -> Float[Tensor, "arm input"]:
        """Return the context beside the features of every arm."""
        return torch.cat([context.expand(len(self.arm_features), -1), self.arm_features.to(context.dtype)], -1)

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return contexts beside the features of the arms."""
        return torch.cat([contexts, self.arm_features.to(contexts.dtype)[arms]], -1)

    def width(self, features: int) -> int:
        """Return the number of features of both."""
        return features + self.arm_features.shape[-1]


@dataclasses.dataclass(frozen=True)
class BlockFeatures(AbstractEncoding):
    """Products of the features of an arm and those of the context: with the unit matrix a block for each arm.

    Arms with the same features share every update.

    Attributes:
        arm_features: Of each arm.
    """

    arm_features: Float[Tensor, "arm part"]

    def each(self, context: Float[Tensor, " feature"]) -> Float[Tensor, "arm input"]:
        """Return all products for every arm."""
        return _products(self.arm_features.to(context.dtype), context.expand(len(self.arm_features), -1))

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return all products for the arms."""
        return _products(self.arm_features.to(contexts.dtype)[arms], contexts)

    def width(self, features: int) -> int:
        """Return the number of products."""
        return features * self.arm_features.shape[-1]


def _products(arms: Tensor, contexts: Tensor) -> Tensor:
    return (arms.unsqueeze(-1) * contexts.unsqueeze(-2)).flatten(-2)


@dataclasses.dataclass(frozen=True)
class ArmOutput(AbstractNetwork):
    """The output of one arm, whose number is the last input, of a network with an output for each.

    Attributes:
        network: With an output for each arm.
    """

    network: AbstractNetwork

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of weights of each layer."""
        return self.network.sizes

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the arrays of the network."""
        return self.network.shapes

    def __call__(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point feature"]
    ) -> Float[Tensor, "point output"]:
        """Return the output of the arm of each point."""
        return self.network(weights, inputs[:, :-1]).gather(-1, inputs[:, -1:].long())

    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point feature"]
    ) -> tuple[Float[Tensor, "point output"], Float[Tensor, "point output weight"]]:
        """Return the row of the arm."""
        outputs, jacobian = self.network.linearise(weights, inputs[:, :-1])
        arms = inputs[:, -1].long()
        points = torch.arange(len(arms), device=arms.device)
        return outputs[points, arms].unsqueeze(-1), jacobian[points, arms].unsqueeze(1)


def rescale_outputs(
    network: AbstractNetwork, weights: Float[Tensor, "*batch weight"], shift: float, scale: float
) -> Float[Tensor, "*batch weight"]:
    """Return the weights with which each output f of a chain of layers is (f - shift) / scale.

    Raises:
        ValueError: If the last layer is not linear with a bias.
    """
    chain = network.network if isinstance(network, ArmOutput) else network
    if not isinstance(chain, LayerChain) or not chain.biases[-1] or chain.activations[-1] is not torch.nn.Identity:
        raise ValueError(f"expected a chain whose last layer is linear with a bias, got {chain}")
    outputs, last = chain.widths[-1], chain.sizes[-1]
    body, matrix, bias = weights.split([chain.size - last, last - outputs, outputs], -1)
    return torch.cat([body, matrix / scale, (bias - shift) / scale], -1)
