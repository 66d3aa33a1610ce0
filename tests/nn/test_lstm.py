"""The written-out LSTM against torch's."""

import torch

from tsforecast.nn import LSTM


def both(num_layers=2):
    torch.manual_seed(0)
    mine, its = LSTM(3, 4, num_layers).double(), torch.nn.LSTM(3, 4, num_layers).double()
    with torch.no_grad():
        for layer in range(num_layers):
            getattr(its, f"weight_ih_l{layer}").copy_(mine.of_inputs[layer].weight)
            getattr(its, f"bias_ih_l{layer}").copy_(mine.of_inputs[layer].bias)
            getattr(its, f"bias_hh_l{layer}").zero_()
            getattr(its, f"weight_hh_l{layer}").copy_(mine.of_output[layer].weight)
    return mine, its


def test_it_is_torchs():
    mine, its = both()
    inputs = torch.randn(6, 5, 3, dtype=torch.float64)
    outputs, memory = mine(inputs, mine.begin(5))
    expected, (output, cell) = its(inputs)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(memory, torch.stack([output, cell], 1).movedim(2, 0))


def test_steps_are_the_sequence():
    mine, _ = both()
    inputs = torch.randn(4, 5, 3, dtype=torch.float64)
    outputs, after = mine(inputs, mine.begin(5))
    memory = mine.begin(5)
    for x, expected in zip(inputs, outputs, strict=True):
        output, memory = mine.step(x, memory)
        torch.testing.assert_close(output, expected)
    torch.testing.assert_close(memory, after)


def test_a_series_that_has_not_begun_waits():
    mine, _ = both()
    inputs = torch.randn(6, 2, 3, dtype=torch.float64)
    active = torch.tensor([[True, False]] * 2 + [[True, True]] * 4)
    outputs, memory = mine(inputs, mine.begin(2), active)
    alone, end = mine(inputs[2:, 1:], mine.begin(1))
    torch.testing.assert_close(outputs[2:, 1:], alone)
    torch.testing.assert_close(memory[1:], end)


def test_gradients_of_single_series():
    """By `torch.func`, which torch's own cells refuse."""
    mine, _ = both(1)
    inputs = torch.randn(4, 5, 3, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in mine.named_parameters()}

    def total(parameters, series):
        outputs, _ = torch.func.functional_call(mine, parameters, (series.unsqueeze(1), mine.begin(1)))
        return outputs.sum()

    found = torch.func.vmap(torch.func.grad(total), (None, 1))(parameters, inputs)
    for k in range(5):
        (expected,) = torch.autograd.grad(mine(inputs[:, k : k + 1], mine.begin(1))[0].sum(), mine.of_output[0].weight)
        torch.testing.assert_close(found["of_output.0.weight"][k], expected)
