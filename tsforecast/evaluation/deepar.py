"""GluonTS' DeepAR as a baseline, as it is."""

import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gluonts.dataset import Dataset
from gluonts.model import Forecast, Predictor
from gluonts.torch.model.deepar import DeepAREstimator
from lightning import seed_everything
from lightning.pytorch.utilities.seed import isolate_rng

from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.progress import is_watched, silent_trainings

_EPOCHS = 50
_BATCHES = 50  # of an epoch


def check_deepar(task: ForecastTask, name: str) -> None:
    """Raise a ValueError for a wrong name, and for several targets."""
    _, _, suffix = name.partition("-")
    if name != "deepar" and not (suffix.isdecimal() and int(suffix)):
        raise ValueError(f"expected deepar, or with a number of epochs as in deepar-20, but got {name!r}")
    if np.ndim(task.entries[0]["target"]) > 1:
        raise ValueError("deepar forecasts one target; forecast several as series, or leave it out")


@dataclass(frozen=True)
class DeepAR:
    """DeepAR (Salinas et al. 2020), trained once at the horizon of a task and unrolled as far as is asked.

    Attributes:
        task: Whose training range it has seen.
        weights: Of the network.
        iterations: Of its training.
        seed: Of the sample paths.
        deviations: None.
    """

    task: ForecastTask
    weights: dict[str, torch.Tensor]
    iterations: int
    seed: int = 0
    deviations: dict[str, int] = field(default_factory=dict)

    @classmethod
    def fit(cls, task: ForecastTask, name: str = "deepar", seed: int = 0) -> "DeepAR":
        """Trains on the training range: epochs of 50 batches of 50 windows, a context of one horizon, on one device.

        Args:
            task: Univariate.
            name: `deepar` for 50 epochs, or with a number of them, as in `deepar-20`.
            seed: Of weights and batches.

        Raises:
            ValueError: If the name has something else behind it, or the task has several targets.
        """
        check_deepar(task, name)
        _, _, suffix = name.partition("-")
        epochs = int(suffix) if suffix else _EPOCHS
        with silent_trainings(), isolate_rng(), _quiet(), tempfile.TemporaryDirectory() as folder:
            seed_everything(seed, verbose=False)
            estimator = _estimator(task, task.prediction_length, epochs, folder)
            predictor = estimator.train(list(_coded(task, task.train)), cache_data=True)
        return cls(task, predictor.network.state_dict(), epochs * _BATCHES, seed)

    def predictor(self, prediction_length: int) -> Predictor:
        """The same weights for another horizon."""
        estimator = _estimator(self.task, prediction_length)
        network = estimator.create_lightning_module()
        network.load_state_dict(self.weights)
        return _Coded(self, estimator.create_predictor(estimator.create_transformation(), network))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of GluonTS and Lightning about each other and about torch."""
    with expected_alias_warnings(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="gluonts|lightning")
        yield


class _Coded(Predictor):
    """Gives each series the code that it had in training."""

    def __init__(self, model: DeepAR, predictor: Predictor) -> None:
        super().__init__(prediction_length=predictor.prediction_length)
        self.model = model
        self.inner = predictor

    def predict(self, dataset: Dataset, **kwargs: Any) -> Iterator[Forecast]:
        """Sample forecasts, the same at every call."""
        torch.manual_seed(self.model.seed)
        forecasts = iter(self.inner.predict(list(_coded(self.model.task, dataset)), **kwargs))
        while True:
            with _quiet():  # not around the yield: it would hold in the caller, too
                forecast = next(forecasts, None)
            if forecast is None:
                return
            yield forecast


def _coded(task: ForecastTask, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries with the series as their first category."""
    index = {str(entry["item_id"]): number for number, entry in enumerate(task.entries)}
    for entry in entries:
        yield {**entry, "feat_static_cat": [index[str(entry["item_id"])], *entry.get("feat_static_cat", [])]}


def _estimator(
    task: ForecastTask, prediction_length: int, epochs: int = 1, folder: str | None = None
) -> DeepAREstimator:
    first = task.entries[0]
    categories = [len(names) for names in task.categories.values()]
    return DeepAREstimator(
        freq=task.freq,
        prediction_length=prediction_length,
        context_length=task.prediction_length,
        num_feat_dynamic_real=len(first.get("feat_dynamic_real", [])),
        num_feat_static_real=len(first.get("feat_static_real", [])),
        num_feat_static_cat=1 + len(categories),
        cardinality=[len(task.entries), *categories],
        batch_size=50,
        num_batches_per_epoch=_BATCHES,
        trainer_kwargs={
            "max_epochs": epochs,
            "enable_model_summary": False,
            "logger": False,
            "enable_progress_bar": is_watched(),
            "default_root_dir": folder,
        },
    )
