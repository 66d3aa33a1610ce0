"""The worlds of the videos: flights and bounces computed by hand, energy, walls, pictures, and what a seed decides."""

import itertools
import json
import math
import sys

import numpy as np
import pytest
from scipy import stats

from experiments.video.data import make_video
from experiments.video.physics import rasterise, simulate, simulate_sequences
from experiments.video.worlds import (
    PADDLE_HEIGHT,
    PADDLE_REACH,
    RADIUS,
    STEP,
    SUBSTEPS,
    WORLDS,
    States,
    constants,
    initial_states,
    keep_inside,
)

LENGTH = 60
LATE = STEP / SUBSTEPS  # by which a bounce may come too late, in seconds
HEXAGON = np.array([(3, 1), (1, 15), (8, 30), (25, 30), (30, 8), (15, 1)], dtype=float)  # as in the literature


@pytest.fixture(scope="module")
def runs():
    return {name: simulate_sequences(name, 100, LENGTH, seed=7) for name in WORLDS}


def one(position, velocity, paddles=()):
    return States(np.array([position], float), np.array([velocity], float), np.array([paddles], float))


def energy(name, run):
    """Of a mass of 1, with the height over y = 0."""
    return (run.velocity**2).sum(-1) / 2 - run.position @ np.array(WORLDS[name].gravity)


def hexagon_distances(points):
    """From the six lines; the corners go round clockwise, so inside lies to the right."""
    sides = np.roll(HEXAGON, -1, 0) - HEXAGON
    offset = points[..., None, :] - HEXAGON
    cross = sides[:, 1] * offset[..., 0] - sides[:, 0] * offset[..., 1]
    return cross / np.hypot(*sides.T)


def test_the_hexagon_is_convex():
    distances = hexagon_distances(HEXAGON)
    assert (distances > -1e-12).all()
    assert ((np.abs(distances) < 1e-12).sum(1) == 2).all()


@pytest.mark.parametrize("name", ["box", "polygon"])
def test_the_ball_flies_straight(name):
    run = simulate(name, one((14, 18), (3, -4)), 6)
    time = STEP * np.arange(6)
    np.testing.assert_allclose(run.position[0], np.stack([14 + 3 * time, 18 - 4 * time], -1), atol=1e-10)
    np.testing.assert_allclose(run.velocity[0], [[3, -4]] * 6, atol=1e-12)
    assert not run.collision.any()


def test_under_gravity_it_flies_along_a_parabola():
    run = simulate("box-gravity", one((10, 20), (2, 3)), 8)
    time = STEP * np.arange(8)
    np.testing.assert_allclose(run.position[0, :, 0], 10 + 2 * time, atol=1e-10)
    np.testing.assert_allclose(run.position[0, :, 1], 20 + 3 * time - 2.5 * time**2, atol=1e-10)
    np.testing.assert_allclose(run.velocity[0, :, 1], 3 - 5 * time, atol=1e-10)
    assert not run.collision.any()


def test_what_is_dropped_comes_back_to_its_height():
    """It falls 10 px to where it touches the floor: 2 s down, 2 s up, at most one substep later."""
    run = simulate("box-gravity", one((16, 15), (0, 0)), 21)
    assert run.position[0, -1, 1] == pytest.approx(15, abs=2.5 * (2 * LATE) ** 2 + 1e-10)
    assert run.velocity[0, -1, 1] == pytest.approx(0, abs=5 * 2 * LATE + 1e-10)
    assert run.collision[0].sum() == 1
    assert run.position[0, :, 1].min() >= 5 - 10 * LATE
    falling = run.frames[0, :9].argmax(1).max(-1)  # the lowest column's first white row grows: down in the picture
    assert (np.diff(falling) >= 0).all()
    assert falling[-1] > falling[0]


def test_what_lies_on_the_floor_stays_there():
    run = simulate("box-gravity", one((10, 5), (1, 0)), LENGTH)
    np.testing.assert_allclose(run.position[0, :, 1], 5, atol=5 * LATE**2)
    np.testing.assert_allclose(run.velocity[0, :, 0], 1, atol=1e-10)


def test_a_bounce_off_the_wall_of_the_box():
    """From (16, 16) with 10 px/s to the right the disc touches x = 30 after 1.1 s; after 2 s it is 9 px back."""
    run = simulate("box", one((16, 16), (10, 2)), 11)
    assert np.flatnonzero(run.collision[0]).tolist() == [6]
    np.testing.assert_allclose(run.velocity[0, 6:], [[-10, 2]] * 5, atol=1e-10)
    np.testing.assert_allclose(run.position[0, :, 1], 16 + 2 * STEP * np.arange(11), atol=1e-10)
    assert 18 - 1e-10 <= run.position[0, 10, 0] <= 18 + 2 * 10 * LATE


def test_box_is_the_flight_folded_at_the_walls(runs):
    """Each coordinate on its own goes to and fro between 5 and 27; a bounce is late by a substep at most."""
    run = runs["box"]
    time = STEP * np.arange(LENGTH)[:, None]
    way = run.position[:, :1] - 5 + run.velocity[:, :1] * time
    exact = 5 + 22 - np.abs(way % 44 - 22)
    bounces = np.abs(np.floor(way / 22))
    bound = (bounces + 1) * 2 * np.abs(run.velocity[:, :1]) * LATE
    assert (np.abs(run.position - exact) <= bound + 1e-9).all()


def test_a_slanted_wall_reflects_at_the_angle_of_incidence():
    run = simulate("polygon", one((20, 16), (12, 3)), 6)
    along = np.array([25 - 30, 30 - 8]) / math.hypot(5, 22)
    before = np.array([12, 3])
    want = 2 * (before @ along) * along - before
    np.testing.assert_allclose(run.velocity[0, -1], want, atol=1e-10)
    assert run.collision[0].sum() == 1


def test_all_that_happens_in_the_polygon_is_reflection(runs):
    """What a frame changes is undone by mirrors along one side or two."""
    sides = np.roll(HEXAGON, -1, 0) - HEXAGON
    along = sides / np.hypot(*sides.T)[:, None]
    mirrors = 2 * along[:, :, None] * along[:, None] - np.eye(2)
    pairs = [first @ second for first, second in itertools.permutations(mirrors, 2)]
    run = runs["polygon"]
    before, after = run.velocity[:, :-1], run.velocity[:, 1:]
    misfit = [np.abs(after - before @ mirror.T).max(-1) for mirror in [np.eye(2), *mirrors, *pairs, -np.eye(2)]]
    assert np.min(misfit, 0).max() < 1e-9
    np.testing.assert_array_equal(misfit[0] > 1e-9, run.collision[:, 1:])
    assert run.collision.mean() > 0.1


@pytest.mark.parametrize("name", ["box", "polygon", "box-gravity"])
def test_energy_is_kept_to_rounding(runs, name):
    levels = energy(name, runs[name])
    rounding = 4 * LENGTH * SUBSTEPS * np.finfo(float).eps
    np.testing.assert_allclose(levels, np.broadcast_to(levels[:, :1], levels.shape), rtol=rounding)


def test_two_walls_at_once_keep_it_too():
    """Into the places where the disc touches two sides, which the engine's own number of iterations does not solve."""
    sides = np.roll(HEXAGON, -1, 0) - HEXAGON
    normals = np.stack([sides[:, 1], -sides[:, 0]], -1) / np.hypot(*sides.T)[:, None]
    pairs = np.stack([np.roll(normals, 1, 0), normals], 1)
    corners = np.linalg.solve(pairs, RADIUS + (pairs @ HEXAGON[:, :, None]))[..., 0]
    goals = (corners[:, None] + np.random.default_rng(0).uniform(-0.02, 0.02, (len(corners), 50, 2))).reshape(-1, 2)
    away = goals - 15.5
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    run = simulate("polygon", States(goals - 4 * away, 15 * away, np.zeros((len(goals), 0))), 5)
    np.testing.assert_allclose(energy("polygon", run), 112.5, rtol=4 * 5 * SUBSTEPS * np.finfo(float).eps)
    assert run.collision.any(1).all()


def test_nothing_leaves_the_walls(runs):
    for name in ("box", "box-gravity"):
        fastest = math.sqrt(2 * energy(name, runs[name]).max() + 2 * WORLDS[name].gravity[1] * 5)
        overlap = fastest * LATE
        assert overlap < 0.05
        assert (np.abs(runs[name].position - 16) <= 11 + overlap).all()
        white = np.argwhere(runs[name].frames.any((0, 1)))
        assert white.min(0).tolist() == [2, 2]
        assert white.max(0).tolist() == [29, 29]
    assert (hexagon_distances(runs["polygon"].position) >= RADIUS - 15 * LATE).all()
    white = np.argwhere(runs["polygon"].frames.any((0, 1)))
    assert (hexagon_distances(np.stack([white[:, 1] + 0.5, 31.5 - white[:, 0]], -1)) >= -15 * LATE).all()
    assert (np.abs(runs["pong"].position[..., 1] - 16) <= 11 + 15 * LATE).all()


def test_pong_loses_energy_by_the_product_of_both_elasticities():
    roof = simulate("pong", one((16, 24), (0, 10), (16, 16)), 5)
    np.testing.assert_allclose(roof.velocity[0, -1], [0, -10 * 0.9 * 0.99], atol=1e-10)
    paddle = simulate("pong", one((16, 16), (-10, 1), (16, 16)), 8)
    np.testing.assert_allclose(paddle.velocity[0, -1], [10 * 0.9 * 0.99, 1], atol=1e-10)
    assert np.flatnonzero(paddle.collision[0]).tolist() == [6]  # 11 px to the face of the paddle


def test_paddles_follow_the_ball_as_fast_as_they_can_and_stay_in_the_picture(runs):
    run = runs["pong"]
    moves, gaps = np.diff(run.paddles, axis=1), run.position[:, :-1, 1:] - run.paddles[:, :-1]
    np.testing.assert_allclose(moves, np.clip(gaps, -PADDLE_REACH, PADDLE_REACH), atol=1e-9)
    low = simulate("pong", one((16, 5), (0, 0), (6, 27)), 20)
    np.testing.assert_allclose(low.paddles[0, -1], [5, 5], atol=1e-9)
    np.testing.assert_allclose(low.paddles[0, :3, 1], [27, 25, 23], atol=1e-9)
    edge = simulate("pong", one((16, 5), (0, 0), (1, 31)), 3)
    np.testing.assert_allclose(edge.paddles[0, 1], [3, 29], atol=1e-9)


def test_a_ball_that_passes_a_paddle_is_gone():
    run = simulate("pong", one((16, 24), (10, 2), (16, 5)), 20)
    assert run.position[0, -1, 0] > 32 + RADIUS
    assert (run.frames[0, -5:].sum((1, 2)) == 2 * 2 * PADDLE_HEIGHT).all()
    assert run.frames[0, -1].any(0).nonzero()[0].tolist() == [0, 1, 30, 31]


def test_a_picture_is_white_where_centres_of_pixels_lie_in_the_ball():
    frame = rasterise(np.array([[16.0, 16.0]]), np.zeros((1, 0)))[0]
    rows = [".####.", "######", "######", "######", "######", ".####."]  # 2.5, 1.5 is in, 2.5, 2.5 is not
    np.testing.assert_array_equal(frame[13:19, 13:19], [[pixel == "#" for pixel in row] for row in rows])
    assert frame.sum() == 32
    top = rasterise(np.array([[5.0, 27.0]]), np.zeros((1, 0)))[0]
    assert np.argwhere(top).min(0).tolist() == [2, 2]
    assert np.argwhere(top).max(0).tolist() == [7, 7]


def test_the_ball_has_the_area_of_its_radius():
    """A random offset hits each pixel with the probability of the disc's area in it: the mean has no bias."""
    centres = np.random.default_rng(0).uniform(10, 20, (2000, 2))
    areas = rasterise(centres, np.zeros((2000, 0))).sum((1, 2))
    assert areas.mean() == pytest.approx(9 * math.pi, abs=4 * areas.std() / math.sqrt(2000))


def test_paddles_are_two_by_six_pixels_wherever_they_stand():
    heights = np.linspace(3, 29, 200)
    frames = rasterise(np.full((200, 2), 16.0), np.stack([heights, heights[::-1]], -1))
    assert (frames[:, :, :2].sum(1) == PADDLE_HEIGHT).all()
    assert (frames[:, :, 30:].sum(1) == PADDLE_HEIGHT).all()
    assert frames[0, 26:, :2].all()  # low on the left
    assert frames[0, :6, 30:].all()


@pytest.mark.parametrize("name", WORLDS)
def test_starts_are_as_specified(name):
    world, count = WORLDS[name], 2000
    states = initial_states(name, count, np.random.default_rng(1))
    speed = np.linalg.norm(states.velocity, axis=-1)
    low, high = world.speed
    if low == high:
        np.testing.assert_allclose(speed, low)
    else:
        assert stats.kstest(speed, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    angle = np.arctan2(*states.velocity.T)
    assert stats.kstest(angle, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-3
    noise = world.deviation * np.random.default_rng(1).normal(size=(count, 2))
    np.testing.assert_array_equal(states.position, keep_inside(name, 16 + noise))
    assert states.paddles.shape == (count, 2 * (name == "pong"))


def test_starts_are_moved_inside_the_walls():
    generator = np.random.default_rng(2)
    wild = 16 + 20 * generator.normal(size=(500, 2))
    for name in ("box", "box-gravity", "pong"):
        np.testing.assert_allclose(keep_inside(name, wild), wild.clip(6, 26), atol=1e-12)
    moved = keep_inside("polygon", wild)
    assert (hexagon_distances(moved) >= RADIUS + 1 - 1e-9).all()
    np.testing.assert_allclose(keep_inside("polygon", moved), moved, atol=1e-9)


@pytest.mark.parametrize("name", WORLDS)
def test_a_frame_is_all_that_the_future_needs(runs, name):
    run, split = runs[name], 20
    again = simulate(name, run.states(split), LENGTH - split)
    np.testing.assert_allclose(again.position, run.position[:, split:], atol=1e-8)
    np.testing.assert_allclose(again.velocity, run.velocity[:, split:], atol=1e-8)
    np.testing.assert_array_equal(again.frames, run.frames[:, split:])
    np.testing.assert_array_equal(again.collision[:, 1:], run.collision[:, split + 1 :])


@pytest.mark.parametrize("name", WORLDS)
def test_a_sequence_depends_on_seed_and_number_alone(runs, name):
    few = simulate_sequences(name, 5, LENGTH, seed=7)
    np.testing.assert_array_equal(few.frames, runs[name].frames[:5])
    np.testing.assert_array_equal(few.position, runs[name].position[:5])
    for other in (simulate_sequences(name, 5, 3, seed=8), simulate_sequences(name, 5, 3, seed=7, stream=1)):
        assert (other.position[:, 0] != few.position[:, 0]).any(-1).all()


def test_a_pool_gives_the_same_as_one_process(runs):
    pooled = simulate_sequences("pong", 70, 10, seed=7, workers=2)
    np.testing.assert_array_equal(pooled.frames, runs["pong"].frames[:70, :10])
    np.testing.assert_array_equal(pooled.position, runs["pong"].position[:70, :10])


CHECKSUMS = {
    "box": "649a998581fd9b0806dd513110f42022d8fb1179089d7914fbbb452605a489ba",
    "box-gravity": "bd7327b2bcef73554b9bec2c2cc842d6aebc3a84eb3285c73535374e02d55ad4",
    "polygon": "f708f86838a25d6f303d59fcaa82688434f4aecb401eb8285e3412898d27ee60",
    "pong": "b82483c67ea807c95a6b326b9fe32718f23035c4f5fb55675ad7d5bb4c12c10b",
}


@pytest.mark.parametrize("name", WORLDS)
def test_frames_of_a_seed_stay_what_they_were(name):
    """Published checksums hold as long as these do."""
    assert make_video(simulate_sequences(name, 3, 20, seed=0).frames).checksum == CHECKSUMS[name]


@pytest.mark.parametrize("name", WORLDS)
def test_constants_are_json(name):
    assert json.loads(json.dumps(constants(name))) == constants(name)
    assert constants(name)["radius"] == 3


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (one((16, 4), (0, 0)), r"inside the walls, got centre \[16.0, 4.0\] in sequence 0, 2 px"),
        (one((math.nan, 4), (0, 0)), "finite states, got position"),
        (one((16, 16), (math.inf, 0)), "finite states, got velocity"),
        (one((16, 16), (1, 0), (16, 16)), r"paddles of shape \(sequences, 0\), got \(1, 2\)"),
        (one((16, 16, 16), (1, 0)), r"position of shape \(sequences, 2\), got \(1, 3\)"),
        (States(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 0))), r"got \(0, 2\)"),
    ],
)
def test_impossible_states_are_refused(states, message):
    with pytest.raises(ValueError, match=message):
        simulate("box", states, 3)


def test_other_bad_input_is_refused():
    start = one((16, 16), (1, 0))
    with pytest.raises(ValueError, match="expected a world of box, box-gravity, polygon, pong, got 'sphere'"):
        simulate_sequences("sphere", 1, 2, 0)
    with pytest.raises(ValueError, match="count to be at least 1, got 0"):
        simulate_sequences("box", 0, 2, 0)
    with pytest.raises(ValueError, match="seed to be at least 0, got -1"):
        simulate_sequences("box", 1, 2, -1)
    with pytest.raises(ValueError, match="steps to be at least 1, got 0"):
        simulate("box", start, 0)
    with pytest.raises(ValueError, match="workers to be at least 1, got 0"):
        simulate("box", start, 2, workers=0)
    with pytest.raises(ValueError, match="clearance for which there is room, got 20"):
        keep_inside("box", start.position, 20.0)


def test_without_the_engine_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymunk", None)
    with pytest.raises(ImportError, match=r"pip install 'tsforecast\[video\]'"):
        simulate_sequences("box", 1, 2, 0)
