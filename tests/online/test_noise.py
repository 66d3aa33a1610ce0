"""The noise of numbers is learnt where none is given: intervals hold what they say."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tsforecast.learners.config import LearnerConfig
from tsforecast.learners.likelihoods.predictions import Expectation
from tsforecast.online.config import OnlineConfig
from tsforecast.online.noise import Noise
from tsforecast.online.prequential import advance
from tsforecast.online.progress import Progress, Setup, begin
from tsforecast.online.saved_progress import load, save
from tsforecast.online.stream import Observation

ROUNDS = 900


def setup(noise: float | None = None, learner: str = "ekf", weight: str = "none") -> Setup:
    return Setup(
        OnlineConfig(LearnerConfig(learner, drift="none", weight=weight, rank=2), (), "tanh"),
        0,
        features=2,
        noise=noise,
    )


def observations(sd: float) -> list[Observation]:
    """A linear function of two features with Gaussian noise of this standard deviation."""
    rng = np.random.default_rng(0)
    features, noise = rng.normal(size=(ROUNDS, 2)), sd * rng.normal(size=ROUNDS)
    return [
        Observation({"a": float(a), "b": float(b)}, float(a - 2 * b + e), None)
        for (a, b), e in zip(features, noise, strict=True)
    ]


def follow(chosen: Setup, items: list[Observation], progress: Progress | None = None) -> tuple[Progress, list[dict]]:
    progress, rows = begin(chosen) if progress is None else progress, []
    for item in items:
        progress, row = advance(chosen, progress, item)
        rows.append(row)
    return progress, rows


@pytest.mark.parametrize("sd", [0.1, 1.0, 10.0])
def test_intervals_hold_what_they_say(sd):
    rows = follow(setup(), observations(sd))[1][ROUNDS // 3 :]
    within = np.mean([abs(row["error"]) < 0.6745 * row["sd"] for row in rows])  # half of a Gaussian
    assert abs(within - 0.5) < 3 * math.sqrt(0.25 / len(rows))
    assert np.mean([row["sd"] for row in rows]) == pytest.approx(sd, rel=3 / math.sqrt(2 * len(rows)) + 0.05)


def test_a_learnt_noise_follows_weights_that_wander():
    rng = np.random.default_rng(1)
    weights, features = rng.normal(size=(ROUNDS, 2)).cumsum(0), rng.normal(size=(ROUNDS, 2))
    targets = (weights * features).sum(1) + 0.1 * rng.normal(size=ROUNDS)
    items = [
        Observation({"a": float(a), "b": float(b)}, float(y), None) for (a, b), y in zip(features, targets, strict=True)
    ]
    drifting = [replace(setup(noise), config=OnlineConfig(LearnerConfig("ekf"), (), "tanh")) for noise in (None, 0.5)]
    learnt, fixed = (np.array([row["error"] ** 2 for row in follow(one, items)[1][50:]]) for one in drifting)
    gain = fixed - learnt
    assert gain.mean() > 2 * gain.std() / math.sqrt(len(gain))


def test_a_stream_that_was_saved_goes_on_with_its_noise(tmp_path):
    items = observations(0.1)
    half = follow(setup(), items[:200])[0]
    save(tmp_path / "state.pt", half, {})
    again = load(tmp_path / "state.pt", setup())[0]
    assert again.stream is not None
    assert half.stream is not None
    assert again.stream.noise == half.stream.noise != Noise()
    ends = [follow(setup(), items[200:300], start)[1] for start in (half, again)]
    assert [row["sd"] for row in ends[0]] == [row["sd"] for row in ends[1]]


FIXED = [{"noise": 0.3}, {"weight": "imq"}, {"learner": "ogd"}, {"learner": "lrkf"}, {"learner": "wolf-ekf"}]


@pytest.mark.parametrize("given", FIXED, ids=str)
def test_a_given_noise_and_one_in_whose_units_a_learner_works_stay_as_they_are(given):
    stream = follow(setup(**given), observations(0.1)[:20])[0].stream
    assert stream is not None
    assert stream.noise is None


def test_a_target_that_does_not_vary_says_nothing_of_the_noise():
    items = [Observation({"a": float(k % 7)}, 5.0, None) for k in range(50)]
    stream = follow(setup(), items)[0].stream
    assert stream is not None
    assert stream.noise == Noise()


def test_a_block_moves_the_variance_once():
    """Rows of a block are all surprised by the same change: their factors do not multiply."""
    rng = np.random.default_rng(4)
    noise = Noise(0.01, 300.0)
    changed = torch.from_numpy(rng.normal(0, 10.0, (256, 1)))
    after = noise.after(Expectation(torch.zeros(256, 1).double(), torch.full((256, 1), 0.02).double()), changed, None)
    assert after.variance < 20 * noise.variance
    found = []
    for _ in range(400):
        rows = torch.from_numpy(rng.normal(0, math.sqrt(0.5), (256, 1)))
        expected = Expectation(torch.zeros(256, 1).double(), torch.full((256, 1), after.variance).double())
        after = after.after(expected, rows, None)
        found.append(after.variance)
    # Of 256 squares in each of 300 late steps, which are correlated over about two.
    assert np.mean(found[100:]) == pytest.approx(0.5, rel=3 * math.sqrt(2 / 256 / 300 * 3))


def test_counts_of_any_size_leave_a_variance():
    expected = Expectation(torch.zeros(3, 1).double(), torch.ones(3, 1).double())
    target = torch.tensor([[1e-9], [1e6], [math.nan]]).double()
    noise = Noise(1.0, 10.0).after(expected, target, torch.tensor([1e9, 1e-3, 1.0]).double())
    assert 0.5 < noise.variance < 1
