"""A store: the folder of a service, in which every acknowledged observation outlives a kill.

- store.json: what the store is; it is written last, so that its presence says that the store is complete
- predictor/: the trained model
- snapshot-NUMBER/: all series, and what a learner knows, before the micro-batch of that number
- log-NUMBER.bin: the micro-batches from that number on

A micro-batch changes the beliefs once its record is on the disk, which a large one computes beside. Opening a store
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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tsforecast.data.buckets import folder_checksum
from tsforecast.data.files import remove_leftovers, replace_file
from tsforecast.data.locks import lock_folder
from tsforecast.data.reading import has_fields, read_json
from tsforecast.data.stamps import BEGINNING, saved_place
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.predictor import load_predictor, with_prediction_length
from tsforecast.live import log as logs
from tsforecast.live.engine import Engine, Moved
from tsforecast.live.learning import Learning, Learnt, steps_kept
from tsforecast.live.rows import Rows
from tsforecast.live.rules import APPLIED, Observations, Rules
from tsforecast.live.snapshot import read_learnt, read_rows, write_rows
from tsforecast.live.steps import Steps

log = logging.getLogger(__name__)

STORE = "store.json"
PREDICTOR = "predictor"
FORMAT = 2
_NAMED = re.compile(r"(snapshot-|log-)(\d{16})(\.bin)?")
_SMALL = 64  # observations: to hand a record to another thread and back takes as long as to compute with them
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
        adaptation: Options of `Adaptation` by which the model goes on learning; empty where it does not.
        stamp: The `Place` of time stamps in their steps.
    """

    identity: str
    predictor: str
    freq: str
    prediction_length: int
    targets: list[str]
    warm_up: int
    seed: int
    adaptation: dict[str, Any] = field(default_factory=dict)
    stamp: list[Any] = field(default_factory=lambda: list(BEGINNING))


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
        learning: Its learner, if it has one.
    """

    def __init__(
        self, path: Path, about: Description, engine: Engine, rules: Rules, learning: Learning | None = None
    ) -> None:
        self.path, self.about, self.engine, self.rules, self.learning = path, about, engine, rules, learning
        self.failed = False
        self.far = 0  # values that counted as missing, since the store was opened
        self.since_snapshot = 0  # observations
        self._disk = ThreadPoolExecutor(1, "disk")
        self.rows, self.number, self._log = self._read()

    def observe(self, requests: Sequence[Observations]) -> list[list[str]]:
        """Apply observations, and return the outcome of each once all of them are on the disk.

        They are one micro-batch, or several where a learner's period ends between them.

        Raises:
            StoreError: If the disk has failed.
        """
        self._check()
        steps, outcomes = self.rules.sift(self.rows, requests, self.number)
        if len(steps.rows):
            pieces = iter([steps]) if self.learning is None else self.learning.pieces(steps, len(self.rows))
            for piece in pieces:
                self._apply(replace(piece, number=self.number))
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
        learnt = None if self.learning is None else self.learning.state()
        write_rows(_snapshot(self.path, self.number), self.rows, self.number, learnt)
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
        """Applies a micro-batch: its record goes to the disk while the beliefs are computed, or after that if small."""
        size = self._log.size
        self._log.append(steps.to_bytes())
        written = self._disk.submit(self._log.flush) if len(steps.rows) > _SMALL else None
        try:
            moved = self._moved(steps)
        except BaseException:
            if written is not None:
                written.exception()  # wait
            self._log.cut_to(size)
            raise
        try:
            self._log.flush() if written is None else written.result()
        except OSError as error:
            self.failed = True
            raise StoreError(f"{self.path}: the log could not be written ({error})") from error
        self._commit(steps, moved)

    def _moved(self, steps: Steps) -> Moved | Learnt:
        if len(steps.rows):
            return self.engine.moved(self.rows, steps)
        assert self.learning is not None
        return self.learning.learnt(self.rows, steps.number)

    def _commit(self, steps: Steps, moved: Moved | Learnt) -> None:
        if isinstance(moved, Moved):
            self.engine.commit(self.rows, moved)
            self.far += moved.far
        else:
            assert self.learning is not None
            self.learning.commit(moved)
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
        if self.learning is not None:
            self.learning.restore(read_learnt(_snapshot(self.path, first), self.learning.state()))
        path, identity = _log(self.path, first), bytes.fromhex(self.about.identity)
        if not path.exists():  # killed between the two
            logs.create(path, identity, first)
        _remove_older(self.path, first)
        self.rows, self.number = rows, number
        size = logs.HEADER
        for contents, behind in logs.read(path, identity, first):
            steps = Steps.from_bytes(contents)
            is_known = len(steps.rows) or self.learning is not None
            if steps.number != self.number or not is_known or not steps.fits(rows):
                raise ValueError(f"{path}: expected micro-batch {self.number} of this model; restore the file")
            self._commit(steps, self._moved(steps))
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
        engine, learning = engine_of(path / PREDICTOR, about, device)
        data = engine.data
        rules = Rules(engine.calendar.multiple, max_items, max_gap, data.num_static_real > 0, data.num_dynamic_real > 0)
        store = Store(path, about, engine, rules, learning)
        try:
            yield store
        finally:
            store.close()


def engine_of(folder: Path, about: Description, device: str) -> tuple[Engine, Learning | None]:
    """Return the engine of a saved predictor, and the learner of its model, if it has one.

    Raises:
        ValueError: If a learner is not as expected, or windows of the model have no bound.
    """
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
    if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, got {found['format']}; make the store anew")
    is_whole = has_fields(found, {"format": int} | _FIELDS) and isinstance(found.get("adaptation"), dict)
    if not is_whole or not re.fullmatch("[0-9a-f]{32}", found["identity"]):
        raise ValueError(f"{path / STORE} is damaged: expected {', '.join(_FIELDS)}; restore the file")
    stamp = list(saved_place(found.get("stamp", list(BEGINNING))))
    return Description(**{name: found[name] for name in (*_FIELDS, "adaptation")}, stamp=stamp)


def finish(path: Path, about: Description, rows: Rows, learning: Learning | None = None) -> None:
    """Writes a new store, whose model is in its place already; store.json comes last."""
    write_rows(_snapshot(path, 0), rows, 0, None if learning is None else learning.state())
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
