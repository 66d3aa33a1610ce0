"""The worlds in which a ball moves: walls, paddles, and the states from which a sequence begins.

Pong: a paddle is 2 px wide and 6 px high; it stands at the edge of the picture, so that its face is where the box has
its wall. In every step it moves towards the height at which the ball was when the step began. A ball that passes a
paddle leaves the picture and does not come back: the frames after that show the paddles alone, and the ball's position
lies outside the picture. From the starts drawn here that hardly ever happens (in none of 5000 sequences of 60 frames):
paddles are as fast as the ball. Bounces cost energy; the end of a moving paddle, seldom hit, may give some back.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
# Two walls at once, in a corner that is not square, are solved for by iteration. The engine's 10 leave the ball with up
# to 1 % more energy in four of a thousand sequences, 200 with rounding. They cost nothing where nothing collides.
ITERATIONS = 200
_BEYOND = 1000.0  # by which floor and roof of pong go on outside the picture, in pixels


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
    points, normals = half_planes(world.walls + (_FACES if world.paddles else ()))
    position = position.astype(np.float64)
    for _ in range(1000):
        if (distances(position, points, normals) >= RADIUS + clearance - 1e-12).all():
            return position
        for point, normal in zip(points, normals, strict=True):
            lacking = RADIUS + clearance - (position - point) @ normal
            position = position + np.maximum(lacking, 0)[:, None] * normal
    raise ValueError(f"expected finite positions and a clearance for which there is room, got {clearance}")


def half_planes(walls: Sequence[tuple[Point, Point]]) -> tuple[Array, Array]:
    """A point on every wall and its normal of length 1, which points to where the ball is."""
    ends = np.asarray(walls, dtype=np.float64)
    along = ends[:, 1] - ends[:, 0]
    normals = np.stack([-along[:, 1], along[:, 0]], -1)
    return ends[:, 0], normals / np.linalg.norm(normals, axis=-1, keepdims=True)


def distances(position: Array, points: Array, normals: Array) -> Array:
    """From walls, negative behind them: (sequence, wall)."""
    return ((position[:, None] - points) * normals).sum(-1)
