"""Linear stochastic differential equations and Markov chains in continuous time, discretised exactly."""

from tsforecast.core.continuous.chain import JumpChain
from tsforecast.core.continuous.components import DampedTrend, OrnsteinUhlenbeck, Rotations
from tsforecast.core.continuous.dense import DenseSDE, stable_drift
from tsforecast.core.continuous.matern import Matern
from tsforecast.core.continuous.sde import AbstractSDE, SumSDE, over_gaps

__all__ = [
    "AbstractSDE",
    "DampedTrend",
    "DenseSDE",
    "JumpChain",
    "Matern",
    "OrnsteinUhlenbeck",
    "Rotations",
    "SumSDE",
    "over_gaps",
    "stable_drift",
]
