"""Scores models of video: 20 frames are filtered, 40 forecast.

    python experiments/video/evaluate.py outputs/video/box-arsgls
    python experiments/video/evaluate.py outputs/video/box-* --sequences 200
    python experiments/video/evaluate.py outputs/video/box-arsgls --missing 0.3     # of the frames seen, to be imputed

Scores are the Wasserstein distance between frames as distributions of white pixels (exact transport, Euclidean, in
pixels; mean over sampled futures), the share of pixels that agree, and intersection over union. "scores" are those of
the papers' protocol, of frames sampled pixel by pixel, whose speckle is part of what the model says; "expected" those
of the expected frame along each of the same paths, white above 1/2. Two floors make them readable: the last frame seen
repeated, and, for worlds by name, true physics from states known about as well as frames can tell them. Written into
the run folder: video_scores.json, which says too what the evaluation cost, video_horizon.csv, film.png and film.gif
(truth, filtered, expected frames of sampled futures), switches.png (weights of base matrices, collisions), with
--missing also imputation.png. Of several runs also a picture of all by horizon, and video_differences.csv: the
Wasserstein distance of each minus that of the best on the same data, with an interval over the sequences.
"""

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[2]))

from experiments.video.charts import horizon_plot, switch_plot
from experiments.video.costs import Stopwatch, peak_memory
from experiments.video.data import Video
from experiments.video.differences import mean_difference
from experiments.video.films import gif
from experiments.video.floors import FLOORS, floors
from experiments.video.frames import batches, filled, filtered, futures, hide, pixels, tracks, whiten
from experiments.video.scores import FrameScores, carry_forward, linear_probe, score_frames
from experiments.video.strips import film_strip, imputation_strip
from experiments.video.trained import (
    AHEAD,
    SEEN,
    Model,
    check_forecast,
    find_video,
    load_model,
    of_sequences,
    use_particles,
)
from tsforecast.cli.memory import keep_freed_memory
from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file
from tsforecast.plots import save_figure

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """What is known of a run that was scored.

    Attributes:
        run: What it is called beside others.
        model: Name of the model.
        dataset: Name of the data.
        checksum: Of the data.
        table: Scores by horizon, with those of the floors.
        scores: Of the frames drawn pixel by pixel.
        expected: Of the expected frames.
    """

    run: str
    model: str
    dataset: str
    checksum: str
    table: pd.DataFrame
    scores: FrameScores
    expected: FrameScores


def score(
    model: Model, video: Video, options: argparse.Namespace, generator: torch.Generator, watch: Stopwatch
) -> tuple[FrameScores, FrameScores]:
    """Scores of the frames sampled pixel by pixel, and of the expected frame of every path."""
    truth = pixels(video.frames[:, SEEN : SEEN + AHEAD])

    def both() -> Iterator[NDArray[Any]]:
        for drawn, expected in watch.over("forecast", futures(model, video, options.samples, generator)):
            yield drawn
            yield whiten(expected, video)

    with watch.on("transport"):
        found = score_frames(both(), np.repeat(truth, 2, axis=0), workers=options.workers)
    return found.part(slice(0, None, 2)), found.part(slice(1, None, 2))


def score_filled(
    model: Model, video: Video, whole: Video, options: argparse.Namespace, generator: torch.Generator
) -> dict[str, Any]:
    """Scores of the frames which were hidden, and of the last one seen in their place.

    Args:
        model: Trained.
        video: Whose frames are hidden in part.
        whole: In which they are observed.
        options: Of the command line.
        generator: Of random numbers.
    """
    truth, seen = pixels(video.frames[:, :SEEN]), video.observed[:, :SEEN]
    hidden = whole.observed[:, :SEEN] & ~seen

    def both() -> Iterator[NDArray[Any]]:
        made = filled(model, video, options.samples, generator)
        for (drawn, expected), frames, chosen in zip(made, truth, hidden, strict=True):
            for guess in (drawn, whiten(expected, video)):  # what is not asked for is the truth, and costs nothing
                yield np.where(chosen[:, None, None], guess, frames)

    found = score_frames(both(), np.repeat(truth, 2, axis=0), workers=options.workers)
    still = score_frames(carry_forward(truth, seen)[:, None], truth, workers=options.workers)
    parts = {"scores": found.part(slice(0, None, 2)), "expected": found.part(slice(1, None, 2)), "last frame": still}
    return {"frames": int(hidden.sum()), **{name: one.over(hidden) for name, one in parts.items()}}


def probe(model: Model, video: Video, generator: torch.Generator) -> dict[str, float]:
    """R^2 of linear maps from filtered means of auxiliary and state to the true position, on held-out sequences."""
    if "position" not in video.truths:
        return {}
    track = tracks(model, video, generator)
    position, half = video.truths["position"][:, :SEEN], len(video.frames) // 2
    values = {}
    for name in ("auxiliary", "state"):
        r2 = linear_probe(track[name][:half], position[:half], track[name][half:], position[half:])
        values |= {f"r2_{axis}_{name}": float(value) for axis, value in zip("xy", r2, strict=True)}
    return values


def draw(model: Model, video: Video, folder: Path, name: str, options: argparse.Namespace) -> None:
    """Film and switches of one sequence, and what is filled in where frames were hidden."""
    one = of_sequences(video, slice(options.film, options.film + 1))
    torch.manual_seed(options.seed)
    generator = torch.Generator(model.device).manual_seed(options.seed)
    samples = min(options.samples, 16)
    paths = next(futures(model, one, samples, generator))[1]
    known = filtered(model, one, generator)[0]
    truth, seen = pixels(one.frames[0, : SEEN + AHEAD]), one.observed[0, :SEEN]
    title = f"{name}, sequence {options.film}"
    figure = film_strip(truth, known, paths, observed=seen, title=f"{title}: expected frames of sampled paths")
    save_figure(figure, folder / "film.png")
    gif(truth, known, paths, folder / "film.gif", observed=seen)
    if options.missing:
        guess = next(filled(model, one, samples, generator))[1]
        still = carry_forward(truth[None, :SEEN], seen[None])[0]
        figure = imputation_strip(truth[:SEEN], guess, seen, still=still, title=f"{title}: hidden frames filled in")
        save_figure(figure, folder / "imputation.png")
    if "collision" not in one.truths:
        return
    batch = next(batches(one, SEEN + AHEAD, model.device))
    with torch.no_grad():
        weights = model.inference.regimes(batch, num_samples=20, generator=generator).probabilities
        weights = weights[:, 0].cpu().numpy()
    figure = switch_plot(
        weights, one.truths["collision"][0, : len(weights)], title=f"{title}: smoothed, all frames seen"
    )
    save_figure(figure, folder / "switches.png")


def held_out(record: dict[str, Any], options: argparse.Namespace) -> Video:
    """The sequences to score.

    Raises:
        ValueError: If nothing is left to forecast, or the sequence to draw is not among them.
    """
    _, video = find_video(None if record["data"] else record["dataset"], record["data"], "test")
    check_forecast(video)
    video = of_sequences(video, slice(0, options.sequences or len(video.frames)))
    if options.film >= len(video.frames):
        raise ValueError(f"expected --film below the number of sequences, {len(video.frames)}, got {options.film}")
    return video


def evaluate(
    folder: Path, label: str, options: argparse.Namespace, known: dict[str, dict[str, FrameScores]]
) -> Evaluated:
    """Scores a run and writes what is said above.

    Args:
        folder: Of the run.
        label: Of the run, beside others.
        options: Of the command line.
        known: Floors by checksum of the data, which are computed once.
    """
    model, record = load_model(folder)
    whole = held_out(record, options)
    video = hide(whole, options.missing, options.seed) if options.missing else whole
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model.to(device)
    if options.particles:
        use_particles(model, options.particles)
    watch = Stopwatch()
    if (data := record["checksum"]) not in known:
        with watch.on("floors"):
            known[data] = floors(video, options.floor_samples, options.workers)
    torch.manual_seed(options.seed)  # of the filter, which takes no generator
    generator = torch.Generator(device).manual_seed(options.seed)
    scores, expected = score(model, video, options, generator, watch)
    name = f"{record['model']}: {record['dataset']}"
    summary: dict[str, Any] = {"model": record["model"], "dataset": record["dataset"], "sequences": len(video.frames)}
    summary |= {"samples": options.samples, "missing": options.missing}
    last = scores.wasserstein.shape[1]
    parts = parts_of(last)
    for key, one in {"scores": scores, "expected": expected, **known[data]}.items():
        summary[key] = {part: one.overall(*ends) for part, ends in parts.items()}
    with watch.on("probe"):
        summary["probe"] = probe(model, video, generator)
    if options.missing:
        with watch.on("imputation"):
            summary["imputation"] = score_filled(model, video, whole, options, generator)
    with watch.on("drawing"):
        draw(model, video, folder, name, options)
    frames = len(video.frames) * last * options.samples
    summary["seconds"] = {key: round(seconds, 2) for key, seconds in watch.seconds.items()}
    summary["frames_per_second"] = round(frames / watch.seconds["forecast"], 1)
    summary["peak_mib"] = round(peak_memory(device))
    table = by_horizon(record["model"], scores, expected, known[data])
    table.insert(0, "dataset", record["dataset"])
    with replace_file(folder / "video_horizon.csv") as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g")
    with replace_file(folder / "video_scores.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    report(folder, summary, [name for name in FLOORS if name in known[data]])
    return Evaluated(label, record["model"], record["dataset"], data, table, scores, expected)


def parts_of(last: int) -> dict[str, tuple[int, int]]:
    """First and last step of what is summed up: everything, the first ten steps, the last ten."""
    return {"all": (1, last), "near": (1, min(10, last)), "far": (max(last - 9, 1), last)}


def differences(runs: Sequence[Evaluated]) -> pd.DataFrame:
    """Wasserstein distance of each run minus that of the best on the same data; empty where no two runs have that.

    Columns `dataset`, `run`, `best`, `frames` ("drawn" or "expected"), `part` ("all", "near" or "far"), `difference`,
    `low` and `high`, the ends of a 95 % interval over the sequences, missing where there is one sequence. Of chosen
    bests, differences look a little larger than they are.
    """
    rows = []
    for data in dict.fromkeys(run.checksum for run in runs):
        same = [run for run in runs if run.checksum == data]
        for frames in ("drawn", "expected"):
            for part, (first, last) in parts_of(same[0].scores.wasserstein.shape[1]).items():
                found = {}
                for run in same:
                    scores = run.scores if frames == "drawn" else run.expected
                    found[run.run] = scores.wasserstein[:, first - 1 : last].mean(1)
                best = min(found, key=lambda name: found[name].mean())
                for name in found:
                    if name == best:
                        continue
                    change = mean_difference(found[name], found[best])
                    row = {"dataset": same[0].dataset, "run": name, "best": best, "frames": frames, "part": part}
                    ends = (change.low, change.high) if change.has_interval else (np.nan, np.nan)
                    rows.append(row | {"difference": change.estimate, "low": ends[0], "high": ends[1]})
    return pd.DataFrame(rows)


def report(folder: Path, summary: dict[str, Any], present: Sequence[str]) -> None:
    """Says what was found and what it cost."""
    log.info("%s", folder)
    for name, label in (("scores", summary["model"]), ("expected", "  expected"), *((name, name) for name in present)):
        whole, far = summary[name]["all"], summary[name]["far"]
        log.info(
            "  %-13s Wasserstein %.3f +- %.3f (last ten steps %.3f), pixels %.4f, overlap %.3f",
            label, whole["wasserstein"], whole["wasserstein_se"], far["wasserstein"], whole["accuracy"], whole["iou"],
        )  # fmt: skip
    if summary["probe"]:
        log.info("  R^2 of positions: %s", ", ".join(f"{key[3:]} {v:.3f}" for key, v in summary["probe"].items()))
    for name, found in summary.get("imputation", {}).items():
        if name != "frames":
            log.info(
                "  %d hidden frames, %s: Wasserstein %.3f +- %.3f, overlap %.3f",
                summary["imputation"]["frames"], name, found["wasserstein"], found["wasserstein_se"], found["iou"],
            )  # fmt: skip
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in summary["seconds"].items())
    log.info(
        "  seconds: %s; %.0f frames forecast a second, %d MiB",
        seconds, summary["frames_per_second"], summary["peak_mib"],
    )  # fmt: skip


def by_horizon(name: str, scores: FrameScores, expected: FrameScores, floors: dict[str, FrameScores]) -> pd.DataFrame:
    """All models one under another; frames of floors are expected ones."""
    pairs = {name: (scores, expected), **{floor: (one, one) for floor, one in floors.items()}}
    tables = []
    for model, (drawn, other) in pairs.items():
        mine = other.by_horizon().drop(columns="horizon").add_prefix("expected_")
        tables.append(drawn.by_horizon().join(mine).assign(model=model))
    return pd.concat(tables, ignore_index=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders of train.py")
    parser.add_argument("--sequences", type=int, default=0, help="of the test data (default: all)")
    parser.add_argument("--samples", type=int, default=32, help="sampled futures (default: %(default)s)")
    parser.add_argument("--floor-samples", type=int, default=4, help="of true physics (default: %(default)s)")
    parser.add_argument("--particles", type=int, default=0, help="to filter with (default: as in training)")
    parser.add_argument("--missing", type=float, default=0.0, help="share of the frames seen to hide (default: 0)")
    parser.add_argument("--film", type=int, default=0, help="sequence to draw (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes for the transport (default: all cores)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default: %(default)s)")
    parser.add_argument("--device", type=str, help="cpu, cuda, .. (default: a GPU where there is one)")
    parser.add_argument("--output", type=Path, help="picture of several runs by horizon (default: beside the first)")
    options = parser.parse_args(arguments)
    for name, least in (("samples", 1), ("floor_samples", 1), ("workers", 1), ("sequences", 0), ("film", 0)):
        if getattr(options, name) < least:
            parser.error(f"expected --{name.replace('_', '-')} to be at least {least}, got {getattr(options, name)}")
    if not 0 <= options.missing < 1:
        parser.error(f"expected --missing to be at least 0 and below 1, got {options.missing}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    keep_freed_memory()
    known: dict[str, dict[str, FrameScores]] = {}
    folders = list(dict.fromkeys(folder.resolve() for folder in options.runs))
    short = len({folder.name for folder in folders}) == len(folders)
    try:
        runs = [evaluate(folder, folder.name if short else str(folder), options, known) for folder in folders]
    except (OSError, ValueError, ArithmeticError, ImportError) as error:
        sys.exit(f"error: {error}")
    if len(runs) > 1:
        compare(runs, options.output or options.runs[0].parent / "video_horizon.png")


def compare(runs: Sequence[Evaluated], path: Path) -> None:
    """Draws several runs by horizon, and says whether one is ahead of another."""
    tables = []
    single = len({(run.checksum, run.model) for run in runs}) == len(runs)  # there may be several of one model
    for run in runs:
        label = run.model if single else run.run
        tables.append(run.table.assign(model=run.table["model"].where(run.table["model"].isin(FLOORS), label)))
    table = pd.concat(tables, ignore_index=True).drop_duplicates(["dataset", "model", "horizon"])
    present = [name for name in FLOORS if (table["model"] == name).any()]
    log.info("%s", save_figure(horizon_plot(table, floors=present, panel="dataset"), path))
    found = differences(runs)
    if found.empty:
        return
    written = path.with_name("video_differences.csv")
    with replace_file(written) as temporary:
        found.assign(**provenance(written)).to_csv(temporary, index=False, float_format="%.4g")
    for row in found.query("frames == 'drawn' and part != 'near'").to_dict("records"):
        log.info(
            "  {run} - {best}, {part} steps: Wasserstein {difference:+.3f} [{low:.3f}, {high:.3f}]".format_map(row)
        )


if __name__ == "__main__":
    main()
