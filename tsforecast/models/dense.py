"""What models with dense base matrices share: their beginning, auxiliaries and frames, and the linear model inside."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.components import Season
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, ParticleFiltered, ParticleState
from tsforecast.core.particles.switching import DiagonalGaussian
from tsforecast.models.base import Batch, Belief, TimeSlice, identities, scaled
from tsforecast.models.bounds import above_zero, at_least
from tsforecast.models.component_names import component_names, parse_component
from tsforecast.models.gls import begun, rotations, seasonal_readout
from tsforecast.models.particle_based import LARGEST_LOG_SCALE, AbstractSwitchingForecaster, variance
from tsforecast.nn import DECODERS, ScaledLikelihood, SeriesParameters
from tsforecast.nn.decoders import AbstractDecoder, GaussianDecoder
from tsforecast.nn.image import ImageEncoder, ImageSize, begin_at, principal_components
from tsforecast.nn.mlp import resized

BASE_MATRICES = tuple(f"mixture.bases.{name}" for name in ("transition", "emission", "inputs", "recurrence"))
# Scales of the noises of a series are multiplied by at most e to this power, and divided by as much.
_LARGEST_FACTOR = 3.0
# What the encoder of the Kalman VAE (Fraccaro et al. 2017) may say of the variance of z given a frame.
_LARGEST_GUESS = 0.03


class AbstractDenseForecaster(AbstractSwitchingForecaster):
    """A state whose transition and emission are mixtures of dense base matrices, which the switch weighs.

    What is emitted are the targets, or an auxiliary z_t that a network decodes, y_t ~ p(y_t | z_t). The transition
    starts as a level and damped rotations at the harmonics of the season.

    Args:
        state_dim: Size of the state.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no path of switches then makes a forecast
            grow without bound.
        series_scales: Whether the noises of state and emission have factors of each category and series.
        matrix_learning_rate: Of base matrices; None for `learning_rate`.
        linear_share: What the learning rates of all but networks begin with once more, as a share, when networks join
            after `linear_epochs`; 0 keeps the linear model nearly as it is. Gradients of particles are noisy, and a
            transition that carries a season over weeks is soon damped by them.
        kwargs: Arguments of every forecaster with switches.
    """

    # Of models with an auxiliary, see `emit_auxiliary`: its size, or 0; whether targets and first auxiliaries skip the
    # networks between them; and the size of frames whose pixels are the targets.
    auxiliary_dim: int = 0
    has_skip: bool = False
    image_size: ImageSize | None = None

    def __init__(
        self,
        *,
        state_dim: int = 16,
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        matrix_learning_rate: float | None = None,
        linear_share: float = 0.3,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        at_least(1, state_dim=state_dim, num_bases=num_bases)
        at_least(0, matrix_learning_rate=matrix_learning_rate)
        if not 0 <= linear_share <= 1:
            raise ValueError(f"expected linear_share to be between 0 and 1, got {linear_share}")
        self.linear_share = linear_share
        if matrix_learning_rate is not None:
            self.matrix_learning_rate = matrix_learning_rate
        self.state_dim = state_dim
        self.num_bases = num_bases
        self.stable_names = ("transition",) if stable else ()
        self.decoder: AbstractDecoder
        self.encoder: ImageEncoder | None = None
        if self.image_size is not None:
            self._expect_frames(self.image_size)
            self.encoder = ImageEncoder(self.image_size)
            self.network_rise = 0.0  # nothing can be learnt before there is a picture
        self.log_scales: SeriesParameters | None = None
        if series_scales:
            self.log_scales = SeriesParameters(
                torch.zeros(state_dim + self.emitted_dim), self.num_series, self.cardinality
            )
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.prior_log_inverse_scale = torch.nn.Parameter(torch.full((state_dim,), self.initial_log_inverse_scales[2]))

    def emit_auxiliary(self, size: int, skip: bool, image_shape: list[int] | None, filters: int) -> None:
        """Makes an auxiliary what is emitted; for subclasses, before they call the constructor, which reads it.

        Args:
            size: Of the auxiliary.
            skip: Whether targets and first auxiliaries skip the networks between them.
            image_shape: Height and width of frames whose pixels are the targets row by row; None for series.
            filters: Channels of the convolutions of frames.

        Raises:
            ValueError: If the size is not positive, or the shape is not height and width.
        """
        at_least(1, auxiliary_dim=size, filters=filters)
        if image_shape is not None and len(image_shape) != 2:
            raise ValueError(f"expected image_shape to be height and width, got {image_shape}")
        self.auxiliary_dim = size
        self.has_skip = skip
        self.image_size = None if image_shape is None else ImageSize(image_shape[0], image_shape[1], filters)

    def _expect_frames(self, size: ImageSize) -> None:
        """Raises a ValueError where other options do not go with frames."""
        pixels = size.height * size.width
        if pixels != self.num_targets:
            raise ValueError(f"expected a target for each of {pixels} pixels, got num_targets={self.num_targets}")
        for name in ("scaling", "transformation"):
            if (value := getattr(self, name)) != "none":
                raise ValueError(f"pixels are not scaled: expected {name} 'none' for frames, got {value!r}")
        if self.has_skip:
            raise ValueError("skip is for series, not for frames")

    @property
    def emitted_dim(self) -> int:
        """Size of what the emission emits."""
        return self.auxiliary_dim or self.num_targets

    @property
    def season_names(self) -> list[str]:
        """Seasons of the frequency, which the networks are told."""
        names = component_names("paper", self.freq)
        return [name for name in names if isinstance(parse_component(name), Season)]

    # The beginning.

    @property
    def begins_linear(self) -> bool:
        """Whether it begins as a linear model of the targets, with level and season: one that has to be good alone."""
        return self.has_skip or bool(self.linear_epochs and not self.auxiliary_dim)

    @property
    def initial_log_inverse_scales(self) -> tuple[float, float, float]:
        """Of the noises of state and emission, and of the prior over the state.

        Those for frames are Fraccaro et al.'s: variances .08, .03 and 20, among which an encoder that is never surer
        than .03 spreads its values.
        """
        return (2.5, 1.0, 0.0) if self.image_size is None else (1.26, 1.75, -1.5)

    def initial_matrices(self, count: int) -> dict[str, Tensor]:
        """Base transitions and emissions which differ a little.

        A level and damped rotations at the harmonics of the season, of frames what stays where it is; and one random
        reading of the state for all bases, lest the mixing weights make the emission noise. Where it begins as a linear
        model, what is emitted first is the targets: the level and the season, and of the rest next to nothing, since
        what is guessed of it at random would be evidence against them. The transitions then differ by small rotations:
        noise makes them expand, and is kept from it by shrinking the level and the season away.

        Args:
            count: Of bases.
        """
        state, emitted = self.state_dim, self.emitted_dim
        start = rotations(state, self.season) if self.image_size is None else torch.eye(state)
        root = math.sqrt(state)
        transition = start + 0.05 * torch.randn(count, state, state) / root
        emission = (torch.randn(emitted, state) + 0.1 * torch.randn(count, emitted, state)) / root
        if self.begins_linear:
            turn = 0.01 * torch.randn(count, state, state)
            transition = torch.linalg.matrix_exp((turn - turn.mT) / root) @ start
            emission = 0.1 * emission
            emission[:, : self.num_targets] += seasonal_readout(state, self.season)
        return {"transition": transition, "emission": emission}

    def on_train_start(self) -> None:
        """Looks at the first frames, see `begin_at_components`."""
        super().on_train_start()
        if self.encoder is not None and not self.global_step:
            assert self.trainer.train_dataloader is not None
            self.begin_at_components(self.trainer.strategy.batch_to_device(next(iter(self.trainer.train_dataloader))))

    @property
    def auxiliary_layer(self) -> torch.nn.Linear | None:
        """The last layer of the network of q(z), means and log scales; None without such a network."""
        return None

    @torch.no_grad()
    def begin_at_components(self, batch: Batch) -> None:
        """Makes the means of q(z) principal components, of variance 1, of what the encoder says of frames.

        Those of random layers are drowned by the noises, and fold what lies in a plane: it takes thousands of
        iterations to find out that frames differ, and a fold stays.

        Args:
            batch: Frames.
        """
        layer, seen = self.auxiliary_layer, []
        if layer is None or self.encoder is None:
            return
        time_slice, (location, scale) = self.time_slice(batch, "both"), self.location_and_scale(batch)
        observed = time_slice.observed.any(-1)
        frames = scaled(time_slice, location, scale)[0][observed]
        self.encoder.standardise(frames)
        handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            self.system(time_slice, batch, location, scale, proposing=True)
        finally:
            handle.remove()
        begin_at(layer, seen[0][observed], principal_components(self.encoder(frames), layer.out_features // 2))

    # The system.

    def prior(self, series: int) -> Gaussian:
        """Over the states of so many series before the first step."""
        cov = torch.diag_embed(variance(self.prior_log_inverse_scale))
        return Gaussian(self.prior_mean.expand(series, -1), cov.expand(series, -1, -1))

    def noise_factors(self, batch: Batch | Belief) -> tuple[Tensor | float, Tensor | float]:
        """What the variances of the noises of state and emission are multiplied by, (series, size) each."""
        if self.log_scales is None:
            return 1.0, 1.0
        series, categories, _ = identities(batch)
        factors = (2 * self.log_scales(series, categories).clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)).exp()
        of_state, of_emission = factors.split([self.state_dim, self.emitted_dim], -1)
        return of_state, of_emission

    def linear_part(
        self, time_slice: TimeSlice, transition: DiagonalLinearGaussian, emission: DiagonalLinearGaussian
    ) -> tuple[LinearSystem, Gaussian]:
        """The linear model inside: one transition and emission for all steps and series, but for the latter's offsets.

        Args:
            time_slice: Steps and series.
            transition: Of the state; variances may have a dimension of series.
            emission: Of what is emitted, likewise; offset of shape (time, series, emitted).
        """
        wide = lambda variance: torch.diag_embed(variance).reshape(1, -1, *2 * variance.shape[-1:])  # noqa: E731
        matrix, noise = begun(time_slice, transition.matrix[None, None], wide(transition.variance))
        # Without it the variance of what is predicted first is lost in float32.
        floor = 1e-5 * (emission.matrix.square() @ variance(self.prior_log_inverse_scale))
        seen, given = emission.matrix, Gaussian(emission.offset, wide(emission.variance + floor))
        if self.auxiliary_dim:  # of the decoder what skips its network
            assert isinstance(self.decoder, GaussianDecoder)
            decoder = self.decoder.linear()
            seen, given = decoder.matrix @ seen, decoder.marginal(given)
        system = LinearSystem(
            LinearGaussian(matrix, transition.offset[None, None], noise),
            LinearGaussian(seen[None, None], given.mean, given.cov),
        )
        prior = self.prior(emission.offset.shape[1])
        return system, Gaussian(prior.mean, prior.cov[:1])

    def _filter(
        self, *arguments: Any, **options: Any
    ) -> tuple[ParticleFiltered, AbstractSwitchingSystem, ParticleState]:
        """As of all models with switches; where that fails, it says what dense transitions may have done."""
        try:
            return super()._filter(*arguments, **options)
        except NotPositiveDefiniteError as error:
            if self.stable_names:
                raise
            raise NotPositiveDefiniteError(
                f"{error} Or transitions that expand made the state grow over a long history: train with stable=True, "
                "or filter less of it (history_length)."
            ) from error

    # Auxiliaries, and the networks between them and what is observed.

    @property
    def encoder_input_dim(self) -> int:
        """Size of what networks see of an observation."""
        return super().encoder_input_dim if self.image_size is None else self.image_size.num_features

    def encoder_inputs(
        self, time_slice: TimeSlice, values: Float[Tensor, "time series target"]
    ) -> Float[Tensor, "time series shown"]:
        """Of frames convolved features."""
        return super().encoder_inputs(time_slice, values) if self.encoder is None else self.encoder(values)

    def read_proposal(
        self, raw: Float[Tensor, "time series double"], values: Float[Tensor, "time series target"]
    ) -> DiagonalGaussian:
        """q(z_t) from a network's output: mean and log inverse scale; of frames a variance below 0.03.

        Where the decoder's network is skipped the encoder's is, too: the first components are then the targets up to
        the decoder's noise, by which the network's means are multiplied, so that what is linear is filtered as such.

        Args:
            raw: What the network says.
            values: Scaled observations.
        """
        if self.image_size is not None:
            mean, logit = raw.chunk(2, -1)
            bounded = logit.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
            return DiagonalGaussian(mean, _LARGEST_GUESS * torch.sigmoid(bounded))
        if not self.has_skip:
            return super().read_proposal(raw, values)
        mean, log_inverse = raw.chunk(2, -1)
        size = mean.shape[-1]
        noise = resized(self.decoder.log_inverse_scale().clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE), size)
        return DiagonalGaussian(resized(values, size) + mean * (-noise).exp(), variance(log_inverse + noise))

    def make_decoder(self, likelihood: str, reconstruction_weight: float | int) -> None:
        """Of a model with an auxiliary.

        Args:
            likelihood: A name in `DECODERS`.
            reconstruction_weight: Of log p(y_t | z_t) in training.

        Raises:
            ValueError: Where a likelihood does not go with transformation or objective, or its weight is bad.
        """
        if likelihood not in DECODERS:
            raise ValueError(f"expected likelihood to be one of {', '.join(DECODERS)}, got {likelihood!r}")
        above_zero(reconstruction_weight=reconstruction_weight)
        if (self.linear_epochs or self.particle_length) and not (self.has_skip and likelihood == "gaussian"):
            raise ValueError(
                "linear_epochs and particle_length are of the linear model that skips the networks: expected skip true "
                f"and the likelihood 'gaussian', got skip {self.has_skip} and {likelihood!r}"
            )
        counts = likelihood in ("negative-binomial", "bernoulli")
        if counts and self.transformation != "none":
            raise ValueError(f"the likelihood {likelihood!r} is of the data as they are: take transformation 'none'")
        if counts and self.objective == "crps":  # paths of whole numbers have no derivative
            raise ValueError(f"the CRPS of paths teaches {likelihood!r} nothing: take objective 'likelihood'")
        if likelihood == "student-t" and self.objective == "crps" and self.transformation != "none":
            raise ValueError(
                f"the CRPS is infinite where {self.transformation!r} of the data has Student's t distribution: take "
                "transformation 'none' or objective 'likelihood'"
            )
        self.reconstruction_weight = reconstruction_weight
        self.support = DECODERS[likelihood].support
        hidden = (self.hidden, self.hidden)
        self.decoder = DECODERS[likelihood](
            self.auxiliary_dim, self.num_targets, hidden, self.has_skip, self.image_size
        )

    def likelihood(self, location: Tensor, scale: Tensor) -> ScaledLikelihood | None:
        """p(y_t | z_t); None where the targets themselves are emitted."""
        if not self.auxiliary_dim:
            return None
        return ScaledLikelihood(self.decoder, location, scale, self.reconstruction_weight if self.training else 1.0)
