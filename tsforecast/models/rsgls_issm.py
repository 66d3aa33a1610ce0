"""Switching innovation state-space model: level, trend and seasons, with noises that a switch sets."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import one_of
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import Auxiliary
from tsforecast.models.parts.categories import begin_of
from tsforecast.models.parts.component_names import component_names
from tsforecast.models.parts.dense import DenseSwitch
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.optimisation import SwitchingTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.parts.switching_dynamics import Particles
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec


class RSGLSISSMForecaster(AbstractForecaster[ParticleInference]):
    """RSGLS-ISSM: an ISSM with transition and emission fixed by its components, and with switching noises.

    The switch s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise multiplies the scales of all noise sources by a
    mixture of base factors. Scales, dampings and prior of each series are those of an ISSM (see `ISSMForecaster`). The
    model equals this ISSM while the factors are one. It may be trained as such, in closed form, in its first epochs.
    In the categorical form an autoregression is added, whose coefficients switch with the noises, see `SGLSForecaster`.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        components: Names joined by "+", see `ISSMForecaster`.
        num_bases: Number of base factors.
        switch_dim: Size of the switch.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" (a network) or "bootstrap" (the model itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.
        recurrence: How the next switch depends on the state: "exact", "paper" or "none". "paper" does not condition the
            state on the switch that depends on it. That biases the likelihood, and is there for comparison.
        switch: "gaussian" or "categorical"; a categorical one has no recurrence, and looks at the observation.
        state_dim: Size of a dense state beside the components: the lags of the autoregression of each category.
        starts: Number of runs of EM at the best of which categories begin; 0 for none.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: SwitchingTraining = SwitchingTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        *,
        components: str = "auto",
        num_bases: int = 20,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "encoder",
        persistence: float = 0.0,
        recurrence: str = "exact",
        switch: str = "gaussian",
        state_dim: int = 0,
        starts: int = 4,
    ) -> None:
        one_of(("encoder", "bootstrap"), proposal=proposal)
        begin = begin_of(switch, starts, training)
        names = "+".join(component_names(components, data.freq))
        dense = DenseSwitch(
            state_dim=state_dim,
            components=names,
            num_bases=num_bases,
            switch_dim=switch_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            proposal=proposal,
            persistence=persistence,
        )
        bases = dense.bases(data, Auxiliary(data.num_targets), begins_linear=True)
        categorical = begin is not None
        recurrence = "none" if categorical else recurrence
        dynamics = SwitchingBases(bases, dense, recurrence=recurrence, categorical=categorical)
        of_loss = (training.objective, training.gradient_length)
        inference = ParticleInference(dynamics, Units(data, scaling), particles, *of_loss, is_collapsed=categorical)
        groups = ParameterGroups(
            training.learning_rate,
            ("inputs.", "mixture.", "dynamics.", "proposal_network."),
            training.network_learning_rate,
            linear_epochs=training.linear_epochs,
        )
        super().__init__(data, (training, scaling, particles), inference, groups, begin)
        self.save_hyperparameters(ignore=RECORDS)
