"""What training and evaluation of models of video share: data, models in the sizes of the papers, run folders."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentParser, Namespace

from experiments.video.data import Video, load_video
from experiments.video.worlds import WORLDS
from tsforecast.cli import run_records, runs
from tsforecast.cli.train_parser import add_options
from tsforecast.data.folder import data_home
from tsforecast.forecasting.training import check_checkpoint
from tsforecast.models import MODELS, ARSGLSForecaster, KVAEMCForecaster, KVAERBForecaster
from tsforecast.models import make_model as build

SEEN, AHEAD = 20, 40  # frames that are filtered, and forecast
NAMES = ("arsgls", "kvae-rb", "kvae-mc")
# Of Kurle et al. (2020) where these differ from those for series; KVAE's weight of the reconstruction is Fraccaro's.
SIZES: dict[str, Any] = {
    "state_dim": 10,
    "auxiliary_dim": None,  # by the data
    "num_bases": 10,
    "embedding_dim": 1,
    "likelihood": "bernoulli",
    "learning_rate": 2e-3,
    "network_learning_rate": 2e-3,
}
OWN: dict[str, dict[str, Any]] = {
    "arsgls": {"switch_dim": 8, "num_particles": 32},
    "kvae-rb": {"reconstruction_weight": 0.3, "num_particles": 32},
    "kvae-mc": {"reconstruction_weight": 0.3, "num_particles": 32},
}
# What does not concern frames, or follows from them.
_FIXED = {"scaling": "none", "transformation": "none", "clip": "none", "skip": False, "objective": "likelihood"}
Model = ARSGLSForecaster | KVAERBForecaster | KVAEMCForecaster


def add_data(parser: ArgumentParser) -> None:
    """Adds the options that say which video."""
    group = parser.add_argument_group("data: a world by name, a file or a folder")
    group.add_argument("--dataset", type=str, metavar="NAME", help=f"one of {', '.join(WORLDS)}")
    group.add_argument(
        "--data",
        type=str,
        metavar="PATH",
        help="npz file with an array `frames` (sequence, time, height, width), or a folder with train.npz and "
        "test.npz, as datasets/video.py writes it",
    )


def add_model(parser: ArgumentParser, name: str) -> None:
    """Adds the hyperparameters of a model, with the papers' sizes as defaults."""
    add_options(parser, MODELS[name], _FIXED)
    parser.set_defaults({**SIZES, **OWN[name]})


def auxiliary_dim_for(video: Video) -> int:
    """Coordinates of what moves: of the ball, and in pong more for the paddles, as in the paper."""
    return 6 if video.metadata.get("world") == "pong" else 2


def find_video(dataset: str | None, data: str | None, part: str) -> tuple[str, Video]:
    """Name and frames of the training or test part.

    Of a user's file the last sixth of the sequences is the test part.

    Args:
        dataset: Name of a world whose files `datasets/video.py` has made.
        data: A user's file instead, or a folder with a file for each part.
        part: "train" or "test".

    Raises:
        FileNotFoundError: If the files are not there.
        ValueError: If not exactly one of the two is given, or something is wrong with the file.
    """
    if (dataset is None) == (data is None):
        raise ValueError("expected either --dataset or --data, as in `arsgls --dataset box`")
    if data is not None and not Path(data).is_dir():
        video = load_video(data)
        count = len(video.frames)
        held = max(count // 6, 1)
        if count < 2:
            raise ValueError(f"{data}: expected at least 2 sequences, one to train on and one to test on, got {count}")
        chosen = slice(0, count - held) if part == "train" else slice(count - held, count)
        return Path(data).stem, of_sequences(video, chosen)
    if dataset is not None and dataset not in WORLDS:
        raise ValueError(f"expected --dataset to be one of {', '.join(WORLDS)}, got {dataset!r}")
    folder = data_home() / "video" / str(dataset) if data is None else Path(data)
    path = folder / f"{part}.npz"
    if not path.exists():
        made_by = f"{dataset}` makes it" if data is None else f"WORLD --output {data}` makes it and its companion"
        raise FileNotFoundError(f"there is no {path}; `python datasets/video.py {made_by}")
    return dataset or folder.resolve().name, load_video(path)


def check_forecast(video: Video, trained_on: Video | None = None) -> None:
    """Refuses a test part that cannot be scored.

    Args:
        video: The test part.
        trained_on: The training part, if it is known.

    Raises:
        ValueError: If nothing is left to forecast, or its frames are not like those of the training part.
    """
    if video.frames.shape[1] <= SEEN:
        raise ValueError(
            f"expected test sequences longer than the {SEEN} frames that are filtered, got {video.frames.shape[1]}"
        )
    if trained_on is None:
        return
    sizes = [(*part.frames.shape[2:], "black and white" if part.is_binary else "grey") for part in (trained_on, video)]
    if sizes[0] != sizes[1]:
        train, test = (f"{height} x {width}, {colours}" for height, width, colours in sizes)
        raise ValueError(f"expected test frames like those of the training part, {train}; got {test}")


def of_sequences(video: Video, chosen: slice) -> Video:
    """Some of the sequences."""
    truths = {name: values[chosen] for name, values in video.truths.items()}
    return dataclasses.replace(video, frames=video.frames[chosen], observed=video.observed[chosen], truths=truths)


def make_model(name: str, chosen: Namespace | dict[str, Any], shape: tuple[int, int], seed: int) -> Model:
    """The model for frames of a shape."""
    taken = dict(vars(chosen)) if isinstance(chosen, Namespace) else dict(chosen)
    parser = ArgumentParser()
    add_model(parser, name)
    own = {key: taken[key] for key in vars(parser.get_defaults()) if key in taken}
    torch.manual_seed(seed)
    model = build(
        MODELS[name],
        **own,
        **_FIXED,
        freq="200ms",  # without a season
        prediction_length=AHEAD,
        num_targets=int(np.prod(shape)),
        num_time_features=1,
        image_shape=list(shape),
        seed=seed,
    )
    assert isinstance(model, Model)
    return model


def use_particles(model: Model, count: int) -> None:
    """Has a model filter with so many particles."""
    particles = dataclasses.replace(model.inference.particles, num_particles=count)
    model.inference = dataclasses.replace(model.inference, particles=particles)


def load_model(folder: Path) -> tuple[Model, dict[str, Any]]:
    """The trained model of a run, and its record.

    Raises:
        FileNotFoundError: If there is no such run.
        ValueError: If it is damaged, or not finished.
    """
    record = run_records.read_record(folder)
    if "finished" not in record or record.get("kind") != "video":
        raise ValueError(f"{folder} is no finished run of experiments/video/train.py; go on with it by --resume")
    model = make_model(record["model"], record["settings"], tuple(record["size"]), record["seed"])
    path = folder / runs.LAST
    check_checkpoint(path, model)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
    return model.eval(), record
