"""Parameters of many series: shared by all, by a category, or each its own."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tsforecast.nn.mlp import InputNetwork


class SeriesParameters(nn.Module):
    """A vector for each series: population + deviations of its categories + deviation of the series.

    Index 0 stands for series which were not in the training data: they get the population's and their categories'
    values. Code -1 stands for an unknown category, which has the population's.

    Args:
        initial: Initial values of the population, (size,).
        num_series: Series in the training data.
        cardinality: Number of values of each static category.
    """

    def __init__(self, initial: Tensor, num_series: int, cardinality: list[int]) -> None:
        super().__init__()
        self.population = nn.Parameter(initial.clone())
        self.series = nn.Parameter(torch.zeros(num_series, len(initial))) if num_series else None
        self.categories = nn.ParameterList([torch.zeros(size, len(initial)) for size in cardinality])

    def forward(
        self, series: Int[Tensor, " series"], categories: Int[Tensor, "series category"]
    ) -> Float[Tensor, "series size"]:
        """The vectors of the given series."""
        if self.series is None:
            deviation = torch.zeros_like(self.population).expand(len(series), -1)
        else:
            deviation = nn.functional.pad(self.series, (0, 0, 1, 0))[series]  # the unknown series deviates by nothing
        for table, category in zip(self.categories, categories.unbind(-1), strict=True):
            deviation = deviation + nn.functional.pad(table, (0, 0, 1, 0))[category + 1]  # nor does an unknown category
        return self.population + deviation


class ScaleNetwork(nn.Module):
    """Changes of log scales over time: one layer over time features and an embedding of the series.

    Args:
        num_inputs: Features of a step.
        num_series: Series in the training data; index 0 is "unknown".
        num_scales: Size of the output.
        embedding_dim: Size of the embedding.
        hidden: Width of the layer.
    """

    def __init__(self, num_inputs: int, num_series: int, num_scales: int, embedding_dim: int, hidden: int = 64) -> None:
        super().__init__()
        self.inputs = InputNetwork(num_inputs, num_series, embedding_dim, hidden)
        self.head = nn.Linear(hidden, num_scales)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, inputs: Float[Tensor, "time #series feature"], series: Int[Tensor, " series"]
    ) -> Float[Tensor, "time series scale"]:
        """Zero at first: training starts from constant scales."""
        return self.head(self.inputs(inputs, series))
