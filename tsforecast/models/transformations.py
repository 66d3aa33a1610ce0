"""Transformations of targets, one class each: the way there and back, the density, the mean of a Gaussian behind it.

A new one is a class here and its name in `TRANSFORMATIONS` or `OF_SIZE_ONE`.
"""

import abc
import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

_NODES, _REACH = 64, 9.0  # of a quadrature: nodes, and standard deviations on either side


class AbstractTransformation(abc.ABC):
    """A monotone map g of values, element by element.

    Attributes:
        largest: Largest size of a value that can be taken.
    """

    largest: float = 1e300

    @abc.abstractmethod
    def apply(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return g(values), in transformed units; values outside of the domain are taken as its ends."""

    @abc.abstractmethod
    def restore(
        self, values: Float[Tensor, "*shape"], size: Float[Tensor, "*#shape"] | None = None
    ) -> Float[Tensor, "*shape"]:
        """Return the inverse of g at values in transformed units, finite however far a tail is.

        Args:
            values: Values in transformed units.
            size: Size of the series, where the result enters a loss. From a million times this size on the tangent
                takes over. So paths that explode leave loss and gradient finite, and are still called back.
        """

    @abc.abstractmethod
    def log_slope(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return log g'(values); densities change by it."""

    @abc.abstractmethod
    def own_change(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return a change of values in transformed units by their own size in units of the data, by the slope there.

        That is at most 1 of a logarithm, and 1 of a logit.
        """

    @abc.abstractmethod
    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        """Return E[x] for g(x) ~ N(mean, deviation^2), or E[max(x, 0)] where values are clipped.

        Most inverses are sums of exp(a z), and E[exp(a z); z > 0] = exp(a m + a^2 s^2 / 2) Phi((m + a s^2) / s).

        Args:
            mean: Of any shape.
            deviation: Of the same shape; 0 where the value is known.
            clipped: Whether values are cut at zero.
        """

    def place(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return where values stand among restored ones: g(values), and infinite outside of the domain."""
        return self.apply(values)

    def check(self, lowest: float, highest: float) -> None:  # noqa: B027 - most take all values
        """Raise where data are outside of the domain.

        Args:
            lowest: Lowest value of the training data.
            highest: Highest value.

        Raises:
            ValueError: If they are; the message says what to do.
        """


class _Identity(AbstractTransformation):
    def apply(self, values: Tensor) -> Tensor:
        return values

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        return values

    def log_slope(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values)

    def own_change(self, values: Tensor) -> Tensor:
        return values.abs()

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        if not clipped:
            return mean
        ratio = mean / deviation.clamp_min(torch.finfo(mean.dtype).tiny)  # known values have none
        density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
        return mean * torch.special.ndtr(ratio) + deviation * density


class _Log1p(AbstractTransformation):
    """The logarithm of one more than a value: for counts."""

    largest = 1e36
    _LEAST = -1 + 1e-6  # barely above -1, below which there is no value

    def apply(self, values: Tensor) -> Tensor:
        return torch.log1p(values.clamp_min(self._LEAST))

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        if size is None:
            return torch.expm1(_bounded(values))
        kept = _kept(values, size)
        return torch.expm1(kept) + (values - kept) * torch.exp(kept)

    def log_slope(self, values: Tensor) -> Tensor:
        return -torch.log1p(values.clamp_min(self._LEAST))

    def own_change(self, values: Tensor) -> Tensor:
        return -torch.expm1(-values.abs())

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        return _exponential(1, mean, deviation, clipped) - _exponential(0, mean, deviation, clipped)

    def place(self, values: Tensor) -> Tensor:
        return torch.log1p(values.clamp_min(-1.0))

    def check(self, lowest: float, highest: float) -> None:
        if lowest <= -1:
            raise ValueError(f"log1p needs values above -1, the lowest is {lowest:g}; take the transformation 'asinh'")


class _Asinh(AbstractTransformation):
    """The inverse hyperbolic sine, a logarithm of either sign: for spikes of both signs."""

    largest = 1e36

    def apply(self, values: Tensor) -> Tensor:
        return torch.asinh(values)

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        if size is None:
            return torch.sinh(_bounded(values))
        kept = _kept(values, size)
        return torch.sinh(kept) + (values - kept) * torch.cosh(kept)

    def log_slope(self, values: Tensor) -> Tensor:
        return -0.5 * torch.log1p(values.square())

    def own_change(self, values: Tensor) -> Tensor:
        return values.abs().tanh()

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        return 0.5 * (_exponential(1, mean, deviation, clipped) - _exponential(-1, mean, deviation, clipped))


class _Sqrt(AbstractTransformation):
    """That of Box and Cox (1964) with the power 1/2, of one more than a value's size: it evens the spread of counts."""

    def apply(self, values: Tensor) -> Tensor:
        return 2 * values / (1 + (1 + values.abs()).sqrt())  # 2 ((1 + |x|)^1/2 - 1), which small values would lose

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        return values * (1 + 0.25 * values.abs())

    def log_slope(self, values: Tensor) -> Tensor:
        return -0.5 * torch.log1p(values.abs())

    def own_change(self, values: Tensor) -> Tensor:
        size = values.abs()
        return size * (1 + 0.25 * size) / (1 + 0.5 * size)

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        spread = deviation.clamp_min(torch.finfo(mean.dtype).tiny)
        below, density = torch.special.ndtr(mean / spread), torch.exp(-0.5 * (mean / spread).square())
        square, product = mean.square() + deviation.square(), mean * deviation * density / math.sqrt(2 * math.pi)
        quarter = square * below + product if clipped else square * (2 * below - 1) + 2 * product
        return _Identity().mean(mean, deviation, clipped) + 0.25 * quarter


class _Logit(AbstractTransformation):
    """The logit of shares from 0 to 1, moved a little inside, so that both ends have a finite place."""

    _END = 0.01  # from which the logit of 0 is taken, and from 1 likewise

    def apply(self, values: Tensor) -> Tensor:
        return torch.logit(self._inside(values))

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        return ((torch.sigmoid(values) - self._END) / (1 - 2 * self._END)).clamp(0.0, 1.0)

    def log_slope(self, values: Tensor) -> Tensor:
        share = self._inside(values)
        return math.log(1 - 2 * self._END) - share.log() - torch.log1p(-share)

    def own_change(self, values: Tensor) -> Tensor:
        return torch.ones_like(values)

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        """Return the mean by quadrature between the places of 0 and 1; beyond these, values count as 0 and 1."""
        spread = deviation.clamp_min(torch.finfo(mean.dtype).tiny)
        places = (self.apply(torch.tensor(end, dtype=mean.dtype)).to(mean) for end in (0.0, 1.0))
        low, high = ((place - mean) / spread for place in places)
        above = torch.special.ndtr(-high)
        # Beyond nine deviations there is no mass.
        low, high = low.clamp(-_REACH, _REACH).unsqueeze(-1), high.clamp(-_REACH, _REACH).unsqueeze(-1)
        nodes, weights = (torch.from_numpy(x).to(mean) for x in np.polynomial.legendre.leggauss(_NODES))
        points = 0.5 * (low + high + (high - low) * nodes)
        values = self.restore(mean.unsqueeze(-1) + deviation.unsqueeze(-1) * points)
        density = torch.exp(-0.5 * points.square()) / math.sqrt(2 * math.pi)
        between = 0.5 * ((high - low) * density * values * weights).sum(-1)
        return torch.where(deviation > 0, between + above, self.restore(mean))

    def place(self, values: Tensor) -> Tensor:
        return torch.where(values < 0, -torch.inf, torch.where(values < 1, self.apply(values), torch.inf))

    def check(self, lowest: float, highest: float) -> None:
        if not 0 <= lowest <= highest <= 1:
            raise ValueError(
                f"logit needs values from 0 to 1, they reach from {lowest:g} to {highest:g}; divide by the largest "
                "that can be, or take another transformation"
            )

    def _inside(self, values: Tensor) -> Tensor:
        return self._END + (1 - 2 * self._END) * values.clamp(0.0, 1.0)


class _Steep(AbstractTransformation):
    """A transformation of ten times the value: straight below about a tenth, and then like `plain`."""

    _TIMES = 10.0

    def __init__(self, plain: AbstractTransformation) -> None:
        self.plain = plain

    def apply(self, values: Tensor) -> Tensor:
        return self.plain.apply(self._TIMES * values)

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        return self.plain.restore(values, None if size is None else self._TIMES * size) / self._TIMES

    def log_slope(self, values: Tensor) -> Tensor:
        return math.log(self._TIMES) + self.plain.log_slope(self._TIMES * values)

    def own_change(self, values: Tensor) -> Tensor:
        return self.plain.own_change(values)

    def mean(self, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
        return self.plain.mean(mean, deviation, clipped) / self._TIMES


def _bounded(values: Tensor) -> Tensor:
    """Return values clamped so that their exponential is finite."""
    bound = math.log(torch.finfo(values.dtype).max) - 1
    return values.clamp(-bound, bound)


def _kept(values: Tensor, size: Tensor) -> Tensor:
    """Return values clamped to the range below the tangent, see `AbstractTransformation.restore`."""
    most = torch.log(1e6 * (size + 1))
    return values.clamp(-most, most)


def _exponential(factor: int, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
    """Return E[exp(factor z)], where clipped of z > 0 alone."""
    found = _bounded(factor * mean + 0.5 * factor**2 * deviation.square()).exp()
    if not clipped:
        return found
    shifted = mean + factor * deviation.square()
    # The share of a lognormal that is not cut off.
    return found * torch.special.ndtr(shifted / deviation.clamp_min(torch.finfo(mean.dtype).tiny))


# By name: transformations of values in the units of the data, and of values of size one.
TRANSFORMATIONS: dict[str, AbstractTransformation] = {
    "none": _Identity(),
    "log1p": _Log1p(),
    "asinh": _Asinh(),
    "logit": _Logit(),
    "sqrt": _Sqrt(),
}
OF_SIZE_ONE: dict[str, AbstractTransformation] = {
    "none": _Identity(),
    "symlog": _Steep(_Asinh()),
    "asinh": _Asinh(),
    "symsqrt": _Steep(_Sqrt()),
}
_BY_NAME = TRANSFORMATIONS | OF_SIZE_ONE


def transformation_of(name: str) -> AbstractTransformation:
    """Return the transformation of a name in `TRANSFORMATIONS` or `OF_SIZE_ONE`; "auto" is none.

    Raises:
        ValueError: If there is no such transformation.
    """
    if name not in _BY_NAME and name != "auto":
        raise ValueError(f"expected a transformation among {', '.join(_BY_NAME)}, got {name!r}")
    return _BY_NAME.get(name, TRANSFORMATIONS["none"])
