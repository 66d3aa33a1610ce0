"""The beginning of a store: every series is filtered once."""

import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gluonts.itertools import batcher
from numpy.typing import NDArray

from tsforecast.data.buckets.survey import WORK
from tsforecast.data.calendar.stamps import place_of
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.effects import MEMORY
from tsforecast.data.windows import first_value
from tsforecast.forecasting.adaptation import Adaptation
from tsforecast.forecasting.live_beliefs import join
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor
from tsforecast.io.files import folder_checksum, remove_leftovers, replace_folder, write_json
from tsforecast.io.locks import contents, lock_folder
from tsforecast.io.reading import read_json
from tsforecast.live.description import STORE, Description, new_identity
from tsforecast.live.engine import Engine
from tsforecast.live.learning import Learning
from tsforecast.live.opening import engine_of, finish
from tsforecast.live.rows import News, Rows
from tsforecast.live.snapshot import read_rows, write_rows
from tsforecast.live.store import PREDICTOR
from tsforecast.progress import follow

log = logging.getLogger(__name__)

_CHUNK = 1000  # series that are filtered before they are stacked
_PLAN = "plan.json"
_PLACE = "stamp.json"


@dataclass(frozen=True)
class Source:
    """A part of the data: a file, or a bucket."""

    checksum: str
    entries: Callable[[], Iterable[dict[str, Any]]]


def begin_store(
    path: str | Path,
    predictor: str | Path,
    sources: Sequence[Source],
    *,
    prediction_length: int | None = None,
    targets: Sequence[str] = (),
    warm_up: int | None = None,
    seed: int = 0,
    adaptation: Adaptation | None = None,
    device: str = "auto",
) -> int:
    """Writes a store, or goes on where an earlier call has ended.

    Args:
        path: Folder to write: new, empty, or of a call that was stopped.
        predictor: Folder of a saved predictor, which is copied.
        sources: The data.
        prediction_length: Most steps of a forecast; None for those of the training.
        targets: Names of the targets.
        warm_up: Values from which on a series that begins keeps its scale; None for two seasons, from 10 to 64.
        seed: Of what is drawn.
        adaptation: How the model goes on learning, see `tsforecast.live.learning`; None if it does not.
        device: Where to compute.

    Returns:
        Number of series.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the folder holds something else, a series is not as expected, or the model can not learn.
        OSError: If a file can not be written; a later call goes on.
    """
    path, predictor = Path(path), Path(predictor)
    if (names := contents(path)) and not names & {STORE, WORK}:
        raise ValueError(f"{path} is not empty and no store; give a new folder")
    with lock_folder(path):
        work = _work_folder(path)
        model = load_predictor(predictor, device)
        about = Description(
            new_identity(),
            folder_checksum(predictor),
            model.freq,
            prediction_length or model.prediction_length,
            list(targets),
            min(max(2 * model.histories().net.data.season, 10), 64) if warm_up is None else warm_up,
            seed,
            {} if adaptation is None else asdict(adaptation),
        )
        engine, learning = engine_of(predictor, about, device)
        about = replace(about, warm_up=engine.warm_up)
        _keep_plan(path, about, sources)
        rows = _filtered_parts(work, engine, model, sources)
        _finish(path, work, predictor, about, rows, learning)
    return len(rows)


def _work_folder(path: Path) -> Path:
    """Return the folder of parts of a store that is not complete; a complete store is refused."""
    work = path / WORK
    for folder in (path, work):
        remove_leftovers(folder)
    if (path / STORE).exists():
        raise ValueError(f"{path} is a store already: serve it, or give a new folder")
    work.mkdir(exist_ok=True)
    return work


def _filtered_parts(work: Path, engine: Engine, model: StateSpacePredictor, sources: Sequence[Source]) -> Rows:
    """Return rows of all series; each part is written once, and read where an earlier call has written it."""
    numbered = list(enumerate(sources))
    for number, source in follow(numbered, "filtering", len(sources), "parts of the data"):
        part = work / f"part-{number:05d}"
        if not part.exists():
            entries = list(source.entries())
            if entries and not (work / _PLACE).exists():  # by the first series a service dates all forecasts
                write_json(work / _PLACE, place_of(entries[0].get("info")))
            write_rows(part, _filtered(engine, model, entries), 0)
    rows = engine.empty()
    for number, _ in numbered:
        _append(rows, read_rows(work / f"part-{number:05d}", engine.empty())[0])
    return rows


def _finish(path: Path, work: Path, predictor: Path, about: Description, rows: Rows, learning: Learning | None) -> None:
    """Writes the store, and removes its parts."""
    if not (path / PREDICTOR).exists():
        with replace_folder(path / PREDICTOR) as scratch:
            shutil.copytree(predictor, scratch, dirs_exist_ok=True)
    if learning is not None:
        if not len(rows):
            raise ValueError("expected series, behind whose last values a learner's first period begins; got none")
        learning.begin = int(rows.end[: len(rows)].max())
    if (work / _PLACE).exists():
        about = replace(about, stamp=read_json(work / _PLACE))
    finish(path, about, rows, learning)
    shutil.rmtree(work)


def _filtered(engine: Engine, predictor: StateSpacePredictor, entries: Iterable[dict[str, Any]]) -> Rows:
    """Return rows of series, each filtered once."""
    rows = engine.empty()
    for chunk in batcher(entries, _CHUNK):
        beliefs = predictor.filter(chunk)
        places = rows.add(list(beliefs))
        known = list(beliefs.values())
        rows.scatter(places, engine.layout.stack(join([one.belief for one in known])))
        rows.end[places] = [one.end.ordinal for one in known]
        rows.exponents[places] = [one.exponents for one in known]
        if engine.curves is not None:
            rows.memory[places] = [one.static[MEMORY] for one in known]
            rows.memory[places, 0] = np.nan_to_num(rows.memory[places, 0], nan=1.0)  # of series without a value
        for row, entry in zip(places.tolist(), chunk, strict=True):
            history = _history(engine, entry)
            if engine.is_young(~np.isnan(history[:, : engine.data.num_targets])):
                rows.young[row] = history
            length = np.array([len(history)])
            rows.remember(np.array([row]), News(history, length, length))
    return rows


def _history(engine: Engine, entry: dict[str, Any]) -> NDArray[np.float64]:
    """Return targets and standardised covariates (time, target + covariate) of a series from its first value on.

    Behind curves of covariates they are targets and effects.
    """
    target = np.atleast_2d(as_numbers(entry["target"]).astype(np.float64)).T
    if engine.curves is not None:
        effect = engine.curves.effects.adjusted(entry)["effect"][: len(target)]
        begin = int(np.append(~np.isnan(target[:-1, 0]), True).argmax())  # the last step where there is no value
        return np.column_stack([target, effect])[begin:]
    begin = first_value(target, ~np.isnan(target))
    covariates = np.zeros((len(target), 0))
    if engine.data.num_dynamic_real:
        given = as_numbers(entry["feat_dynamic_real"]).astype(np.float64).T[: len(target)]
        covariates = engine.covariates_of(given)
    return np.concatenate([target, covariates], 1)[begin:]


def _append(rows: Rows, more: Rows) -> None:
    """Adds rows behind others."""
    places = rows.add(more.names)
    count = len(more)
    rows.scatter(places, [part[:count] for part in more.parts])
    for name in ("end", "exponents", "recent", "seen", "memory"):
        getattr(rows, name)[places] = getattr(more, name)[:count]
    rows.young |= {int(places[row]): history for row, history in more.young.items()}


def _keep_plan(path: Path, about: Description, sources: Sequence[Source]) -> None:
    """Writes the plan of a store, and refuses to go on with another."""
    plan = {
        "predictor": about.predictor,
        "sources": [source.checksum for source in sources],
        "prediction_length": about.prediction_length,
        "warm_up": about.warm_up,
        "seed": about.seed,
        "adaptation": about.adaptation,
    }
    kept = path / WORK / _PLAN
    if not kept.is_file():
        write_json(kept, plan)
        return
    before = read_json(kept)
    if other := [name for name in plan if not isinstance(before, dict) or before.get(name) != plan[name]]:
        raise ValueError(f"{path} was begun with other {', '.join(other)}; give the same again, or a new folder")
