"""Tables of regimes, their changes, and the command that writes them."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.models.test_markov import switching_entries
from tsforecast import StateSpaceEstimator
from tsforecast.analysis.regimes import bytes_of_particles, regime_report
from tsforecast.cli import main
from tsforecast.data.windows import collate, cut

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

SMALL = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
STEPS = 90


def trained(model, entries, **options):
    small = {"num_batches_per_epoch": 1, "batch_size": 2, "num_samples": 5, "seed": 0, "trainer_kwargs": SMALL}
    return StateSpaceEstimator(model, "D", 4, preset="none", **small, **options).train(entries)


@pytest.fixture(scope="module")
def known():
    """Series whose second has a gap and begins late, with the regimes that made them, and a predictor."""
    entries, truth = switching_entries(STEPS)
    entries[1]["target"][:5] = np.nan
    entries[1]["target"][40:43] = np.nan
    shape = {"regimes": 2, "order": 1, "seasonal": False, "switching": "location+scale", "scaling": "training"}
    predictor = trained("markov", entries, starts=3, context_length=0, train_length=0, **shape)
    return predictor, entries, truth


def test_regimes_and_changes_are_those_that_made_the_series(known):
    predictor, entries, truth = known
    report = regime_report(predictor, entries)
    table = report.regimes
    assert [*table] == ["item_id", "timestamp", "p_1", "p_2", "most_likely"]
    np.testing.assert_allclose(table[["p_1", "p_2"]].sum(1), 1, rtol=1e-5)
    for number, first in ((0, 0), (1, 5)):  # a series begins at its first value
        own = table[table["item_id"] == f"s{number}"]
        assert own["timestamp"].iloc[0] == pd.Timestamp("2024-01-01") + pd.Timedelta(days=first)
        assert own["timestamp"].iloc[-1] == pd.Timestamp("2024-01-01") + pd.Timedelta(days=STEPS - 1)
        assert (own["most_likely"].to_numpy() - 1 == truth[number, first:]).mean() > 0.9
        changes = report.changes[report.changes["item_id"] == f"s{number}"]
        path = own.set_index("timestamp")["most_likely"]
        moved = path[path.diff().fillna(0) != 0]
        assert changes["timestamp"].tolist() == moved.index.tolist()
        assert changes["after"].tolist() == moved.tolist()
    assert (report.changes["lower"] <= report.changes["upper"]).all()
    wide, narrow = (regime_report(predictor, entries, level=level).changes for level in (0.99, 0.3))
    length = lambda one: (one["upper"] - one["lower"]).sum()  # noqa: E731
    assert length(narrow) < length(report.changes) <= length(wide)


def test_the_last_steps_alone_and_regimes_ahead(known):
    predictor, entries, _ = known
    report = regime_report(predictor, entries, last=20)
    assert len(report.regimes) == 2 * 20
    ahead = report.ahead
    pd.testing.assert_frame_equal(ahead, regime_report(predictor, entries).ahead)  # which looks at all of the past
    assert ahead["timestamp"].min() == pd.Timestamp("2024-01-01") + pd.Timedelta(days=STEPS)
    one = ahead[ahead["item_id"] == "s0"]["p_1"].to_numpy()
    assert len(one) == 4
    assert len(set(np.sign(np.diff(one)))) == 1  # two regimes approach the long run from one side


def test_models_with_switches_have_the_same_tables(known):
    _, entries, _ = known
    few = {"state_dim": 2, "hidden": 3, "embedding_dim": 2, "num_particles": 3, "context_length": 10}
    predictor = trained("sgls", entries, switch="categorical", switch_dim=3, **few)
    short = [{**entry, "target": entry["target"][-12:]} for entry in entries]
    report, again = (regime_report(predictor, short, num_samples=5, seed=1) for _ in range(2))
    table, ahead = report.regimes, report.ahead
    pd.testing.assert_frame_equal(table, again.regimes)
    pd.testing.assert_frame_equal(ahead, again.ahead)
    assert [*table] == ["item_id", "timestamp", "p_1", "p_2", "p_3", "most_likely"]
    np.testing.assert_allclose(table[["p_1", "p_2", "p_3"]].sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(ahead[["p_1", "p_2", "p_3"]].sum(1), 1, rtol=1e-5)


def test_paths_are_drawn_without_states_and_few_series_at_a_time(known, monkeypatch):
    """The switches are those of the smoother of states, number by number; a batch holds no more than the bound."""
    _, entries, _ = known
    few = {"state_dim": 2, "hidden": 3, "embedding_dim": 2, "num_particles": 3, "context_length": 10}
    predictor = trained("sgls", entries, switch="gaussian", switch_dim=3, **few)
    short = [{**entry, "target": entry["target"][-12:]} for entry in entries] * 3
    histories = predictor.histories()
    needed = bytes_of_particles(histories, short[0], 5)
    # Three particles of at least a mean, a covariance, a switch and a weight in single precision.
    assert needed >= 4 * 3 * (2 + 4 + 1 + 1) * (12 + 5)
    assert bytes_of_particles(histories, entries[0], 5) > needed
    net, windows = histories.net, [cut(one, 12, None, 0) for one in histories.transform(iter(short), is_train=True)]
    batch = collate(windows, histories.device)
    with torch.no_grad():
        drawn = net.inference.smoothed(batch, 5, torch.Generator().manual_seed(1)).switches
        whole = net.inference.dynamics.mixing_weights(drawn).mean(1)
        sizes, found = [], net.inference.regimes
        monkeypatch.setattr("tsforecast.core.kalman.smooth", None)  # states are not asked for
        torch.testing.assert_close(found(batch, 5, torch.Generator().manual_seed(1)).probabilities, whole)

    def seen(batch, *arguments):
        sizes.append(len(batch["past_target"]))
        return found(batch, *arguments)

    monkeypatch.setattr(type(net.inference), "regimes", lambda self, *arguments: seen(*arguments))
    monkeypatch.setattr("tsforecast.analysis.regimes.BYTES", 2.5 * needed)
    regime_report(predictor, short, num_samples=5)
    assert sizes
    assert max(sizes) <= 2


def test_what_cannot_be_answered_is_refused(known):
    predictor, entries, _ = known
    with pytest.raises(ValueError, match="ISSMForecaster has none"):
        regime_report(trained("issm", entries, components="level"), entries)
    few = {"state_dim": 2, "hidden": 3, "embedding_dim": 2, "num_particles": 3, "context_length": 10}
    with pytest.raises(ValueError, match="at least two regimes, got 1"):
        regime_report(trained("sgls", entries, switch="categorical", switch_dim=1, **few), entries, num_samples=2)
    with pytest.raises(ValueError, match=r"between 0 and 1, got 0\.0"):
        regime_report(predictor, entries, level=0.0)
    with pytest.raises(ValueError, match="at least one series"):
        regime_report(predictor, [])
    with pytest.raises(ValueError, match="at least one step"):
        regime_report(predictor, entries, last=0)
    with pytest.raises(ValueError, match="s1"):
        regime_report(predictor, [entries[0], {**entries[1], "start": pd.Period("2024-01", "M")}])


KEYS = ["item_id", "timestamp"]


def test_the_command_writes_tables_and_pictures(tmp_path, capsys):
    entries, _ = switching_entries(50)
    days = pd.date_range("2024-01-01", periods=50, freq="D")
    frame = pd.concat([pd.DataFrame({"item_id": e["item_id"], "day": days, "load": e["target"]}) for e in entries])
    frame.to_csv(tmp_path / "load.csv", index=False)
    run = str(tmp_path / "run")
    few = ["--windows=0", "--prediction_length=4", "--max_epochs=1", "--accelerator=cpu", "--threads=1"]
    assert main(["train", "markov", "--data", str(tmp_path / "load.csv"), *few, "--output", run]) == 0
    assert main(["regimes", run, "--device", "cpu", "--plot_series", "1", "--last", "30"]) == 0
    said = capsys.readouterr().out
    assert "share of time by regime: " in said
    folder = tmp_path / "run" / "regimes"
    files = {"regimes.csv", "changes.csv", "ahead.csv", "names.csv", "regimes-1.png"}
    assert {path.name for path in folder.iterdir()} == files
    names = pd.read_csv(folder / "names.csv").set_index("regime")["name"]
    assert all(f"({name})" in said for name in names)
    written = pd.read_csv(folder / "regimes.csv")
    assert (written["name"] == written["most_likely"].map(names)).all()
    assert len(pd.read_csv(folder / "regimes.csv")) == 2 * 30
    assert len(pd.read_csv(folder / "ahead.csv")) == 2 * 4
    assert main(["bucket", str(tmp_path / "load.csv"), str(tmp_path / "buckets"), "--buckets", "2"]) == 0
    many = ["--data", str(tmp_path / "buckets"), "--last", "30", "--device", "cpu", "--output", str(tmp_path / "many")]
    assert main(["regimes", run, *many]) == 0
    found = pd.concat(pd.read_parquet(path) for path in (tmp_path / "many").glob("*.parquet"))
    for name, rows in (("regimes", found[~found["ahead"]]), ("ahead", found[found["ahead"]])):
        table = pd.read_csv(folder / f"{name}.csv", parse_dates=["day"]).rename(columns={"day": "timestamp"})
        table = table.drop(columns="name")  # a bucket does not know what series of others do
        pd.testing.assert_frame_equal(
            rows[list(table)].sort_values(KEYS, ignore_index=True),
            table.sort_values(KEYS, ignore_index=True),
            rtol=1e-4,
        )
    changes = pd.read_csv(folder / "changes.csv", parse_dates=["day", "lower", "upper"])
    assert found["expected"].notna().sum() == len(changes) > 0
    assert main(["regimes", run, "--level", "1.5"]) == 2
    assert main(["regimes", str(tmp_path / "nothing")]) == 2


def test_a_model_with_curves_has_regimes_of_a_past_without_covariates_behind_it():
    random = np.random.default_rng(0)
    covariate = random.normal(size=(1, 120))
    target = 10 + 3 * np.abs(covariate[0]) + random.normal(0, np.where(np.arange(120) // 30 % 2, 2.0, 0.2))
    entry = {"item_id": "a", "start": pd.Period("2020-01-01", "D"), "target": target, "feat_dynamic_real": covariate}
    predictor = trained("markov", [entry], effects="curves")
    assert predictor.input_transform.effects is not None
    table = regime_report(predictor, [entry]).regimes
    assert len(table) == 120
