"""Decoders p(y_t | z_t) of an auxiliary variable, by name."""

import abc
import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tsforecast.core.linalg import LOG_2PI
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.torch_internals import normal, standard_gamma
from tsforecast.nn.image import ImageDecoder, ImageSize
from tsforecast.nn.mlp import mlp, resized, shrink_last


class AbstractDecoder(nn.Module, abc.ABC):
    """A network from z_t to the parameters of a distribution of y_t, the targets independent given z_t.

    Observations are in scaled units, (value - location) / scale, whatever the distribution is of.

    Args:
        auxiliary_dim: Size of z_t.
        num_targets: Components of y_t.
        hidden: Widths of the hidden layers.
        skip: Whether the first components of z_t are added to the parameter of the location; the network then begins as
            a small correction.
        image: Sizes, where the targets are the pixels of frames and the network is one of convolutions; `hidden` is not
            read then.
    """

    parameters_of_target = 2
    support = "real"  # of the observations: "real", "counts", or the "unit" interval
    # With a skip the noise begins small: that of the observations is the emission's, which particles do not draw.
    initial_log_inverse_scale = 2.5

    def __init__(
        self,
        auxiliary_dim: int,
        num_targets: int,
        hidden: tuple[int, ...],
        skip: bool = False,
        image: ImageSize | None = None,
    ) -> None:
        super().__init__()
        self.num_targets = num_targets
        if image is None:
            self.layers = mlp(auxiliary_dim, *hidden, num_targets * self.parameters_of_target)
        else:
            self.layers = ImageDecoder(auxiliary_dim, self.parameters_of_target, image)
        self.auxiliary_dim = auxiliary_dim
        self.skip = skip
        self.is_of_frames = image is not None
        if skip:
            assert isinstance(self.layers, nn.Sequential)
            last = shrink_last(self.layers)
            with torch.no_grad():
                last.bias[num_targets : 2 * num_targets] += self.initial_log_inverse_scale

    def raw(self, auxiliary: Float[Tensor, "*batch auxiliary"]) -> list[Float[Tensor, "*batch target"]]:
        """Outputs of the network, one for every parameter of the distribution."""
        location, *others = self.layers(auxiliary).split(self.num_targets, -1)
        return [location + resized(auxiliary, self.num_targets) if self.skip else location, *others]

    def origin(self) -> list[Float[Tensor, " target"]]:
        """Return `raw` at z_t = 0."""
        return self.raw(next(self.layers.parameters()).new_zeros(self.auxiliary_dim))

    def log_inverse_scale(self) -> Float[Tensor, " target"]:
        """Return that of the noise of the location at the origin; 0 where its parameter is a logarithm or a logit."""
        origin = self.origin()
        return origin[1] if self.support == "real" else torch.zeros_like(origin[0])

    @abc.abstractmethod
    def log_prob(
        self,
        auxiliary: Float[Tensor, "*batch auxiliary"],
        value: Float[Tensor, "*#batch target"],
        location: Float[Tensor, "*#batch target"],
        scale: Float[Tensor, "*#batch target"],
    ) -> Float[Tensor, "*batch target"]:
        """Log-density of every component."""

    @abc.abstractmethod
    def sample(
        self,
        auxiliary: Float[Tensor, "*batch auxiliary"],
        location: Float[Tensor, "*#batch target"],
        scale: Float[Tensor, "*#batch target"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        """Observations in scaled units."""

    def mean(
        self,
        auxiliary: Float[Tensor, "*batch auxiliary"],
        location: Float[Tensor, "*#batch target"],
        scale: Float[Tensor, "*#batch target"],
    ) -> Float[Tensor, "*batch target"]:
        """E[y_t | z_t] in scaled units: the first output, unless a decoder has another."""
        return self.raw(auxiliary)[0]


def _scale(raw: Tensor) -> Tensor:
    """A standard deviation of its log inverse, kept where float32 is safe."""
    return (-raw.clamp(-7.0, 7.0)).exp()


class GaussianDecoder(AbstractDecoder):
    """Mean, and log inverse scale."""

    def log_prob(self, auxiliary: Tensor, value: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the log-density of a normal distribution."""
        mean, deviation = self.moments(auxiliary)
        return -0.5 * ((value - mean) / deviation).square() - deviation.log() - 0.5 * LOG_2PI

    def moments(self, auxiliary: Float[Tensor, "*batch auxiliary"]) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of every component."""
        mean, raw = self.raw(auxiliary)
        return mean, _scale(raw)

    def linear(self) -> LinearGaussian:
        """Return the linear part of the decoder: the skip connection, and the network's output at the origin."""
        mean, raw = self.origin()
        # The first components are the targets.
        eye = torch.eye(self.num_targets, self.auxiliary_dim, dtype=mean.dtype, device=mean.device)
        return LinearGaussian(eye if self.skip else torch.zeros_like(eye), mean, torch.diag_embed(_scale(raw).square()))

    def sample(
        self, auxiliary: Tensor, location: Tensor, scale: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return reparametrised draws."""
        mean, deviation = self.moments(auxiliary)
        return mean + deviation * normal(mean.shape, mean, generator)


class StudentTDecoder(AbstractDecoder):
    """Mean, log inverse scale, and degrees of freedom above 2, so that there is a mean."""

    parameters_of_target = 3

    def log_prob(self, auxiliary: Tensor, value: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the log-density of Student's t distribution."""
        mean, raw, freedom = self.raw(auxiliary)
        deviation, freedom = _scale(raw), _freedom(freedom)
        square = ((value - mean) / deviation).square()
        normaliser = torch.lgamma(0.5 * (freedom + 1)) - torch.lgamma(0.5 * freedom)
        normaliser = normaliser - 0.5 * (freedom * math.pi).log() - deviation.log()
        return normaliser - 0.5 * (freedom + 1) * torch.log1p(square / freedom)

    def sample(
        self, auxiliary: Tensor, location: Tensor, scale: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """A normal divided by the root of a gamma; reparametrised."""
        mean, raw, freedom = self.raw(auxiliary)
        freedom = _freedom(freedom)
        gamma = standard_gamma(0.5 * freedom, generator) / (0.5 * freedom)
        noise = normal(mean.shape, mean, generator)
        return mean + _scale(raw) * noise * gamma.clamp_min(1e-6).rsqrt()  # a gamma of few degrees may underflow to 0


def _freedom(raw: Tensor) -> Tensor:
    return 2.0 + nn.functional.softplus(raw.clamp(-10.0, 30.0))


class NegativeBinomialDecoder(AbstractDecoder):
    """Counts: the logarithm of the mean, relative to the location of the series, and of the dispersion.

    The variance is mean + dispersion * mean^2.
    """

    support = "counts"
    initial_log_inverse_scale = 0.0

    def distribution(self, auxiliary: Tensor, location: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and dispersion of the counts."""
        log_mean, log_dispersion = self.raw(auxiliary)
        # A unit above 0, also of series of zeros.
        mean = torch.maximum(location, scale) * log_mean.clamp(-10.0, 10.0).exp()
        return mean.clamp_min(1e-6), log_dispersion.clamp(-7.0, 5.0).exp()  # a mean of 0 allows no count

    def log_prob(self, auxiliary: Tensor, value: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the log-probability of the count: the value in the units of the data, rounded."""
        count = (value * scale + location).round().clamp_min(0.0).double()
        # Of large counts float32 loses everything: terms of a million times log a million cancel.
        mean, dispersion = (x.double() for x in self.distribution(auxiliary, location, scale))
        size = 1 / dispersion
        odds = torch.log1p(dispersion * mean)
        log_prob = torch.lgamma(count + size) - torch.lgamma(size) - torch.lgamma(count + 1)
        return (log_prob - size * odds + count * ((dispersion * mean).log() - odds)).to(value.dtype)

    def sample(
        self, auxiliary: Tensor, location: Tensor, scale: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """A Poisson count, with a rate drawn from a gamma distribution."""
        mean, dispersion = self.distribution(auxiliary, location, scale)
        size = 1 / dispersion
        rate = standard_gamma(size, generator) * mean * dispersion
        # Counts have no derivative.
        return ((torch.poisson(rate.detach(), generator=generator) - location) / scale).to(auxiliary.dtype)

    def mean(self, auxiliary: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the mean of the counts."""
        return ((self.distribution(auxiliary, location, scale)[0] - location) / scale).to(auxiliary.dtype)


class BernoulliDecoder(AbstractDecoder):
    """Logits of values 0 or 1."""

    parameters_of_target = 1
    support = "unit"
    initial_log_inverse_scale = 0.0

    def log_prob(self, auxiliary: Tensor, value: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the log-probability of the value in the units of the data."""
        (logit,) = self.raw(auxiliary)
        target = (value * scale + location).to(logit.dtype).expand(logit.shape)
        return -nn.functional.binary_cross_entropy_with_logits(logit, target, reduction="none")

    def sample(
        self, auxiliary: Tensor, location: Tensor, scale: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return draws of zeros and ones."""
        (logit,) = self.raw(auxiliary)
        return ((torch.bernoulli(torch.sigmoid(logit), generator=generator) - location) / scale).to(auxiliary.dtype)

    def mean(self, auxiliary: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the probabilities of a one."""
        (logit,) = self.raw(auxiliary)
        return ((torch.sigmoid(logit) - location) / scale).to(auxiliary.dtype)


DECODERS: dict[str, type[AbstractDecoder]] = {
    "gaussian": GaussianDecoder,
    "student-t": StudentTDecoder,
    "negative-binomial": NegativeBinomialDecoder,
    "bernoulli": BernoulliDecoder,
}


@dataclasses.dataclass(frozen=True)
class ScaledLikelihood:
    """A decoder for series of given location and scale: the particle filter's p(y_t | z_t).

    Attributes:
        decoder: The network.
        location: Of the scaling, (series, target).
        scale: Likewise.
        weight: Of the log-density.
    """

    decoder: AbstractDecoder
    location: Float[Tensor, "series target"]
    scale: Float[Tensor, "series target"]
    weight: float = 1.0

    def log_prob(
        self,
        auxiliary: Float[Tensor, "particle series auxiliary"],
        value: Float[Tensor, "series target"],
        observed: Bool[Tensor, "series target"] | None,
        time: int,
    ) -> Float[Tensor, "particle series"]:
        """Return the log-density of the observed components."""
        terms = self.decoder.log_prob(auxiliary, value, self.location, self.scale)
        terms = (terms if observed is None else torch.where(observed, terms, 0.0)).sum(-1)
        return terms if self.weight == 1.0 else self.weight * terms

    def sample(
        self, auxiliary: Float[Tensor, "particle series auxiliary"], time: int, generator: torch.Generator | None
    ) -> Float[Tensor, "particle series target"]:
        """Observations in scaled units."""
        return self.decoder.sample(auxiliary, self.location, self.scale, generator)
