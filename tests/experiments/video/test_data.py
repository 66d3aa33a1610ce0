"""Files of videos, users' own among them, the batches made of them, and the script that makes the data sets."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.video.data import VideoDataset, load_video, make_batch, make_video, save_video
from experiments.video.worlds import WORLDS
from tests.data.test_datasets import script
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import collate, cut

convert = script("video").main


def noise(*size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size or (3, 4, 16, 8)).astype(np.uint8)


def binary(*size, seed=0):
    return noise(*size, seed=seed) > 128


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deeper" / "my.npz"


def write(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


# Files


@pytest.mark.parametrize(
    "frames", [binary(), noise(), noise().astype(np.float32) / 255], ids=["binary", "grey", "float"]
)
def test_what_is_saved_comes_back(path, frames):
    observed = np.ones((3, 4), dtype=bool)
    observed[1, 2] = False
    truths = {"position": np.random.default_rng(1).normal(size=(3, 4, 2)), "collision": observed}
    video = make_video(frames, observed, truths, {"seed": 3, "walls": [[1.5, 2.0]]})
    save_video(path, video)
    again = load_video(path)
    assert again.frames.dtype == frames.dtype
    assert again.is_binary == (frames.dtype == bool)
    np.testing.assert_array_equal(again.frames, frames)
    np.testing.assert_array_equal(again.observed, observed)
    assert again.truths.keys() == truths.keys()
    for name, values in truths.items():
        np.testing.assert_array_equal(again.truths[name], values)
    assert again.metadata["seed"] == 3
    assert again.metadata["walls"] == [[1.5, 2.0]]
    assert again.metadata["sha256"] == again.checksum == video.checksum
    assert [child.name for child in path.parent.iterdir()] == ["my.npz"]


def test_binary_frames_take_a_bit_a_pixel(path):
    save_video(path, make_video(binary(10, 10, 32, 32)))
    with np.load(path) as file:
        assert file["frames_bits"].nbytes == 10 * 10 * 32 * 4
        assert "observed" not in file.files
    save_video(path, load_video(path))  # may be saved again


def test_checksums_tell_values_and_sizes_apart():
    frames = binary(2, 4, 16, 8)
    other = frames.copy()
    other[1, 2, 3, 4] ^= True
    assert make_video(frames).checksum == make_video(frames.copy(order="F")).checksum
    assert len({make_video(x).checksum for x in (frames, other, frames.reshape(4, 2, 16, 8), frames[:1])}) == 4


def test_a_file_is_written_whole_or_not_at_all(path, monkeypatch):
    save_video(path, make_video(binary()))
    before = path.read_bytes()

    def fail(file, **arrays):
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        save_video(path, make_video(noise()))
    assert path.read_bytes() == before
    assert [child.name for child in path.parent.iterdir()] == ["my.npz"]


def test_other_names_than_npz_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ends in .npz, got '.*my.zip'"):
        save_video(tmp_path / "my.zip", make_video(binary()))


@pytest.mark.parametrize(
    ("frames", "want"),
    [
        (binary(), binary()),
        (binary().astype(np.uint8), binary()),
        (255 * binary().astype(np.uint8), binary()),
        (binary().astype(np.float64), binary()),
        (noise(), noise()),
        (noise() % 3, noise() % 3),
        (noise() / 256, (noise() / 256).astype(np.float32)),
        (np.zeros((1, 2, 8, 8), np.uint8), np.zeros((1, 2, 8, 8), bool)),
        (np.full((1, 2, 8, 8), 255, np.uint8), np.ones((1, 2, 8, 8), bool)),
    ],
)
def test_a_users_file_needs_frames_alone(path, frames, want):
    video = load_video(write(path, frames=frames, labels=np.arange(3)))
    assert video.frames.dtype == want.dtype
    np.testing.assert_array_equal(video.frames, want)
    assert video.observed.all()
    assert video.observed.shape == want.shape[:2]
    assert (video.truths, video.metadata) == ({}, {})


def test_missing_frames_may_be_nan(path):
    frames, observed = noise() / 255, np.ones((3, 4), dtype=bool)
    frames[2, 1], observed[2, 1] = np.nan, False
    video = load_video(write(path, frames=frames, observed=observed))
    assert np.isfinite(video.frames).all()
    np.testing.assert_array_equal(video.frames[0], frames[0].astype(np.float32))


def spoilt(value):
    frames = noise() / 255
    frames[1, 3, 2, 2] = value
    return frames


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"array named 'frames' of shape \(sequence, time, height, width\), found nothing"),
        ({"images": noise()}, "array named 'frames' .*found images"),
        ({"frames": noise(4, 16, 8)}, r"got \(4, 16, 8\); one sequence is frames\[None\]"),
        ({"frames": noise(2, 4, 16, 8, 3)}, r"got \(2, 4, 16, 8, 3\); colours are not modelled"),
        ({"frames": noise(7)}, r"expected frames of shape .*, got \(7,\)"),
        ({"frames": noise(0, 4, 16, 8)}, r"got none: \(0, 4, 16, 8\)"),
        ({"frames": noise(2, 0, 16, 8)}, r"got none: \(2, 0, 16, 8\)"),
        ({"frames": noise(2, 1, 16, 8)}, "at least 2 frames in a sequence, got 1"),
        ({"frames": noise(2, 4, 4, 8)}, "multiples of 8, .*got 4 x 8"),
        ({"frames": noise(2, 4, 16, 28)}, "multiples of 8, .*got 16 x 28; crop the frames or add a border"),
        ({"frames": noise().astype(np.int64)}, r"bool, uint8 .* or floats .*, got int64; .*astype\(np.uint8\)"),
        ({"frames": noise().astype("U3")}, "got <U3"),
        ({"frames": noise().astype(complex)}, "got complex128"),
        ({"frames": noise().astype(float)}, "floats from 0 to 1, got 0 to 255; divide"),
        ({"frames": spoilt(-0.5)}, "floats from 0 to 1, got -0.5 to 1"),
        ({"frames": spoilt(np.nan)}, "got NaN or infinite ones in sequence 1, frame 3; mark missing"),
        ({"frames": spoilt(np.inf)}, "got NaN or infinite ones in sequence 1, frame 3"),
        ({"frames": noise(), "observed": np.ones((3, 5), bool)}, r"observed of shape \(3, 4\), .* got \(3, 5\)"),
        ({"frames": noise(), "observed": np.ones((3, 4))}, "observed of type bool, got float64"),
        ({"frames": noise(), "observed": np.arange(12).reshape(3, 4) > 3}, "no frame of sequence 0 is observed"),
        ({"frames": noise(), "position": np.ones((3, 2))}, r"position of shape \(3, 4\) and more, .* got \(3, 2\)"),
        ({"frames": noise(), "position": np.full((3, 4), "a")}, "numbers in position, got values of type <U1"),
        ({"frames_bits": noise() / 255}, "unsigned byte"),
        ({"frames": noise(), "metadata": np.array("[1]")}, "metadata to be a JSON object, got list"),
        ({"frames": noise(), "metadata": np.array("{")}, "Expecting"),
        ({"frames": noise(), "metadata": np.array('{"format": 2}')}, "version 1 of the format, got 2"),
        ({"frames": np.array([[None]])}, "allow_pickle"),
    ],
)
def test_users_files_with_mistakes_are_refused(path, arrays, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_video(write(path, **arrays))
    assert str(caught.value).startswith(f"{path}: ")


def test_truths_are_those_with_a_name():
    with pytest.raises(ValueError, match="truths among position, velocity, paddles, collision, got 'speed'"):
        make_video(noise(), truths={"speed": np.ones((3, 4))})


def test_files_that_are_none_of_ours_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_video(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", noise())
    save_video(tmp_path / "whole.npz", make_video(noise()))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("text.npz", "array.npy", "half.npz"):
        with pytest.raises(ValueError, match="expected a whole npz file"):
            load_video(tmp_path / name)


def test_damage_is_seen(path):
    save_video(path, make_video(binary()))
    with np.load(path) as file:
        arrays = dict(file)
    arrays["frames_bits"][0, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match="do not have the checksum"):
        load_video(write(path, **arrays))
    whole = bytearray(write(path, frames=noise()).read_bytes())
    whole[300] ^= 255
    path.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=r"my.npz: .*CRC"):
        load_video(path)


# Batches


def test_a_batch_is_what_series_give():
    """The same pixels as a multivariate series without covariates, through the transformations of series."""
    video = make_video(noise(), np.arange(12).reshape(3, 4) % 5 != 1)
    prepare = Prepare(prediction_length=2, seasons=[], items=[], cardinality=[], num_targets=128)
    windows = []
    for frames, observed in zip(video.frames, video.observed, strict=True):
        pixels = np.where(observed[:, None], frames.reshape(4, -1) / np.float32(255), np.nan)
        entry = {"start": pd.Period("2024-01-01", "D"), "target": pixels.T}
        windows.append(cut(prepare.map_transform(entry, is_train=True), 2, None, 2))
    want = collate(windows)
    batch = make_batch(video.frames, video.observed, past_length=2)
    assert batch.keys() == want.keys() - {"forecast_start"}
    for name, values in batch.items():
        reference = torch.zeros(3, 2, 1) if name.endswith("time_feat") else want[name]  # there is no calendar
        if values.dtype == torch.float32:  # pixels of a byte, which those of series have in float64
            reference = reference.float()
        assert values.dtype == reference.dtype, name
        assert torch.equal(values.nan_to_num(7), reference.nan_to_num(7)), name


def test_pixels_are_between_0_and_1_row_by_row():
    frames = np.zeros((1, 2, 8, 8), np.uint8)
    frames[0, 1, 2, 3] = 255
    for values in (frames, frames > 0, frames.astype(np.float32) / 255):
        batch = make_batch(values, np.ones((1, 2), dtype=bool))
        assert batch["past_target"].dtype == torch.float32
        assert batch["past_target"].flatten().nonzero().tolist() == [[64 + 2 * 8 + 3]]
        assert batch["past_target"].max() == 1
    grey = make_batch(np.full((1, 2, 8, 8), 51, np.uint8), np.ones((1, 2), bool))
    assert grey["past_target"].unique().tolist() == [np.float32(0.2)]


def test_a_loader_gives_every_sequence_once():
    video = make_video(noise(7, 6, 8, 8))
    data = VideoDataset(video, past_length=4, future_length=1)
    loader = torch.utils.data.DataLoader(
        data, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(0), collate_fn=data.collate
    )
    batches = list(loader)
    assert [len(batch["past_target"]) for batch in batches] == [3, 3, 1]
    pixels = torch.cat([torch.cat([batch["past_target"], batch["future_target"]], 1) for batch in batches])
    want = torch.from_numpy(video.frames[:, :5].reshape(7, 5, 64)) / 255
    assert pixels.shape == want.shape
    assert not torch.equal(pixels, want)
    rows = lambda x: sorted(map(tuple, x.flatten(1).tolist()))  # noqa: E731
    assert rows(pixels) == rows(want)


def test_all_frames_are_past_unless_said():
    data = VideoDataset(make_video(noise()))
    batch = data.collate([data[0], data[2]])
    assert batch["past_target"].shape == batch["past_observed"].shape == (2, 4, 128)
    assert batch["future_target"].shape == batch["known_future"].shape == (2, 0, 128)
    assert VideoDataset(make_video(noise()), future_length=3).past_length == 1


@pytest.mark.parametrize(("past", "future"), [(5, 0), (0, 2), (3, 2), (None, 4), (2, -1)])
def test_windows_must_fit(past, future):
    with pytest.raises(ValueError, match="together at most 4, which is what sequences have; got"):
        VideoDataset(make_video(noise()), past, future)


# The script


def run(folder, *options, world="box"):
    convert([world, "--sequences", "5", "--test-sequences", "3", "--output", str(folder), *options])
    return load_video(folder / "train.npz"), load_video(folder / "test.npz")


@pytest.mark.parametrize("world", WORLDS)
def test_the_script_writes_both_parts(tmp_path, world, caplog):
    caplog.set_level("INFO")
    train, test = run(tmp_path, world=world)
    assert train.frames.shape == (5, 20, 32, 32)
    assert test.frames.shape == (3, 60, 32, 32)
    assert train.is_binary
    assert (train.truths["position"][:3, 0] != test.truths["position"][:, 0]).any(-1).all()  # other random numbers
    assert train.metadata["world"] == world
    assert train.metadata["constants"]["radius"] == 3
    assert train.checksum in caplog.text
    assert test.checksum in caplog.text


def test_files_follow_from_the_options_alone(tmp_path):
    first, again, other = (run(tmp_path / name, "--seed", name[0]) for name in ("1a", "1b", "2"))
    for part in (0, 1):
        assert first[part].checksum == again[part].checksum != other[part].checksum
    assert (tmp_path / "1a/train.npz").read_bytes() == (tmp_path / "1b/train.npz").read_bytes()


def test_files_are_kept_if_they_are_the_same(tmp_path, capsys):
    run(tmp_path)
    (tmp_path / "test.npz").unlink()  # as if stopped between the two
    before = (tmp_path / "train.npz").stat().st_mtime_ns
    run(tmp_path)
    assert (tmp_path / "train.npz").stat().st_mtime_ns == before
    with pytest.raises(SystemExit, match=r"train\.npz is there with another seed, 0 and not 1; pass --overwrite"):
        run(tmp_path, "--seed", "1")
    assert (tmp_path / "train.npz").stat().st_mtime_ns == before
    assert run(tmp_path, "--seed", "1", "--overwrite")[0].metadata["seed"] == 1
    (tmp_path / "test.npz").write_text("damaged")
    with pytest.raises(SystemExit, match=r"expected a whole npz file.*pass --overwrite"):
        run(tmp_path, "--seed", "1")


def test_the_script_says_what_is_wrong(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="error: expected count to be at least 1, got 0"):
        run(tmp_path, "--sequences", "0")
    with pytest.raises(SystemExit, match="error: expected workers to be at least 1, got 0"):
        run(tmp_path, "--workers", "0")
    monkeypatch.setitem(sys.modules, "pymunk", None)
    with pytest.raises(SystemExit, match=r"error: .*pip install 'tsforecast"):
        run(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_script_goes_to_the_home_of_data(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    convert(["pong", "--sequences", "2", "--test-sequences", "1"])
    assert load_video(tmp_path / "video" / "pong" / "test.npz").frames.shape == (1, 60, 32, 32)
