"""Decisions from beliefs: contextual bandits, and optimisation of costly functions."""

from tsforecast.decisions.ascent import Ascent
from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.buffer import Buffer, History
from tsforecast.decisions.config import AGENTS, ENCODINGS, RULES, AgentConfig
from tsforecast.decisions.encoding import AbstractEncoding, ArmOutput, BlockFeatures, Concatenated, OutputPerArm
from tsforecast.decisions.ensembles import BootstrapRewards, DropoutRewards
from tsforecast.decisions.environments import Environment
from tsforecast.decisions.evaluations import Evaluations, Recommendation
from tsforecast.decisions.fitting import Descent, Fit
from tsforecast.decisions.functions import FUNCTIONS, TestFunction
from tsforecast.decisions.learnt import LearntRewards
from tsforecast.decisions.linear import LinearRewards, WindowRewards
from tsforecast.decisions.logged_rounds import LoggedRounds, cross_fitted
from tsforecast.decisions.logistic import LogisticRewards
from tsforecast.decisions.logs import Log, LogColumns, read_log
from tsforecast.decisions.matching import MatchedRewards
from tsforecast.decisions.neural_linear import NeuralLinearRewards
from tsforecast.decisions.off_policy import Estimate, PolicyValue, evaluate_policy
from tsforecast.decisions.optimisation import Optimiser
from tsforecast.decisions.play import Decision, decide, play
from tsforecast.decisions.rewards import AbstractRewards, ArmRewards, Interactions
from tsforecast.decisions.rules import UCB, AbstractRule, Chances, EpsilonGreedy, Greedy, Softmax, Thompson
from tsforecast.decisions.saved import load_bandit, save_bandit
from tsforecast.decisions.space import Choice, Number, Space
from tsforecast.decisions.stein import SteinRewards
from tsforecast.decisions.subspace import SubspaceRewards
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.decisions.tangent import TangentRewards
from tsforecast.decisions.trust_region import TrustRegion

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
    "Chances",
    "Choice",
    "Concatenated",
    "Decision",
    "Descent",
    "DropoutRewards",
    "Environment",
    "EpsilonGreedy",
    "Estimate",
    "Evaluations",
    "Fit",
    "Greedy",
    "History",
    "Interactions",
    "LearntRewards",
    "LinearRewards",
    "Log",
    "LogColumns",
    "LoggedRounds",
    "LogisticRewards",
    "MatchedRewards",
    "NeuralLinearRewards",
    "Number",
    "Optimiser",
    "OutputPerArm",
    "PolicyValue",
    "Recommendation",
    "Softmax",
    "Space",
    "SteinRewards",
    "SubspaceRewards",
    "Surrogate",
    "TangentRewards",
    "TestFunction",
    "Thompson",
    "TrustRegion",
    "WindowRewards",
    "cross_fitted",
    "decide",
    "evaluate_policy",
    "load_bandit",
    "play",
    "read_log",
    "save_bandit",
]
