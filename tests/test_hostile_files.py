"""Files of strangers: whatever is in them, none of their code runs, and each is refused by one clear line.

Every file here tries to leave a mark, which is a folder; a test fails when the mark is there afterwards.
"""

import bz2
import functools
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from gluonts.model.predictor import Predictor
from lightning.pytorch.callbacks import ModelCheckpoint
from pyarrow import parquet

from experiments.video.data import load_video
from tests.forecasting.test_estimator import make_entries, make_estimator
from tests.online.test_stream import CONFIG
from tsforecast.cli import main
from tsforecast.data import Columns, load_task, read_task
from tsforecast.data.buckets.bucketing import make_buckets
from tsforecast.data.tables.formats import check_form
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor, load_adaptive
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, save_predictor
from tsforecast.forecasting.training import check_checkpoint
from tsforecast.io import binary
from tsforecast.io.binary import load_array
from tsforecast.io.tensors import load_tensors
from tsforecast.live.steps import Steps
from tsforecast.models.issm import ISSMForecaster
from tsforecast.online import saved_progress
from tsforecast.online.prequential import advance
from tsforecast.online.progress import Setup, begin
from tsforecast.online.stream import Observation, read_stream

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
    "a series that is not there": lambda p: p["beliefs"][0]["belief"]["series"]["index"].fill_(10**6),
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


def first(states):
    """The state of the first parameter of an optimizer."""
    return states[0]["state"][0]


CHECKPOINTS = {
    "no states": lambda c: c.update(optimizer_states=[]),
    "states that are a number": lambda c: c.update(optimizer_states=3),
    "a state that is a text": lambda c: c.update(optimizer_states=["x"]),
    "no groups": lambda c: c["optimizer_states"][0].pop("param_groups"),
    "fewer parameters": lambda c: c["optimizer_states"][0]["param_groups"][0]["params"].pop(),
    "no learning rate": lambda c: c["optimizer_states"][0]["param_groups"][0].pop("lr"),
    "a learning rate that is a text": lambda c: c["optimizer_states"][0]["param_groups"][0].update(lr="fast"),
    "momenta that are one": lambda c: c["optimizer_states"][0]["param_groups"][0].update(betas=3),
    "no moment": lambda c: first(c["optimizer_states"]).pop("exp_avg"),
    "a moment of another shape": lambda c: first(c["optimizer_states"]).update(exp_avg=torch.zeros(3, 5)),
    "a moment that is a text": lambda c: first(c["optimizer_states"]).update(exp_avg="x"),
    "a moment that is none": lambda c: first(c["optimizer_states"])["exp_avg"].fill_(torch.nan),
    "a step that is a list": lambda c: first(c["optimizer_states"]).update(step=[]),
    "no schedules": lambda c: c.pop("lr_schedulers"),
    "too few schedules": lambda c: c.update(lr_schedulers=[]),
    "an epoch of a schedule that is a text": lambda c: c["lr_schedulers"][0].update(last_epoch="x"),
    "a schedule of another optimizer": lambda c: c["lr_schedulers"][0].update(optimizer="x"),
    "rates that are none": lambda c: c["lr_schedulers"][0].update(base_lrs=None),
    "no loops": lambda c: c.pop("loops"),
    "loops that are a list": lambda c: c.update(loops=[]),
    "no epochs": lambda c: c["loops"]["fit_loop"].pop("epoch_progress"),
    "epochs that are a text": lambda c: c["loops"]["fit_loop"]["epoch_progress"]["current"].update(completed="x"),
    "batches that are a tensor": lambda c: c["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"].update(
        ready=torch.zeros(2)),
    "callbacks that are a list": lambda c: c.update(callbacks=[]),
    "a callback without names": lambda c: [s.pop("best_model_path") for s in c["callbacks"].values()],
    "a score that is a text": lambda c: [s.update(best_model_score="low") for s in c["callbacks"].values()],
    "time that is a text": lambda c: c["callbacks"].update(Timer={"time_elapsed": {"train": "long"}}),
    "no version": lambda c: c.pop("pytorch-lightning_version"),
    "an old version": lambda c: c.update({"pytorch-lightning_version": "0.1.0"}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHECKPOINTS)
def test_checkpoints_that_are_changed(checkpoint, tmp_path, change):
    payload = torch.load(checkpoint[1], weights_only=True)
    CHECKPOINTS[change](payload)
    last = tmp_path / "last.ckpt"
    torch.save(payload, last)
    message = refusal(lambda: make_estimator(epochs=2).train(make_entries(), ckpt_path=last))
    assert f"{last} is not a readable checkpoint" in message


STREAMING = Setup(CONFIG, classes=3)


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
    saved_progress.save(path, progress, {"bytes": 0})
    assert saved_progress.load(path, STREAMING)[0].items == 5
    return path


@pytest.mark.parametrize("content", TENSORS)
def test_states_of_streams_that_are_none(state, tmp_path, mark, content):
    path = tmp_path / "state.pt"
    path.write_bytes(TENSORS[content](state.read_bytes(), mark))
    assert str(path) in refusal(saved_progress.load, path, STREAMING)


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
    assert str(path) in refusal(saved_progress.load, path, STREAMING)


LONG = 300 << 20  # more than may be hidden in a small file
ROWS = b"item_id,timestamp,target\n" + b"".join(b"a,2024-01-%02d,%d\n" % (day, day) for day in range(1, 31))


def zipped(name, chunks):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        for chunk in chunks:
            file.write(chunk)
    return buffer.getvalue()


def bomb(compressor, size=LONG):
    """Rows, and then many zeros."""
    zeros = bytes(1 << 20)
    packed = [compressor.compress(chunk) for chunk in (ROWS, *[zeros] * (size >> 20))]
    return b"".join([*packed, compressor.flush()])


PACKED = {
    "sales.csv.gz": lambda: bomb(zlib.compressobj(1, wbits=31)),
    "sales.csv.bz2": lambda: bomb(bz2.BZ2Compressor(1), 20 << 20),
    "sales.csv.zip": lambda: zipped("sales.csv", [ROWS, *[bytes(1 << 20)] * (LONG >> 20)]),
    "sales.json.gz": lambda: bomb(zlib.compressobj(1, wbits=31)),
}  # fmt: skip
CUT = {
    "sales.csv.gz": lambda: gzip.compress(ROWS)[:-20],
    "sales.csv.bz2": lambda: bz2.compress(ROWS)[:-20],
    "sales.csv.xz": lambda: lzma.compress(ROWS)[:-20],
    "sales.csv.zip": lambda: zipped("sales.csv", [ROWS])[:-20],
    "sales.jsonl.gz": lambda: gzip.compress(b'{"start": "2024-01-01", "target": [1, 2, 3]}\n' * 500)[:-20],
    "noise.csv.gz": lambda: np.random.default_rng(0).bytes(3000),
    "noise.csv.zip": lambda: np.random.default_rng(0).bytes(3000),
    "noise.parquet": lambda: np.random.default_rng(0).bytes(3000),
    "pickle.parquet": lambda: pickle.dumps(Strike(Path("mark"))),
    "noise.json": lambda: np.random.default_rng(0).bytes(3000),
    "noise.arrow": lambda: np.random.default_rng(0).bytes(3000),
    "deep.json": lambda: b"[" * 100_000 + b"\n",
}


def read(path):
    return read_task(path, freq="D", prediction_length=2, windows=1)


@functools.cache
def as_packed(name):
    """Bytes of such a file, which take a second to make."""
    return PACKED[name]()


def bound(name, monkeypatch):
    """MiB that a file may hide: fewer of bzip2, which takes seconds to unpack what others may."""
    if not name.lower().endswith(".bz2"):
        return 256
    monkeypatch.setattr(binary, "_UNSUSPECTED", 16 << 20)
    return 16


@pytest.mark.parametrize("name", PACKED)
def test_data_that_unpack_to_far_more(tmp_path, name, monkeypatch):
    most, path = bound(name, monkeypatch), tmp_path / name
    path.write_bytes(as_packed(name))
    readers = [read, lambda path: list(read_stream(path, "target"))] if ".csv" in name else [read]
    for reader in readers:
        assert f"unpacks to more than {most} MiB" in refusal(reader, path)


@pytest.mark.parametrize("name", CUT)
def test_data_that_are_cut_short_or_none(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(CUT[name]())
    message = refusal(read, path)
    assert str(path) in message
    if "sales" in name:
        assert "cut short" in message
        if "csv" in name:
            assert "cut short" in refusal(lambda: list(read_stream(path, "target")))


def test_packed_data_are_read(tmp_path):
    for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        path = tmp_path / f"sales.csv{suffix}"
        path.write_bytes(pack(ROWS))
        assert read(path).entries[0]["target"].tolist() == [*range(1, 31)]


def test_a_table_of_one_value_many_times(tmp_path):
    path = tmp_path / "sales.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**8, np.int8)), pa.array(["0"]))
    parquet.write_table(pa.table({"target": column}), path, compression="zstd")
    for reader in (read, lambda path: list(read_stream(path, "target"))):
        assert "unpacks to more than" in refusal(reader, path)


FRAMES = np.zeros((2, 3, 8, 8), np.uint8)


def arrays(**named):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **named)
    return buffer.getvalue()


VIDEOS = {
    "objects": lambda mark: arrays(frames=np.array([Strike(mark)], dtype=object)),
    "objects beside frames": lambda mark: arrays(frames=FRAMES, observed=np.array([Strike(mark)], dtype=object)),
    "a pickle": lambda mark: zipped("frames.npy", [pickle.dumps(Strike(mark))]),
    "a pickle alone": lambda mark: pickle.dumps(Strike(mark)),
    "code in a header": lambda mark: zipped("frames.npy", [header(f"__import__('os').makedirs({str(mark)!r})")]),
    "a deep header": lambda mark: zipped("frames.npy", [header("(" * 2000)]),
    "a bomb": lambda mark: zipped("frames.npy", [bytes(1 << 20)] * (LONG >> 20)),
    "a bomb beside frames": lambda mark: zipped("other.npy", [bytes(1 << 20)] * (LONG >> 20)),
    "a header that lies": lambda mark: zipped(
        "frames.npy", [header("{'descr': '|u1', 'fortran_order': False, 'shape': (9999, 9999, 8, 8)}"), bytes(64)]
    ),
    "deep metadata": lambda mark: arrays(frames=FRAMES, metadata=np.array("[" * 100_000)),
    "metadata that are a list": lambda mark: arrays(frames=FRAMES, metadata=np.array("[]")),
    "cut short": lambda mark: arrays(frames=FRAMES)[:-30],
    "no archive": lambda mark: b"PK\x03\x04" + bytes(100),
    "nothing": lambda mark: b"",
    "text": lambda mark: arrays(frames=np.array(["ball"])),
    "no frames": lambda mark: arrays(balls=FRAMES),
    "two dimensions": lambda mark: arrays(frames=FRAMES[0, 0]),
}  # fmt: skip


def header(text):
    """The beginning of an array's file, as NumPy has it."""
    content = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content


@pytest.mark.parametrize("content", VIDEOS)
def test_videos_that_are_none(tmp_path, mark, content):
    path = tmp_path / "video.npz"
    path.write_bytes(VIDEOS[content](mark))
    assert str(path) in refusal(load_video, path)


METADATA = {
    "a list": [],
    "a number as frequency": {"freq": 3},
    "a call as frequency": {"freq": "__import__('os').makedirs('mark')"},
    "an object of GluonTS": {"freq": "D", "prediction_length": {"__kind__": "instance", "class": "builtins.int"}},
    "a text as horizon": {"freq": "D", "prediction_length": "2"},
    "half a window": {"freq": "D", "prediction_length": 2, "windows": 0.5},
}


@pytest.mark.parametrize("content", METADATA)
def test_metadata_of_data_that_are_none(tmp_path, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set" / "train" / "data.json").write_text('{"start": "2024-01-01", "target": [1, 2, 3]}\n')
    (tmp_path / "set" / "metadata.json").write_text(json.dumps(METADATA[content]))
    refusal(read_task, tmp_path / "set")
    assert not (tmp_path / "mark").exists()


def test_deep_or_long_metadata(tmp_path):
    (tmp_path / "metadata.json").write_text("[" * 100_000)
    assert "32 brackets" in refusal(read_task, tmp_path)
    (tmp_path / "metadata.json").write_text(" " * (2 << 20))
    assert "at most 1 MiB" in refusal(read_task, tmp_path)


@pytest.mark.parametrize("name", ["../set", "/etc", ".", "..", "../../../../etc", "set/../set"])
def test_names_of_data_sets_lead_nowhere_else(tmp_path, monkeypatch, name):
    (tmp_path / "set" / "train").mkdir(parents=True)
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "set"))
    assert "there is no data set" in refusal(load_task, name)


def test_items_named_as_paths(tmp_path, saved):
    """They are names, of which no file is made."""
    path = tmp_path / "sales.csv"
    path.write_bytes(ROWS.replace(b"a,2024", b"../../escaped,2024"))
    (entry,) = read(path).entries
    assert entry["item_id"] == "../../escaped"
    predictor = load_predictor(saved, "cpu")
    beliefs = predictor.filter([entry])
    save_beliefs(tmp_path / "beliefs.pt", beliefs.values(), predictor.prediction_net)
    assert [*load_beliefs(tmp_path / "beliefs.pt", predictor.prediction_net)] == ["../../escaped"]
    assert {p.name for p in tmp_path.iterdir()} == {"sales.csv", "beliefs.pt"}


@pytest.fixture(scope="module")
def adaptive(saved, tmp_path_factory):
    """The folder of a predictor that learns."""
    folder = tmp_path_factory.mktemp("adaptive")
    AdaptivePredictor(load_predictor(saved, "cpu"), Adaptation("vd-ekf")).save(folder)
    assert load_adaptive(folder, "cpu").adaptation.learner == "vd-ekf"
    return folder


@pytest.mark.parametrize("content", TENSORS)
def test_beliefs_of_learners_that_are_none(adaptive, tmp_path, mark, content):
    folder = Path(shutil.copytree(adaptive, tmp_path / "adaptive"))
    path = folder / "belief.pt"
    path.write_bytes(TENSORS[content](path.read_bytes(), mark))
    assert str(path) in refusal(load_adaptive, folder, "cpu")


LEARNT = {
    "no adaptation": lambda p: p.pop("adaptation"),
    "an adaptation that is a list": lambda p: p.update(adaptation=[]),
    "a class as learner": lambda p: p["adaptation"].update(learner="os.system"),
    "no mean": lambda p: p.pop("mean"),
    "a mean of another size": lambda p: p.update(mean=torch.zeros(1).expand(10**12)),
    "a belief of another size": lambda p: p.update(belief=[torch.zeros(3)]),
    "a belief that is a text": lambda p: p.update(belief="strong"),
}


@pytest.mark.parametrize("change", LEARNT)
def test_beliefs_of_learners_that_are_changed(adaptive, tmp_path, change):
    folder = Path(shutil.copytree(adaptive, tmp_path / "adaptive"))
    payload = torch.load(folder / "belief.pt", weights_only=True)
    LEARNT[change](payload)
    torch.save(payload, folder / "belief.pt")
    assert "belief.pt" in refusal(load_adaptive, folder, "cpu")


def said(capsys, *arguments):
    """The one line by which a command refuses."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


CONFIGS = {
    "deep": "hidden: " + "[" * 100_000,
    "deep in a text": "batch_size: '" + "[" * 100_000 + "'",
    "deep blocks": "batch_size:\n  " + "- " * 1000 + "1",
    "long": "#" * (2 << 20),
    "a tag of Python": "batch_size: !!python/object/apply:os.makedirs [{mark}]",
    "a name of Python": "batch_size: !!python/name:os.system",
    "a tag within a text": "batch_size: '!!python/object/apply:os.makedirs [{mark}]'",
    "aliases": "a: &a [1, 1]\nb: &b [*a, *a]\nbatch_size: [*b, *b]",
    "a class": "batch_size: {{class_path: os.makedirs, init_args: {{name: '{mark}'}}}}",
    "a class in a text": "components: {{class_path: os.makedirs, init_args: {{name: '{mark}'}}}}",
    "an interpolation": "batch_size: ${{oc.env:HOME}}",
    "a list": "[1, 2]",
    "no YAML": "{{",
}


@pytest.mark.parametrize("content", CONFIGS)
def test_configurations_that_are_none(tmp_path, mark, capsys, content):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGS[content].format(mark=mark))
    line = said(capsys, "train", "issm", "--dataset", "exchange", "--config", path, "--output", tmp_path / "run")
    assert len(line) < 2000
    assert not (tmp_path / "run").exists()


@pytest.fixture
def record(tmp_path):
    """What run.json says of a training."""
    return {
        "format": 1, "model": "issm", "dataset": "x", "split": {"freq": "D", "prediction_length": 2, "windows": 1},
        "series": 1, "categories": {}, "fingerprint": "0", "command": "x", "versions": {}, "folder": str(tmp_path),
    }  # fmt: skip


KEYS = ("model", "dataset", "split", "series", "categories", "fingerprint", "command", "versions", "folder")


@pytest.mark.parametrize("key", KEYS)
def test_records_that_lack_a_key(tmp_path, record, capsys, key):
    for value in (None, 3.5, [{"__kind__": "instance"}]):
        changed = record | {key: value}
        if value is None:
            del changed[key]
        (tmp_path / "run.json").write_text(json.dumps(changed))
        commands = [("evaluate",), ("predict", "--output", tmp_path / "o.csv"), ("compare",)]
        if value is None:  # options of all models take longer than all else here
            commands.append(("train", "--resume"))
        for command in commands:
            line = said(capsys, *command, tmp_path)
            assert "run.json is damaged" in line
            assert key in line


def test_runs_of_streams_name_their_command(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "stream": {"options": {}, "classes": 2}}))
    for command in (("evaluate",), ("predict", "--output", tmp_path / "o.csv"), ("train", "--resume"), ("compare",)):
        assert f"`tsforecast stream --resume {tmp_path}`" in said(capsys, *command, tmp_path)
    for text in ("[" * 100_000, "{", "[]", '{"format": 1, "stream": 3}', '{"format": 1, "stream": {}}'):
        (tmp_path / "run.json").write_text(text)
        assert "run.json is damaged" in said(capsys, "stream", "--resume", tmp_path)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run that was evaluated: two series, two windows, horizons of two."""
    folder = tmp_path_factory.mktemp("scored")
    rows = [f"{item},2024-01-{day:02d},{day + k}" for k, item in enumerate("ab") for day in range(1, 31)]
    (folder / "sales.csv").write_text("item_id,timestamp,target\n" + "\n".join(rows) + "\n")
    split = ["--data", folder / "sales.csv", "--prediction_length", "2", "--windows", "2"]
    short = ["--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu"]
    assert main(["train", "issm", *map(str, split), *short, "--output", str(folder / "run")]) == 0
    assert main(["evaluate", str(folder / "run"), "--num_samples", "5", "--plot_series", "0"]) == 0
    return folder / "run"


def cells(change):
    """Changes the cells of the third row."""

    def changed(text):
        lines = text.split("\n")
        lines[3] = ",".join(change(lines[3].split(",")))
        return "\n".join(lines)

    return changed


TABLES = {
    "no column": (lambda text: text.replace("crps", "loss", 1), "a column crps"),
    "text for a number": (cells(lambda row: [*row[:-1], "high"]), "line 4, column size: expected a number, got 'high'"),
    "an object for a number": (cells(lambda row: [*row[:-2], "'{}'", row[-1]]), "line 4, column crps"),
    "an infinite size": (cells(lambda row: [*row[:-1], "1e999"]), "line 4, column size"),
    "a date that is none": (cells(lambda row: [*row[:3], "soon", *row[4:]]), "line 4, column start"),
    "a date beyond time": (cells(lambda row: [*row[:3], "9999-01-01", *row[4:]]), "per_forecast.csv"),
    "another protocol": (cells(lambda row: ["../x", *row[1:]]), "line 4, column protocol"),
    "no model": (cells(lambda row: [row[0], "", *row[2:]]), "line 4, column model"),
    "other models": (lambda text: text.replace("issm", "gls"), "rows of 'issm'"),
    "a short row": (cells(lambda row: row[:-1]), "line 4, column size"),
    "a long row": (cells(lambda row: [*row, "1"]), "line 4"),
    "long rows": (lambda text: text.replace("\n", ",1\n").replace(",1\n", "\n", 1), "6 cells"),
    "a row that is not there": (cells(lambda row: ["\n"]), "per_forecast.csv"),
    "cut short": (lambda text: text[: len(text) // 2].rstrip("\n"), "cut short"),
    "nothing": (lambda text: "", "cut short"),
    "a header alone": (lambda text: text.split("\n")[0] + "\n", "rows of 'issm'"),
    "no table": (lambda text: "\0" * 99 + "\n", "per_forecast.csv"),
    "no text": (lambda text: "\udcff" + text, "per_forecast.csv"),
    "huge": (lambda text: LONG, "expected at most 256 MiB"),
}


@pytest.mark.parametrize("change", TABLES)
def test_tables_of_scores_that_are_none(scored, tmp_path, capsys, change):
    run = Path(shutil.copytree(scored, tmp_path / "run"))
    path = run / "per_forecast.csv"
    spoilt = TABLES[change][0](path.read_text())
    if isinstance(spoilt, int):
        os.truncate(path, spoilt)
    else:
        path.write_text(spoilt, errors="surrogateescape")
    line = said(capsys, "compare", run, "--output", tmp_path / "page.html")
    assert "per_forecast.csv" in line
    assert TABLES[change][1] in line
    assert len(line) < 1000


@pytest.mark.parametrize("name", ["per_horizon.csv", "calibration.csv"])
def test_other_tables_of_scores_that_are_none(scored, tmp_path, capsys, name):
    run = Path(shutil.copytree(scored, tmp_path / "run"))
    good = (run / name).read_text()
    column = good.split("\n")[0].split(",")[2]
    for spoilt, expected in (
        (good.replace(column, "x", 1), f"a column {column}"),
        (cells(lambda row: [*row[:2], "high", *row[3:]])(good), f"line 4, column {column}"),
    ):
        (run / name).write_text(spoilt)
        line = said(capsys, "compare", run, "--output", tmp_path / "page.html")
        assert name in line
        assert expected in line


SCORES = {
    "a list": lambda s: [s],
    "no baselines": lambda s: s.update(baselines=3),
    "a baseline that is a number": lambda s: s["baselines"].update(seasonal_naive=3),
    "no protocol": lambda s: s.pop("long_term"),
    "a protocol that is a list": lambda s: s.update(rolling=[]),
    "no coverage": lambda s: s["rolling"].pop("coverage"),
    "a score that is a text": lambda s: s["rolling"].update(crps="low"),
    "a score beyond numbers": lambda s: s["rolling"].update(crps=10**400),
    "coverage that is an object": lambda s: s["rolling"]["coverage"].update({"50": {}}),
}


@pytest.mark.parametrize("change", SCORES)
def test_scores_that_are_none(scored, tmp_path, capsys, change):
    run = Path(shutil.copytree(scored, tmp_path / "run"))
    scores = json.loads((run / "scores.json").read_text())
    spoilt = SCORES[change](scores)  # changed in place, or anew
    (run / "scores.json").write_text(json.dumps(spoilt if change == "a list" else scores))
    line = said(capsys, "compare", run, "--output", tmp_path / "page.html")
    assert "scores.json: expected" in line
    assert "write it again by `tsforecast evaluate" in line


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """A run of a stream, which was killed before it saved a state."""
    folder = tmp_path_factory.mktemp("streamed")
    (folder / "items.csv").write_text("a,target\n1,\n2,\n")
    options = ["--data", folder / "items.csv", "--output", folder / "run", "--task", "numbers"]
    assert main(["stream", *map(str, options)]) == 0
    (folder / "run" / "state.pt").unlink()
    (folder / "run" / "items.csv").unlink()
    return folder / "run"


@pytest.mark.parametrize(
    "value", ["nothing", None, "x y", [{}], 10**400, 10**12], ids=["nothing", "null", "text", "list", "huge", "large"]
)
def test_options_of_streams_that_are_none(streamed, value, capsys):
    """Each option in turn; a value that it may have is taken."""
    path = streamed / "run.json"
    good = path.read_text()
    for name in (*json.loads(good)["stream"]["options"], "unknown"):
        record = json.loads(good)
        options = record["stream"]["options"]
        options[name] = value
        if value == "nothing":
            del options[name]
        path.write_text(json.dumps(record))
        status = main(["stream", "--resume", str(streamed)])
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        for file in ("state.pt", "items.csv"):
            (streamed / file).unlink(missing_ok=True)
        path.write_text(good)
        assert (status, len(lines)) in ((0, 0), (2, 1))
        if value == "nothing" and name not in ("id", "delay", "block", "memory", "memory_size", "unknown"):
            assert "run.json is damaged" in lines[0]
            assert name in lines[0]
        if value == [{}] and name != "settings":
            assert "run.json is damaged" in lines[0]


def test_a_stream_of_other_classes(streamed, capsys):
    path = streamed / "run.json"
    good = path.read_text()
    for classes in (-1, 3, 10**12):
        record = json.loads(good)
        record["stream"]["classes"] = classes
        path.write_text(json.dumps(record))
        assert "expected classes to be 0 or 10" in said(capsys, "stream", "--resume", streamed)
    path.write_text(good)


@pytest.mark.parametrize(
    "log",
    [b"[" * 100_000 + b"\n", b"3\n", b'{"op_code": 0}\n', b'{"op_code": 99}\n{}\n', b"\x80\x04K\x01.\n",
     b'{"op_code": 0, "worker_id": \n{}\n'],
)  # fmt: skip
def test_studies_that_are_none(tmp_path, log, capsys):
    (tmp_path / "study.log").write_bytes(log)
    assert "study.log is damaged" in said(capsys, "tune", "issm", "--dataset", "exchange", "--study", tmp_path)
    assert (tmp_path / "study.log").read_bytes() == log


@pytest.mark.parametrize("name", ["sales.csv.GZ", "sales.CSV.Bz2", "sales.csv.ZIP"])
def test_packed_data_whose_name_has_other_letters(tmp_path, name, monkeypatch):
    """pandas unpacks them, too."""
    most, path = bound(name, monkeypatch), tmp_path / name
    path.write_bytes(as_packed(name.lower()))
    assert f"unpacks to more than {most} MiB" in refusal(read, path)


@pytest.mark.parametrize("name", ["sales.csv.zst", "sales.tar", "sales.csv.TAR.gz"])
def test_packed_data_that_nothing_bounds(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    assert "unpack it yourself" in refusal(read_task, tmp_path / name)


ABOUT = {
    "no JSON": lambda about: b"{",
    "a list": lambda about: b"[]",
    "a number": lambda about: b"7",
    "no text": lambda about: b"\xff\xfe",
    "nothing of columns": lambda about: b'{"index_columns": []}',
    "an index that is not there": lambda about: json.dumps(about | {"index_columns": ["nothing"]}).encode(),
    "an index of a number": lambda about: json.dumps(about | {"index_columns": [7]}).encode(),
    "an index of no kind": lambda about: json.dumps(about | {"index_columns": [{"kind": "range"}]}).encode(),
    "columns that are texts": lambda about: json.dumps(about | {"columns": ["date"]}).encode(),
    "types that are none": lambda about: json.dumps(
        about | {"columns": [column | {"numpy_type": "nothing"} for column in about["columns"]]}
    ).encode(),
}


@pytest.fixture(scope="module")
def parquet_table():
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=40), "target": np.arange(40.0)})
    return pa.Table.from_pandas(frame.set_index("date"))


@pytest.mark.parametrize("about", ABOUT)
def test_parquet_with_damaged_notes_of_pandas(tmp_path, parquet_table, about):
    """They are read, or refused by one line, wherever a table is read."""
    path = tmp_path / "sales.parquet"
    content = ABOUT[about](json.loads(parquet_table.schema.metadata[b"pandas"]))
    parquet.write_table(parquet_table.replace_schema_metadata({b"pandas": content}), path)
    readers = (
        lambda: read_task(path, windows=0),
        lambda: [*read_stream(path, "target")],
        lambda: make_buckets([str(path)], tmp_path / "buckets"),
        lambda: check_form(path, Columns()),
    )
    faults = []
    for read in readers:
        try:
            read()
        except (ValueError, FileNotFoundError) as error:
            faults.append(str(error))
    assert all(len(fault) < 1000 and "\n" not in fault for fault in faults)


def npy(shape, content=bytes(80), kind="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@pytest.mark.parametrize(
    "content",
    [npy((10**14,)), npy((2**40, 2**40)), npy((9,)), npy((11,)), npy((10,), kind="|O"), b"", b"\x93NUMPY", bytes(100)],
)
def test_arrays_whose_headers_lie(tmp_path, content):
    path = tmp_path / "end.npy"
    path.write_bytes(npy((10,)))
    assert load_array(path).shape == (10,)
    path.write_bytes(content)
    assert str(path) in refusal(load_array, path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such device")
def test_files_that_are_devices(tmp_path, folder):
    """One that never ends is not read."""
    weights = next(path for path in folder.iterdir() if path.suffix == ".pt")
    weights.unlink()
    weights.symlink_to("/dev/zero")
    assert str(weights) in refusal(load_predictor, folder)
    for name, read in {
        "sales.csv": read_task,
        "sales.csv.gz": read_task,
        "sales.parquet": read_task,
        "frames.npz": load_video,
        "beliefs.pt": lambda path: load_tensors(path),
        "last.ckpt": ISSMForecaster.load_from_checkpoint,
    }.items():
        (tmp_path / name).symlink_to("/dev/zero")
        assert str(tmp_path / name) in refusal(read, tmp_path / name)


@pytest.mark.parametrize("part", ["(", "*", "[a-", 7])
def test_expressions_that_are_none(part):
    assert "regular expression" in refusal(lambda: Adaptation("lofi", part=part))


def test_names_in_a_log_that_are_no_text():
    steps = Steps(0, [], np.zeros(1, np.int64), *[np.zeros(1, np.int64)] * 2, np.zeros((1, 1)), np.zeros((1, 0)))
    assert Steps.from_bytes(steps.to_bytes()).names == []
    for names in ([7], [None], {"a": 1}, "a", 3):
        object.__setattr__(steps, "names", names)
        assert "names that are no text" in refusal(Steps.from_bytes, steps.to_bytes())


def test_an_accelerator_that_is_not_there():
    estimator = make_estimator("issm", epochs=1, trainer_kwargs={"accelerator": "tpu"})
    assert "'tpu'" in refusal(estimator.train, make_entries())
