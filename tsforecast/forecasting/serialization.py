"""The folder of a saved predictor: plain JSON that names a model of `MODELS` and its arguments, and a file of weights.

- predictor.json: format version, model, and the arguments of model, preparation and predictor
- prediction-net-state.pt: tensors by name
- gluonts-config.json: by which `gluonts.model.Predictor.deserialize` finds the class

GluonTS' own decoder builds whatever object a file names. This one builds three, each with arguments of the types that
its constructor declares.
"""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsforecast.data.transform import Prepare
from tsforecast.io.files import replace_file
from tsforecast.io.reading import fits, read_json
from tsforecast.io.tensors import load_tensors, save_tensors
from tsforecast.models import MODELS, AbstractForecaster, make_model, options_of

FORMAT = 4  # of these folders; it is raised when older ones can no longer be read
RECORD = "predictor.json"
WEIGHTS = "prediction-net-state.pt"

# Arguments of the predictor that are parts of their own, or chosen anew.
NOT_SAVED = frozenset({"prediction_net", "input_transform", "device"})

_PARTS = ("model", "hyperparameters", "preparation", "predictor")


def write_parts(folder: Path, net: torch.nn.Module, preparation: Any, predictor: Mapping[str, Any]) -> None:
    """Writes what `read_parts` reads.

    Args:
        folder: An existing folder for the predictor.
        net: A model of `MODELS`.
        preparation: A `Prepare`.
        predictor: Other arguments of the predictor, as plain values.

    Raises:
        ValueError: If the model or the preparation is of another class, which nobody could read again.
    """
    names = {model: name for name, model in MODELS.items()}
    if type(net) not in names or type(preparation) is not Prepare:
        raise ValueError(
            f"expected a model of MODELS ({', '.join(MODELS)}) behind Prepare, got {type(net).__name__} behind "
            f"{type(preparation).__name__}: of models of your own, save the state_dict"
        )
    assert isinstance(net, AbstractForecaster)
    record = {
        "tsforecast_format": FORMAT,
        "model": names[type(net)],
        "hyperparameters": plain(net.hyperparameters),
        "preparation": plain(preparation.__init_args__),  # pyright: ignore[reportAttributeAccessIssue]
        "predictor": plain(dict(predictor)),
    }
    save_tensors(net.state_dict(), folder / WEIGHTS)
    with replace_file(folder / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_parts(
    folder: Path, predictor: type, device: torch.device
) -> tuple[AbstractForecaster, Prepare, dict[str, Any]]:
    """Return network, preparation and other arguments of a saved predictor; no code of the files is run.

    Args:
        folder: Folder of the predictor.
        predictor: Class of the predictor, whose constructor declares what arguments are expected.
        device: Device of the network.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it is damaged, of another program or of another format.
    """
    path = folder / RECORD
    if not path.is_file():
        raise FileNotFoundError(f"expected a saved predictor in {folder}: there is no {path}")
    record = _checked_record(path)
    model = MODELS[record["model"]]
    check_arguments(path, "hyperparameters", record["hyperparameters"], model.__name__, options_of(model))
    check_arguments(path, "preparation", record["preparation"], "Prepare", declared(Prepare))
    kept = {name: parameter for name, parameter in declared(predictor).items() if name not in NOT_SAVED}
    check_arguments(path, "predictor", record["predictor"], predictor.__name__, kept)
    weights = load_tensors(folder / WEIGHTS, device)
    try:
        with torch.device("meta"):  # sizes beyond any memory cost nothing there
            expected = make_model(model, **record["hyperparameters"]).state_dict()
        given = {name: getattr(values, "shape", None) for name, values in weights.items()}
        if given != {name: values.shape for name, values in expected.items()}:
            raise ValueError("the weights do not fit the hyperparameters")
        net = make_model(model, **record["hyperparameters"]).to(device)
        net.load_state_dict(weights)
        preparation = Prepare(**record["preparation"])
        _check_together(net, preparation, record["predictor"])
    except (ValueError, TypeError, ArithmeticError, RuntimeError, IndexError, KeyError) as error:
        raise ValueError(f"{folder} holds no readable predictor ({error}): train again") from error
    return net, preparation, record["predictor"]


def _checked_record(path: Path) -> dict[str, Any]:
    """Return the record, which has this format and names a known model."""
    record = read_json(path)
    found = record.get("tsforecast_format") if isinstance(record, dict) else None
    if found is None and isinstance(record, dict) and "__kind__" in record:
        found = 1  # written for GluonTS' decoder
    if found is None or not isinstance(record, dict):
        raise ValueError(f"{path} is not of tsforecast: it has no format; train again")
    if found != FORMAT:
        raise ValueError(
            f"{path} has format {found!r}, this version of tsforecast reads format {FORMAT}: train again, or read it "
            "with the version that wrote it"
        )
    missing = [name for name in _PARTS if name not in record]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}; train again")
    if not isinstance(record["model"], str) or record["model"] not in MODELS:
        raise ValueError(f"{path}: expected a model among {', '.join(MODELS)}, got {record['model']!r}")
    return record


def declared(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor, by name."""
    parameters = inspect.signature(vars(cls)["__init__"]).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def check_arguments(path: Path, part: str, values: Any, taker: str, parameters: Mapping[str, Any]) -> None:
    """Refuses arguments that a constructor does not declare, lacks, or declares with another type.

    Args:
        path: Path of the record, for messages.
        part: Part of the record.
        values: Arguments in this part.
        taker: Name of what takes them, for messages.
        parameters: Declared arguments by name.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{path}, {part}: expected an object, got {type(values).__name__}")
    for name, value in values.items():
        if name not in parameters:
            raise ValueError(f"{path}, {part}: {taker} has no argument {name!r}")
        if not fits(value, parameters[name].annotation):
            shown = repr(value)[:80]
            raise ValueError(f"{path}, {part}: expected {name} of type {parameters[name].annotation}, got {shown}")
    for name, parameter in parameters.items():
        if name not in values and parameter.default is parameter.empty:
            raise ValueError(f"{path}, {part}: {name} is missing")


def plain(value: Any) -> Any:
    """Return the value as JSON stores it."""
    if isinstance(value, Mapping):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value.item() if isinstance(value, np.generic) else value


def _check_together(net: AbstractForecaster, preparation: Prepare, predictor: Mapping[str, Any]) -> None:
    """Refuses parts that do not fit each other: the network has to take what is prepared."""
    pairs = {
        "prediction_length": (predictor["prediction_length"], preparation.prediction_length),
        "num_targets": (net.data.num_targets, preparation.num_targets),
        "cardinality": (list(net.data.cardinality), preparation.cardinality.tolist()),
        "seasons": (list(net.dynamics.season_names), list(preparation.seasons)),
        "num_dynamic_real": (net.data.num_dynamic_real, len(preparation.dynamic_units)),
        "num_static_real": (net.data.num_static_real, len(preparation.static_units)),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise ValueError(f"{name} differs between its parts: {one!r} and {other!r}")
    for name in ("prediction_length", "batch_size"):
        if predictor.get(name, 1) < 1:
            raise ValueError(f"expected {name} of at least 1, got {predictor[name]}")
