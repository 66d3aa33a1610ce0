"""Names that options take, for the parsers.

They stand in the tables of the package, each of which needs torch or pandas. A help text must not wait for these: names
are read from the source of a table, without running it.
"""

import ast
import functools
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# Table of names -> its module, and what it is called there.
_TABLES = {
    "MODELS": ("models/__init__.py", "MODELS"),
    "STREAMS": ("online/stream.py", "STREAMS"),
    "PREPARED": ("online/stream.py", "PREPARED"),
    "ACTIVATIONS": ("online/config.py", "ACTIVATIONS"),
    "LEARNERS": ("learners/config.py", "LEARNERS"),
    "DRIFTS": ("learners/config.py", "DRIFTS"),
    "WEIGHTS": ("learners/config.py", "WEIGHTS"),
    "MEMORIES": ("learners/memory/continual.py", "MEMORIES"),
    "OWN_AGENTS": ("decisions/config.py", "AGENTS"),
    "RULES": ("decisions/config.py", "RULES"),
    "ENCODINGS": ("decisions/config.py", "ENCODINGS"),
    "BANDITS": ("decisions/tables.py", "MADE"),
    "BANDIT_TABLES": ("decisions/tables.py", "PREPARED"),
    "POLICIES": ("decisions/policies.py", "POLICIES"),
    "GRADIENTS": ("decisions/policies.py", "GRADIENTS"),
    "MEMORIES_OF_WINDOWS": ("forecasting/adaptation.py", "MEMORIES_OF_WINDOWS"),
    "EVIDENCE": ("forecasting/adaptation.py", "EVIDENCE"),
    "ENGINES": ("forecasting/engines.py", "ENGINES"),
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
    if name == "AGENTS":  # which are learners of numbers, too, but for one that has agents of its own
        learners = (learner for learner in __getattr__("OF_NUMBERS") if learner != "subspace-ekf")
        return (*_read(*_TABLES["OWN_AGENTS"]), *learners)
    if name not in _TABLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _read(*_TABLES[name])


def _read(file: str, table: str) -> tuple[str, ...]:
    """Return the constant keys of a dict, or the entries of a tuple, that a module assigns."""
    value = _assigned(file)[table]
    entries = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", ())
    return tuple(str(entry.value) for entry in entries if isinstance(entry, ast.Constant))


@functools.cache
def _assigned(file: str) -> dict[str, ast.expr | None]:
    """Return the expressions that a module assigns to names."""
    statements = ast.parse((_PACKAGE / file).read_text(encoding="utf-8")).body
    plain = {
        x.targets[0].id: x.value for x in statements if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name)
    }
    typed = {
        x.target.id: x.value for x in statements if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
    }
    return {**plain, **typed}
