"""`tsforecast export RUN --format mlflow --output FOLDER`: a trained model for other systems."""

import logging
import os
import tempfile
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tsforecast.cli import options, run_records, runs
from tsforecast.cli.commands import Export
from tsforecast.data.quantiles import TENTHS
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, save_predictor
from tsforecast.io.files import make_folder, replace_folder

log = logging.getLogger(__name__)


def run(chosen: Export) -> int:
    """Writes the model of a run as a folder of MLflow."""
    out = Path(chosen.output)
    folder = Path(chosen.run)
    record = options.trained_run(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already; give a new folder as --output")
    if find_spec("mlflow") is None:
        raise ValueError("--format mlflow needs MLflow: `pip install 'tsforecast[mlflow]'`")
    predictor = load_predictor(folder / runs.PREDICTOR, "cpu")
    columns = run_records.columns_of_run(record)
    predictor.columns = None if columns is None else as_lists(columns)
    predictor.categories = record["categories"] or None
    make_folder(out.parent)
    with tempfile.TemporaryDirectory() as scratch, replace_folder(out) as target:
        save_predictor(predictor, Path(scratch) / "predictor")
        write_mlflow(predictor, Path(scratch) / "predictor", target)
    log.info("%s: %s of %s, for `mlflow.pyfunc.load_model`", out, record["model"], folder)
    return 0


def write_mlflow(predictor: StateSpacePredictor, saved: Path, target: Path) -> None:
    """Writes a saved predictor as a model of MLflow, by code and data files alone."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent to anybody
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec

    code = find_spec("tsforecast.forecasting.mlflow_model")
    assert code is not None
    assert code.origin is not None
    params = [
        ParamSpec("prediction_length", DataType.long, predictor.prediction_length),
        ParamSpec("quantiles", DataType.double, list(TENTHS), shape=(-1,)),
        ParamSpec("num_samples", DataType.long, 100),
        ParamSpec("start", DataType.string, "common"),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*An input example was not provided", UserWarning)  # columns are the user's
        mlflow.pyfunc.save_model(
            str(target),
            python_model=code.origin,
            artifacts={"predictor": str(saved)},
            signature=ModelSignature(params=ParamSchema(params)),
            pip_requirements=[f"tsforecast[mlflow]=={version('tsforecast')}"],
        )
