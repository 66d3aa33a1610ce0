"""Arguments of the estimator: of the types that are declared, and kept to print, compare and rebuild it."""

import functools
import inspect
import json
import typing
from argparse import ArgumentError
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

import numpy as np
from jsonargparse import ArgumentParser

from tsforecast.io.reading import fits
from tsforecast.models import DATA_DECIDED, MODELS, options_of
from tsforecast.models.continuous import TIMED
from tsforecast.wording import suggestion

AUTO = "auto"  # stands for the model that the data choose

Given = ParamSpec("Given")

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "None"}


def recorded(init: Callable[Given, None]) -> Callable[Given, None]:
    """Return the constructor of an estimator, decorated as by GluonTS' `validated`, hyperparameters included.

    The constructor gets values of the types that it and the model declare. Hyperparameters from the shell of GluonTS
    are text, which is read as the command line reads it. All values are kept as `__init_args__`.
    """
    signature = inspect.signature(init)
    annotations = {p.name: p.annotation for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}

    @functools.wraps(init)
    def typed(*args: Given.args, **kwargs: Given.kwargs) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        estimator, hyperparameters = given.pop("self"), given.pop("hyperparameters")
        values = {name: of_type(name, value, annotations[name]) for name, value in given.items()}
        models = MODELS if values["horizon"] is None else TIMED
        values |= _of_model(values["model"], hyperparameters, models)
        if not getattr(estimator, "__init_args__", None):  # the constructor of a subclass may have kept them
            estimator.__init_args__ = dict(sorted(values.items()))
        init(estimator, **values)  # pyright: ignore[reportCallIssue]

    return typed


def of_type(name: str, value: Any, annotation: Any) -> Any:
    """Return an argument as its annotation declares it: NumPy's numbers become Python's, and text is read."""
    plain = value.item() if isinstance(value, np.generic) else value
    kinds = typing.get_args(annotation) or (annotation,)
    if any(typing.get_origin(kind) is dict for kind in (annotation, *kinds)):
        return _mapping(name, plain)
    if fits(plain, annotation):
        return float(plain) if isinstance(plain, int) and float in kinds and int not in kinds else plain
    try:
        if not isinstance(plain, str):
            raise ArgumentError(None, "only text is read")
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--value", type=annotation)
        return parser.parse_object({"value": plain}, defaults=False)["value"]
    except ArgumentError as error:
        words = " or ".join(_WORDS.get(kind, str(kind)) for kind in kinds)
        raise ValueError(f"expected {name} to be {words}, got {value!r}") from error


def _mapping(name: str, value: Any) -> dict[str, Any] | None:
    """Return a mapping, which may be given as JSON; None passes."""
    if value is None:
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f"expected {name} to be a mapping, or an object in JSON, got {value!r}") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"expected {name} to be a mapping, got {value!r}")
    return dict(found)


def _of_model(model: str, given: Mapping[str, Any], models: Mapping[str, type[Any]]) -> dict[str, Any]:
    """Return the hyperparameters of a model among some with their declared types."""
    if model == AUTO and models is MODELS:
        if given:
            name = next(iter(given))
            hint = _hint(name, ()) or "give the model that has them"
            raise ValueError(f"{AUTO!r} takes no hyperparameters, got {', '.join(given)}: {hint}")
        return {}
    if model not in models:
        auto = f"{AUTO}, " if models is MODELS else ""
        raise ValueError(f"expected model to be one of {auto}{', '.join(models)}, got {model!r}")
    known = {name: option for name, option in options_of(models[model]).items() if name not in DATA_DECIDED}
    for name in given:
        if name not in known:
            hint = _hint(name, known)
            rest = f"{hint}{'' if hint.endswith('?') else ';'} " if hint else ""
            raise ValueError(f"model {model!r} has no hyperparameter {name!r}; {rest}it has {', '.join(sorted(known))}")
    return {name: of_type(name, value, known[name].annotation) for name, value in given.items()}


def _hint(name: str, known: Iterable[str]) -> str:
    """Return where an argument belongs, or the nearest of those that are known; "" for neither."""
    from lightning.pytorch import Trainer  # here: what only forecasts must not wait for it

    if name in inspect.signature(Trainer).parameters:
        return f"it is one of Lightning's trainer: give it as trainer_kwargs={{{name!r}: ..}}"
    return suggestion(name, known)
