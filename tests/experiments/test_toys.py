"""Small instances of the toys: what the pictures claim, by paired differences; and the tables."""

import csv
import importlib
import math

import pytest
import torch

from tsforecast import learners
from tsforecast.core import kalman

NAMES = ("toys", "toys_shared", "toys_drift", "toys_outliers", "toys_tracking")

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module", autouse=True)
def scripts():
    return {name: importlib.import_module(f"experiments.streams.{name}") for name in NAMES}


def assert_less(one: torch.Tensor, other: torch.Tensor):
    """On the same streams, by more than three standard errors."""
    difference = one - other
    assert difference.mean() < -3 * difference.std() / math.sqrt(len(difference)), difference


@pytest.fixture(scope="module")
def jumped(scripts):
    """Errors where the boundary jumps, by drift."""
    torch.set_default_dtype(torch.float64)
    drift = scripts["toys_drift"]
    data = drift.make_labels(drift.jumping(16), 48, 0, points=5)
    grids = {
        "none": [learners.NoDrift()],
        "ou": [learners.OrnsteinUhlenbeck(0.01)],
        "forgetting": [learners.BayesianForgetting(0.3)],
    }
    results, _ = drift.compare_drifts(data, grids, drift.score_jump, 0)
    return {result.learner: result.scores for result in results}


@pytest.mark.parametrize("name", ["ou", "forgetting"])
def test_what_forgets_is_worse_before_a_change_and_better_after_it(jumped, name):
    assert_less(jumped["none"]["log_loss_before"], jumped[name]["log_loss_before"])
    assert_less(jumped[name]["log_loss_end"], jumped["none"]["log_loss_end"])
    assert_less(jumped[name]["steps_to_recover"], jumped["none"]["steps_to_recover"])


def test_recovery_is_counted_from_the_change(scripts):
    """Wrong for seven steps, then right: the first five steps that are right begin with the eighth."""
    drift = scripts["toys_drift"]
    data = drift.make_labels(drift.jumping(40), 2, 0)
    mean = data.probability.clone()
    mean[:, 20:27] = 1 - mean[:, 20:27]
    mean[1, 20:] = 1 - data.probability[1, 20:]
    predicted = drift.Prediction(mean.unsqueeze(-1), mean.unsqueeze(-1), torch.zeros_like(mean))
    scores, error = drift.score_jump(predicted, data)
    assert error[0, 20:27].min() > 0.5
    assert scores["steps_to_recover"].tolist() == [7 + 4, 20]


def test_labels_have_the_probabilities_of_the_true_weights(scripts):
    drift = scripts["toys_drift"]
    data = drift.make_labels(drift.turning(50), 20, 3)
    torch.testing.assert_close(data.weights.norm(dim=-1), torch.full((50,), 10.0))
    torch.testing.assert_close(data.weights[18], torch.tensor([10.0, 0.0]))
    surprise = (data.target.squeeze(-1) - data.probability).flatten()
    sd = (data.probability * (1 - data.probability)).sum().sqrt()
    assert surprise.sum().abs() < 4 * sd
    assert data.log_loss.shape == (20, 50)


@pytest.fixture(scope="module")
def fits(scripts):
    """Errors of networks on targets with outliers, and without, by learner."""
    torch.set_default_dtype(torch.float64)
    outliers = scripts["toys_outliers"]
    kinds = {name: scripts["toys_shared"].WEIGHTS[name][:1] for name in ("ekf", "wolf, power 2")}
    results, _ = outliers.compare_fits(outliers.make_wave(82, 120, 0), 2, 1, kinds, (1e-5,))
    return {result.learner: result.scores["rmse"] for result in results}


def test_a_robust_network_learns_the_curve_in_spite_of_outliers(fits):
    assert_less(fits["wolf, power 2"], fits["ekf"])


def test_outliers_ruin_the_plain_filter_and_robustness_has_its_price_without_them(fits):
    assert_less(fits["ekf, no outliers"], fits["ekf"])
    assert_less(fits["ekf, no outliers"], fits["wolf, power 2, no outliers"])
    assert_less(fits["wolf, power 2"], fits["ogd"])
    assert_less(fits["ogd"], fits["ekf"])


def test_a_robust_moving_average_follows_a_level_in_spite_of_outliers(scripts):
    outliers = scripts["toys_outliers"]
    results = outliers.compare_averages(outliers.make_level(100, 70, 0))
    rmse = {result.learner: result.scores["rmse"] for result in results}
    assert_less(rmse["robust ewma"], rmse["ewma"])
    assert_less(rmse["gated ewma"], rmse["ewma"])
    assert_less(rmse["ewma, no outliers"], rmse["robust ewma"])


# What is doubled is far from where it should be only after a while.
@pytest.mark.parametrize(("noise", "steps"), [("student", 50), ("doubled", 80)])
def test_weights_track_in_spite_of_noise_that_is_not_gaussian(scripts, noise, steps):
    tracking = scripts["toys_tracking"]
    kinds = {"wolf, power 2": [learners.InverseMultiquadric()]}
    results = tracking.compare_trackers(tracking.make_paths(noise, 410, steps, 0), 10, kinds)
    rmse = {result.learner: result.scores["position_rmse"] for result in results}
    rmse = {name: values.log() for name, values in rmse.items()}  # some are a hundred times the others
    assert_less(rmse["wolf, power 2"], rmse["kf"])
    assert_less(rmse["kf, told the noise"], rmse["wolf, power 2"])


def test_a_state_is_tracked_by_a_learner_as_by_the_filter(scripts):
    """The same numbers as the Kalman filter of the core, where every observation counts in full."""
    tracking = scripts["toys_tracking"]
    paths = tracking.make_paths("student", 3, 20, 0)
    want = kalman.filter(tracking.make_system(torch.ones(1)), tracking.make_start(), paths.seen).filtered.mean
    got = tracking.track(learners.Unweighted(), paths.seen)
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


def test_noise_is_students_or_doubled(scripts):
    tracking = scripts["toys_tracking"]
    paths = tracking.make_paths("student", 200, 50, 0)
    square = (paths.seen - paths.state[..., :2]).square().sum(-1) / tracking.BLUR
    count = square.numel()
    # With t-distributed coordinates of one scale, half of the squared length is F(2, freedom).
    share = (square / 2 < (2.01 / 2) * (0.5 ** (-2 / 2.01) - 1)).double().mean()
    assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(count)
    paths = tracking.make_paths("doubled", 200, 50, 0)
    wrong = paths.factor.isinf()
    assert abs(wrong.double().mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / wrong.numel())
    mean = torch.where(wrong.unsqueeze(-1), 2.0, 1.0) * paths.state[..., :2]
    error = (paths.seen - mean) / math.sqrt(tracking.BLUR)
    assert abs(error.square().mean() - 1) < 4 * math.sqrt(2 / error.numel())


def test_rows_have_means_medians_and_paired_differences(scripts):
    shared = scripts["toys_shared"]
    one = shared.Result("one", "", {"error": torch.tensor([1.0, 2.0, 3.0, 6.0])}, torch.zeros(4, 1))
    two = shared.Result("two", "k=1", {"error": torch.tensor([2.0, 3.0, 4.0, 8.0])}, torch.zeros(4, 1))
    rows = shared.rows_of("toy", [one, two], "one", medians=True)
    found = {(row["learner"], row["metric"]): (float(row["mean"]), float(row["standard_error"])) for row in rows}
    assert found["one", "error"] == (3.0, 1.1)  # sd of 1, 2, 3, 6 is sqrt(14 / 3) = 2.16
    assert found["two", "error minus one"] == (1.25, 0.25)
    assert found["two", "median error"][0] == 3.5
    assert ("one", "error minus one") not in found


def test_settings_are_chosen_by_streams_that_do_not_count(scripts):
    shared = scripts["toys_shared"]
    values = {"a": [0.0, 9.0, 9.0], "b": [1.0, 2.0, 3.0], "c": [math.nan, 0.0, 0.0]}
    found = [shared.Result("x", k, {"e": torch.tensor(v)}, torch.zeros(3, 1)) for k, v in values.items()]
    place, kept = shared.choose(found, "e", 1)
    assert place == 0
    assert [result.scores["e"].tolist() for result in kept[:2]] == [[9.0, 9.0], [2.0, 3.0]]
    assert [result.learner for result in shared.with_default(0, kept)] == ["x"]
    chosen, default = shared.with_default(1, kept)
    assert (chosen.settings, default.settings, default.learner) == ("b", "a", "x, default")


def test_a_toy_replaces_its_rows(scripts, tmp_path):
    toys = scripts["toys"]
    path = tmp_path / "toys.csv"
    row = dict.fromkeys(toys.COLUMNS, "1")
    toys.write_rows(path, "tracking", [row | {"toy": "tracking-student"}])
    toys.write_rows(path, "drift", [row | {"toy": "drift-turn"}])
    toys.write_rows(path, "tracking", [row | {"toy": "tracking-doubled"}])
    with path.open(newline="") as stream:
        assert [row["toy"] for row in csv.DictReader(stream)] == ["drift-turn", "tracking-doubled"]
