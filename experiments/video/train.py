"""Trains a model of video: a body that moves and collides, seen as frames.

    python datasets/video.py box                                         # makes the frames
    python experiments/video/train.py arsgls --dataset box                   # the paper's sizes: hours on a GPU
    python experiments/video/train.py kvae-rb --dataset box --max_minutes 4 --filters 8  # and more, see docs/video.md
    python experiments/video/train.py kvae-rb --data my.npz                  # frames of one's own, or a folder of them
    python experiments/video/train.py --resume outputs/video/box-arsgls      # goes on after the last finished epoch

Models are `arsgls`, `kvae-rb` and `kvae-mc`; their defaults here are those of Kurle et al. (2020) for video.
run.json tells what the training cost: seconds, iterations, frames per second, memory.
"""

import logging
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DistributedSampler

sys.path.append(str(Path(__file__).resolve().parents[2]))

from experiments.video.costs import PROFILERS, limit, peak_memory
from experiments.video.data import VideoDataset
from experiments.video.trained import (
    NAMES,
    SEEN,
    add_data,
    add_model,
    auxiliary_dim_for,
    check_forecast,
    find_video,
    make_model,
    of_sequences,
)
from tsforecast.cli import run_records, runs
from tsforecast.cli.epochs import progress
from tsforecast.cli.memory import keep_freed_memory
from tsforecast.cli.provenance import commit
from tsforecast.cli.run_log import log_file
from tsforecast.forecasting.training import fit
from tsforecast.plots import plot_learning_curve, save_figure
from tsforecast.progress import is_watched

log = logging.getLogger(__name__)
EPOCHS = 400
_RUN = ("config", "output", "resume", "dataset", "data")


def parser() -> ArgumentParser:
    """A subcommand for each model."""
    train = ArgumentParser(prog="train.py", description=__doc__, allow_abbrev=False)
    train.add_argument("--resume", metavar="RUN", type=str, help="go on with a run that was stopped")
    models = train.add_subcommands(required=False, dest="model", metavar="MODEL")
    for name in NAMES:
        command = ArgumentParser(description=f"Train {name} on video.", allow_abbrev=False)
        command.add_argument("--config", action="config", help="YAML file of options, such as the config.yaml of a run")
        add_data(command)
        group = command.add_argument_group("run")
        group.add_argument("--output", metavar="RUN", type=str, help="run folder; default: outputs/video/DATA-MODEL")
        group.add_argument("--sequences", type=int, default=0, help="of the training data; default: all")
        group.add_argument("--max_epochs", type=int, help=f"passes over the training data; default: {EPOCHS}")
        group.add_argument("--max_minutes", type=float, help="train for a time instead, over interruptions")
        group.add_argument("--batch_size", type=int, default=32, help="sequences in a batch")
        group.add_argument("--gradient_clip_val", type=float, default=150.0, help="largest norm of the gradient")
        group.add_argument("--seed", type=int, default=0, help="of the initial weights and the order of the data")
        group.add_argument("--accelerator", type=str, default="auto", help="auto, cpu, gpu or another of Lightning's")
        group.add_argument("--threads", type=int, help="of the CPU; default: torch's choice")
        group.add_argument("--profile", choices=list(PROFILERS), help="write what takes the time into the run")
        add_model(command, name)
        models.add_subcommand(name, command)
    return train


def begin(name: str, chosen: Namespace, argv: Sequence[str]) -> tuple[Path, str, dict[str, Any]]:
    """Path of a new run folder, and what its config.yaml and run.json hold."""
    dataset, video = find_video(chosen.dataset, chosen.data, "train")
    check_forecast(find_video(chosen.dataset, chosen.data, "test")[1], video)
    settings = {key: value for key, value in vars(chosen).items() if key not in _RUN}
    if settings["max_epochs"] is not None and settings["max_minutes"] is not None:
        raise ValueError("expected either --max_epochs or --max_minutes, got both")
    if settings["max_minutes"] is None:
        settings["max_epochs"] = EPOCHS if settings["max_epochs"] is None else settings["max_epochs"]
    elif not settings["max_minutes"] > 0:
        raise ValueError(f"expected --max_minutes to be above 0, got {settings['max_minutes']}")
    if settings["auxiliary_dim"] is None:
        settings["auxiliary_dim"] = auxiliary_dim_for(video)
    folder = Path(chosen.output) if chosen.output else Path("outputs", "video", f"{dataset}-{name}")
    record = {
        "format": run_records.FORMAT,
        "kind": "video",
        "model": name,
        "dataset": dataset,
        "data": None if chosen.data is None else str(Path(chosen.data).resolve()),
        "checksum": video.checksum,
        "size": list(video.frames.shape[2:]),
        "seed": chosen.seed,
        "settings": settings,
        "command": shlex.join(["python", "experiments/video/train.py", *argv]),
        "versions": run_records.versions(),
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return folder, yaml.safe_dump(settings, sort_keys=False), record


def training_data(folder: Path, record: dict[str, Any]) -> VideoDataset:
    """The sequences that the run is trained on.

    Raises:
        ValueError: If they are not those with which it began.
    """
    _, video = find_video(None if record["data"] else record["dataset"], record["data"], "train")
    if video.checksum != record["checksum"]:
        raise ValueError(f"{folder}: the frames have changed since this run began; start a new run")
    if count := record["settings"]["sequences"]:
        video = of_sequences(video, slice(0, count))
    return VideoDataset(video, min(SEEN, video.frames.shape[1]))


class Batches:
    """Batches of frames that are in memory already: worker processes would only copy them.

    The order follows from seed and epoch alone, so it is the same for a run that was resumed.

    Args:
        data: Sequences.
        size: Of a batch; the last one of an epoch may be smaller.
        seed: Of the order.
    """

    def __init__(self, data: VideoDataset, size: int, seed: int) -> None:
        self.data, self.size = data, size
        self.sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=seed)  # Lightning tells it the epoch

    def __len__(self) -> int:
        return -(-len(self.data) // self.size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        order = list(self.sampler)
        for first in range(0, len(order), self.size):
            yield self.data.collate([self.data[index] for index in order[first : first + self.size]])


class LastEpoch(Checkpoint):
    """Saves every finished epoch to one file. `ModelCheckpoint` would warn of the file where a run goes on.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replaces the file."""
        trainer.save_checkpoint(self.path)


def train(folder: Path, record: dict[str, Any]) -> int:
    """Trains from the beginning, or from the last finished epoch, in a folder that is held; 130 after Ctrl-C."""
    settings = record["settings"]
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    data = training_data(folder, record)
    model = make_model(record["model"], settings, tuple(record["size"]), record["seed"])
    loader = Batches(data, settings["batch_size"], record["seed"])
    timer, callbacks = limit(settings.get("max_minutes"))
    if settings["max_epochs"] is not None:
        callbacks.append(progress(settings["max_epochs"]))
    options = {
        "max_epochs": -1 if settings["max_epochs"] is None else settings["max_epochs"],
        "accelerator": settings["accelerator"],
        "gradient_clip_val": settings["gradient_clip_val"] or None,
        "default_root_dir": folder.resolve(),
        "logger": CSVLogger(folder.resolve(), name=runs.EPOCHS, version="", flush_logs_every_n_steps=1),
        "callbacks": [*callbacks, LastEpoch((folder / runs.LAST).resolve())],
        "enable_checkpointing": True,
        "enable_progress_bar": is_watched(),
        "log_every_n_steps": 1,
    }
    if profile := settings.get("profile"):
        options["profiler"] = PROFILERS[profile](dirpath=folder.resolve(), filename="profile")
    with log_file(folder / "train.log"):
        runs.keep_metrics(folder)
        log.info("%s: %s on %s, %d sequences", folder, record["model"], record["dataset"], len(data))
        try:
            trainer = fit(model, loader, None, options, runs.last_checkpoint(folder))
        except KeyboardInterrupt:
            log.warning("stopped; `python experiments/video/train.py --resume %s` goes on", folder)
            return 130
        metrics = runs.keep_metrics(folder)
        title = f"{record['model']}, {record['dataset']}"
        save_figure(plot_learning_curve(metrics, title=title), folder / "learning_curve.png")
        spent = costs(timer.time_elapsed(), trainer, loader)
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        run_records.write_record(folder, record | spent | {"finished": finished})
        log.info(
            "%s: finished after %.0f s, %d iterations, %.0f frames a second, %d MiB; "
            "`python experiments/video/evaluate.py %s` scores it",
            folder, spent["seconds"], spent["iterations"], spent["frames_per_second"], spent["peak_mib"], folder,
        )  # fmt: skip
    return 0


def costs(seconds: float, trainer: Trainer, loader: Batches) -> dict[str, float]:
    """What the whole training took, over interruptions; of memory the most since the last one."""
    epochs, rest = divmod(trainer.global_step, len(loader))  # the last batch of an epoch may be smaller
    frames = (epochs * len(loader.data) + rest * loader.size) * loader.data.past_length
    return {
        "seconds": round(seconds, 1),
        "iterations": trainer.global_step,
        "frames_per_second": round(frames / seconds, 1),
        "peak_mib": round(peak_memory(trainer.strategy.root_device)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    argv = sys.argv[1:] if argv is None else argv
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    keep_freed_memory()
    parsed = parser().parse_args(list(argv))
    try:
        if parsed.resume:
            folder = Path(parsed.resume)
            record = run_records.read_record(folder)
            if record.get("kind") != "video":
                raise ValueError(f"{folder} is no run of experiments/video/train.py")
            if "finished" in record:
                log.info("%s is finished already; `python experiments/video/evaluate.py %s` scores it", folder, folder)
                return 0
            with runs.hold(folder):
                return train(folder, record)
        if not parsed.model:
            raise ValueError(f"expected a model ({', '.join(NAMES)}) or --resume RUN, as in `arsgls --dataset box`")
        folder, config, record = begin(parsed.model, parsed[parsed.model], argv)
        with runs.hold(folder):
            runs.create(folder, config, record)
            try:
                return train(folder, record)
            except Exception:
                if runs.last_checkpoint(folder) is None:  # nothing to go on with: the name is free again
                    shutil.rmtree(folder)
                raise
    except (OSError, ValueError, ArithmeticError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    sys.exit(main())
