"""The folder of a saved predictor in continuous time: plain JSON, and a file of weights. No code of it is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsforecast.forecasting.serialization import check_arguments, plain
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.io.files import replace_file, replace_folder
from tsforecast.io.reading import fits, read_json
from tsforecast.io.tensors import load_tensors, save_tensors
from tsforecast.models import AbstractForecaster, make_model, options_of
from tsforecast.models.continuous import TIMED

FORMAT = 2  # of these folders; raised when older ones can no longer be read
RECORD, WEIGHTS = "irregular.json", "weights.pt"
_ABOUT: dict[str, Any] = {
    "horizon": int, "columns": dict[str, list[str]] | None, "categories": dict[str, list[str]], "targets": list[str],
}  # fmt: skip
_FIELDS = {"model": str, "items": list[str], "dynamic_units": list[list[float]], **_ABOUT}


def write_timed(folder: Path, net: AbstractForecaster, clock: Clock, about: Mapping[str, Any]) -> None:
    """Write a predictor; an existing folder is replaced whole.

    Args:
        folder: To write.
        net: A model of `TIMED`.
        clock: Of its batches.
        about: Other arguments of the predictor: horizon, columns, categories and targets.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    names = {model: name for name, model in TIMED.items()}
    record = {
        "tsforecast_format": FORMAT,
        "model": names[type(net)],
        "hyperparameters": plain(net.hyperparameters),
        "items": list(clock.items),
        "dynamic_units": [list(pair) for pair in clock.dynamic_units],
        **plain(about),
    }
    with replace_folder(folder) as scratch:
        save_tensors(net.state_dict(), scratch / WEIGHTS)
        with replace_file(scratch / RECORD) as temporary:
            temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_timed(folder: Path) -> tuple[AbstractForecaster, Clock, dict[str, Any]]:
    """Return model, clock and other arguments of a saved predictor.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it is damaged, of another program or of another format.
    """
    path = folder / RECORD
    if not path.is_file():
        raise FileNotFoundError(f"expected a saved predictor in {folder}: there is no {path}")
    record = read_json(path)
    found = record.get("tsforecast_format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path} has format {found!r}, this version of tsforecast reads format {FORMAT}")
    wrong = [name for name, kind in _FIELDS.items() if not fits(record.get(name), kind)]
    if wrong or record["model"] not in TIMED or record["horizon"] < 1:
        raise ValueError(f"{path} is damaged: {', '.join(wrong) or 'model or horizon'} not as expected; train again")
    model, given = TIMED[record["model"]], dict[str, Any](record.get("hyperparameters") or {})
    check_arguments(path, "hyperparameters", given, model.__name__, options_of(model))
    weights = load_tensors(folder / WEIGHTS)
    try:
        with torch.device("meta"):  # sizes beyond any memory cost nothing there
            expected = {name: values.shape for name, values in make_model(model, **given).state_dict().items()}
        if {name: getattr(values, "shape", None) for name, values in weights.items()} != expected:
            raise ValueError("the weights do not fit the hyperparameters")
        net = make_model(model, **given).double()
        net.load_state_dict(weights)
        if len(record["items"]) != net.data.num_series:
            raise ValueError(f"expected {net.data.num_series} items, got {len(record['items'])}")
        units = np.reshape(record["dynamic_units"], (-1, 2))
        if len(units) != net.data.num_dynamic_real or not (np.isfinite(units).all() and (units[:, 1] > 0).all()):
            raise ValueError(f"expected units of {net.data.num_dynamic_real} covariates, got {units.tolist()!r:.80}")
    except (ValueError, TypeError, ArithmeticError, RuntimeError, IndexError, KeyError) as error:
        raise ValueError(f"{folder} holds no readable predictor ({error}): train again") from error
    clock = Clock.of(net, record["items"], record["dynamic_units"])
    return net.eval(), clock, {name: record[name] for name in _ABOUT}
