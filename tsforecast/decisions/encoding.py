"""Encodings of a context and an arm as inputs of a network with one output, the reward."""

import abc
import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.decisions.rewards import Context
from tsforecast.learners.networks.layer_chain import LayerChain
from tsforecast.learners.networks.network import AbstractNetwork


class AbstractEncoding(abc.ABC):
    """Rows of inputs, one for each arm.

    Attributes:
        arms: Number of arms.
    """

    arms: int

    def each(self, context: Context) -> Float[Tensor, "arm input"]:
        """Return the inputs of all arms."""
        return self.pulled(context.expand(self.arms, -1), torch.arange(self.arms))

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

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return contexts and arms side by side."""
        # A number is exact in float32 up to 2^24.
        return torch.cat([contexts, arms.to(contexts.dtype).unsqueeze(-1)], -1)

    def width(self, features: int) -> int:
        """Return the number of features: the arm is no input of the network inside."""
        return features


@dataclasses.dataclass(frozen=True)
class AbstractArmFeatures(AbstractEncoding):
    """Inputs of which the arm is known by features of its own.

    Attributes:
        arm_features: Of each arm; the unit matrix tells arms apart and no more.
    """

    arm_features: Float[Tensor, "arm part"]

    @property
    def arms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the number of arms."""
        return len(self.arm_features)


class Concatenated(AbstractArmFeatures):
    """The context, then features of the arm."""

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return contexts beside the features of the arms."""
        return torch.cat([contexts, self.arm_features.to(contexts.dtype)[arms]], -1)

    def width(self, features: int) -> int:
        """Return the number of features of both."""
        return features + self.arm_features.shape[-1]


class BlockFeatures(AbstractArmFeatures):
    """Products of the features of an arm and those of the context: with the unit matrix a block for each arm.

    Arms with the same features share every update.
    """

    def pulled(self, contexts: Float[Tensor, "step feature"], arms: Tensor) -> Float[Tensor, "step input"]:
        """Return all products for the arms."""
        features = self.arm_features.to(contexts.dtype)[arms]
        return (features.unsqueeze(-1) * contexts.unsqueeze(-2)).flatten(-2)

    def width(self, features: int) -> int:
        """Return the number of products."""
        return features * self.arm_features.shape[-1]


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
    # Only a linear last layer with a bias can take a shift.
    if not isinstance(chain, LayerChain) or not chain.biases[-1] or chain.activations[-1] is not torch.nn.Identity:
        raise ValueError(f"expected a chain whose last layer is linear with a bias, got {chain}")
    outputs, last = chain.widths[-1], chain.sizes[-1]
    body, matrix, bias = weights.split([chain.size - last, last - outputs, outputs], -1)
    return torch.cat([body, matrix / scale, (bias - shift) / scale], -1)
