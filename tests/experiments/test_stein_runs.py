"""The scripts that make the tables of particles and of fusion, made small."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    """Import a script of a folder, and call it as the shell does."""
    monkeypatch.syspath_prepend(str(ROOT / "datasets"))

    def call(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        importlib.import_module(name).main()

    return call


def raw_set(folder: Path, rows: int = 60) -> None:
    """As the shared folders of papers are."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    np.savetxt(folder / "data.txt", np.column_stack([x, 100 + 10 * x.sum(1) + rng.normal(size=rows)]))
    np.savetxt(folder / "index_features.txt", [0, 1], fmt="%d")
    np.savetxt(folder / "index_target.txt", [2], fmt="%d")
    for k in range(4):
        np.savetxt(folder / f"index_test_{k}.txt", rng.permutation(rows)[:6], fmt="%d")


def test_splits_are_prepared_and_a_table_goes_on_where_it_stopped(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "data"))
    raw_set(tmp_path / "raw" / "yacht" / "data")
    script("uci_splits", tmp_path / "raw")
    folder, table = tmp_path / "data" / "uci-splits", tmp_path / "table.csv"
    options = ["--folder", folder, "--data", "yacht", "--particles", 3, "--steps", 20, "--rate", 0.03, "--splits", 1, 3]
    script("experiments.stein.run", *options, "--output", table, "--methods", "svgd")
    script("experiments.stein.run", *options, "--output", table)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["svgd"] * 2 + ["s2vgd"] * 2
    assert all(float(row["rmse"]) < 14 for row in rows)  # the targets' deviation is 14
    script("experiments.stein.run", *options, "--output", tmp_path / "none.csv", "--validate", "--methods", "svgd")
    assert not (tmp_path / "none.csv").exists()
    (tmp_path / "raw" / "yacht" / "data" / "index_target.txt").unlink()
    with pytest.raises(ValueError, match=r"expected data\.txt and its index files"):
        script("uci_splits", tmp_path / "raw")


def test_a_split_alone_is_the_same_as_among_others(script, tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "data"))
    raw_set(tmp_path / "raw" / "yacht" / "data", rows=160)  # more than a batch of 100
    script("uci_splits", tmp_path / "raw")
    options = ["--folder", tmp_path / "data" / "uci-splits", "--data", "yacht", "--particles", 3, "--steps", 20]
    script("experiments.stein.run", *options, "--methods", "svgd", "--splits", 1, 3, "--output", tmp_path / "both.csv")
    script("experiments.stein.run", *options, "--methods", "svgd", "--splits", 3, "--output", tmp_path / "alone.csv")
    (_, among), (alone,) = rows_of(tmp_path / "both.csv"), rows_of(tmp_path / "alone.csv")
    assert among["split"] == alone["split"] == "3"
    for name in ("rmse", "log_likelihood"):  # to the last digit but one of float32
        assert float(among[name]) == pytest.approx(float(alone[name]), rel=1e-4)


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_shards_are_fused_beside_one_learner_of_all(script, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    labels = np.where(x[:, 0] > 0, "right", "left")
    lines = [f"{a},{b},{label}" for (a, b), label in zip(x, labels, strict=True)]
    (tmp_path / "set.csv").write_text("a,b,target\n" + "\n".join(lines))
    options = ["--data", tmp_path / "set.csv", "--points", 80, "--test", 20, "--seeds", 0, "--learners", "vd-ekf"]
    script("experiments.fusion.run", *options, "--shards", 1, 2, "--output", tmp_path / "table.csv")
    script("experiments.fusion.run", *options, "--shards", 2, "--together", 16, "--output", tmp_path / "table.csv")
    script("experiments.fusion.run", *options, "--shards", 1, 2, "--output", tmp_path / "table.csv")
    found = rows_of(tmp_path / "table.csv")
    assert [row["method"] for row in found] == ["all", *["fused", "average", "experts", "shard"] * 2]
    assert all(0 <= float(row["error"]) < 0.6 for row in found)


def test_auto_encoders_of_several_sources_are_scored_by_all_bounds(script, tmp_path, capsys):
    rng = np.random.default_rng(0)
    images = {f"x_{part}": rng.integers(0, 256, (20, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **images)
    options = ["--steps", 2, "--hidden", 8, "--latent", 2, "--test", 10, "--picture", tmp_path / "mixture.png"]
    options += ["--output", tmp_path / "table.csv"]
    with pytest.raises(SystemExit):
        script("experiments.fusion.multi_source", *options)
    assert "expected --mnist FILE for digits" in capsys.readouterr().err
    for _ in range(2):
        script(
            "experiments.fusion.multi_source", *options, "--mnist", tmp_path / "mnist.npz", "--trained", "poe", "ind"
        )
    found = rows_of(tmp_path / "table.csv")
    names = ("tb", "qu", "no", "mix")
    assert [(row["data"], row["trained"]) for row in found] == [(d, t) for d in names for t in ("poe", "ind")]
    assert all(0 < float(row["nats_missing"]) < float(row["nats_poe"]) for row in found if row["data"] in ("tb", "qu"))
    assert all(bool(row["nats_exact"]) == (row["data"] == "mix") for row in found)
    assert (tmp_path / "mixture.png").stat().st_size > 10_000


def test_the_density_of_the_mixture_is_exact(monkeypatch):
    """It integrates to one, and its entropy is that of components that hardly overlap, less the choice among them."""
    multi_source = importlib.import_module("experiments.fusion.multi_source")
    line = torch.linspace(-2, 2, 161, dtype=torch.float64)
    density = multi_source.log_density(torch.cartesian_prod(line, line)).exp()
    assert density.sum().item() * 0.025**2 == pytest.approx(1, abs=1e-9)
    torch.manual_seed(0)
    drawn = multi_source.draw_points("mix", torch.zeros(0), 20_000, "cpu")
    found = -multi_source.log_density(torch.cat(drawn.sources, -1).double())
    entropy = -(density * density.log()).sum().item() * 0.025**2
    assert found.mean().item() == pytest.approx(entropy, abs=4 * found.std().item() / 20_000**0.5)


def test_a_broken_sensor_falls_in_soundness(script, tmp_path, monkeypatch):
    """Six signals of one factor: each that breaks is found, and the others are not doubted."""
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    sensors = importlib.import_module("experiments.fusion.sensors")
    monkeypatch.setattr(sensors, "BATCH", slice(0, 240))
    monkeypatch.setattr(sensors, "TRAINED", 120)
    monkeypatch.setattr(sensors, "BREAKS", 170)
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(240, 1))
    logs = 8 + 0.8 * factor + 0.1 * rng.normal(size=(240, 6))
    names = [f"x{8 * (k - 1) + 1}" for k in sensors.SENSORS]
    np.savetxt(tmp_path / "gas-drift.csv", np.exp(logs), delimiter=",", header=",".join(names), comments="")
    script("experiments.fusion.sensors", "--output", tmp_path / "table.csv", "--picture", tmp_path / "sensors.png")
    found = rows_of(tmp_path / "table.csv")
    assert [(row["fault"], row["sensor"]) for row in found] == [
        (fault, str(sensor)) for fault in sensors.FAULTS for sensor in sensors.SENSORS
    ]
    for row in found:
        assert float(row["sound_after"]) < float(row["sound_before"])
        assert float(row["sound_after"]) < float(row["others_after"])
        assert float(row["conflict_after"]) > float(row["conflict_before"])
    assert (tmp_path / "sensors.png").stat().st_size > 20_000


def test_a_factor_is_found_by_em(script, monkeypatch):
    """Loadings and noises of many points, within standard errors of the covariance they imply."""
    sensors = importlib.import_module("experiments.fusion.sensors")
    rng = torch.Generator().manual_seed(0)
    a, noise = torch.tensor([0.9, 0.5, -0.7, 0.3]).double(), torch.tensor([0.2, 0.8, 0.5, 0.9]).double()
    count = 20_000
    z = torch.randn(count, 1, generator=rng, dtype=torch.float64)
    x = z * a + noise.sqrt() * torch.randn(count, 4, generator=rng, dtype=torch.float64)
    loading, variance = sensors.fit(x, steps=2000)
    implied = torch.outer(loading, loading) + torch.diag(variance)
    true = torch.outer(a, a) + torch.diag(noise)
    error = ((true.square() + torch.outer(true.diagonal(), true.diagonal())) / count).sqrt()
    assert ((implied - true).abs() < 4 * error).all()


@pytest.fixture
def streams(script, tmp_path, monkeypatch):
    """Two small streams, of two and of three classes, and a table for their scores."""
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    drift = importlib.import_module("experiments.memory.drift")
    monkeypatch.setattr(drift, "RATES", {"toy": (0.03,), "weather": (0.01,), "gas": (0.01,)})
    small = {"weather": drift.Stream("noaa", 40, 10, (16, 16)), "gas": drift.Stream("gas-drift", 40, 10, (8, 8))}
    monkeypatch.setattr(drift, "STREAMS", small)
    rng = np.random.default_rng(0)
    for name, words in (("noaa", ["dry", "rain"]), ("gas-drift", ["acetone", "ammonia", "ethanol"])):
        x = rng.normal(size=(72, 2))
        classes = (x[:, 0] > x[:, 1]).astype(int) + (x[:, 0] > 1) * (len(words) > 2)
        lines = [f"{a:.3f},{b:.3f},{words[k]}" for (a, b), k in zip(x, classes, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,target", *lines]))
    yield drift
    torch.set_default_dtype(torch.float32)


def test_learners_with_a_memory_adapt_to_a_boundary_that_turns(streams, script, tmp_path):
    options = ["--seeds", 0, "--size", 4, "--blocks", 30, "--output", tmp_path / "table.csv"]
    for _ in range(2):
        script("experiments.memory.drift", *options, "--data", "toy", "weather")
    script("experiments.memory.drift", *options, "--data", "gas", "--rates", 0.02)
    script("experiments.memory.drift", "--draw", "--output", tmp_path / "table.csv", "--image", tmp_path / "drift.png")
    found = rows_of(tmp_path / "table.csv")
    assert [(row["data"], row["adaptation"], row["blocks"]) for row in found] == [
        (data, name, blocks)
        for data, blocks in (("toy", "30"), ("weather", "5"), ("gas", "5"))
        for name in streams.ADAPTATIONS
    ]
    assert {row["rate"] for row in found if row["data"] == "gas"} == {"0.0", "0.02"}
    scores = {row["adaptation"]: float(row["lml"]) for row in found if row["data"] == "toy"}
    assert scores["ou"] > scores["none"]  # half of a turn
    assert all(float(row["lml"]) > np.log(1 / 3) for row in found if row["data"] == "gas")  # that of a guess
    assert (tmp_path / "drift.png").stat().st_size > 10_000


def test_blocks_are_standardised_by_the_first_and_hold_every_row(streams):
    inputs, target = (torch.cat(parts) for parts in zip(*streams.blocks_of(streams.STREAMS["gas"]), strict=True))
    assert len(inputs) == 72
    torch.testing.assert_close(inputs[:40].std(0), torch.ones(2))
    assert {*target[:, 0].tolist()} == {0.0, 1.0, 2.0}


def test_memories_stand_beside_avalanche_where_it_is_installed(streams, script, tmp_path, monkeypatch, capsys):
    options = ["--seeds", 0, "--size", 4, "--output", tmp_path / "table.csv"]
    peers = importlib.import_module("experiments.memory.peers")
    monkeypatch.setattr(peers, "STREAMS", streams.STREAMS)
    for _ in range(2):
        script("experiments.memory.peers", *options, "--learners", "vb", "vb-grs")
    found = rows_of(tmp_path / "table.csv")
    assert [(row["learner"], row["memory_size"]) for row in found] == [("vb", "0"), ("vb-grs", "4")]
    assert all(float(row["past_lml"]) > np.log(1 / 3) for row in found)
    script("experiments.memory.peers", *options, "--summary")
    assert [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()[-2:]] == ["vb", "vb-grs"]
    monkeypatch.setitem(sys.modules, "avalanche", None)
    monkeypatch.setitem(sys.modules, "avalanche.benchmarks", None)
    with pytest.raises(SystemExit, match="replay needs Avalanche: `pip install avalanche-lib`"):
        script("experiments.memory.peers", *options, "--learners", "replay")


def test_digits_are_scored_by_the_mixture_of_particles(script, tmp_path):
    rng = np.random.default_rng(0)
    labels = {part: rng.integers(0, 2, 40) for part in ("train", "test")}
    images = {part: np.zeros((40, 28, 28), np.uint8) for part in labels}
    for part, places in labels.items():
        images[part][np.arange(40), 10 * places] = 255  # a bright row tells the digit
    np.savez(
        tmp_path / "mnist.npz", **{f"x_{k}": x for k, x in images.items()}, **{f"y_{k}": y for k, y in labels.items()}
    )
    options = ["--mnist", tmp_path / "mnist.npz", "--steps", 30, "--particles", 2, "--hidden", 4, "--rate", 0.05]
    for _ in range(2):
        script("experiments.stein.digits", *options, "--output", tmp_path / "table.csv")
    found = rows_of(tmp_path / "table.csv")
    assert [(row["method"], row["particles"]) for row in found] == [("map", "1"), ("svgd", "2"), ("s2vgd", "2")]
    assert all(float(row["error"]) == 0 for row in found)
    assert all(float(row["nll"]) < np.log(10) for row in found)


def test_the_error_of_a_mixture_is_that_of_its_mean_probabilities(monkeypatch):
    digits = importlib.import_module("experiments.stein.digits")
    p = torch.tensor([[[0.6, 0.4], [0.9, 0.1]], [[0.1, 0.9], [0.8, 0.2]]])
    found = digits.scores(p.log(), torch.tensor([[1.0], [0.0]]))
    assert found == {"error": "0.0000", "error_each": "0.2500", "nll": f"{-0.5 * np.log(0.65 * 0.85):.4f}"}
