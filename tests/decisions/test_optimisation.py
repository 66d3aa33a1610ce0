"""Optimisation by draws of a network: functions, the climb, the trust region, the next point, the command."""

import itertools
import json
import math

import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

from tsforecast.cli import main
from tsforecast.decisions import FUNCTIONS, Evaluations, Optimiser, Recommendation, Surrogate, TrustRegion
from tsforecast.decisions.ascent import Ascent
from tsforecast.learners import LEARNERS, GaussianLikelihood, LearnerConfig, as_network


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_least_where_they_say(name):
    function = FUNCTIONS[name]
    points = torch.tensor(function.minimisers, dtype=torch.float64)
    torch.testing.assert_close(function(points), torch.full_like(points[:, 0], function.least), atol=1e-6, rtol=0)
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (function.low, function.high))
    places = low + (high - low) * torch.rand(20_000, function.dim, generator=generator(), dtype=torch.float64)
    assert (function(places) > function.least).all()
    near = points + 1e-3 * (high - low) * torch.randn(500, 1, function.dim, generator=generator(), dtype=torch.float64)
    assert (function(near) > function.least - 1e-9).all()


def test_functions_are_those_of_the_literature():
    """Values worked out by hand."""
    values = {"branin": 55.60211264, "ackley-2": 20 * (1 - math.exp(-0.2)), "hartmann-6": -0.00508911}
    points = {"branin": (0.0, 0.0), "ackley-2": (1.0, 1.0), "hartmann-6": (0.0,) * 6}
    for name, value in values.items():
        found = FUNCTIONS[name](torch.tensor(points[name], dtype=torch.float64)).item()
        assert found == pytest.approx(value, abs=1e-6), name


def test_the_climb_finds_the_top_inside_and_on_the_border():
    low, high = torch.tensor([-1.0, 0.0]).double(), torch.tensor([3.0, 0.5]).double()
    for top, expected in (((0.7, 0.3), (0.7, 0.3)), ((5.0, 0.2), (3.0, 0.2)), ((-7.0, 9.0), (-1.0, 0.5))):
        centre = torch.tensor(top).double()
        found = Ascent()(lambda x, c=centre: -(x - c).square().sum(-1), low, high, low[None], generator())
        torch.testing.assert_close(found, torch.tensor(expected).double(), atol=5e-3, rtol=0)
    with pytest.raises(ValueError, match="a surrogate with finite values"):
        Ascent()(lambda x: x.sum(-1) * torch.nan, low, high, low[None])
    with pytest.raises(ValueError, match="starts from 1"):
        Ascent(starts=0)


def test_steps_of_the_climb_become_shorter():
    """On a slope that is the same everywhere Adam moves by its rate: length (1 - k / steps) of the width in step k."""
    seen = []

    def slope(places):
        if places.requires_grad:
            seen.append(places.detach().clone())
        return places.sum(-1)

    low, high = torch.zeros(2).double(), torch.tensor([2.0, 4.0]).double()
    Ascent(starts=1000, steps=4, length=0.1)(slope, low, high, low[None], generator())
    inside = (seen[-1] < 0.99 * high).all(-1)
    assert inside.sum() > 100
    for k, (before, after) in enumerate(itertools.pairwise(seen)):
        moved = ((after - before) / (high - low))[inside]
        torch.testing.assert_close(moved, torch.full_like(moved, 0.1 * (1 - k / 4)), rtol=1e-4, atol=0)


def test_the_trust_region_follows_successes_and_failures():
    region = TrustRegion(side=0.8, least=0.15, successes=2, patience=3)
    start = [5.0, 4.0]
    for rest, side in (
        ([], 0.8),
        ([4.0, 4.0], 0.8),
        ([4.0, 4.0, math.nan], 0.4),
        ([9.0] * 6, 0.2),
        ([9.0] * 6 + [3.0, 2.0], 0.4),
        ([9.0] * 3 + [3.0, 9.0, 2.0], 0.4),  # successes, but not in a row
        ([9.0] * 9, 0.8),  # too small: anew
        ([3.0, 2.0, 1.0, 0.0], 0.8),  # never larger than at the beginning
    ):
        assert region.side_after(torch.tensor(start + rest), 2) == pytest.approx(side), rest
    # Points that the optimiser did not choose are no failures of it.
    values = torch.tensor([1.0, 9.0, 9.0, 9.0, 9.0])
    assert [region.side_after(values, initial) for initial in (1, 2, 4, 5)] == pytest.approx([0.4, 0.4, 0.8, 0.8])
    for settings in ({"side": 3.0}, {"least": 1.0}, {"patience": 0}, {"neighbours": 1}):
        with pytest.raises(ValueError, match="expected"):
            TrustRegion(**settings)


def test_points_to_begin_with_leave_the_trust_region_as_wide_as_it_was():
    """Four values in a row were no better, and the surrogate sees that they fall towards the right."""
    points = -torch.arange(6, dtype=torch.float64)[:, None] / 10
    known, region = Evaluations(points, -points[:, 0]), TrustRegion(side=0.8, least=0.01, patience=1)
    asked = [Optimiser((-1.0,), (1.0,), region=region, initial=count).ask(known).item() for count in (2, 6)]
    assert 0 < asked[0] < 0.06  # 0.8 / 2^4, and rounding
    assert 0.1 < asked[1] <= 0.8


def test_a_draw_of_the_surrogate_is_one_of_linear_regression_on_its_features():
    """With `ekf`: the posterior written out, and the draw of its generator."""
    surrogate = Surrogate(LearnerConfig("ekf", variance=0.1), hidden=(40,), noise=0.05)
    x, new = torch.randn(2, 6, 2, generator=generator(), dtype=torch.float64)
    y, features = x[:, 0].sin(), surrogate._features(2, 7)
    known, wanted = (torch.cat([features(z), torch.ones_like(z[:, :1])], -1) for z in (x, new))
    learner = surrogate.learner.build(as_network(torch.nn.Linear(40, 1)), GaussianLikelihood(0.05), wanted[0] * 0, 7)
    belief = learner.update(learner.init(), known[:, :-1], y.unsqueeze(-1))
    cov = torch.linalg.inv(known.T @ known / 0.05 + torch.eye(41, dtype=torch.float64) / 0.1)
    torch.testing.assert_close(belief.cov, cov, rtol=0, atol=1e-8)
    torch.testing.assert_close(belief.mean, cov @ known.T @ y / 0.05, rtol=0, atol=1e-8)
    weights = learner.sample(belief, 1, generator(7))[0]
    torch.testing.assert_close(surrogate.draw(x, y, 7)(new), wanted @ weights, rtol=0, atol=1e-8)


def test_a_wide_surrogate_has_the_prior_of_a_narrow_one():
    """The variance of the prior at a point, variance |phi|^2, is a mean over units: within 4 standard errors."""
    x = torch.tensor([[0.5, -0.3]], dtype=torch.float64)
    squares = {
        width: torch.stack([Surrogate(hidden=(width,))._features(2, seed)(x).square().sum() for seed in range(200)])
        for width in (20, 300)
    }
    error = sum(values.var() / 200 for values in squares.values()) ** 0.5
    assert abs(squares[20].mean() - squares[300].mean()) < 4 * error


@pytest.mark.parametrize("name", [name for name, learner in LEARNERS.items() if learner.numbers])
def test_every_learner_of_numbers_gives_a_next_point_and_the_same_again(name):
    function = FUNCTIONS["branin"]
    optimiser = Optimiser(function.low, function.high, Surrogate(LearnerConfig(name), hidden=(20,)), initial=6)
    known = optimiser.minimise(function, 8)
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (function.low, function.high))
    assert ((known.points >= low) & (known.points <= high)).all()
    again = optimiser.minimise(function, 8, Evaluations(known.points[:7], known.values[:7]))
    assert torch.equal(again.points, known.points)


def test_points_that_are_waited_for_are_not_asked_for_again_and_all_are_within_bounds():
    low, high = (2.0, -3.0), (2.5, 4.0)
    optimiser = Optimiser(low, high, Surrogate(LearnerConfig("ekf"), hidden=(4,)), initial=4)
    border = torch.tensor([[2.0, -3.0], [2.0, 4.0], [2.5, -3.0], [2.5, 4.0], [2.25, 0.0]], dtype=torch.float64)
    for known in (
        Evaluations(border[:0], torch.zeros(0, dtype=torch.float64)),
        Evaluations(border, border[:, 0] + 0.1 * border[:, 1]),  # the least value is in a corner
    ):
        asked = torch.stack([optimiser.ask(known, ahead) for ahead in range(6)])
        assert len(asked.unique(dim=0)) > 4
        assert ((asked >= torch.tensor(low)) & (asked <= torch.tensor(high))).all()


def test_it_comes_nearer_than_random_points():
    """The regret on Branin after 40 evaluations, beside the median of 40 uniform points over a thousand draws."""
    function = FUNCTIONS["branin"]
    found = [Optimiser(function.low, function.high, seed=seed).minimise(function, 40).best[1] for seed in range(3)]
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (function.low, function.high))
    places = low + (high - low) * torch.rand(1000, 40, 2, generator=generator(), dtype=torch.float64)
    assert max(found) - function.least < function(places).amin(1).median() - function.least


def test_the_smoothed_values_are_those_of_the_likeliest_gaussian_process():
    """Oracle: densities and conditional moments of the values, written out for each noise."""
    surrogate = Surrogate(LearnerConfig("vd-ekf", variance=0.2), hidden=(30,))
    x = 2 * torch.rand(15, 2, generator=generator(), dtype=torch.float64) - 1
    y = (3 * x[:, 0]).sin() + 0.3 * torch.randn(15, generator=generator(1), dtype=torch.float64)
    laws = {}
    phi = surrogate._features(2, 7)(x)
    function = 0.2 * (phi @ phi.T + 1)
    for noise in [10 ** (k / 2) for k in range(-8, 3)]:
        cov = function + noise * torch.eye(15).double()
        gain = function @ torch.linalg.inv(cov)
        moments = gain @ y, (function - gain @ function).diagonal().sqrt()
        laws[multivariate_normal(cov=cov.numpy()).logpdf(y.numpy())] = moments
    found = surrogate.smooth(x, y, 7)
    torch.testing.assert_close(found, laws[max(laws)], rtol=0, atol=1e-8)


def test_a_recommendation_is_better_than_the_luckiest_draw():
    """Of a noisy parabola over forty runs: the gain is four standard errors from 0, and means are honest."""
    gains, errors = [], []
    for seed in range(40):
        optimiser = Optimiser((0.0,), (10.0,), Surrogate(hidden=(50,)), seed=seed)
        points = 10 * torch.rand(40, 1, generator=generator(seed), dtype=torch.float64)
        true = 100 + (points[:, 0] - 3).square()
        values = true + 3 * torch.randn(40, generator=generator(99 + seed), dtype=torch.float64)
        values[5] = math.nan
        known = Evaluations(points, values)
        found = optimiser.recommend(known)
        gains.append(true[values.nan_to_num(nan=math.inf).argmin()] - true[found.number])
        errors.append((found.mean - true[found.number]) / found.sd)
    gain, error = torch.stack(gains), torch.stack(errors)
    assert gain.mean() > 4 * gain.std() / math.sqrt(40) > 0
    assert error.square().mean() < 4


def test_a_recommendation_without_noise_is_the_best_point():
    optimiser = Optimiser((0.0,), (1.0,), initial=4)
    points = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    found = optimiser.recommend(Evaluations(points, (points[:, 0] - 0.4).square()))
    assert found.number == 4
    assert abs(found.mean - (4 / 11 - 0.4) ** 2) < 0.01
    assert optimiser.recommend(Evaluations(points, torch.full((12,), 7.0).double())) == Recommendation(0, 7.0, 0.0)
    with pytest.raises(ValueError, match="an evaluation that succeeded, got 0"):
        optimiser.recommend(optimiser.init())


def test_values_of_evaluations_that_fail_are_not_learnt_from():
    optimiser = Optimiser((0.0,), (1.0,), initial=4)
    known = optimiser.init()
    for k in range(9):
        point = optimiser.ask(known)
        assert 0 <= point.item() <= 1
        known = optimiser.tell(known, point, [math.nan, math.inf][k % 2] if k < 7 else point.item())
    assert known.values.isfinite().sum() == 2
    assert known.best[1] == known.values[7:].min()
    with pytest.raises(ValueError, match="an evaluation that succeeded, got 0"):
        _ = optimiser.init().best


@pytest.mark.parametrize("acquisition", ["thompson", "ei"])
def test_it_learns_where_evaluations_fail(acquisition):
    # The least value that succeeds lies at the edge of the failures.
    optimiser = Optimiser((-1.0, -1.0), (1.0, 1.0), acquisition=acquisition)
    known = optimiser.minimise(lambda x: math.nan if x[0] > 0 else float((x - 0.5).square().sum()), 25)
    failed = ~known.succeeded
    assert len(known.points[failed].unique(dim=0)) == failed.sum()  # no failure is asked for again
    assert known.best[1] < 0.3


def test_failures_by_chance_do_not_keep_it_away():
    generator_of_failures = generator(0)

    def function(x: torch.Tensor) -> float:
        failed = torch.rand((), generator=generator_of_failures) < 0.2
        return math.nan if failed else float((x - 0.3).square().sum())

    known = Optimiser((-1.0, -1.0), (1.0, 1.0)).minimise(function, 25)
    assert known.best[1] < 1e-3


def test_equal_values_and_own_points_are_taken():
    optimiser = Optimiser((0.0, 0.0), (1.0, 2.0), initial=3)
    constant = optimiser.minimise(lambda x: 1.0, 6)
    assert len(constant.points.unique(dim=0)) == 6
    known = optimiser.init()
    for k in range(5):
        known = optimiser.tell(known, torch.tensor([k / 5, 2 * k / 5]).double(), (k - 2.0) ** 2)
    assert optimiser.ask(known).shape == (2,)
    with pytest.raises(ValueError, match=r"expected a point between \(0.0, 0.0\) and \(1.0, 2.0\), got \[0.0, 3.0\]"):
        optimiser.tell(known, torch.tensor([0.0, 3.0]).double(), 1.0)
    with pytest.raises(ValueError, match="expected a point between"):
        optimiser.tell(known, torch.tensor([0.0, math.nan]).double(), 1.0)


def test_bad_settings_are_refused():
    for settings, match in (
        ({"low": (0.0,), "high": (0.0,)}, "low below high"),
        ({"low": (0.0,), "high": (math.inf,)}, "finite corners"),
        ({"low": (0.0,), "high": (1.0, 2.0)}, "corners of the same length"),
        ({"low": (0.0,), "high": (1.0,), "initial": 1}, "at least 2 initial points"),
    ):
        with pytest.raises(ValueError, match=match):
            Optimiser(**settings)
    for settings, match in (
        ({"learner": LearnerConfig("adf")}, "which learns classes alone"),
        ({"hidden": ()}, "at least one hidden layer"),
        ({"noise": 0.0}, "noise to be positive"),
        ({"scale": math.nan}, "scale to be positive"),
    ):
        with pytest.raises(ValueError, match=match):
            Surrogate(**settings)


# The command.


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path, capsys):
    options = ["optimise", "branin", "--learner", "lofi", "--hidden", "10", "--evaluations", "14"]
    assert main([*options, "--output", str(tmp_path / "whole")]) == 0
    said = capsys.readouterr()
    assert "after 14 evaluations, regret" in said.out
    assert "%|" not in said.err  # no bar, as nobody looks at a terminal
    assert main([*options, "--output", str(tmp_path / "run")]) == 0
    table = tmp_path / "run" / "evaluations.csv"
    lines = table.read_text().splitlines(keepends=True)
    for name in ("scores.json", "regret.png"):
        (tmp_path / "run" / name).unlink()
    table.write_text("".join(lines[:13]) + lines[13][:9])  # half a line, as a kill leaves it
    assert main(["optimise", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    found = [pd.read_csv(tmp_path / name / "evaluations.csv").drop(columns="seconds") for name in ("run", "whole")]
    pd.testing.assert_frame_equal(*found)
    scores = [json.loads((tmp_path / name / "scores.json").read_text()) for name in ("run", "whole")]
    assert scores[0] | {"seconds_per_evaluation": 0} == scores[1] | {"seconds_per_evaluation": 0}
    assert scores[0]["regret"] == pytest.approx(found[0]["value"].min() - FUNCTIONS["branin"].least)
    assert (tmp_path / "run" / "regret.png").stat().st_size > 5000


def test_what_the_command_does_not_take_is_told(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["optimise", "branin", "--evaluations", "2", "--output", str(run), "--quiet"]) == 0
    record = (run / "run.json").read_text()
    for arguments, said in (
        (["optimise"], "expected a function (branin, "),
        (["optimise", "brannin"], "did you mean 'branin'?"),
        (["optimise", "branin", "--learner", "adf"], "there is no learner 'adf'"),
        (["optimise", "branin", "--evaluations", "0"], "--evaluations: expected at least 1, got 0"),
        (["optimise", "branin", "--variance", "-1"], "expected variance to be positive"),
        (["optimise", "branin", "--rank", "-1"], "--rank: expected at least 0, got -1"),
        (["optimise", "branin", "--output", str(run)], "is a run already"),
        (["optimise", "branin", "--resume", str(run)], "--resume goes with no other option"),
        (["evaluate", str(run)], "is a run of `tsforecast optimise`"),
        (["stream", "--resume", str(run)], "is a run of `tsforecast optimise`"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err, arguments
    (run / "evaluations.csv").write_text("evaluation,x1\n1,2\n")
    assert main(["optimise", "--resume", str(run)]) == 2
    assert "evaluations.csv is damaged" in capsys.readouterr().err
    (run / "run.json").write_text(record.replace('"branin"', "7"))
    assert main(["optimise", "--resume", str(run)]) == 2
    assert "run.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("acquisition", ["thompson", "ei"])
def test_of_few_points_none_is_asked_for_again_before_all_are_known(acquisition):
    optimiser = Optimiser((0.0, 0.0), (2.4, 3.4), snap=torch.round, acquisition=acquisition)
    known, asked = optimiser.init(), set()
    for _ in range(12):
        point = optimiser.ask(known)
        asked.add(tuple(point.tolist()))
        known = optimiser.tell(known, point, float(((point - 1) ** 2).sum()))
    assert asked == {(float(a), float(b)) for a in range(3) for b in range(4)}
    assert tuple(optimiser.ask(known).tolist()) in asked
