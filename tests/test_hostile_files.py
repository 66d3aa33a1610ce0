"""Files of strangers: whatever is in them, none of their code runs, and each is refused by one clear line.

Every file here tries to leave a mark, which is a folder; a test fails when the mark is there afterwards.
"""

import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from gluonts.model.predictor import Predictor
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.test_estimator import make_entries, make_estimator
from tests.test_stream import RECIPE
from tsforecast import prequential
from tsforecast.data.stream import Observation
from tsforecast.live import load_beliefs, save_beliefs
from tsforecast.predictor import StateSpacePredictor, load_predictor, save_predictor
from tsforecast.prequential import Setup, advance, begin
from tsforecast.training import check_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


class Strike:
    """A pickle of it makes a folder when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.makedirs, (str(self.mark),)


@pytest.fixture
def mark(tmp_path):
    """Where foreign code leaves its mark; none may."""
    path = tmp_path / "mark"
    yield path
    assert not path.exists(), "foreign code ran"


def test_a_strike_leaves_a_mark(tmp_path):
    pickle.loads(pickle.dumps(Strike(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def refusal(read, *arguments):
    """The message by which a file is refused: one line that names the file and is not a page long."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        read(*arguments)
    message = str(caught.value)
    assert len(message) < 1000
    assert "\n" not in message
    return message


def calling(mark, outer, lazy):
    """An object of GluonTS' notation that calls `os.makedirs(mark)` while it is built."""
    arguments = [[str(mark)]] if lazy.endswith("StarMap") else [str(mark)]
    call = {
        "__kind__": "instance",
        "class": lazy,
        "args": [{"__kind__": "type", "class": "os.makedirs"}, arguments],
    }
    return {"__kind__": "instance", "class": outer, "args": [call]}


KINDS = {
    f"{outer} of {lazy.rsplit('.')[-1]}": lambda mark, outer=outer, lazy=lazy: calling(mark, outer, lazy)
    for outer in ("builtins.tuple", "builtins.list", "builtins.set", "builtins.frozenset", "builtins.dict")
    for lazy in ("gluonts.itertools.Map", "gluonts.itertools.StarMap", "gluonts.itertools.Filter")
} | {
    "os.system": lambda mark: {"__kind__": "instance", "class": "os.system", "args": [f"mkdir {mark}"]},
    "makedirs": lambda mark: {"__kind__": "instance", "class": "os.makedirs", "args": [str(mark)]},
    "partial": lambda mark: {
        "__kind__": "instance",
        "class": "functools.partial",
        "args": [{"__kind__": "type", "class": "os.makedirs"}, str(mark)],
    },
    "stateful": lambda mark: {"__kind__": "stateful", "class": "gluonts.itertools.Map", "kwargs": {"fn": str(mark)}},
    "getattr": lambda mark: {
        "__kind__": "instance",
        "class": "builtins.getattr",
        "args": [{"__kind__": "type", "class": "os.path"}, "os"],
    },
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A predictor and its folder."""
    folder = tmp_path_factory.mktemp("saved") / "predictor"
    save_predictor(make_estimator(epochs=1).train(make_entries()), folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the predictor's folder, to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "predictor"))


def spoil(folder, change):
    """Changes the record of a predictor."""
    path = folder / "predictor.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(change(record) or record))  # changed in place, or anew


READERS = {
    "load_predictor": lambda folder: load_predictor(folder, "cpu"),
    "deserialize": StateSpacePredictor.deserialize,
    "GluonTS": Predictor.deserialize,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_objects_named_in_place_of_a_predictor(folder, mark, kind, reader):
    (folder / "predictor.json").write_text(json.dumps(KINDS[kind](mark)))
    assert "format 1" in refusal(READERS[reader], folder)


@pytest.mark.parametrize("part", ["hyperparameters", "preparation", "predictor", "items", "components", "model"])
@pytest.mark.parametrize("kind", ["builtins.tuple of Map", "os.system", "stateful"])
def test_objects_named_within_a_predictor(folder, mark, kind, part):
    def change(record):
        if part == "items":
            record["preparation"]["items"] = [KINDS[kind](mark)]
        elif part == "components":
            record["hyperparameters"]["components"] = KINDS[kind](mark)
        else:
            record[part] = KINDS[kind](mark)

    spoil(folder, change)
    assert "predictor.json" in refusal(load_predictor, folder)


CHANGES = {
    "a list": lambda r: [r],
    "no format": lambda r: {k: v for k, v in r.items() if k != "tsforecast_format"},
    "another format": lambda r: r | {"tsforecast_format": 99},
    "no model": lambda r: {k: v for k, v in r.items() if k != "model"},
    "a class as model": lambda r: r | {"model": "os.system"},
    "another model": lambda r: r | {"model": "rsgls"},
    "text for a number": lambda r: r["hyperparameters"].update(num_series="3"),
    "truth for a number": lambda r: r["hyperparameters"].update(num_series=True),
    "an unknown argument": lambda r: r["hyperparameters"].update(callbacks=[]),
    "a missing argument": lambda r: r["preparation"].pop("items"),
    "a module": lambda r: r["predictor"].update(prediction_net="torch.nn.Linear"),
    "more memory than there is": lambda r: r["hyperparameters"].update(num_series=10**12),
    "other seasons": lambda r: r["preparation"].update(seasons=["month_of_year"]),
    "other targets": lambda r: r["preparation"].update(num_targets=2),
    "a horizon of none": lambda r: [r[part].update(prediction_length=0) for part in ("preparation", "predictor")][2:],
    "ragged units": lambda r: r["preparation"].update(static_units=[[1.0], [1.0, 2.0]]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_predictor(folder, change):
    spoil(folder, CHANGES[change])
    assert str(folder) in refusal(load_predictor, folder)


TEXTS = {
    "nothing": b"",
    "half": b'{"tsforecast_format": 2,',
    "deep": b"[" * 100_000,
    "random": np.random.default_rng(0).bytes(5000),
    "a pickle": pickle.dumps(Strike(Path("mark"))),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_record_that_is_no_record(folder, text):
    (folder / "predictor.json").write_bytes(TEXTS[text])
    assert "predictor.json" in refusal(load_predictor, folder)


def torch_file(payload, **options):
    buffer = io.BytesIO()
    torch.save(payload, buffer, **options)
    return buffer.getvalue()


def packed(content):
    """The same archive, packed: a bomb where its content is zeros."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return buffer.getvalue()


# What may lie in the place of a file of tensors; of (the good file, the mark).
TENSORS = {
    "a pickle": lambda good, mark: pickle.dumps(Strike(mark)),
    "a pickle in torch's archive": lambda good, mark: torch_file({"level": Strike(mark)}),
    "a pickle in torch's old format": lambda good, mark: torch_file(
        Strike(mark), _use_new_zipfile_serialization=False
    ),
    "tensors in torch's old format": lambda good, mark: torch_file(
        {"level": torch.zeros(2)}, _use_new_zipfile_serialization=False
    ),
    "a whole module": lambda good, mark: torch_file(torch.nn.Linear(2, 2)),
    "a bomb": lambda good, mark: packed(torch_file({"level": torch.zeros(10**7)})),
    "a list": lambda good, mark: torch_file([torch.zeros(2)]),
    "other names": lambda good, mark: torch_file({"level": torch.zeros(2)}),
    "no tensors": lambda good, mark: torch_file({"level": "high"}),
    "nothing": lambda good, mark: b"",
    "cut short": lambda good, mark: good[: len(good) // 2],
    "without its end": lambda good, mark: good[:-30],
    "random": lambda good, mark: np.random.default_rng(0).bytes(len(good)),
}  # fmt: skip


@pytest.mark.parametrize("content", TENSORS)
def test_weights_that_are_none(folder, mark, content):
    path = folder / "prediction-net-state.pt"
    path.write_bytes(TENSORS[content](path.read_bytes(), mark))
    assert str(folder) in refusal(load_predictor, folder)


def test_weights_of_other_shapes(folder):
    path = folder / "prediction-net-state.pt"
    good = torch.load(path, weights_only=True)
    name = next(name for name, values in good.items() if values.dim())
    for values in (torch.zeros(1).expand(10**12), good[name].unsqueeze(0), "text"):
        torch.save(good | {name: values}, path)
        assert "do not fit" in refusal(load_predictor, folder)


@pytest.mark.parametrize("device", ["cuda:77", "gpu", "meta", "cuda:-1", ""])
def test_a_device_that_is_not_there(folder, device):
    message = refusal(load_predictor, folder, device)
    assert "there is no device" in message
    assert "cpu" in message
    assert "train again" not in message


@pytest.fixture(scope="module", params=["issm", "rsgls-issm"])
def beliefs(request, saved, tmp_path_factory):
    """A model, and a file of what it knows."""
    predictor = (
        load_predictor(saved)
        if request.param == "issm"
        else make_estimator(request.param, epochs=1).train(make_entries())
    )
    path = tmp_path_factory.mktemp("beliefs") / "beliefs.pt"
    save_beliefs(path, predictor.filter(make_entries()).values(), predictor.prediction_net)
    return predictor.prediction_net, path


@pytest.mark.parametrize("content", TENSORS)
def test_beliefs_that_are_none(beliefs, tmp_path, mark, content):
    net, good = beliefs
    path = tmp_path / "beliefs.pt"
    path.write_bytes(TENSORS[content](good.read_bytes(), mark))
    assert str(path) in refusal(load_beliefs, path, net)


def within(belief, name):
    """The innermost state of a belief, Gaussian or of particles."""
    state = belief["state"]
    return state["state"] if name not in state else state


BELIEFS = {
    "no rows": lambda p: p.pop("beliefs"),
    "no signature": lambda p: p.pop("signature"),
    "no format": lambda p: p.pop("tsforecast_format"),
    "rows that are a number": lambda p: p.update(beliefs=3),
    "rows that are a text": lambda p: p.update(beliefs="rows"),
    "a row that is none": lambda p: p["beliefs"].append(None),
    "no name": lambda p: p["beliefs"][0].pop("item_id"),
    "a tensor as name": lambda p: p["beliefs"][0].update(item_id=torch.zeros(2)),
    "a frequency that is none": lambda p: p["beliefs"][0].update(freq="fortnight"),
    "an end that is none": lambda p: p["beliefs"][0].update(end="soon"),
    "an end beyond time": lambda p: p["beliefs"][0].update(end=10**30),
    "no belief": lambda p: p["beliefs"][0].pop("belief"),
    "a belief that is a text": lambda p: p["beliefs"][0].update(belief="strong"),
    "no state": lambda p: p["beliefs"][0]["belief"].pop("state"),
    "a state that is a list": lambda p: p["beliefs"][0]["belief"].update(state=[]),
    "a wide mean": lambda p: within(p["beliefs"][0]["belief"], "mean").update(mean=torch.zeros(1, 99)),
    "a mean of whole numbers": lambda p: (m := within(p["beliefs"][0]["belief"], "mean")).update(mean=m["mean"].long()),
    "a mean that is none": lambda p: within(p["beliefs"][0]["belief"], "mean")["mean"].fill_(torch.nan),
    "no covariance": lambda p: within(p["beliefs"][0]["belief"], "cov").pop("cov"),
    "a large covariance": lambda p: within(p["beliefs"][0]["belief"], "cov").update(
        cov=torch.zeros(1).expand(1, 10**5, 10**5)),
    "a scale of zero": lambda p: p["beliefs"][0]["belief"]["scale"].zero_(),
    "a series that is not there": lambda p: p["beliefs"][0]["belief"]["series"].fill_(10**6),
    "static features that are none": lambda p: p["beliefs"][0].update(static=3),
    "static features of another name": lambda p: p["beliefs"][0].update(static={"target": torch.zeros(2)}),
    "static features that are text": lambda p: p["beliefs"][0].update(static={"feat_static_real": "high"}),
}  # fmt: skip


@pytest.mark.parametrize("change", BELIEFS)
def test_beliefs_that_are_changed(beliefs, tmp_path, change):
    net, good = beliefs
    payload = torch.load(good, weights_only=True)
    BELIEFS[change](payload)
    path = tmp_path / "beliefs.pt"
    torch.save(payload, path)
    assert str(path) in refusal(load_beliefs, path, net)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An untrained model, and the checkpoint from which its training goes on."""
    folder = tmp_path_factory.mktemp("checkpoints")
    keep = ModelCheckpoint(folder, "last", enable_version_counter=False)
    estimator = make_estimator(epochs=1, trainer_kwargs={"callbacks": [keep]})
    return estimator.train(make_entries()).network, folder / "last.ckpt"


@pytest.mark.parametrize("content", TENSORS)
def test_checkpoints_that_are_none(checkpoint, tmp_path, mark, content):
    module, good = checkpoint
    path = tmp_path / "last.ckpt"
    path.write_bytes(TENSORS[content](good.read_bytes(), mark))
    assert str(path) in refusal(check_checkpoint, path, module)


@pytest.mark.parametrize("name", ["{0}/../precious", "local://{1}/precious", "{0}/link/precious", "file::{1}/precious"])
@pytest.mark.parametrize("key", ["best_model_path", "kth_best_model_path", "last_model_path", "best_k_models"])
def test_checkpoints_that_have_files_removed(checkpoint, tmp_path, name, key):
    folder = tmp_path / "run"
    (folder / "precious").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "link").symlink_to(folder)
    payload = torch.load(checkpoint[1], weights_only=True)
    (state,) = (s for n, s in payload["callbacks"].items() if n.startswith("ModelCheckpoint"))
    file = name.format(folder / "checkpoints", folder)
    state |= {
        "dirpath": str(folder / "checkpoints"),
        "best_k_models": {},
        key: {file: 1.0} if key == "best_k_models" else file,
    }
    last = folder / "checkpoints" / "last.ckpt"
    torch.save(payload, last)
    keep = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
    estimator = make_estimator(epochs=2, trainer_kwargs={"callbacks": [keep]})
    assert "none of the run" in refusal(lambda: estimator.train(make_entries(), ckpt_path=last))
    assert (folder / "precious").exists()


STREAMING = Setup(RECIPE, classes=3)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A saved state of a stream, with one observation that waits."""
    rng = np.random.default_rng(0)
    progress = begin(STREAMING)
    for k in range(5):
        item = Observation(
            {"a": rng.normal(), "b": rng.normal()}, None if k == 4 else "yes" if k % 2 else "no", None, k
        )
        progress, _ = advance(STREAMING, progress, item)
    path = tmp_path_factory.mktemp("stream") / "state.pt"
    prequential.save(path, progress, {"bytes": 0})
    assert prequential.load(path, STREAMING)[0].items == 5
    return path


@pytest.mark.parametrize("content", TENSORS)
def test_states_of_streams_that_are_none(state, tmp_path, mark, content):
    path = tmp_path / "state.pt"
    path.write_bytes(TENSORS[content](state.read_bytes(), mark))
    assert str(path) in refusal(prequential.load, path, STREAMING)


STATES = {
    "no format": lambda p: p.pop("format"),
    "no items": lambda p: p.pop("items"),
    "items that are a text": lambda p: p.update(items="5"),
    "sums of another shape": lambda p: p.update(sums=torch.zeros(1).expand(10**12)),
    "labels that are a list": lambda p: p.update(labels=["yes"]),
    "labels in one place": lambda p: p.update(labels={"yes": 0, "no": 0}),
    "too many labels": lambda p: p.update(labels={str(k): k for k in range(9)}),
    "no columns": lambda p: p.pop("columns"),
    "more columns than memory": lambda p: p.update(columns=(p["columns"][0], 10**12)),
    "columns that are a number": lambda p: p.update(columns=3),
    "no belief": lambda p: p.update(belief=None),
    "a belief of another shape": lambda p: p.update(belief=[torch.zeros(2) for _ in p["belief"]]),
    "a belief that is a text": lambda p: p.update(belief="strong"),
    "statistics that are none": lambda p: p.update(statistics=[]),
    "a row that waits and is none": lambda p: p.update(waiting={1: 2}),
    "a row that waits and is short": lambda p: p.update(waiting={1: (torch.zeros(1, 1), torch.zeros(2))}),
    "no extra": lambda p: p.pop("extra"),
    "an extra that is a number": lambda p: p.update(extra=3),
}


@pytest.mark.parametrize("change", STATES)
def test_states_of_streams_that_are_changed(state, tmp_path, change):
    payload = torch.load(state, weights_only=True)
    STATES[change](payload)
    path = tmp_path / "state.pt"
    torch.save(payload, path)
    assert str(path) in refusal(prequential.load, path, STREAMING)
