"""A broken gas sensor among six is found by conflict and information: results/sensors.csv and a picture.

    python experiments/fusion/sensors.py          # half a minute

The sensors are six of the sixteen of `gas-drift` (`python datasets/streams.py gas-drift FOLDER`), in the second batch:
the logarithm of the steady signal. Two kinds of sensors are among them, and all tell of about the same: gas and
concentration. One factor z ~ N(0, 1) stands for that: x_m = a_m z + noise, fitted by EM on the first half. At each
measurement each sensor believes p(z | x_m). Then one breaks: it stays at its last value ("stuck"), shows a signal that
is 1.5 times as large ("gain"), or that of another measurement ("mixed"). Nobody says when, or which. Rows of the table:

- "sound": the mean probability that the sensor is sound, before and after; "others": the least of another, after.
- "conflict": the median of the mean conflict of the others with the sensor, before and after.
- "naive" and "weighed": root mean squared change of the fused mean by the fault, without and with these probabilities.
"""

import argparse
import pathlib
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import Tensor

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT
from tsforecast.cli.provenance import provenance
from tsforecast.core import Gaussian
from tsforecast.core.fusion import conflict, product, reliabilities
from tsforecast.data.folder import data_home
from tsforecast.io.files import replace_file
from tsforecast.plots import save_figure

SENSORS = (5, 6, 7, 8, 13, 14)  # of sixteen, each with eight numbers, the first of which is the steady signal
BATCH = slice(445, 1689)  # the second of the stream
TRAINED, BREAKS = 622, 900
FAULTS = ("stuck", "gain", "mixed")
COLUMNS = [
    "fault", "sensor", "sound_before", "sound_after", "others_after", "conflict_before", "conflict_after", "naive",
    "weighed", "commit", "command",
]  # fmt: skip


def broken(signals: np.ndarray, fault: str) -> np.ndarray:
    """Return the signals of a sensor that breaks."""
    found = signals.copy()
    if fault == "stuck":
        found[BREAKS:] = found[BREAKS - 1]
    elif fault == "gain":
        found[BREAKS:] *= 1.5
    else:
        found[BREAKS:] = np.random.default_rng(0).permutation(found[BREAKS:])
    return found


def standardised(signals: np.ndarray) -> np.ndarray:
    """Return logarithms, less their mean in standard deviations, both of the first half."""
    logs = np.log(np.abs(signals).clip(1))
    return (logs - logs[:TRAINED].mean(0)) / logs[:TRAINED].std(0)


def fit(x: Tensor, steps: int = 300) -> tuple[Tensor, Tensor]:
    """Return loadings a and noise variances of one factor, by EM (Rubin and Thayer 1982)."""
    second = x.T @ x / len(x)
    a, noise = 0.7 * torch.ones(x.shape[1], dtype=x.dtype), 0.5 * torch.ones(x.shape[1], dtype=x.dtype)
    for _ in range(steps):
        gain = (a / noise) / (1 + (a.square() / noise).sum())
        cross = second @ gain  # E x z
        a = cross / (1 - gain @ a + gain @ cross)
        noise = second.diagonal() - a * cross
    return a, noise


def beliefs_of(x: Tensor, a: Tensor, noise: Tensor) -> tuple[list[Gaussian], Gaussian]:
    """Return what each sensor believes of z in every hour, and the prior."""
    gain = a / (a.square() + noise)
    variance = noise / (a.square() + noise)
    each = [Gaussian((gain[m] * x[:, m]).unsqueeze(-1), variance[m].view(1, 1)) for m in range(len(a))]
    return each, Gaussian(torch.zeros(1, dtype=x.dtype), torch.ones(1, 1, dtype=x.dtype))


def weighed(beliefs: list[Gaussian], prior: Gaussian, sound: Tensor) -> Tensor:
    """Return the fused mean where each sensor's precision beyond the prior's counts as far as it is sound."""
    tempered = []
    for m, belief in enumerate(beliefs):
        more = sound[:, m] * (1 / belief.cov[0, 0] - 1)
        linear = sound[:, m] * belief.mean[:, 0] / belief.cov[0, 0]
        tempered.append(Gaussian((linear / (1 + more)).unsqueeze(-1), (1 / (1 + more)).view(-1, 1, 1)))
    return product(tempered, prior).mean[:, 0]


def study(signals: np.ndarray, sensor: int, fault: str) -> tuple[dict[str, str], list[np.ndarray]]:
    """Return a row of the table, and what the picture shows: changes, conflicts, reliabilities."""
    clean = torch.tensor(standardised(signals))
    a, noise = fit(clean[:TRAINED])
    damaged = signals.copy()
    damaged[:, sensor] = broken(signals[:, sensor], fault)
    x = torch.tensor(standardised(damaged))
    beliefs, prior = beliefs_of(x, a, noise)
    truth = product(beliefs_of(clean, a, noise)[0], prior).mean[:, 0]
    sound = reliabilities(beliefs, prior, sums=1)
    count = len(SENSORS)
    pairs = [[conflict(beliefs[m], beliefs[n], prior) for n in range(count) if n != m] for m in range(count)]
    against = torch.stack([torch.stack(row).mean(0) for row in pairs], -1)
    before, after = slice(TRAINED, BREAKS), slice(BREAKS, None)
    others = [m for m in range(count) if m != sensor]
    errors = {
        name: (found - truth)[after].square().mean().sqrt()
        for name, found in (("naive", product(beliefs, prior).mean[:, 0]), ("weighed", weighed(beliefs, prior, sound)))
    }
    row = {
        "fault": fault,
        "sensor": str(SENSORS[sensor]),
        "sound_before": f"{sound[before, sensor].mean():.3f}",
        "sound_after": f"{sound[after, sensor].mean():.3f}",
        "others_after": f"{sound[after][:, others].mean(0).min():.3f}",
        "conflict_before": f"{against[before, sensor].median():.3f}",
        "conflict_after": f"{against[after, sensor].median():.3f}",
        **{name: f"{error:.3f}" for name, error in errors.items()},
    }
    return row, [x.numpy(), against.numpy(), sound.numpy()]


def draw(path: pathlib.Path, parts: list[np.ndarray], sensor: int) -> None:
    """Writes a picture of the measurements around the fault."""
    figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, layout="constrained")
    shown = slice(BREAKS - 80, BREAKS + 80)
    number = (np.arange(len(parts[0])) - BREAKS)[shown]
    titles = ("Signal, in standard deviations of its logarithm", "Conflict of the others with it", "Sound: probability")
    for axis, values, title in zip(axes, parts, titles, strict=True):
        for m, name in enumerate(SENSORS):
            style = {"linewidth": 1.8, "zorder": 3} if m == sensor else {"linewidth": 0.8, "alpha": 0.8}
            colour = "C3" if m == sensor else ("C0", "C9", "C2", "C4", "C7", "C5")[m]
            axis.plot(number, values[shown, m], label=f"{name}, breaks" if m == sensor else name, color=colour, **style)
        axis.axvline(0, color="black", linestyle=":")
        axis.set_title(title, loc="left", fontsize=10)
    axes[1].set_yscale("log")
    axes[1].set_ylim(1e-2, None)
    axes[1].axhline(1, color="black", linewidth=0.6)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, ncols=6, fontsize=8, loc="outside lower center", title="sensor", title_fontsize=8)
    axes[-1].set_xlabel("measurements from the fault")
    save_figure(figure, path)
    plt.close(figure)


def main() -> None:
    """Writes the table and the picture anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "fusion" / "results" / "sensors.csv"
    )
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs" / "images" / "sensors.png")
    options = parser.parse_args()
    facts = provenance(options.output)
    names = [f"x{8 * (k - 1) + 1}" for k in SENSORS]
    signals = pd.read_csv(data_home() / "gas-drift.csv")[names].to_numpy()[BATCH]
    rows = []
    for fault in FAULTS:
        for sensor in range(len(SENSORS)):
            row, parts = study(signals, sensor, fault)
            rows.append({**row, **facts})
            if (fault, sensor) == ("gain", 1):
                draw(options.picture, parts, sensor)
    with replace_file(options.output) as temporary:
        pd.DataFrame(rows)[COLUMNS].to_csv(temporary, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
