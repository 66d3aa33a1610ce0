"""Innovation state-space model: level, trend and seasons, with noises learnt per series or by a network."""

import torch
from torch import Tensor

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.bounds import at_least, one_of
from tsforecast.models.parts.exact import AbstractLinearDynamics, ExactInference
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.optimisation import Training
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.step_inputs import season_codes
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import ScaleNetwork, SeriesParameters


class ISSMDynamics(AbstractLinearDynamics):
    """Scales of noises, dampings, priors and effects of covariates of every series; see `ISSMForecaster`.

    Args:
        data: What the model knows of its data.
        components: Names joined by "+", see `component_names`.
        scales: "free" or "network".
        embedding_dim: Size of the series' embedding in that network.

    Raises:
        ValueError: If a name is not known, a size is below 1, or there are several targets.
    """

    def __init__(self, data: DataSpec, components: str, scales: str = "free", embedding_dim: int = 10) -> None:
        super().__init__()
        one_of(("free", "network"), scales=scales)
        at_least(1, embedding_dim=embedding_dim)
        self.structure = Structure.of(components, data)
        self.season_names = self.structure.season_names
        noises, count = len(self.structure.noise_names), len(self.structure.components)
        self.sizes = [noises, self.structure.num_damped, count, data.num_dynamic_real]
        initial = [torch.full((noises,), -3.0), torch.full((self.sizes[1],), 2.0), torch.zeros(count)]
        initial[0][-1] = -0.5
        initial.append(torch.zeros(data.num_dynamic_real))  # effects of the covariates
        self.parameters_of_series = SeriesParameters(torch.cat(initial), data.num_series, data.cardinality)
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


class ISSMForecaster(AbstractForecaster[ExactInference]):
    """A sum of levels, trends and seasons that learns the scales of its noises, its dampings and its prior.

    Deep state-space models call this structure ISSM (Rangapuram et al. 2018), and the switching-model papers use it
    with fixed parameters. With free parameters of each series it is a classical structural model (Harvey 1989). Scales
    are those of the population plus deviations of each category and series. A series that was not in the training data
    has the population's. The likelihood is that of the exact Kalman filter.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        components: Names joined by "+": level, damped_level, trend, damped_trend, hour_of_day, hour_by_kind_of_day
            (working days and weekends apart), hour_of_week, day_of_week, month_of_year, ..., cycle_of_N; smooth seasons
            of three harmonics: day, week, month, year; "year_with_5_harmonics" has five, and likewise
            "cycle_of_N_with_5_harmonics"; "auto" chooses by the frequency; "paper" takes those of the switching-model
            papers (level + seasons).
        scales: "free" for constants of each series; "network" adds to their logarithms a network over time features,
            active seasons and an embedding of the series, so that scales vary with time.
        embedding_dim: Size of the series' embedding in that network.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: Training = Training(),
        scaling: Scaling = Scaling(),
        *,
        components: str = "auto",
        scales: str = "free",
        embedding_dim: int = 10,
    ) -> None:
        dynamics = ISSMDynamics(data, components, scales, embedding_dim)
        inference = ExactInference(dynamics, Units(data, scaling), training.objective)
        groups = ParameterGroups(training.learning_rate, ("network.",), training.network_learning_rate)
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
