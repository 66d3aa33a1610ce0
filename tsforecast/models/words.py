"""Models in words, for titles and logs."""

from typing import Any

from tsforecast.models import MODELS, BankForecaster

_SCALES = {"log1p": "log", "sqrt": "square-root"}  # of transformations


def name_of(net: Any) -> str:
    """Return the name of a forecaster in `MODELS`."""
    return next(name for name, model in MODELS.items() if isinstance(net, model))


def in_words(net: Any) -> str:
    """Return the name of a forecaster and, of components, what they are: "issm (level and year, on a log scale)"."""
    name = name_of(net)
    if net.dynamics.structure is None:
        return f"{name} (a mixture of structural models)" if isinstance(net, BankForecaster) else name
    *first, last = (part.replace("_", " ") for part in net.dynamics.structure.names)
    kind = net.units.transformation
    scale = "" if kind == "none" else f", on a {_SCALES.get(kind, kind)} scale"
    return f"{name} ({', '.join(first)}{' and ' if first else ''}{last}{scale})"
