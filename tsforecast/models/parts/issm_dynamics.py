"""The parameters of an innovation state-space model, alone or beside the dense part of another model."""

import torch
from torch import Tensor

from tsforecast.core.composed import beside, compose
from tsforecast.core.structural import ISSM
from tsforecast.core.system import AbstractLinearSystem, LinearSystem
from tsforecast.data.calendar.frequency import calendar_unit
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.parts.exact import AbstractLinearDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.step_inputs import season_codes
from tsforecast.models.parts.structure import Structure
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import ScaleNetwork, SeriesParameters

# The prior of hours and days: logarithms of noises and log-odds of a damping, as many series have them, and a standard
# deviation.
_HOURS = {"damped_level.level": -2.0}, 3.0
_DAYS = {"level": -2.0, "damped_level.level": -2.0}, 2.5
_KNOWN = {"s": _HOURS, "min": _HOURS, "h": _HOURS, "D": _DAYS}
_SPREAD = 0.5


class ISSMDynamics(AbstractLinearDynamics):
    """Scales of noises, dampings, priors and effects of covariates of every series; see `ISSMForecaster`.

    Args:
        data: What the model knows of its data.
        components: Names joined by "+", see `component_names`.
        scales: "free" or "network".
        embedding_dim: Size of the series' embedding in that network.
        has_prior: Whether parameters of hours and days begin at the mean of a prior, see `surprise`.

    Raises:
        ValueError: If a name is not known, a size is below 1, or there are several targets.
    """

    begun: Tensor

    def __init__(
        self, data: DataSpec, components: str, scales: str = "free", embedding_dim: int = 10, has_prior: bool = False
    ) -> None:
        super().__init__()
        one_of(("free", "network"), scales=scales)
        at_least(1, embedding_dim=embedding_dim)
        self.takes_all = has_prior  # errors a week ahead are seen once a week
        self.structure = Structure.of(components, data)
        self.season_names = self.structure.season_names
        noises, count = len(self.structure.noise_names), len(self.structure.components)
        self.sizes = [noises, self.structure.num_damped, count, data.num_dynamic_real]
        initial = [torch.full((noises,), -3.0), torch.full((self.sizes[1],), 2.0), torch.zeros(count)]
        initial[0][-1] = -0.5  # that of the observation
        # Trends of hours and days differ too much to have a prior: those of few values would run away.
        levels = not any("trend" in name for name in self.structure.noise_names)
        known = _KNOWN.get(calendar_unit(data.freq)[1]) if has_prior and levels else None
        if known is not None:
            values, initial[1][:] = known
            for place, name in enumerate(self.structure.noise_names):
                initial[0][place] = values.get(name, initial[0][place])
        initial.append(torch.zeros(data.num_dynamic_real))  # effects of the covariates
        self.parameters_of_series = SeriesParameters(torch.cat(initial), data.num_series, data.cardinality)
        self.register_buffer("begun", torch.cat(initial[:2]), persistent=False)
        # Per horizon of data, since a loss is per value.
        self.doubt = 1 / (2 * _SPREAD**2 * data.typical_horizons) if known and data.typical_horizons else 0.0
        factors = self.structure.num_factors
        self.season_means = torch.nn.Parameter(torch.zeros(factors)) if factors else None
        self.network = None
        if scales == "network":
            inputs = data.num_time_features + factors + data.num_static_real
            self.network = ScaleNetwork(inputs, data.num_series, noises, embedding_dim)

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        parameters = self.parameters_of_series(series.index, series.static_cat)
        log_scale, damping, log_prior, effects = parameters.split(self.sizes, -1)
        log_scale = log_scale.unsqueeze(0)
        if self.network is not None:
            inputs = [time_slice.time_feat, *season_codes(self.season_names, time_slice), series.static_real]
            wide = [x.to(log_scale.dtype).expand(*time_slice.time_feat.shape[:2], -1) for x in inputs]
            log_scale = log_scale + self.network(torch.cat(wide, -1), series.index)
        means = log_prior.new_zeros(0) if self.season_means is None else self.season_means
        assert self.structure is not None
        return LinearModel(*self.structure.assemble(time_slice, log_scale, damping, log_prior, means, effects))

    def surprise(self, series: Series) -> Tensor:
        """Return minus the logarithm of the prior density of each series' parameters, by the horizons that it has had.

        The prior of noises and dampings is a Gaussian around the values that training begins with. A few weeks say
        little of errors a week ahead, and noises of slow levels would fall to nothing.
        """
        parameters = self.parameters_of_series(series.index, series.static_cat)[:, : len(self.begun)]
        return self.doubt * (parameters - self.begun).square().sum(-1)


def issm_beside(components: str, data: DataSpec, state_dim: int) -> ISSMDynamics | None:
    """Return the parameters of the components beside a dense part of a state.

    Args:
        components: Names joined by "+", see `component_names`; "none" for no components.
        data: What the model knows of its data.
        state_dim: Size of the dense part, which is not empty but beside components.

    Returns:
        None for no components.

    Raises:
        ValueError: If a name is not known, the size is out of its range, or there are several targets.
    """
    at_least(1 if components == "none" else 0, state_dim=state_dim)
    return None if components == "none" else ISSMDynamics(data, components)


def issm_of(system: AbstractLinearSystem) -> ISSM:
    """Return a system of components as the ISSM that it is."""
    assert isinstance(system, ISSM)
    return system


def side_by_side(first: LinearModel | None, rest: LinearModel | None) -> LinearModel:
    """Return the linear model of components and a dense part side by side; one of the two may be missing."""
    if first is None or rest is None:
        only = rest if first is None else first
        assert only is not None
        return only
    assert isinstance(rest.system, LinearSystem)
    return LinearModel(compose(issm_of(first.system), rest.system), beside(first.prior, rest.prior))
