"""Decisions from beliefs: contextual bandits, and optimisation of costly functions."""

from tsforecast.decisions.ascent import Ascent
from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.buffer import Buffer, History
from tsforecast.decisions.config import AGENTS, ENCODINGS, RULES, AgentConfig
from tsforecast.decisions.encoding import AbstractEncoding, ArmOutput, BlockFeatures, Concatenated, OutputPerArm
from tsforecast.decisions.ensembles import BootstrapRewards, DropoutRewards
from tsforecast.decisions.environments import Environment
from tsforecast.decisions.fitting import Descent, Fit
from tsforecast.decisions.functions import FUNCTIONS, TestFunction
from tsforecast.decisions.learnt import LearntRewards
from tsforecast.decisions.linear import LinearRewards, WindowRewards
from tsforecast.decisions.logistic import LogisticRewards
from tsforecast.decisions.matching import MatchedRewards
from tsforecast.decisions.neural_linear import NeuralLinearRewards
from tsforecast.decisions.optimisation import Evaluations, Recommendation, ThompsonOptimiser, TrustRegion
from tsforecast.decisions.play import play
from tsforecast.decisions.rewards import AbstractRewards, ArmRewards, Interactions
from tsforecast.decisions.rules import UCB, AbstractRule, EpsilonGreedy, Greedy, Thompson
from tsforecast.decisions.saved import load_bandit, save_bandit
from tsforecast.decisions.stein import SteinRewards
from tsforecast.decisions.subspace import SubspaceRewards
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.decisions.tangent import TangentRewards

__all__ = [
    "AGENTS",
    "ENCODINGS",
    "FUNCTIONS",
    "RULES",
    "UCB",
    "AbstractEncoding",
    "AbstractRewards",
    "AbstractRule",
    "AgentConfig",
    "ArmOutput",
    "ArmRewards",
    "Ascent",
    "Bandit",
    "BlockFeatures",
    "BootstrapRewards",
    "Buffer",
    "Concatenated",
    "Descent",
    "DropoutRewards",
    "Environment",
    "EpsilonGreedy",
    "Evaluations",
    "Fit",
    "Greedy",
    "History",
    "Interactions",
    "LearntRewards",
    "LinearRewards",
    "LogisticRewards",
    "MatchedRewards",
    "NeuralLinearRewards",
    "OutputPerArm",
    "Recommendation",
    "SteinRewards",
    "SubspaceRewards",
    "Surrogate",
    "TangentRewards",
    "TestFunction",
    "Thompson",
    "ThompsonOptimiser",
    "TrustRegion",
    "WindowRewards",
    "load_bandit",
    "play",
    "save_bandit",
]
