"""Convolutional networks between frames and auxiliaries, of the form of the Kalman VAE's (Fraccaro et al. 2017)."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Each of three convolutions halves, or doubles, height and width.
_FACTOR = 8


@dataclasses.dataclass(frozen=True)
class ImageSize:
    """Sizes of frames, and of the networks for them.

    Attributes:
        height: In pixels, a multiple of 8.
        width: Likewise.
        filters: Channels of every convolution (before pixels are shuffled).

    Raises:
        ValueError: If height or width is none.
    """

    height: int
    width: int
    filters: int = 32

    def __post_init__(self) -> None:
        """Refuse sizes that the convolutions cannot halve."""
        if any(size < _FACTOR or size % _FACTOR for size in (self.height, self.width)):
            raise ValueError(f"expected frames of multiples of {_FACTOR} pixels, got {self.height} x {self.width}")
        if self.filters < 1:
            raise ValueError(f"expected filters to be at least 1, got {self.filters}")

    @property
    def smallest(self) -> tuple[int, int, int]:
        """Channels, height and width where an image is smallest."""
        return self.filters, self.height // _FACTOR, self.width // _FACTOR

    @property
    def num_features(self) -> int:
        """Numbers in the smallest image."""
        channels, height, width = self.smallest
        return channels * height * width


class ImageEncoder(nn.Module):
    """Three convolutions (3x3, stride 2, ReLU) over frames.

    Args:
        size: Of the frames.
    """

    def __init__(self, size: ImageSize) -> None:
        super().__init__()
        self.size = size
        layers: list[nn.Module] = []
        for inner in (1, size.filters, size.filters):
            layers += [nn.Conv2d(inner, size.filters, 3, stride=2, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        keep_variance(self.layers)

    def forward(self, frames: Float[Tensor, "*batch pixel"]) -> Float[Tensor, "*batch feature"]:
        """Features of frames; a frame is a row of pixels."""
        images = frames.reshape(-1, 1, self.size.height, self.size.width)
        return self.layers(images).reshape(*frames.shape[:-1], self.size.num_features)

    @torch.no_grad()
    def standardise(self, frames: Float[Tensor, "*batch pixel"]) -> None:
        """Scales the last layer, before anything is learnt, so that features of these frames have variance 1."""
        size = self(frames).std()
        last = self.layers[-2]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        if size > 0:
            last.weight /= size
            last.bias /= size


class ImageDecoder(nn.Module):
    """A linear layer, three times (convolution 3x3, ReLU, pixel shuffle x2), and a 1x1 convolution.

    Args:
        auxiliary_dim: Size of z.
        channels: Outputs for every pixel.
        size: Of the frames.
    """

    def __init__(self, auxiliary_dim: int, channels: int, size: ImageSize) -> None:
        super().__init__()
        self.size = size
        self.first = nn.Linear(auxiliary_dim, size.num_features)
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Conv2d(size.filters, 4 * size.filters, 3, padding=1), nn.ReLU(), nn.PixelShuffle(2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(size.filters, channels, 1))
        keep_variance(self.layers)

    def forward(self, auxiliary: Float[Tensor, "*batch auxiliary"]) -> Float[Tensor, "*batch output"]:
        """Outputs of all pixels, channel by channel, row by row."""
        images = self.first(auxiliary).reshape(-1, *self.size.smallest)
        # Pixels are shuffled in half the time where channels lie side by side.
        images = self.layers[:-2](images.contiguous(memory_format=torch.channels_last))
        return self._last(images).reshape(*auxiliary.shape[:-1], -1)

    def _last(self, images: Float[Tensor, "image four_filters low narrow"]) -> Float[Tensor, "image channel _ _ _ _"]:
        """The last two layers in the other order: the result is the same, but one channel is shuffled, not all."""
        mix = self.layers[-1]
        assert isinstance(mix, nn.Conv2d)
        assert mix.bias is not None
        # Four channels before the shuffle are one after it: the places in a square of two by two pixels.
        weight = torch.kron(mix.weight.flatten(1), torch.eye(4, dtype=images.dtype, device=images.device))
        mixed = nn.functional.linear(images.movedim(1, -1), weight, mix.bias.repeat_interleave(4))
        return mixed.unflatten(-1, (-1, 2, 2)).permute(0, 3, 1, 4, 2, 5)


def keep_variance(network: nn.Module) -> None:
    """Initialise layers under ReLUs so that they neither shrink nor blow up their inputs (He et al. 2015)."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def principal_components(features: Float[Tensor, "sample feature"], count: int) -> Float[Tensor, "sample component"]:
    """The first principal components, of mean 0 and variance 1: `count`, or as many as there are.

    Args:
        features: At least two samples.
        count: Number of components.
    """
    left, scale, _ = torch.linalg.svd(features - features.mean(0), full_matrices=False)
    # Further components are rounding, blown up to variance 1.
    rank = int((scale[:count] > 1e-6 * scale[0].clamp_min(1e-6)).sum())
    return left[:, :rank] * len(features) ** 0.5


@torch.no_grad()
def begin_at(
    layer: nn.Linear, inputs: Float[Tensor, "sample feature"], outputs: Float[Tensor, "sample output"]
) -> None:
    """Makes a layer's first outputs about those given, by least squares; the others stay as they are.

    Directions in which inputs vary less than a tenth as much as in the first get no weight: large ones would make
    outputs jump with each change of the layers before.

    Args:
        layer: To change.
        inputs: Of the layer.
        outputs: Wanted for these.
    """
    mean = inputs.mean(0)
    weight = (torch.linalg.pinv(inputs - mean, rtol=0.1) @ outputs).mT
    layer.weight[: len(weight)] = weight
    layer.bias[: len(weight)] = outputs.mean(0) - weight @ mean
