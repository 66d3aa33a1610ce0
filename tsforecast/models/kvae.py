"""Kalman variational auto-encoders (Fraccaro et al. 2017), by sampled and by exact state objective."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearSystem, kalman
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.recurrent import RecurrentSwitching
from tsforecast.core.particles.smoothing import ParticleSmoothed, linear_given_switches
from tsforecast.models.base import Batch, Belief, TimeSlice, scaled
from tsforecast.models.bounds import at_least
from tsforecast.models.dense import BASE_MATRICES, AbstractDenseForecaster
from tsforecast.models.particle_based import variance
from tsforecast.nn import LSTM, BaseMixture
from tsforecast.nn.mlp import mlp


class AbstractKVAEForecaster(AbstractDenseForecaster):
    """An encoder makes z_t of y_t, a decoder y_t of z_t, and z follows a linear system that an LSTM over past z steers.

        s_t = LSTM(s_{t-1}, z_{t-1}, u_t),    x_t ~ N(A(s_t) x_{t-1}, R),   z_t ~ N(C(s_t) x_t + D(s_t) u_t, Q),
        y_t ~ p(y_t | z_t),    q(z_t | y_t, u_t)

    A, C and D are mixtures of base matrices with softmax weights from the LSTM's output; the noises are constant. The
    objective is the evidence lower bound, per observed value.

    Args:
        auxiliary_dim: Size of z.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether networks between targets and auxiliaries only say what differs from the first auxiliaries being
            the targets: the model begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row: encoder and decoder are
            convolutions then, and the base transitions begin near identity.
        filters: Channels of these convolutions.
        reconstruction_weight: Of log p(y_t | z_t) in the bound.
        num_particles: Samples of z for filtering and forecasts; training has one.
        objective: "likelihood" (the bound) or "crps".
        learning_rate: Of scales and prior.
        network_learning_rate: Of everything else.
        kwargs: Arguments of every forecaster with dense base matrices.
    """

    network_names = ("inputs.", "mixture.weights.", "lstm.", "proposal_network.", "decoder.", "encoder.")
    matrix_names = BASE_MATRICES
    # Whether the state is integrated out of the bound, or sampled.
    rao_blackwellised = True

    def __init__(
        self,
        *,
        auxiliary_dim: int = 10,
        memory_dim: int = 50,
        hidden: int = 64,
        embedding_dim: int = 50,
        likelihood: str = "gaussian",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        reconstruction_weight: float = 1.0,
        num_particles: int = 10,
        objective: str = "likelihood",
        learning_rate: float = 5e-3,
        network_learning_rate: float = 5e-3,
        **kwargs,
    ) -> None:
        at_least(1, memory_dim=memory_dim)
        self.emit_auxiliary(auxiliary_dim, skip, image_shape, filters)
        super().__init__(
            switch_dim=2 * memory_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            num_particles=num_particles,
            proposal="encoder",
            persistence=0.0,
            forecast_particles=0,
            resample_below=0.0,
            resampling_gradient="fivo",
            recurrence="none",
            objective=objective,
            learning_rate=learning_rate,
            network_learning_rate=network_learning_rate,
            **kwargs,
        )
        self.memory_dim = memory_dim
        bases = {
            **self.initial_matrices(self.num_bases),
            "inputs": 0.01 * torch.randn(self.num_bases, auxiliary_dim, hidden),
        }
        self.mixture = BaseMixture(memory_dim, bases, hidden, self.stable_names)
        state_scale, emission_scale, _ = self.initial_log_inverse_scales
        self.log_inverse_noises = torch.nn.Parameter(
            torch.cat([torch.full((self.state_dim,), state_scale), torch.full((auxiliary_dim,), emission_scale)])
        )
        self.lstm = LSTM(auxiliary_dim + hidden, memory_dim)
        widths = (hidden,) if self.image_size is None else ()
        self.proposal_network = mlp(self.encoder_input_dim + hidden, *widths, 2 * auxiliary_dim)
        self.make_decoder(likelihood, reconstruction_weight)

    @property
    def auxiliary_layer(self) -> torch.nn.Linear:
        """The last layer of the encoder."""
        layer = self.proposal_network[-1]
        assert isinstance(layer, torch.nn.Linear)
        return layer

    def system(
        self, time_slice: TimeSlice, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a time slice of time in scaled units, and the prior over the state before it."""
        features = self.features(self.inputs, time_slice, batch)
        state_noise, emission_noise = self.noises(batch)
        bases = self.mixture.joined()
        steps = features.unbind()  # see `gaussian.unbind`

        def memory(switch: Tensor, auxiliary: Tensor, time: int) -> Tensor:
            inputs = torch.cat([auxiliary, steps[time].expand(*auxiliary.shape[:-1], -1)], -1)
            _, after = self.lstm.step(inputs, switch.unflatten(-1, (1, 2, self.memory_dim)))
            return after.flatten(-3)

        def parameters(switch: Tensor, time: int) -> Regime:
            mixed = self.mixture.split(self.mixture.mix(self._output(switch)) @ bases)
            offset = torch.einsum("...bdu,bu->...bd", mixed["inputs"], steps[time])
            return Regime(
                DiagonalLinearGaussian(mixed["transition"], offset.new_zeros(self.state_dim), state_noise),
                DiagonalLinearGaussian(mixed["emission"], offset, emission_noise),
            )

        likelihood = self.likelihood(location, scale)
        assert likelihood is not None
        proposal = None
        if proposing:
            values, _ = scaled(time_slice, location, scale)
            proposal = self.read_proposal(
                self.proposal_network(torch.cat([self.encoder_inputs(time_slice, values), features], -1)), values
            )
        system = RecurrentSwitching(
            memory,
            parameters,
            proposal,
            likelihood,
            self.switch_dim,
            self.auxiliary_dim,
            time_slice.active,
        )
        return system, self.prior(features.shape[1])

    def linear_system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[LinearSystem, Gaussian]:
        """All bases mixed evenly; the encoder has no noise here."""
        features = self.features(self.inputs, time_slice, batch)
        state_noise, emission_noise = self.noises(batch)
        mixed = self.mixture.even()
        offset = torch.einsum("tbu,du->tbd", features, mixed["inputs"])
        return self.linear_part(
            time_slice,
            DiagonalLinearGaussian(mixed["transition"], offset.new_zeros(self.state_dim), state_noise),
            DiagonalLinearGaussian(mixed["emission"], offset, emission_noise),
        )

    def noises(self, batch: Batch | Belief) -> tuple[Tensor, Tensor]:
        """Variances of the noises of state and emission."""
        of_state, of_emission = self.noise_factors(batch)
        state, emission = variance(self.log_inverse_noises).split([self.state_dim, self.auxiliary_dim])
        return state * of_state, emission * of_emission

    def _output(self, switch: Float[Tensor, "*batch switch"]) -> Float[Tensor, "*batch memory"]:
        """What the LSTM shows of its memory."""
        return switch[..., : self.memory_dim]

    def bound(self, batch: Batch) -> Float[Tensor, " series"]:
        """The evidence lower bound of past and future, at one sample of z (and, if not integrated out, of x)."""
        location, scale = self.location_and_scale(batch)
        time_slice = self.time_slice(batch, "both")
        keep = not self.rao_blackwellised
        options = {"whole": True, "num_particles": 1, "keep_history": keep}
        filtered, system, start = self._filter(time_slice, batch, location, scale, **options)
        bound = filtered.log_likelihood.sum(0)
        if keep:
            assert filtered.history is not None
            given = linear_given_switches(system, start, filtered.history, *scaled(time_slice, location, scale))
            sampled, exact = kalman.sampled_evidence(*given), given[0].log_likelihood(*given[1:]).sum(0)
            bound = bound + (sampled - exact).squeeze(0)
        return bound

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """The negative bound per observed value; or the CRPS of sample paths."""
        if self.objective == "crps" or self.is_linear:
            return super().loss(batch)
        count = (batch["past_observed"].sum((1, 2)) + batch["future_observed"].sum((1, 2))).clamp_min(1)
        return -self.bound(batch) / count

    def regime_weights(self, smoothed: ParticleSmoothed) -> Float[Tensor, "time series basis"]:
        """Expected mixing weights of the base matrices."""
        return self.mixture.mix(self._output(smoothed.switches)).mean(1)


class KVAERBForecaster(AbstractKVAEForecaster):
    """KVAE-RB (Kurle et al. 2020): the bound has the Kalman filter's exact likelihood of z.

    Args:
        kwargs: See below.
    """

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.save_hyperparameters()


class KVAEMCForecaster(AbstractKVAEForecaster):
    """KVAE-MC: the bound has log p(z, x) + H[p(x | z)] at a joint sample x of the smoothed states.

    Its mean is KVAE-RB's.

    Args:
        kwargs: See below.
    """

    rao_blackwellised = False

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.save_hyperparameters()
