"""The opening of a store: its description is read, and its model becomes an engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tsforecast.data.calendar.stamps import saved_place
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.predictor import load_predictor, with_prediction_length
from tsforecast.io.files import folder_checksum, remove_leftovers, write_json
from tsforecast.io.locks import lock_folder
from tsforecast.live import count, log
from tsforecast.live.description import STORE, Description, read_description
from tsforecast.live.engine import Engine
from tsforecast.live.learning import Learning, steps_kept
from tsforecast.live.rows import Rows
from tsforecast.live.rules import Rules
from tsforecast.live.snapshot import write_rows
from tsforecast.live.store import PREDICTOR, Store, count_of, log_of, snapshot_of


@contextmanager
def open_store(
    path: str | Path, *, max_items: int = 1_000_000, max_gap: int = 1000, device: str = "cpu"
) -> Iterator[Store]:
    """Gives an open store that no other process can open; its log is applied first.

    Args:
        path: Folder of the store.
        max_items: Most series; items that are not known are refused beyond.
        max_gap: Most missing steps before an observation.
        device: Where to compute.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is no complete store, is in use or damaged.
    """
    path = Path(path)
    about = read_description(path)
    with lock_folder(path):
        remove_leftovers(path)
        if folder_checksum(path / PREDICTOR) != about.predictor:
            raise ValueError(f"{path / PREDICTOR} is not the model with which the store began; restore the folder")
        engine, learning = engine_of(path / PREDICTOR, about, device)
        data = engine.data
        rules = Rules(engine.calendar.multiple, max_items, max_gap, data.num_static_real > 0, engine.num_covariates > 0)
        store = Store(path, about, engine, rules, learning)
        try:
            yield store
        finally:
            store.close()


def engine_of(folder: Path, about: Description, device: str) -> tuple[Engine, Learning | None]:
    """Return the engine of a saved predictor, of bounded windows, and the learner of its model, if it has one."""
    predictor, adaptive = load_predictor(folder, device), None
    if about.adaptation:
        try:
            adaptive = AdaptivePredictor(predictor, Adaptation(**about.adaptation))
        except TypeError as error:
            raise ValueError(f"expected options of a learner in {STORE}, got {about.adaptation} ({error})") from error
        predictor = adaptive.predictor
    if predictor.prediction_length != about.prediction_length:
        predictor = with_prediction_length(predictor, about.prediction_length)
    kept = 0 if adaptive is None else steps_kept(adaptive)
    engine = Engine(predictor, about.warm_up, about.seed, kept, saved_place(about.stamp))
    return engine, None if adaptive is None else Learning(adaptive, engine)


def finish(path: Path, about: Description, rows: Rows, learning: Learning | None = None) -> None:
    """Writes a new store with its model already in place; store.json comes last."""
    write_rows(snapshot_of(path, 0), rows, 0, None if learning is None else learning.state())
    count.create(count_of(path), about.key, 0, log.create(log_of(path, 0), about.key, 0))
    write_json(path / STORE, asdict(about))
