"""Options of models by name: those of a constructor and of the records that it takes, side by side.

The command line, the estimator and saved predictors know options by their names alone, `learning_rate=0.01`; a
constructor takes records, `training=Training(learning_rate=0.01)`.
"""

import dataclasses
import inspect
from typing import Any, TypeVar

from tsforecast.models.records import DataSpec

# Arguments of constructors that are records. The constructor of a model saves all others as its hyperparameters.
RECORDS = ["data", "training", "scaling", "particles", "dense", "network"]

Model = TypeVar("Model")

# Options that data decide: the estimator fills them in, and the command line refuses them.
DATA_DECIDED = frozenset({*(field.name for field in dataclasses.fields(DataSpec)), "image_shape", "seed"})


def records_of(model: type[Any]) -> dict[str, Any]:
    """Return the records that a constructor takes, by argument, with their defaults."""
    parameters = inspect.signature(model).parameters
    return {name: DataSpec() if name == "data" else parameters[name].default for name in RECORDS if name in parameters}


def options_of(model: type[Any]) -> dict[str, inspect.Parameter]:
    """Return all options of a model, by name."""
    records = records_of(model)
    parameters = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(record, field.name), annotation=field.type
        )
        for record in records.values()
        for field in dataclasses.fields(record)
    }
    own = inspect.signature(model).parameters
    return parameters | {name: parameter for name, parameter in own.items() if name not in records}


def make_model(model: type[Model], **options: Any) -> Model:
    """Make a model from all its options, by name.

    Args:
        model: Class of the model.
        options: Values by name. Options that are left out have their defaults.

    Raises:
        ValueError: If an option is not known, or a value is not as expected.
    """
    known = options_of(model)
    for name in options:
        if name not in known:
            raise ValueError(f"{model.__name__} has no option {name!r}; it has {', '.join(sorted(known))}")
    arguments: dict[str, Any] = {}
    for argument, record in records_of(model).items():
        names = {field.name for field in dataclasses.fields(record)}
        given = {name: value for name, value in options.items() if name in names}
        arguments[argument] = dataclasses.replace(record, **given)
        options = {name: value for name, value in options.items() if name not in names}
    return model(**arguments, **options)
