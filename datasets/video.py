"""Video: a ball in a box, a box with gravity, a polygon or a game of pong, made here by a physics engine.

    python datasets/video.py box
    python datasets/video.py pong --sequences 200 --test-sequences 50 --seed 1 --output data/pong

Writes train.npz, sequences of 20 frames, and test.npz, sequences of 60 (20 to filter and 40 to forecast), 32 x 32 black
or white pixels each, with positions, velocities and collisions. The frames follow from world, seed and number of the
sequence alone. Files that are there already are kept if they are what would be written. Needs
`pip install 'tsforecast[video]'`.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from experiments.video.data import TRUTHS, Video, load_video, make_video, save_video
from experiments.video.physics import simulate_sequences
from experiments.video.worlds import WORLDS, constants
from tsforecast.data.folder import data_home

log = logging.getLogger(__name__)
PARTS = {"train": 20, "test": 60}  # frames of a sequence


def describe(world: str, part: str, sequences: int, seed: int) -> dict[str, Any]:
    """Metadata, which decide the frames.

    Args:
        world: Name of the world.
        part: "train" or "test".
        sequences: Number of sequences.
        seed: Of the random numbers.
    """
    what = {"world": world, "part": part, "sequences": sequences, "length": PARTS[part], "seed": seed}
    return what | {"constants": constants(world)}


def find(path: Path, wanted: dict[str, Any]) -> Video | None:
    """The video that is there already; None if there is no file.

    Args:
        path: Of the file.
        wanted: Metadata that it should have.

    Raises:
        ValueError: If the file is damaged or another video.
    """
    if not path.exists():
        return None
    advice = "pass --overwrite to replace it, or another --output"
    try:
        video = load_video(path)
    except ValueError as error:
        raise ValueError(f"{error}; {advice}") from error
    for name, value in wanted.items():
        if (there := video.metadata.get(name)) != value:
            both = "" if name == "constants" else f", {there} and not {value}"
            raise ValueError(f"{path} is there with another {name}{both}; {advice}")
    return video


def make(wanted: dict[str, Any], workers: int) -> Video:
    """Simulates a part, with a progress bar.

    Args:
        wanted: Its metadata.
        workers: Processes.
    """
    stream = list(PARTS).index(wanted["part"])
    simulation = simulate_sequences(
        wanted["world"],
        wanted["sequences"],
        wanted["length"],
        wanted["seed"],
        stream=stream,
        workers=workers,
        progress=True,
    )
    truths = {name: getattr(simulation, name) for name in TRUTHS}
    return make_video(simulation.frames, truths=truths, metadata=wanted)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=list(WORLDS))
    parser.add_argument("--sequences", type=int, default=5000, help="to train on (default: %(default)s)")
    parser.add_argument("--test-sequences", type=int, default=1000, help="to score on (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random starts (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, help="folder of the two files (default: video/WORLD in TSFORECAST_DATA or ~/.tsforecast)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes; any number gives the same frames (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = options.output or data_home() / "video" / options.world
    sizes = {"train": options.sequences, "test": options.test_sequences}
    try:
        plans = {folder / f"{part}.npz": describe(options.world, part, sizes[part], options.seed) for part in PARTS}
        found = {path: None if options.overwrite else find(path, wanted) for path, wanted in plans.items()}
        for path, wanted in plans.items():
            video = found[path]
            if video is None:
                video = make(wanted, options.workers)
                save_video(path, video)
            count, length, height, width = video.frames.shape
            log.info("%s%s", path, " was there" if found[path] is not None else "")
            log.info(
                "  %d sequences of %d frames, %d x %d, %.1f MB", count, length, height, width, path.stat().st_size / 1e6
            )
            log.info("  sha256 of the frames %s", video.checksum)
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
