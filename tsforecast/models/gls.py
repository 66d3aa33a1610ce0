"""Gaussian linear system: a dense state-space model learnt across series."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.linalg import contracted
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.bounds import at_least
from tsforecast.models.parts.exact import AbstractLinearDynamics, ExactInference
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.optimisation import MatrixTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.transitions import begun, rotations, seasonal_readout
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import SeriesParameters

_LOWEST, _HIGHEST = -6.0, 4.0


class GLSDynamics(AbstractLinearDynamics):
    """The matrices and noises of x_t = A x_{t-1} + B u_t + w_t, y_t = C x_t + D u_t + v_t; see `GLSForecaster`.

    Args:
        data: What the model knows of its data.
        state_dim: Size of the state.

    Raises:
        ValueError: If the size is below 1.
    """

    def __init__(self, data: DataSpec, state_dim: int) -> None:
        super().__init__()
        at_least(1, state_dim=state_dim)
        self.state_dim = state_dim
        targets, inputs = data.num_targets, data.num_dynamic_real
        self.transition = torch.nn.Parameter(rotations(state_dim, data.season))
        emission = seasonal_readout(state_dim, data.season).expand(targets, -1)
        self.emission = torch.nn.Parameter(emission + 0.1 * torch.randn(emission.shape) / math.sqrt(state_dim))
        self.state_inputs = torch.nn.Parameter(torch.zeros(state_dim, inputs)) if inputs else None
        self.target_inputs = torch.nn.Parameter(torch.zeros(targets, inputs)) if inputs else None
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.log_prior_scale = torch.nn.Parameter(torch.zeros(state_dim))
        initial = torch.cat([torch.full((state_dim,), -2.0), torch.full((targets,), -0.5)])
        self.log_scales = SeriesParameters(initial, data.num_series, data.cardinality)

    def stable_transition(self) -> Float[Tensor, "state state"]:
        """Return the transition, divided by its largest singular value where that exceeds 1."""
        return contracted(self.transition)

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        scales = self.log_scales(series.index, series.static_cat).clamp(_LOWEST, _HIGHEST).exp()
        prior_variance = (2 * self.log_prior_scale.clamp(-4.0, 3.0)).exp()
        floor = 1e-5 * (self.emission.square() @ prior_variance)
        state_noise = torch.diag_embed(scales[:, : self.state_dim].square()).unsqueeze(0)
        transition, state_noise = begun(time_slice, self.stable_transition()[None, None], state_noise)
        inputs = time_slice.dynamic_real
        zeros = scales.new_zeros(1, 1, 1)
        offsets = [zeros if x is None else inputs @ x.mT for x in (self.state_inputs, self.target_inputs)]
        state_offset, target_offset = (
            x.expand(-1, -1, size) for x, size in zip(offsets, (self.state_dim, len(self.emission)), strict=True)
        )
        system = LinearSystem(
            LinearGaussian(transition, state_offset, state_noise),
            LinearGaussian(
                self.emission[None, None],
                target_offset,
                torch.diag_embed(scales[:, self.state_dim :].square() + floor).unsqueeze(0),
            ),
        )
        mean = self.prior_mean.expand(len(series.index), -1)
        return LinearModel(system, Gaussian(mean, torch.diag_embed(prior_variance)))


class GLSForecaster(AbstractForecaster[ExactInference]):
    """A dense linear-Gaussian state-space model whose matrices and prior are shared by all series.

        x_t = A x_{t-1} + B u_t + w_t,    y_t = C x_t + D u_t + v_t

    The scales of the noises are those of the population plus deviations of each category and series. The transition
    starts as a level and damped rotations at the harmonics of the season, and stays stable: its largest singular value
    is at most 1. Several targets are modelled jointly.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        state_dim: Size of the state.

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
    ) -> None:
        inference = ExactInference(GLSDynamics(data, state_dim), Units(data, scaling), training.objective)
        groups = ParameterGroups(
            training.learning_rate,
            matrices=("transition", "emission", "state_inputs", "target_inputs"),
            matrix_learning_rate=training.matrix_learning_rate,
        )
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
