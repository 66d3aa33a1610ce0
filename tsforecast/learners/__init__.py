"""Online learners over the weights of networks: a belief, evidence, a drift and a weight, chosen independently."""

from tsforecast.learners.batch.batch_posterior import AbstractBatchPosterior, BatchPosterior, Sites
from tsforecast.learners.batch.expectation_propagation import ADF, EP
from tsforecast.learners.batch.laplace import Laplace
from tsforecast.learners.batch.refitted import Refitted, RefittedLearner, fab_cost
from tsforecast.learners.batch.sites import AbstractSite, LogisticSite, PoissonSite, ProbitSite
from tsforecast.learners.beliefs.diagonal import BlockDiagonal, Blocked, Diagonal, Independent
from tsforecast.learners.beliefs.family import AbstractFactorFamily, AbstractFamily
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.beliefs.low_rank_covariance import LRKF, LowRankCovariance
from tsforecast.learners.beliefs.low_rank_precision import LOFI, LowRankPrecision
from tsforecast.learners.config import DRIFTS, LEARNERS, WEIGHTS, LearnerConfig, NamedLearner
from tsforecast.learners.conjugate import ConjugateRegression, NormalInverseGamma
from tsforecast.learners.descent import GradientDescent, Point
from tsforecast.learners.drift import (
    AbstractDrift,
    BayesianForgetting,
    ExponentialForgetting,
    Linear,
    NoDrift,
    OrnsteinUhlenbeck,
    ShrinkAndPerturb,
    Wiener,
)
from tsforecast.learners.evidence.estimators import EmpiricalFisher, Linearised, MonteCarloHessian
from tsforecast.learners.evidence.moment_matching import MomentMatched
from tsforecast.learners.evidence.pseudo_observation import PseudoObservation
from tsforecast.learners.fusion import expect_of_experts, fuse
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood, CategoricalLikelihood
from tsforecast.learners.likelihoods.counts import PoissonLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, GaussianLikelihood, LogDensity
from tsforecast.learners.memory.continual import vb
from tsforecast.learners.memory.coreset import Memory
from tsforecast.learners.memory.memory_learner import MemoryLearner, Remembered
from tsforecast.learners.memory.memory_update import Coreset, NoMemory, ResidualMemory
from tsforecast.learners.memory.variational_fit import AdamFit, LinearisedFit
from tsforecast.learners.named import (
    Parts,
    adf,
    bbb,
    blr,
    bog,
    bong,
    decoupled_ekf,
    ekf,
    ewma,
    iterated_ekf,
    lofi,
    lrkf,
    ogd,
    rls,
    subspace_ekf,
    vd_ekf,
    wolf_ekf,
)
from tsforecast.learners.networks.layer_chain import LayerChain, as_network
from tsforecast.learners.networks.network import AbstractNetwork, ModuleNetwork, weights_of
from tsforecast.learners.networks.subspace import Subspace, basis_of_iterates, random_basis
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.particles.matrix_structure import Structure
from tsforecast.learners.particles.particle_learner import Particles, SteinLearner
from tsforecast.learners.particles.svgd import s2vgd, svgd
from tsforecast.learners.rule import BBB, BLR, BOG, BONG, AbstractRule
from tsforecast.learners.weight import AbstractWeight, Gate, InverseMultiquadric, Unweighted

__all__ = [
    "ADF",
    "BBB",
    "BLR",
    "BOG",
    "BONG",
    "DRIFTS",
    "EP",
    "LEARNERS",
    "LOFI",
    "LRKF",
    "WEIGHTS",
    "AbstractBatchPosterior",
    "AbstractDrift",
    "AbstractFactorFamily",
    "AbstractFamily",
    "AbstractLikelihood",
    "AbstractNetwork",
    "AbstractNetworkLearner",
    "AbstractRule",
    "AbstractSite",
    "AbstractWeight",
    "AdamFit",
    "BatchPosterior",
    "BayesianForgetting",
    "BernoulliLikelihood",
    "BlockDiagonal",
    "Blocked",
    "CategoricalLikelihood",
    "ConjugateRegression",
    "Coreset",
    "Diagonal",
    "EmpiricalFisher",
    "ExponentialForgetting",
    "Full",
    "Gate",
    "GaussianLearner",
    "GaussianLikelihood",
    "GradientDescent",
    "Independent",
    "InverseMultiquadric",
    "Laplace",
    "LayerChain",
    "LearnerConfig",
    "Linear",
    "Linearised",
    "LinearisedFit",
    "LogDensity",
    "LogisticSite",
    "LowRankCovariance",
    "LowRankPrecision",
    "Memory",
    "MemoryLearner",
    "ModuleNetwork",
    "MomentMatched",
    "MonteCarloHessian",
    "NamedLearner",
    "NoDrift",
    "NoMemory",
    "NormalInverseGamma",
    "OrnsteinUhlenbeck",
    "Particles",
    "Parts",
    "Point",
    "PoissonLikelihood",
    "PoissonSite",
    "ProbitSite",
    "PseudoObservation",
    "Refitted",
    "RefittedLearner",
    "Remembered",
    "ResidualMemory",
    "ShrinkAndPerturb",
    "Sites",
    "SteinLearner",
    "Structure",
    "Subspace",
    "Unweighted",
    "Wiener",
    "adf",
    "as_network",
    "basis_of_iterates",
    "bbb",
    "blr",
    "bog",
    "bong",
    "decoupled_ekf",
    "ekf",
    "ewma",
    "expect_of_experts",
    "fab_cost",
    "fuse",
    "iterated_ekf",
    "lofi",
    "lrkf",
    "ogd",
    "random_basis",
    "rls",
    "s2vgd",
    "subspace_ekf",
    "svgd",
    "vb",
    "vd_ekf",
    "weights_of",
    "wolf_ekf",
]
