"""The folder of a saved predictor: plain JSON that names a model and its arguments, and a file of weights.

- predictor.json: format version, kind of time, model, and the arguments of model, preparation and predictor
- prediction-net-state.pt: tensors by name
- gluonts-config.json: by which `gluonts.model.Predictor.deserialize` finds the class

Time is a grid, of a model of `MODELS` behind `Prepare`; or a clock, of a model of `TIMED` behind `Clock`. GluonTS' own
decoder builds whatever object a file names. This one builds three, each with arguments of the types that its
constructor declares.
"""

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsforecast.data.transform import Prepare
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.io.files import write_json
from tsforecast.io.reading import fits, has_fields, read_json
from tsforecast.io.tensors import load_tensors, save_tensors
from tsforecast.models import MODELS, AbstractForecaster, make_model, options_of
from tsforecast.models.continuous import TIMED
from tsforecast.wording import listed

FORMAT = 4  # of these folders; it is raised when older ones can no longer be read
RECORD = "predictor.json"
WEIGHTS = "prediction-net-state.pt"

# Arguments of the predictor that are parts of their own, or chosen anew.
_NOT_SAVED = frozenset({"prediction_net", "input_transform", "device"})

_PARTS = ("model", "hyperparameters", "preparation", "predictor")
_GRID, _CLOCK = "grid", "clock"
_MODELS: dict[str, Mapping[str, type[AbstractForecaster]]] = {_GRID: MODELS, _CLOCK: TIMED}
_OF_CLOCK = {"items": list[str], "dynamic_units": list[list[float]]}
_NAMED = 3  # weights that a message names


def write_parts(folder: Path, net: torch.nn.Module, preparation: Any, predictor: Any) -> None:
    """Writes what `read_parts` reads."""
    time = _CLOCK if type(preparation) is Clock else _GRID
    names = {model: name for name, model in _MODELS[time].items()}
    if type(net) not in names or type(preparation) not in (Prepare, Clock):
        raise ValueError(
            f"expected a model of MODELS ({', '.join(MODELS)}) behind Prepare, or of TIMED ({', '.join(TIMED)}) behind "
            f"Clock, got {type(net).__name__} behind {type(preparation).__name__}: of models of your own, save the "
            "state_dict"
        )
    assert isinstance(net, AbstractForecaster)
    if isinstance(preparation, Clock):
        arguments = {name: getattr(preparation, name) for name in _OF_CLOCK}
    else:
        arguments = preparation.__init_args__
    record = {
        "tsforecast_format": FORMAT,
        "time": time,
        "model": names[type(net)],
        "hyperparameters": plain(net.hyperparameters),
        "preparation": plain(arguments),
        "predictor": {n: plain(getattr(predictor, n)) for n in declared(type(predictor)) if n not in _NOT_SAVED},
    }
    save_tensors(net.state_dict(), folder / WEIGHTS)
    write_json(folder / RECORD, record, allow_nan=False)


def read_parts(
    folder: Path, predictor: type, device: torch.device
) -> tuple[AbstractForecaster, Prepare | Clock, dict[str, Any]]:
    """Return network, preparation and other arguments of a saved predictor; no code of the files is run.

    Args:
        folder: Folder of the predictor.
        predictor: Class of the predictor, whose constructor declares what arguments are expected.
        device: Device of the network; of one on a clock it is the CPU.
    """
    path = folder / RECORD
    if not path.is_file():
        raise FileNotFoundError(f"expected a saved predictor in {folder}: there is no {path}")
    record = _checked_record(path, read_json(path))
    is_timed = record["time"] == _CLOCK
    device = torch.device("cpu") if is_timed else device
    model, preparation = _MODELS[record["time"]][record["model"]], record["preparation"]
    check_arguments(path, "hyperparameters", record["hyperparameters"], model.__name__, options_of(model))
    if not is_timed:
        check_arguments(path, "preparation", preparation, "Prepare", declared(Prepare))
    elif not has_fields(preparation, _OF_CLOCK):
        raise ValueError(f"{path}, preparation: expected {listed(_OF_CLOCK)} of a clock, got {preparation!r:.80}")
    kept = {name: parameter for name, parameter in declared(predictor).items() if name not in _NOT_SAVED}
    check_arguments(path, "predictor", record["predictor"], predictor.__name__, kept)
    weights = load_tensors(folder / WEIGHTS, device)
    try:
        with torch.device("meta"):  # sizes beyond any memory cost nothing there
            expected = make_model(model, **record["hyperparameters"]).state_dict()
        given = {name: getattr(values, "shape", None) for name, values in weights.items()}
        if given != {name: values.shape for name, values in expected.items()}:
            raise ValueError(f"the weights do not fit the hyperparameters{differing(given, expected)}")
        net = make_model(model, **record["hyperparameters"]).to(device)
        net = net.double() if is_timed else net
        net.load_state_dict(weights)
        prepared = Clock.of(net, **preparation) if is_timed else Prepare(**preparation)
        _check_together(net, prepared, record["predictor"])
    except (ValueError, TypeError, ArithmeticError, RuntimeError, IndexError, KeyError) as error:
        raise ValueError(f"{folder} holds no readable predictor ({error}): train again") from error
    return net, prepared, record["predictor"]


def differing(given: Iterable[str], expected: Iterable[str]) -> str:
    """Return words on weights with other names than a model's: they are of another version; "" where names agree."""
    lacking, more = sorted({*expected} - {*given}), sorted({*given} - {*expected})
    if not lacking and not more:
        return ""
    found = f"lack {listed(lacking[:_NAMED])}" if lacking else f"have {listed(more[:_NAMED])} besides"
    return f": they {found}, and so are of another version of tsforecast"


def _checked_record(path: Path, record: Any) -> dict[str, Any]:
    """Return the record, which has this format and names a known model of its kind of time."""
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
    if (time := record.setdefault("time", _GRID)) not in (_GRID, _CLOCK):
        raise ValueError(f"{path}: expected a predictor whose time is a {_GRID} or a {_CLOCK}, got {time!r:.80}")
    if not isinstance(record["model"], str) or record["model"] not in _MODELS[time]:
        raise ValueError(f"{path}: expected a model among {', '.join(_MODELS[time])}, got {record['model']!r}")
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


def _check_together(net: AbstractForecaster, preparation: Prepare | Clock, predictor: Mapping[str, Any]) -> None:
    """Refuses parts that do not fit each other: the network has to take what is prepared."""
    for name in ("prediction_length", "batch_size"):
        if predictor.get(name, 1) < 1:
            raise ValueError(f"expected {name} of at least 1, got {predictor[name]}")
    if isinstance(preparation, Clock):
        units = np.reshape(preparation.dynamic_units, (-1, 2))
        if not (np.isfinite(units).all() and (units[:, 1] > 0).all()):
            raise ValueError(f"expected units of covariates, got {units.tolist()!r:.80}")
        pairs = {
            "num_series": (net.data.num_series, len(preparation.items)),
            "num_dynamic_real": (net.data.num_dynamic_real, len(units)),
        }
    else:
        pairs = _pairs(net, preparation, predictor)
    for name, (one, other) in pairs.items():
        if one != other:
            raise ValueError(f"{name} differs between its parts: {one!r} and {other!r}")


def _pairs(net: AbstractForecaster, preparation: Prepare, predictor: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what network and predictor have in common with a preparation."""
    return {
        "prediction_length": (predictor["prediction_length"], preparation.prediction_length),
        "num_targets": (net.data.num_targets, preparation.num_targets),
        "cardinality": (list(net.data.cardinality), preparation.cardinality.tolist()),
        "seasons": (list(net.dynamics.season_names), list(preparation.seasons)),
        "num_dynamic_real": (net.data.num_dynamic_real, len(preparation.dynamic_units)),
        "num_static_real": (net.data.num_static_real, len(preparation.static_units)),
    }
