"""Inputs of networks at every step beside the observation."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.parts.component_names import parse_component
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import InputNetwork


@dataclasses.dataclass(frozen=True)
class StepInputs:
    """Time features, covariates, static numbers, codes of seasons, and static categories as zeros and ones.

    Attributes:
        data: What the model knows of its data.
        season_names: Names of the seasons that a batch carries.
    """

    data: DataSpec
    season_names: tuple[str, ...]

    def network(self, embedding_dim: int, hidden: int) -> InputNetwork:
        """Return a network of one layer over these inputs and an embedding of the series."""
        data = self.data
        size = data.num_time_features + data.num_dynamic_real + data.num_static_real + sum(data.cardinality)
        size += sum(parse_component(name).size for name in self.season_names)
        return InputNetwork(size, data.num_series, embedding_dim, hidden)

    def read(self, time_slice: TimeSlice, series: Series) -> Float[Tensor, "time #series feature"]:
        """Return the inputs of a slice of time, side by side."""
        like = time_slice.time_feat
        codes = zip(series.static_cat.unbind(-1), self.data.cardinality, strict=True)
        parts = [like, time_slice.dynamic_real, series.static_real, *season_codes(self.season_names, time_slice)]
        parts += [one_hot(*code) for code in codes]
        return torch.cat([x.to(like.dtype).expand(*like.shape[:2], -1) for x in parts], -1)


def season_codes(names: tuple[str, ...], time_slice: TimeSlice) -> list[Tensor]:
    """Return a network's inputs for each season: the active factor as zeros and ones, or the basis of a smooth one."""
    pairs = zip(names, time_slice.season_index.unbind(-1), strict=True)
    return [parse_component(name).row(index, time_slice.time_feat) for name, index in pairs]


def one_hot(code: Tensor, size: int) -> Tensor:
    """Return one-hot codes; torch's own function does not work under `torch.func.vmap`."""
    return code.unsqueeze(-1) == torch.arange(size, device=code.device)  # an unknown category, -1, is all zeros
