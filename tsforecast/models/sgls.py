"""Switching Gaussian linear systems with dense base matrices: SGLS, RSGLS and ARSGLS (Kurle et al. 2020)."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import one_of
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import Auxiliary, check_auxiliary, make_auxiliary
from tsforecast.models.parts.categories import begin_of
from tsforecast.models.parts.dense import ADVICE, DenseSwitch, dense_groups
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
    is_collapsed: bool = False,
) -> ParticleInference:
    """Return inference by particles, with advice where transitions may expand."""
    options = {"advice": "" if stable else ADVICE, "is_collapsed": is_collapsed}
    return ParticleInference(dynamics, units, particles, training.objective, training.gradient_length, **options)


class SGLSForecaster(AbstractForecaster[ParticleInference]):
    """Switching Gaussian linear system: switches s_t ~ p(s_t | s_{t-1}, u_t) choose a linear system at every step.

    In the Gaussian form the switch does not depend on the state ("open loop"), as in SNLDS. The categorical form is the
    model of the classical switching Kalman filter, with transition probabilities from a network.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        dense: Options of the dense state and the switch.
        switch: "gaussian" or "categorical". If "gaussian", a network weighs `num_bases` base matrices. If
            "categorical", each of `switch_dim` categories has its own matrices, and the proposal given the observation
            tries them all. Training is then by the likelihood of Kim's filter, without random numbers.
        starts: Number of runs of EM at the best of which categories begin, as autoregressions whose lags the state
            holds; 0 for none. Components beside the state are quiet then.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: DenseTraining = DenseTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        dense: DenseSwitch = DenseSwitch(),
        *,
        switch: str = "gaussian",
        starts: int = 4,
    ) -> None:
        one_of(("encoder", "bootstrap"), proposal=dense.proposal)
        begin = begin_of(switch, starts, training)
        dynamics = SwitchingBases(
            dense.bases(data, Auxiliary(data.num_targets), bool(training.linear_epochs)),
            dense,
            categorical=begin is not None,
        )
        inference = _inference(dynamics, Units(data, scaling), particles, training, dense.stable, begin is not None)
        groups = dense_groups(training, _NETWORKS)
        super().__init__(data, (training, scaling, particles, dense), inference, groups, begin)
        self.save_hyperparameters(ignore=RECORDS)


class RSGLSForecaster(AbstractForecaster[ParticleInference]):
    """Recurrent SGLS: the switch depends on the state before it, s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        dense: Options of the dense state and the switch.
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
        dense: DenseSwitch = DenseSwitch(),
        *,
        recurrence: str = "exact",
    ) -> None:
        one_of(("encoder", "bootstrap"), proposal=dense.proposal)
        dynamics = SwitchingBases(
            dense.bases(data, Auxiliary(data.num_targets), bool(training.linear_epochs)), dense, recurrence=recurrence
        )
        inference = _inference(dynamics, Units(data, scaling), particles, training, dense.stable)
        super().__init__(data, (training, scaling, particles, dense), inference, dense_groups(training, _NETWORKS))
        self.save_hyperparameters(ignore=RECORDS)


class ARSGLSForecaster(AbstractForecaster[ParticleInference]):
    """Auxiliary-variable RSGLS: the system emits z_t, and a network decodes it, y_t ~ p(y_t | z_t).

    With a categorical switch and no auxiliary it is the SGLS of categories, see `SGLSForecaster`.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        dense: Options of the dense state and the switch.
        auxiliary_dim: Size of the auxiliary z; 0 for none, where the system emits the observation (RSGLS). None for 10,
            or for none where the switch is categorical.
        likelihood: "gaussian", "student-t", "negative-binomial" (counts) or "bernoulli" (zeros and ones).
        skip: Whether the first auxiliaries stand for the targets, and networks only model the difference. The model
            then begins as a linear one.
        image_shape: Height and width of frames, whose pixels are the targets row by row. Encoder and decoder are then
            convolutions, and the base transitions begin near the identity.
        filters: Number of channels of these convolutions.
        recurrence: How the next switch depends on the state: "exact", "paper" or "none". "paper" does not condition the
            state on the switch that depends on it. That biases the likelihood, and is there for comparison.
        switch: "gaussian" or "categorical"; a categorical one has no recurrence, and there is no auxiliary beside it.
        starts: Number of runs of EM at the best of which categories begin; 0 for none.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: AuxiliaryTraining = AuxiliaryTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        dense: DenseSwitch = DenseSwitch(proposal="ladder"),
        *,
        auxiliary_dim: int | None = None,
        likelihood: str = "gaussian",
        skip: bool = False,
        image_shape: list[int] | None = None,
        filters: int = 32,
        recurrence: str = "exact",
        switch: str = "gaussian",
        starts: int = 4,
    ) -> None:
        one_of(("ladder", "encoder", "bootstrap"), proposal=dense.proposal)
        begin = begin_of(switch, starts, training)
        categorical = begin is not None
        if categorical and auxiliary_dim:
            raise ValueError(f"expected no auxiliary beside a categorical switch, got auxiliary_dim={auxiliary_dim}")
        auxiliary_dim = (0 if categorical else 10) if auxiliary_dim is None else auxiliary_dim
        auxiliary = make_auxiliary(data.num_targets, auxiliary_dim, likelihood, skip, image_shape, filters)
        units = Units(data, scaling, DECODERS[likelihood].support)
        check_auxiliary(auxiliary, units, training, particles.particle_length)
        dynamics = SwitchingBases(
            # Only a model with a linear path begins as a linear one.
            dense.bases(data, auxiliary, skip or not auxiliary_dim),
            dense,
            recurrence="none" if categorical else recurrence,
            categorical=categorical,
            reconstruction_weight=training.reconstruction_weight,
        )
        inference = _inference(dynamics, units, particles, training, dense.stable, categorical)
        begin = begin if image_shape is None else begin_at_components
        groups = dense_groups(training, _NETWORKS, frames=image_shape is not None)
        super().__init__(data, (training, scaling, particles, dense), inference, groups, begin)
        self.save_hyperparameters(ignore=RECORDS)
