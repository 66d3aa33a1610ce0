"""Innovation state-space model: level, trend and seasons, with noises learnt per series or by a network."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.exact import ExactInference
from tsforecast.models.parts.issm_dynamics import ISSMDynamics
from tsforecast.models.parts.joint_inference import JointInference, joined, of_one_target
from tsforecast.models.parts.optimisation import Training
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec


class ISSMForecaster(AbstractForecaster[ExactInference | JointInference]):
    """A sum of levels, trends and seasons that learns the scales of its noises, its dampings and its prior.

    Deep state-space models call this structure ISSM (Rangapuram et al. 2018), and the switching-model papers use it
    with fixed parameters. With free parameters of each series it is a classical structural model (Harvey 1989). Scales
    are those of the population plus deviations of each category and series. A series that was not in the training data
    has the population's. The likelihood is that of the exact Kalman filter.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        components: Names joined by "+": level, damped_level, trend, damped_trend, hour_of_day, hour_by_kind_of_day
            (working days and weekends apart), hour_of_week, day_of_week, month_of_year, ..., cycle_of_N; smooth seasons
            of three harmonics: day, week, month, year; "year_with_5_harmonics" has five, and likewise
            "cycle_of_N_with_5_harmonics"; "auto" chooses by the frequency; "paper" takes those of the switching-model
            papers (level + seasons).
        scales: "free" for constants of each series; "network" adds to their logarithms a network over time features,
            active seasons and an embedding of the series, so that scales vary with time.
        embedding_dim: Size of the series' embedding in that network.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: Training = Training(),
        scaling: Scaling = Scaling(),
        *,
        components: str = "auto",
        scales: str = "free",
        embedding_dim: int = 10,
    ) -> None:
        own = of_one_target(data)
        dynamics = ISSMDynamics(own, components, scales, embedding_dim, has_prior=True)
        one = ExactInference(dynamics, Units(own, scaling), training.objective, dynamics.surprise)
        inference = joined(one, Units(data, scaling))
        groups = ParameterGroups(training.learning_rate, ("network.",), training.network_learning_rate)
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
