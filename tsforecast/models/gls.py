"""Gaussian linear system: a dense state-space model learnt across series."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.linalg import contracted
from tsforecast.models.base import Batch, Belief, TimeSlice, identities
from tsforecast.models.bounds import at_least
from tsforecast.models.closed_form import AbstractLinearForecaster
from tsforecast.nn import SeriesParameters

_LOWEST, _HIGHEST = -6.0, 4.0


class GLSForecaster(AbstractLinearForecaster):
    """x_t = A x_{t-1} + B u_t + w_t, y_t = C x_t + D u_t + v_t, with A, C and the prior shared by all series.

    The scales of the noises are those of the population plus deviations of each category and series. The transition
    starts as a level and damped rotations at the harmonics of the season, and stays stable: its largest singular value
    is at most 1. Several targets are modelled jointly.

    Args:
        state_dim: Size of the state.
        matrix_learning_rate: Of transition, emission and the matrices of inputs.
        kwargs: Arguments of every forecaster.
    """

    matrix_names = ("transition", "emission", "state_inputs", "target_inputs")

    def __init__(self, *, state_dim: int = 16, matrix_learning_rate: float = 3e-3, **kwargs) -> None:
        super().__init__(**kwargs)
        self.save_hyperparameters()
        self.matrix_learning_rate = matrix_learning_rate
        at_least(1, state_dim=state_dim)
        at_least(0, matrix_learning_rate=matrix_learning_rate)
        self.state_dim = state_dim
        targets, inputs = self.num_targets, self.hparams.get("num_dynamic_real", 0)
        self.transition = torch.nn.Parameter(rotations(state_dim, self.season))
        emission = seasonal_readout(state_dim, self.season).expand(targets, -1)
        self.emission = torch.nn.Parameter(emission + 0.1 * torch.randn(emission.shape) / math.sqrt(state_dim))
        self.state_inputs = torch.nn.Parameter(torch.zeros(state_dim, inputs)) if inputs else None
        self.target_inputs = torch.nn.Parameter(torch.zeros(targets, inputs)) if inputs else None
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.log_prior_scale = torch.nn.Parameter(torch.zeros(state_dim))
        initial = torch.cat([torch.full((state_dim,), -2.0), torch.full((targets,), -0.5)])
        self.log_scales = SeriesParameters(
            initial, self.hparams.get("num_series", 0), self.hparams.get("cardinality") or []
        )

    @property
    def season_names(self) -> list[str]:
        """None: seasons are found by the transition."""
        return []

    def stable_transition(self) -> Float[Tensor, "state state"]:
        """The transition, divided by its largest singular value where that exceeds 1."""
        return contracted(self.transition)

    def system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[LinearSystem, Gaussian]:
        """The system of a time slice in scaled units, and the prior over the state before it."""
        series, categories, _ = identities(batch)
        scales = self.log_scales(series, categories).clamp(_LOWEST, _HIGHEST).exp()
        prior_variance = (2 * self.log_prior_scale.clamp(-4.0, 3.0)).exp()
        floor = 1e-5 * (self.emission.square() @ prior_variance)
        state_noise = torch.diag_embed(scales[:, : self.state_dim].square()).unsqueeze(0)
        transition, state_noise = begun(time_slice, self.stable_transition()[None, None], state_noise)
        inputs = time_slice.dynamic_real
        zeros = scales.new_zeros(1, 1, 1)
        offsets = [zeros if x is None else inputs @ x.mT for x in (self.state_inputs, self.target_inputs)]
        state_offset, target_offset = (
            x.expand(-1, -1, size) for x, size in zip(offsets, (self.state_dim, self.num_targets), strict=True)
        )
        system = LinearSystem(
            LinearGaussian(transition, state_offset, state_noise),
            LinearGaussian(
                self.emission[None, None],
                target_offset,
                torch.diag_embed(scales[:, self.state_dim :].square() + floor).unsqueeze(0),
            ),
        )
        mean = self.prior_mean.expand(len(series), -1)
        return system, Gaussian(mean, torch.diag_embed(prior_variance))


def begun(
    time_slice: TimeSlice, transition: Float[Tensor, "1 1 state state"], noise: Float[Tensor, "1 #series state state"]
) -> tuple[Float[Tensor, "#time #series state state"], Float[Tensor, "#time #series state state"]]:
    """Transition and its noise with states that stand still before their series begins."""
    if time_slice.active is None:
        return transition, noise
    moving = time_slice.active.to(noise.dtype)[..., None, None]
    eye = torch.eye(noise.shape[-1], dtype=noise.dtype, device=noise.device)
    return moving * transition + (1 - moving) * eye, moving * noise


def seasonal_readout(size: int, season: int) -> Tensor:
    """What the state of `rotations` is read by: its level, and the seasonal components if there is a season."""
    readout = torch.zeros(size)
    readout[0] = 1.0
    readout[1::2] = 1.0 if season > 1 else 0.0
    return readout


def rotations(size: int, season: int) -> Tensor:
    """A level, and damped rotations by the harmonics of the season (by random small angles without one)."""
    matrix = torch.eye(size) * 0.97
    matrix[0, 0] = 1.0
    for harmonic, first in enumerate(range(1, size - 1, 2), start=1):
        angle = 2 * math.pi * harmonic / season if season > 1 else 0.1 * harmonic
        cosine, sine = math.cos(angle), math.sin(angle)
        block = torch.tensor([[cosine, sine], [-sine, cosine]])
        matrix[first : first + 2, first : first + 2] = (0.995 if season > 1 else 0.9) * block
    return matrix
