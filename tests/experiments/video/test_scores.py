import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from experiments.video import transport
from experiments.video.scores import (
    FrameScores,
    carry_forward,
    intersection_over_union,
    linear_probe,
    pixel_accuracy,
    repeat_last_frame,
    score_frames,
)
from experiments.video.transport import wasserstein, wasserstein_table

pytest.importorskip("ot")

SIDE = 6
grey = arrays(np.uint8, (SIDE, SIDE), elements=st.integers(0, 3))
few = settings(max_examples=25, deadline=None)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def frame(*pixels, height=8, width=8):
    made = np.zeros((height, width), np.uint8)
    for row, column in pixels:
        made[row, column] = 1
    return made


def disc(row, column, side=32):
    rows, columns = np.mgrid[:side, :side]
    return ((rows - row) ** 2 + (columns - column) ** 2 <= 9).astype(np.uint8)


def by_linear_programme(a, b):
    """The definition: the least cost over all plans between all pixels."""
    pixels = np.argwhere(np.ones_like(a, np.bool_))
    ones, eye = np.ones(a.size), np.eye(a.size)
    sums = np.vstack([np.kron(eye, ones), np.kron(ones, eye)])
    shares = np.concatenate([a.ravel() / a.sum(), b.ravel() / b.sum()])
    return linprog(cdist(pixels, pixels).ravel(), A_eq=sums, b_eq=shares, bounds=(0, None)).fun


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ([(1, 1)], [(4, 5)], 5.0),
        ([(0, 0), (0, 4)], [(3, 0), (3, 4)], 3.0),
        ([(0, 0), (0, 1)], [(0, 1), (0, 2)], 1.0),  # one pixel by 2, or both by 1
        ([(0, 0), (0, 4)], [(0, 0)], 2.0),  # half of the mass by 4
        ([(0, 0), (6, 0)], [(0, 0), (6, 0), (3, 4)], 5 / 3),  # a third of the mass by 5, from either side
        ([(2, 2), (5, 1)], [(2, 2), (5, 1)], 0.0),
    ],
)
def test_transports_by_hand(a, b, distance):
    assert wasserstein(frame(*a), frame(*b)) == pytest.approx(distance, abs=1e-12)


def test_a_shift_of_a_disc_costs_its_length():
    for shift in [(0, 1), (3, 4), (-5, 12), (1, -1), (0, 0)]:
        moved = disc(14 + shift[0], 14 + shift[1])
        assert wasserstein(disc(14, 14), moved) == pytest.approx(np.hypot(*shift), abs=1e-12)


def test_frames_may_be_longer_than_wide():
    a, b = frame((0, 1), height=9, width=4), frame((8, 1), height=9, width=4)
    assert wasserstein(a, b) == 8.0
    assert wasserstein(a, 0 * a) == pytest.approx(np.hypot(8, 3))


def test_empty_frames():
    empty = np.zeros((4, 5))
    assert wasserstein(empty, empty) == 0.0
    assert wasserstein(empty, empty + 1) == wasserstein(empty + 1, empty) == 5.0


@few
@given(grey, grey)
def test_distance_is_the_linear_programme(a, b):
    assume(a.any() and b.any())
    assert wasserstein(a, b) == pytest.approx(by_linear_programme(a, b), abs=1e-8)


@few
@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_distance_between_as_many_white_pixels_is_an_assignment(seed, count):
    rng = np.random.default_rng(seed)
    a, b = (np.sort(rng.choice(400, count, replace=False)) for _ in range(2))
    frames = [np.isin(np.arange(400), pixels).reshape(20, 20) for pixels in (a, b)]
    costs = cdist(np.stack(np.divmod(a, 20), 1), np.stack(np.divmod(b, 20), 1))
    assert wasserstein(*frames) == pytest.approx(costs[linear_sum_assignment(costs)].mean(), abs=1e-10)


@few
@given(grey, grey, grey)
def test_distance_is_a_metric(a, b, c):
    assert wasserstein(a, b) == pytest.approx(wasserstein(b, a), abs=1e-10)
    assert wasserstein(a, c) <= wasserstein(a, b) + wasserstein(b, c) + 1e-10
    # The way between the centres of mass is never longer; the diagonal never shorter.
    assert wasserstein(a, b) <= np.hypot(SIDE - 1, SIDE - 1) + 1e-10
    if a.any() and b.any():
        pixels = np.argwhere(np.ones_like(a))
        centres = [pixels.T @ (f.ravel() / f.sum()) for f in (a, b)]
        assert wasserstein(a, b) >= np.linalg.norm(centres[0] - centres[1]) - 1e-10


@few
@given(arrays(np.float64, (SIDE, SIDE), elements=st.floats(0, 1, width=32)), st.floats(1e-3, 1e3))
def test_scale_does_not_matter(a, scale):
    # Not exactly 0, where sums round differently: by parts in 1e16 for each of 36 pixels, over at most 8 pixels.
    assert wasserstein(a, scale * a) <= 1e-11


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (np.full((8, 8), np.nan), "NaN"),
        (np.full((8, 8), np.inf), "infinity"),
        (np.full((8, 8), -1), "nonnegative"),
        (np.ones((8, 7)), "of one shape"),
        (np.ones(8), "of one shape"),
    ],
)
def test_frames_that_are_none(a, message):
    with pytest.raises(ValueError, match=message):
        wasserstein(a, frame((0, 0)))
    with pytest.raises(ValueError, match=message):
        wasserstein(frame((0, 0)), a)


def bouncing(rng, *shape):
    centres = rng.uniform(4, 12, (*shape, 2))
    return np.array([disc(*centre, side=16) for centre in centres.reshape(-1, 2)]).reshape(*shape, 16, 16)


@pytest.fixture
def film(rng):
    """Samples (3, 4, 5, ..) and truth (3, 5, ..), with empty frames and samples that are equal or the truth itself."""
    samples, truth = bouncing(rng, 3, 4, 5), bouncing(rng, 3, 5)
    samples[0, 1] = samples[0, 0]
    samples[1, 2] = truth[1]
    samples[2, :2, 3] = 0
    truth[2, 3:] = 0
    return samples, truth


def one_by_one(samples, truth):
    return np.array(
        [
            [np.mean([wasserstein(sample[t], future[t]) for sample in forecast]) for t in range(len(future))]
            for forecast, future in zip(samples, truth, strict=True)
        ]
    )


def test_table_is_the_mean_of_single_distances(film):
    samples, truth = film
    expected = one_by_one(samples, truth)
    np.testing.assert_allclose(wasserstein_table(samples, truth), expected, atol=1e-12)
    np.testing.assert_allclose(wasserstein_table(samples.astype(bool), truth.astype(bool)), expected, atol=1e-12)
    np.testing.assert_allclose(wasserstein_table(255 * samples, truth / 2), expected, atol=1e-12)


def test_table_of_grey_frames(rng):
    samples, truth = rng.random((2, 3, 2, 7, 5)), rng.integers(0, 256, (2, 2, 7, 5), np.uint8)
    np.testing.assert_allclose(wasserstein_table(samples, truth), one_by_one(samples, truth), atol=1e-12)


def test_table_is_the_same_by_processes_and_takes_a_generator(film):
    samples, truth = film
    taken = (forecast for forecast in samples)
    np.testing.assert_array_equal(wasserstein_table(taken, truth, workers=2), wasserstein_table(samples, truth))


def test_samples_are_not_taken_far_ahead(film, monkeypatch):
    """A generator that forecasts must not fill the memory."""
    samples, truth = (np.concatenate([part] * 20) for part in film)
    taken, done = [], []

    class Later:
        def __init__(self, task):
            self.task = task

        def result(self):
            done.append(len(taken))
            return transport._mean_distances(self.task)

    class Pool:
        def __init__(self, workers, mp_context):
            assert workers == 2

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def submit(self, work, task):
            return Later(task)

    def forecasts():
        for forecast in samples:
            taken.append(forecast)
            yield forecast

    monkeypatch.setattr(transport, "ProcessPoolExecutor", Pool)
    table = wasserstein_table(forecasts(), truth, workers=2)
    np.testing.assert_array_equal(table[:3], wasserstein_table(*film))
    assert max(ahead - number for number, ahead in enumerate(done)) < 12


def test_equal_samples_are_computed_once(film, monkeypatch):
    calls = []
    distance = transport._distance
    monkeypatch.setattr(transport, "_distance", lambda *args: calls.append(args) or distance(*args))
    samples, truth = film
    wasserstein_table(np.repeat(samples[:1, :1], 7, axis=1), truth[:1])
    assert len(calls) == truth.shape[1]


def test_pixels_by_hand():
    truth = frame((0, 0), (0, 1), height=2, width=5)
    found = frame((0, 1), (0, 2), (1, 0), height=2, width=5)
    empty = np.zeros((2, 5))
    samples = np.array([[[found, empty], [truth, empty]]])
    target = np.array([[truth, empty]])
    np.testing.assert_allclose(pixel_accuracy(samples, target), [[(0.7 + 1) / 2, 1]])
    np.testing.assert_allclose(intersection_over_union(samples, target), [[(1 / 4 + 1) / 2, 1]])
    np.testing.assert_allclose(intersection_over_union(samples[:, :, ::-1], target), [[0, 0]])
    # Grey is white above a half.
    np.testing.assert_allclose(pixel_accuracy(samples * 0.6, target * 0.8), pixel_accuracy(samples, target))
    np.testing.assert_allclose(pixel_accuracy(samples * 0.5, target), [[0.8, 1]])


def test_scores_by_horizon_and_overall(film):
    samples, truth = film
    scores = score_frames((forecast for forecast in samples), truth)
    np.testing.assert_array_equal(scores.wasserstein, wasserstein_table(samples, truth))
    np.testing.assert_array_equal(scores.accuracy, pixel_accuracy(samples, truth))
    np.testing.assert_array_equal(scores.iou, intersection_over_union(samples, truth))
    table = scores.by_horizon()
    names = ["wasserstein", "accuracy", "iou"]
    assert list(table) == ["horizon", *(column for name in names for column in (name, f"{name}_se"))]
    assert list(table["horizon"]) == [1, 2, 3, 4, 5]
    for name in names:
        values = getattr(scores, name)
        np.testing.assert_allclose(table[name], values.mean(0))
        deviation = np.sqrt(((values - values.mean(0)) ** 2).sum(0) / (3 - 1))
        np.testing.assert_allclose(table[f"{name}_se"], deviation / np.sqrt(3))
    late = scores.overall(2, 4)
    means = scores.iou[:, 1:4].mean(1)
    assert late["iou"] == pytest.approx(means.mean())
    assert late["iou_se"] == pytest.approx(np.std(means, ddof=1) / np.sqrt(3))
    assert scores.overall()["wasserstein"] == pytest.approx(scores.wasserstein.mean())


def test_one_sequence_has_no_standard_error():
    one = np.ones((1, 2))
    table = FrameScores(one, one, one).by_horizon()
    assert table["wasserstein_se"].isna().all()
    assert np.isnan(FrameScores(one, one, one).overall()["iou_se"])


def test_scores_that_cannot_be(film):
    samples, truth = film
    with pytest.raises(ValueError, match=r"expected forecasts \(sample, 5, 16, 16\)"):
        wasserstein_table(samples[:, :, :4], truth)
    with pytest.raises(ValueError, match="of 3 sequences, as in the truth, but there are 2"):
        wasserstein_table(samples[:2], truth)
    with pytest.raises(ValueError, match="of 2 sequences, as in the truth, but there are more"):
        wasserstein_table(samples, truth[:2])
    with pytest.raises(ValueError, match="true frames"):
        wasserstein_table(samples, truth[0])
    with pytest.raises(ValueError, match="at least 1 worker"):
        wasserstein_table(samples, truth, workers=0)
    with pytest.raises(ValueError, match="NaN"):
        wasserstein_table(samples, np.where(truth, np.nan, 0.0))
    with pytest.raises(ValueError, match="expected samples"):
        pixel_accuracy(samples[:, 0], truth)
    with pytest.raises(ValueError, match="divide by 255"):
        score_frames(255 * samples, truth)
    with pytest.raises(ValueError, match="between 0 and 1"):
        intersection_over_union(np.where(samples, np.nan, 0.0), truth)
    with pytest.raises(ValueError, match="horizons"):
        score_frames(samples, truth).overall(3, 6)


def test_the_last_frame_is_repeated(film):
    _, seen = film
    floor = repeat_last_frame(seen, 4)
    assert floor.shape == (3, 1, 4, 16, 16)
    for step in range(4):
        np.testing.assert_array_equal(floor[:, 0, step], seen[:, -1])
    observed = np.ones((3, 5), np.bool_)
    observed[1, 2:] = False
    missing = repeat_last_frame(seen, 4, observed=observed)
    np.testing.assert_array_equal(missing[1, 0, 3], seen[1, 1])
    np.testing.assert_array_equal(missing[[0, 2]], floor[[0, 2]])
    observed[1] = False
    with pytest.raises(ValueError, match="but 1 has none"):
        repeat_last_frame(seen, 4, observed=observed)
    with pytest.raises(ValueError, match="observation mask"):
        repeat_last_frame(seen, 4, observed=observed[:2])
    with pytest.raises(ValueError, match="horizon of at least 1"):
        repeat_last_frame(seen, 0)


def test_a_linear_map_is_found(rng):
    train, test = rng.normal(size=(40, 5, 4)) + 3, rng.normal(size=(30, 5, 4))
    matrix = rng.normal(size=(4, 2))
    found = linear_probe(train, train @ matrix + 7, test, test @ matrix + 7)
    np.testing.assert_allclose(found, [1.0, 1.0], atol=1e-12)


def test_noise_is_explained_as_badly_as_theory_says(rng):
    """Least squares of standard normal noise predicts point i with variance h_i, the leverage, and independently of it.

    With m test points the errors' sum of squares is on average that of the deviations from the mean (m - 1 degrees of
    freedom, independent of the mean) plus 1 + sum h_i, and the mean of 1 / chi^2 is 1 / (m - 3).
    """
    train, test = rng.normal(size=(100, 4)), rng.normal(size=(80, 4))
    found = linear_probe(train, rng.normal(size=(100, 500)), test, rng.normal(size=(80, 500)))
    inputs, asked = (np.hstack([np.ones((len(points), 1)), points]) for points in (train, test))
    leverage = np.einsum("if,fg,ig->i", asked, np.linalg.inv(inputs.T @ inputs), asked)
    expected = -(1 + leverage.sum()) / (80 - 3)
    assert -0.2 < expected < 0
    assert abs(found.mean() - expected) < 4 * found.std(ddof=1) / np.sqrt(500)


def test_probe_by_the_normal_equations(rng):
    train, test = rng.normal(size=(50, 3)) * [1, 10, 0.1], rng.normal(size=(20, 3))
    known, asked = rng.normal(size=(50, 2)), rng.normal(size=(20, 2))
    for penalty in (0.0, 0.3):
        scaled = (train - train.mean(0)) / train.std(0)
        weights = np.linalg.solve(scaled.T @ scaled + 50 * penalty * np.eye(3), scaled.T @ (known - known.mean(0)))
        predicted = known.mean(0) + (test - train.mean(0)) / train.std(0) @ weights
        expected = 1 - ((asked - predicted) ** 2).sum(0) / ((asked - asked.mean(0)) ** 2).sum(0)
        np.testing.assert_allclose(linear_probe(train, known, test, asked, penalty=penalty), expected, atol=1e-10)


def test_probe_of_what_does_not_change(rng):
    states = rng.normal(size=(30, 2))
    targets = np.stack([states[:, 0], np.full(30, 0.1)], axis=1)
    still = np.concatenate([states, np.full((30, 1), 0.3)], axis=1)
    found = linear_probe(still, targets, still, targets)
    assert found[0] == pytest.approx(1.0)
    assert np.isnan(found[1])


def test_probe_of_data_that_does_not_fit(rng):
    states, targets = rng.normal(size=(9, 2)), rng.normal(size=(9, 1))
    with pytest.raises(ValueError, match="training features"):
        linear_probe(states, targets[:8], states, targets)
    with pytest.raises(ValueError, match="as many features"):
        linear_probe(states, targets, states[:, :1], targets)
    with pytest.raises(ValueError, match="finite test"):
        linear_probe(states, targets, states * np.nan, targets)
    with pytest.raises(ValueError, match="penalty"):
        linear_probe(states, targets, states, targets, penalty=-1.0)


def test_carrying_forward_by_hand():
    frames = np.arange(10).reshape(2, 5, 1, 1)
    observed = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 1, 0]], np.bool_)
    found = carry_forward(frames, observed)[..., 0, 0]
    np.testing.assert_array_equal(found, [[0, 0, 0, 3, 3], [7, 7, 7, 8, 8]])
    np.testing.assert_array_equal(carry_forward(frames, np.ones((2, 5))), frames)
    with pytest.raises(ValueError, match="every sequence, but 1 has none"):
        carry_forward(frames, observed & [[True], [False]])
    with pytest.raises(ValueError, match="observation mask"):
        carry_forward(frames, observed[:, 1:])


def test_scores_over_chosen_steps_by_hand(rng):
    scores = FrameScores(*rng.random((3, 4, 5)))
    chosen = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], np.bool_)
    table = scores.iou
    means = [(table[0, 0] + table[0, 2]) / 2, table[2, 4], table[3].mean()]
    found = scores.over(chosen)
    assert found["iou"] == pytest.approx(np.mean(means))
    assert found["iou_se"] == pytest.approx(np.std(means, ddof=1) / np.sqrt(3))
    assert scores.over(np.ones((4, 5), np.bool_)) == pytest.approx(scores.overall())
    with pytest.raises(ValueError, match="at least one step"):
        scores.over(np.zeros((4, 5), np.bool_))


def test_scores_of_a_part_are_those_of_its_sequences(film):
    samples, truth = film
    whole, part = score_frames(samples, truth), score_frames(samples[1:], truth[1:])
    for name in ("wasserstein", "accuracy", "iou"):
        np.testing.assert_array_equal(getattr(whole.part(slice(1, None)), name), getattr(part, name))
