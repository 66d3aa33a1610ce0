"""The forecasters, and their names in `MODELS`."""

from tsforecast.models.bank import BankForecaster
from tsforecast.models.base import FORMAT, AbstractForecaster
from tsforecast.models.deepstate import DeepStateForecaster
from tsforecast.models.gls import GLSForecaster
from tsforecast.models.issm import ISSMForecaster
from tsforecast.models.kvae import KVAEMCForecaster, KVAERBForecaster
from tsforecast.models.markov import MarkovForecaster
from tsforecast.models.options import DATA_DECIDED, RECORDS, make_model, options_of, records_of
from tsforecast.models.parts.exact import ExactInference
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.pool import PoolForecaster
from tsforecast.models.records import INPUT_NAMES, Batch, Belief, DataSpec, Series
from tsforecast.models.rsgls_issm import RSGLSISSMForecaster
from tsforecast.models.sgls import ARSGLSForecaster, RSGLSForecaster, SGLSForecaster

MODELS: dict[str, type[AbstractForecaster]] = {
    "bank": BankForecaster,
    "issm": ISSMForecaster,
    "gls": GLSForecaster,
    "deepstate": DeepStateForecaster,
    "markov": MarkovForecaster,
    "sgls": SGLSForecaster,
    "rsgls": RSGLSForecaster,
    "rsgls-issm": RSGLSISSMForecaster,
    "pool": PoolForecaster,
    "arsgls": ARSGLSForecaster,
    "kvae-rb": KVAERBForecaster,
    "kvae-mc": KVAEMCForecaster,
}

__all__ = [
    "DATA_DECIDED",
    "FORMAT",
    "INPUT_NAMES",
    "MODELS",
    "RECORDS",
    "ARSGLSForecaster",
    "AbstractForecaster",
    "BankForecaster",
    "Batch",
    "Belief",
    "DataSpec",
    "DeepStateForecaster",
    "ExactInference",
    "GLSForecaster",
    "ISSMForecaster",
    "KVAEMCForecaster",
    "KVAERBForecaster",
    "MarkovForecaster",
    "ParticleInference",
    "PoolForecaster",
    "RSGLSForecaster",
    "RSGLSISSMForecaster",
    "SGLSForecaster",
    "Series",
    "make_model",
    "options_of",
    "records_of",
]
