"""Auxiliary variables z_t, emitted by the system, and the networks between them and the observations."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.linalg import cholesky, matvec
from tsforecast.core.particles.proposals import DiagonalGaussian
from tsforecast.core.torch_internals import normal
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.log_scales import LARGEST_LOG_SCALE, diagonal, variance
from tsforecast.models.parts.optimisation import AuxiliaryTraining
from tsforecast.models.parts.units import Units
from tsforecast.models.records import TimeSlice
from tsforecast.nn import DECODERS, ImageEncoder, ImageSize
from tsforecast.nn.decoders import AbstractDecoder, GaussianDecoder
from tsforecast.nn.mlp import resized

# Largest variance of z given a frame, as in the encoder of the Kalman VAE (Fraccaro et al. 2017).
_LARGEST_GUESS = 0.03
_COUNTS = ("negative-binomial", "bernoulli")
# Pairs of draws of an auxiliary, of which each path of switches has its part of a forecast.
_PAIRS = 2


@dataclasses.dataclass(frozen=True)
class Auxiliary:
    """The emission of a model: an auxiliary that a network decodes, or the targets themselves.

    Attributes:
        num_targets: Components of the target.
        size: Size of the auxiliary; 0 where the targets are emitted.
        likelihood: Likelihood of the targets given the auxiliary, a name in `DECODERS`.
        skip: Whether targets and first auxiliaries skip the networks between them.
        image: Sizes of frames whose pixels are the targets row by row; None for series.
    """

    num_targets: int
    size: int = 0
    likelihood: str = "gaussian"
    skip: bool = False
    image: ImageSize | None = None

    @property
    def emitted_dim(self) -> int:
        """Return the size of the emission."""
        return self.size or self.num_targets

    @property
    def encoder_input_dim(self) -> int:
        """Return the size of an observation as networks see it."""
        if self.image is not None:
            return self.image.num_features
        return self.num_targets * (1 if self.num_targets == 1 else 2)

    def encoder_inputs(
        self, encoder: ImageEncoder | None, time_slice: TimeSlice, values: Float[Tensor, "time series target"]
    ) -> Float[Tensor, "time series shown"]:
        """Return observations as networks see them: scaled values, or convolved features of frames.

        Of several targets they also see which are observed.

        Args:
            encoder: Encoder of frames; None for series.
            time_slice: Its mask is read.
            values: Scaled observations.
        """
        if encoder is not None:
            return encoder(values)
        seen = [] if self.num_targets == 1 else [time_slice.observed.to(values.dtype)]
        # A far value would drown all others in the first layer.
        return torch.cat([values.clamp(-50.0, 50.0), *seen], -1)

    def decoder(self, hidden: int) -> AbstractDecoder | None:
        """Return the network of p(y_t | z_t); None where the targets are emitted."""
        if not self.size:
            return None
        kind = DECODERS[self.likelihood]
        return kind(self.size, self.num_targets, (hidden, hidden), self.skip, self.image)

    def read_proposal(
        self,
        decoder: AbstractDecoder | None,
        raw: Float[Tensor, "time series double"],
        values: Float[Tensor, "time series target"],
    ) -> DiagonalGaussian:
        """Return q(z_t) from a network's output of mean and log inverse scale; for frames its variance is below 0.03.

        Where the decoder's network is skipped the encoder's is, too: the mean then begins with the targets. The network
        adds to them in units of the decoder's noise, so that the linear part is filtered as such.

        Args:
            decoder: Decoder of the model.
            raw: Output of the network.
            values: Scaled observations.
        """
        if self.image is not None:
            mean, logit = raw.chunk(2, -1)
            bounded = logit.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
            return DiagonalGaussian(mean, _LARGEST_GUESS * torch.sigmoid(bounded))
        if not self.skip:
            return diagonal(raw)
        assert decoder is not None
        mean, log_inverse = raw.chunk(2, -1)
        size = mean.shape[-1]
        noise = resized(decoder.log_inverse_scale().clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE), size)
        return DiagonalGaussian(resized(values, size) + mean * (-noise).exp(), variance(log_inverse + noise))


def has_moments(decoder: AbstractDecoder | None) -> bool:
    """Return whether targets are Gaussian given the emission; pixels of frames are drawn all the same."""
    return decoder is None or (isinstance(decoder, GaussianDecoder) and not decoder.is_of_frames)


def decoded(decoder: AbstractDecoder | None, emitted: Gaussian, generator: torch.Generator | None = None) -> Gaussian:
    """Return the moments of the targets under pairs of opposite draws of each auxiliary; without a decoder, `emitted`.

    Args:
        decoder: Decoder of the model, Gaussian; None where targets are emitted.
        emitted: Auxiliaries, batch shape (time, particle, series).
        generator: Source of random numbers.
    """
    if decoder is None:
        return emitted
    assert isinstance(decoder, GaussianDecoder)
    factor = cholesky(emitted.cov, "the covariance of an auxiliary", jitter=True)
    steps = []
    for mean, root in zip(emitted.mean.unbind(), factor.unbind(), strict=True):  # of all steps at once it would not fit
        shape = (_PAIRS, *mean.shape)
        away = matvec(root, normal(shape, mean, generator))
        # In opposite pairs the linear part of the decoder has no error.
        steps.append(decoder.moments(torch.cat([mean + away, mean - away]).flatten(0, 1)))
    means, deviations = (torch.stack(parts) for parts in zip(*steps, strict=True))
    return Gaussian(means, torch.diag_embed(deviations.square()))


def make_auxiliary(
    num_targets: int, size: int, likelihood: str, skip: bool, image_shape: list[int] | None, filters: int
) -> Auxiliary:
    """Return the auxiliary that the options of a model describe.

    Args:
        num_targets: Components of the target.
        size: Size of the auxiliary; 0 for none, where the targets are emitted.
        likelihood: A name in `DECODERS`.
        skip: Whether targets and first auxiliaries skip the networks between them.
        image_shape: Height and width of frames; None for series.
        filters: Channels of the convolutions of frames.

    Raises:
        ValueError: If an option is not as expected, or two do not go together.
    """
    at_least(0, auxiliary_dim=size)
    at_least(1, filters=filters)
    if not size and (likelihood != "gaussian" or skip or image_shape is not None):
        raise ValueError(
            "without an auxiliary (auxiliary_dim 0) there is no decoder: leave likelihood, skip and "
            "image_shape as they are"
        )
    if likelihood not in DECODERS:
        raise ValueError(f"expected likelihood to be one of {', '.join(DECODERS)}, got {likelihood!r}")
    if image_shape is None:
        return Auxiliary(num_targets, size, likelihood, skip)
    if len(image_shape) != 2:
        raise ValueError(f"expected image_shape to be height and width, got {image_shape}")
    image = ImageSize(image_shape[0], image_shape[1], filters)
    pixels = image.height * image.width
    if pixels != num_targets:
        raise ValueError(f"expected a target for each of {pixels} pixels, got num_targets={num_targets}")
    if skip:
        raise ValueError("skip is for series, not for frames")
    return Auxiliary(num_targets, size, likelihood, skip, image)


def check_auxiliary(auxiliary: Auxiliary, units: Units, training: AuxiliaryTraining, particle_length: int) -> None:
    """Refuses units and training that do not go with an auxiliary.

    Args:
        auxiliary: What the model emits.
        units: Units of the targets.
        training: How the model is trained.
        particle_length: Steps that are filtered with particles; 0 for all.

    Raises:
        ValueError: At the first that does not.
    """
    likelihood, transformation = auxiliary.likelihood, units.transformation
    if auxiliary.image is not None:
        for name, value in (("scaling", units.options.scaling), ("transformation", transformation)):
            if value != "none":
                raise ValueError(f"pixels are not scaled: expected {name} 'none' for frames, got {value!r}")
    if (
        (training.linear_epochs or particle_length)
        and auxiliary.size
        and not (auxiliary.skip and likelihood == "gaussian")
    ):
        raise ValueError(
            "linear_epochs and particle_length are of the linear model that skips the networks: expected skip true "
            f"and the likelihood 'gaussian', got skip {auxiliary.skip} and {likelihood!r}"
        )
    if likelihood in _COUNTS and transformation != "none":
        raise ValueError(f"the likelihood {likelihood!r} is of the data as they are: take transformation 'none'")
    if likelihood in _COUNTS and training.objective == "crps":  # paths of whole numbers have no derivative
        raise ValueError(f"the CRPS of paths teaches {likelihood!r} nothing: take objective 'likelihood'")
    if likelihood == "student-t" and training.objective == "crps" and transformation != "none":
        raise ValueError(
            f"the CRPS is infinite where {transformation!r} of the data has Student's t distribution: take "
            "transformation 'none' or objective 'likelihood'"
        )
