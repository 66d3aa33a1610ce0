"""Effects of interventions: the published example of CausalImpact, closed forms, and what is wrong."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.analysis.r_random import RRandom
from tsforecast.analysis.controls import RegressionPrior, Whitened, draw
from tsforecast.analysis.counterfactual import Grid, Past, StructuralModel, paths
from tsforecast.analysis.impact import Options, impact
from tsforecast.cli import main
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem

pytestmark = pytest.mark.usefixtures("unchecked_module")


def published():
    """The simulated data of the documentation of CausalImpact: `set.seed(1)`, a control, and 10 more from 71 on."""
    random = RRandom(1)
    control = 100 + random.autoregression(0.999, 100)
    values = 1.2 * control + random.normal(100)
    values[70:] += 10
    days = pd.date_range("2014-01-01", periods=100, freq="D")
    return pd.DataFrame({"timestamp": days, "target": values, "x1": control})


def test_the_published_example_of_causalimpact():
    """The vignette prints actual 117 and 3511; without: 107 (0.37) [106, 107]; effect 11 (0.37) [9.8, 11], 9.9 %."""
    frame = published()
    first = [105.2950, 105.8943, 106.6209, 106.1572, 101.2812, 101.4484]
    np.testing.assert_allclose(frame["target"][:6], first, atol=5e-5)
    np.testing.assert_allclose(frame["x1"][:3], [88.21513, 88.48415, 87.87684], atol=5e-6)
    options = Options(seasons="none", level_sd=0.01, num_samples=4000)
    found = impact(frame, "2014-03-11", covariates=["x1"], options=options)
    average, cumulative = (found.summary.iloc[k] for k in range(2))
    assert average["actual"] == pytest.approx(117.0, abs=0.5)
    assert cumulative["actual"] == pytest.approx(3511, abs=0.5)
    printed = {"predicted": 107, "predicted_lower": 106, "predicted_upper": 107, "effect": 11, "effect_lower": 9.8}
    for name, value in printed.items():
        # As rounded as it was printed, and 3 %.
        assert average[name] == pytest.approx(value, rel=0.03, abs=0.05 if name == "effect_lower" else 0.5), name
    for name, value in {"predicted": 3196, "effect": 316, "effect_lower": 294, "effect_upper": 337}.items():
        assert cumulative[name] == pytest.approx(value, rel=0.03), name
    assert average["predicted_sd"] == pytest.approx(0.37, rel=0.03)
    assert average["relative"] == pytest.approx(0.099, rel=0.03)
    assert average["tail"] < 1e-3


def test_draws_are_those_of_the_posterior_by_brute_force():
    """One point of the grid, no control: a Student-t, by conditioning the joint Gaussian of all steps."""
    steps, horizon, ratio = 12, 3, 0.5
    values = torch.randn(steps, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[4] = 0.0
    observed = torch.ones(steps, 1, dtype=torch.bool)
    observed[4] = False
    one = lambda x: torch.tensor([x], dtype=torch.float64)  # noqa: E731

    class Single(StructuralModel):
        def grid(self):
            return Grid(one(ratio), one(1e-9), one(0.5), one(0.0), one(0.0), one(0.0))

    past = Past(values, observed, torch.zeros(steps + horizon, 1, 0).double(), torch.zeros(steps + horizon, 0).long())
    drawn = paths(Single(wanders=False), past, horizon, 40_000, torch.Generator().manual_seed(1))[0].double()
    unit = torch.ones(1, 1, 1, dtype=torch.float64)
    system = LinearSystem(LinearGaussian(unit, unit[0] * 0, unit * ratio), LinearGaussian(unit, unit[0] * 0, unit))
    joint = system.predictive(Gaussian(torch.zeros(1).double(), 1e4 * torch.eye(1).double()), steps + horizon)
    seen = torch.cat([observed[:, 0], torch.zeros(horizon, dtype=torch.bool)])
    padded = torch.cat([values[:, 0], torch.zeros(horizon).double()])
    known = joint.condition(padded[None], seen[None])
    mean, cov = known.mean.reshape(-1)[steps:], known.cov.reshape(steps + horizon, -1)[steps:, steps:]
    own, among = padded[seen], joint.cov[seen][:, seen]
    square = own @ torch.linalg.solve(among, own)
    degrees = 0.01 + seen.sum()
    scale = (0.01 + square) / degrees
    spread = cov * scale * degrees / (degrees - 2)
    error = (spread.diagonal() / len(drawn)).sqrt()
    assert ((drawn.mean(0) - mean).abs() < 5 * error).all()
    centred = drawn - mean
    products = centred[:, :, None] * centred[:, None]
    noise = products.std(0) / len(drawn) ** 0.5
    assert ((products.mean(0) - spread).abs() < 5 * noise).all()


def test_the_sampler_of_many_controls_agrees_with_all_subsets():
    generator = torch.Generator().manual_seed(0)
    controls = torch.randn(40, 7, generator=generator, dtype=torch.float64)
    values = controls[:, :2] @ torch.tensor([0.35, -0.25]).double() + torch.randn(40, generator=generator).double()
    columns = torch.cat([values[:, None], controls], 1)
    gram = (columns.T @ columns)[None, None]
    whitened = Whitened(gram, torch.zeros(1, 1).double(), torch.tensor([40.0]).double())
    one = torch.ones(1, dtype=torch.float64)
    prior = RegressionPrior(0.5 * one, 0.5 * one, 0 * one, torch.eye(7).double()[None], -0.3)
    count = 1500
    sampled = draw(whitened, prior, count, generator).coefficients[0] != 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tsforecast.analysis.controls._ENUMERATED", 7)
        exact = draw(whitened, prior, 50_000, generator).coefficients[0] != 0
    share = exact.double().mean(0)
    error = (share * (1 - share) * (1 / count + 1 / 50_000)).sqrt()
    assert ((sampled.double().mean(0) - share).abs() < 4.5 * error).all()
    assert share[0] > 0.5 > share[3]


def series(length=60, count=3):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=length, freq="D")
    parts = []
    for k in range(count):
        control = rng.normal(size=length)
        values = 20 + k + 2 * control + 3 * (days.dayofweek > 4) + rng.normal(size=length) * 0.5
        parts.append(pd.DataFrame({"item_id": f"s{k}", "timestamp": days, "y": values, "x": control}))
    return pd.concat(parts, ignore_index=True)


def test_several_interventions_on_several_series_with_gaps():
    frame = series()
    first = frame["timestamp"].between("2024-02-01", "2024-02-05")
    second = frame["timestamp"] > "2024-02-20"
    frame.loc[first, "y"] += 4.0
    frame.loc[second, "y"] -= 3.0
    frame.loc[[10, 70, 75, 112], "y"] = np.nan
    found = impact(
        frame,
        ["2024-01-31", "2024-02-20"],
        ["2024-02-05", "2024-02-29"],
        ["x"],
        options=Options(num_samples=400),
    )
    summary = found.summary[found.summary["measure"] == "average"].set_index(["item_id", "intervention"])
    assert summary.index.tolist() == [(f"s{k}", number) for k in range(3) for number in (1, 2)]
    truth = np.tile([4.0, -3.0], 3)
    assert (np.abs(summary["effect"] - truth) < 4 * summary["effect_sd"]).all()
    assert (summary["effect_sd"] < 1.0).all()
    steps = found.frame[(found.frame["item_id"] == "s0") & (found.frame["intervention"] == 1)]
    assert steps["timestamp"].tolist() == list(pd.date_range("2024-02-01", "2024-02-05"))
    np.testing.assert_allclose(steps["actual"] - steps["predicted"], steps["effect"], rtol=1e-6)
    totals = found.summary[found.summary["measure"] == "cumulative"]
    np.testing.assert_allclose(totals["effect"].iloc[0], steps["cumulative"].iloc[-1], rtol=1e-6)
    gap = found.frame[found.frame["actual"].isna()]
    assert gap["effect"].isna().all()
    assert gap["predicted"].notna().all()


def test_coefficients_that_move_follow_a_control_whose_effect_grows():
    rng = np.random.default_rng(1)
    control, days = rng.normal(size=120), pd.date_range("2024-01-01", periods=120, freq="D")
    values = np.linspace(0.0, 4.0, 120) * control + 0.3 * rng.normal(size=120)
    frame = pd.DataFrame({"timestamp": days, "y": values, "x": control})
    errors = []
    for dynamic in (False, True):
        options = Options(seasons="none", dynamic=dynamic, num_samples=200)
        found = impact(frame, days[99], covariates=["x"], options=options).frame
        errors.append(found["effect"].abs().mean())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        ({"after": "2023-12-31"}, r"'s0': expected after between 2024-01-01 and the step before 2024-02-29, got 2023"),
        ({"after": "2024-02-29"}, r"'s0': expected after between"),
        ({"after": "2024-01-03"}, r"'s0' has 3 values up to 2024-01-03 .*: expected at least 8"),
        ({"after": "2024-02-01", "until": "2024-01-20"}, r"expected until later than after, got 2024-01-20"),
        ({"after": "2024-02-01", "until": "2025-01-20"}, r"'s0' ends at 2024-02-29, before until 2025"),
        ({"after": ["2024-02-10", "2024-02-01"]}, r"expected until later than after"),
        ({"after": ["2024-02-01", "2024-02-10"], "until": ["2024-02-12", "2024-02-20"]}, r"interventions overlap"),
        ({"after": "soon"}, r"expected a date such as 2024-03-01 as after, got 'soon'"),
    ],
)
def test_dates_that_do_not_fit_are_refused(dates, message):
    with pytest.raises(ValueError, match=message):
        impact(series(count=1), **dates)


def test_controls_that_do_not_fit_are_refused():
    frame = series(count=1)
    missing = frame.assign(x=frame["x"].where(frame["timestamp"] < "2024-02-20"))
    with pytest.raises(ValueError, match="'x'"):
        impact(missing, "2024-02-10", covariates=["x"])
    still = frame.assign(x=(frame["timestamp"] > "2024-02-10") * 1.0)
    with pytest.raises(ValueError, match="the control 'x' is constant up to"):
        impact(still, "2024-02-10", covariates=["x"])
    with pytest.raises(ValueError, match="between 0 and 1, got 95"):
        Options(level=95)


def test_the_command_writes_tables_and_a_picture(tmp_path, capsys):
    series(count=2).to_csv(tmp_path / "data.csv", index=False)
    command = ["impact", str(tmp_path / "data.csv"), "--out", str(tmp_path / "out"), "--covariates", "x"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".impact.part-0123456789abcdef.png").touch()  # of a call that was killed
    threads = torch.get_num_threads()
    assert main([*command, "--after", "2024-02-10", "--num-samples", "50", "--threads", str(threads)]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"effects.csv", "summary.csv", "impact.png"}
    assert len(pd.read_csv(tmp_path / "out" / "effects.csv")) == 2 * 19
    assert main([*command, "--after", "2026-02-10"]) == 2
    assert "expected --after between 2024-01-01" in capsys.readouterr().err
