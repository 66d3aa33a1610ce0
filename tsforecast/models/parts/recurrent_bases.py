"""Dynamics of Kalman variational auto-encoders (Fraccaro et al. 2017): an LSTM over auxiliaries weighs the bases."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.composed import beside, compose_steps
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.dense import DenseBases, linear_part, prior_over
from tsforecast.models.parts.frames import AbstractFrameDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.issm_dynamics import issm_of, side_by_side
from tsforecast.models.parts.log_scales import variance
from tsforecast.models.parts.step_inputs import StepInputs
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Series, TimeSlice
from tsforecast.nn import LSTM, BaseMixture, ImageEncoder, ScaledLikelihood
from tsforecast.nn.mlp import mlp


class KVAEDynamics(AbstractFrameDynamics):
    """The dynamics of a Kalman variational auto-encoder: an LSTM steers the linear system.

    An encoder makes z_t of y_t, and a decoder y_t of z_t. The linear system emits z, and the LSTM reads the past z.

        s_t = LSTM(s_{t-1}, z_{t-1}, u_t),    x_t ~ N(A(s_t) x_{t-1}, R),   z_t ~ N(C(s_t) x_t + D(s_t) u_t, Q),
        y_t ~ p(y_t | z_t),    q(z_t | y_t, u_t)

    A, C and D are mixtures of base matrices with softmax weights from the LSTM's output; the noises are constant.
    Components, whose sum is added to the first of z, have states of their own beside the dense part.

    Args:
        bases: Sizes of state, auxiliary and base matrices, and components.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        stable: Whether base transitions are kept from expanding.
        series_scales: Whether the noises have factors of each category and series.
        reconstruction_weight: Weight of log p(y_t | z_t) in training.

    Raises:
        ValueError: If a size is below 1.
    """

    def __init__(
        self,
        bases: DenseBases,
        *,
        memory_dim: int,
        hidden: int,
        embedding_dim: int,
        stable: bool,
        series_scales: bool,
        reconstruction_weight: float,
    ) -> None:
        super().__init__()
        at_least(1, memory_dim=memory_dim, hidden=hidden, embedding_dim=embedding_dim)
        self.bases, self.emits = bases, bases.emits
        self.memory_dim, self.switch_dim = memory_dim, 2 * memory_dim  # output and cell of the LSTM
        self.reconstruction_weight = reconstruction_weight
        self.issm = bases.issm()
        self.structure, self.season_names = None, bases.season_names
        if self.issm is not None:
            self.season_names = self.issm.season_names
            # What goes through a network is no sum of components any more.
            self.structure = self.issm.structure if self.emits.skip else None
        self.step_inputs = StepInputs(bases.data, self.season_names)
        self.inputs = self.step_inputs.network(embedding_dim, hidden)
        image, auxiliary_dim = self.emits.image, self.emits.size
        self.encoder = None if image is None else ImageEncoder(image)
        self.log_scales = bases.log_scales() if series_scales else None
        state_scale, emission_scale, prior_scale = bases.initial_log_inverse_scales
        self.prior_mean = torch.nn.Parameter(torch.zeros(bases.state_dim))
        self.prior_log_inverse_scale = torch.nn.Parameter(torch.full((bases.state_dim,), prior_scale))
        initial = {
            **bases.matrices(bases.num_bases),
            # Hardly any effect at first, but bases differ.
            "inputs": 0.01 * torch.randn(bases.num_bases, auxiliary_dim, hidden),
        }
        self.mixture = BaseMixture(memory_dim, initial, hidden, ("transition",) if stable else ())
        self.log_inverse_noises = torch.nn.Parameter(
            torch.cat([torch.full((bases.state_dim,), state_scale), torch.full((bases.noise_dim,), emission_scale)])
        )
        self.lstm = LSTM(auxiliary_dim + hidden, memory_dim)
        widths = (hidden,) if image is None else ()
        self.proposal_network = mlp(self.emits.encoder_input_dim + hidden, *widths, 2 * auxiliary_dim)
        self.decoder = self.emits.decoder(hidden)

    @property
    def auxiliary_layer(self) -> torch.nn.Linear | None:
        """Return the last layer of the encoder."""
        layer = self.proposal_network[-1]
        assert isinstance(layer, torch.nn.Linear)
        return layer

    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        state_noise, emission_noise = self.noises(series)
        inside = None if self.issm is None else self.issm.linear(time_slice, series)
        structural = None if inside is None else issm_of(inside.system).by_step()
        bases = self.mixture.joined()
        steps = features.unbind()  # see `gaussian.unbind`

        def memory(switch: Tensor, auxiliary: Tensor, time: int) -> Tensor:
            inputs = torch.cat([auxiliary, steps[time].expand(*auxiliary.shape[:-1], -1)], -1)
            _, after = self.lstm.step(inputs, switch.unflatten(-1, (1, 2, self.memory_dim)))
            return after.flatten(-3)

        def parameters(switch: Tensor, time: int) -> Regime:
            mixed = self.mixture.split(self.mixing_weights(switch) @ bases)
            offset = torch.einsum("...bdu,bu->...bd", mixed["inputs"], steps[time])
            rest = (
                DiagonalLinearGaussian(mixed["transition"], offset.new_zeros(self.bases.state_dim), state_noise),
                DiagonalLinearGaussian(mixed["emission"], offset, emission_noise),
            )
            return Regime(*compose_steps(None if structural is None else structural(time), rest))

        assert self.decoder is not None
        weight = self.reconstruction_weight if self.training else 1.0  # evaluation asks for the bound itself
        proposal = None
        if proposing:
            values, _ = scaled(time_slice, location, scale)
            seen = self.emits.encoder_inputs(self.encoder, time_slice, values)
            raw = self.proposal_network(torch.cat([seen, features], -1))
            proposal = self.emits.read_proposal(self.decoder, raw, values)
        system = RecurrentSwitching(
            memory,
            parameters,
            proposal,
            ScaledLikelihood(self.decoder, location, scale, weight),
            self.switch_dim,
            self.emits.size,
            time_slice.active,
        )
        prior = prior_over(self.prior_mean, self.prior_log_inverse_scale, features.shape[1])
        return system, prior if inside is None else beside(inside.prior, prior)

    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the system with all bases mixed evenly; the encoder has no noise here."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        state_noise, emission_noise = self.noises(series)
        mixed = self.mixture.even()
        offset = torch.einsum("tbu,du->tbd", features, mixed["inputs"])
        rest = linear_part(
            time_slice,
            DiagonalLinearGaussian(mixed["transition"], offset.new_zeros(self.bases.state_dim), state_noise),
            DiagonalLinearGaussian(mixed["emission"], offset, emission_noise),
            self.prior_mean,
            self.prior_log_inverse_scale,
            self.decoder,
        )
        return side_by_side(None if self.issm is None else self.issm.linear(time_slice, series), rest)

    def noises(self, series: Series) -> tuple[Tensor, Tensor]:
        """Return the variances of the noises of the dense state and of its emission."""
        of_state, of_emission = self.bases.noise_factors(self.log_scales, series)
        state, emission = variance(self.log_inverse_noises).split([self.bases.state_dim, self.bases.noise_dim])
        return state * of_state, self.bases.emission_variance(emission, of_emission)

    def mixing_weights(self, switches: Float[Tensor, "*batch switch"]) -> Float[Tensor, "*batch basis"]:
        """Return the weights of the base matrices, from the output of the LSTM."""
        return self.mixture.mix(switches[..., : self.memory_dim])

    def regime_scales(self) -> Float[Tensor, " basis"] | None:
        """Return None, since the noise does not switch."""
        return None
