"""Names that options take, for the parsers.

They stand in the tables of the package, each of which needs torch or pandas. A help text must not wait for these: names
are read from the source of a table, without running it.
"""

import ast

from tsforecast.cli.declared import statements

# Table of names -> its module, and what it is called there.
_TABLES = {
    "MODELS": ("tsforecast.models", "MODELS"),
    "STREAMS": ("tsforecast.online.stream", "STREAMS"),
    "PREPARED": ("tsforecast.online.stream", "PREPARED"),
    "ACTIVATIONS": ("tsforecast.online.config", "ACTIVATIONS"),
    "LEARNERS": ("tsforecast.learners.config", "LEARNERS"),
    "WEIGHTS": ("tsforecast.learners.config", "WEIGHTS"),
    "MEMORIES": ("tsforecast.learners.memory.continual", "MEMORIES"),
    "OWN_AGENTS": ("tsforecast.decisions.config", "AGENTS"),
    "BANDITS": ("tsforecast.decisions.tables", "MADE"),
    "BANDIT_TABLES": ("tsforecast.decisions.tables", "PREPARED"),
    "ENGINES": ("tsforecast.forecasting.engines", "ENGINES"),
}

AUTO = "auto"
# Tables that are computed; a test compares them.
DATASETS = (
    "exchange", "electricity", "electricity-18dec", "traffic", "solar", "wiki", "taxi-blizzard", "eia-2020",
    "electricity-2012-2014", "exchange-full", "electricity-full", "traffic-full", "solar-full", "wiki-full",
)  # fmt: skip
FUNCTIONS = ("branin", "ackley-2", "ackley-5", "hartmann-6")
BASELINES = (
    "seasonal_naive", "random_walk", "empirical_seasonal", "empirical_random_walk", "auto_ets", "auto_theta", "mstl",
    "auto_arima", "deepar",
)  # fmt: skip


def __getattr__(name: str) -> tuple[str, ...]:
    """Return the names in a table."""
    if name == "TRAINED":  # what `train` takes
        return (AUTO, *_read(*_TABLES["MODELS"]))
    if name == "OF_NUMBERS":
        return tuple(learner for learner in _read(*_TABLES["LEARNERS"]) if learner != "adf")
    if name == "AGENTS":  # learners of numbers are agents, too, but for one that has an agent of its own
        learners = (learner for learner in __getattr__("OF_NUMBERS") if learner != "subspace-ekf")
        return (*_read(*_TABLES["OWN_AGENTS"]), *learners)
    if name not in _TABLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _read(*_TABLES[name])


def _read(module: str, table: str) -> tuple[str, ...]:
    """Return the constant keys of a dict, or the entries of a tuple, that a module assigns."""
    value = getattr(statements(module)[table], "value", None)
    entries = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", ())
    return tuple(str(entry.value) for entry in entries if isinstance(entry, ast.Constant))
