"""A ball in four worlds, box, box-gravity, polygon and pong, by a rigid-body engine, and its pictures.

    simulation = simulate_sequences("box", count=10, length=20, seed=0)
    simulation.frames                                         # (sequence, time, row, column)
    simulate("box", simulation.states(-1), steps=41)          # the same future as if the ten had been longer

The worlds are those of the Kalman variational auto-encoder (Fraccaro, Kamronn, Paquet and Winther, *A Disentangled
Recognition and Nonlinear Dynamics Model for Unsupervised Learning*, 2017). Lengths are pixels, y points up, the origin
is the lower left corner of the picture; a frame is taken every 0.2 s. The pixels are not theirs: walls are not drawn, a
pixel is either black or white, the engine makes smaller steps, and floor, roof and paddles of pong lie symmetrically,
floor and roof where they are in the box.

Pong: a paddle is 2 px wide and 6 px high; it stands at the edge of the picture, so that its face is where the box has
its wall. In every step it moves towards the height at which the ball was when the step began. A ball that passes a
paddle leaves the picture and does not come back: the frames after that show the paddles alone, and the ball's position
lies outside the picture. From the starts drawn here that hardly ever happens (in none of 5000 sequences of 60 frames):
paddles are as fast as the ball. Bounces cost energy; the end of a moving paddle, seldom hit, may give some back.
"""

import dataclasses
import functools
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tsforecast.progress import is_watched

Array = NDArray[np.float64]
Point = tuple[float, float]

SIZE = 32  # of the picture, in pixels
RADIUS = 3.0  # of the ball, in pixels
STEP = 0.2  # from frame to frame, in seconds
PADDLE_WIDTH, PADDLE_HEIGHT = 2.0, 6.0  # in pixels
PADDLE_REACH = 2.0  # of a paddle in a step, in pixels
CLEARANCE = 1.0  # between the ball and the nearest wall at the beginning, at least, in pixels

# The engine sees a wall when the ball overlaps it, so a ball is reflected too late, by a substep at most. With 100 of
# them the overlap is below 0.04 px at the highest speed there is, 18 px a second in box-gravity.
SUBSTEPS = 100
OVERLAP = 0.1  # of ball and wall in what `simulate` begins from, at most, in pixels
# Two walls at once, in a corner that is not square, are solved for by iteration. The engine's 10 leave the ball with up
# to 1 % more energy in four of a thousand sequences, 200 with rounding. They cost nothing where nothing collides.
ITERATIONS = 200
_BEYOND = 1000.0  # by which floor and roof of pong go on outside the picture, in pixels
# Most of the time goes into the call of the engine, so it steps a few sequences at once, each blind to the others: each
# has a bit of its own, by which the engine's filter tells them apart.
_TOGETHER = 16
_WALLS = 1 << _TOGETHER


@dataclasses.dataclass(frozen=True)
class World:
    """Constants of a world.

    Attributes:
        walls: Segments; who walks along one has the ball on the left.
        deviation: Of the normal distribution about the picture's centre in which the ball starts, in pixels.
        speed: At the start: lowest and highest, in pixels per second.
        gravity: In pixels per square second.
        ball_elasticity: In the engine a collision's elasticity is the product of both sides'.
        wall_elasticity: Of walls and paddles.
        paddles: Whether there is one on the left and one on the right.
    """

    walls: tuple[tuple[Point, Point], ...]
    deviation: float
    speed: tuple[float, float]
    gravity: Point = (0.0, 0.0)
    ball_elasticity: float = 1.0
    wall_elasticity: float = 1.0
    paddles: bool = False


def _ring(*corners: Point) -> tuple[tuple[Point, Point], ...]:
    """The walls between corners given anticlockwise."""
    return tuple(zip(corners, corners[1:] + corners[:1], strict=True))


_SQUARE = _ring((2.0, 2.0), (30.0, 2.0), (30.0, 30.0), (2.0, 30.0))
_HEXAGON = _ring((3.0, 1.0), (15.0, 1.0), (30.0, 8.0), (25.0, 30.0), (8.0, 30.0), (1.0, 15.0))
_FLOOR_AND_ROOF = (
    ((-_BEYOND, 2.0), (SIZE + _BEYOND, 2.0)),
    ((SIZE + _BEYOND, 30.0), (-_BEYOND, 30.0)),
)
_FACES = (
    ((SIZE - PADDLE_WIDTH, 0.0), (SIZE - PADDLE_WIDTH, float(SIZE))),
    ((PADDLE_WIDTH, float(SIZE)), (PADDLE_WIDTH, 0.0)),
)

WORLDS = {
    "box": World(_SQUARE, deviation=10.0, speed=(10.0, 15.0)),
    "box-gravity": World(_SQUARE, deviation=8.0, speed=(5.0, 10.0), gravity=(0.0, -5.0)),
    "polygon": World(_HEXAGON, deviation=2.5, speed=(10.0, 15.0)),
    "pong": World(
        _FLOOR_AND_ROOF, deviation=3.0, speed=(10.0, 10.0), ball_elasticity=0.9, wall_elasticity=0.99, paddles=True
    ),
}


@dataclasses.dataclass(frozen=True)
class States:
    """All that the future of a world follows from, a row for each sequence.

    Attributes:
        position: Centre of the ball, (sequence, 2).
        velocity: In pixels per second, (sequence, 2).
        paddles: Heights of the centres of the left and the right paddle, (sequence, 2); (sequence, 0) without paddles.
    """

    position: Array
    velocity: Array
    paddles: Array


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


def find_world(name: str) -> World:
    """The world of that name.

    Raises:
        ValueError: If there is none.
    """
    if name not in WORLDS:
        raise ValueError(f"expected a world of {', '.join(WORLDS)}, got {name!r}")
    return WORLDS[name]


def constants(name: str) -> dict[str, Any]:
    """All numbers on which the frames of a world depend, as JSON can hold them."""
    world = dataclasses.asdict(find_world(name))
    world["walls"] = [[list(end) for end in wall] for wall in world["walls"]]
    world |= {"speed": list(world["speed"]), "gravity": list(world["gravity"])}
    paddle = {"paddle_width": PADDLE_WIDTH, "paddle_height": PADDLE_HEIGHT, "paddle_reach": PADDLE_REACH}
    common = {"size": SIZE, "radius": RADIUS, "step": STEP, "clearance": CLEARANCE, "substeps": SUBSTEPS}
    return world | common | {"iterations": ITERATIONS} | (paddle if world["paddles"] else {})


def initial_states(name: str, count: int, generator: np.random.Generator) -> States:
    """Starts: the centre of the picture plus normal noise, moved inside the walls; any direction; paddles half way up.

    Args:
        name: Of the world.
        count: Number of states.
        generator: Of random numbers.
    """
    world = find_world(name)
    position = SIZE / 2 + world.deviation * generator.normal(size=(count, 2))
    speed, angle = generator.uniform(*world.speed, count), generator.uniform(0, 2 * np.pi, count)
    velocity = speed[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    return States(keep_inside(name, position), velocity, np.full((count, 2 if world.paddles else 0), SIZE / 2))


def keep_inside(name: str, position: Array, clearance: float = CLEARANCE) -> Array:
    """Positions moved until the ball is clear of every wall, and of the lines along which paddles move.

    By projections onto one wall's side after the other: in a square that is clipping each coordinate.

    Args:
        name: Of the world.
        position: Centres of the ball, (sequence, 2).
        clearance: Least distance between ball and wall, in pixels.
    """
    world = find_world(name)
    points, normals = _half_planes(world.walls + (_FACES if world.paddles else ()))
    position = position.astype(np.float64)
    for _ in range(1000):
        if (_distances(position, points, normals) >= RADIUS + clearance - 1e-12).all():
            return position
        for point, normal in zip(points, normals, strict=True):
            lacking = RADIUS + clearance - (position - point) @ normal
            position = position + np.maximum(lacking, 0)[:, None] * normal
    raise ValueError(f"expected finite positions and a clearance for which there is room, got {clearance}")


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


def _half_planes(walls: Sequence[tuple[Point, Point]]) -> tuple[Array, Array]:
    """A point on every wall and its normal of length 1, which points to where the ball is."""
    ends = np.asarray(walls, dtype=np.float64)
    along = ends[:, 1] - ends[:, 0]
    normals = np.stack([-along[:, 1], along[:, 0]], -1)
    return ends[:, 0], normals / np.linalg.norm(normals, axis=-1, keepdims=True)


def _distances(position: Array, points: Array, normals: Array) -> Array:
    """From walls, negative behind them: (sequence, wall)."""
    return ((position[:, None] - points) * normals).sum(-1)


def _check_states(world: World, states: States) -> None:
    count, width = len(states.position), 2 if world.paddles else 0
    for what, size in (("position", 2), ("velocity", 2), ("paddles", width)):
        values = getattr(states, what)
        if values.shape != (count, size) or not count:
            raise ValueError(f"expected {what} of shape (sequences, {size}), got {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"expected finite states, got {what} with NaN or infinite values")
    nearest = _distances(states.position, *_half_planes(world.walls)).min(-1)
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
    # "spawn", because a process which has run torch's threads cannot be forked safely.
    with ProcessPoolExecutor(min(workers, len(groups)), mp_context=multiprocessing.get_context("spawn")) as pool:
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
    ahead of x that is the leapfrog rule, exact in free flight, and a bounce, at which v only changes its sign, has
    before it what it has after it, mirrored. With x and v of one time, it would be wrong in energy by h |g| |v| / 2.
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
