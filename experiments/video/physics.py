"""A ball in four worlds, box, box-gravity, polygon and pong, by a rigid-body engine, and its pictures.

    simulation = simulate_sequences("box", count=10, length=20, seed=0)
    simulation.frames                                         # (sequence, time, row, column)
    simulate("box", simulation.states(-1), steps=41)          # the same future as if the ten had been longer

The worlds are those of the Kalman variational auto-encoder (Fraccaro, Kamronn, Paquet and Winther, *A Disentangled
Recognition and Nonlinear Dynamics Model for Unsupervised Learning*, 2017). Lengths are pixels, y points up, the origin
is the lower left corner of the picture; a frame is taken every 0.2 s. The pixels are not theirs: walls are not drawn, a
pixel is either black or white, and the engine makes smaller steps. Floor, roof and paddles of pong lie symmetrically,
floor and roof where they are in the box.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from experiments.video.worlds import (
    ITERATIONS,
    PADDLE_HEIGHT,
    PADDLE_REACH,
    PADDLE_WIDTH,
    RADIUS,
    SIZE,
    STEP,
    SUBSTEPS,
    WORLDS,
    Array,
    States,
    World,
    distances,
    find_world,
    half_planes,
    initial_states,
)
from tsforecast.processes import imported_once
from tsforecast.progress import is_watched

OVERLAP = 0.1  # of ball and wall in what `simulate` begins from, at most, in pixels
# Most of the time goes into the call of the engine, so it steps a few sequences at once, each blind to the others: each
# has a bit of its own, by which the engine's filter tells them apart.
_TOGETHER = 16
_WALLS = 1 << _TOGETHER


@dataclasses.dataclass(frozen=True)
class Simulation:
    """What happened, frame by frame.

    Attributes:
        frames: Whether a pixel is white, (sequence, time, row, column), rows from the top.
        position: Centre of the ball, (sequence, time, 2).
        velocity: In pixels per second, (sequence, time, 2).
        paddles: Heights of the paddles' centres, (sequence, time, 2), or (sequence, time, 0) without paddles.
        collision: Whether the ball has hit something since the frame before, or lies on it, (sequence, time).
    """

    frames: NDArray[np.bool_]
    position: Array
    velocity: Array
    paddles: Array
    collision: NDArray[np.bool_]

    def states(self, time: int) -> States:
        """The states at a frame, to go on from.

        Args:
            time: Number of the frame; negative ones count from the end.
        """
        return States(self.position[:, time], self.velocity[:, time], self.paddles[:, time])


def simulate_sequences(
    name: str, count: int, length: int, seed: int, *, stream: int = 0, workers: int = 1, progress: bool = False
) -> Simulation:
    """Sequences from random starts; each has random numbers of its own: the first do not depend on how many there are.

    Args:
        name: Of the world.
        count: Number of sequences.
        length: Frames in each.
        seed: Of the random numbers.
        stream: Another number gives other sequences from the same seed.
        workers: Processes; the result is the same for any number.
        progress: Show a bar on a terminal.
    """
    for what, value, least in (("count", count, 1), ("seed", seed, 0), ("stream", stream, 0)):
        if value < least:
            raise ValueError(f"expected {what} to be at least {least}, got {value}")
    generators = (np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, k))) for k in range(count))
    starts = [initial_states(name, 1, generator) for generator in generators]
    columns = [np.concatenate([getattr(start, field.name) for start in starts]) for field in dataclasses.fields(States)]
    return simulate(name, States(*columns), length, workers=workers, progress=progress)


def simulate(name: str, states: States, steps: int, *, workers: int = 1, progress: bool = False) -> Simulation:
    """What follows from the given states; nothing is random here.

    Energy is kept to rounding where elasticity is 1, under gravity too; the ball overlaps a wall by no more than it
    moves in a hundredth of a step. What starts as in a frame of another simulation goes on as there, up to rounding.

    Args:
        name: Of the world.
        states: At the first frame. Perturbed ones may have to go through `keep_inside`.
        steps: Frames, of which the first shows the given states.
        workers: Processes; the result is the same for any number.
        progress: Show a bar on a terminal.

    Raises:
        ValueError: If a state is not finite or a ball begins in a wall.
        ImportError: If the engine is not installed.
    """
    world = find_world(name)
    _engine()
    for what, value in (("steps", steps), ("workers", workers)):
        if value < 1:
            raise ValueError(f"expected {what} to be at least 1, got {value}")
    _check_states(world, states)
    columns = (states.position, states.velocity, states.paddles)
    groups = [
        States(*(column[first : first + _TOGETHER] for column in columns))
        for first in range(0, len(states.position), _TOGETHER)
    ]
    results: list[tuple[NDArray[Any], ...]] = []
    with tqdm(total=len(states.position), desc=name, unit="sequence", disable=not (progress and is_watched())) as bar:
        for result in _map(functools.partial(_run, name, steps=steps), groups, workers):
            results.append(result)
            bar.update(len(result[0]))
    position, velocity, paddles, collision, packed = (np.concatenate(parts) for parts in zip(*results, strict=True))
    frames = np.unpackbits(packed, axis=-1, count=SIZE).view(np.bool_)
    return Simulation(frames, position, velocity, paddles, collision)


def rasterise(position: Array, paddles: Array) -> NDArray[np.bool_]:
    """Pictures: a pixel is white if its centre lies in the ball or in a paddle. The top row comes first.

    Args:
        position: Centre of the ball, (time, 2).
        paddles: Heights of the paddles' centres, (time, 2) or (time, 0).

    Returns:
        Shape (time, row, column).
    """
    column, row = np.arange(SIZE) + 0.5, SIZE - 0.5 - np.arange(SIZE)
    across, up = (column - position[:, :1]) ** 2, (row - position[:, 1:]) ** 2
    frames = across[:, None, :] + up[:, :, None] <= RADIUS**2
    for height, columns in zip(paddles.T, (column < PADDLE_WIDTH, column > SIZE - PADDLE_WIDTH), strict=False):
        above = row - height[:, None]
        rows = (above >= -PADDLE_HEIGHT / 2) & (above < PADDLE_HEIGHT / 2)  # half open: 6 rows wherever it stands
        frames |= rows[:, :, None] & columns
    return frames


def _engine() -> ModuleType:
    try:
        import pymunk
    except ImportError as error:
        raise ImportError("the worlds of videos need pymunk: pip install 'tsforecast[video]'") from error
    return pymunk


def _check_states(world: World, states: States) -> None:
    count, width = len(states.position), 2 if world.paddles else 0
    for what, size in (("position", 2), ("velocity", 2), ("paddles", width)):
        values = getattr(states, what)
        if values.shape != (count, size) or not count:
            raise ValueError(f"expected {what} of shape (sequences, {size}), got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"expected finite states, got {what} with NaN or infinite values")
    nearest = distances(states.position, *half_planes(world.walls)).min(-1)
    worst = int(nearest.argmin())
    if nearest[worst] < RADIUS - OVERLAP:
        raise ValueError(
            f"expected balls inside the walls, got centre {states.position[worst].tolist()} in sequence {worst}, "
            f"{nearest[worst]:.3g} px from a wall; keep_inside moves it"
        )


def _map(work: Any, groups: Sequence[Any], workers: int) -> Iterator[Any]:
    if workers < 2 or len(groups) < 2:
        yield from map(work, groups)
        return
    with ProcessPoolExecutor(min(workers, len(groups)), imported_once(__name__)) as pool:
        yield from pool.map(work, groups, chunksize=max(min(len(groups) // (4 * workers), 4), 1))


def _run(name: str, states: States, steps: int) -> tuple[NDArray[Any], ...]:
    """A group of sequences, none of which meets another: position, velocity, paddles, collision, frames in bits."""
    pymunk, world = _engine(), WORLDS[name]
    space = pymunk.Space()
    space.gravity, space.iterations = world.gravity, ITERATIONS
    # An overlap ends with the bounce. To push shapes apart would move the ball without its velocity: against gravity,
    # that is energy for nothing.
    space.collision_slop, space.collision_bias = 0.0, 1.0
    for start, end in world.walls:
        wall = pymunk.Segment(space.static_body, start, end, 0.0)
        wall.elasticity = world.wall_elasticity
        wall.filter = pymunk.ShapeFilter(categories=_WALLS)
        space.add(wall)
    balls, paddles = [], []
    for place, heights in enumerate(states.paddles.tolist()):
        own = 1 << place
        balls.append(pymunk.Body(mass=1.0, moment=float("inf")))  # no friction, so nothing would turn it
        disc = pymunk.Circle(balls[-1], RADIUS)
        disc.elasticity = world.ball_elasticity
        disc.filter = pymunk.ShapeFilter(categories=own, mask=own | _WALLS)
        space.add(balls[-1], disc)
        for left, height in zip((0.0, SIZE - PADDLE_WIDTH), heights, strict=False):
            paddles.append(pymunk.Body(body_type=pymunk.Body.KINEMATIC))
            paddles[-1].position = left + PADDLE_WIDTH / 2, height
            shape = pymunk.Poly.create_box(paddles[-1], (PADDLE_WIDTH, PADDLE_HEIGHT))
            shape.elasticity = world.wall_elasticity
            shape.filter = pymunk.ShapeFilter(categories=own, mask=own)
            space.add(paddles[-1], shape)
    return _follow(space, balls, paddles, states, steps)


def _follow(space: Any, balls: list[Any], paddles: list[Any], states: States, steps: int) -> tuple[NDArray[Any], ...]:
    """Steps the engine and keeps the books.

    The engine moves a ball by its velocity and then changes the velocity: x += h v, v += h g. With v half a substep
    ahead of x that is the leapfrog rule, exact in free flight. At a bounce v only changes its sign, so the path after
    it mirrors the one before. With x and v of one time, it would be wrong in energy by h |g| |v| / 2.
    """
    substep, gravity = STEP / SUBSTEPS, np.asarray(space.gravity)
    ahead = gravity * substep / 2
    for ball, place, velocity in zip(balls, states.position.tolist(), (states.velocity + ahead).tolist(), strict=True):
        ball.position, ball.velocity = tuple(place), tuple(velocity)
    shown = [states]
    for _ in range(1, steps):
        moves = _paddle_moves(shown[-1]).ravel().tolist()
        for paddle, move in zip(paddles, moves, strict=True):
            paddle.velocity = 0.0, move / STEP
        for _ in range(SUBSTEPS):
            space.step(substep)
        heights = np.array([paddle.position.y for paddle in paddles]).reshape(len(balls), -1)
        position, velocity = (np.array([getattr(ball, name) for ball in balls]) for name in ("position", "velocity"))
        shown.append(States(position, velocity - ahead, heights))
    position, velocity, heights = (
        np.stack([getattr(state, field.name) for state in shown], 1) for field in dataclasses.fields(States)
    )
    collision = np.zeros(position.shape[:2], dtype=np.bool_)  # what changes the velocity and is not gravity
    collision[:, 1:] = np.abs(np.diff(velocity, axis=1) - STEP * gravity).max(-1) > 1e-9
    packed = [np.packbits(rasterise(*trajectory), axis=-1) for trajectory in zip(position, heights, strict=True)]
    return position, velocity, heights, collision, np.stack(packed)


def _paddle_moves(states: States) -> Array:
    """By how much paddles move in the next step. When the ball has passed they rest: they must not press it."""
    across, up = states.position[:, :1], states.position[:, 1:]
    wanted = states.paddles + np.clip(up - states.paddles, -PADDLE_REACH, PADDLE_REACH)
    moves = np.clip(wanted, PADDLE_HEIGHT / 2, SIZE - PADDLE_HEIGHT / 2) - states.paddles
    return np.where((across >= PADDLE_WIDTH) & (across <= SIZE - PADDLE_WIDTH), moves, 0.0)
