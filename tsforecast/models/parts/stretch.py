"""A stretch of time by the models of single targets: means, deviations, and roots of the correlations in time."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.transformations import transformation_of


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """The distribution of a stretch of time, of each target alone.

    Attributes:
        marginals: Of each component, before values of the stretch are known.
        log_weight: Of the components, given the known values.
        factors: Cholesky factors of the correlations in time, by the models.
        models: The model of each component.
        known: Known values, NaN where there are none.
    """

    marginals: Marginals
    log_weight: Float[Tensor, "series component"]
    factors: Float[Tensor, "series model horizon horizon"]
    models: tuple[int, ...]
    known: Float[Tensor, "series horizon"]

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return self.known.shape[1]

    @property
    def is_known(self) -> Bool[Tensor, "series horizon"]:
        """Return the mask of known values."""
        return ~torch.isnan(self.known)

    def paths(
        self, errors: Float[Tensor, "series sample horizon"], chosen: Int[Tensor, "series sample"]
    ) -> Float[Tensor, "series sample horizon"]:
        """Return paths by their errors and components, in the units of the component."""
        white, model = torch.zeros_like(errors), torch.tensor(self.models, device=chosen.device)[chosen]
        for number, factor in enumerate(self.factors.to(errors).unbind(1)):
            white = torch.where((model == number).unsqueeze(-1), errors @ factor.mT, white)
        mean, deviation = self._moments(chosen)
        return mean + deviation * white

    def _moments(self, chosen: Int[Tensor, "series sample"]) -> tuple[Tensor, Tensor]:
        index = chosen.unsqueeze(-1).expand(-1, -1, self.steps)
        return tuple(x.squeeze(-1).gather(1, index) for x in (self.marginals.mean, self.marginals.deviation))  # pyright: ignore[reportReturnType]

    def of(
        self, rows: Int[Tensor, " row"], chosen: Int[Tensor, "row sample"]
    ) -> tuple[
        Float[Tensor, "row sample horizon"],
        Float[Tensor, "row sample horizon horizon"],
        Float[Tensor, "row sample horizon"],
    ]:
        """Return means, roots of covariances, and known values in the units of components, of some of the series."""
        index = chosen.unsqueeze(-1).expand(-1, -1, self.steps)
        mean, deviation = (
            x[rows].squeeze(-1).gather(1, index) for x in (self.marginals.mean, self.marginals.deviation)
        )
        model = torch.tensor(self.models, device=chosen.device)[chosen]
        factor = self.factors[rows[:, None], model].double()  # known values condition by differences of near numbers
        size = self.marginals.size.squeeze(-1).expand(len(self.marginals.mean), -1)[rows].gather(1, chosen)
        sized = torch.nan_to_num(self.known[rows].double()).unsqueeze(1) / size.unsqueeze(-1)
        values = self._by_transformation(sized, chosen, lambda one, x: one.apply(x))
        return mean, deviation.unsqueeze(-1) * factor, values

    def restored(
        self, paths: Float[Tensor, "series sample horizon"], chosen: Int[Tensor, "series sample"]
    ) -> Float[Tensor, "series sample horizon"]:
        """Return paths in the units of the data."""
        size = self.marginals.size.squeeze(-1).expand(len(paths), -1).gather(1, chosen).unsqueeze(-1)
        values = self._by_transformation(paths, chosen, lambda one, x: one.restore(x)) * size
        return values.clamp_min(0.0) if self.marginals.clip == "nonnegative" else values

    def _by_transformation(self, values: Tensor, chosen: Tensor, function: Any) -> Tensor:
        """Return a function of values and of the transformation of their component."""
        found, names = values, self.marginals.transformations
        for name in dict.fromkeys(names):
            own = torch.tensor([other == name for other in names], device=chosen.device)[chosen].unsqueeze(-1)
            found = torch.where(own, function(transformation_of(name), values), found)
        return found
