"""Gaussian linear system: a dense state-space model learnt across series."""

import math

import torch
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.linalg import contracted
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.exact import AbstractLinearDynamics, ExactInference
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.issm_dynamics import issm_beside, side_by_side
from tsforecast.models.parts.optimisation import MatrixTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.transitions import begun, rotations, seasonal_readout, short_memory
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import SeriesParameters

# Logarithms of scales: between these float32 filters safely.
_LOWEST, _HIGHEST = -6.0, 4.0


class GLSDynamics(AbstractLinearDynamics):
    """The matrices and noises of x_t = A x_{t-1} + B u_t + w_t, y_t = C x_t + D u_t + v_t; see `GLSForecaster`.

    Args:
        data: What the model knows of its data.
        state_dim: Size of the dense state.
        components: Names joined by "+", or "none".

    Raises:
        ValueError: If the size is out of its range, a name is not known, or components have several targets.
    """

    def __init__(self, data: DataSpec, state_dim: int, components: str = "none") -> None:
        super().__init__()
        self.state_dim = state_dim
        self.issm = issm_beside(components, data, state_dim)
        if self.issm is not None:
            self.structure, self.season_names = self.issm.structure, self.issm.season_names
        if not state_dim:
            return
        inputs, reading = data.num_dynamic_real, torch.zeros(state_dim)
        # Beside components, the noise of the target and the effects of inputs on it are theirs.
        targets, own = data.num_targets, data.num_targets if self.issm is None else 0
        start = short_memory(state_dim)
        if self.issm is None:
            start, reading = rotations(state_dim, data.season), seasonal_readout(state_dim, data.season)
        self.transition = torch.nn.Parameter(start)
        # Small, since random readings would be evidence against the targets.
        emission = reading + 0.1 * torch.randn(targets, state_dim) / math.sqrt(state_dim)
        self.emission = torch.nn.Parameter(emission)
        self.state_inputs = torch.nn.Parameter(torch.zeros(state_dim, inputs)) if inputs else None
        self.target_inputs = torch.nn.Parameter(torch.zeros(targets, inputs)) if inputs and own else None
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.log_prior_scale = torch.nn.Parameter(torch.zeros(state_dim))
        initial = torch.cat([torch.full((state_dim,), -2.0), torch.full((own,), -0.5)])
        self.log_scales = SeriesParameters(initial, data.num_series, data.cardinality)

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        first = None if self.issm is None else self.issm.linear(time_slice, series)
        return side_by_side(first, self._dense(time_slice, series) if self.state_dim else None)

    def _dense(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the dense part of the system and of the prior."""
        scales = self.log_scales(series.index, series.static_cat).clamp(_LOWEST, _HIGHEST).exp()
        prior_variance = (2 * self.log_prior_scale.clamp(-4.0, 3.0)).exp()
        # Else the variance of the first prediction is lost in float32.
        floor = 1e-5 * (self.emission.square() @ prior_variance)
        state_noise = torch.diag_embed(scales[:, : self.state_dim].square()).unsqueeze(0)
        transition, state_noise = begun(time_slice, contracted(self.transition)[None, None], state_noise)
        inputs = time_slice.dynamic_real
        zeros = scales.new_zeros(1, 1, 1)
        offsets = [zeros if x is None else inputs @ x.mT for x in (self.state_inputs, self.target_inputs)]
        state_offset, target_offset = (
            x.expand(-1, -1, size) for x, size in zip(offsets, (self.state_dim, len(self.emission)), strict=True)
        )
        target_noise = floor if self.issm is not None else scales[:, self.state_dim :].square() + floor
        system = LinearSystem(
            LinearGaussian(transition, state_offset, state_noise),
            LinearGaussian(
                self.emission[None, None],
                target_offset,
                torch.diag_embed(target_noise).reshape(1, -1, len(floor), len(floor)),
            ),
        )
        mean = self.prior_mean.expand(len(series.index), -1)
        return LinearModel(system, Gaussian(mean, torch.diag_embed(prior_variance)))


class GLSForecaster(AbstractForecaster[ExactInference]):
    """A dense linear-Gaussian state-space model, with matrices and prior shared by all series.

        x_t = A x_{t-1} + B u_t + w_t,    y_t = C x_t + D u_t + v_t

    The scales of the noises are those of the population plus deviations of each category and series. The transition
    starts as a level and damped rotations at the harmonics of the season, and stays stable: its largest singular value
    is at most 1. Several targets are modelled jointly. With components the target is the sum of these and of a dense
    part. The dense part begins with a short memory and a small share, so that the model begins as an ISSM.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        state_dim: Size of the dense state; with components it may be 0.
        components: Names joined by "+", see `ISSMForecaster`; "none" for a dense state alone. Components are of one
            target.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: MatrixTraining = MatrixTraining(),
        scaling: Scaling = Scaling(),
        *,
        state_dim: int = 16,
        components: str = "none",
    ) -> None:
        inference = ExactInference(GLSDynamics(data, state_dim, components), Units(data, scaling), training.objective)
        groups = ParameterGroups(
            training.learning_rate,
            matrices=("transition", "emission", "state_inputs", "target_inputs"),
            matrix_learning_rate=training.matrix_learning_rate,
        )
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
