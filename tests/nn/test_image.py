"""Networks for frames, with loops over pixels written out."""

import re

import numpy as np
import pytest
import torch

from tsforecast.nn import ImageDecoder, ImageEncoder, ImageSize
from tsforecast.nn.image import begin_at, principal_components

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def convolve(image, layer, stride):
    """Cross-correlation of (channel, height, width) with a border of zeros, pixel by pixel."""
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    rows, columns = (range(0, size, stride) for size in image.shape[1:])
    found = [[(layer.weight * padded[:, i : i + 3, j : j + 3]).sum((1, 2, 3)) for j in columns] for i in rows]
    return torch.stack([torch.stack(row, -1) for row in found], 1) + layer.bias[:, None, None]


def shuffle(image):
    """Four channels are the four pixels of a square."""
    channels, height, width = image.shape
    out = image.new_zeros(channels // 4, 2 * height, 2 * width)
    for channel in range(channels):
        out[channel // 4, channel % 4 // 2 :: 2, channel % 2 :: 2] = image[channel]
    return out


def test_the_encoder_halves_frames_three_times():
    size = ImageSize(16, 8, filters=3)
    encoder = ImageEncoder(size).double()
    frames = torch.rand(5, 2, 16 * 8, dtype=torch.float64)
    image = frames[3, 1].reshape(1, 16, 8)
    for layer in encoder.layers[::2]:
        image = convolve(image, layer, 2).relu()
    assert image.shape == size.smallest == (3, 2, 1)
    found = encoder(frames)
    assert found.shape == (5, 2, size.num_features)
    torch.testing.assert_close(found[3, 1], image.flatten(), **EXACT)


def test_the_decoder_doubles_images_three_times_and_gives_channel_after_channel():
    size = ImageSize(8, 16, filters=2)
    decoder = ImageDecoder(3, 2, size).double()
    auxiliary = torch.randn(4, 2, 3, dtype=torch.float64)
    image = decoder.first(auxiliary[2, 1]).reshape(size.smallest)
    for layer in decoder.layers[:-1:3]:
        image = shuffle(convolve(image, layer, 1).relu())
    last = decoder.layers[-1]
    expected = torch.einsum("oi,ihw->ohw", last.weight[..., 0, 0], image) + last.bias[:, None, None]
    found = decoder(auxiliary)
    assert found.shape == (4, 2, 2 * 8 * 16)
    torch.testing.assert_close(found[2, 1], expected.flatten(), **EXACT)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((12, 8), "multiples of 8 pixels, got 12 x 8"),
        ((8, 0), "multiples of 8 pixels, got 8 x 0"),
        ((8, 8, 0), "filters to be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ImageSize(*sizes)


def test_principal_components():
    """Against numpy's eigenvectors; there are as many as the rank."""
    features = torch.randn(50, 6, dtype=torch.float64) @ torch.diag(torch.tensor([3.0, 1, 0.5, 2, 0, 0]).double()) + 7
    values, vectors = np.linalg.eigh(np.cov(features.numpy().T, bias=True))
    centred = features.numpy() - features.numpy().mean(0)
    expected = centred @ vectors[:, [-1, -2]] / np.sqrt(values[[-1, -2]])
    found = principal_components(features, 2)
    np.testing.assert_allclose(found.abs().numpy(), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(found.numpy().var(0), 1.0, rtol=1e-9)
    assert principal_components(features, 6).shape == (50, 4)
    assert principal_components(torch.ones(4, 6), 2).shape == (4, 0)


def test_a_layer_begins_at_what_is_wanted():
    inputs = torch.randn(50, 4, dtype=torch.float64)
    inputs[:, 3] *= 1e-3  # hardly varies: it would need large weights
    weight = torch.randn(3, 2, dtype=torch.float64)
    inputs -= inputs.mean(0)
    inputs[:, 3] -= inputs[:, :3] @ (torch.linalg.pinv(inputs[:, :3]) @ inputs[:, 3])
    wanted = inputs[:, :3] @ weight + 5
    inputs += 2
    layer = torch.nn.Linear(4, 5).double()
    before = layer.weight.detach().clone(), layer.bias.detach().clone()
    begin_at(layer, inputs, wanted)
    torch.testing.assert_close(layer(inputs)[:, :2], wanted, **EXACT)
    assert layer.weight[:2, 3].abs().max() < 1e-9
    assert torch.equal(layer.weight[2:], before[0][2:])
    assert torch.equal(layer.bias[2:], before[1][2:])
    begin_at(layer, inputs, wanted[:, :0])
    torch.testing.assert_close(layer(inputs)[:, :2], wanted, **EXACT)


def test_features_are_standardised():
    encoder = ImageEncoder(ImageSize(16, 16, filters=3)).double()
    frames = torch.rand(7, 2, 256, dtype=torch.float64)
    features = encoder(frames)
    encoder.standardise(frames)
    torch.testing.assert_close(encoder(frames), features / features.std(), **EXACT)
    weight = encoder.layers[-2].weight.clone()
    encoder.standardise(torch.zeros(3, 256, dtype=torch.float64))  # nothing to be seen
    assert torch.equal(encoder.layers[-2].weight, weight)


def test_convolutions_keep_the_size_of_what_passes():
    """Second moments of an image of white noise after three layers are of its own order."""
    size = ImageSize(32, 32, filters=64)
    frames = torch.randn(64, 1024)
    passed = ImageEncoder(size).layers(frames.reshape(-1, 1, 32, 32)).square().mean().item()
    assert 0.3 < passed < 1.5  # zeros at the border take a part
