"""Forecasters in continuous time: the same filter where series tick unevenly, each by a clock of its own."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.continuous_dynamics import TimedGLSDynamics, TimedISSMDynamics
from tsforecast.models.parts.continuous_regimes import TimedRegimeDynamics
from tsforecast.models.parts.continuous_switching import TimedSwitchingDynamics
from tsforecast.models.parts.exact import ExactInference
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.optimisation import DenseTraining, MatrixTraining, SwitchingTraining, Training
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.switching_dynamics import Particles
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec

_PARTICLES = Particles(forecast_particles=50, resampling_gradient="stop-gradient", particle_length=500)
# Parameters of a dense system that are matrices, with a learning rate of their own.
TIMED_MATRICES = ("turn", "damping", "noise_factor", "emission", "target_inputs")


class TimedISSMForecaster(AbstractForecaster[ExactInference]):
    """A sum of levels, trends, cycles and Matern processes in continuous time, for series with unequal gaps.

    Every component is a linear stochastic differential equation that is discretised exactly over each gap (Harvey 1989,
    chapter 9; Särkkä and Solin 2019), and filtered exactly. Scales and rates are those of the population plus
    deviations of each category and series. Cycles are rotating harmonics, with phases from the calendar. Covariates
    have an effect on the observations of each series. Where there are cycles, the noise and the fading components have
    a rhythm: their size in an observation depends on the phases, in the same way for all series.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        components: Names joined by "+": level, damped_level, trend, damped_trend, oscillation (a damped cycle of
            unknown length), matern12, matern32, matern52; cycles of three harmonics: hour, day, week, month, year;
            "year_with_5_harmonics" has five, and likewise "cycle_of_12h" and "cycle_of_90min_with_2_harmonics".
        unit: Of time, in nanoseconds: the estimator takes the median gap.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: Training = Training(objective="likelihood"),
        scaling: Scaling = Scaling(),
        *,
        components: str = "level+damped_level",
        unit: int = 1,
    ) -> None:
        at_least(1, unit=unit)
        inference = ExactInference(TimedISSMDynamics(data, components, unit), Units(data, scaling), training.objective)
        super().__init__(data, (training, scaling), inference, ParameterGroups(training.learning_rate))
        self.save_hyperparameters(ignore=RECORDS)


class TimedRSGLSISSMForecaster(AbstractForecaster[ParticleInference]):
    """An ISSM in continuous time with switching noises, so that there are calm and wild times.

    The components are those of `TimedISSMForecaster`. The switch is an Ornstein-Uhlenbeck process, whose step over a
    gap g is exact: it keeps the share exp(-rate g). It multiplies the scales of the noises of all components, and of
    that of observations, by a mixture of base factors. The switch is read on a grid of cells of time: a long gap passes
    through all of its cells, and a short one keeps the regime of its cell. So a forecast does not depend on the times
    of other forecasts. Given the switches all is linear and Gaussian (Rao-Blackwellised particle filter; Kurle et al.
    2020). The model equals the ISSM while the factors are one, and is trained as such in its first epochs.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        components: Names joined by "+", see `TimedISSMForecaster`.
        num_bases: Number of base factors.
        switch_dim: Size of the switch.
        hidden: Width of the layer that reads the weights of the base factors from the switch.
        persistence: Initial share of the switch that stays over a unit of time, above 0 and below 1. It is that of the
            first dimension; the others are slower.
        cell: Units of time in a cell.
        unit: Of time, in nanoseconds: the estimator takes the median gap.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: SwitchingTraining = SwitchingTraining(network_learning_rate=0.01, linear_epochs=40),
        scaling: Scaling = Scaling(),
        particles: Particles = _PARTICLES,
        *,
        components: str = "level+damped_level",
        num_bases: int = 10,
        switch_dim: int = 4,
        hidden: int = 32,
        persistence: float = 0.95,
        cell: int = 2,
        unit: int = 1,
    ) -> None:
        at_least(1, unit=unit, cell=cell)
        inside = TimedISSMDynamics(data, components, unit)
        dynamics = TimedSwitchingDynamics(inside, cell * unit, num_bases, switch_dim, hidden, persistence)
        inference = ParticleInference(
            dynamics,
            Units(data, scaling),
            particles,
            training.objective,
            training.gradient_length,
            linear_objective="likelihood",
        )
        groups = ParameterGroups(
            training.learning_rate,
            ("mixture.", "log_rate"),
            training.network_learning_rate,
            linear_epochs=training.linear_epochs,
        )
        super().__init__(data, (training, scaling, particles), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)


class TimedGLSForecaster(AbstractForecaster[ExactInference]):
    """A dense stable system in continuous time, with matrices shared by all series.

        dx = F x dt + dw,    y(t) = C x(t) + D u(t) + v(t)

    The drift F has a negative semidefinite symmetric part, so that no state grows; it begins as a level and damped
    rotations. Over each gap it is discretised by the matrix exponential. Several targets are modelled jointly.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        state_dim: Size of the state.
        unit: Of time, in nanoseconds: the estimator takes the median gap.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: MatrixTraining = MatrixTraining(objective="likelihood"),
        scaling: Scaling = Scaling(),
        *,
        state_dim: int = 8,
        unit: int = 1,
    ) -> None:
        at_least(1, unit=unit)
        inference = ExactInference(TimedGLSDynamics(data, state_dim), Units(data, scaling), training.objective)
        groups = ParameterGroups(
            training.learning_rate, matrices=TIMED_MATRICES, matrix_learning_rate=training.matrix_learning_rate
        )
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)


class TimedSGLSForecaster(AbstractForecaster[ParticleInference]):
    """Dense systems in continuous time, with a Markov chain that jumps between them.

    A regime i changes to j at a rate q_ij, so that over a gap g the probabilities are exp(Q g), which is exact. Each
    regime has a drift, noises of the state and a noise of observations; the emission is that of all. The chain is read
    on a grid of cells of time, as in `TimedRSGLSISSMForecaster`. A proposal given the observation tries all regimes.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        switch: "categorical": in continuous time there are no others.
        state_dim: Size of the state.
        switch_dim: Number of regimes.
        persistence: Initial probability that a regime lasts for a unit of time, above 0 and below 1.
        cell: Units of time in a cell.
        unit: Of time, in nanoseconds: the estimator takes the median gap.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: DenseTraining = DenseTraining(
            learning_rate=0.1, network_learning_rate=0.03, matrix_learning_rate=3e-3, linear_epochs=40
        ),
        scaling: Scaling = Scaling(),
        particles: Particles = _PARTICLES,
        *,
        switch: str = "categorical",
        state_dim: int = 8,
        switch_dim: int = 3,
        persistence: float = 0.95,
        cell: int = 2,
        unit: int = 1,
    ) -> None:
        one_of(("categorical",), switch=switch)
        at_least(1, unit=unit, cell=cell)
        if training.objective == "crps":  # which category is drawn has no derivative
            raise ValueError("the CRPS of paths teaches nothing about categorical switches: take 'likelihood'")
        dynamics = TimedRegimeDynamics(TimedGLSDynamics(data, state_dim), cell * unit, switch_dim, persistence)
        units = Units(data, scaling)
        inference = ParticleInference(dynamics, units, particles, linear_objective="likelihood")
        groups = ParameterGroups(
            training.learning_rate,
            ("turns", "dampings", "factors", "log_rates"),
            training.network_learning_rate,
            matrices=tuple(f"inside.{name}" for name in TIMED_MATRICES),
            matrix_learning_rate=training.matrix_learning_rate,
            linear_epochs=training.linear_epochs,
            linear_share=training.linear_share,
        )
        super().__init__(data, (training, scaling, particles), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)


# Models of series with clocks of their own, under the names that the regular ones have.
TIMED: dict[str, type[AbstractForecaster]] = {
    "issm": TimedISSMForecaster,
    "gls": TimedGLSForecaster,
    "rsgls-issm": TimedRSGLSISSMForecaster,
    "sgls": TimedSGLSForecaster,
}
