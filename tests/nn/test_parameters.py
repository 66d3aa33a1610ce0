import torch

from tsforecast.nn import ScaleNetwork, SeriesParameters

SERIES = torch.tensor([0, 2, 1])
CATEGORIES = torch.tensor([[0, 1], [2, 0], [0, 0]])


def test_series_and_categories_deviate_from_the_population():
    parameters = SeriesParameters(torch.tensor([1.0, -2.0]), num_series=2, cardinality=[3, 2])
    assert torch.equal(parameters(SERIES, CATEGORIES), torch.tensor([1.0, -2.0]).expand(3, 2))
    with torch.no_grad():
        parameters.series[1] = torch.tensor([10.0, 20.0])
        parameters.categories[0][2] = torch.tensor([100.0, 200.0])
        parameters.categories[1][1] = torch.tensor([0.5, 0.25])
    expected = torch.tensor([[1.5, -1.75], [111.0, 218.0], [1.0, -2.0]])
    assert torch.equal(parameters(SERIES, CATEGORIES), expected)


def test_without_series_and_categories_there_is_the_population():
    parameters = SeriesParameters(torch.tensor([1.0]), num_series=0, cardinality=[])
    out = parameters(torch.zeros(3, dtype=torch.long), torch.zeros(3, 0, dtype=torch.long))
    assert torch.equal(out, torch.ones(3, 1))
    out.sum().backward()
    assert parameters.population.grad == 3


def test_the_initial_values_are_copied():
    initial = torch.ones(2)
    parameters = SeriesParameters(initial, 1, [])
    with torch.no_grad():
        parameters.population += 1
    assert torch.equal(initial, torch.ones(2))


def test_scale_network_starts_at_zero_and_learns():
    torch.manual_seed(0)
    network = ScaleNetwork(num_inputs=4, num_series=2, num_scales=3, embedding_dim=5, hidden=6)
    inputs = torch.randn(7, 3, 4)
    assert torch.equal(network(inputs, SERIES), torch.zeros(7, 3, 3))
    assert torch.equal(network.inputs.embedding(torch.tensor(0)), torch.zeros(5))
    with torch.no_grad():
        network.head.weight.normal_()
    out = network(inputs, SERIES)
    one = network(inputs[:, 1:2], SERIES[1:2])
    torch.testing.assert_close(out[:, 1:2], one)
    assert not torch.allclose(network(inputs, torch.tensor([1, 2, 1]))[:, 0], out[:, 0])
    shared = network(inputs[:, :1], SERIES)
    torch.testing.assert_close(shared[:, 0], out[:, 0])
