"""Kalman variational auto-encoders (Fraccaro et al. 2017), by sampled and by exact state objective."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearSystem, kalman
from tsforecast.core.issm_components import Season
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particle_smoother import ParticleSmoothed, linear_given_switches
from tsforecast.core.particles import AbstractSwitchingSystem, Regime
from tsforecast.core.recurrent import RecurrentSwitching
from tsforecast.models.base import Batch, Belief, Stretch, scaled
from tsforecast.models.components import component_names, parse_component
from tsforecast.models.switching import BASE_MATRICES, AbstractSwitchingForecaster, image_size_of, linear_part, variance
from tsforecast.nn import DECODERS, LSTM, BaseMixture, ScaledLikelihood
from tsforecast.nn.image import ImageSize
from tsforecast.nn.likelihood import GaussianDecoder
from tsforecast.nn.mlp import mlp


class AbstractKVAEForecaster(AbstractSwitchingForecaster):
    """An encoder makes z_t of y_t, a decoder y_t of z_t, and z follows a linear system that an LSTM over past z steers.

        s_t = LSTM(s_{t-1}, z_{t-1}, u_t),    x_t ~ N(A(s_t) x_{t-1}, R),   z_t ~ N(C(s_t) x_t + D(s_t) u_t, Q),
        y_t ~ p(y_t | z_t),    q(z_t | y_t, u_t)

    A, C and D are mixtures of base matrices with softmax weights from the LSTM's output; the noises are constant. The
    objective is the evidence lower bound, per observed value.

    Args:
        state_dim: Size of x.
        auxiliary_dim: Size of z.
        num_bases: Number of base matrices.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        stable: Whether base transitions are kept from expanding.
        skip: Whether networks between targets and auxiliaries only say what differs from the first auxiliaries being
            the targets: the model begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row: encoder and decoder are
            convolutions then, and the base transitions begin near identity.
        filters: Channels of these convolutions.
        reconstruction_weight: Of log p(y_t | z_t) in the bound.
        num_particles: Samples of z for filtering and forecasts; training has one.
        objective: "likelihood" (the bound) or "crps".
        learning_rate: Of scales and prior.
        series_scales: Whether the noises have factors of each category and series.
        matrix_learning_rate: Of base matrices; None for `learning_rate`.
        network_learning_rate: Of everything else.
        kwargs: Arguments of every forecaster.
    """

    network_names = ("inputs.", "mixture.weights.", "lstm.", "guess.", "decoder.", "encoder.")
    matrix_names = BASE_MATRICES
    linear_share = 0.3
    # Whether the state is integrated out of the bound, or sampled.
    rao_blackwellised = True

    def __init__(
        self,
        *,
        state_dim: int = 16,
        auxiliary_dim: int = 10,
        num_bases: int = 20,
        memory_dim: int = 50,
        hidden: int = 64,
        embedding_dim: int = 50,
        likelihood: str = "gaussian",
        stable: bool = False,
        series_scales: bool = False,
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        reconstruction_weight: float = 1.0,
        num_particles: int = 10,
        objective: str = "likelihood",
        learning_rate: float = 5e-3,
        network_learning_rate: float = 5e-3,
        matrix_learning_rate: float | None = None,
        **kwargs,
    ) -> None:
        if likelihood not in DECODERS:
            raise ValueError(f"expected likelihood to be one of {', '.join(DECODERS)}, got {likelihood!r}")
        self._skip = skip
        self._image_size = image_size_of(image_shape, filters)
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
        sizes = {"state_dim": state_dim, "auxiliary_dim": auxiliary_dim, "num_bases": num_bases}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"expected {name} to be at least 1, got {value}")
        self.check_likelihood(likelihood, reconstruction_weight)
        if matrix_learning_rate is not None:
            self.matrix_learning_rate = matrix_learning_rate
        self.state_dim = state_dim
        self.auxiliary_dim = auxiliary_dim
        self.memory_dim = memory_dim
        bases = {
            **self.initial_matrices(num_bases, state_dim, auxiliary_dim),
            "inputs": 0.01 * torch.randn(num_bases, auxiliary_dim, hidden),
        }
        self.mixture = BaseMixture(memory_dim, bases, hidden, ("transition",) if stable else ())
        state_scale, emission_scale, prior_scale = self.initial_log_inverse_scales
        self.log_inverse_noises = torch.nn.Parameter(
            torch.cat([torch.full((state_dim,), state_scale), torch.full((auxiliary_dim,), emission_scale)])
        )
        if series_scales:
            self.let_scales_differ(state_dim + auxiliary_dim)
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.prior_log_inverse_scale = torch.nn.Parameter(torch.full((state_dim,), prior_scale))
        self.lstm = LSTM(auxiliary_dim + hidden, memory_dim)
        widths = (hidden,) if self.image_size is None else ()
        self.guess = mlp(self.shown_dim + hidden, *widths, 2 * auxiliary_dim)
        self.decoder = DECODERS[likelihood](auxiliary_dim, self.num_targets, (hidden, hidden), skip, self.image_size)
        self.reconstruction_weight = reconstruction_weight

    @property
    def image_size(self) -> ImageSize | None:
        """As chosen."""
        return self._image_size

    @property
    def has_skip(self) -> bool:
        """As chosen."""
        return self._skip

    @property
    def auxiliary_layer(self) -> torch.nn.Linear:
        """The last layer of the encoder."""
        layer = self.guess[-1]
        assert isinstance(layer, torch.nn.Linear)
        return layer

    @property
    def season_names(self) -> list[str]:
        """Seasons of the frequency, which the networks are told."""
        names = component_names("paper", self.freq)
        return [name for name in names if isinstance(parse_component(name), Season)]

    def system(
        self, stretch: Stretch, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a stretch of time in scaled units, and the prior over the state before it."""
        features = self.features(self.inputs, stretch, batch)
        series = features.shape[1]
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

        guess = None
        if proposing:
            values, _ = scaled(stretch, location, scale)
            guess = self.read_guess(self.guess(torch.cat([self.shown(stretch, values), features], -1)), values)
        system = RecurrentSwitching(
            memory,
            parameters,
            guess,
            ScaledLikelihood(self.decoder, location, scale, self.reconstruction_weight if self.training else 1.0),
            self.switch_dim,
            self.auxiliary_dim,
            stretch.active,
        )
        prior = Gaussian(
            self.prior_mean.expand(series, -1),
            torch.diag_embed(variance(self.prior_log_inverse_scale)).expand(series, -1, -1),
        )
        return system, prior

    def linear_system(self, stretch: Stretch, batch: Batch | Belief) -> tuple[LinearSystem, Gaussian]:
        """All bases mixed evenly, and what skips decoder and encoder, of which the latter has no noise here."""
        features = self.features(self.inputs, stretch, batch)
        state_noise, emission_noise = self.noises(batch)
        mixed = self.mixture.even()
        offset = torch.einsum("tbu,du->tbd", features, mixed["inputs"])
        assert isinstance(self.decoder, GaussianDecoder)
        return linear_part(
            stretch,
            DiagonalLinearGaussian(mixed["transition"], offset.new_zeros(self.state_dim), state_noise),
            DiagonalLinearGaussian(mixed["emission"], offset, emission_noise),
            self.decoder.linear(),
            self.prior_mean,
            variance(self.prior_log_inverse_scale),
        )

    def noises(self, batch: Batch | Belief) -> tuple[Tensor, ...]:
        """Variances of the noises of state and emission."""
        sizes = [self.state_dim, self.auxiliary_dim]
        noises = variance(self.log_inverse_noises).split(sizes)
        return tuple(x * factor for x, factor in zip(noises, self.noise_factors(batch, sizes), strict=True))

    def _output(self, switch: Float[Tensor, "*batch switch"]) -> Float[Tensor, "*batch memory"]:
        """What the LSTM shows of its memory."""
        return switch[..., : self.memory_dim]

    def bound(self, batch: Batch) -> Float[Tensor, " series"]:
        """The evidence lower bound of past and future, at one sample of z (and, if not integrated out, of x)."""
        location, scale = self.begin(batch)
        stretch = self.stretch(batch, "both")
        keep = not self.rao_blackwellised
        filtered, system, start = self._filter(stretch, batch, location, scale, num_particles=1, keep_history=keep)
        bound = filtered.log_likelihood.sum(0)
        if keep:
            assert filtered.history is not None
            given = linear_given_switches(system, start, filtered.history, *scaled(stretch, location, scale))
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
