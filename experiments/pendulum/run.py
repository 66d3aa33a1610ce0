"""Can a model with switches forecast a damped pendulum? RSGLS beside SGLS, after Kurle et al. (2020), section 5.1.

    python experiments/pendulum/run.py                # a budget for two CPU cores
    python experiments/pendulum/run.py --full         # the paper's: 5000 sequences of 50 steps, 50 epochs, 64 particles

Noisy xy-positions of a pendulum that is released near its top are filtered for 50 steps of .1 s and forecast for 100.
The two models differ in one term: in RSGLS the next switch depends on the state. Every finished run (model, seed) adds
a line to pendulum.csv, and its scores by step to pendulum_steps.csv; what is there is not run again, so a stopped
command goes on where it was. The pictures lie beside the tables, the trained weights in outputs/pendulum.

Scores by forecast step: RMSE of the mean of the forecast distribution against the true position, per coordinate, in
metres; CRPS against the noisy position, mean of the coordinates, in metres; log-density of the noisy position (both
coordinates). The forecast distribution is the mixture of Gaussians of the particles: the states are integrated out.
"""

import argparse
import dataclasses
import logging
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parents[2]))

from experiments.pendulum.figures import draw_forecasts, draw_scores
from experiments.pendulum.forecasts import FILTERED, FORECAST, MODELS, Model, ScoreTable, make_batch, make_model, score
from experiments.pendulum.simulation import simulate
from tsforecast.cli.provenance import provenance
from tsforecast.forecasting.training import fit
from tsforecast.io.files import replace_file
from tsforecast.io.tensors import save_tensors
from tsforecast.plots import save_figure
from tsforecast.progress import is_watched

HALVES = {"1_50": slice(0, 50), "51_100": slice(50, 100)}  # of the forecast
TRAINING_SEED, TEST_SEED = 10_000, 20_000  # of the data, which are the same for every run


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run depends on beside model and seed.

    Attributes:
        sequences: To train on.
        steps: Of a training sequence.
        epochs: Passes over them.
        batch_size: Sequences in a batch.
        particles: In training.
        learning_rate: At the beginning; falls to a hundredth.
        test_sequences: To score on.
    """

    sequences: int
    steps: int
    epochs: int
    batch_size: int
    particles: int
    learning_rate: float
    test_sequences: int


FULL = Settings(
    sequences=5000, steps=50, epochs=50, batch_size=100, particles=64, learning_rate=1e-2, test_sequences=500
)
# Sequences of 50 steps end while the pendulum still swings 80 degrees to a side, and the forecasts 20 degrees: what no
# sequence has shown, a model learns from longer ones.
REDUCED = Settings(
    sequences=2000, steps=100, epochs=15, batch_size=40, particles=8, learning_rate=2e-2, test_sequences=500
)


def train(model: Model, observed: Tensor, settings: Settings, seed: int, name: str) -> None:
    """Trains the model in place, with a progress bar over all iterations."""
    loader = DataLoader(
        TensorDataset(observed),
        batch_size=settings.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
        collate_fn=lambda rows: make_batch(torch.stack([row for (row,) in rows])),
    )
    bar = tqdm(total=settings.epochs * len(loader), desc=name, unit="it", mininterval=0.1 if is_watched() else 30)

    def batch_end(trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: object) -> None:
        bar.set_postfix(loss=f"{outputs['loss'].item():.3f}", refresh=False)
        bar.update()

    options = {
        "max_epochs": settings.epochs,
        "gradient_clip_val": 10.0,
        "logger": False,
        "enable_progress_bar": False,
        "callbacks": [LambdaCallback(on_train_batch_end=batch_end)],
    }
    with bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*does not have many workers")  # the data are in memory
        fit(model, loader, None, options)


def run(name: str, seed: int, settings: Settings, weights: Path) -> tuple[dict[str, float], ScoreTable]:
    """Trains and scores one model; writes its weights.

    Returns:
        What is known of the run as a whole, and its scores by step.
    """
    begin = time.monotonic()
    pl.seed_everything(seed, verbose=False)
    model = make_model(name, settings.particles, settings.learning_rate)
    _, observed = simulate(settings.sequences, settings.steps, TRAINING_SEED)
    train(model, observed, settings, seed, f"{name}, seed {seed}")
    trained = time.monotonic()
    weights.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(model.state_dict(), weights)
    truth, observed = simulate(settings.test_sequences, FILTERED + FORECAST, TEST_SEED)
    scores = score(model, truth, observed, seed)
    whole = {"train_seconds": trained - begin, "score_seconds": time.monotonic() - trained}
    for half, part in HALVES.items():
        whole |= {f"rmse_{half}": float(np.sqrt(np.mean(scores["rmse"][part] ** 2)))}
        whole |= {f"{metric}_{half}": float(scores[metric][part].mean()) for metric in ("crps", "log_likelihood")}
    return whole, scores


def append(path: Path, rows: pd.DataFrame, key: Sequence[str]) -> None:
    """Adds rows to a CSV file, whole or not at all; they take the place of rows with the same key."""
    if path.exists():
        rows = pd.concat([pd.read_csv(path), rows], ignore_index=True).drop_duplicates(list(key), keep="last")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        rows.to_csv(temporary, index=False, float_format="%.6g")


def of_settings(path: Path, settings: Settings) -> pd.DataFrame:
    """The rows of a CSV file that belong to these settings; without a file, none."""
    if not path.exists():
        return pd.DataFrame({"model": [], "seed": []})
    rows = pd.read_csv(path)
    for name, value in dataclasses.asdict(settings).items():
        rows = rows.loc[rows[name] == value]
    return rows


def summary(rows: pd.DataFrame) -> str:
    """A line for each run, and how much larger the RMSE of SGLS is."""
    columns = [
        "model",
        "seed",
        *(f"{metric}_{half}" for half in HALVES for metric in ("rmse", "crps", "log_likelihood")),
    ]
    rows = rows.sort_values(["model", "seed"])
    lines = [rows[columns].round(3).to_string(index=False)]
    means = rows.groupby("model")["rmse_51_100"].mean()
    if set(MODELS) <= set(means.index):
        ratio = means["sgls"] / means["rsgls"]
        lines.append(f"RMSE of steps 51 to 100, mean over seeds: sgls {ratio:.2f} times rsgls")
    return "\n".join(lines)


def draw(folder: Path, settings: Settings, models: Sequence[str], weights: Callable[[str, int], Path]) -> list[Path]:
    """Draws what there is of these settings; the forecasts of the lowest seed whose weights are there."""
    truth, observed = simulate(settings.test_sequences, FILTERED + FORECAST, TEST_SEED)
    ahead = truth[:, FILTERED:]
    spread = (ahead - ahead.mean(0)).square().mean((0, 2)).sqrt().numpy()
    steps = of_settings(folder / "pendulum_steps.csv", settings)
    written = [save_figure(draw_scores(steps, spread), folder / "pendulum_scores.png")]
    for seed in sorted(steps["seed"].unique().astype(int)):
        paths = {name: weights(name, seed) for name in models}
        if all(path.exists() for path in paths.values()):
            trained = {}
            for name, path in paths.items():
                trained[name] = make_model(name, settings.particles)
                trained[name].load_state_dict(torch.load(path, weights_only=True))
            figure = draw_forecasts(trained, truth[0], observed[0])
            return [*written, save_figure(figure, folder / "pendulum_forecasts.png")]
    return written


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, Settings]:
    """Options, and the settings that follow from them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="settings of the paper, where no other option changes them")
    for name, kind, what in (
        ("sequences", int, "training sequences"),
        ("steps", int, "of each"),
        ("epochs", int, "passes over them"),
        ("particles", int, "particles in training"),
        ("batch-size", int, "sequences in a batch"),
        ("learning-rate", float, "at the beginning"),
        ("test-sequences", int, "sequences to score on"),
    ):
        field = name.replace("-", "_")
        default = f"default {getattr(REDUCED, field)}, of the paper {getattr(FULL, field)}"
        parser.add_argument(f"--{name}", type=kind, help=f"{what} ({default})")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="of initial weights and order of the data"
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder of tables and pictures")
    options = parser.parse_args(arguments)
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(Settings)}
    for name, value in chosen.items():
        if value is not None and not value > 0:
            expected = "positive" if name == "learning_rate" else "at least 1"
            parser.error(f"expected --{name.replace('_', '-')} to be {expected}, got {value}")
    base = FULL if options.full else REDUCED
    return options, dataclasses.replace(base, **{name: value for name, value in chosen.items() if value is not None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is not in the table yet, then prints the table and draws."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options, settings = parse(arguments)
    torch.set_num_threads(options.threads)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its remarks on hardware would break the bar
    table = options.output / "pendulum.csv"
    stamp = "-".join(str(value) for value in dataclasses.astuple(settings)[:-1])

    def weights(name: str, seed: int) -> Path:
        return Path("outputs", "pendulum", f"{name}-{stamp}-seed{seed}.pt")

    command = shlex.join(["python", "experiments/pendulum/run.py", *arguments])
    done, source = of_settings(table, settings), provenance(table) | {"command": command}  # the tree may change later
    for seed in options.seeds:
        for name in options.models:
            if ((done["model"] == name) & (done["seed"] == seed)).any():
                print(f"{name}, seed {seed}: in {table} already")
                continue
            whole, scores = run(name, seed, settings, weights(name, seed))
            key = {"model": name, "seed": seed, **dataclasses.asdict(settings)}
            steps = pd.DataFrame({**key, "step": np.arange(1, FORECAST + 1), **scores, **source})
            append(options.output / "pendulum_steps.csv", steps, [*key, "step"])
            record = {
                "budget": "full" if settings == FULL else "reduced",
                "threads": options.threads,
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                **source,
            }
            append(table, pd.DataFrame([{**key, **whole, **record}]), list(key))
    print(summary(of_settings(table, settings)))
    for path in draw(options.output, settings, options.models, weights):
        print(f"written: {path}")


if __name__ == "__main__":
    main()
