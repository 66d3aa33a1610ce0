"""Kalman variational auto-encoders (Fraccaro et al. 2017), by sampled and by exact state objective."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from tsforecast.core import kalman
from tsforecast.core.particles.smoothing import linear_given_switches
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import check_auxiliary, make_auxiliary
from tsforecast.models.parts.dense import ADVICE, BASE_MATRICES, DenseBases
from tsforecast.models.parts.frames import begin_at_components
from tsforecast.models.parts.monte_carlo import ParticleInference, Particles
from tsforecast.models.parts.optimisation import AuxiliaryTraining, ParameterGroups
from tsforecast.models.parts.recurrent_bases import KVAEDynamics
from tsforecast.models.parts.units import Scaling, Units, scaled
from tsforecast.models.records import Batch, DataSpec, Series
from tsforecast.nn import DECODERS


def exact_bound(inference: ParticleInference, batch: Batch) -> Float[Tensor, " series"]:
    """The negative evidence lower bound of past and future at one sample of z, the state integrated out.

    Args:
        inference: In a Kalman VAE.
        batch: Its past and future are read.
    """
    location, scale = inference.scale_of(batch)
    time_slice = inference.slice_of(batch, "both")
    filtered, _, _ = inference.run(time_slice, Series.of(batch), location, scale, whole=True, num_particles=1)
    return -filtered.log_likelihood.sum(0) / _count(batch)


def sampled_bound(inference: ParticleInference, batch: Batch) -> Float[Tensor, " series"]:
    """The negative evidence lower bound of past and future at one sample of z, and of the smoothed states given it.

    Args:
        inference: In a Kalman VAE.
        batch: Its past and future are read.
    """
    location, scale = inference.scale_of(batch)
    time_slice = inference.slice_of(batch, "both")
    filtered, system, start = inference.run(
        time_slice, Series.of(batch), location, scale, whole=True, num_particles=1, keep_history=True
    )
    assert filtered.history is not None
    given = linear_given_switches(system, start, filtered.history, *scaled(time_slice, location, scale))
    sampled, exact = kalman.sampled_evidence(*given), given[0].log_likelihood(*given[1:]).sum(0)
    bound = filtered.log_likelihood.sum(0) + (sampled - exact).squeeze(0)
    return -bound / _count(batch)


def _count(batch: Batch) -> Tensor:
    """Observed values of past and future."""
    return (batch["past_observed"].sum((1, 2)) + batch["future_observed"].sum((1, 2))).clamp_min(1)


_NETWORKS = ("inputs.", "mixture.weights.", "lstm.", "proposal_network.", "decoder.", "encoder.")


def _groups(training: AuxiliaryTraining, frames: bool) -> ParameterGroups:
    """Of networks, base matrices, and the rest."""
    return ParameterGroups(
        training.learning_rate,
        _NETWORKS,
        training.network_learning_rate,
        BASE_MATRICES,
        training.matrix_learning_rate,
        network_rise=0.0 if frames else 0.2,  # of frames nothing can be learnt before there is a picture
        linear_epochs=training.linear_epochs,
        linear_share=training.linear_share,
    )


def _inference(
    dynamics: KVAEDynamics,
    scaling: Scaling,
    particles: Particles,
    training: AuxiliaryTraining,
    bound: Callable[[ParticleInference, Batch], Tensor],
) -> ParticleInference:
    """By samples of z, whose likelihood is a bound."""
    auxiliary = dynamics.emits
    units = Units(dynamics.bases.data, scaling, DECODERS[auxiliary.likelihood].support)
    check_auxiliary(auxiliary, units, training, particles.particle_length)
    advice = "" if dynamics.mixture.stable else ADVICE
    return ParticleInference(dynamics, units, particles, training.objective, training.gradient_length, bound, advice)


class KVAERBForecaster(AbstractForecaster[ParticleInference]):
    """KVAE-RB (Kurle et al. 2020): the bound has the Kalman filter's exact likelihood of z; see `KVAEDynamics`.

    Args:
        data: What the estimator finds.
        training: How it is trained.
        scaling: In which units it sees the targets.
        auxiliary_dim: Size of z.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether networks between targets and auxiliaries only say what differs from the first auxiliaries being
            the targets: the model begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row: encoder and decoder are
            convolutions then, and the base transitions begin near identity.
        filters: Channels of these convolutions.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        state_dim: Size of the state. The transition starts as a level and damped rotations at the harmonics of the
            season.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no forecast then grows without bound.
        series_scales: Whether the noises of state and emission have factors of each category and series.
        num_particles: Samples of z for filtering and forecasts; training has one.
        particle_length: Steps at the end of a history that are filtered with samples; those before by the linear model
            inside. 0 for all.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        *,
        auxiliary_dim: int = 10,
        likelihood: str = "gaussian",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        memory_dim: int = 50,
        hidden: int = 64,
        embedding_dim: int = 50,
        state_dim: int = 16,
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        num_particles: int = 10,
        particle_length: int = 0,
    ) -> None:
        auxiliary = make_auxiliary(data.num_targets, auxiliary_dim, likelihood, skip, image_shape, filters)
        dynamics = KVAEDynamics(
            DenseBases(data, auxiliary, state_dim, num_bases, begins_linear=skip),
            memory_dim=memory_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            stable=stable,
            series_scales=series_scales,
            reconstruction_weight=training.reconstruction_weight,
        )
        particles = Particles(num_particles, resample_below=0.0, particle_length=particle_length)
        inference = _inference(dynamics, scaling, particles, training, exact_bound)
        begin = None if image_shape is None else begin_at_components
        super().__init__(data, (training, scaling), inference, _groups(training, image_shape is not None), begin)
        self.save_hyperparameters(ignore=RECORDS)


class KVAEMCForecaster(AbstractForecaster[ParticleInference]):
    """KVAE-MC: the bound has log p(z, x) + H[p(x | z)] at a joint sample x of the smoothed states; see `KVAEDynamics`.

    Its mean is KVAE-RB's.

    Args:
        data: What the estimator finds.
        training: How it is trained.
        scaling: In which units it sees the targets.
        auxiliary_dim: Size of z.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether networks between targets and auxiliaries only say what differs from the first auxiliaries being
            the targets: the model begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row: encoder and decoder are
            convolutions then, and the base transitions begin near identity.
        filters: Channels of these convolutions.
        memory_dim: Cells of the LSTM.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        state_dim: Size of the state. The transition starts as a level and damped rotations at the harmonics of the
            season.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no forecast then grows without bound.
        series_scales: Whether the noises of state and emission have factors of each category and series.
        num_particles: Samples of z for filtering and forecasts; training has one.
        particle_length: Steps at the end of a history that are filtered with samples; those before by the linear model
            inside. 0 for all.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        *,
        auxiliary_dim: int = 10,
        likelihood: str = "gaussian",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        memory_dim: int = 50,
        hidden: int = 64,
        embedding_dim: int = 50,
        state_dim: int = 16,
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        num_particles: int = 10,
        particle_length: int = 0,
    ) -> None:
        auxiliary = make_auxiliary(data.num_targets, auxiliary_dim, likelihood, skip, image_shape, filters)
        dynamics = KVAEDynamics(
            DenseBases(data, auxiliary, state_dim, num_bases, begins_linear=skip),
            memory_dim=memory_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            stable=stable,
            series_scales=series_scales,
            reconstruction_weight=training.reconstruction_weight,
        )
        particles = Particles(num_particles, resample_below=0.0, particle_length=particle_length)
        inference = _inference(dynamics, scaling, particles, training, sampled_bound)
        begin = None if image_shape is None else begin_at_components
        super().__init__(data, (training, scaling), inference, _groups(training, image_shape is not None), begin)
        self.save_hyperparameters(ignore=RECORDS)
