"""Switching Gaussian linear systems with dense base matrices: SGLS, RSGLS and ARSGLS (Kurle et al. 2020)."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import Auxiliary, check_auxiliary, make_auxiliary
from tsforecast.models.parts.bounds import one_of
from tsforecast.models.parts.dense import ADVICE, DenseBases, dense_groups
from tsforecast.models.parts.frames import begin_at_components
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.optimisation import AuxiliaryTraining, DenseTraining
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.parts.switching_dynamics import Particles
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec
from tsforecast.nn import DECODERS

_NETWORKS = ("dynamics.",)


def _inference(
    dynamics: SwitchingBases,
    units: Units,
    particles: Particles,
    training: DenseTraining | AuxiliaryTraining,
    stable: bool,
) -> ParticleInference:
    """Return inference by particles, with advice where transitions may expand."""
    advice = "" if stable else ADVICE
    return ParticleInference(dynamics, units, particles, training.objective, training.gradient_length, advice=advice)


class SGLSForecaster(AbstractForecaster[ParticleInference]):
    """Switching Gaussian linear system: switches s_t ~ p(s_t | s_{t-1}, u_t) choose a linear system at every step.

    In the Gaussian form the switch does not depend on the state ("open loop"), as in SNLDS. The categorical form is the
    model of the classical switching Kalman filter, with transition probabilities from a network.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        switch: "gaussian" or "categorical". If "gaussian", a network weighs `num_bases` base matrices. If
            "categorical", each of `switch_dim` categories has its own matrices, and the proposal given the observation
            tries them all.
        state_dim: Size of the dense state. The transition starts as a level and damped rotations at the harmonics of
            the season, and beside components with a short memory. With components it may be 0.
        components: Names of components beside the dense state, joined by "+", see `ISSMForecaster`; "none" for no
            components. The emission is the sum of both, and the switch chooses factors of the noises of components.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no path of switches then makes a forecast
            grow without bound.
        series_scales: Whether the noises of the dense state and of emission have factors of each category and series.
        switch_dim: Size of the switch, or number of categories.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" (a network) or "bootstrap" (the model itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: DenseTraining = DenseTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        *,
        switch: str = "gaussian",
        state_dim: int = 16,
        components: str = "none",
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "encoder",
        persistence: float = 0.0,
    ) -> None:
        one_of(("gaussian", "categorical"), switch=switch)
        one_of(("encoder", "bootstrap"), proposal=proposal)
        if switch == "categorical" and training.objective == "crps":  # which category is drawn has no derivative
            raise ValueError(
                "the CRPS of paths teaches nothing about categorical switches: take objective 'likelihood'"
            )
        dynamics = SwitchingBases(
            DenseBases(
                data, Auxiliary(data.num_targets), state_dim, num_bases, bool(training.linear_epochs), components
            ),
            switch_dim=switch_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            proposal=proposal,
            persistence=persistence,
            stable=stable,
            series_scales=series_scales,
            categorical=switch == "categorical",
        )
        inference = _inference(dynamics, Units(data, scaling), particles, training, stable)
        super().__init__(data, (training, scaling, particles), inference, dense_groups(training, _NETWORKS))
        self.save_hyperparameters(ignore=RECORDS)


class RSGLSForecaster(AbstractForecaster[ParticleInference]):
    """Recurrent SGLS: the switch depends on the state before it, s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        state_dim: Size of the dense state. The transition starts as a level and damped rotations at the harmonics of
            the season, and beside components with a short memory. With components it may be 0.
        components: Names of components beside the dense state, joined by "+", see `ISSMForecaster`; "none" for no
            components. The emission is the sum of both, and the switch chooses factors of the noises of components.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no path of switches then makes a forecast
            grow without bound.
        series_scales: Whether the noises of the dense state and of emission have factors of each category and series.
        switch_dim: Size of the switch.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" (a network) or "bootstrap" (the model itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.
        recurrence: How the next switch depends on the state: "exact", "paper" or "none". "paper" does not condition the
            state on the switch that depends on it. That biases the likelihood, and is there for comparison.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: DenseTraining = DenseTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        *,
        state_dim: int = 16,
        components: str = "none",
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "encoder",
        persistence: float = 0.0,
        recurrence: str = "exact",
    ) -> None:
        one_of(("encoder", "bootstrap"), proposal=proposal)
        dynamics = SwitchingBases(
            DenseBases(
                data, Auxiliary(data.num_targets), state_dim, num_bases, bool(training.linear_epochs), components
            ),
            switch_dim=switch_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            proposal=proposal,
            persistence=persistence,
            recurrence=recurrence,
            stable=stable,
            series_scales=series_scales,
        )
        inference = _inference(dynamics, Units(data, scaling), particles, training, stable)
        super().__init__(data, (training, scaling, particles), inference, dense_groups(training, _NETWORKS))
        self.save_hyperparameters(ignore=RECORDS)


class ARSGLSForecaster(AbstractForecaster[ParticleInference]):
    """Auxiliary-variable RSGLS: the system emits z_t, and a network decodes it, y_t ~ p(y_t | z_t).

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        auxiliary_dim: Size of the auxiliary z; 0 for none, where the system emits the observation (RSGLS).
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether the first auxiliaries stand for the targets, and networks only say what differs. The model then
            begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row. Encoder and decoder are then
            convolutions, and the base transitions begin near the identity.
        filters: Number of channels of these convolutions.
        state_dim: Size of the dense state. The transition starts as a level and damped rotations at the harmonics of
            the season, and beside components with a short memory. With components and without an auxiliary it may be 0.
        components: Names of components beside the dense state, joined by "+", see `ISSMForecaster`; "none" for no
            components. They are added to the first auxiliary, which with `skip` is the mean of the observation. The
            switch chooses factors of their noises.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no path of switches then makes a forecast
            grow without bound.
        series_scales: Whether the noises of the dense state and of emission have factors of each category and series.
        switch_dim: Size of the switch.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "ladder" (one network for switch and auxiliary), "encoder" (one for each) or "bootstrap" (the model
            itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.
        recurrence: How the next switch depends on the state: "exact", "paper" or "none". "paper" does not condition the
            state on the switch that depends on it. That biases the likelihood, and is there for comparison.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        *,
        auxiliary_dim: int = 10,
        likelihood: str = "gaussian",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        state_dim: int = 16,
        components: str = "none",
        num_bases: int = 20,
        stable: bool = False,
        series_scales: bool = False,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "ladder",
        persistence: float = 0.0,
        recurrence: str = "exact",
    ) -> None:
        one_of(("ladder", "encoder", "bootstrap"), proposal=proposal)
        auxiliary = make_auxiliary(data.num_targets, auxiliary_dim, likelihood, skip, image_shape, filters)
        units = Units(data, scaling, DECODERS[likelihood].support)
        check_auxiliary(auxiliary, units, training, particles.particle_length)
        dynamics = SwitchingBases(
            DenseBases(data, auxiliary, state_dim, num_bases, skip or not auxiliary_dim, components),
            switch_dim=switch_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            proposal=proposal,
            persistence=persistence,
            recurrence=recurrence,
            stable=stable,
            series_scales=series_scales,
            reconstruction_weight=training.reconstruction_weight,
        )
        inference = _inference(dynamics, units, particles, training, stable)
        begin = None if image_shape is None else begin_at_components
        groups = dense_groups(training, _NETWORKS, frames=image_shape is not None)
        super().__init__(data, (training, scaling, particles), inference, groups, begin)
        self.save_hyperparameters(ignore=RECORDS)
