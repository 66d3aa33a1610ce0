"""A store: the folder of a service, in which every acknowledged observation outlives a kill.

- store.json: what the store is; it is written last, so that its presence says that the store is complete
- predictor/: the trained model
- snapshot-NUMBER/: all series before the micro-batch of that number
- log-NUMBER.bin: the micro-batches from that number on

A micro-batch is computed while its record goes to the disk, and changes the beliefs once it is there. Opening a store
reads its last snapshot and applies the log to it: the same micro-batches by the same program. So the beliefs are those
of a service that was never stopped, to the bit, on the same machine and number of threads.
"""

import json
import logging
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tsforecast.data.buckets import folder_checksum
from tsforecast.data.files import remove_leftovers, replace_file
from tsforecast.data.locks import lock_folder
from tsforecast.data.reading import has_fields, read_json
from tsforecast.forecasting.predictor import load_predictor, with_prediction_length
from tsforecast.live import log as logs
from tsforecast.live.engine import Engine
from tsforecast.live.rows import Rows
from tsforecast.live.rules import APPLIED, Observations, Rules
from tsforecast.live.snapshot import read_rows, write_rows
from tsforecast.live.steps import Steps

log = logging.getLogger(__name__)

STORE = "store.json"
PREDICTOR = "predictor"
FORMAT = 1
_NAMED = re.compile(r"(snapshot-|log-)(\d{16})(\.bin)?")
_TOLD = 1000  # records of a log between two lines about them


@dataclass(frozen=True)
class Description:
    """What a store is.

    Attributes:
        identity: 32 hexadecimal digits, drawn when it began.
        predictor: Checksum of the folder of the model.
        freq: Frequency of the series.
        prediction_length: Most steps of a forecast.
        targets: Names of the targets.
        warm_up: Values from which on a series that begins keeps its scale.
        seed: Of what is drawn.
    """

    identity: str
    predictor: str
    freq: str
    prediction_length: int
    targets: list[str]
    warm_up: int
    seed: int


_FIELDS = {
    "identity": str, "predictor": str, "freq": str, "prediction_length": int, "targets": list[str], "warm_up": int,
    "seed": int,
}  # fmt: skip


class StoreError(RuntimeError):
    """The disk has failed a store: what it holds is not known until the store is opened again."""


class Store:
    """An open store; made by `open_store`.

    Args:
        path: Folder of the store.
        about: What it is.
        engine: Of its model.
        rules: For observations.
    """

    def __init__(self, path: Path, about: Description, engine: Engine, rules: Rules) -> None:
        self.path, self.about, self.engine, self.rules = path, about, engine, rules
        self.failed = False
        self.far = 0  # values that counted as missing, since the store was opened
        self.since_snapshot = 0  # observations
        self._disk = ThreadPoolExecutor(1, "disk")
        self.rows, self.number, self._log = self._read()

    def observe(self, requests: Sequence[Observations]) -> list[list[str]]:
        """Apply a micro-batch, and return the outcome of each observation once all of it is on the disk.

        Raises:
            StoreError: If the disk has failed.
        """
        self._check()
        steps, outcomes = self.rules.sift(self.rows, requests, self.number)
        if len(steps.rows):
            self._apply(steps)
        return outcomes

    def snapshot(self) -> None:
        """Write all series, and begin a new log; older ones are removed.

        Raises:
            OSError: If it can not be written, as when the disk is full; the store goes on with the old ones.
            StoreError: If the disk has failed.
        """
        self._check()
        if not self.since_snapshot:
            return
        write_rows(_snapshot(self.path, self.number), self.rows, self.number)
        logs.create(_log(self.path, self.number), bytes.fromhex(self.about.identity), self.number)
        self._log.close()
        self._log = logs.Log(_log(self.path, self.number), logs.HEADER)
        self.since_snapshot = 0
        _remove_older(self.path, self.number)

    def close(self) -> None:
        """Close the log."""
        self._disk.shutdown()
        self._log.close()

    @property
    def log_bytes(self) -> int:
        """Return the size of the log."""
        return self._log.size

    def _check(self) -> None:
        if self.failed:
            raise StoreError(f"the disk has failed {self.path}; see the log of the service, and start it again")

    def _apply(self, steps: Steps) -> None:
        """Applies a micro-batch: its record goes to the disk while the beliefs are computed."""
        size = self._log.size
        self._log.append(steps.to_bytes())
        written = self._disk.submit(self._log.flush)
        try:
            moved = self.engine.moved(self.rows, steps)
        except BaseException:
            written.exception()  # wait
            self._log.cut_to(size)
            raise
        try:
            written.result()
        except OSError as error:
            self.failed = True
            raise StoreError(f"{self.path}: the log could not be written ({error})") from error
        self._commit(steps, moved)

    def _commit(self, steps: Steps, moved: Any) -> None:
        self.engine.commit(self.rows, moved)
        self.far += moved.far
        self.number += 1
        self.since_snapshot += len(steps.rows)

    def _read(self) -> tuple[Rows, int, logs.Log]:
        """Reads the last snapshot and applies the log to it."""
        numbers = [
            int(found[2]) for path in self.path.iterdir() if (found := _NAMED.fullmatch(path.name)) and path.is_dir()
        ]
        if not numbers:
            raise ValueError(f"{self.path} has no snapshot; restore the folder")
        first = max(numbers)
        rows, number = read_rows(_snapshot(self.path, first), self.engine.empty())
        if number != first:
            raise ValueError(f"{_snapshot(self.path, first)} is of micro-batch {number}; restore the folder")
        path, identity = _log(self.path, first), bytes.fromhex(self.about.identity)
        if not path.exists():  # killed between the two
            logs.create(path, identity, first)
        _remove_older(self.path, first)
        self.rows, self.number = rows, number
        size = logs.HEADER
        for contents, behind in logs.read(path, identity, first):
            steps = Steps.from_bytes(contents)
            if steps.number != self.number or not steps.fits(rows):
                raise ValueError(f"{path}: expected micro-batch {self.number} of this model; restore the file")
            self._commit(steps, self.engine.moved(rows, steps))
            size = behind
            if (self.number - first) % _TOLD == 0:
                log.info("%s: %d micro-batches of the log are applied", self.path, self.number - first)
        return rows, self.number, logs.Log(path, size)


@contextmanager
def open_store(
    path: str | Path, *, max_items: int = 1_000_000, max_gap: int = 1000, device: str = "cpu"
) -> Iterator[Store]:
    """Gives an open store, which no other process can open; its log is applied first.

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
        engine = engine_of(path / PREDICTOR, about.prediction_length, about.warm_up, about.seed, device)
        data = engine.data
        rules = Rules(engine.calendar.multiple, max_items, max_gap, data.num_static_real > 0, data.num_dynamic_real > 0)
        store = Store(path, about, engine, rules)
        try:
            yield store
        finally:
            store.close()


def engine_of(folder: Path, prediction_length: int, warm_up: int, seed: int, device: str) -> Engine:
    """Return the engine of a saved predictor."""
    predictor = load_predictor(folder, device)
    if predictor.prediction_length != prediction_length:
        predictor = with_prediction_length(predictor, prediction_length)
    return Engine(predictor, warm_up, seed)


def read_description(path: Path) -> Description:
    """Return what a store says that it is.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is no complete store, or of another format.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"there is no store {path}")
    if not (path / STORE).is_file():
        raise ValueError(f"{path} is no store, or not finished: it has no {STORE}; run `tsforecast live init` (again)")
    found = read_json(path / STORE)
    if not has_fields(found, {"format": int} | _FIELDS) or not re.fullmatch("[0-9a-f]{32}", found["identity"]):
        raise ValueError(f"{path / STORE} is damaged: expected {', '.join(_FIELDS)}; restore the file")
    if found["format"] != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, got {found['format']}; make the store anew")
    return Description(**{name: found[name] for name in _FIELDS})


def finish(path: Path, about: Description, rows: Rows) -> None:
    """Writes a new store, whose model is in its place already; store.json comes last."""
    write_rows(_snapshot(path, 0), rows, 0)
    logs.create(_log(path, 0), bytes.fromhex(about.identity), 0)
    with replace_file(path / STORE) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, **asdict(about)}, indent=1) + "\n", encoding="utf-8")


def new_identity() -> str:
    """Return the identity of a store that begins."""
    return secrets.token_hex(16)


def counts(outcomes: Sequence[str]) -> dict[str, int]:
    """Return how many observations had each outcome, those that were applied first."""
    found = {APPLIED: 0}
    for outcome in outcomes:
        found[outcome] = found.get(outcome, 0) + 1
    return found


def _snapshot(path: Path, number: int) -> Path:
    return path / f"snapshot-{number:016d}"


def _log(path: Path, number: int) -> Path:
    return path / f"log-{number:016d}.bin"


def _remove_older(path: Path, number: int) -> None:
    for old in list(path.iterdir()):
        found = _NAMED.fullmatch(old.name)
        if found is not None and int(found[2]) < number:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
