"""Recurrent networks with a memory that is carried along, so that they go on at the end of a history."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tsforecast.core.loop.scan import scan
from tsforecast.core.torch_internals import is_transformed


class LSTM(nn.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), layer upon layer.

    Its equations are written out, since torch's fused layers cannot wait for series that have not begun. Nor does any
    of torch's cells work under `torch.func`, by which gradients of single series are taken.

    Args:
        num_inputs: Features of a step.
        hidden: Size of the output and of the cell.
        num_layers: At least 1.
    """

    def __init__(self, num_inputs: int, hidden: int, num_layers: int = 1) -> None:
        super().__init__()
        self.hidden = hidden
        self.of_inputs = nn.ModuleList(
            nn.Linear(num_inputs if layer == 0 else hidden, 4 * hidden) for layer in range(num_layers)
        )
        self.of_output = nn.ModuleList(nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(num_layers))
        with torch.no_grad():
            for layer in self.of_inputs:
                assert isinstance(layer, nn.Linear)
                layer.bias[hidden : 2 * hidden] = 1.0  # what is remembered at first lasts

    def begin(self, *batch: int) -> Float[Tensor, "*batch layer 2 hidden"]:
        """The memory before the first step."""
        weight = self.of_output[0].weight
        assert isinstance(weight, Tensor)
        return weight.new_zeros(*batch, len(self.of_inputs), 2, self.hidden)  # output and cell of each layer

    def step(
        self, inputs: Float[Tensor, "*batch feature"], memory: Float[Tensor, "*batch layer 2 hidden"]
    ) -> tuple[Float[Tensor, "*batch hidden"], Float[Tensor, "*batch layer 2 hidden"]]:
        """The output of one step, and the memory after it."""
        output, after = inputs, []
        for layer, of_inputs in enumerate(self.of_inputs):
            moved = self._cell(layer, of_inputs(output), memory[..., layer, :, :])
            output = moved[..., 0, :]
            after.append(moved)
        return output, torch.stack(after, -3)

    def forward(
        self,
        inputs: Float[Tensor, "time series feature"],
        memory: Float[Tensor, "series layer 2 hidden"],
        active: Bool[Tensor, "time series"] | None = None,
    ) -> tuple[Float[Tensor, "time series hidden"], Float[Tensor, "series layer 2 hidden"]]:
        """The outputs of all steps, and the memory after the last.

        Args:
            inputs: Of every step.
            memory: Before the first.
            active: False where a series has not begun and its memory stays as it is; None if all have.
        """
        outputs, after = inputs, []
        for layer, of_inputs in enumerate(self.of_inputs):

            def step(memory: Tensor, x: tuple[Tensor, Tensor | None], layer: int = layer) -> tuple[Tensor, Tensor]:
                gates, begun = x
                moved = self._cell(layer, gates, memory)
                if begun is not None and (is_transformed(begun) or not bool(begun.all())):
                    # Padding before a series must not be remembered.
                    moved = torch.where(begun[:, None, None], moved, memory)
                return moved, moved[:, 0]

            last, outputs = scan(step, memory[:, layer], (of_inputs(outputs), active))
            after.append(last)
        return outputs, torch.stack(after, 1)

    def _cell(self, layer: int, gates: Tensor, memory: Tensor) -> Tensor:
        """Output and cell, one above the other, after a step."""
        output, cell = memory.unbind(-2)
        enter, keep, new, show = (gates + self.of_output[layer](output)).chunk(4, -1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return torch.stack([show.sigmoid() * cell.tanh(), cell], -2)
