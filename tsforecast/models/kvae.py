"""Kalman variational auto-encoders (Fraccaro et al. 2017), trained by an exact or by a sampled bound."""

import dataclasses
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from tsforecast.core.particles.given_switches import linear_given_switches
from tsforecast.core.sampled_evidence import sampled_evidence
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import at_least
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import check_auxiliary, make_auxiliary
from tsforecast.models.parts.dense import ADVICE, DenseBases, dense_groups
from tsforecast.models.parts.frames import begin_at_components
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.optimisation import AuxiliaryTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.recurrent_bases import KVAEDynamics
from tsforecast.models.parts.switching_dynamics import Particles
from tsforecast.models.parts.units import Scaling, Units, scaled
from tsforecast.models.records import Batch, DataSpec, Series
from tsforecast.nn import DECODERS

_NETWORKS = ("lstm.",)


def exact_bound(inference: ParticleInference, batch: Batch) -> Float[Tensor, " series"]:
    """Return the negative evidence lower bound per observed value at one sample of z, the state integrated out.

    Args:
        inference: Inference in a Kalman VAE.
        batch: Its past and future are read.
    """
    location, scale = inference.scale_of(batch)
    time_slice = inference.slice_of(batch, "both")
    filtered, _, _ = inference.filtering.run(time_slice, Series.of(batch), location, scale, whole=True, num_particles=1)
    return -filtered.log_likelihood.sum(0) / _count(batch)


def sampled_bound(inference: ParticleInference, batch: Batch) -> Float[Tensor, " series"]:
    """Return the negative evidence lower bound per observed value at one sample of z and of the smoothed states.

    Args:
        inference: Inference in a Kalman VAE.
        batch: Its past and future are read.
    """
    location, scale = inference.scale_of(batch)
    time_slice = inference.slice_of(batch, "both")
    filtered, system, start = inference.filtering.run(  # one sample is unbiased for the bound
        time_slice, Series.of(batch), location, scale, whole=True, num_particles=1, keep_history=True
    )
    assert filtered.history is not None
    given = linear_given_switches(system, start, filtered.history, *scaled(time_slice, location, scale))
    # The filter's bound has the exact log-likelihood in it: a sampled one takes its place.
    sampled, exact = sampled_evidence(*given), given[0].log_likelihood(*given[1:]).sum(0)
    bound = filtered.log_likelihood.sum(0) + (sampled - exact).squeeze(0)
    return -bound / _count(batch)


def _count(batch: Batch) -> Tensor:
    """Return the number of observed values of past and future, at least 1."""
    # A window may lack every value.
    return (batch["past_observed"].sum((1, 2)) + batch["future_observed"].sum((1, 2))).clamp_min(1)


@dataclasses.dataclass(frozen=True)
class KalmanVAE:
    """Options of a Kalman variational auto-encoder.

    Attributes:
        auxiliary_dim: Size of the auxiliary z.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether the first auxiliaries stand for the targets, and networks only model the difference. The model
            then begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row. Encoder and decoder are then
            convolutions, and the base transitions begin near the identity.
        filters: Number of channels of these convolutions.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        state_dim: Size of the dense state. The transition starts as a level and damped rotations at the harmonics of
            the season, and beside components with a short memory.
        components: Names of components beside the dense state, joined by "+", see `ISSMForecaster`; "none" for no
            components. They are added to the first auxiliary, which with `skip` is the mean of the observation.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no forecast then grows without bound.
        series_scales: Whether the noises of the dense state and of emission have factors of each category and series.
        num_particles: Number of samples of z in filtering and forecasts; training takes one.
        particle_length: Steps at the end of a history that are filtered with samples; 0 for all. The linear model
            inside filters those before.

    Raises:
        ValueError: If the auxiliary has no size.
    """

    auxiliary_dim: int = 10
    likelihood: str = "gaussian"
    skip: bool = False
    image_shape: list[int] | None = None
    filters: int = 32
    memory_dim: int = 50
    hidden: int = 64
    embedding_dim: int = 50
    state_dim: int = 16
    components: str = "none"
    num_bases: int = 20
    stable: bool = False
    series_scales: bool = False
    num_particles: int = 10
    particle_length: int = 0

    def __post_init__(self) -> None:
        at_least(1, auxiliary_dim=self.auxiliary_dim)


def _parts(
    data: DataSpec,
    training: AuxiliaryTraining,
    scaling: Scaling,
    network: KalmanVAE,
    bound: Callable[[ParticleInference, Batch], Tensor],
) -> tuple[ParticleInference, ParameterGroups, Callable[[ParticleInference, Batch], None] | None]:
    """Return inference by samples of z, with a bound in the place of the likelihood; the groups; and the beginning."""
    skip, shape = network.skip, network.image_shape
    emission = network.auxiliary_dim, network.likelihood, skip, shape, network.filters
    auxiliary = make_auxiliary(data.num_targets, *emission)
    dynamics = KVAEDynamics(
        DenseBases(data, auxiliary, network.state_dim, network.num_bases, skip, network.components),
        memory_dim=network.memory_dim,
        hidden=network.hidden,
        embedding_dim=network.embedding_dim,
        stable=network.stable,
        series_scales=network.series_scales,
        reconstruction_weight=training.reconstruction_weight,
    )
    units = Units(data, scaling, DECODERS[auxiliary.likelihood].support)
    check_auxiliary(auxiliary, units, training, network.particle_length)
    particles = Particles(network.num_particles, particle_length=network.particle_length)
    chosen = training.objective, training.gradient_length, bound, "" if dynamics.mixture.stable else ADVICE
    # Samples of q are not resampled.
    inference = ParticleInference(dynamics, units, particles, *chosen, threshold=0.0)
    groups = dense_groups(training, _NETWORKS, shape is not None)
    return inference, groups, None if shape is None else begin_at_components


class KVAERBForecaster(AbstractForecaster[ParticleInference]):
    """KVAE-RB (Kurle et al. 2020): the bound has the Kalman filter's exact likelihood of z; see `KVAEDynamics`.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        network: Options of the networks and of the dense state.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        network: KalmanVAE = KalmanVAE(),
    ) -> None:
        super().__init__(data, (training, scaling, network), *_parts(data, training, scaling, network, exact_bound))
        self.save_hyperparameters(ignore=RECORDS)


class KVAEMCForecaster(AbstractForecaster[ParticleInference]):
    """KVAE-MC: the bound has log p(z, x) + H[p(x | z)] at a joint sample x of the smoothed states; see `KVAEDynamics`.

    The bound has the same mean as that of KVAE-RB.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        network: Options of the networks and of the dense state.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        network: KalmanVAE = KalmanVAE(),
    ) -> None:
        super().__init__(data, (training, scaling, network), *_parts(data, training, scaling, network, sampled_bound))
        self.save_hyperparameters(ignore=RECORDS)
